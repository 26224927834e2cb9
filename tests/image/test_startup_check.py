"""The check before a job: silent on the image as it is, and red for each way to move it underneath."""

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest
from wheel import wheel

from trainwright import engine
from trainwright.inputs import Inputs

CHECK = "trainwright-check"
DECLARED, RECORDED = "/opt/trainwright/declared.json", "/opt/trainwright/libraries.json"
SHIM, PRELOADED = "/tmp/shim.so", "/tmp/preloaded"


@pytest.fixture
def own(image: str) -> Iterator[Callable[..., tuple[int, str]]]:
    """A container that one test may break; `sh` in it gives exit code and output."""
    with engine.container(image, command=["sleep", "infinity"], init=True, network_mode="none") as running:

        def sh(script: str, **environment: str) -> tuple[int, str]:
            done = running.exec_run(["bash", "-c", script], environment=environment)
            return done.exit_code, done.output.decode(errors="replace")

        sh.container = running  # type: ignore[attr-defined]
        yield sh


@pytest.fixture(scope="module")
def says(host: Any) -> dict[str, Any]:
    content: dict[str, Any] = json.loads(host.file(DECLARED).content_string)
    return content


@pytest.fixture(scope="module")
def recorded(host: Any) -> dict[str, Any]:
    content: dict[str, Any] = json.loads(host.file(RECORDED).content_string)
    return content


def test_declaration_is_that_of_the_lock(says: dict[str, Any], declared: Inputs) -> None:
    assert says == json.loads(declared.text["requirements/declared.json"])


def test_every_library_of_a_component_is_recorded(says: dict[str, Any], recorded: dict[str, Any]) -> None:
    """A glob of layers/*.toml that finds nothing watches nothing."""
    wanted = {name for name, facts in says["components"].items() if facts["libraries"]}
    assert {facts["component"] for facts in recorded.values()} == wanted


def test_the_image_is_what_it_declares(own: Callable[..., tuple[int, str]], declared: Inputs) -> None:
    code, said = own(CHECK)
    assert code == 0, said
    assert f"trainwright-check: {declared.variant.id} is what it declares" in said


@pytest.mark.component("pip")
@pytest.mark.component("numpy")
def test_a_package_that_was_moved(
    own: Callable[..., tuple[int, str]], pack: Callable[[Mapping[str, bytes]], bytes]
) -> None:
    file, packed = wheel("numpy", "0.1", content="__version__ = '0.1'\n")
    own.container.put_archive("/", pack({f"/tmp/{file}": packed}))  # type: ignore[attr-defined]
    code, said = own(f"PIP_CONFIG_FILE=/dev/null pip install --no-deps --no-index /tmp/{file} && {CHECK}")
    assert code == 5, said
    assert ", found 0.1 (/opt/venv/" in said


@pytest.mark.component("numpy")
def test_a_package_that_was_removed(own: Callable[..., tuple[int, str]], says: dict[str, Any]) -> None:
    code, said = own(f"rm -r /opt/venv/lib/python*/site-packages/numpy-*.dist-info && {CHECK}")
    assert code == 5, said
    assert f"Python package numpy: declared {says['python']['numpy']}, found none" in said


def test_a_library_that_was_changed(own: Callable[..., tuple[int, str]], recorded: dict[str, Any]) -> None:
    for path in recorded:
        own(f"printf x >> {path}")
    code, said = own(CHECK)
    assert code == (5 if recorded else 0), said
    for path, facts in recorded.items():
        assert f"library of {facts['component']}: declared sha256 {facts['sha256'][:12]}, found sha256" in said, path


def test_a_second_copy_that_wins(own: Callable[..., tuple[int, str]], recorded: dict[str, Any]) -> None:
    """By LD_PRELOAD: what a process maps already is found by its name."""
    named = {path: facts for path, facts in recorded.items() if facts["names"]}
    copies = [f"{PRELOADED}/{facts['names'][0]}" for facts in named.values()]
    copying = [f"cp {path} {copy}" for path, copy in zip(named, copies, strict=True)]
    code, said = own(" && ".join([f"mkdir {PRELOADED}", *copying, f"LD_PRELOAD={':'.join(copies)} {CHECK}"]))
    assert code == (5 if named else 0), said
    for copy, facts in zip(copies, named.values(), strict=True):
        assert f"library of {facts['component']} in a process with the framework: declared " in said
        assert copy in said


@pytest.mark.component("compiler")
def test_a_preloaded_library_that_brings_their_functions(
    own: Callable[..., tuple[int, str]], says: dict[str, Any]
) -> None:
    symbols = {name: facts["symbol"] for name, facts in says["components"].items() if facts["symbol"]}
    source = " ".join(f"int {symbol}(void) {{ return 0; }}" for symbol in symbols.values())
    compiling = f"echo '{source}' | gcc -w -shared -fPIC -x c -o {SHIM} -"
    code, said = own(f"{compiling} && LD_PRELOAD={SHIM} {CHECK}")
    assert code == (5 if symbols else 0), said
    for name, symbol in symbols.items():
        assert f"{symbol} of {name}: declared that of its own library, found {SHIM} (preloaded)" in said


@pytest.mark.component("aws-ofi-nccl")
def test_another_plugin(own: Callable[..., tuple[int, str]]) -> None:
    code, said = own(f"NCCL_NET_PLUGIN=none {CHECK}")
    assert code == 5, said
    assert "NCCL_NET_PLUGIN for aws-ofi-nccl: declared unset" in said


@pytest.mark.component("numpy")
@pytest.mark.parametrize(("mode", "ends", "told"), [("warn", 0, "WARNING"), ("off", 0, "not run"), ("of", 2, "of")])
def test_modes(own: Callable[..., tuple[int, str]], mode: str, ends: int, told: str) -> None:
    breaking = "rm -r /opt/venv/lib/python*/site-packages/numpy-*.dist-info"
    code, said = own(f"{breaking} && {CHECK}", TRAINWRIGHT_STARTUP_CHECK=mode)
    assert code == ends, said
    assert told in said
