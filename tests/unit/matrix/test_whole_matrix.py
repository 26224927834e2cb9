"""Test that every image of the matrix renders and is compatible. `trainwright lint` runs hadolint in `make test`."""

import re

import pytest

from trainwright.image import inputs
from trainwright.lock import facts
from trainwright.matrix.matrix import Intent, Recipe

LEAST = 40  # images


@pytest.fixture(scope="module")
def dockerfiles(intent: Intent) -> dict[str, str]:
    """Return the Dockerfile of every image; for a blocked image, only what the intent determines."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRAINWRIGHT_STORE", "/dev/null/store")
        return {variant.id: inputs.text_of(Recipe(intent, variant))["Dockerfile"] for variant in intent.variants}


def test_there_are_many_and_each_renders(intent: Intent, dockerfiles: dict[str, str]) -> None:
    assert len(dockerfiles) == len(intent.variants) >= LEAST
    for variant in intent.variants:
        text = dockerfiles[variant.id]
        assert re.search(r"^FROM ", text, re.MULTILINE), variant.id
        assert variant.id in text
        assert ("# Blocked, and not built: " in text) == bool(inputs.awaited(Recipe(intent, variant))), variant.id


def test_each_goes_together(intent: Intent) -> None:
    """With its lock where it has one, by its pins alone where it awaits something: admit() raises for a broken rule."""
    for variant in intent.variants:
        facts.admit(Recipe(intent, variant), *inputs.known(Recipe(intent, variant)))
