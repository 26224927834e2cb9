"""Test release trains: names, their order, what is recorded, and the contents of a security release."""

import tomllib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainwright.core.errors import ConfigError
from trainwright.core.toml import parse
from trainwright.image import tags
from trainwright.lock.packages import Stanzas
from trainwright.publish import release_records
from trainwright.publish.release_records import Shipped, Train

IMAGE = Shipped(key="a" * 64, digest="sha256:" + "b" * 64, repository="trainwright/tiny")


def train(name: str, *images: str) -> Train:
    return Train(name=name, date="2026-11-21", commit="c" * 40, images=dict.fromkeys(images or ("one",), IMAGE))


def by_name(*found: Train) -> dict[str, Train]:
    return {one.name: one for one in found}


@pytest.mark.parametrize("name", ["2026.11.0", "2026.1.12", "2027.12.1"])
def test_names(name: str) -> None:
    assert str(release_records.version(name)) == name


@pytest.mark.parametrize(
    "name",
    [
        *("2026.11", "2026.01.0", "26.11.0", "2026.13.0", "2026.0.0", "2026.11.0.1", "2026.11.0rc1", "v2026.11.0"),
        *("", "latest", "2026.11.x", "1!2026.11.0", "2026.11.0+x", "2026.11.-1", " 2026.11.0", "2026.11.0\n"),
    ],
)
def test_what_is_no_name(name: str) -> None:
    with pytest.raises(ConfigError, match="not a release name"):
        release_records.version(name)


def test_earlier_is_of_the_same_train_and_by_number() -> None:
    known = by_name(*map(train, ["2026.11.0", "2026.11.2", "2026.11.10", "2026.1.1", "2026.12.0", "2025.11.5"]))
    assert [found.name for found in release_records.earlier("2026.11.11", known)] == [
        "2026.11.10",
        "2026.11.2",
        "2026.11.0",
    ]
    assert release_records.earlier("2026.11.0", known) == []
    assert release_records.earlier("2026.10.1", known) == []


def test_newest_is_by_image_and_by_number() -> None:
    known = [train("2026.9.0", "one", "two"), train("2026.10.0", "one"), train("2026.10.1", "one")]
    assert release_records.newest("one", known) == "2026.10.1"
    assert release_records.newest("two", known) == "2026.9.0"
    assert release_records.newest("three", known) == ""


@pytest.mark.parametrize(
    ("names", "following"),
    [
        (["2026.11.0"], "2026.12.0"),
        (["2026.9.3", "2026.11.1"], "2026.12.0"),
        (["2026.12.0"], "2027.1.0"),
        (["2026.11.0", "2027.1.4"], "2027.2.0"),
    ],
)
def test_next_train(names: list[str], following: str) -> None:
    assert release_records.next_train(names) == following


@given(st.integers(2000, 9999), st.integers(1, 12), st.integers(0, 999))
def test_next_train_is_a_name_and_newer(year: int, month: int, patch: int) -> None:
    name = f"{year}.{month}.{patch}"
    if (year, month) != (9999, 12):
        assert release_records.version(release_records.next_train([name])) > release_records.version(name)


@pytest.mark.parametrize(
    ("name", "fixed"),
    [
        ("tiny-1.0-cpu-py311-ec2-2026.11.0", True),
        ("tiny-1.0-cpu-py311-ec2-0123456789ab", True),
        ("tiny-1.0-cpu-py311-ec2", False),
        ("tiny-1.0-cpu-py311-ec2-devel", False),
        ("tiny-1.0-cpu-py311-ec2-ubuntu-22.04", False),
        ("tiny-1.0-cpu-py311-ec2-debian-12", False),
    ],
)
def test_which_tags_are_fixed(name: str, fixed: bool) -> None:
    assert tags.is_immutable(name) is fixed


def test_no_image_of_the_matrix_looks_like_a_fixed_tag(intent: object) -> None:
    assert [variant.id for variant in intent.variants if tags.is_immutable(variant.id)] == []  # type: ignore[attr-defined]


def test_a_record_is_read_as_it_was_written_and_sorted() -> None:
    wanted = train("2026.11.0", "two-1.0-cpu", "one-2.13-cpu")
    text = release_records.dump(wanted)
    assert parse(text, Train, "x") == wanted
    assert list(tomllib.loads(text)["images"]) == ["one-2.13-cpu", "two-1.0-cpu"]
    assert release_records.dump(parse(text, Train, "x")) == text


# --- security alone ------------------------------------------------------------------------------------------------


def stanzas(*rows: str) -> Stanzas:
    """Parse rows of the form `name version archive [needs]`."""
    found = {}
    for row in rows:
        name, version, archive, *needs = row.split()
        found[name] = {"Package": name, "Version": version, "Archive": archive, "SHA256": f"{name}{version}"}
        if needs:
            found[name]["Depends"] = ", ".join(needs)
    return found


OLD = stanzas("libssl 3.0.1 debian", "tzdata 2026a debian", "curl 8.1 debian-security")


@pytest.mark.parametrize(
    ("new", "problems"),
    [
        (["libssl 3.0.1 debian", "tzdata 2026a debian", "curl 8.1 debian-security"], []),
        (["libssl 3.0.2 debian-security", "tzdata 2026a debian", "curl 8.1 debian-security"], []),
        (["libssl 3.0.1 debian", "tzdata 2026a debian", "curl 8.1 debian"], []),  # a point release took it over
        (
            ["libssl 3.0.2 debian", "tzdata 2026b debian", "curl 8.2 debian-security"],
            ["libssl 3.0.1 -> 3.0.2 (debian)", "tzdata 2026a -> 2026b (debian)"],
        ),
        (["libssl 3.0.1 debian", "curl 8.1 debian-security"], ["tzdata 2026a is gone"]),
        # What a security update newly needs, and what that needs, comes along; nothing else does.
        (
            [
                *("libssl 3.0.2 debian-security libnew", "libnew 1 debian libnewer", "libnewer 2 debian", "x 1 debian"),
                *("tzdata 2026a debian", "curl 8.1 debian-security"),
            ],
            ["x (new) -> 1 (debian)"],
        ),
        # One that was there already is no newcomer, whoever needs it.
        (
            ["libssl 3.0.2 debian-security tzdata", "tzdata 2026b debian", "curl 8.1 debian-security"],
            ["tzdata 2026a -> 2026b (debian)"],
        ),
    ],
)
def test_beyond_security(new: list[str], problems: list[str]) -> None:
    assert release_records.beyond_security(OLD, stanzas(*new)) == problems


def test_the_same_version_with_other_bytes_is_another_package() -> None:
    rebuilt = {**OLD, "libssl": {**OLD["libssl"], "SHA256": "other"}}
    assert release_records.beyond_security(OLD, rebuilt) == ["libssl 3.0.1 -> 3.0.1 (debian)"]
