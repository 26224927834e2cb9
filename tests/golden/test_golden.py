"""Compare the text of every image with the stored one. After an intended change:

TRAINWRIGHT_UPDATE_GOLDEN=1 .venv/bin/python -m pytest tests/golden

The Dockerfile of one image of each kind is stored in full, for reviewers; matrix.txt has a line for every image, so
that a diff shows a change of any of them. tests/unit/image/test_render.py and tests/unit/matrix/test_whole_matrix.py
test that each obeys the rules.
"""

import hashlib
import os
import shutil
from pathlib import Path

import pytest

from trainwright.image import inputs
from trainwright.matrix.matrix import Intent, Recipe, load_intent
from trainwright.matrix.model import Variant

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
FILES = ("Dockerfile", "docker-bake.json")
UPDATING = bool(os.environ.get("TRAINWRIGHT_UPDATE_GOLDEN"))
ACCEPT = "accept a wanted change with: TRAINWRIGHT_UPDATE_GOLDEN=1 .venv/bin/python -m pytest tests/golden"


def kinds(intent: Intent) -> list[str]:
    """Return one image of each framework for CPUs and one for GPUs: of no flavour, for SageMaker, which holds most."""
    found: dict[tuple[str, str], Variant] = {}

    def rank(variant: Variant) -> tuple[bool, ...]:
        waits = bool(inputs.awaited(Recipe(intent, variant)))
        return variant.devel, bool(variant.flavour), waits, variant.target != "sagemaker"

    for variant in sorted(intent.variants, key=rank):
        found.setdefault((variant.framework, variant.accelerator.rstrip("0123456789")), variant)
    return [variant.id for variant in found.values()]


INTENT = load_intent(ROOT)
KINDS = kinds(INTENT)


@pytest.fixture(autouse=True)
def _no_drift_of_this_host(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRAINWRIGHT_STORE", "/dev/null/store")


@pytest.mark.parametrize("identity", KINDS)
def test_golden(identity: str) -> None:
    variant = next(variant for variant in INTENT.variants if variant.id == identity)
    text = inputs.text_of(Recipe(INTENT, variant))["Dockerfile"]
    if not inputs.awaited(Recipe(INTENT, variant)):
        # The key follows from everything, a relock for instance: what it changes is shown by the locks already.
        key = inputs.load(Recipe(INTENT, variant)).key
        text = text.replace(key, "<key>").replace(key[:12], "<short key>")
    path = HERE / identity / "Dockerfile"
    if UPDATING:
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    assert text == path.read_text(), ACCEPT


def test_nothing_is_left_of_images_that_are_gone() -> None:
    folders = {path.name: path for path in HERE.iterdir() if path.is_dir() and path.name != "__pycache__"}
    for gone in (folders.keys() - set(KINDS)) if UPDATING else ():
        shutil.rmtree(folders.pop(gone))
    assert folders.keys() == set(KINDS), ACCEPT


def test_every_image_has_its_line() -> None:
    """`id sha256(Dockerfile) sha256(docker-bake.json)`; a bake file holds the key, and so all that goes in."""

    def line(variant: Variant) -> str:
        texts = inputs.text_of(Recipe(INTENT, variant))
        sums = [hashlib.sha256(texts[name].encode()).hexdigest() if name in texts else "blocked" for name in FILES]
        return " ".join([variant.id, *sums])

    lines, path = [line(variant) for variant in INTENT.variants], HERE / "matrix.txt"
    if UPDATING:
        path.write_text("\n".join(lines) + "\n")
    before = path.read_text().splitlines()
    changed = sorted({text.split()[0] for text in {*lines} ^ {*before}})
    assert lines == before, f"these images have changed: {', '.join(changed) or 'the order'}; {ACCEPT}"
