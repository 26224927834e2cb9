"""Test real builds of a tiny framework: what the build guarantees, and what it refuses. Needs an engine."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

import at_once
import pytest
import tomlkit
from docker import APIClient
from tiny import ID, IMAGE, add, built_in_this_run, store_of_this_run, trainwright

from trainwright.core.errors import EnvironmentProblem
from trainwright.core.toml import parse
from trainwright.docker import buildx, engine
from trainwright.lock.lockfile import dump, entries_digest
from trainwright.matrix.model import Lock

pytestmark = pytest.mark.engine
LOCK = Path("dockerfiles/locks") / f"{ID}.toml"
PACKAGES = Path("dockerfiles/locks/debian-12.packages")


@pytest.fixture(scope="module")
def store() -> Iterator[Path]:
    with store_of_this_run() as place:
        yield place


@pytest.fixture(scope="module")
def built(store: Path) -> Path:
    return built_in_this_run()


@pytest.fixture
def tree(built: Path, tmp_path: Path) -> Path:
    copy = tmp_path / "tree"
    shutil.copytree(built, copy, ignore=shutil.ignore_patterns("out"))
    return copy


def image(tree: Path) -> dict[str, object]:
    content: dict[str, object] = json.loads((tree / "out" / ID / "image.json").read_text())
    return content


def build(tree: Path) -> subprocess.CompletedProcess[str]:
    return trainwright(tree, "build", ID)


def test_built_image_is_what_the_lock_says(built: Path) -> None:
    made = image(built)
    locked = dict(re.findall(r"^Package: (\S+)\nVersion: (\S+)", (built / PACKAGES).read_text(), re.MULTILINE))
    assert made["packages"] == locked
    assert made["proof"]["probe"]["state"] == "passed"  # type: ignore[index]
    assert made["drift"] == []
    sbom = json.loads((built / "out" / ID / "sbom.json").read_text())
    assert {"pip", "libc6"} <= {component["name"] for component in sbom["components"]}


def test_another_checkout_reuses_the_image(tree: Path) -> None:
    done = trainwright(tree, "build", ID, "--json")
    assert [row["action"] for row in json.loads(done.stdout)] == ["reuse"], done.stderr


def test_the_folder_builds_without_us(built: Path) -> None:
    """`cd out/<id> && docker buildx bake`, with the docker first in PATH and nothing of ours but a name.

    Other tests use the image of the name that the bake file has, at the same time.
    """
    name = "trainwright-test/bake:one"
    bake = ["docker", "buildx", "bake", "--set", f"image.tags={name}"]
    done = subprocess.run(bake, cwd=built / "out" / ID, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert "CACHED" in done.stderr
    subprocess.run(["docker", "rmi", name], check=True, capture_output=True)


def test_an_image_that_lies_about_a_version_fails_by_name(tree: Path) -> None:
    add(tree, "RUN sed -i 's/^Version: .*/Version: 1.0/' /opt/venv/lib/python3*/site-packages/pip-*.dist-info/METADATA")
    done = build(tree)
    assert done.returncode == 5
    assert re.search(r"Python package pip: the lock says \S+, the image holds 1\.0", done.stderr)
    assert not (tree / "out" / ID / "image.json").exists()


def test_a_package_that_nobody_declared_fails_by_name(tree: Path) -> None:
    add(tree, "RUN sed -i 's/^Package: tar$/Package: tarantula/' /var/lib/dpkg/status")
    done = build(tree)
    assert done.returncode == 5
    assert "distribution package tarantula" in done.stderr
    assert "distribution package tar " in done.stderr


def test_a_flipped_checksum_of_a_wheel_stops_the_build(tree: Path, store: Path, tmp_path: Path) -> None:
    """A lock that is whole in itself, and names other bytes than the index has."""
    own = tmp_path / "store"  # without the partial downloads of other workers
    shutil.copytree(store / "sha256", own / "sha256", copy_function=os.link)
    held = parse((tree / LOCK).read_text(), Lock, str(LOCK))
    good = next(entry.sha256 for entry in held.python if entry.name == "pip")
    bad = ("0" if good[0] != "0" else "1") + good[1:]
    files = [entry.model_copy(update={"sha256": bad}) if entry.name == "pip" else entry for entry in held.python]
    changed = held.model_copy(update={"python": files, "entries": entries_digest(files)})
    (tree / LOCK).write_text(dump(changed))
    done = trainwright(tree, "build", ID, TRAINWRIGHT_STORE=str(own))
    assert done.returncode == 5, done.stderr
    assert bad in done.stderr
    assert good in done.stderr
    assert not list(own.glob(".partial-*"))
    assert not (own / "sha256" / bad[:2] / bad).exists()


def test_a_wheel_with_other_bytes_is_refused_by_the_install(built: Path, tmp_path: Path) -> None:
    """The last line of defence: uv inside the build, without us."""
    folder = tmp_path / "out"
    shutil.copytree(built / "out" / ID, folder)
    [wheel] = (folder / "wheels/libraries").glob("pip-*.whl")
    with zipfile.ZipFile(wheel, "a") as archive:
        archive.writestr("pip/extra.py", "")
    done = subprocess.run(["docker", "buildx", "bake"], cwd=folder, capture_output=True, text=True, timeout=300)
    assert done.returncode != 0
    assert "Hash mismatch for `pip" in done.stderr


def test_a_flipped_checksum_of_a_package_stops_the_build(tree: Path) -> None:
    text = (tree / PACKAGES).read_text()
    good = re.search(r"Package: tzdata\n(?:.+\n)*?SHA256: (\w+)", text)
    assert good
    bad = ("0" if good[1][0] != "0" else "1") + good[1][1:]
    (tree / PACKAGES).write_text(text.replace(good[1], bad))
    done = build(tree)
    assert done.returncode == 5
    assert "tzdata" in done.stderr
    assert bad in done.stderr


def test_a_mirror_that_moved_on_is_drift_and_blocks_only_a_release(tree: Path) -> None:
    """The lock names a tzdata that no mirror and no snapshot has: the build goes on, and says so everywhere."""
    text = (tree / PACKAGES).read_text()
    stanza = re.search(r"Package: tzdata\n(?:.+\n)+", text)
    assert stanza
    version = re.search(r"^Version: (.+)$", stanza[0], re.MULTILINE)
    assert version
    older = stanza[0].replace(version[1], "1999a-0")
    older = re.sub(r"Filename: \S+", "Filename: pool/main/t/tzdata/tzdata_1999a-0_all.deb", older)
    older = re.sub(r"SHA256: \w+", "SHA256: " + "a" * 64, older)
    (tree / PACKAGES).write_text(text.replace(stanza[0], older))

    done = build(tree)
    assert done.returncode == 0, done.stderr
    assert f"drift: tzdata 1999a-0 -> {version[1]}" in done.stderr
    made = image(tree)
    assert made["drift"] == [{"package": "tzdata", "locked": "1999a-0", "used": version[1]}]
    again = trainwright(tree, "build", ID, "--json")
    assert json.loads(again.stdout)[0]["action"] == "reuse"

    released = trainwright(tree, "push", ID, "--release", "1.0", REGISTRY="127.0.0.1:1")
    assert released.returncode == 8
    assert "cannot be released" in released.stderr


def test_no_space_left(tree: Path, tmp_path: Path) -> None:
    small = tmp_path / "small"
    small.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", small], capture_output=True).returncode:
        pytest.skip("not run: mounting a small disk takes root")
    try:
        done = trainwright(tree, "fetch", ID, TRAINWRIGHT_STORE=str(small))
    finally:
        subprocess.run(["umount", small], check=True)
    assert done.returncode == 10
    assert "no space left" in done.stderr


def test_two_builds_at_once(tree: Path) -> None:
    """One builds, the other waits for it and then has nothing to do."""
    add(tree, "RUN sleep 2 && touch /two-at-once")
    program = Path(sys.executable).with_name("trainwright")
    both = [
        subprocess.Popen([program, "build", ID, "--json"], cwd=tree, stdout=-1, stderr=-1, text=True) for _ in range(2)
    ]
    results = at_once.outputs(both, 300)
    assert [child.returncode for child in both] == [0, 0], results
    said = {json.loads(out)[0]["action"]: errors for out, errors in results}
    assert said.keys() == {"build", "reuse"}
    assert "another trainwright process is working in" in said["reuse"]
    assert "another trainwright process is working in" not in said["build"]
    assert "building in" not in said["reuse"]
    assert image(tree)["proof"]["probe"]["state"] == "passed"  # type: ignore[index]


def test_an_image_that_is_removed_between_two_questions_stops_nothing(
    built: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another process may remove an image after the engine listed it."""
    ask, gone = APIClient.images, {"Id": f"sha256:{'0' * 64}"}
    monkeypatch.setattr(APIClient, "images", lambda self, **asked: [gone, *ask(self, **asked), gone])
    name = f"trainwright/tiny:{ID}-{str(image(built)['key'])[:12]}"
    assert engine.layers(name) in list(engine.layers_of_images("trainwright/*"))


def test_ctrl_c_in_the_middle_of_a_build(tree: Path) -> None:
    add(tree, "RUN sleep 600")
    child = subprocess.Popen(
        [Path(sys.executable).with_name("trainwright"), "build", ID],
        cwd=tree,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert child.stderr
    for line in child.stderr:
        if "RUN sleep 600" in line:
            break
    child.send_signal(signal.SIGINT)
    rest = child.communicate(timeout=60)[1]
    assert child.returncode == 130, rest
    assert "interrupted" in rest
    assert not (tree / "out" / ID / "image.json").exists()
    template = tree / IMAGE
    template.write_text(template.read_text().replace("RUN sleep 600\n", ""))
    assert build(tree).returncode == 0  # nothing is in the way of the next one


def build_base(built: Path, name: str) -> None:
    """Build only the base of out/<id>/, from the cache that holds it."""
    out = built / "out" / ID
    target = json.loads((out / "docker-bake.json").read_text())["target"]["image"]
    contexts = [f"--build-context={context}={folder}" for context, folder in target["contexts"].items()]
    arguments = [f"--build-arg={argument}={value}" for argument, value in target["args"].items()]
    words = ["--target=base", "--provenance=false", *contexts, *arguments, f"--tag={name}", "."]
    done = subprocess.run(["docker", "buildx", "build", *words], cwd=out, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr


def test_a_base_from_a_registry_by_digest(built: Path, tree: Path, registry: str) -> None:
    """The same variant on an image that was pushed to a registry: here the base of packages itself, one layer."""
    name = f"{registry}/bases/debian:12"
    build_base(built, name)
    layers = engine.client().images.get(name).attrs["RootFS"]["Layers"]
    pushed = subprocess.run(["docker", "push", name], check=True, capture_output=True, text=True).stdout
    digest = re.search(r"digest: (sha256:\w+)", pushed)
    subprocess.run(["docker", "rmi", name], check=True, capture_output=True)
    assert len(layers) == 1
    assert digest

    file = tree / "dockerfiles/bases.toml"
    document = tomlkit.parse(file.read_text())
    document["bases"]["debian-12"].update(
        {
            "provider": "image",
            "reference": f"{registry}/bases/debian@{digest[1]}",
            "packages": ["apt", "hello"],
        }
    )
    file.write_text(tomlkit.dumps(document))
    stale = build(tree)
    assert stale.returncode == 4
    assert "stale" in stale.stderr
    locked = trainwright(tree, "lock")
    assert locked.returncode == 0, locked.stderr
    done = build(tree)
    assert done.returncode == 0, done.stderr
    assert "hello" in image(tree)["packages"]  # type: ignore[operator]
    subprocess.run(["docker", "rmi", f"{registry}/bases/debian@{digest[1]}"], check=False, capture_output=True)
    assert f"FROM {registry}/bases/debian@{digest[1]}" in (tree / "out" / ID / "Dockerfile").read_text()


def test_an_architecture_that_nobody_here_runs_is_refused_before_anything_is_fetched() -> None:
    buildx.must_build_for(engine.builder(), "amd64")
    with pytest.raises(EnvironmentProblem, match="riscv9"):
        buildx.must_build_for(engine.builder(), "riscv9")
