"""Define the progress callbacks of long work: a line for people, and bytes for a bar."""

from collections.abc import Callable, Sequence

Say = Callable[[str], None]
Progress = Callable[[int], None]
FEW = 5  # sentences of an error


def counted(number: int, noun: str) -> str:
    """Return the number with its noun: `1 package`, `2 packages`."""
    return f"{number} {noun}{'s' * (number != 1)}"


def few(values: Sequence[object], most: int = FEW, between: str = "; ") -> str:
    """Join the first values, by default as sentences, and say how many more there are: `a; b and 3 more`."""
    more = f" and {len(values) - most} more" if len(values) > most else ""
    return between.join(map(str, values[:most])) + more
