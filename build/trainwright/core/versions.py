"""Compare versions of any origin as numbers: upstream's, a distribution's, a vendor's rebuild. Never as strings.

python-debian compares two packages of one distribution; here the upstream version counts.
"""

import re
from functools import cache

from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.version import InvalidVersion, Version

from trainwright.core.errors import NotRunError

PRE = r"[.~_]?(?:a|alpha|b|beta|c|rc|pre|preview|dev|post)(?![a-z])\.?\d*"
SHAPE = re.compile(rf"(?:\d+:)?v?(?P<release>\d+(?:\.\d+)*)(?P<pre>(?:{PRE})*)(?P<rest>.*)")


@cache
def parse(text: str) -> Version:
    """Parse any version into one that has an order. Raises ValueError if it does not begin with a number.

    The text after upstream's numbers (`amzn1.0` of a vendor, `-1+b2` of a distribution, `-aws`) distinguishes rebuilds
    within the upstream version: 2.6.0 < 2.6.0amzn1.0 < 2.6.0amzn10.0 < 2.6.1. An epoch is dropped, because it is the
    archive's and the same upstream version has several (gcc is 4:14.2.0-1 in one package, 14.2.0-19 in another).
    """
    match = SHAPE.fullmatch(text.strip().lower())
    if not match:
        raise ValueError(f"{text!r} is not a version: it does not begin with a number")
    local = ".".join(re.findall(r"\d+|[a-z]+", match["rest"]))
    return Version(match["release"] + match["pre"].replace("~", "") + (f"+{local}" if local else ""))


@cache
def specifiers(text: str) -> SpecifierSet:
    """Parse a range such as `>=1.22,<2`. Raises ValueError if it is invalid, empty or unsatisfiable."""
    if not text.strip():
        raise ValueError("an empty range; any version is '>=0'")
    if "===" in text:
        raise ValueError(f"{text!r} compares strings; exactly one version is '==1.2.3'")
    try:
        found = SpecifierSet(text)
    except InvalidSpecifier as error:
        raise ValueError(f"{error}; a range looks like '>=1.22,<2', without a vendor's suffix") from None
    if found.is_unsatisfiable():
        raise ValueError(f"no version satisfies {text!r}")
    return found


@cache
def within(version: str, range_: str) -> bool:
    """Return whether a version is in a range; pre-releases are not excluded, because an image may hold one."""
    return specifiers(range_).contains(parse(version), prereleases=True)


def in_order(versions: list[str]) -> list[str]:
    """Return the distinct versions, oldest first."""
    return sorted(set(versions), key=parse)


def older(one: str, other: str) -> bool:
    """Return whether upstream's version is older; a vendor's rebuild of the same version is not."""
    return Version(parse(one).public) < Version(parse(other).public)


def at_least(found: str, minimum: str) -> bool:
    """Return whether a version is at least the minimum. Raises NotRunError for a text that is not a version."""
    try:
        return Version(found) >= Version(minimum)
    except InvalidVersion as error:
        raise NotRunError(f"version {found} cannot be compared with the minimum {minimum}", why=str(error)) from None
