"""Test that a graft of what cannot be had ends in one error, leaves nothing behind, and works once it can be had."""

import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest
from foreign import bases, context, grafts, images
from layouts import layout, make
from tiny import built_in_this_run, store_of_this_run

from trainwright.docker import engine
from trainwright.graft import build as graft_build
from trainwright.graft import look
from trainwright.graft import plan as graft_plan
from trainwright.matrix.matrix import load_intent
from trainwright.registry import client

pytestmark = [pytest.mark.engine, pytest.mark.slow]
INDEX = "application/vnd.oci.image.index.v1+json"


@pytest.fixture(scope="module")
def foreign(registry: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Make one image that can be grafted upon; yield repository@digest."""
    with store_of_this_run():
        own = tmp_path_factory.mktemp("foreign") / "own"
        context.make(own)
        held = {"bookworm": bases.names(built_in_this_run())["bookworm"]}
        [(_, reference)] = images.make(["system"], held, own, registry)
        yield reference
        subprocess.run(["docker", "rmi", reference], capture_output=True)


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    return grafts.checkout(tmp_path / "tree")


def refused(tree: Path, reference: str, code: int, *words: str) -> str:
    """Graft, and check that this ends in one error with this exit code, and wrote nothing; return the error."""
    ended, said, errors = grafts.command(tree, reference, *words)
    assert ended == code, errors
    assert "graft" not in said
    [error] = [json.loads(line) for line in errors.splitlines() if line.startswith("{")]
    assert error["exit_code"] == code
    assert error["fix"]
    assert "Traceback" not in errors
    assert not list(tree.glob("out/*/graft.json"))
    return errors


def test_a_registry_that_is_not_there(tree: Path) -> None:
    assert "connection refused" in refused(tree, "127.0.0.1:1/team/train:1", 8)


def test_what_the_registry_does_not_hold(tree: Path, registry: str) -> None:
    assert "not found" in refused(tree, f"{registry}/no/such:1", 8)
    assert "not found" in refused(tree, f"{registry}/no/such@sha256:{'0' * 64}", 8)


def test_an_image_for_windows(tree: Path, registry: str, tmp_path: Path) -> None:
    one = make(tmp_path / "layout", [], {}, os="windows", **{"os.version": "10.0.20348.1"})
    repository = f"{registry}/team/windows"
    client.push(one.folder, repository, one.digest)
    assert "windows" in refused(tree, f"{repository}@{one.digest}", 3)


def test_an_index_without_this_machine(tree: Path, registry: str, tmp_path: Path) -> None:
    from putting import put_manifest

    repository, digest = f"{registry}/team/other", layout(tmp_path / "layout", {})
    client.push(tmp_path / "layout", repository, digest)
    row = {
        "mediaType": "application/vnd.docker.distribution.manifest.v2+json",
        "digest": digest,
        "size": (tmp_path / "layout/blobs/sha256" / digest.partition(":")[2]).stat().st_size,
        "platform": {"os": "linux", "architecture": "s390x"},
    }
    index = json.dumps({"schemaVersion": 2, "mediaType": INDEX, "manifests": [row]}).encode()
    found = put_manifest(repository, index, INDEX, "1")
    assert "no image for this machine" in refused(tree, f"{repository}@{found}", 3)


def test_a_tag_that_moved_since_it_was_pulled(tree: Path, registry: str, foreign: str, tmp_path: Path) -> None:
    repository, digest = foreign.split("@")
    tag = f"moving-{uuid4().hex[:8]}"
    client.move(repository, digest, tag)
    reference = f"{repository}:{tag}"
    try:
        assert grafts.command(tree, reference, "--look-only")[0] == 0
        other = layout(tmp_path / "layout", {"other": tag})
        client.push(tmp_path / "layout", repository, other)
        client.move(repository, other, tag)
        assert "moved tag" in refused(tree, reference, 3)
        assert grafts.command(tree, foreign, "--look-only")[0] == 0  # the digest still means what it meant
    finally:
        subprocess.run(["docker", "rmi", reference], capture_output=True)


def test_a_disk_that_is_full_in_the_middle(tree: Path, foreign: str) -> None:
    """The folder of the graft lies on a small disk: nothing is half-written, and with room the same command goes on."""
    (tree / "out").mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(tree / "out")]
    if subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("not run: mounting a small disk takes root")
    try:
        errors = refused(tree, foreign, 10, "--name", "full")
        assert "no space left" in errors.lower()
    finally:
        subprocess.run(["umount", tree / "out"], check=True)
    code, said, errors = grafts.command(tree, foreign, "--name", "full")
    assert code == 0, errors
    engine.remove(said["graft"]["image"])
    shutil.rmtree(tree / "out")


def test_a_tag_that_moves_between_look_and_build(
    tree: Path, registry: str, foreign: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was looked into is what is built upon: by its digest, which the tag names no longer."""
    monkeypatch.chdir(tree)
    repository, digest = foreign.split("@")
    tag = f"moving-{uuid4().hex[:8]}"
    client.move(repository, digest, tag)
    intent = load_intent(tree)
    wanted = graft_plan.asked_for(intent, "ec2", "none", look.architecture())
    found = look.look(intent, f"{repository}:{tag}", print)
    made = graft_plan.plan(intent, found, wanted, "moving")
    other = layout(tmp_path / "layout", {"other": tag})
    client.push(tmp_path / "layout", repository, other)
    client.move(repository, other, tag)
    try:
        one, result = graft_build.build(intent, found, wanted, made, print, lambda *_: None)
        assert result.base == foreign
        assert engine.layers(one.name)[: result.lower_layers] == found.config.layers
        engine.remove(one.name)
    finally:
        subprocess.run(["docker", "rmi", f"{repository}:{tag}"], capture_output=True)


@pytest.mark.parametrize(
    ("mirrors", "told"),
    [
        ("debian=http://127.0.0.1:1/debian debian-security=http://127.0.0.1:1/security", "package index cannot be"),
        ("python=http://127.0.0.1:1/simple", "Python package index cannot be reached"),
    ],
    ids=["of the distribution", "of Python"],
)
def test_a_package_index_that_is_gone(
    tree: Path, foreign: str, mirrors: str, told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SageMaker's toolkit needs both: a compiler of the distribution, and wheels."""
    monkeypatch.setenv("TRAINWRIGHT_MIRRORS", mirrors)
    errors = refused(tree, foreign, 10, "--name", "gone", "--target", "sagemaker")
    assert told in errors
    assert not list(tree.glob("out/*gone*"))  # so the same command begins again
