"""Test the differences between two images."""

from typing import Any

import pytest

from trainwright.inspect.diff import sentences
from trainwright.inspect.diff_model import Blob, Contents, Row, Side, compare

CONTENTS = Contents(
    by="a test",
    versions={"python": "3.13.5"},
    distribution={"bash": "5.2"},
    python={"pip": "26.1"},
    sources={"nccl": ("2.30", "a" * 40)},
)
LAYERS = [Blob(digest="sha256:1", size=10), Blob(digest="sha256:2", size=5), Blob(digest="sha256:2", size=5)]
SIDE = Side(
    said="one",
    name="r/one@sha256:a",
    config={"Env": ["A=1"]},
    layers=LAYERS,
    unpacked=["1", "2", "2"],
    contents=CONTENTS,
)


def other(**changes: Any) -> Side:
    contents = {name: changes.pop(name) for name in [*changes] if name in Contents.model_fields}
    return SIDE.model_copy(update={**changes, "contents": CONTENTS.model_copy(update=contents)})


def test_the_same_is_no_difference() -> None:
    found = compare(SIDE, other())
    assert (found.rows, found.unknown) == ([], [])
    assert found.layers
    assert (found.layers.shared_bytes, found.layers.new_bytes, found.layers.old_size) == (15, 0, 15)
    assert sentences(found)[-1] == "no difference"


@pytest.mark.parametrize(
    ("new", "row"),
    [
        (other(versions={"python": "3.13.6"}), ("component", "python", "changed", "3.13.5", "3.13.6")),
        (other(distribution={}), ("distribution package", "bash", "removed", "5.2", "")),
        (other(python={"pip": "26.1", "b": "1"}), ("Python package", "b", "added", "", "1")),
        (
            other(sources={"nccl": ("2.30", "b" * 40)}),
            ("source", "nccl", "changed", f"2.30 ({'a' * 12})", f"2.30 ({'b' * 12})"),
        ),
        (other(config={"Env": ["A=2"]}), ("variable", "A", "changed", "1", "2")),
        (other(config={"Env": ["A=1"], "User": "nobody"}), ("configuration", "User", "changed", "root", "nobody")),
        (other(config={"Env": ["A=1"], "Shell": ["/bin/bash"]}), ("configuration", "Shell", "added", "", "/bin/bash")),
        (other(config={"Env": ["A=1"], "Labels": {"a": "b"}}), ("label", "a", "added", "", "b")),
        (
            other(config={"Env": ["A=1"], "Entrypoint": ["/a", "b"]}),
            ("configuration", "Entrypoint", "changed", "", "/a b"),
        ),
    ],
    ids=lambda value: value[1] if isinstance(value, tuple) else "",
)
def test_each_kind_of_difference(new: Side, row: tuple[str, ...]) -> None:
    found = compare(SIDE, new)
    assert found.rows == [Row.model_validate(dict(zip(Row.model_fields, row, strict=True)))]
    assert "no difference" not in sentences(found)[-1]


def test_root_has_many_names_and_a_label_repeats_a_component() -> None:
    said = {"Env": ["A=1"], "User": "0:0", "Labels": {"io.trainwright.version.python": "3.13.5"}}
    said["Shell"] = ["/bin/sh", "-c"]  # is what an image without one has
    assert compare(SIDE, other(config=said)).rows == []
    unknown = compare(other(versions=None), other(config=said, versions=None))
    assert [row.name for row in unknown.rows] == ["io.trainwright.version.python"]


def test_what_nobody_knows_is_said_and_never_no_difference() -> None:
    found = compare(SIDE, other(python=None, said="other", by="its labels"))
    assert found.unknown == ["Python packages of other: not listed by its labels"]
    assert sentences(found)[-1] == "no difference in what could be compared"
    assert sentences(found)[0].startswith("not compared: Python packages of other")


def test_a_layer_that_differs_alone_is_a_difference() -> None:
    found = compare(SIDE, other(layers=[LAYERS[0], Blob(digest="sha256:3", size=7)]))
    assert found.rows == []
    assert found.layers
    assert (found.layers.shared, found.layers.new, found.layers.gone) == (1, 1, 1)
    assert sentences(found) == ["layers: 1 shared, 1 new, 1 gone; a host with the first image pulls 0.0 MB of 0.0 MB"]


def test_without_a_registry_layers_are_compared_unpacked() -> None:
    found = compare(SIDE, other(layers=None, unpacked=["1", "3"]))
    assert found.layers
    assert (found.layers.shared, found.layers.new, found.layers.gone) == (1, 1, 1)
    assert found.layers.new_bytes is None
    assert "only known for images in a registry" in sentences(found)[0]
    assert compare(SIDE, other(config=None)).layers is None


def test_an_image_and_its_zstd_twin_are_one_image() -> None:
    one = other(digest="sha256:a", configuration="sha256:c", compression="gzip")
    twin = other(
        digest="sha256:b", configuration="sha256:c", compression="zstd", layers=[Blob(digest="sha256:z", size=9)]
    )
    assert sentences(compare(one, twin)) == [
        "same image, other compression: gzip 0.0 MB, zstd 0.0 MB; both have the configuration sha256:c"
    ]
    for same in (one, twin.model_copy(update={"configuration": "sha256:d"}), other(digest="sha256:b")):
        assert "same image" not in "".join(sentences(compare(one, same)))
