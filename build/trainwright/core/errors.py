"""Define the expected failures, each with its exit code; an error has what, where, why, and a command as the fix."""

import difflib
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any


def without_password(text: str) -> str:
    """Return the text with its addresses redacted: no user, no password, and no query, which may be a signature."""
    text = re.sub(r"(?<=://)[^/\s'\"]*@", "***@", text)
    # Because the query is optional, a text full of :// is scanned once rather than once for each of them.
    return re.sub(r"(://[^\s?'\"]*)(\?[^\s,'\"]*)?", lambda found: found[1] + ("?***" if found[2] else ""), text)


SECRET = re.compile(
    r"\b((?:[A-Za-z_]{0,40}(?:[Pp]assword|PASSWORD|[Pp]asswd|[Ss]ecret|SECRET|[Tt]oken|TOKEN|[Aa]pi_?[Kk]ey|API_?KEY|ACCESS_KEY)"
    r"(?:_[A-Za-z_]{1,20})?['\"]?\s{0,3}[=:]\s{0,3}['\"]?|Bearer )(?!['\"\s])(?=[^\s'\",;)]{6}))[^\s'\",;)]{6,}"
    r"|\b(?:AKIA|ASIA)[A-Z0-9]{16}\b|\b(?:hf_|ghp_|gho_|ghs_|github_pat_|glpat-|sk-|xox[bp]-|nvapi-)[A-Za-z0-9_-]{16,}"
)


def masked(text: str) -> str:
    """Mask the credentials in a foreign text: passwords in addresses, tokens, keys, and values named a password."""
    return SECRET.sub(lambda found: f"{found[1] or ''}***", without_password(text))


DOUBTFUL = re.compile(r"[^ -~\n\t\u00a0]")  # all the others may stay


def printable(text: str) -> str:
    """Make foreign text safe for a terminal: replace unprintable characters, which could control it, with U+FFFD.

    CRLF becomes a line feed; a lone carriage return, as progress bars write it, becomes a space.
    """
    if text.isprintable():
        return text
    text = text.replace("\r\n", "\n").replace("\r", " ")
    return DOUBTFUL.sub(lambda found: found[0] if found[0].isprintable() else "\ufffd", text)


class TrainwrightError(Exception):
    """The base of every expected failure: shown without traceback and password, exits with `exit_code`."""

    exit_code = 1
    cited = False  # whether its lines are those of files that people have: project.cite()

    def __init__(self, what: str, *, where: str = "", why: str = "", fix: str = "") -> None:
        what, where, why, fix = (printable(without_password(text)) for text in (what, where, why, fix))
        super().__init__(what)
        self.what, self.where, self.why, self.fix = what, where, why, fix

    @property
    def named(self) -> str:
        """Return a short form for tables: what failed, with file:line if the error names a line."""
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
    """A usage or configuration error: an unknown name, malformed TOML, an unused pin, an undefined variable."""

    exit_code = 2


class IncompatibleError(TrainwrightError):
    """Incompatible versions: a rule of compat.toml is broken."""

    exit_code = 3


class LockError(TrainwrightError):
    """A stale lock, or a pin that is missing from it."""

    exit_code = 4


class StaleLock(LockError):
    """A lock that does not exist yet, or was resolved from another intent: `trainwright lock` writes it."""


class DamagedLock(LockError):
    """A lock that exists and cannot be read."""


class BuildError(TrainwrightError):
    """A failure of the build, a checksum or the probe."""

    exit_code = 5


class TestError(TrainwrightError):
    """A failed image test."""

    __test__ = False  # not a test class, despite the name
    exit_code = 6


class NotRunError(TrainwrightError):
    """A check that could not be run, which is reported rather than skipped."""

    exit_code = 7


class RegistryError(TrainwrightError):
    """A request that the registry refused, or content in it that differs from what was pushed."""

    exit_code = 8


class AwsError(TrainwrightError):
    """An AWS call that was refused or could not be made: credentials, permissions, quotas, network."""

    exit_code = 9
    code = ""  # the error code of Amazon or botocore
    denied = False  # a permission is missing
    passes = False  # throttling, a fault of Amazon's or of the network: a retry of the call may succeed


class JobError(TrainwrightError):
    """A training job that ended with a status other than 0."""

    exit_code = 9


class EnvironmentProblem(TrainwrightError):
    """Something that this machine lacks: engine, tool, disk, port, permission."""

    exit_code = 10


def of_this_machine(error: TrainwrightError) -> TrainwrightError:
    """Turn a lock or build error into an EnvironmentProblem if its reason is a full disk; return others unchanged."""
    if not isinstance(error, LockError | BuildError) or "no space left on device" not in error.why.lower():
        return error
    return EnvironmentProblem(error.what, where=error.where, why=error.why, fix="df -h, then the same command again")


def from_dict(said: dict[str, Any]) -> TrainwrightError:
    """Return the error that as_dict() described, with the lines that it names."""
    error = TrainwrightError(said["error"], where=said["where"], why=said["why"], fix=said["fix"])
    error.exit_code, error.cited = said["exit_code"], True
    return error


class Refusals(TrainwrightError):
    """Several errors at once, each with its own fix. Exits with the lowest of their codes; with 7 only if all are 7."""

    def __init__(self, what: str, rows: list[TrainwrightError]) -> None:
        super().__init__(
            f"{what}: {len(rows)} errors",
            why="; ".join(row.what for row in rows),
            fix="fix each of them, then run the same command again",
        )
        self.rows = rows
        hard = {row.exit_code for row in rows} - {NotRunError.exit_code}
        self.exit_code = min(hard, default=NotRunError.exit_code)

    def as_dict(self) -> dict[str, Any]:
        return {**super().as_dict(), "refusals": [row.as_dict() for row in self.rows]}


@contextmanager
def collected(into: list[TrainwrightError]) -> Iterator[None]:
    """Collect an error of the block for refuse_all(), so that all errors are reported at once."""
    try:
        yield
    except TrainwrightError as error:
        into.append(error)


def refuse_all(what: str, refused: Iterable[TrainwrightError]) -> None:
    """Raise the refusals, if any: a lone one as it is, several as Refusals; equal ones of several images only once."""
    rows = list({(row.what, row.where, row.why, row.fix): row for row in refused}.values())
    if rows:
        raise Refusals(what, rows) if len(rows) > 1 else rows[0]


FEW, MANY = 5, 25  # near names that an error shows; more valid names than MANY are not all shown


def nearest(name: str, valid: Iterable[str], otherwise: str) -> str:
    """Return the valid name that did_you_mean() names first, for a fix that agrees with it."""
    return next(iter(difflib.get_close_matches(name, sorted(valid), n=1)), otherwise)


def did_you_mean(name: str, valid: Iterable[str]) -> str:
    """Return one sentence with the nearest valid name, if any, and all valid names; above MANY, only similar ones."""
    names = sorted(valid)
    near = difflib.get_close_matches(name, names, n=FEW)
    hint = f"did you mean {near[0]!r}? " if near else ""
    if len(names) > MANY:  # too many to read
        return f"{hint}similar: {', '.join(near)}" if near else f"{len(names)} names are valid, for example {names[0]}"
    return f"{hint}valid: {', '.join(names) or 'none'}"
