"""Test that versions are compared as numbers: upstream's, a distribution's, a vendor's."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainwright.core.versions import in_order, older, parse, specifiers, within

NUMBERS = st.lists(st.integers(0, 2000), min_size=1, max_size=4)


def text(numbers: list[int]) -> str:
    return ".".join(map(str, numbers))


def padded(numbers: list[int]) -> list[int]:
    return numbers + [0] * (4 - len(numbers))


@given(NUMBERS, NUMBERS)
def test_versions_order_numerically(one: list[int], other: list[int]) -> None:
    assert (parse(text(one)) < parse(text(other))) == (padded(one) < padded(other))
    if any(other):  # nothing is below 0
        assert within(text(one), f"<{text(other)}") == (padded(one) < padded(other))
    assert within(text(one), f">={text(other)}") == (padded(one) >= padded(other))


@given(NUMBERS, NUMBERS, st.integers(0, 9), st.integers(1, 99))
def test_what_a_distribution_adds_changes_no_order_of_upstream(
    one: list[int], other: list[int], epoch: int, revision: int
) -> None:
    debian = f"{epoch}:{text(one)}-{revision}+deb13u2"
    if padded(one) != padded(other):
        assert (parse(debian) < parse(text(other))) == (padded(one) < padded(other))
    assert within(debian, f"=={text(one)}")


@given(st.integers(0, 200), st.integers(0, 200))
def test_rebuilds_of_a_vendor_order_numerically(one: int, other: int) -> None:
    assert (parse(f"2.6.0amzn{one}.0") < parse(f"2.6.0amzn{other}.0")) == (one < other)


@pytest.mark.parametrize(
    "order",
    [
        ["1.9.0", "1.44.0", "1.50.0", "1.100.0"],  # as strings, 1.100.0 would be the oldest
        ["2.6.0", "2.6.0amzn1.0", "2.6.0amzn10.0", "2.6.1"],
        ["12.9.1", "13.0.3", "13.2.2"],
        ["4:9.4.0-1ubuntu1", "12.2.0-14+deb12u1", "4:14.2.0-1"],
        ["v1.13.2-aws", "v1.14.0", "1.21.1"],
        ["2.30.4-1", "v2.30.7-1", "2.31.2"],
        ["2.15.0.dev20261101", "2.15.0a0", "2.15.0rc1", "2.15.0", "2.15.0+cu132"],
        ["1.0~beta2", "1.0~rc1", "1.0-1", "1.0.1"],
        ["1:9.2p1-2+deb12u7", "1:10.0p1-7"],
    ],
)
def test_known_orders(order: list[str]) -> None:
    assert in_order(order[::-1]) == order


def test_rebuilds_of_different_people_are_different() -> None:
    assert parse("2.6.0amzn1.0") != parse("2.6.0-1.0")


@pytest.mark.parametrize("nothing", ["", "distro", "latest", "v", "-1"])
def test_what_begins_with_no_number_is_no_version(nothing: str) -> None:
    with pytest.raises(ValueError, match="is not a version"):
        parse(nothing)


@pytest.mark.parametrize(
    ("version", "range_"),
    [
        ("2.1.0-1.1", ">=1.22"),
        ("2.6.0amzn1.0", ">=2.6"),
        ("2.6.0amzn1.0", "==2.6.0"),
        ("v2.30.7-1", "==2.30.7"),
        ("2.15.0+cu132", "==2.15.0"),
        ("2.15.0a0", "<2.16"),
        ("13.2.2", ">=13.0,<14"),
    ],
)
def test_in_range(version: str, range_: str) -> None:
    assert within(version, range_)


@pytest.mark.parametrize(
    ("version", "range_"),
    [("1.17.0-3", ">=1.22"), ("1.9.0", ">=1.44"), ("1.21.1", "<1.21"), ("2.15.0rc1", ">=2.15.0")],
)
def test_not_in_range(version: str, range_: str) -> None:
    assert not within(version, range_)


@pytest.mark.parametrize("broken", ["", " ", "=>1.2", "1.x", ">=1.x", "1.2", "===1.2", ">=2,<1", ">=1.22.0amzn4.0"])
def test_a_broken_range_is_an_error(broken: str) -> None:
    with pytest.raises(ValueError, match=r"range|compares|no version satisfies"):
        specifiers(broken)


def test_older_is_about_upstream() -> None:
    assert older("2.4.0amzn5.0", "2.6.0amzn1.0")
    assert not older("2.6.0", "2.6.0amzn1.0")
    assert not older("2.6.0-1", "2.6.0amzn1.0")
    assert not older("2.7.0", "2.6.0")
