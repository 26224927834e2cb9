"""Graft upon six of the foreign images of tests/foreign at each commit; `make test-foreign` takes all of them."""

from pathlib import Path

import pytest
from foreign import context, grafts, images
from tiny import built_in_this_run
from turns import taken

pytestmark = [pytest.mark.engine, pytest.mark.slow]
KNOWN = images.images()
TURN = 6


def why_never_here(one: images.Image) -> str:
    base = images.base(KNOWN, one.name)
    if one.real:
        return "it installs a real framework, of 0.7 GB or more"
    return "" if base in ("bookworm", "scratch") else f"it stands on {base}, which this test does not build"


CHEAP = [name for name, one in KNOWN.items() if not why_never_here(one)]
NAMES = taken(CHEAP, TURN)


@pytest.fixture(scope="module")
def base() -> str:
    from foreign import bases

    return bases.names(built_in_this_run())["bookworm"]


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("foreign") / "own"
    try:
        context.make(folder)
    except context.NotHere as problem:
        pytest.skip(f"not run: {problem}")
    return folder


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return grafts.checkout(tmp_path_factory.mktemp("graft") / "tree")


@pytest.mark.parametrize("name", NAMES)
def test_a_foreign_image(registry: str, base: str, own: Path, tree: Path, name: str) -> None:
    left = {one: why_never_here(row) or "its turn comes with another commit" for one, row in KNOWN.items()}
    print("".join(f"left out: {one}: {why}\n" for one, why in left.items() if one not in NAMES))
    [(_, reference)] = images.make([name], {"bookworm": base}, own, registry)
    outcome = grafts.graft(tree, registry, KNOWN[name], reference)
    print(outcome.became, outcome.found, f"{outcome.seconds} s, {outcome.added_bytes} bytes")
    assert not outcome.wrong


def test_each_image_comes_in_turn() -> None:
    assert {name for commit in range(len(CHEAP)) for name in taken(CHEAP, TURN, commit)} == set(CHEAP)
