"""Test `trainwright prove`: which images in which order, what is left and why, and how it goes on."""

import json
import re
import shutil
import time
from collections.abc import Callable
from datetime import date
from pathlib import Path
from threading import Event
from types import SimpleNamespace
from typing import Any

import pytest
import requests

from trainwright.build import disk, image_tests, loopback, proof_code, proofs, prove, recording
from trainwright.core import process, project, store
from trainwright.core.errors import BuildError, EnvironmentProblem, LockError, NotRunError, TrainwrightError
from trainwright.core.files import only_one
from trainwright.docker import engine
from trainwright.docker.buildx import Builder
from trainwright.image import inputs
from trainwright.matrix.matrix import Recipe, load_intent
from trainwright.matrix.records import Drift, Image, Record, Where
from trainwright.registry import client
from trainwright.resolve import fetch, foreign, upstream

Edit = Callable[[Path, str, str], None]
Cli = Callable[..., Any]
SAGEMAKER, EC2 = "base-1.0-cpu-py313-sagemaker", "base-1.0-cpu-py313-ec2"
JAX = "jax-0.12-cpu-py313-sagemaker"
RUNTIME = "pytorch-2.15-cu132-py313-sagemaker-single-node"
DEVEL = f"{RUNTIME}-devel"
EFA = "pytorch-2.15-cu132-py313-ec2"
FREE = 10**15


@pytest.fixture
def tree(few: Path) -> Path:
    return few


class World:
    """Stand-ins for engine, registry, network, tests and records; `calls` has what was asked of them, in order."""

    def __init__(self) -> None:
        self.calls = list[tuple[str, str]]()
        self.held = set[str]()  # names of images in the engine
        self.published = dict[str, str]()  # digests, by tag
        self.free = [FREE]  # bytes, one for each look; the last one stays
        self.ends = dict[str, tuple[int, str] | BaseException]()  # of the tests of an image
        self.lost = dict[str, Exception]()  # files of an image, or a source by its name
        self.refused: NotRunError | None = None  # by `record`

    def did(self, what: str) -> list[str]:
        return [about for name, about in self.calls if name == what]


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    made = World()

    def note(what: str, answer: Any = None) -> Callable[..., Any]:
        def call(*words: Any) -> Any:
            made.calls.append((what, " ".join(map(str, words))))
            return answer

        return call

    def build(words: list[Any], log: Path, **how: Any) -> tuple[int, str]:
        identity = str(words[-1])
        made.calls.append(("test", identity))
        found = inputs.load(load_intent(Path.cwd()).recipe(identity))
        made.held |= {found.name, f"127.0.0.1:1/{identity}@sha256:1"}
        out = Path("out", identity)
        out.mkdir(parents=True, exist_ok=True)
        image = Image(id=identity, key=found.key, uri=f"127.0.0.1:1/{identity}@sha256:1")
        (out / "image.json").write_text(image.model_dump_json(by_alias=True))
        assert how["env"] == {"REGISTRY": "127.0.0.1:1"}
        ended = made.ends.get(identity, (0, ""))
        if isinstance(ended, BaseException):
            raise ended
        if not ended[0]:
            made.published[found.tag] = "sha256:1"
        return ended

    def pull(uri: str, name: str, _: Any) -> str:
        made.calls.append(("pull", uri))
        made.held |= {uri, name}
        return "sha256:1"

    def record(recipes: list[Recipe]) -> tuple[list[dict[str, Any]], NotRunError | None]:
        (recipe,) = recipes
        made.calls.append(("record", recipe.id))
        if made.refused:
            return [{"why": ""}], made.refused
        key = inputs.load(recipe, as_locked=True).key
        where = Where(architecture="x86_64", cpus=2, engine="28")
        tests, proof = {"image": 3}, proof_code.digest(recipe)  # of a project: it has no other tests
        day, digest = date(2026, 11, 26), "sha256:" + "d" * 64
        said = Record(key=key, digest=digest, day=day, tests=tests, where=where, proof=proof)
        path = proofs.record_path(recipe)
        path.parent.mkdir(exist_ok=True)
        path.write_text(proofs.dump(said))
        return [{"why": "3 image tests"}], None

    def fetched(_: Any, recipes: list[Recipe], *__: Any) -> None:
        made.calls.append(("fetch", recipes[0].id))
        if problem := made.lost.get(recipes[0].id):
            raise problem

    def source(one: Any, *_: Any) -> None:
        made.calls.append(("source", one.name))
        if problem := made.lost.get(one.name):
            raise problem

    def remove(name: str) -> None:
        made.calls.append(("remove", name))
        made.held.discard(name)

    def connected() -> None:
        return None

    connected.cache_clear = lambda: None  # type: ignore[attr-defined]
    builder = Builder(
        name="x", driver="docker", endpoint="", platforms=["linux/amd64"], exports_cache=None, exports_images=None
    )
    for place, name, value in (
        (engine, "client", connected),
        (engine, "answers", lambda: True),
        (engine, "facts", lambda: {"root": "/"}),
        (engine, "builder", lambda: builder),
        (engine, "image_id", lambda name: "sha256:1" if name in made.held else None),
        (engine, "pull", pull),
        (engine, "remove", remove),
        (engine, "prune_cache", note("prune")),
        (loopback, "up", lambda *_: "127.0.0.1:1"),
        (client, "resolve", lambda _, tag: made.published.get(tag, "")),
        (image_tests, "refuse_without_pytest", lambda: None),
        (process, "logged", build),
        (recording, "record", record),
        (fetch, "fetch", fetched),
        (upstream, "fetch", source),
        (upstream, "has", lambda _: False),
        (foreign, "pinned", note("pull")),
        (
            shutil,
            "disk_usage",
            lambda _: SimpleNamespace(free=made.free[0] if len(made.free) == 1 else made.free.pop(0)),
        ),
    ):
        monkeypatch.setattr(place, name, value)
    return made


def rows(ended: Any) -> dict[str, dict[str, Any]]:
    return {row["id"]: row for row in json.loads(ended.out)}


# --- order -----------------------------------------------------------------------------------------------------------


def test_order(tree: Path) -> None:
    intent = load_intent(tree)
    found = prove.plan(intent.recipes)
    ids = [one.variant.id for one in found.images]
    assert (found.proved, len(ids) + len(found.left)) == (0, len(intent.recipes))
    assert ids != [recipe.id for recipe in intent.recipes]
    for name in ids:
        if name.endswith("-devel"):
            assert ids.index(name.removesuffix("-devel")) < ids.index(name)
        if "-sagemaker" in name and (other := name.replace("-sagemaker", "-ec2")) in ids:
            assert ids.index(name) == ids.index(other) + 1
    families = ["-".join(name.split("-")[:4]) for name in ids]
    assert len(set(families)) == sum(one != next_ for one, next_ in zip(families, [*families[1:], ""], strict=True))
    assert ids[0].startswith("base-1.0-cpu")
    last = [name for name in ids if "cu132" in name]
    assert ids[-len(last) :] == last  # gigabytes come last
    compiles = [one.recipe.compiles for one in found.images if one.variant.id.startswith("pytorch-2.15-cu132")]
    assert compiles == sorted(compiles)


def test_dry_run_says_order_size_and_reasons_and_touches_nothing(cli: Cli, tree: Path, world: World) -> None:
    world.free = [10]
    ended = cli(tree, "prove", "--dry-run", "--json")
    assert ended.code == 0, ended.err
    found = rows(ended)
    planned = prove.plan(load_intent(tree).recipes)
    to_prove = [name for name, row in found.items() if row["state"] == "to prove"]
    arm = [one.variant.id for one in planned.images if "arm64" in one.variant.id]
    waits = [name for name, row in found.items() if row["state"] == "waits for disk"]
    assert (to_prove, waits) == ([], [one.variant.id for one in planned.images if one.variant.id not in arm])
    assert f"0 to prove, {len(waits)} wait for disk, {len(arm) + len(planned.left)} left; " in ended.err
    assert found[EC2]["disk"] > 10**9
    assert "short of disk now" in found[EC2]["reason"]
    assert found[EC2]["reason"].startswith("no proof of it is recorded")
    assert "also to fetch: efa-installer from efa-installer.amazonaws.com" in found[EFA]["reason"]
    blocked = {row.id: row.said for row in planned.left}
    assert blocked
    assert {name: row["reason"] for name, row in found.items() if name in blocked} == blocked
    assert world.calls == []
    assert not (tree / "out").exists()
    assert " GB " in cli(tree, "prove", "--dry-run", EC2).out


def test_a_dry_run_without_an_engine_says_what_it_did_not_check(cli: Cli, tree: Path) -> None:
    ended = cli(tree, "prove", "--dry-run", EC2)
    assert ended.code == 0
    assert "no engine answers" in ended.err
    assert "1 to prove, 0 left" in ended.err


def test_numbers_of_a_dry_run() -> None:
    def rows_of(*states: str, untried: int = 0) -> list[dict[str, Any]]:
        return [{"state": state, "untried": number < untried} for number, state in enumerate(states)]

    assert prove.summary([]) == "0 to prove, 0 left"
    assert prove.summary(rows_of("left", "to prove")) == "1 to prove, 1 left"
    states = ("to prove", "to prove", "waits for disk")
    assert prove.summary(rows_of(*states, untried=1)) == (
        "2 to prove, 1 waits for disk, 0 left; 1 needs a download that was not tried"
    )
    assert prove.summary(rows_of(*states, "waits for disk", "left", untried=3)) == (
        "2 to prove, 2 wait for disk, 1 left; 3 need a download that was not tried"
    )


@pytest.mark.parametrize("words", [(), ("--dry-run",)])
def test_a_broken_buildx_is_an_error_and_no_image_is_left_for_it(
    cli: Cli, tree: Path, world: World, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]
) -> None:
    def broken() -> None:
        raise EnvironmentProblem("buildx is not installed", fix="make engine")

    monkeypatch.setattr(engine, "builder", broken)
    monkeypatch.setattr(loopback, "up", None)  # no registry is started for nothing
    ended = cli(tree, "prove", "base-1.0-cpu-py313-*", *words)
    assert (ended.code, ended.out, world.calls) == (10, "", [])
    assert "buildx is not installed" in ended.err


def test_another_architecture_is_left(cli: Cli, tree: Path, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    other = engine.builder().model_copy(update={"platforms": ["linux/arm64"]})
    monkeypatch.setattr(engine, "builder", lambda: other)
    ended = cli(tree, "prove", "base-1.0-cpu-py313-*", "--json")
    assert ended.code == 0, ended.err
    assert "cannot build images for amd64" in rows(ended)[EC2]["reason"]
    assert world.did("test") == []
    named = cli(tree, "prove", EC2)
    assert (named.code, "build on a host with amd64" in named.err) == (7, True)
    assert "trainwright doctor" not in named.err


# --- one after the other ---------------------------------------------------------------------------------------------


def test_each_is_fetched_tested_recorded_and_leaves_the_engine(cli: Cli, tree: Path, world: World) -> None:
    ended = cli(tree, "prove", SAGEMAKER, JAX, EC2, "--json")
    assert ended.code == 0, ended.err
    assert [(row["id"], row["state"], row["reason"]) for row in json.loads(ended.out)] == [
        (name, "proved", "3 image tests") for name in (EC2, SAGEMAKER, JAX)
    ]
    assert [what for what, _ in world.calls] == [
        *("fetch", "test", "record", "remove", "remove"),
        *(("prune", "fetch", "test", "record", "remove", "remove") * 2),
    ]
    assert world.did("prune") == ["4GB"] * 2
    assert world.held == set()
    again = cli(tree, "prove", SAGEMAKER, JAX, EC2)
    assert (again.code, again.out) == (0, "")
    assert "3 of 3 proved before" in again.err
    assert len(world.did("test")) == 3


def test_blocked_images_are_in_the_table_and_no_failure(cli: Cli, tree: Path, world: World) -> None:
    blocked = prove.plan(load_intent(tree).recipes).left[0]
    ended = cli(tree, "prove", blocked.id.replace("py3", "py?"), EC2)
    table = ended.out.splitlines()
    assert ended.code == 0, ended.err
    assert table[0].split() == ["id", "state", "seconds", "reason"]
    assert [line.split()[1] for line in table[1:]] == ["proved", "left"]
    assert "this address was not reached from here" in table[2]
    assert "1 proved, 0 failed, 1 left" in ended.err
    named = cli(tree, "prove", blocked.id)
    assert (named.code, blocked.reason in named.err) == (7, True)
    assert f"trainwright lock {blocked.id}   # on a host that reaches it" in named.err
    assert "trainwright doctor" not in named.err


@pytest.mark.parametrize("recorded", [True, False])
def test_it_goes_on_after_a_failure_and_keeps_the_failed_image(
    cli: Cli, tree: Path, world: World, recorded: bool
) -> None:
    said = '{"error": "the build of x failed", "where": "", "why": "step 7: no such file", "fix": "", "exit_code": 5}'
    if recorded:
        world.ends[EC2] = (5, f"noise\n{said}\n")
    else:
        world.refused = NotRunError("the probe changed", why="since then")
    ended = cli(tree, "prove", SAGEMAKER, EC2, "--json")
    found = rows(ended)
    assert ended.code == (5 if recorded else 7), ended.err
    assert (found[EC2]["state"], found[SAGEMAKER]["state"]) == ("failed", "proved" if recorded else "failed")
    assert found[EC2]["reason"] == ("the build of x failed: step 7: no such file" if recorded else "since then")
    assert inputs.load(load_intent(tree).recipe(EC2)).name in world.held
    world.ends, world.refused = {}, None
    assert cli(tree, "prove", SAGEMAKER, EC2).code == 0
    assert world.held == set()  # also what the failed proof had left


def test_an_interrupt_tells_how_far_it_came_and_the_same_command_goes_on(cli: Cli, tree: Path, world: World) -> None:
    world.ends[SAGEMAKER] = KeyboardInterrupt()
    ended = cli(tree, "prove", SAGEMAKER, JAX, EC2, "--json")
    assert ended.code == 130
    assert [(row["id"], row["state"], row["reason"]) for row in json.loads(ended.out)] == [
        (EC2, "proved", "3 image tests"),
        (SAGEMAKER, "left", "interrupted"),
        (JAX, "left", "interrupted"),
    ]
    world.ends.clear()
    ended = cli(tree, "prove", SAGEMAKER, JAX, EC2, "--json")
    assert ended.code == 0, ended.err
    assert list(rows(ended)) == [SAGEMAKER, JAX]
    assert world.held == set()


@pytest.mark.parametrize("name", [EC2, SAGEMAKER])
def test_an_image_that_other_tests_proved_is_proved_again(cli: Cli, tree: Path, world: World, name: str) -> None:
    assert cli(tree, "prove", name).code == 0
    path = proofs.record_path(load_intent(tree).recipe(name))
    path.write_text(re.sub(r'(?m)^proof = ".*"$', f'proof = "{"0" * 64}"', path.read_text()))
    assert rows(cli(tree, "prove", "--dry-run", name, "--json"))[name]["reason"].startswith(
        "its tests or the code that"
    )
    assert rows(cli(tree, "prove", name, "--json"))[name]["state"] == "proved"
    assert world.did("test") == [name, name]
    assert rows(cli(tree, "prove", name, "--json")) == {}


@pytest.mark.parametrize("place", ["test", "remove", "prune"])
def test_neither_a_full_disk_nor_a_stubborn_engine_ends_the_other_proofs(
    cli: Cli, tree: Path, world: World, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    def refuse(*_: Any) -> None:
        raise EnvironmentProblem("the engine does not want to", why="in use")

    if place == "test":
        world.ends[EC2] = OSError(28, "No space left on device")
    else:
        monkeypatch.setattr(engine, {"remove": "remove", "prune": "prune_cache"}[place], refuse)
    ended = cli(tree, "prove", SAGEMAKER, EC2, "--json")
    assert [row["state"] for row in json.loads(ended.out)] == ["failed" if place == "test" else "proved", "proved"]
    assert ended.code == (10 if place == "test" else 0)
    assert ("No space left" if place == "test" else "the engine does not want to: in use") in ended.err


@pytest.mark.parametrize(
    ("place", "state", "code"), [("facts", "left", 7), ("image_id", "failed", 10), ("write", "failed", 10)]
)
def test_an_engine_that_stops_between_images_is_a_row(
    cli: Cli, tree: Path, world: World, monkeypatch: pytest.MonkeyPatch, place: str, state: str, code: int
) -> None:
    """The same with a disk that is full for a while."""
    errors: dict[str, Exception] = {
        "facts": requests.ConnectionError("connection refused"),
        "image_id": EnvironmentProblem("no Docker engine answers", why="connection refused"),
        "write": OSError(28, "connection refused"),
    }
    where = prove if place == "write" else engine
    whole, pending = getattr(where, place), [errors[place]]

    def once(*words: Any) -> Any:
        if pending and (place == "facts" or world.did("fetch")):
            raise pending.pop()
        return whole(*words)

    monkeypatch.setattr(where, place, once)
    ended = cli(tree, "prove", SAGEMAKER, EC2, "--json")
    found = rows(ended)
    assert (ended.code, found[EC2]["state"], found[SAGEMAKER]["state"]) == (code, state, "proved"), ended.err
    assert "connection refused" in found[EC2]["reason"]


def test_images_of_a_run_with_earlier_inputs_are_removed_too(cli: Cli, tree: Path, world: World, edit: Edit) -> None:
    world.ends[EC2] = KeyboardInterrupt()
    assert cli(tree, "prove", EC2).code == 130
    edit(tree / "dockerfiles/frameworks/image.j2", r"^LABEL", "# changed\nLABEL")
    world.ends.clear()
    assert cli(tree, "prove", EC2).code == 0
    assert (len(world.did("remove")), world.held) == (3, set())


def test_what_the_engine_held_before_stays_and_everything_with_keep(cli: Cli, tree: Path, world: World) -> None:
    names = {name: inputs.load(load_intent(tree).recipe(name)).name for name in (EC2, JAX)}
    world.held.add(names[EC2])
    assert cli(tree, "prove", EC2, JAX).code == 0
    assert (names[EC2] in world.held, names[JAX] in world.held) == (True, False)
    world.ends[SAGEMAKER] = (6, "")
    assert cli(tree, "prove", SAGEMAKER, "--keep").code == 6
    assert list((tree / "out/.prove").glob("*.images")) == []  # which are what a later proof may remove
    world.ends.clear()
    assert cli(tree, "prove", SAGEMAKER, "--keep").code == 0
    assert inputs.load(load_intent(tree).recipe(SAGEMAKER)).name in world.held


def test_a_devel_twin_finds_its_image_in_the_engine(cli: Cli, tree: Path, world: World) -> None:
    """Its tests load there what they compile; with neither in the registry nor in the engine it is left."""
    ended = cli(tree, "prove", RUNTIME, DEVEL, "--json")
    assert ended.code == 0, ended.err
    assert list(rows(ended)) == [RUNTIME, DEVEL]
    runtime = inputs.load(load_intent(tree).recipe(RUNTIME))
    doing = [what for what, about in world.calls if what in ("test", "pull", "remove")]
    assert doing == ["test", "remove", "remove", "pull", "test", *["remove"] * 4]
    assert world.did("pull") == ["127.0.0.1:1/trainwright/pytorch@sha256:1"]
    assert {runtime.name, *world.did("pull")} <= set(world.did("remove"))
    assert world.held == set()


def test_a_devel_twin_whose_image_is_not_built_is_left(cli: Cli, tree: Path, world: World) -> None:
    ended = cli(tree, "prove", DEVEL, "--json")
    assert (ended.code, rows(ended)[DEVEL]["state"], world.did("test")) == (7, "left", [])
    assert f"{RUNTIME} is not built with its present inputs; trainwright build" in rows(ended)[DEVEL]["reason"]
    assert world.held == set()
    world.held.add(inputs.load(load_intent(tree).recipe(RUNTIME)).name)
    before = set(world.held)
    assert cli(tree, "prove", DEVEL).code == 0
    assert (world.held, world.did("pull")) == (before, []), "what the engine held before stays"


def test_no_image_begins_after_the_minutes(cli: Cli, tree: Path, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [1000.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    whole = process.logged

    def slow(*words: Any, **how: Any) -> tuple[int, str]:
        now[0] += 61
        return whole(*words, **how)

    monkeypatch.setattr(process, "logged", slow)
    ended = cli(tree, "prove", f"{SAGEMAKER[:-1]}?", f"{EC2[:-1]}?", "--minutes", "1", "--json")
    assert ended.code == 7
    assert "the same command again" in ended.err
    assert [row["state"] for row in json.loads(ended.out)] == ["proved", "left"]
    assert (rows(ended)[EC2]["seconds"], world.did("test")) == (61, [EC2])


def test_a_project_has_image_tests_alone(tree: Path, monkeypatch: pytest.MonkeyPatch, world: World) -> None:
    """The training tests of a checkout lie beside no project: docs/projects.md."""
    started = list[tuple[list[str], Path]]()

    def logged(words: list[Any], log: Path, *, cwd: Path, **_: Any) -> tuple[int, str]:
        started.append(([str(word) for word in words], cwd))
        return 0, ""

    monkeypatch.setattr(process, "logged", logged)
    recipe, how = load_intent(tree).recipe(EC2), prove.How(tree, print)
    prove._build_and_test(recipe, how, "127.0.0.1:1")
    monkeypatch.setattr(project, "home", lambda _: tree / "team")
    prove._build_and_test(recipe, how, "127.0.0.1:1")
    (whole, here), (words, there) = started
    assert (whole, here) == ([str(tree / "scripts/test-images.sh"), "--keep", EC2], tree)
    assert (words[1:], there) == (["-m", "trainwright.cli", "build", "--push", EC2], tree / "team")


# --- inputs that are missing -----------------------------------------------------------------------------------------


def test_a_source_that_is_not_reached_leaves_all_its_images_before_the_first_build(
    cli: Cli, tree: Path, world: World
) -> None:
    world.lost["efa-installer"] = EnvironmentProblem("x cannot be fetched", why="https://x:\n no route")
    ended = cli(tree, "prove", "pytorch-2.15-cu132-py313-*", EC2, "--json")
    assert ended.code == 0, ended.err
    found = rows(ended)
    left = [name for name, row in found.items() if row["state"] == "left"]
    assert EFA in left
    assert all("efa-installer" in load_intent(tree).recipe(name).pins for name in left)
    assert found[EFA]["reason"] == "not reached: x cannot be fetched: https://x: no route"
    assert world.did("source").count("efa-installer") == 1
    assert [what for what, _ in world.calls].index("test") > max(
        number for number, (what, _) in enumerate(world.calls) if what == "source"
    )
    assert cli(tree, "prove", EFA).code == 7  # it was named


@pytest.mark.parametrize(
    ("problem", "state", "code"),
    [
        (EnvironmentProblem("no index", why="timed out"), "left", 0),
        (LockError("2 files can no longer be fetched"), "left", 0),
        (BuildError("the checksum of x does not match"), "failed", 5),
    ],
)
def test_a_failed_fetch(cli: Cli, tree: Path, world: World, problem: Exception, state: str, code: int) -> None:
    world.lost[EC2] = problem
    ended = cli(tree, "prove", "base-1.0-cpu-py313-ec2", "base-*-py313-sagemaker", "--json")
    assert ended.code == (code or 7)
    assert rows(ended)[EC2]["state"] == state
    assert str(problem) in rows(ended)[EC2]["reason"]
    assert EC2 not in world.did("test")
    assert SAGEMAKER in world.did("test")


def test_an_image_that_a_full_store_leaves_is_to_be_tried_again(cli: Cli, tree: Path, world: World) -> None:
    world.lost[EC2] = EnvironmentProblem("no space left", where=str(store.root()), fix="free some")
    ended = cli(tree, "prove", "base-1.0-cpu-py313-ec*", "--json")
    assert (ended.code, rows(ended)[EC2]["reason"]) == (7, "no space left; free some")


def test_an_image_with_other_packages_than_locked_is_left_because_it_cannot_be_recorded(
    cli: Cli, tree: Path, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, rest = inputs.load, list[int]()

    def load(recipe: Recipe, as_locked: bool = False) -> Any:
        found = whole(recipe, as_locked)
        if not world.did("fetch"):  # the fetch finds it
            return found
        rest.append(1)
        drift = [Drift(package="libc6", locked="1", used="2")]
        return found.model_copy(update={"distribution": found.distribution.model_copy(update={"drift": drift})})

    monkeypatch.setattr(inputs, "load", load)
    ended = cli(tree, "prove", EC2, "--json")
    assert ended.code == 7
    assert "1 locked package left the mirror, such as libc6" in rows(ended)[EC2]["reason"]
    assert 'fix": "trainwright lock --update' in ended.err
    assert (world.did("test"), bool(rest)) == ([], True)
    planned = prove.plan([load_intent(tree).recipe(EC2)])  # and then the store knows
    assert (planned.images, len(planned.left)) == ([], 1)


def test_a_stale_lock_is_left_with_its_remedy(cli: Cli, tree: Path, world: World, edit: Edit) -> None:
    edit(tree / "dockerfiles/matrix.toml", r'^numpy = "2\.4\.6"', 'numpy = "2.4.5"')
    ended = cli(tree, "prove", "base-1.0-cpu-py313-ec*", "--json")
    assert (ended.code, rows(ended)[EC2]["state"]) == (7, "left")
    assert "trainwright lock" in rows(ended)[EC2]["reason"]


def test_images_to_start_from_are_pulled_before_the_build(tree: Path, world: World) -> None:
    recipe = load_intent(tree).recipe(EC2)
    assert prove.starts_from(recipe) == []
    other = next(one for one in load_intent(tree).recipes if one.base.provider == "image")
    assert prove.starts_from(other) == [other.base.reference]


# --- disk ------------------------------------------------------------------------------------------------------------


def test_too_little_disk_first_takes_the_cache_and_what_unfinished_proofs_left(
    cli: Cli, tree: Path, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine, "facts", lambda: {"root": str(store.root())})  # one disk
    world.ends[EC2] = (6, "")
    assert cli(tree, "prove", EC2).code == 6
    world.calls.clear()
    world.free = [10, FREE]
    ended = cli(tree, "prove", SAGEMAKER, "--json")
    assert (ended.code, rows(ended)[SAGEMAKER]["state"]) == (0, "proved")
    assert [what for what, _ in world.calls][:3] == ["prune", "remove", "remove"]
    assert world.did("prune") == ["0"]
    assert inputs.load(load_intent(tree).recipe(EC2)).name == world.did("remove")[0]


@pytest.mark.parametrize("remote", [True, False])
def test_the_cache_stays_where_it_takes_no_disk_of_the_store(
    cli: Cli, tree: Path, world: World, monkeypatch: pytest.MonkeyPatch, remote: bool
) -> None:
    """The engine is on another machine, or the store on a disk of its own."""
    if remote:
        monkeypatch.setenv("DOCKER_HOST", "tcp://192.0.2.1:2375")

    def disks(wanted: dict[Path, float], _: float = 0) -> list[disk.Disk]:
        return [disk.Disk([path], 1, 0 if path == store.root() else 1) for path in wanted]

    monkeypatch.setattr(disk, "disks", disks)
    ended = cli(tree, "prove", EC2, "--json")
    assert (ended.code, rows(ended)[EC2]["state"], world.did("prune")) == (7, "left", [])
    assert "not enough free disk" in rows(ended)[EC2]["reason"]


def test_the_disk_of_an_engine_on_another_machine_is_not_watched(
    tree: Path, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DOCKER_HOST", "tcp://192.0.2.1:2375")
    monkeypatch.setattr(prove, "Thread", None)
    with prove._freeing(prove.How(tree, print)):
        pass


def test_disk_that_stays_too_small(cli: Cli, tree: Path, world: World) -> None:
    world.free = [10]
    ended = cli(tree, "prove", "base-1.0-cpu-py313-ec*", "--json")
    reason = rows(ended)[EC2]["reason"]
    assert (ended.code, rows(ended)[EC2]["state"], world.did("test")) == (7, "left", [])
    assert "not enough free disk" in reason
    assert "GB needed, 0.00 GB free" in reason


def test_the_cache_goes_while_a_proof_runs_with_little_disk(
    cli: Cli, tree: Path, world: World, monkeypatch: pytest.MonkeyPatch, edit: Edit
) -> None:
    edit(tree / "dockerfiles/host.toml", r"^look_seconds = \d+ ", "look_seconds = 0.001 ")
    whole, pruned, disks, watched = process.logged, Event(), disk.disks, list[list[Path]]()

    def looked(wanted: dict[Path, float], rest: float = 0) -> list[disk.Disk]:
        watched.append(list(wanted))
        return disks(wanted, rest)

    monkeypatch.setattr(disk, "disks", looked)

    def waiting(*words: Any, **how: Any) -> tuple[int, str]:
        world.free = [4 * 10**9]
        assert pruned.wait(10)
        return whole(*words, **how)

    def prune(limit: str) -> None:
        world.calls.append(("prune", limit))
        pruned.set()

    monkeypatch.setattr(engine, "prune_cache", prune)
    monkeypatch.setattr(process, "logged", waiting)
    ended = cli(tree, "prove", EC2)
    assert (ended.code, world.did("prune")) == (0, ["0"])
    assert "less than 5 GB free" in ended.err
    assert watched[-1] == [Path("/")]  # not the store's, which no cache of the engine fills


def test_an_image_that_the_engine_holds_needs_no_disk(cli: Cli, tree: Path, world: World) -> None:
    world.free = [10]
    world.held.add(inputs.load(load_intent(tree).recipe(EC2)).name)
    assert cli(tree, "prove", EC2).code == 0


def test_sources_that_the_store_holds_are_not_counted_again(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found, factors = inputs.load(load_intent(tree).recipe(EC2)), prove.How(tree, print).host.prove.disk
    root = store.root()
    sizes = sum(disk.sources_of(found).values())
    wanted = disk.to_prove(found, factors, root / "engine", build=True)
    assert wanted == pytest.approx(
        {root: sizes * (factors.store + factors.listing), root / "engine": sizes * factors.engine}
    )
    assert disk.disks(wanted, 5e9)[0].need == pytest.approx(sum(wanted.values()) + 5e9)
    monkeypatch.setattr(store, "has", lambda _: True)
    assert disk.to_prove(found, factors, None, build=True) == pytest.approx({root: sizes * factors.listing})
    assert set(disk.to_prove(found, factors, root / "engine", build=False)) == {root / "engine"}


# --- why -------------------------------------------------------------------------------------------------------------


def test_each_exit_code_has_its_class() -> None:
    codes = {kind.exit_code for kind in TrainwrightError.__subclasses__()} - {TrainwrightError.exit_code}
    assert set(prove.CODES) == codes >= set(range(2, 11))


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        ("", ""),
        ("all is well\n", ""),
        ('{"error": "a", "where": "", "why": "b\\nc", "fix": "", "exit_code": 5}\n', "a: c"),
        ('{"error": \n', ""),
        (
            "error: x failed its image tests\n  where: y\n  why:   exit code 1; its output is above\n",
            "x failed its image tests",
        ),
        ("FAILED tests/a.py::b - no\nFAILED tests/a.py::c\n", "tests/a.py::b - no and 1 more"),
        ("FAILED t::b\nerror: x\n  why:   y\n", "x: y: t::b"),
    ],
)
def test_one_line_of_an_output_says_why(said: str, reason: str) -> None:
    assert prove.reason(said) == reason


def test_two_at_once_are_refused_or_wait(cli: Cli, tree: Path, world: World) -> None:
    with only_one(tree / "out/.prove", print):
        ended = cli(tree, "prove", EC2, "--no-wait")
    assert (ended.code, world.did("test")) == (10, [])
    assert "another trainwright process is working" in ended.err


def test_a_wrong_name_is_one_error(cli: Cli, tree: Path, world: World) -> None:
    ended = cli(tree, "prove", "base-1.0-cpu-py313-ec3")
    assert ended.code == 2
    assert "did you mean" in ended.err
    assert cli(tree, "prove", "--minutes", "0").code == 2
