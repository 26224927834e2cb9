"""The rendered text of one variant of each kind, as a person reviews it. After a wanted change:

TRAINWRIGHT_UPDATE_GOLDEN=1 .venv/bin/python -m pytest tests/golden

That every other one renders too, and obeys the rules, is tested in tests/unit/test_render.py.
"""

import os
from pathlib import Path

import pytest

from trainwright import inputs
from trainwright.matrix import load_intent

HERE = Path(__file__).parent
FILES = ("Dockerfile", "docker-bake.json")
KINDS = (
    "pytorch-2.13-cpu-py311-ec2",
    "pytorch-2.13-cpu-py311-sagemaker",  # source distributions, and no shell
    "pytorch-2.15-cu132-py313-ec2-single-node-devel",  # compilers, and nothing compiled
    "pytorch-2.15-cu132-py313-sagemaker-distro",  # compiled from git
    "pytorch-2.15-cu132-py313-ec2",  # the EFA installer
)


@pytest.mark.parametrize("identity", KINDS)
def test_golden(identity: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRAINWRIGHT_STORE", "/nowhere")  # no drift of this host's store
    intent = load_intent(HERE.parents[1])
    found = inputs.load(intent, next(variant for variant in intent.variants if variant.id == identity))
    for name in FILES:
        # The key follows from everything, a relock for instance: what it changes is shown by the locks already.
        text = found.text[name].replace(found.key, "<key>").replace(found.key[:12], "<short key>")
        path = HERE / identity / name
        if os.environ.get("TRAINWRIGHT_UPDATE_GOLDEN"):
            path.parent.mkdir(exist_ok=True)
            path.write_text(text)
        assert text == path.read_text(), "see the top of this file for how to accept a wanted change"


def test_nothing_is_left_of_variants_that_are_gone() -> None:
    kept = {path.name for path in HERE.iterdir() if path.is_dir() and path.name != "__pycache__"}
    assert kept == set(KINDS)
