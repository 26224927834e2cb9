"""Test `diff` between two images: in a real registry, by their locks, by what was built here, and in the engine."""

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple
from uuid import uuid4

import httpx
import layouts
import pytest
from commits import begin, git
from layouts import Layout
from tiny import ID as TINY
from tiny import ROOT, built_in_this_run, store_of_this_run, trainwright

from trainwright.image import inputs
from trainwright.matrix.matrix import Recipe, load_intent
from trainwright.publish.release_records import Shipped, Train, dump
from trainwright.registry import client as registries

pytestmark = pytest.mark.registry

ID = "base-1.0-cpu-py313-sagemaker"
NO_ENGINE = "unix:///nowhere/docker.sock"
COMMON, OLD, NEW = b"c" * 5000, b"o" * 300, b"n" * 70


class Place(NamedTuple):
    """A checkout, and a registry with a folder of its own for it."""

    tree: Path
    registry: str

    def push(self, name: str, repository: str, tag: str, layers: list[bytes], config: dict[str, Any]) -> Layout:
        layout = layouts.make(self.tree / "layouts" / name, layers, config)
        registries.push(layout.folder, f"{self.registry}/{repository}", layout.digest)
        registries.tag(f"{self.registry}/{repository}", layout.digest, tag)
        return layout

    def diff(self, *words: str, code: int = 0, **environment: str) -> dict[str, Any]:
        """Run `diff` and return its JSON, or its error; `said` has the lines of standard error."""
        done = trainwright(
            self.tree, "diff", *words, "--json", REGISTRY=self.registry, DOCKER_HOST=NO_ENGINE, **environment
        )
        assert done.returncode == code, done.stderr
        lines = done.stderr.splitlines()
        return dict(json.loads(lines[-1])) if code else {**json.loads(done.stdout), "said": lines}


def rows(found: dict[str, Any]) -> set[tuple[str, ...]]:
    return {(row["what"], row["name"], row["change"], row["old"], row["new"]) for row in found["rows"]}


@pytest.fixture
def place(tmp_path: Path, registry: str) -> Place:
    """Make a git checkout of the project's own matrix and locks."""
    tree = tmp_path / "tree"
    for name in ("dockerfiles", "scripts"):
        shutil.copytree(ROOT / name, tree / name)
    (tree / ".gitignore").write_text("out/\nlayouts/\n")
    begin(tree)
    return Place(tree, f"{registry}/{uuid4().hex}")


def test_two_addresses(place: Place) -> None:
    """By tag and by digest: what they say of themselves, and what a pull costs."""
    old = place.push(
        *("old", "some", "one", [COMMON, OLD]),
        {"Labels": {"a": "1", "gone": "x"}, "Env": ["PATH=/bin", "A=1"], "Entrypoint": ["/start"], "User": "0"},
    )
    place.push(
        *("new", "some", "other", [COMMON, NEW, NEW]),
        {"Labels": {"a": "2"}, "Env": ["PATH=/bin", "A=2", "B=3"], "Cmd": ["sh"], "User": "nobody"},
    )
    found = place.diff(f"{place.registry}/some@{old.digest}", f"{place.registry}/some:other")
    assert rows(found) == {
        ("label", "a", "changed", "1", "2"),
        ("label", "gone", "removed", "x", ""),
        ("variable", "A", "changed", "1", "2"),
        ("variable", "B", "added", "", "3"),
        ("configuration", "Entrypoint", "changed", "/start", ""),
        ("configuration", "Cmd", "added", "", "sh"),
        ("configuration", "User", "changed", "root", "nobody"),
    }
    layers = found["layers"]
    assert (layers["shared"], layers["new"], layers["gone"]) == (1, 1, 1)
    assert (layers["shared_bytes"], layers["new_bytes"]) == (5000, 70)  # a layer that is there twice is pulled once
    assert (layers["old_size"], layers["new_size"]) == (5300, 5070)
    assert len(found["unknown"]) == 8  # components, both kinds of packages and sources, of both: nobody knows
    assert found["old"]["name"].endswith(old.digest)


def test_the_same(place: Place) -> None:
    old = place.push("old", "some", "one", [COMMON], {})
    found = place.diff(f"{place.registry}/some@{old.digest}", f"{place.registry}/some:one")
    assert (found["rows"], found["unknown"]) == ([], [])
    assert found["said"][-1] == f"no difference: both are {old.digest}"


def test_a_release_and_what_is_built_now(place: Place) -> None:
    """The release by the locks of its commit; the image of today by what the probe found in it."""
    intent = load_intent(place.tree)
    variant = next(variant for variant in intent.variants if variant.id == ID)
    before = inputs.load(Recipe(intent, variant)).distribution.packages()["tar"].version
    lock = inputs.packages_path(intent, variant.base)
    lock.write_text(
        re.sub(
            rf"(Package: tar\n(?:.+\n)*?Version: ){re.escape(before)}\n", rf"\g<1>{before}+later\n", lock.read_text()
        )
    )
    found = inputs.load(Recipe(intent, variant))
    assert found.distribution.packages()["tar"].version == f"{before}+later"
    labels = {"io.trainwright.id": ID, "io.trainwright.key": "0" * 64}
    released = place.push("released", "trainwright/base", f"{ID}-2026.10.0", [COMMON, OLD], {"Labels": labels})
    now = {"Labels": labels | {"io.trainwright.key": found.key}}
    built = place.push("built", "trainwright/base", found.tag, [COMMON, NEW], now)
    shipped = Shipped(key="0" * 64, digest=released.digest, repository="trainwright/base")
    commit = git(place.tree, "rev-parse", "HEAD")
    train = Train(name="2026.10.0", date="2026-10-01", commit=commit, images={ID: shipped})
    (place.tree / "dockerfiles/releases/2026.10.0.toml").write_text(dump(train))
    packages = {name: package.version for name, package in found.distribution.packages().items()}
    image = {
        "schema": 1,
        "id": ID,
        "key": found.key,
        "versions": found.versions,
        "packages": {name: version for name, version in packages.items() if name != "curl"} | {"bash": "99"},
    }
    python = {entry.name: entry.version for entry in found.lock.python if entry.group in found.variant.groups}
    python = python | {"pip": "99.0", "New_One": "1"}
    parts = [
        {"name": name, "version": version, "purl": f"pkg:pypi/{name}@{version}"} for name, version in python.items()
    ]
    (place.tree / "out" / ID).mkdir(parents=True)
    (place.tree / "out" / ID / "image.json").write_text(json.dumps(image))
    (place.tree / "out" / ID / "sbom.json").write_text(json.dumps({"components": parts}))
    wanted = {
        ("label", "io.trainwright.key", "changed", "0" * 64, found.key),
        ("distribution package", "bash", "changed", packages["bash"], "99"),
        ("distribution package", "tar", "changed", before, f"{before}+later"),
        ("distribution package", "curl", "removed", packages["curl"], ""),
        ("Python package", "new-one", "added", "", "1"),
        ("Python package", "pip", "changed", found.pins["pip"], "99.0"),
    }
    for name in (f"{ID}-2026.10.0", f"2026.10.0:{ID}"):
        told = place.diff(name, ID)
        assert rows(told) == wanted
        assert told["unknown"] == []
        assert (told["old"]["digest"], told["new"]["digest"]) == (released.digest, built.digest)
    table = trainwright(place.tree, "diff", f"2026.10.0:{ID}", ID, REGISTRY=place.registry, DOCKER_HOST=NO_ENGINE)
    assert "bash" in table.stdout
    assert "a host with the first image pulls 0.0 MB" in table.stderr
    assert "no difference" not in table.stderr


def test_what_is_not_built_is_compared_by_its_lock(place: Place) -> None:
    found = place.diff(ID, "pytorch-2.13-cpu-py311-sagemaker")
    assert found["layers"] is None
    assert {row[0] for row in rows(found)} >= {"component", "distribution package"}
    assert ("component", "python") in {row[:2] for row in rows(found)}
    assert len(found["unknown"]) == 2


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("pytorch-2.13-cpu-py311-sagemakr", ID), 2, "did you mean 'pytorch-2.13-cpu-py311-sagemaker'"),
        ((f"{ID}-2026.1.0", ID), 2, "release '2026.1.0' does not exist"),
        (("{registry}/some:none", ID), 8, "is not in the registry"),
        (("127.0.0.1:1/some:none", ID), 8, "refused"),
        (("nothing-like:this", ID), 2, "is not an image"),
        (("", ID), 2, "is not an image"),
    ],
)
def test_a_name_that_is_none(place: Place, words: tuple[str, str], code: int, said: str) -> None:
    error = place.diff(*(word.format(registry=place.registry) for word in words), code=code)
    assert said in f"{error['error']} {error['why']}"
    assert error["fix"] or code == 2


def test_an_index_is_no_image(place: Place) -> None:
    layout = place.push("one", "some", "one", [COMMON], {})
    index = {"schemaVersion": 2, "mediaType": "application/vnd.oci.image.index.v1+json", "manifests": []}
    host, _, folder = place.registry.partition("/")
    url, kind = f"http://{host}/v2/{folder}/some/manifests/many", {"Content-Type": str(index["mediaType"])}
    httpx.put(url, content=json.dumps(index), headers=kind).raise_for_status()
    error = place.diff(f"{place.registry}/some@{layout.digest}", f"{place.registry}/some:many", code=2)
    assert "not an image of one platform" in error["error"]


# --- in the engine ---------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def built() -> Iterator[Path]:
    with store_of_this_run():
        yield built_in_this_run()


@pytest.mark.engine
def test_images_in_the_engine_are_asked(built: Path, tmp_path: Path) -> None:
    image = json.loads((built / "out" / TINY / "image.json").read_text())
    name = f"trainwright/tiny:{TINY}-{image['key'][:12]}"
    (tmp_path / "Dockerfile").write_text(
        f"FROM {name}\nENV ADDED=1\nLABEL io.trainwright.key=\nRUN python -m pip uninstall --yes pip\n"
    )
    child = "trainwright-test/diff:one"
    subprocess.run(["docker", "build", "--quiet", "--tag", child, tmp_path], check=True, capture_output=True)
    try:
        done = trainwright(built, "diff", TINY, child, "--json", REGISTRY="127.0.0.1:1")
    finally:
        subprocess.run(["docker", "rmi", "--force", child], check=True, capture_output=True)
    assert done.returncode == 0, done.stderr
    found = rows(json.loads(done.stdout))
    assert ("variable", "ADDED", "added", "", "1") in found
    assert ("Python package", "pip", "removed", image["versions"]["pip"], "") in found
    assert {row[0] for row in found} == {"variable", "label", "component", "Python package"}
    assert json.loads(done.stdout)["layers"]["new"] == 1
