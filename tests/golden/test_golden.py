"""The rendered text of every variant, as a person reviews it. After a wanted change:

TRAINWRIGHT_UPDATE_GOLDEN=1 .venv/bin/python -m pytest tests/golden
"""

import os
from pathlib import Path

import pytest

from trainwright import inputs
from trainwright.matrix import load_intent
from trainwright.model import Variant

HERE = Path(__file__).parent
INTENT = load_intent(HERE.parents[1])
FILES = ("Dockerfile", "docker-bake.json")


@pytest.mark.parametrize("variant", INTENT.variants, ids=lambda variant: variant.id)
def test_golden(variant: Variant, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRAINWRIGHT_STORE", "/nowhere")  # no drift of this host's store
    found = inputs.load(INTENT, variant)
    for name in FILES:
        # The key follows from everything, a relock for instance: what it changes is shown by the locks already.
        text = found.text[name].replace(found.key, "<key>").replace(found.key[:12], "<short key>")
        path = HERE / variant.id / name
        if os.environ.get("TRAINWRIGHT_UPDATE_GOLDEN"):
            path.parent.mkdir(exist_ok=True)
            path.write_text(text)
        assert text == path.read_text(), "see the top of this file for how to accept a wanted change"


def test_nothing_is_left_of_variants_that_are_gone() -> None:
    kept = {path.name for path in HERE.iterdir() if path.is_dir() and path.name != "__pycache__"}
    assert kept == {variant.id for variant in INTENT.variants}
