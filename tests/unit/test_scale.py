"""Test benchmarks/scale at its smallest size: keys, the builds after a changed pin, bytes, and the page of results."""

import json
from pathlib import Path

import pytest
from scale import page, sizes, world
from scale.settings import settings
from scale.sizes import Layer

from trainwright.image import inputs
from trainwright.matrix.matrix import Intent, Recipe

ROOT = Path(__file__).parents[2]
KNOWN = settings()
COUNT = KNOWN.sizes[0]
PAGE = ROOT / "docs/scale.md"


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("scale") / "tree"
    world.plant(folder, KNOWN.originals, COUNT, KNOWN.own_pin, "4.1.2")
    return folder


def keys(intent: Intent) -> dict[str, str]:
    return {variant.id: inputs.load(Recipe(intent, variant)).key for variant in world.copies(intent)}


def test_every_copy_is_an_image_of_its_own(tree: Path) -> None:
    found = keys(world.relocked(tree))
    assert len(found) == len(set(found.values())) == COUNT


def test_a_changed_pin_is_another_key_for_those_that_have_it(tree: Path) -> None:
    before = keys(world.relocked(tree))
    moved = {}
    for change in KNOWN.changes:
        with world.repinned(tree, change.old, change.new) as intent:
            after = keys(intent)
        moved[change.id] = [name for name in before if after[name] != before[name]]
        assert keys(world.relocked(tree)) == before
    one, framework, everything = moved.values()
    assert [name.rpartition("-")[2] for name in one] == ["000"]
    assert framework == [name for name in before if name.startswith("tensorflow-")] != []
    assert everything == list(before)


def test_layers_are_counted_once_where_they_are_shared() -> None:
    low, high = Layer("sha256:low", 100, True), Layer("sha256:high", 7, False)
    held = {"a-1": [low, high], "b-1": [low, high]}
    copies = [("a-1-team-0", "a-1"), ("a-1-team-1", "a-1"), ("b-1-team-2", "b-1")]
    assert sizes.stored(copies, held, by_repository=True) == 2 * 100 + 3 * 7
    assert sizes.stored(copies, held, by_repository=False) == 100 + 3 * 7
    assert sizes.changed_bytes(copies[:2], held) == 2 * 7


def test_which_layers_a_small_wheel_changes() -> None:
    words = ["ADD base.tar /", "RUN uv pip install torch", "RUN uv pip install -r x && uv pip check", "RUN cp /rootfs"]
    config = {"history": [{"created_by": "ENV A=1", "empty_layer": True}, *({"created_by": word} for word in words)]}
    manifest = {"layers": [{"digest": str(number), "size": number} for number in range(4)]}
    assert [layer.common for layer in sizes.layers(manifest, config)] == [True, True, False, False]


def test_the_page_is_that_of_the_results() -> None:
    result = json.loads((ROOT / "docs/scale.json").read_text())
    assert [row["images"] for row in result["rows"]] == KNOWN.sizes
    text = PAGE.read_text()
    assert page.filled(text, result, KNOWN) == text, "page.write with docs/scale.json"


def test_every_limit_is_about_a_number_that_is_measured() -> None:
    result = json.loads((ROOT / "docs/scale.json").read_text())
    assert {limit.of for limit in KNOWN.limits} <= page.numbers(result["rows"][0]).keys()
