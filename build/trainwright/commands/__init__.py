"""One file for each command, or group of commands: `trainwright push` is push.py, `trainwright ci proofs` is in ci.py.

Each registers its command with the program when it is imported.
"""

from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

# Read from the folder, so that a new command is a new file and nothing else.
NAMES = sorted(path.stem for path in Path(__file__).parent.glob("[a-z]*.py") if path.stem != "options")


def register(words: Sequence[str]) -> None:
    """Register the command that the command line names, or every command if it names no known one.

    Options before the command take no value, so the command is the first word without a dash. `--version` needs no
    command.
    """
    asked = next((word for word in words if not word.startswith("-")), "")
    names = [asked] if asked in NAMES else [] if "--version" in words[:1] else NAMES
    for name in names:
        import_module(f"trainwright.commands.{name}")


def every() -> dict[str, Any]:
    """Map the words of every command ("push", "ci proofs") to typer's command: for the documentation, and for tests."""
    from typer.main import get_command

    from trainwright.commands.options import app

    register([])
    found, left = dict[str, Any](), [("", get_command(app))]
    while left:
        words, command = left.pop()
        below = getattr(command, "commands", None)
        if below is None:
            found[words] = command
        else:
            left += [(f"{words} {name}".strip(), one) for name, one in below.items()]
    return dict(sorted(found.items()))
