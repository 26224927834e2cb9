"""What can go wrong, each with its own exit code; an error says what, where, why, and the command that fixes it."""

import difflib
import re
from collections.abc import Iterable


def without_password(text: str) -> str:
    """Addresses as they may be shown: no user, no password, and no query, which may be a signature."""
    text = re.sub(r"(?<=://)[^/\s'\"]*@", "***@", text)
    return re.sub(r"(://[^\s?'\"]*)\?[^\s,'\"]*", r"\1?***", text)


class TrainwrightError(Exception):
    """Base of every expected failure: shown without a traceback and without a password, ends with `exit_code`."""

    exit_code = 1

    def __init__(self, what: str, *, where: str = "", why: str = "", fix: str = "") -> None:
        what, where, why, fix = map(without_password, (what, where, why, fix))
        super().__init__(what)
        self.what, self.where, self.why, self.fix = what, where, why, fix

    def as_dict(self) -> dict[str, str | int]:
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


class EnvironmentProblem(TrainwrightError):
    """This machine lacks something: engine, tool, disk, port, permission."""

    exit_code = 10


FEW, MANY = 5, 25  # names that an error shows, and from when on it does not show all


def did_you_mean(name: str, valid: Iterable[str]) -> str:
    """One sentence that lists the valid names, nearest first if one is near."""
    names = sorted(valid)
    near = difflib.get_close_matches(name, names, n=FEW)
    hint = f"did you mean {near[0]!r}? " if near else ""
    if len(names) > MANY:  # nobody reads them all
        return f"{hint}near: {', '.join(near)}" if near else f"{len(names)} names are valid, {names[0]} for one"
    return f"{hint}valid: {', '.join(names) or 'none'}"
