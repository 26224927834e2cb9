"""The judgement over a finished image: equal means nothing to say, and every kind of difference is named."""

from typing import Any

import pytest

from trainwright import inputs, probe
from trainwright.errors import BuildError
from trainwright.inputs import Inputs
from trainwright.matrix import Intent
from trainwright.model import Lock, Package, PythonFile
from trainwright.probe import Findings


@pytest.fixture(scope="module")
def found(intent: Intent) -> Inputs:
    return inputs.load(intent, next(variant for variant in intent.variants if variant.default))


def truthful(intent: Intent, found: Inputs) -> dict[str, Any]:
    """What the probe prints of an image that is what its lock says."""
    return {
        "versions": dict(found.versions),
        "nccl": None,
        "libnccl": [],
        "python_packages": {
            entry.name: entry.version for entry in found.lock.python if entry.group in ("framework", "toolkit")
        },
        "packages": {name: package.version for name, package in found.distribution.packages().items()},
    }


def differences(intent: Intent, found: Inputs, printed: dict[str, Any]) -> list[str]:
    packages = found.distribution.packages()
    return probe.compare(intent, found.pins, found.lock, packages, Findings.model_validate(printed))


def test_equal(intent: Intent, found: Inputs) -> None:
    assert differences(intent, found, truthful(intent, found)) == []
    probe.refuse(found.variant, [])


@pytest.mark.parametrize(
    ("part", "name", "value", "sentence"),
    [
        ("versions", "torch", "2.12.0+cpu", "component torch: the lock says 2.13.0+cpu, the image holds 2.12.0+cpu"),
        ("versions", "openmpi", None, "component openmpi {was} is in the lock and not in the image"),
        ("python_packages", "numpy", "1.0", "Python package numpy: the lock says {was}, the image holds 1.0"),
        ("python_packages", "sympy", None, "Python package sympy {was} is in the lock and not in the image"),
        ("python_packages", "extra", "1", "Python package extra 1 is in the image and not in the lock"),
        ("packages", "libc6", "1", "distribution package libc6: the lock says {was}, the image holds 1"),
        ("packages", "libc6", None, "distribution package libc6 {was} is in the lock and not in the image"),
        ("packages", "vim", "1", "distribution package vim 1 is in the image and not in the lock"),
    ],
)
def test_one_difference(intent: Intent, found: Inputs, part: str, name: str, value: str | None, sentence: str) -> None:
    printed = truthful(intent, found)
    was = printed[part].pop(name, None)
    if value is not None:
        printed[part][name] = value
    assert differences(intent, found, printed) == [sentence.format(was=was)]


def test_two_copies_of_nccl(intent: Intent, found: Inputs) -> None:
    printed = {**truthful(intent, found), "libnccl": ["/usr/lib/libnccl.so.2", "/opt/libnccl.so.2"]}
    assert differences(intent, found, printed) == ["more than one libnccl: /usr/lib/libnccl.so.2, /opt/libnccl.so.2"]


def test_component_of_another_variant_is_no_component_of_this_one(intent: Intent) -> None:
    """The probe asks for everything it knows; what else is in the image, the package lists tell."""
    lock = Lock(intent="0" * 64, entries="0" * 64, python=[])
    other = Findings(versions={"torch": "1"}, nccl=None, libnccl=[], python_packages={}, packages={})
    assert probe.compare(intent, {}, lock, {}, other) == []


def test_spelling_of_a_python_name_is_no_difference(intent: Intent) -> None:
    entry = PythonFile(name="Typing_Extensions", version="1", file="a.whl", sha256="0" * 64, size=1, group="framework")
    held = Findings(versions={}, nccl=None, libnccl=[], python_packages={"typing-extensions": "1"}, packages={})
    packages: dict[str, Package] = {}
    assert probe.compare(intent, {}, Lock(intent="0" * 64, entries="0" * 64, python=[entry]), packages, held) == []


def test_refusal_names_the_first_and_counts_the_rest(found: Inputs) -> None:
    with pytest.raises(BuildError, match="is not what its lock says: one") as raised:
        probe.refuse(found.variant, ["one", "two", "three", "four", "five", "six", "seven"])
    assert raised.value.exit_code == 5
    assert raised.value.why == "one; two; three; four; five (and 2 more)"


@pytest.mark.parametrize(
    ("version", "upstream"),
    [("1:9.2p1-2+deb12u7", "9.2p1"), ("4.1.4-3+b1", "4.1.4"), ("3.11.2-6+deb12u6", "3.11.2"), ("1.17", "1.17")],
)
def test_upstream_version(version: str, upstream: str) -> None:
    assert probe.upstream_version(version) == upstream


def test_an_nccl_that_nobody_declared(intent: Intent, found: Inputs) -> None:
    printed = truthful(intent, found) | {"nccl": "2.27.3"}
    assert differences(intent, found, printed) == ["component nccl 2.27.3 is in the image and not in the lock"]
