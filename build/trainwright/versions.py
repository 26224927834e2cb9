"""Versions of anything, compared as numbers: upstream's, a distribution's, a vendor's rebuild. Never as strings.

For the order of two packages of one distribution there is python-debian; here the upstream version is what counts.
"""

import re
from functools import cache

from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.version import Version

PRE = r"[.~_]?(?:a|alpha|b|beta|c|rc|pre|preview|dev|post)(?![a-z])\.?\d*"
SHAPE = re.compile(rf"(?:\d+:)?v?(?P<release>\d+(?:\.\d+)*)(?P<pre>(?:{PRE})*)(?P<rest>.*)")


@cache
def parse(text: str) -> Version:
    """Any version as one that has an order. Raises ValueError for what begins with no number.

    What stands behind upstream's numbers (`amzn1.0` of a vendor, `-1+b2` of a distribution, `-aws`) tells rebuilds
    apart without leaving the upstream version: 2.6.0 < 2.6.0amzn1.0 < 2.6.0amzn10.0 < 2.6.1. An epoch is dropped:
    it is the archive's, and the same upstream version has several (gcc is 4:14.2.0-1 in one package, 14.2.0-19 in
    another).
    """
    match = SHAPE.fullmatch(text.strip().lower())
    if not match:
        raise ValueError(f"{text!r} is no version: it begins with no number")
    local = ".".join(re.findall(r"\d+|[a-z]+", match["rest"]))
    return Version(match["release"] + match["pre"].replace("~", "") + (f"+{local}" if local else ""))


@cache
def specifiers(text: str) -> SpecifierSet:
    """A range such as `>=1.22,<2`. Raises ValueError for one that is broken, empty, or that nothing can be in."""
    if not text.strip():
        raise ValueError("an empty range; any version is '>=0'")
    if "===" in text:
        raise ValueError(f"{text!r} compares strings; exactly one version is '==1.2.3'")
    try:
        found = SpecifierSet(text)
    except InvalidSpecifier as error:
        raise ValueError(f"{error}; a range looks like '>=1.22,<2', and names no vendor's rebuild") from None
    if found.is_unsatisfiable():
        raise ValueError(f"no version can be in {text!r}")
    return found


@cache
def within(version: str, range_: str) -> bool:
    """Whether a version is in a range. A pre-release is in, where its numbers are: it is what the image holds."""
    return specifiers(range_).contains(parse(version), prereleases=True)


def in_order(versions: list[str]) -> list[str]:
    """Oldest first."""
    return sorted(set(versions), key=parse)


def older(one: str, other: str) -> bool:
    """Whether upstream's version is older; a vendor's rebuild of the same version is not."""
    return Version(parse(one).public) < Version(parse(other).public)
