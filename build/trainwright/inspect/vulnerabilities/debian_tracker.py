"""Evaluate Debian's security tracker: https://security-tracker.debian.org/tracker/data/json.

By source package, then by problem: `releases` has for each suite its status (resolved, open, undetermined), the
`fixed_version` ("0" if the suite never had the problem) and the urgency.
"""

from collections.abc import Iterator
from typing import Any, Literal

from pydantic import field_validator

from trainwright.inspect.vulnerabilities.model import Hit, Package, compare, severity
from trainwright.inspect.vulnerabilities.osv import Said


class Release(Said):
    status: Literal["resolved", "open", "undetermined"]
    fixed_version: str = ""
    urgency: str = ""


class Problem(Said):
    releases: dict[str, Release]

    @field_validator("releases", mode="before")
    @classmethod
    def _none(cls, value: Any) -> Any:
        return value or {}  # a problem without a suite was once written as an empty list


def looks_like_it(value: Any) -> bool:
    """Return whether a value is what the tracker has for one source package."""
    return isinstance(value, dict) and all(isinstance(one, dict) and "releases" in one for one in value.values())


def suites(value: dict[str, Any]) -> Iterator[str]:
    for problem in value.values():
        if isinstance(releases := problem["releases"], dict):
            yield from releases


def hits(problems: dict[str, Problem], suite: str, package: Package) -> Iterator[Hit]:
    """Yield every problem of a source package that this version of it has in a suite."""
    for name, problem in problems.items():
        found = problem.releases.get(suite)
        if found is None:
            continue
        word, why = severity(found.urgency), ""
        if found.status == "resolved":
            try:  # "0" is below every version
                if compare(package.ecosystem, package.version, found.fixed_version) >= 0:
                    continue
            except ValueError as error:
                why = f"the fixed version cannot be compared: {error}"
        elif found.status == "undetermined":
            why = "Debian has not determined whether it is affected"
        yield Hit(id=name, severity=word, fixed=found.fixed_version, undetermined=why)
