"""Provide fixtures that tests of several commands share."""

from collections.abc import Iterator
from importlib import import_module
from typing import Any

import pytest
import typer

from trainwright import commands
from trainwright.commands.options import app


@pytest.fixture
def registered() -> dict[str, Any]:
    """Map the words of each command to typer's command."""
    for module in commands.NAMES:
        import_module(f"trainwright.commands.{module}")

    def below(command: Any, words: str) -> Iterator[tuple[str, Any]]:
        for name, one in getattr(command, "commands", {}).items():
            yield from below(one, f"{words} {name}".strip())
        if not hasattr(command, "commands"):
            yield words, command

    return dict(below(typer.main.get_command(app), ""))
