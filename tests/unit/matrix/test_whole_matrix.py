"""Test that every image of the matrix renders and is compatible. `trainwright lint` runs hadolint in `make test`."""

import re

import pytest

from trainwright.gate.floors import load_floors
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


def test_images_with_the_plugin_name_each_instance_type_with_a_floor(intent: Intent) -> None:
    """No row, no proof: a gate is recorded for an image that names the instance type."""
    efa = set(intent.recipe("pytorch-2.15-cu132-py313-sagemaker").variant.instances)
    wanted = {name for floor in load_floors(intent.root).floors for name in floor.instances}
    assert {name for name in wanted if int(intent.instances[name].sm) >= 80} == efa
    for recipe in intent.recipes:
        if "nccl-tests" in recipe.pins and recipe.variant.accelerator < "cu130":
            assert "103" not in recipe.capabilities, f"{recipe.id}: CUDA 12.8 compiles for no B300"


def test_what_relies_on_something_undocumented_says_so(intent: Intent) -> None:
    """The EFA installer's plugin on Debian 12, and on Debian for ARM; a libcuda that was never had."""
    for recipe in intent.recipes:
        words = []
        if "aws-ofi-nccl" in recipe.pins and recipe.variant.base in ("debian-12-efa", "debian-13-arm64-efa"):
            words.append("aws-ofi-nccl")
        if "cuda-compat" in recipe.pins:
            words.append("awaits NVIDIA's archive of cuda-compat")
        said = facts.undocumented(recipe)
        assert len(said) == len(words), recipe.id
        assert all(word in text for word, text in zip(words, said, strict=True)), recipe.id
