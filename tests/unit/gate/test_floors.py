"""Test that the floors hold against published runs, and that no number of nodes falls between two rows."""

from pathlib import Path

import pytest

from trainwright.core import toml
from trainwright.core.errors import ConfigError
from trainwright.gate import floors
from trainwright.gate.nccl_tests import NAMES
from trainwright.matrix.instances import load_instances

ROOT = Path(__file__).parents[3]
TABLE, INSTANCES = floors.load_floors(ROOT), load_instances(ROOT)
GIB = 1 << 30
PUBLISHED = [  # instance, nodes, bytes, GB/s of all_reduce (worse column): where from, and how sure, in floors.toml
    ("p4d.24xlarge", 2, GIB, 42.46),
    ("p4d.24xlarge", 4, GIB, 29.5),  # the slowest of 2021
    ("p4de.24xlarge", 2, GIB, 76.79),
    ("p5.48xlarge", 2, GIB, 381.74),
    ("p5en.48xlarge", 16, 16 * GIB, 369.42),
    ("p6-b200.48xlarge", 4, GIB, 367.0),
    ("p6-b300.48xlarge", 2, 16 * GIB, 654.0),
]


def least(name: str, nodes: int, size: int, collective: str = "all_reduce") -> float:
    """Return the GB/s that a run of this size must reach; 0 if no row is about it."""
    asked = [0.0]
    for floor in floors.rows(TABLE, name, nodes, collective, "any"):
        if size >= floor.size:
            asked.append(floor.fraction * (floors.ceiling(floor.ceiling, INSTANCES[name], TABLE) or 0))
    return max(asked)


@pytest.mark.parametrize(("name", "nodes", "size", "busbw"), PUBLISHED)
def test_a_published_run_of_healthy_nodes_passes(name: str, nodes: int, size: int, busbw: float) -> None:
    assert 0 < least(name, nodes, size) < busbw


def test_a_floor_is_confirmed_or_bounded_or_says_that_it_is_derived() -> None:
    """What is published of 16 GiB says nothing of 8, and what is published of two nodes nothing of three."""
    assert least("p6-b300.48xlarge", 2, 8 * GIB) < 0.75 * 654
    for name in ("p4d.24xlarge", "p4de.24xlarge", "p5.48xlarge", "p5e.48xlarge", "p5en.48xlarge"):
        assert least(name, 3, GIB) < least(name, 2, GIB), name
        (beyond,) = floors.rows(TABLE, name, 3, "all_reduce", "any")
        assert beyond.evidence.startswith("derived"), name


def test_a_plugin_of_2021_is_refused_on_two_nodes() -> None:
    assert least("p4d.24xlarge", 2, GIB) > 32.84


def test_every_number_of_nodes_has_its_row() -> None:
    for name in {name for floor in TABLE.floors for name in floor.instances}:
        for collective in {one for floor in TABLE.floors if name in floor.instances for one in floor.collectives}:
            counts = [len(floors.rows(TABLE, name, nodes, collective, "any")) for nodes in range(2, 65)]
            assert set(counts) == {1}, (name, collective, counts)


def test_rows_name_what_exists() -> None:
    for floor in TABLE.floors:
        assert set(floor.instances) <= INSTANCES.keys()
        assert set(floor.collectives) <= set(NAMES)


def test_a_range_in_the_wrong_order_is_refused() -> None:
    text = (ROOT / floors.FILE).read_text().replace("nodes = [2, 2]", "nodes = [3, 2]", 1)
    with pytest.raises(ConfigError) as raised:
        toml.parse(text, floors.Floors, floors.FILE)
    assert "[least, most]" in raised.value.why
