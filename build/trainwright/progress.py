"""How long work tells what it does: a line for people, and bytes for a bar."""

from collections.abc import Callable

Say = Callable[[str], None]
Progress = Callable[[int], None]
