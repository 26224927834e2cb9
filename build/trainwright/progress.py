"""How long work tells what it does: a line for people, and bytes for a bar."""

from collections.abc import Callable

Say = Callable[[str], None]
Progress = Callable[[int], None]


def counted(number: int, noun: str) -> str:
    """`1 package`, `2 packages`."""
    return f"{number} {noun}{'s' * (number != 1)}"
