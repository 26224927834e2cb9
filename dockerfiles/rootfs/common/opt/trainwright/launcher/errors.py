"""What can go wrong before and while a job runs: said with its cause and its fix, never as a traceback."""

import sys


class LauncherError(Exception):
    """An expected failure; its text is what the user reads, its first line is enough for a failure file."""

    def __init__(self, what: str, why: str = "", fix: str = "") -> None:
        lines = [what, *(f"  {label:<6} {text}" for label, text in (("why:", why), ("fix:", fix)) if text)]
        super().__init__("\n".join(lines))
        self.what, self.why, self.fix = what, why, fix


def note(text: str) -> None:
    """One line on stderr, which every platform keeps; at once, as the container may be killed in the next moment."""
    print(f"trainwright-launch: {text}", file=sys.stderr, flush=True)
