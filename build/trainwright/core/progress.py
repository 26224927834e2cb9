"""Define the progress callbacks of long work: a line for people, and bytes for a bar."""

from collections.abc import Callable

Say = Callable[[str], None]
Progress = Callable[[int], None]


def counted(number: int, noun: str) -> str:
    """Return the number with its noun: `1 package`, `2 packages`."""
    return f"{number} {noun}{'s' * (number != 1)}"
