"""Test what images leave out of their packages: the rules of components, and the program that a build runs."""

import csv
import hashlib
import os
import subprocess
import sys
from base64 import urlsafe_b64encode
from collections.abc import Callable, Mapping
from fnmatch import fnmatchcase
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any
from zipfile import ZIP_DEFLATED, ZipFile, ZipInfo

import pytest

from trainwright.image import inputs
from trainwright.image.render import left_out
from trainwright.inspect.explain import left_out_table
from trainwright.matrix.matrix import Intent
from trainwright.matrix.model import LeftOut, PythonFile

ROOT = Path(__file__).parents[3]
PROGRAM = ROOT / "dockerfiles/rootfs/python/left_out.py"
NOISE = bytes(range(256)) * 40
FILES = {
    "big/__init__.py": b"",
    "big/lib/large.so": os.urandom(5000),
    "big/lib/static.a": NOISE,
    "big/tests/inner/test_it.py": b"assert True\n",
    "big/run": b"#!/bin/sh\n",
}
Rows = list[list[str]]


def said(path: str, content: bytes) -> list[str]:
    digest = urlsafe_b64encode(hashlib.sha256(content).digest()).decode().rstrip("=")
    return [path, f"sha256={digest}", str(len(content))]


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The program, with an empty site-packages."""
    spec = spec_from_file_location("left_out", PROGRAM)
    assert spec
    assert spec.loader
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    site = tmp_path / "site"
    site.mkdir()
    monkeypatch.setattr(module, "SITE", site)
    monkeypatch.syspath_prepend(site)
    return module


@pytest.fixture
def installed(program: ModuleType, tmp_path: Path) -> Callable[..., Path]:
    """Write a wheel of these files and install it as an installer does; return the wheel."""

    def install(files: Mapping[str, bytes] = FILES) -> Path:
        info = "big-1.dist-info"
        whole = {**files, f"{info}/METADATA": b"Metadata-Version: 2.1\nName: big\nVersion: 1\n"}
        rows = [*(said(path, content) for path, content in whole.items()), [f"{info}/RECORD", "", ""]]
        whole[f"{info}/RECORD"] = "".join(",".join(row) + "\n" for row in rows).encode()
        wheels = tmp_path / "wheels"
        wheels.mkdir()
        wheel = wheels / "big-1-py3-none-any.whl"
        with ZipFile(wheel, "w", ZIP_DEFLATED) as archive:
            for path, content in whole.items():
                entry = ZipInfo(path)
                entry.compress_type = ZIP_DEFLATED
                entry.external_attr = (0o755 if path.endswith("run") else 0o644) << 16
                archive.writestr(entry, content)
            archive.extractall(program.SITE)
        return wheel

    return install


def rule(*files: str, debug: bool = False, devel: bool = False) -> dict[str, Any]:
    made = LeftOut(package="big", files=list(files), why="a test", debug=debug, devel=devel).model_dump()
    return {"component": "torch", "wheel": "big-1-py3-none-any.whl", **made}


def record(program: ModuleType) -> Rows:
    with (program.SITE / "big-1.dist-info/RECORD").open(newline="") as lines:
        return [row for row in csv.reader(lines) if not row[0].startswith("big-1")]


def held(program: ModuleType) -> set[str]:
    found = (path.relative_to(program.SITE).as_posix() for path in program.SITE.rglob("*") if path.is_file())
    return {path for path in found if not path.startswith("big-1")}


def test_files_empty_folders_and_their_record_go(program: ModuleType, installed: Callable[..., Path]) -> None:
    installed()
    program.leave_out([rule("big/tests/*"), rule("big/lib/*.a")])
    kept = {"big/__init__.py", "big/lib/large.so", "big/run"}
    assert held(program) == kept == {row[0] for row in record(program)}
    assert not (program.SITE / "big/tests").exists()
    assert all(row == said(row[0], (program.SITE / row[0]).read_bytes()) for row in record(program))


def test_a_rule_that_matches_nothing_ends_the_build(program: ModuleType, installed: Callable[..., Path]) -> None:
    installed()
    with pytest.raises(SystemExit) as refused:
        program.leave_out([rule("big/gone/*")])
    assert str(refused.value) == (
        "left_out of torch: big/gone/* matches no file of big 1; fix: correct it in dockerfiles/layers/torch.toml"
    )
    assert held(program) == set(FILES)


def test_the_record_is_of_what_strip_leaves(
    program: ModuleType, installed: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A host of unit tests may have no strip; test_left_out.py of the image tests looks for debug sections."""
    installed({"big/f.so": NOISE})
    asked = []

    def strip(command: list[str | Path], check: bool) -> None:
        asked.append((*command[:-1], check))
        Path(command[-1]).write_bytes(b"stripped")

    monkeypatch.setattr(program.subprocess, "run", strip)
    program.leave_out([rule("big/f.so", debug=True)])
    assert asked == [("strip", "--strip-debug", True)]
    assert record(program) == [said("big/f.so", b"stripped")]


def test_the_devel_twin_gets_its_files_back(program: ModuleType, installed: Callable[..., Path]) -> None:
    wheel = installed()
    before = sorted(record(program))
    rules = [rule("big/lib/*.a", devel=True), rule("big/run", devel=True), rule("big/tests/*")]
    program.leave_out(rules)
    program.put_back(rules, wheel.parent)
    assert held(program) == set(FILES) - {"big/tests/inner/test_it.py"}
    assert sorted(record(program)) == [row for row in before if "/tests/" not in row[0]]
    assert {path for path in held(program) if (program.SITE / path).stat().st_mode & 0o777 == 0o755} == {"big/run"}


def test_the_largest_file_moves_into_the_next_layer(program: ModuleType, installed: Callable[..., Path]) -> None:
    """By its compressed size: that is what a host pulls."""
    wheel = installed()
    command = [
        sys.executable,
        "-B",
        "-c",
        f"import runpy, sysconfig; sysconfig.get_path = lambda _: {str(program.SITE)!r}",
    ]
    command[-1] += f"; runpy.run_path({str(PROGRAM)!r}, run_name='__main__')"
    subprocess.run([*command, "move-out", wheel], check=True)
    assert held(program) == set(FILES) - {"big/lib/large.so"}
    assert {row[0] for row in record(program)} == set(FILES)
    subprocess.run([*command, "bring-back", wheel], check=True)
    assert {path: (program.SITE / path).read_bytes() for path in held(program)} == FILES


def entry(name: str, group: str = "framework", version: str = "1") -> PythonFile:
    fields = {"version": version, "file": f"{name}-1-py3-none-any.whl", "sha256": "0" * 64, "size": 1, "group": group}
    return PythonFile.model_validate({"name": name, **fields})


def test_rules_of_pinned_components_for_packages_that_are_shipped(intent: Intent) -> None:
    recipe = intent.recipe("pytorch-2.15-cu132-py313-sagemaker-single-node")
    folders = {
        "framework-1": [entry("triton"), entry("numpy")],
        "compile": [entry("triton")],
        "tools": [entry("triton", "tools")],
    }
    found = left_out(recipe, folders)
    assert list(found) == ["framework-1"]
    assert {row["package"] for row in found["framework-1"]} == {"triton"}
    assert left_out(intent.recipe("jax-0.12-cpu-py313-sagemaker"), folders) == {}


def test_a_version_without_such_files_has_no_rule(intent: Intent) -> None:
    """CUDA 12.8's wheel of the runtime has no static library: seen in the first build of PyTorch 2.10."""
    recipe = intent.recipe("pytorch-2.10-cu128-py311-ec2-single-node")
    for version, made in (("12.8.90", False), ("12.9.79", True)):
        found = left_out(recipe, {"framework-1": [entry("nvidia-cuda-runtime-cu12", version=version)]})
        assert bool(found) == made
        assert all("not_in" not in row for rows in found.values() for row in rows), "it is part of no key"


def test_every_rule_names_a_package_of_some_lock(intent: Intent) -> None:
    """A rule without a package is a leftover."""
    names = set[str]()
    for path in (ROOT / "dockerfiles/locks").glob("*.toml"):
        names |= {line.split('"')[1] for line in path.read_text().splitlines() if line.startswith('name = "')}
    rules = [row for component in intent.components.components.values() for row in component.left_out]
    assert rules
    assert [row.package for row in rules if not any(fnmatchcase(name, row.package) for name in names)] == []


@pytest.mark.parametrize("twin", ["", "-devel"])
def test_explain_says_what_an_image_lacks_and_its_twin_has(intent: Intent, twin: str) -> None:
    recipe = intent.recipe(f"pytorch-2.15-cu132-py313-ec2-single-node{twin}")
    rows = left_out_table(recipe, inputs.known(recipe)[0])
    assert {"files": "/usr/share/man/*", "left out of": "debian-13"}.items() <= {**rows[2]}.items()
    because = {row["files"]: row["because"] for row in rows}
    assert "triton/_C/libtriton.so, triton/_C/libproton.so: debug sections" in because
    assert ("nvidia/*/lib/libcusolverMg.so*" in because) == (not twin)
    assert any(why.endswith("; the devel twin has them") for why in because.values()) == (not twin)
