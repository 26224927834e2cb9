"""Define what advisories are matched with: packages by ecosystem, and the order of their versions."""

from functools import cache
from typing import Any, Literal, NamedTuple

from packaging.version import Version
from pydantic import Field

from trainwright.core.toml import Model

PYPI = "PyPI"
# Words of severity, highest first: those of CVSS and GitHub, then those that only Debian and Ubuntu use.
SEVERITIES = ("critical", "high", "medium", "low", "negligible", "unimportant", "end-of-life")
SAME = {"moderate": "medium", "important": "high", "not yet assigned": "", "none": "", "unknown": "", "untriaged": ""}


class Package(NamedTuple):
    """A package as advisories name it: a Python package, or the source package of a distribution."""

    ecosystem: str  # of OSV: PyPI, Debian:12, Ubuntu:24.04
    name: str
    version: str  # of the source package


class Hit(Model):
    """One advisory that applies to one package."""

    id: str
    same: list[str] = Field(default=[])  # ids of the same problem in other databases
    covers: list[str] = Field(default=[])  # ids of the problems that an advisory of a distribution is about
    severity: str = ""  # one of SEVERITIES, or a database's own word; "" if the snapshot states none
    score: float | None = None  # CVSS base score
    fixed: str = ""  # the first version with the correction; "" if none is known
    undetermined: str = ""  # why it is not established that the package is affected


class NotCovered(Model):
    """Something in an image that no advisory can be found for, which is not the same as no advisory."""

    what: str
    why: str
    ecosystem: bool = False  # all packages of an ecosystem, not a single thing

    def __str__(self) -> str:
        return f"{self.what}: {self.why}"


class Seen(Model):
    """What one snapshot holds."""

    path: str
    format: Literal["OSV", "Debian security tracker"]
    advisories: int  # read, without the withdrawn ones
    withdrawn: int
    newest: str  # day of the newest change; "" if the format has none
    ecosystems: list[str]


@cache
def order(ecosystem: str, text: str) -> Any:
    """Return an object with the order of this ecosystem's versions. Raises ValueError if it is malformed."""
    if ecosystem == PYPI:
        return Version(text)
    from debian.debian_support import Version as DebianVersion

    return DebianVersion(text)


def compare(ecosystem: str, version: str, bound: str) -> int:
    """Return -1, 0 or 1 as `version` is below, at or above a bound of an advisory. Raises ValueError.

    Because `2.13.0+cpu` is 2.13.0 built for an accelerator, the local part counts only if the bound has one.
    """
    if bound == "0":  # the schema's "before every version"
        return 1
    one, other = order(ecosystem, version), order(ecosystem, bound)
    if ecosystem == PYPI and other.local is None:
        one = Version(one.public)
    return int(one > other) - int(one < other)


def severity(word: object) -> str:
    """Return a database's word for a severity in lower case, with one word for the same thing."""
    text = str(word or "").strip().lower().rstrip("*")
    return SAME.get(text, text)


def rank(word: str) -> int:
    """Return the place of a word, highest severity first; an unknown word comes last."""
    return SEVERITIES.index(word) if word in SEVERITIES else len(SEVERITIES)
