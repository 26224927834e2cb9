"""Test that the same inputs give the same image: on one engine, on two, from a cache, and with another builder."""

import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from engines import Engine, engine_of_its_own, registry_in
from tiny import ID, IMAGE, add, built_in_this_run, store_of_this_run, trainwright

from trainwright.docker import engine

pytestmark = pytest.mark.engine
STEPS = 3  # RUN steps of the tiny image and its stage


@pytest.fixture(scope="module")
def built() -> Iterator[Path]:
    with store_of_this_run():
        yield built_in_this_run()


@pytest.fixture
def tree(built: Path, tmp_path: Path) -> Path:
    copy = tmp_path / "tree"
    shutil.copytree(built, copy, ignore=shutil.ignore_patterns("out"))
    return copy


@pytest.fixture(scope="module")
def other() -> Iterator[Engine]:
    with engine_of_its_own() as made:
        yield made


@pytest.fixture(scope="module")
def classic() -> Iterator[Engine]:
    with engine_of_its_own(containerd=False) as made:
        yield made


def name_of(tree: Path) -> str:
    bake = json.loads((tree / "out" / ID / "docker-bake.json").read_text())
    return str(bake["target"]["image"]["tags"][0])


def rebuild(tree: Path, *words: str, code: int = 0, **environment: str) -> dict[str, Any]:
    done = trainwright(tree, "rebuild", *words, "--compare", "--json", **environment)
    assert done.returncode == code, done.stderr
    names = set(re.findall(r"trainwright/rebuild:\w+", done.stderr))
    assert names
    assert [engine.image_id(f"{name}{held}") for name in names for held in ("", "-held")] == [None] * 2 * len(names)
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def test_an_image_that_is_built_again_is_the_same_one(built: Path, tree: Path) -> None:
    """Bit by bit, as it ships, without any step of the first build: the layer of its base, too."""
    name = name_of(built)
    before = engine.image_id(name)
    found = rebuild(tree, ID)
    assert (found["same"], found["rebuilt"], found["where"]) == (True, before, name)
    assert engine.image_id(name) == before


@pytest.mark.slow
def test_what_a_step_does_otherwise_each_time_is_named(tree: Path) -> None:
    """A file with a time in it, and one with a name by chance; each in the layer that made it; no times."""
    steps = ("date +%N > /etc/moment", "touch -d @1 /etc/$(cat /proc/sys/kernel/random/uuid)", "true > /etc/silent")
    add(tree, "\n".join(f"RUN {step}" for step in steps))
    assert trainwright(tree, "build", ID).returncode == 0
    name = name_of(tree)
    held = engine.image_id(name)
    found = rebuild(tree, ID, code=5)
    assert (found["same"], found["held"]) == (False, held)
    assert engine.image_id(name) == held
    rows = {(row["path"], row["what"]) for row in found["differences"]}
    assert ("etc/moment", "content") in rows
    assert not [row for row in rows if row[1] == "mtime" or row[0] == "etc/silent"]
    assert sorted(row["held"] for row in found["differences"] if row["what"] == "presence") == ["(not there)", "there"]
    assert {re.sub(r"^\d+ ", "", row["layer"]) for row in found["differences"]} == {
        f"RUN {step}"[:60] for step in steps[:2]
    }
    table = trainwright(tree, "rebuild", ID, "--compare")
    assert "etc/moment" in table.stdout
    assert "from the same inputs has another digest" in table.stderr


@pytest.mark.slow
@pytest.mark.registry
def test_with_what_a_registry_holds(tree: Path, registry: str) -> None:
    """By its digest alone: the labels say which image it is. Pulled only where it differs, and gone again."""
    add(tree, "RUN date +%N > /etc/moment")
    assert trainwright(tree, "build", ID).returncode == 0
    held, repository = engine.image_id(name_of(tree)), f"{registry}/trainwright/rebuilt"
    for words in (["tag", name_of(tree), f"{repository}:1"], ["push", f"{repository}:1"], ["rmi", f"{repository}:1"]):
        subprocess.run(["docker", *words], check=True, capture_output=True)
    uri = f"{repository}@{held}"
    subprocess.run(["docker", "rmi", "--force", name_of(tree)], check=True, capture_output=True)
    (tree / "out" / ID / "image.json").unlink()
    found = rebuild(tree, uri, code=5, REGISTRY=registry)
    assert found["where"] == uri
    assert ("etc/moment", "content") in {(row["path"], row["what"]) for row in found["differences"]}
    assert engine.image_id(uri) is None
    refused = trainwright(tree, "rebuild", f"{uri[:-2]}00", "--compare", REGISTRY=registry)
    assert refused.returncode == 8, refused.stderr
    template = tree / IMAGE
    template.write_text(template.read_text().replace("%N", "%N%N"))
    another = trainwright(tree, "rebuild", uri, "--compare", REGISTRY=registry)
    assert another.returncode == 7
    assert "was built from other inputs than those of this checkout" in another.stderr


@pytest.mark.slow
def test_two_engines_two_folders_two_users(built: Path, classic: Engine, tmp_path: Path) -> None:
    """Another engine, with another image store; another folder, umask, locale and time zone; a base of its own, no
    cache, and no layer that was packed before.
    """
    copy = tmp_path / "elsewhere of mine" / "tree"
    store = tmp_path / "store"
    shutil.copytree(Path(os.environ["TRAINWRIGHT_STORE"]) / "sha256", store / "sha256")
    shutil.copytree(built, copy, ignore=shutil.ignore_patterns("out"))
    differently = {
        "DOCKER_HOST": classic.host,
        "TRAINWRIGHT_STORE": str(store),
        "LC_ALL": "C",
        "LANG": "de_DE.UTF-8",
        "TZ": "Asia/Kathmandu",
    }
    before = os.umask(0o077)
    try:
        done = trainwright(copy, "build", ID, **differently)
        again = trainwright(copy, "rebuild", ID, "--compare", "--json", **differently)
    finally:
        os.umask(before)
    assert done.returncode == 0, done.stderr
    assert again.returncode == 0, again.stderr
    assert "CACHED" not in done.stderr
    assert json.loads(again.stdout)["rebuilt"] == engine.image_id(name_of(built))


@pytest.mark.slow
@pytest.mark.registry
def test_a_cache_in_a_registry_spares_another_host_every_step(tree: Path, other: Engine) -> None:
    place = other.folder / "registry"
    place.mkdir()
    cache = "127.0.0.1:5000/cache"
    add(tree, "RUN date > /etc/moment")  # another digest, were it not for the cache

    def build(*words: str, **environment: str) -> str:
        done = trainwright(tree, "build", ID, *words, DOCKER_HOST=other.host, **environment)
        assert done.returncode == 0, done.stderr
        return done.stderr

    def cached(said: str) -> int:
        steps = dict(re.findall(r"^#(\d+) \[.*?\] (RUN|ADD)", said, re.MULTILINE))
        return len(steps.keys() & set(re.findall(r"^#(\d+) CACHED$", said, re.MULTILINE)))

    def forget() -> str:
        digest = other.docker("images", "--no-trunc", "--quiet", name_of(tree))
        other.docker("rmi", "--force", name_of(tree))
        other.docker("builder", "prune", "--all", "--force")
        return digest

    with registry_in(place, 5000, other):
        build("--cache-to", cache)
        made = forget()
        assert cached(build()) == 0  # what is cached next is not cached here
        assert forget() != made
        assert cached(build("--cache-from", cache)) >= STEPS
        assert forget() == made
        assert cached(build(TRAINWRIGHT_CACHE=cache)) >= STEPS
        assert forget() == made


@pytest.fixture
def builders(tmp_path: Path) -> Path:
    """Return a folder for a docker client configuration, in which engines have names."""
    return tmp_path / "docker"


def call(name: str, made: Engine, config: Path) -> dict[str, str]:
    """Return the environment with which this host's engine holds the images and another engine builds them."""
    words = ["docker", "--config", str(config), "context", "create", name, "--docker", f"host={made.host}"]
    subprocess.run(words, check=True, capture_output=True)
    return {"DOCKER_CONFIG": str(config), "DOCKER_CONTEXT": name}


@pytest.mark.slow
def test_what_another_builder_made_comes_into_this_engine(tree: Path, other: Engine, builders: Path) -> None:
    add(tree, 'LABEL io.trainwright.elsewhere="yes"')
    done = trainwright(tree, "build", ID, **call("far", other, builders))
    assert done.returncode == 0, done.stderr
    brought = engine.image_id(name_of(tree))
    assert brought
    assert not list((tree / "out" / ID).glob(".built-*"))
    assert name_of(tree) not in other.docker("images", "--format", "{{.Repository}}:{{.Tag}}")
    assert rebuild(tree, ID)["rebuilt"] == brought  # here, too


@pytest.mark.slow
def test_a_builder_that_cannot_says_so_before_it_builds(tree: Path, builders: Path) -> None:
    add(tree, 'LABEL io.trainwright.elsewhere="no"')
    with engine_of_its_own(containerd=False) as poor:
        settings = call("poor", poor, builders)
        done = trainwright(tree, "build", ID, **settings)
        assert done.returncode == 10, done.stderr
        assert "images of the builder poor cannot be loaded into this engine" in done.stderr
        (builders / "contexts").rename(builders / "gone")
        unknown = trainwright(tree, "build", ID, **settings)
        assert unknown.returncode == 10
        assert "buildx cannot describe its builder" in unknown.stderr
    assert not (tree / "out" / ID / "docker-bake.json").exists()
