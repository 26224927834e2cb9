"""Publish through a faulty registry: no half-tagged image remains, and the same command completes the push.

The tests ask the registry itself for the result, not our client. A seed decides which requests are hit; to run one
again: `SEED=17 pytest tests/engine/test_faults.py -k few`.
"""

import hashlib
import os
import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import httpx
import layouts
import pytest
from faults import FIRED, KINDS, Strike, before, corrupted, shorten
from layouts import MANIFEST, Layout

from trainwright.core.errors import EnvironmentProblem, RegistryError, TrainwrightError
from trainwright.registry import auth
from trainwright.registry import client as registries

pytestmark = pytest.mark.registry

TAG = "tiny-1.0-cpu-py311-ec2-0123456789ab"
BATCH, SIDE_BY_SIDE = 25, 4
ONE = os.environ.get("SEED")
FEW = range(int(ONE), int(ONE) + 1) if ONE else range(BATCH)  # seeds of every `make test`
MANY = range(BATCH, BATCH + 100)  # of `make test-slow`


TRANSFER = {
    "attempts": 4,
    "wait_seconds": 0.02,
    "wait_most_seconds": 0.2,
    "chunk_bytes": 32_000,
    "connect_seconds": 2,
    "silence_seconds": 1.5,  # a machine that does much else answers late, too
}


@pytest.fixture(autouse=True)
def impatient(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Work in a checkout whose policy sets small pieces and short waits."""
    shorten(tmp_path / "here", **TRANSFER)
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.setenv("TRAINWRIGHT_STORE", str(tmp_path / "store"))


def make(folder: Path, chance: random.Random, sizes: Sequence[int] = (300, 70_000, 9_000, 200_000)) -> Layout:
    """Make an image of a few unique blobs, some of which take several pieces."""
    layers = [chance.randbytes(size) for size in sizes]
    return layouts.make(folder, layers, {"Labels": {"made": str(chance.random())}})


def publish(layout: Layout, repository: str, tag: str = TAG) -> None:
    """Publish a layout as the command does."""
    registries.push(layout.folder, repository, layout.digest)
    registries.verify(repository, layout.digest, layout.manifest)
    registries.tag(repository, layout.digest, tag)


def inspect(registry: str, path: str, *layouts: Layout, tagged: bool) -> str:
    """Check that the registry has at most our tag, and that it names one of these images, complete.

    Return the digest behind the tag, or "" if the registry lacks the tag.
    """
    url = f"http://{registry}/v2/{path}"
    answer = httpx.get(f"{url}/tags/list")
    tags = answer.json()["tags"] or [] if answer.status_code == 200 else []
    assert set(tags) <= {TAG}
    if TAG not in tags:
        assert not tagged
        return ""
    held = httpx.get(f"{url}/manifests/{TAG}", headers={"Accept": MANIFEST})
    digest = "sha256:" + hashlib.sha256(held.content).hexdigest()
    assert digest in {layout.digest for layout in layouts}
    for blob in [held.json()["config"], *held.json()["layers"]]:
        content = httpx.get(f"{url}/blobs/{blob['digest']}").content
        assert "sha256:" + hashlib.sha256(content).hexdigest() == blob["digest"]
        assert len(content) == blob["size"]
    return digest


def attempt(layout: Layout, repository: str) -> TrainwrightError | None:
    """Publish, and return None or the one error, which must say what to do."""
    found = None
    try:
        publish(layout, repository)
    except TrainwrightError as error:
        found = error
    if found:
        assert found.exit_code in (8, 9, 10), found
        assert found.fix, found
        assert len(found.why) < 2000
    return found


def run(registry: str, seed: int, folder: Path) -> Counter[str]:
    """Publish with the faults of a seed, and again after an error; return the faults that happened."""
    path, layout = f"faults/seed-{seed}", make(folder, random.Random(seed))
    with before(registry) as (address, faults):
        faults.password = "token"
        auth.authenticate(address, faults.credentials)
        faults.plan(seed)
        error = attempt(layout, f"{address}/{path}")
        assert faults.early == []
        inspect(registry, path, layout, tagged=error is None)
        if error:
            faults.strikes.clear()
            publish(layout, f"{address}/{path}")
            inspect(registry, path, layout, tagged=True)
        return faults.fired


def batch(registry: str, seeds: range, folder: Path) -> None:
    """Run every seed in parallel, because runs mostly wait; name the seeds that fail."""
    with ThreadPoolExecutor(SIDE_BY_SIDE) as pool:
        runs = {seed: pool.submit(run, registry, seed, folder / str(seed)) for seed in seeds}
    for seed, done in runs.items():
        if not done.exception():
            FIRED.add([seed], done.result())
    failed = {seed: done.exception() for seed, done in runs.items() if done.exception()}
    for seed, error in failed.items():
        print(f"SEED={seed} pytest tests/engine/test_faults.py -k few: {error!r}")
    if failed:
        raise next(filter(None, failed.values()))


def test_nothing_half_tagged_and_nothing_lost_few(registry: str, tmp_path: Path) -> None:
    batch(registry, FEW, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("first", range(MANY.start, MANY.stop, BATCH))
def test_nothing_half_tagged_and_nothing_lost(registry: str, first: int, tmp_path: Path) -> None:
    batch(registry, range(first, first + BATCH), tmp_path)


@pytest.mark.slow
def test_every_kind_of_fault_was_fired() -> None:
    if not FIRED.seeds >= {*MANY}:
        pytest.skip(f"not run: only {len(FIRED.seeds)} of the seeded runs were chosen")
    assert {kind for kind in KINDS if not FIRED.kinds[kind]} == set()


# --- each kind alone -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "times", [pytest.param(1, id="once"), pytest.param(1000, id="for-ever", marks=pytest.mark.slow)]
)
@pytest.mark.parametrize("kind", KINDS)
def test_each_kind_alone(registry: str, kind: str, times: int, tmp_path: Path) -> None:
    path, layout = (
        f"faults/{'-'.join(kind.lower().split())}-{times}",
        make(tmp_path / "layout", random.Random(f"{kind}{times}")),
    )
    with before(registry) as (address, faults):
        faults.password = "token"
        auth.authenticate(address, faults.credentials)
        faults.strikes = [Strike(kind, 0, times)]
        error = attempt(layout, f"{address}/{path}")
        assert faults.fired[kind]
        assert faults.early == []
        inspect(registry, path, layout, tagged=error is None)
        if times == 1 and kind not in SEEN_AND_SAID:
            assert error is None, error.why
        if times > 1 and kind != "slow link":
            assert error is not None
        faults.strikes.clear()
        publish(layout, f"{address}/{path}")
        inspect(registry, path, layout, tagged=True)


# What a registry did wrong once is not made good by asking again: the push ends, and the next one mends it.
SEEN_AND_SAID = {"blob lost after its upload", "blob lost after the manifest", "lying digest", "corrupted download"}


def test_the_invariants_can_fail(registry: str, tmp_path: Path) -> None:
    layout, other = [make(tmp_path / name, random.Random(name)) for name in ("layout", "other")]
    publish(layout, f"{registry}/faults/can-fail")
    for holds, tagged in (((other,), False), ((layout,), True)):
        layer = layout.manifest["layers"][1]["digest"]
        gone = httpx.delete(f"http://{registry}/v2/faults/can-fail/blobs/{layer}")
        assert gone.status_code in (202, 404)
        with pytest.raises(AssertionError):
            inspect(registry, "faults/can-fail", *holds, tagged=tagged)
    with pytest.raises(AssertionError):
        inspect(registry, "faults/nothing", layout, tagged=True)
    publish(layout, f"{registry}/faults/can-fail", "another-tag")
    with pytest.raises(AssertionError):
        inspect(registry, "faults/can-fail", layout, tagged=True)


def test_a_registry_that_keeps_other_bytes_than_it_was_sent(a_registry: Callable[[Path], str], tmp_path: Path) -> None:
    """As long as nobody reads them, it says that all is well: nothing of it gets a tag."""
    (tmp_path / "own").mkdir()
    registry, layout = a_registry(tmp_path / "own"), make(tmp_path / "layout", random.Random("rots"))
    registries.push(layout.folder, f"{registry}/faults/rots", layout.digest)
    digest = layout.manifest["layers"][1]["digest"].removeprefix("sha256:")
    (kept,) = (tmp_path / "own/data").rglob(f"{digest}/data")
    content = kept.read_bytes()
    kept.write_bytes(corrupted(content))
    for _ in range(2):  # and the same command again
        error = attempt(layout, f"{registry}/faults/rots")
        assert isinstance(error, RegistryError)
        assert digest in error.why
        inspect(registry, "faults/rots", layout, tagged=False)
    kept.write_bytes(content)
    publish(layout, f"{registry}/faults/rots")
    inspect(registry, "faults/rots", layout, tagged=True)


# --- killed, and started again ---------------------------------------------------------------------------------------

CHILD = """
import sys
from pathlib import Path
from trainwright.registry import client as registry
folder, repository, tag = sys.argv[1:]
digest, manifest = registry.manifest_of(Path(folder))
registry.push(Path(folder), repository, digest)
registry.verify(repository, digest, manifest)
registry.tag(repository, digest, tag)
"""


def test_killed_in_the_middle_and_started_again(registry: str, tmp_path: Path) -> None:
    """After the 1st, the 4th, the 7th request and so on, until it is through."""
    path, layout = "faults/killed", make(tmp_path / "layout", random.Random("killed"))
    with before(registry) as (address, faults):
        killed = 0
        for requests in range(1, 200, 3):
            faults.strikes, faults.seen = [Strike("slow link", 0, 10**6)], []
            words = [sys.executable, "-c", CHILD, str(layout.folder), f"{address}/{path}", TAG]
            child = subprocess.Popen(words, stderr=subprocess.PIPE, text=True)
            while child.poll() is None and len(faults.seen) < requests:
                time.sleep(0.005)
            child.kill()
            said = child.communicate(timeout=30)[1]
            if child.returncode == 0:
                break
            assert child.returncode == -9, said
            killed += 1
            inspect(registry, path, layout, tagged=False)
    assert killed > 3
    inspect(registry, path, layout, tagged=True)


# --- two at once -----------------------------------------------------------------------------------------------------


def at_once(*layouts: Layout, repository: str) -> list[TrainwrightError | None]:
    with ThreadPoolExecutor(len(layouts)) as pool:
        return list(pool.map(lambda layout: attempt(layout, repository), layouts))


@pytest.mark.parametrize("number", range(3))
def test_two_publish_the_same_image_at_once(registry: str, number: int, tmp_path: Path) -> None:
    path, layout = f"faults/same-{number}", make(tmp_path / "layout", random.Random(f"same-{number}"))
    assert at_once(layout, layout, repository=f"{registry}/{path}") == [None, None]
    inspect(registry, path, layout, tagged=True)


@pytest.mark.parametrize("immutable", [True, False], ids=["immutable", "plain"])
@pytest.mark.parametrize("number", range(3))
def test_two_publish_different_images_under_one_key(
    registry: str, number: int, immutable: bool, tmp_path: Path
) -> None:
    """An image that is not reproducible, built twice: one of them is the one, and whole; the other is told which."""
    path = f"faults/race-{immutable}-{number}".lower()
    layouts = [make(tmp_path / name, random.Random(f"{path}{name}")) for name in ("one", "other")]
    with before(registry) as (address, faults):
        faults.immutable = immutable
        errors = at_once(*layouts, repository=f"{address}/{path}")
    won = inspect(registry, path, *layouts, tagged=True)
    lost = [error for layout, error in zip(layouts, errors, strict=True) if layout.digest != won]
    assert next(error for layout, error in zip(layouts, errors, strict=True) if layout.digest == won) is None
    if immutable or lost != [None]:  # on a plain registry the last one wins, and both may have seen their own
        assert isinstance(lost[0], RegistryError)
        assert won in lost[0].why
        assert "never moves" in lost[0].what


# --- a full disk -----------------------------------------------------------------------------------------------------


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """Mount a file system of one megabyte."""
    place = tmp_path / "disk"
    place.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "none", place], capture_output=True, text=True)
    if mounted.returncode:
        pytest.skip(f"not run: no file system can be mounted here: {mounted.stderr.strip()}")
    yield place
    subprocess.run(["umount", "--lazy", place], check=True)


def test_the_registry_s_disk_is_full(small_disk: Path, a_registry: Callable[[Path], str], tmp_path: Path) -> None:
    registry, layout = a_registry(small_disk), make(tmp_path / "layout", random.Random("full"), (1_500_000, 5_000))
    error = attempt(layout, f"{registry}/faults/full")
    assert error is not None
    inspect(registry, "faults/full", layout, tagged=False)
    subprocess.run(["mount", "-o", "remount,size=16m", small_disk], check=True)
    publish(layout, f"{registry}/faults/full")
    inspect(registry, "faults/full", layout, tagged=True)


def test_the_store_s_disk_is_full(
    small_disk: Path, registry: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRAINWRIGHT_STORE", str(small_disk / "store"))
    with (small_disk / "filler").open("wb", buffering=0) as filler, suppress(OSError):
        while True:
            filler.write(bytes(4096))
    layout = make(tmp_path / "layout", random.Random("store"))
    with pytest.raises(EnvironmentProblem, match="no space left for the store"):
        publish(layout, f"{registry}/faults/store")
    inspect(registry, "faults/store", layout, tagged=False)
