"""What was proved stays: a requirements.txt that would move a package is refused, by name."""

import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from wheel import wheel

from trainwright.image.inputs import Inputs

pytestmark = pytest.mark.component("pip")
WHEELS = "/tmp/wheels"
OLD = "0.0.1"
ASKED = ["{name}==0.0.1", "{name}<0.0.2", "greedy-{name}"]
CONSTRAINTS = "/opt/trainwright/constraints.txt"


@pytest.fixture(scope="module")
def wheels(container: Any, pack: Callable[[Mapping[str, bytes]], bytes], held: list[str]) -> str:
    """An index in a folder: another version of each pinned package, one that needs it, and one that harms nobody."""
    made = [wheel("harmless", "1.0")]
    for name in held:
        made += [wheel(name, OLD), wheel(f"greedy-{name}", "1.0", f"{name}=={OLD}")]
    container.put_archive("/", pack({f"{WHEELS}/{file}": content for file, content in made}))
    return f"--no-index --find-links {WHEELS}"


def test_constraints_are_the_lock(host: Any, declared: Inputs) -> None:
    lines = host.file(CONSTRAINTS).content_string.splitlines()
    installed = [entry for entry in declared.lock.python if entry.group in declared.variant.groups]
    held = [f"{entry.name}=={entry.version}" for entry in sorted(installed, key=lambda entry: entry.name)]
    assert lines[: len(held)] == held
    assert all(line.endswith("<0") for line in lines[len(held) :])


def test_pip_reads_them(host: Any) -> None:
    assert f"global.constraint='{CONSTRAINTS}'" in host.check_output("pip config list").splitlines()


def test_environment_is_consistent(host: Any) -> None:
    assert host.run("pip check").rc == 0


def test_pip_refuses_to_move_a_package(host: Any, wheels: str, held: list[str]) -> None:
    before = host.check_output("pip freeze")
    for name in held:
        for asked in (asked.format(name=name) for asked in ASKED):
            result = host.run(f"pip install {wheels} --force-reinstall --no-cache-dir %s", asked)
            assert result.rc != 0, asked
            assert f"The user requested (constraint) {name}==" in result.stdout + result.stderr, asked
    assert host.check_output("pip freeze") == before


def test_pip_installs_what_harms_nobody(host: Any, wheels: str) -> None:
    """The refusal above is for the constraint's sake, not because nothing can be installed."""
    result = host.run(f"pip install --no-cache-dir {wheels} --target /tmp/target harmless")
    assert result.rc == 0, result.stderr
    assert host.file("/tmp/target/harmless_marker.py").exists


@pytest.fixture(scope="module")
def uv(container: Any, pack: Callable[[Mapping[str, bytes]], bytes]) -> str:
    """A job that brings its own uv."""
    program = Path(sys.executable).with_name("uv")
    container.put_archive("/", pack({"/tmp/uv": program.read_bytes()}))
    return "/tmp/uv pip install --offline --no-cache --python /opt/venv/bin/python"


@pytest.mark.parametrize("asked", ASKED)
def test_uv_refuses_to_move_a_package(host: Any, uv: str, wheels: str, held: list[str], asked: str) -> None:
    for name in held:
        result = host.run(f"{uv} {wheels} --reinstall --dry-run %s", asked.format(name=name))
        assert result.rc != 0
        assert f"{name}==" in result.stderr
        assert "unsatisfiable" in result.stderr


def test_uv_installs_what_harms_nobody(host: Any, uv: str, wheels: str) -> None:
    result = host.run(f"{uv} {wheels} --dry-run harmless")
    assert result.rc == 0, result.stderr
