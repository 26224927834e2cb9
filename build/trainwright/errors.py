"""What can go wrong, each with its own exit code; an error says what, where, why, and the command that fixes it."""

import difflib
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any


def without_password(text: str) -> str:
    """Addresses as they may be shown: no user, no password, and no query, which may be a signature."""
    text = re.sub(r"(?<=://)[^/\s'\"]*@", "***@", text)
    # The query is optional, so that a text full of :// is gone through once, and not once for each of them.
    return re.sub(r"(://[^\s?'\"]*)(\?[^\s,'\"]*)?", lambda found: found[1] + ("?***" if found[2] else ""), text)


def printable(text: str) -> str:
    """What a stranger wrote, as a terminal may show it: marks that would steer it become visible.

    A line's end of Windows is one, and the way back to the beginning of a line, as progress bars take it, a space.
    """
    if text.isprintable():
        return text
    text = text.replace("\r\n", "\n").replace("\r", " ")
    return "".join(mark if mark.isprintable() or mark in "\n\t\u00a0" else "\ufffd" for mark in text)


class TrainwrightError(Exception):
    """Base of every expected failure: shown without a traceback and without a password, ends with `exit_code`."""

    exit_code = 1

    def __init__(self, what: str, *, where: str = "", why: str = "", fix: str = "") -> None:
        what, where, why, fix = (printable(without_password(text)) for text in (what, where, why, fix))
        super().__init__(what)
        self.what, self.where, self.why, self.fix = what, where, why, fix

    @property
    def named(self) -> str:
        """What failed, with file:line where the error names a line: for tables, which have no room for more."""
        return f"{self.what} ({self.where})" if re.search(r":\d+$", self.where) else self.what

    def as_dict(self) -> dict[str, Any]:
        return {
            "error": self.what,
            "where": self.where,
            "why": self.why,
            "fix": self.fix,
            "exit_code": self.exit_code,
        }


class ConfigError(TrainwrightError):
    """Usage or configuration: an unknown name, malformed TOML, an unused pin, an undefined variable."""

    exit_code = 2


class IncompatibleError(TrainwrightError):
    """Versions that do not go together: a rule of compat.toml is broken."""

    exit_code = 3


class LockError(TrainwrightError):
    """The lock is stale, or a pin is missing from it."""

    exit_code = 4


class DamagedLock(LockError):
    """A lock that is there and cannot be read."""


class BuildError(TrainwrightError):
    """The build, a checksum or the probe failed."""

    exit_code = 5


class TestError(TrainwrightError):
    """An image test failed."""

    __test__ = False  # not a test class, whatever pytest makes of the name
    exit_code = 6


class NotRunError(TrainwrightError):
    """Something could not be established: said, never passed over."""

    exit_code = 7


class RegistryError(TrainwrightError):
    """The registry refused, or holds something else than what was pushed."""

    exit_code = 8


class AwsError(TrainwrightError):
    """Amazon refused a call, or nobody could make it: credentials, permissions, quotas, network."""

    exit_code = 9
    code = ""  # as Amazon, or botocore, calls it
    passes = False  # it was throttled, or Amazon's own fault, or the network's: the same call may work in a while


class JobError(TrainwrightError):
    """A training job ended, and not with 0."""

    exit_code = 9


class EnvironmentProblem(TrainwrightError):
    """This machine lacks something: engine, tool, disk, port, permission."""

    exit_code = 10


def of_this_machine(error: TrainwrightError) -> TrainwrightError:
    """A full disk is an EnvironmentProblem, whichever program met it while it resolved or built something."""
    if not isinstance(error, LockError | BuildError) or "no space left on device" not in error.why.lower():
        return error
    return EnvironmentProblem(error.what, where=error.where, why=error.why, fix="df -h; then the same command again")


class Refusals(TrainwrightError):
    """Several at once, each with its own fix. Ends as the least of them does; with 7 only where all of them would."""

    def __init__(self, what: str, rows: list[TrainwrightError]) -> None:
        super().__init__(
            f"{what}: {len(rows)} refusals",
            why="; ".join(row.what for row in rows),
            fix="mend each of them, and run the same command again",
        )
        self.rows = rows
        hard = {row.exit_code for row in rows} - {NotRunError.exit_code}
        self.exit_code = min(hard, default=NotRunError.exit_code)

    def as_dict(self) -> dict[str, Any]:
        return {**super().as_dict(), "refusals": [row.as_dict() for row in self.rows]}


@contextmanager
def collected(into: list[TrainwrightError]) -> Iterator[None]:
    """What is refused in here is kept for refuse_all(), so that whoever mends it hears of all of it at once."""
    try:
        yield
    except TrainwrightError as error:
        into.append(error)


def refuse_all(what: str, refused: Iterable[TrainwrightError]) -> None:
    """Raises a lone refusal as it is, several as Refusals; the same one of several images is said once."""
    rows = list({(row.what, row.where, row.why, row.fix): row for row in refused}.values())
    if rows:
        raise Refusals(what, rows) if len(rows) > 1 else rows[0]


FEW, MANY = 5, 25  # names that an error shows, and from when on it does not show all


def nearest(name: str, valid: Iterable[str], otherwise: str) -> str:
    """The valid name that did_you_mean() names first, for a remedy that says the same."""
    return next(iter(difflib.get_close_matches(name, sorted(valid), n=1)), otherwise)


def did_you_mean(name: str, valid: Iterable[str]) -> str:
    """One sentence that lists the valid names, nearest first if one is near."""
    names = sorted(valid)
    near = difflib.get_close_matches(name, names, n=FEW)
    hint = f"did you mean {near[0]!r}? " if near else ""
    if len(names) > MANY:  # nobody reads them all
        return f"{hint}near: {', '.join(near)}" if near else f"{len(names)} names are valid, {names[0]} for one"
    return f"{hint}valid: {', '.join(names) or 'none'}"
