"""One module per kind of command; each registers its own with the program, when it is imported."""

from collections.abc import Sequence
from importlib import import_module

# Module to its commands: only the module of the command that was asked for is imported.
MODULES = {
    "cosign": ("cosign",),
    "deriving": ("derive", "verify"),
    "emitting": ("emit",),
    "following": ("attach", "watch"),
    "gating": ("judge", "diagnose", "estimate"),
    "launching": ("gate",),
    "lifecycle": ("diff", "prune"),
    "looking": ("list", "matrix", "explain", "find", "plan", "render", "lint", "doctor"),
    "loopback": ("registry",),
    "making": ("lock", "outdated", "fetch", "build", "test", "push", "record"),
    "measuring": ("baseline", "compare"),
    "pipelining": ("ci",),
    "rebuilding": ("rebuild",),
    "releasing": ("changes", "release", "rollback", "affected", "update"),
    "repositories": ("repositories",),
    "running": ("run",),
    "submitting": ("uri", "launch"),
}


def register(words: Sequence[str]) -> None:
    """Register the command that a command line asks for; every command where it names none that we know.

    Options before the command take no value, so the command is the first word without a dash. `--version` needs no
    command.
    """
    asked = next((word for word in words if not word.startswith("-")), "")
    modules = [module for module, names in MODULES.items() if asked in names]
    for module in modules or (() if "--version" in words[:1] else MODULES):
        import_module(f"trainwright.commands.{module}")
