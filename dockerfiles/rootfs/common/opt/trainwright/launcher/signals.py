"""Handle SIGTERM and SIGINT: before the script runs they end the launcher, afterwards they are passed to the script."""

import signal
from types import FrameType


class Stopped(BaseException):
    """Raised by a signal that arrives before the script runs."""


class Signals:
    """Remember the first signal. While `raising` is true, before the script runs, a signal raises Stopped."""

    def __init__(self) -> None:
        self.number, self.raising = 0, True

    @property
    def name(self) -> str:
        return signal.Signals(self.number).name if self.number else ""

    def install(self) -> None:
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._came)
        # trainwright_launch.py blocks SIGTERM until here, because the kernel drops signals that PID 1 does not handle.
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM, signal.SIGINT})

    def _came(self, number: int, _: FrameType | None) -> None:
        self.number = self.number or number
        if self.raising:
            self.raising = False  # a second signal must not interrupt the cleanup after the first
            raise Stopped
