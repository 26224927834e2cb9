"""Test the check before a job: equality gives no message, and every kind of difference is named with its fix."""

import json
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from programs import imported

from trainwright.image import inputs
from trainwright.matrix.matrix import Intent, Recipe

ROOT = Path(__file__).parents[3]
PROGRAM = ROOT / "dockerfiles/rootfs/common/opt/trainwright/startup_check.py"
NCCL, OTHER = "/opt/venv/nccl/libnccl.so.2", "/tmp/libnccl.so.2"
RECORDED = {
    NCCL: {"component": "nccl", "sha256": "a" * 64, "names": ["libnccl.so.2"]},
    "/opt/aws-ofi-nccl/lib/libnccl-net-ofi.so": {"component": "aws-ofi-nccl", "sha256": "b" * 64, "names": []},
}
HASHES = {path: str(facts["sha256"]) for path, facts in RECORDED.items()}


@pytest.fixture(scope="module")
def check() -> ModuleType:
    return imported(PROGRAM)


@pytest.fixture(scope="module")
def declared(intent: Intent) -> dict[str, Any]:
    """Return what the image with the most components declares."""
    variant = next(v for v in intent.variants if {"nccl", "aws-ofi-nccl", "torch"} <= v.pins.keys())
    content: dict[str, Any] = json.loads(inputs.load(Recipe(intent, variant)).text["requirements/declared.json"])
    return content


@pytest.fixture
def held(declared: dict[str, Any]) -> dict[str, tuple[str, str]]:
    return {name: (version, "/site") for name, version in declared["python"].items()}


def test_the_declaration_is_of_the_lock(declared: dict[str, Any]) -> None:
    assert declared["python"]["torch"] == declared["components"]["torch"]["says"]
    assert declared["components"]["nccl"]["libraries"]
    assert declared["packages"]["libc6"]


def test_a_framework_is_loaded_before_libraries_are_asked(declared: dict[str, Any]) -> None:
    """A library that it brings by its own path, and another one by the loader's name, would otherwise be one."""
    assert next(iter(declared["components"])) == "torch"


def test_everything_that_ranks_talk_through_is_asked_again(declared: dict[str, Any]) -> None:
    at_start = {name for name, facts in declared["components"].items() if facts["at_start"]}
    assert at_start >= {"torch", "nccl", "cuda", "openmpi", "libfabric", "aws-ofi-nccl", "gdrcopy"}


def test_every_framework_is_asked_again(intent: Intent) -> None:
    asked = {name: c.probe.at_start for name, c in intent.components.components.items() if c.position == "framework"}
    assert [name for name, at_start in asked.items() if not at_start] == []


def test_equal(check: ModuleType, declared: dict[str, Any], held: dict[str, Any]) -> None:
    said = {name: facts["says"] for name, facts in declared["components"].items()}
    assert check.package_differences(declared, held) == []
    assert check.version_differences(declared, said) == []
    assert check.library_differences(declared, RECORDED, HASHES, [NCCL, "/lib/libc.so.6"]) == []
    assert check.symbol_differences(declared, RECORDED, {"nccl": NCCL}) == []
    assert check.variable_differences(declared, RECORDED, {"NCCL_NET_PLUGIN": "ofi", "NCCL_DEBUG": "INFO"}) == []


def test_packages(check: ModuleType, declared: dict[str, Any], held: dict[str, Any]) -> None:
    torch = declared["python"]["torch"]
    held |= {"torch": ("2.1", "/code"), "pip": ("1.0", "/site"), "einops": ("0.8", "/site")}
    del held["numpy"]
    first, second = check.package_differences(declared, held)
    assert first.startswith(f"Python package numpy: declared {declared['python']['numpy']}, found none. Fix: ")
    assert second.startswith(f"Python package torch: declared {torch}, found 2.1 (/code). Fix: remove torch from")
    assert check.added(declared, held) == ["einops 0.8"]


def test_a_wheel_says_for_which_accelerator_it_is(check: ModuleType, declared: dict[str, Any]) -> None:
    says, own = declared["components"]["torch"]["says"], declared["accelerator"]
    assert check.version_differences(declared, {"torch": f"{says}+{own}"}) == []
    assert len(check.version_differences(declared, {"torch": f"{says}+cpu"})) == 1


@pytest.mark.parametrize("said", ["", "ImportError: libnccl.so.2: cannot open shared object file"])
def test_a_component_that_says_nothing(check: ModuleType, declared: dict[str, Any], said: str) -> None:
    (line,) = check.version_differences(declared, {"nccl": said})
    assert f"found {said or 'no version'}" in line


def test_a_library_that_was_replaced_or_removed(check: ModuleType, declared: dict[str, Any]) -> None:
    for now, told in (("c" * 64, "found sha256 cccccccccccc"), ("", "found none")):
        (line,) = check.library_differences(declared, RECORDED, {**HASHES, NCCL: now}, [])
        assert told in line
        assert NCCL in line


@pytest.mark.parametrize(
    ("variable", "value", "told"),
    [("LD_PRELOAD", OTHER, "(preloaded)"), ("LD_LIBRARY_PATH", "/tmp", "(LD_LIBRARY_PATH)"), ("X", "", ".")],
)
def test_a_second_copy(
    check: ModuleType,
    declared: dict[str, Any],
    monkeypatch: pytest.MonkeyPatch,
    variable: str,
    value: str,
    told: str,
) -> None:
    monkeypatch.setenv(variable, value)
    (line,) = check.library_differences(declared, RECORDED, HASHES, [NCCL, OTHER])
    assert line.startswith(f"library of nccl that the framework loads: declared {NCCL}, found {OTHER}")
    assert told in line


def test_another_file_brings_its_functions(check: ModuleType, declared: dict[str, Any]) -> None:
    (line,) = check.symbol_differences(declared, RECORDED, {"nccl": "/tmp/shim.so"})
    assert "ncclAllReduce of nccl" in line
    assert "/tmp/shim.so" in line


@pytest.mark.parametrize("value", ["none", "other", "/tmp/libnccl-net-ofi.so"])
def test_another_plugin(check: ModuleType, declared: dict[str, Any], value: str) -> None:
    (line,) = check.variable_differences(declared, RECORDED, {"NCCL_NET_PLUGIN": value})
    assert f"NCCL_NET_PLUGIN for aws-ofi-nccl: declared unset, or libnccl-net-ofi.so, found {value}" in line


def test_shadows(check: ModuleType, tmp_path: Path) -> None:
    site = tmp_path / "site"
    (site / "numpy").mkdir(parents=True)
    origins = {"numpy": "/code/numpy/__init__.py", "train": "/code/train.py"}
    (line,) = check.shadows(site, origins)
    assert "/code/numpy/__init__.py" in line
    assert check.shadows(site, {"numpy": str(site / "numpy/__init__.py")}) == []


def test_the_first_on_the_path_is_what_python_imports(check: ModuleType, tmp_path: Path) -> None:
    for folder, version in (("first", "2"), ("second", "1")):
        info = tmp_path / folder / f"Some_Thing-{version}.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: Some_Thing\nVersion: {version}\n")
    found = check.packages_on([str(tmp_path / "first"), str(tmp_path / "second")])
    assert found == {"some-thing": ("2", f"{tmp_path}/first")}


def test_who_brings_a_function(check: ModuleType) -> None:
    assert Path(check.provider_of("getpid")).name.startswith("libc")
    assert check.provider_of("no_such_function_anywhere") == ""


# --- the program, on declarations of our own ------------------------------------------------------------------------

PROBE = {"code": "print('version', '1.0')", "pattern": r"version (\S+)"}


@pytest.mark.parametrize(
    ("says", "mode", "code"),
    [("1.0", "", 0), ("2.0", "", 5), ("2.0", "refuse", 5), ("2.0", "warn", 0), ("2.0", "off", 0), ("1.0", "of", 2)],
)
def test_how_it_ends(tmp_path: Path, says: str, mode: str, code: int) -> None:
    facts = {"version": says, "says": says, "at_start": True, "probe": PROBE}
    facts |= {"libraries": [], "symbol": "", "variables": {}}
    content = {"id": "tiny", "accelerator": "cpu", "components": {"own": facts}, "python": {}, "may_move": []}
    (tmp_path / "declared.json").write_text(json.dumps(content))
    (tmp_path / "libraries.json").write_text("{}")
    (tmp_path / "startup_check.py").write_text(PROGRAM.read_text().replace("/opt/trainwright/", f"{tmp_path}/"))
    done = subprocess.run(
        [sys.executable, "-I", tmp_path / "startup_check.py"],
        env={**os.environ, "TRAINWRIGHT_STARTUP_CHECK": mode},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == code, done.stderr
    assert ("declared 2.0, found 1.0" in done.stderr) == (says == "2.0" and mode != "off")
    assert ("WARNING" in done.stderr) == (mode == "warn")
