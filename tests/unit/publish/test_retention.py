"""Test which images of a registry are kept, and why."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from trainwright.publish import prune
from trainwright.publish.retention import ACCOUNTS, AGE, JOBS, Known, Listed, freed, judge
from trainwright.registry import client
from trainwright.registry.settings import Place

NOW = datetime(2026, 11, 22, tzinfo=UTC)
ID, KEY = "pytorch-2.13-cpu-py311-sagemaker", "a" * 64
OWN = f"{ID}-{'a' * 12}"
DIGEST, OTHER = f"sha256:{'1' * 64}", f"sha256:{'2' * 64}"
KNOWN = Known(at=NOW, days=30, keys={ID: f"{ID}-{'b' * 12}"}, released={}, used=set())
LABELS = {"io.trainwright.id": ID, "io.trainwright.key": KEY}
OLD = Listed(
    place="r",
    repository="r/trainwright/pytorch",
    digest=DIGEST,
    tags=[OWN],
    pushed=NOW - timedelta(days=31),
    created=NOW - timedelta(days=60),
    labels=LABELS,
    blobs={"sha256:a": 10, "sha256:b": 5},
)


def of(row: Listed, known: Known = KNOWN) -> tuple[str, str]:
    (verdict,) = judge([row], known)
    return verdict.state, verdict.why


def test_what_nothing_names_and_is_old_goes() -> None:
    assert of(OLD)[0] == "would delete"


@pytest.mark.parametrize(
    ("row", "known", "why"),
    [
        ({}, {"released": {DIGEST: "the release 2026.11.0"}}, "the release 2026.11.0 names it"),
        ({"tags": [OWN, f"{ID}-2026.10.0"]}, {}, "no record here"),
        ({"tags": [OWN, f"{ID}-latest"]}, {}, "the alias"),
        ({}, {"keys": {ID: OWN}}, "the present key"),
        ({}, {"used": {f"r/trainwright/pytorch:{OWN}"}}, "running job"),
        ({}, {"used": {f"r/trainwright/pytorch@{DIGEST}"}}, "running job"),
        ({}, {"used": {f"r/trainwright/pytorch:some@{DIGEST}"}}, "running job"),
        ({}, {"unasked": {JOBS: "you may not"}}, "unknown: whether a running job uses it (you may not)"),
        ({"pushed": NOW - timedelta(days=29, hours=23)}, {}, "younger than 30 days"),
        ({"pushed": None, "created": NOW}, {"waived": {AGE}}, "younger than 30 days"),
        ({"pushed": None}, {}, "unknown: this registry does not report when"),
        ({"labels": None}, {}, "unknown: it was not built by trainwright"),
        ({"labels": {"io.trainwright.id": ID}}, {}, "unknown: it was not built by trainwright"),
        ({"labels": LABELS | {"io.trainwright.parent": "x"}}, {}, "unknown: it was built on top of"),
        ({"tags": []}, {}, "unknown: it has no tag"),
        ({"tags": [OWN, "mine"]}, {}, "unknown: the tag mine has an unknown purpose"),
        ({"tags": [f"{ID}-{'c' * 12}"]}, {}, "unknown: the tag "),
        ({}, {"keys": {}}, "unknown: pytorch-2.13-cpu-py311-sagemaker is not in this checkout's matrix"),
        ({}, {"keys": {ID: ""}}, "unknown: this checkout cannot compute the present key"),
    ],
)
def test_each_reason_to_keep(row: dict[str, Any], known: dict[str, Any], why: str) -> None:
    said = of(OLD.model_copy(update=row), KNOWN.model_copy(update=known))
    assert said[0] == "kept"
    assert why in said[1]


def test_what_a_person_answers_for() -> None:
    unasked = KNOWN.model_copy(update={"unasked": {JOBS: "you may not"}, "waived": {JOBS}})
    assert of(OLD, unasked)[0] == "would delete"
    waived = KNOWN.model_copy(update={"waived": {AGE}})
    assert of(OLD.model_copy(update={"pushed": None}), waived)[0] == "would delete"
    assert of(OLD.model_copy(update={"pushed": NOW}), waived)[0] == "kept"


def test_each_of_those_who_cannot_be_asked_is_answered_for_alone() -> None:
    unasked = KNOWN.model_copy(update={"unasked": {JOBS: "here", ACCOUNTS: "there"}, "waived": {JOBS}})
    assert of(OLD, unasked) == ("kept", "unknown: whether a running job uses it (there)")
    used = unasked.model_copy(update={"used": {f"r/trainwright/pytorch@{DIGEST}"}, "waived": {JOBS, ACCOUNTS}})
    assert of(OLD, used)[0] == "kept"


def test_what_is_said_of_an_image_goes_where_it_goes() -> None:
    def beside(digest: str, end: str) -> Listed:
        tag = f"sha256-{digest.removeprefix('sha256:')}.{end}"
        return OLD.model_copy(update={"digest": f"sha256:{end}", "tags": [tag], "labels": {}, "pushed": NOW})

    kept = OLD.model_copy(update={"digest": OTHER, "tags": [f"{ID}-latest"]})
    for row, state in (
        (beside(DIGEST, "sig"), "would delete"),
        (beside(DIGEST, "att"), "would delete"),
        (beside(OTHER, "sig"), "kept"),
        (beside(f"sha256:{'3' * 64}", "att"), "would delete"),
    ):
        assert [verdict.state for verdict in judge([OLD, kept, row], KNOWN)][2] == state
    both = beside(DIGEST, "sig")
    both = both.model_copy(update={"tags": [*both.tags, *beside(OTHER, "sig").tags]})
    assert judge([OLD, kept, both], KNOWN)[2].state == "kept"
    named = beside(DIGEST, "sig").model_copy(update={"tags": [*beside(DIGEST, "sig").tags, "mine"]})
    assert judge([OLD, kept, named], KNOWN)[2].state == "kept"


def test_bytes_that_something_else_holds_are_not_freed() -> None:
    other = OLD.model_copy(update={"digest": OTHER, "blobs": {"sha256:b": 5, "sha256:c": 1}})
    elsewhere = OLD.model_copy(update={"digest": OTHER, "repository": "r/another"})
    gone = {(OLD.repository, DIGEST)}
    assert freed([OLD, other], gone) == 10
    assert freed([OLD, elsewhere], gone) == 15
    assert freed([OLD, other], gone | {(OLD.repository, OTHER)}) == 16


TWIN = OLD.model_copy(update={"digest": OTHER, "tags": [f"{OWN}-zstd"], "config": "sha256:c", "twin": True})
IMAGE = OLD.model_copy(update={"config": "sha256:c"})


def both(image: dict[str, Any], twin: dict[str, Any], known: Known = KNOWN) -> dict[str, tuple[str, str]]:
    rows = judge([IMAGE.model_copy(update=image), TWIN.model_copy(update=twin)], known)
    return {row.digest: (row.state, row.why) for row in rows}


def test_a_twin_goes_with_its_image() -> None:
    found = both({}, {})
    assert {state for state, _ in found.values()} == {"would delete"}
    assert found[OTHER][1] == "it is a zstd twin, and its image is deleted"


@pytest.mark.parametrize(
    ("image", "twin", "known"),
    [
        ({"tags": [OWN, f"{ID}-latest"]}, {}, {}),
        ({}, {"tags": [f"{OWN}-zstd", f"{ID}-zstd-latest"]}, {}),
        ({}, {"tags": [f"{OWN}-zstd", f"{ID}-2026.10.0-zstd"]}, {}),
        ({}, {"pushed": NOW - timedelta(days=3)}, {}),
        ({}, {}, {"used": {f"r/trainwright/pytorch:{OWN}-zstd"}}),
        ({}, {}, {"used": {f"r/trainwright/pytorch@{OTHER}"}}),
        ({}, {}, {"released": {DIGEST: "the release 2026.11.0"}}),
        ({}, {}, {"keys": {ID: OWN}}),
        ({}, {"tags": [f"{OWN}-zstd", "mine"]}, {}),
        ({"tags": [OWN, "mine"]}, {}, {}),
    ],
)
def test_neither_is_left_alone(image: dict[str, Any], twin: dict[str, Any], known: dict[str, Any]) -> None:
    """Whatever keeps one of them keeps the other."""
    found = both(image, twin, KNOWN.model_copy(update=known))
    assert {state for state, _ in found.values()} == {"kept"}, found


def test_a_twin_alone() -> None:
    (row,) = judge([TWIN], KNOWN)
    assert (row.state, row.why) == ("would delete", "it is a zstd twin, and its image is not there")
    (row,) = judge([TWIN.model_copy(update={"tags": [f"{ID}-2026.10.0-zstd"]})], KNOWN)
    assert row.state == "kept"
    elsewhere = IMAGE.model_copy(update={"repository": "r/other", "tags": [OWN, f"{ID}-latest"]})
    assert [row.state for row in judge([elsewhere, TWIN], KNOWN)] == ["kept", "would delete"]


def test_images_of_the_same_configuration_that_are_no_twins_are_judged_alone() -> None:
    other = IMAGE.model_copy(update={"digest": OTHER, "tags": [OWN, f"{ID}-latest"]})
    assert [row.state for row in judge([IMAGE, other], KNOWN)] == ["would delete", "kept"]


def test_what_is_about_a_twin_shares_its_verdict() -> None:
    name = OTHER.replace(":", "-")
    beside = OLD.model_copy(update={"digest": "sha256:s", "tags": [f"{name}.sig"], "labels": None})
    assert {row.state for row in judge([IMAGE, TWIN, beside], KNOWN)} == {"would delete"}
    kept = TWIN.model_copy(update={"tags": [f"{ID}-zstd-latest"]})
    assert {row.state for row in judge([IMAGE, kept, beside], KNOWN)} == {"kept"}


def test_a_deletion_that_is_interrupted_leaves_no_twin_without_its_image(monkeypatch: pytest.MonkeyPatch) -> None:
    """Twins go first, what is about a manifest last."""
    beside = OLD.model_copy(update={"digest": "sha256:s", "tags": [f"{OTHER.replace(':', '-')}.sig"], "labels": None})
    rows, deleted = judge([beside, IMAGE, TWIN], KNOWN), list[str]()
    monkeypatch.setattr(client, "delete", lambda _, digest: deleted.append(digest))
    prune._delete(Place(host="r", path="trainwright/pytorch"), rows, rows, lambda _: None)
    assert deleted == [OTHER, DIGEST, "sha256:s"]
