"""Declared = labelled = really there."""

from typing import Any

import pytest

from trainwright.build import build
from trainwright.image import probe
from trainwright.image.inputs import Inputs
from trainwright.image.probe import Findings
from trainwright.matrix.matrix import Intent, Recipe

PREFIX = "io.trainwright.version."


@pytest.fixture(scope="module")
def labelled(config: dict[str, Any]) -> dict[str, str]:
    return {name.removeprefix(PREFIX): version for name, version in config["Labels"].items() if name.startswith(PREFIX)}


def test_every_pin_is_labelled(labelled: dict[str, str], declared: Inputs) -> None:
    assert labelled == declared.pins


def test_licences_are_labelled(config: dict[str, Any], intent: Intent, declared: Inputs) -> None:
    """A choice of licences stands in brackets, or AND would bind it otherwise."""
    labelled = config["Labels"]["org.opencontainers.image.licenses"].split(" AND ")
    for pin in declared.pins:
        for licence in intent.components.components[pin].licence.split(" AND "):
            assert licence in labelled or f"({licence})" in labelled, pin


@pytest.fixture(scope="module")
def found(intent: Intent, declared: Inputs, image: str) -> Findings:
    """What the image answers: the same one, asked the same by the same script on the same host, is asked once."""
    return build.findings(declared, image)[0]


def test_labels_say_what_the_probe_finds(
    intent: Intent, declared: Inputs, labelled: dict[str, str], found: Findings
) -> None:
    assert probe.version_differences(Recipe(intent, declared.variant), labelled, found.versions) == []


@pytest.mark.component("nccl")
def test_one_nccl(declared: Inputs, found: Findings) -> None:
    """One file, one version, the pinned one; whoever loads the framework, and every nccl-tests, maps it."""
    assert found.libnccl.keys() == {path for paths in found.mapped.values() for path in paths}
    assert list(found.libnccl.values()) == [declared.pins["nccl"]]


def test_files_of_components_are_as_they_were_built(found: Findings) -> None:
    """Whatever has a list of files has it right."""
    assert list(probe.file_differences((), found)) == []
