"""Test what a graft adds, and that a graft which changes the image below is refused."""

import gzip
import hashlib
import io
import json
import re
import subprocess
import tarfile
from pathlib import Path
from typing import Any

import layouts
import pytest
import zstandard
from unit.graft.records import (
    Edit,
    config,
    edited,
    env,
    first_python,
    inside,
    library,
    planned,
    rendered,
    there,
    unchanged,
    wanted,
)

from trainwright.core.errors import BuildError, NotRunError
from trainwright.docker import oci_layout
from trainwright.graft import build, files, look
from trainwright.graft import plan as graft_plan
from trainwright.graft import recipe as graft_recipe
from trainwright.graft.found import config_of
from trainwright.graft.lock import Locked
from trainwright.image.inputs import Distribution
from trainwright.matrix.matrix import Intent
from trainwright.matrix.model import Group, Lock, PythonFile
from trainwright.registry import client
from trainwright.resolve.resolve import lock_sources

OWN = "/opt/conda/envs/team/bin/python3"


def test_launcher_and_preflight_start_with_the_images_own_python(intent: Intent) -> None:
    one = rendered(intent, first_python(path=OWN))
    assert not [name for name, (text, _) in one.files.items() if "/opt/venv/bin" in text]
    for name in ("trainwright-launch", "trainwright-check"):
        text, mode = one.files[f"usr/local/bin/{name}"]
        assert f"{OWN} -IB" in text
        assert mode == 0o755
    assert f'PYTHON = "{OWN}"' in one.files["opt/trainwright/launcher/starting.py"][0]


def test_the_declaration_is_what_was_found(intent: Intent) -> None:
    one = rendered(intent)
    declared = json.loads(one.files["opt/trainwright/declared.json"][0])
    assert declared["components"]["torch"]["says"] == "2.13.0+cpu"
    assert declared["components"]["torch"]["at_start"]
    assert declared["python"]["numpy"] == "2.4.6"
    assert "torch==2.13.0+cpu\n" in one.files["opt/trainwright/constraints.txt"][0]
    assert 'io.trainwright.version.torch="2.13.0+cpu"' in one.inputs.text["Dockerfile"]
    assert "RUN" not in one.inputs.text["Dockerfile"]


def test_pips_own_settings_are_left_alone(intent: Intent) -> None:
    assert "etc/pip.conf" in rendered(intent).files
    one = rendered(intent, there(**{"_etc_pip.conf": "file"}))
    assert "etc/pip.conf" not in one.files
    assert "ENV PIP_CONSTRAINT=/opt/trainwright/constraints.txt" in one.inputs.text["Dockerfile"]


def test_the_key_is_of_the_image_and_of_what_is_added(intent: Intent) -> None:
    one = rendered(intent)
    assert rendered(intent).key == one.key
    assert rendered(intent, lambda r: r.update(pinned="team.example/train@sha256:" + "b" * 64)).key != one.key
    assert rendered(intent, first_python(path=OWN)).key != one.key
    assert rendered(intent, lambda r: r.update(source="trainwright/below:a")).key == one.key
    assert one.name == f"trainwright/pytorch:{one.id}-{one.key[:12]}"


def test_the_archive_depends_on_the_files_and_the_images_time(intent: Intent) -> None:
    one = rendered(intent)
    packed = files.archive(one)
    assert packed == files.archive(rendered(intent))
    with tarfile.open(fileobj=io.BytesIO(packed)) as tar:
        members = {member.name: member for member in tar}
    assert {member.mtime for member in members.values()} == {1795313345}
    assert members["usr/local/bin/trainwright-launch"].mode == 0o755
    assert not [name for name in members if name.startswith("/")]


def test_a_path_that_no_script_can_hold(intent: Intent) -> None:
    with pytest.raises(BuildError, match="cannot be written into a graft"):
        rendered(intent, first_python(path='/opt/a"; rm -rf /;"/bin/python'))


@pytest.mark.parametrize(
    ("created", "seconds"), [("2026-11-22T02:09:05Z", 1795313345), ("", 0), ("0001-01-01T00:00:00Z", 0)]
)
def test_the_time_of_an_image(created: str, seconds: int) -> None:
    assert files.epoch(created) == seconds


# --- the proof -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("edit", "told"),
    [
        (config(layers=["sha256:" + "c" * 64] * 4), "layers are not those of"),
        (env(PATH="/other"), "the environment is another one: PATH"),
        (config(user="1000"), "user was"),
        (config(entrypoint=["/x"]), "entrypoint was"),
        (first_python(packages={}), "packages of /opt/venv/bin/python"),
        (first_python(components={}), "what /opt/venv/bin/python imports changed"),
        (inside(packages={}), "package bash is not there"),
        (library(sha256="0" * 64), "library /usr/lib/libmpi.so was"),
        (inside(libc="glibc 2.40"), "libc of the image changed"),
    ],
)
def test_a_graft_that_changed_the_image_below(intent: Intent, edit: Edit, told: str) -> None:
    before, made = planned(intent, library(sha256="1" * 64))
    one = rendered(intent)
    assert [*build.differences(before, before, made, one)] == []
    after = edited(lambda record: (library(sha256="1" * 64)(record), edit(record)))
    assert told in next(build.differences(before, after, made, one))


@pytest.mark.parametrize("fabric", ["distro", "efa"])
def test_a_fabric_adds_what_the_matrix_pins(intent: Intent, fabric: str) -> None:
    found = edited(unchanged)
    asked = wanted(intent, fabric)
    stack = intent.matrix.stacks[graft_recipe.stack_of(asked, found)]
    pins = graft_recipe.added(intent, found, asked)
    assert pins.keys() == {*stack.pins, "openssh"}
    assert pins["libfabric"].provider == stack.pins["libfabric"]
    recipe = graft_recipe.recipe(intent, found, asked, "pytorch-2.13-cpu-py311-ec2-train", "pytorch")
    assert recipe.base.archives["debian"] == ["bookworm", "bookworm-updates"]
    assert "bookworm-security" in recipe.base.archives["debian-security"]
    made = graft_plan.plan(intent, found, asked)
    assert not made.lacking
    assert "are left out" in [step.does for step in made.steps]  # a plugin of NCCL


def test_nccl_of_the_image_stays(intent: Intent) -> None:
    cuda = edited(first_python(components={"torch": {"version": "2.15.0+cu132", "error": "", "maps": []}}))
    pins = graft_recipe.added(intent, cuda, wanted(intent, "distro"))
    assert "nccl" not in pins
    assert pins["aws-ofi-nccl"].provider == "source"


def with_cuda(record: dict[str, Any]) -> None:
    record["inside"]["os"].update(VERSION_ID="13", VERSION_CODENAME="trixie")
    python = record["inside"]["pythons"][0]
    nccl = f"{python['site']}/nvidia/nccl/lib/libnccl.so.2"
    python["components"] = {"torch": {"version": "2.15.0+cu132", "error": "", "maps": [nccl]}}
    row = {"component": "nccl", "sha256": "1" * 64, "names": [], "version": "2.30.7"}
    record["inside"]["libraries"] = {nccl: row}


def test_what_is_compiled_is_for_the_nccl_that_the_framework_maps(intent: Intent) -> None:
    found, asked = edited(with_cuda), wanted(intent, "distro", "sagemaker")
    made = graft_plan.plan(intent, found, asked)
    assert not made.lacking
    recipe = graft_recipe.recipe(intent, found, asked, made.id, made.framework)
    names = {name for pin in recipe.pins for name in recipe.packages(recipe.provider(pin).packages)}
    rows = {
        name: {
            "Package": name,
            "Version": "1-1",
            "Architecture": "amd64",
            "Archive": "debian",
            "Filename": f"pool/{name}.deb",
            "Size": "1",
            "SHA256": "a" * 64,
        }
        for name in names
    }
    packages = Distribution(intent="", epoch=0, locked=rows, effective=rows, drift=[], unmet=None)
    wheels: list[tuple[str, Group, bool]] = [("uv", "tools", False), ("nvidia-cuda-nvcc", "devel", True)]
    wheels += [("sagemaker-training", "toolkit", False), ("setuptools", "sdist-build", False)]
    python = [
        PythonFile(name=name, version="1", file=f"{name}-1.whl", sha256="b" * 64, size=1, group=group, compile=compiled)
        for name, group, compiled in wheels
    ]
    lock = Lock(intent="0" * 64, entries="0" * 64, python=python, sources=lock_sources(recipe))
    one = files.graft(recipe, found, made, Locked(lock, packages, packages))
    text, site = one.inputs.text["Dockerfile"], "/opt/venv/lib/python3.11/site-packages"
    assert re.findall("^FROM (.*)$", text, re.MULTILINE) == [
        "parent AS base",
        "base AS builder",
        "base AS uv",
        "builder AS cuda-compiler",
        "cuda-compiler AS aws-ofi-nccl",
        "builder AS gdrcopy",
        "cuda-compiler AS nccl-tests",
        "base",
    ]
    first, last = (json.loads(words) for words in re.findall("^SHELL (.*)$", text, re.MULTILINE))
    step, bare = 'a="1 2"; echo "$PATH|$a"', {"PATH": "/home/team/env/bin"}  # an image whose PATH lacks ldconfig
    assert subprocess.check_output([*first, step], env=bare, text=True) == (
        "/home/team/env/bin:/usr/local/sbin:/usr/sbin:/sbin|1 2\n"
    )
    assert last == ["/bin/sh", "-c"]
    assert f"NCCL_HOME={site}/nvidia/nccl" in text
    assert f"-rpath={site}/nvidia/nccl/lib:{site}/nvidia/cu13/lib" in text
    assert one.inputs.pins["nccl"] == "2.30.7"
    declared = json.loads(one.files["opt/trainwright/declared.json"][0])
    assert declared["components"]["nccl"]["at_start"]
    assert declared["python"]["sagemaker-training"] == "1"
    assert 'CMD ["train"]' in text
    assert "/opt/venv/bin/python" in one.files["opt/trainwright/bin/train"][0].splitlines()[0]


def test_nothing_is_compiled_without_a_compiler_of_cuda(intent: Intent) -> None:
    def older(record: dict[str, Any]) -> None:
        with_cuda(record)
        record["inside"]["pythons"][0]["components"]["torch"]["version"] = "2.10.0+cu128"

    (said,) = graft_plan.plan(intent, edited(older), wanted(intent, "distro")).lacking
    assert "requires nvcc" in said


@pytest.mark.parametrize(("volume", "told"), [("/usr", True), ("/data", False)])
def test_a_volume_over_what_is_installed(intent: Intent, volume: str, told: bool) -> None:
    made = graft_plan.plan(intent, edited(config(volumes=[volume])), wanted(intent, target="sagemaker"))
    assert bool(made.lacking) == told


def test_a_default_shell_is_like_none() -> None:
    said = {"Architecture": "amd64", "Os": "linux", "RootFS": {"Layers": []}}
    held = [config_of(said | {"Config": {"Shell": shell}}).shell for shell in (None, ["/bin/sh", "-c"], ["/bin/bash"])]
    assert held == [[], [], ["/bin/bash"]]


def test_variables_that_a_dockerfile_sets() -> None:
    text = "FROM a\nENV A=1 \\\n    B=2\nRUN export C=3 \\\n    D=4\nENV E=x\n"
    assert files.set_by(text) == {"A", "B", "E"}


def test_lower_layers_are_those_of_the_registry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    image = layouts.make(tmp_path / "saved", [gzip.compress(text, mtime=0) for text in (b"one", b"two", b"new")], {})
    compressed = zstandard.compress(b"two")
    other = {
        "mediaType": "vnd.oci.layer+zstd",
        "digest": f"sha256:{hashlib.sha256(compressed).hexdigest()}",
        "size": 12,
    }
    brought: list[tuple[str, str]] = []

    def bring(repository: str, row: dict[str, Any], layout: Path) -> None:
        brought.append((repository, row["digest"]))
        client.blob_of(layout, row["digest"]).write_bytes(compressed)

    monkeypatch.setattr(client, "bring", bring)
    found = edited(config(layers=["sha256:1", "sha256:2"], media_types=["layer+gzip", "layer+zstd"]))
    same = {"layers": image.manifest["layers"][:2]}
    for lower in (same, None):
        assert build.on_its_layers(found, image.folder, lower) == (image.digest, image.manifest)
    digest, manifest = build.on_its_layers(found, image.folder, {"layers": [same["layers"][0], other]})
    assert brought == [(found.pinned.partition("@")[0], other["digest"])]
    assert client.manifest_of(image.folder) == (digest, manifest)
    kinds = [row["mediaType"].rpartition(".")[2] for row in manifest["layers"]]
    assert kinds == ["gzip", "tar+zstd", "gzip"]
    layer, unpacked = str(other["digest"]), f"sha256:{hashlib.sha256(b'two').hexdigest()}"
    oci_layout.unpack(image.folder, layer, unpacked, tmp_path / "unpacked")
    client.blob_of(image.folder, layer).write_bytes(zstandard.compress(b"changed"))
    with pytest.raises(BuildError, match="does not match"):
        oci_layout.unpack(image.folder, layer, unpacked, tmp_path / "again")


def test_an_engine_without_compressed_layers_pushes_no_graft(tmp_path: Path) -> None:
    image = layouts.make(tmp_path / "saved", [b"one", b"two"], {})
    digests = [row["digest"] for row in image.manifest["layers"]]
    with pytest.raises(NotRunError, match="not compressed"):
        build.on_its_layers(edited(config(layers=digests[:1])), image.folder, None)


@pytest.mark.parametrize(
    ("said", "why", "told"),
    [
        (build.STARTED, "", ""),
        (f"== a banner ==\n{build.STARTED}\n", "", ""),
        ("serving on port 8000\n", "", "serving on port 8000"),
        ("", "/bin/sh does not start", "/bin/sh does not start"),
        (None, "exit code 127: start.sh: No such file", "exit code 127"),
    ],
)
def test_an_entrypoint_that_does_not_start_what_it_is_given(
    intent: Intent, monkeypatch: pytest.MonkeyPatch, said: str | None, why: str, told: str
) -> None:
    """SageMaker starts a job by it, with the word train."""
    asked: list[list[str]] = []

    def ask(_: str, __: object, entrypoint: list[str], words: list[str], user: str) -> tuple[str, str]:
        asked.append([*entrypoint, *words, user])
        if said is None:
            raise BuildError("it cannot be probed", why=why)
        return said, why

    monkeypatch.setattr(look, "ask", ask)
    build.enter(intent, "team", "name", edited(unchanged))
    assert asked == []  # this one has none
    found = edited(config(entrypoint=["start.sh"], user="1000"))
    if not told:
        build.enter(intent, "team", "name", found)
        assert asked == [["start.sh", "/bin/sh", "-c", f"echo {build.STARTED}", "1000"]]
        return
    with pytest.raises(BuildError, match="entrypoint of team") as error:
        build.enter(intent, "team", "name", found)
    assert told in error.value.why
    assert error.value.where == 'ENTRYPOINT ["start.sh"]'
