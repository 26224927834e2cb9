"""Define the launcher's error, which names what failed, why, and the fix, and print its notes on stderr."""

import sys


class LauncherError(Exception):
    """Describe an expected failure. Users read its text; the first line alone must be enough for a failure file."""

    def __init__(self, what: str, why: str = "", fix: str = "") -> None:
        lines = [what, *(f"  {label:<6} {text}" for label, text in (("why:", why), ("fix:", fix)) if text)]
        super().__init__("\n".join(lines))
        self.what, self.why, self.fix = what, why, fix


def note(text: str) -> None:
    """Print one line on stderr, which every platform keeps. Flush it, because the container may be killed next."""
    print(f"trainwright-launch: {text}", file=sys.stderr, flush=True)
