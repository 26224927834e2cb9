"""The check before a job: silent on the image as it is, and red for each way to move it underneath."""

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest
from wheel import wheel

from trainwright.docker import engine
from trainwright.image.inputs import Inputs

CHECK = "trainwright-check"
DECLARED, RECORDED = "/opt/trainwright/declared.json", "/opt/trainwright/libraries.json"
MODE = "TRAINWRIGHT_STARTUP_CHECK"
SHIM, PRELOADED = "/tmp/shim.so", "/tmp/preloaded"
NUMPY = "/opt/venv/lib/python*/site-packages/numpy-*.dist-info"


# Each check imports the framework, and each container costs about as much: one container, which is checked as it is,
# then with all that can be broken at once, then after pip has moved a package; modes that import nothing come last.
pytestmark = [pytest.mark.xdist_group("startup"), pytest.mark.long(seconds=6)]
Said = tuple[int, str]


@pytest.fixture(scope="module")
def own(image: str) -> Iterator[Callable[..., Said]]:
    """A container that this module may break; `sh` in it gives exit code and output."""
    with engine.container(image, command=["sleep", "infinity"], init=True, network_mode="none") as running:

        def sh(script: str, **environment: str) -> Said:
            done = running.exec_run(["bash", "-c", script], environment=environment)
            return done.exit_code, done.output.decode(errors="replace")

        sh.container = running  # type: ignore[attr-defined]
        yield sh


@pytest.fixture(scope="module")
def untouched(own: Callable[..., Said]) -> Said:
    """What is said of the image as it is."""
    return own(CHECK)


@pytest.fixture(scope="module")
def copies(recorded: dict[str, Any]) -> dict[str, str]:
    """A library that processes find by name, to where a second copy of it will lie."""
    return {path: f"{PRELOADED}/{facts['names'][0]}" for path, facts in recorded.items() if facts["names"]}


@pytest.fixture(scope="module")
def symbols(declared: Inputs, says: dict[str, Any]) -> dict[str, str]:
    """Component to the function that a preloaded library can bring; none where there is nothing to compile it with."""
    known = {name: facts["symbol"] for name, facts in says["components"].items() if facts["symbol"]}
    return known if "compiler" in declared.pins else {}


@pytest.fixture(scope="module")
def broken(
    own: Callable[..., Said],
    untouched: Said,
    declared: Inputs,
    recorded: dict[str, Any],
    copies: dict[str, str],
    symbols: dict[str, str],
) -> Said:
    """What is said with all that these tests break, each on a way of its own."""
    source = " ".join(f"int {symbol}(void) {{ return 0; }}" for symbol in symbols.values())
    preloaded = [*([SHIM] if symbols else []), *copies.values()]
    breaking = [
        f"mkdir {PRELOADED}",
        *(f"cp {path} {copy}" for path, copy in copies.items()),
        *([f"echo '{source}' | gcc -w -shared -fPIC -x c -o {SHIM} -"] if symbols else []),
        *([f"rm -r {NUMPY}"] if "numpy" in declared.pins else []),
        *(f"printf x >> {path}" for path in recorded),
    ]
    plugin = "NCCL_NET_PLUGIN=none " if "aws-ofi-nccl" in declared.pins else ""
    return own(f"{' && '.join(breaking)} && {plugin}LD_PRELOAD={':'.join(preloaded)} {CHECK}")


@pytest.fixture(scope="module")
def warned(
    own: Callable[..., Said], broken: Said, pack: Callable[[Mapping[str, bytes]], bytes], declared: Inputs
) -> Said:
    """What is said after pip has moved a package, where that may only warn."""
    file, packed = wheel("numpy", "0.1", content="__version__ = '0.1'\n")
    own.container.put_archive("/", pack({f"/tmp/{file}": packed}))  # type: ignore[attr-defined]
    moving = f"PIP_CONFIG_FILE=/dev/null pip install --no-deps --no-index /tmp/{file}"
    return own(f"{moving} && {MODE}=warn {CHECK}")


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


def test_notices_are_those_of_the_lock(host: Any, declared: Inputs) -> None:
    assert host.file("/opt/trainwright/notices.txt").content_string == declared.text["requirements/notices.txt"]


def test_every_library_of_a_component_is_recorded(says: dict[str, Any], recorded: dict[str, Any]) -> None:
    """A glob of layers/*.toml that finds nothing watches nothing."""
    wanted = {name for name, facts in says["components"].items() if facts["libraries"]}
    assert {facts["component"] for facts in recorded.values()} == wanted


def test_the_image_is_what_it_declares(untouched: Said, declared: Inputs) -> None:
    code, said = untouched
    assert code == 0, said
    assert f"trainwright-check: {declared.variant.id} matches its declaration" in said


@pytest.mark.component("numpy")
def test_a_package_that_was_removed(broken: Said, says: dict[str, Any]) -> None:
    code, said = broken
    assert code == 5, said
    assert f"Python package numpy: declared {says['python']['numpy']}, found none" in said


def test_a_library_that_was_changed(broken: Said, recorded: dict[str, Any]) -> None:
    code, said = broken
    assert code == 5 or not recorded, said
    for path, facts in recorded.items():
        assert f"library of {facts['component']}: declared sha256 {facts['sha256'][:12]}, found sha256" in said, path


def test_a_second_copy_that_wins(broken: Said, recorded: dict[str, Any], copies: dict[str, str]) -> None:
    """By LD_PRELOAD: what a process maps already is found by its name."""
    code, said = broken
    assert code == 5 or not copies, said
    for path, copy in copies.items():
        assert f"library of {recorded[path]['component']} that the framework loads: declared " in said
        assert f", found {copy} (preloaded)" in said


@pytest.mark.component("compiler")
def test_a_preloaded_library_that_brings_their_functions(broken: Said, symbols: dict[str, str]) -> None:
    code, said = broken
    assert code == 5 or not symbols, said
    for name, symbol in symbols.items():
        assert f"{symbol} of {name}: declared its own library's, found {SHIM} (preloaded)" in said


@pytest.mark.component("aws-ofi-nccl")
def test_another_plugin(broken: Said) -> None:
    code, said = broken
    assert code == 5, said
    assert "NCCL_NET_PLUGIN for aws-ofi-nccl: declared unset" in said


@pytest.mark.component("pip")
@pytest.mark.component("numpy")
def test_a_package_that_was_moved(warned: Said) -> None:
    assert ", found 0.1 (/opt/venv/" in warned[1]


@pytest.mark.component("pip")
@pytest.mark.component("numpy")
def test_a_difference_may_only_warn(warned: Said) -> None:
    code, said = warned
    assert code == 0, said
    assert "WARNING" in said


@pytest.mark.parametrize(("mode", "ends", "told"), [("off", 0, "not run"), ("of", 2, "of")])
def test_modes_without_a_check(own: Callable[..., Said], broken: Said, mode: str, ends: int, told: str) -> None:
    code, said = own(CHECK, **{MODE: mode})
    assert code == ends, said
    assert told in said
