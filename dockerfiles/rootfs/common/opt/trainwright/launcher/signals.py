"""SIGTERM and SIGINT: until the script runs they end the launcher, from then on the script is told."""

import signal
from types import FrameType


class Stopped(BaseException):
    """A signal came before there was a script to tell."""


class Signals:
    """Which signal came first; `raising` while there is no script."""

    def __init__(self) -> None:
        self.number, self.raising = 0, True

    @property
    def name(self) -> str:
        return signal.Signals(self.number).name if self.number else ""

    def install(self) -> None:
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._came)
        # `train` held it back while one program became the other: PID 1 without a handler would not see it at all.
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM, signal.SIGINT})

    def _came(self, number: int, _: FrameType | None) -> None:
        self.number = self.number or number
        if self.raising:
            self.raising = False  # a second one must not break what the first one set off
            raise Stopped
