"""Test that an image's notices name all that others made in it, with licence and source, from the locks alone."""

import re
from pathlib import Path

import pytest

from trainwright.image import inputs, notices
from trainwright.lock.packages import LICENCE
from trainwright.matrix.matrix import Intent, Recipe

GPU, DEVEL12 = "pytorch-2.15-cu132-py313-sagemaker", "pytorch-2.10-cu128-py311-ec2-devel"
SOURCE = re.compile(
    r"https://\S+ commit [0-9a-f]{40}|https://\S+ sha256:[0-9a-f]{64}|https://\S+|pkg:pypi/[a-z0-9-]+@[\w.!]+|\S+@sha256:\w+"
)


def rows(text: str) -> list[list[str]]:
    return [line.split("\t") for line in text.splitlines() if "\t" in line]


@pytest.mark.parametrize("identity", [GPU, DEVEL12, "horovod-0.28-cpu-py311-sagemaker", "base-1.0-cpu-py313-ec2"])
def test_everything_has_a_licence_and_a_source(intent: Intent, identity: str) -> None:
    found = inputs.load(intent.recipe(identity))
    told = {name: (licence, source) for name, licence, source in rows(found.text["requirements/notices.txt"])}
    python = {f"{entry.name} {entry.version}" for entry in found.recipe.installed(found.lock).values()}
    packages = {f"{package.name} {package.version}" for package in found.distribution.held.values()}
    compiled = {f"{source.name} {source.version}" for source in found.lock.sources}
    assert python | packages | compiled <= told.keys()
    for name, (licence, source) in told.items():
        assert licence, name
        assert SOURCE.fullmatch(source), (name, source)


def test_the_folder_of_a_package_that_the_gpl_covers(intent: Intent) -> None:
    found = inputs.load(intent.recipe(GPU))
    told = {
        name.split()[0]: (licence, source) for name, licence, source in rows(found.text["requirements/notices.txt"])
    }
    licence, source = told["git"]
    assert "GPL-2" in licence
    assert re.fullmatch(
        r"https://snapshot\.debian\.org/archive/debian(-security)?/\d{8}T\d{6}Z/pool/.*main/g/git/", source
    )
    # The folder is where the file itself is fetched from, if the mirror dropped it.
    assert found.distribution.held["git"].filename.rpartition("/")[0] + "/" in source


def test_the_parts_of_an_installer(intent: Intent) -> None:
    found = inputs.load(intent.recipe(GPU))
    text = found.text["requirements/notices.txt"]
    for part in (
        "rdma-core of efa-installer\tGPL-2.0-only OR Linux-OpenIB",
        "aws-ofi-nccl 1.",
        "openmpi 4.",
        "libfabric 2.",
    ):
        assert f"\n{part}" in text
    label = re.search(r'licenses="(.*)"', found.text["Dockerfile"])
    assert label
    assert "(GPL-2.0-only OR Linux-OpenIB)" in label[1].split(" AND ")


def test_a_compiler_from_an_image(intent: Intent) -> None:
    twin = inputs.load(intent.recipe(DEVEL12))
    assert "CUDA's compiler\tLicenseRef-NVIDIA-Proprietary\t" in twin.text["requirements/notices.txt"]
    plain = inputs.load(intent.recipe(DEVEL12.removesuffix("-devel")))
    assert "CUDA's compiler" not in plain.text["requirements/notices.txt"]


def test_every_image_gets_it_and_its_key_counts_it(intent: Intent, monkeypatch: pytest.MonkeyPatch) -> None:
    for recipe in inputs.held(intent):
        found = inputs.load(recipe)
        assert "/requirements/notices.txt" in found.text["Dockerfile"], recipe.id
    before = inputs.load(intent.recipe(GPU)).key
    monkeypatch.setattr(notices, "text", lambda *_: "other\n")
    assert inputs.load(intent.recipe(GPU)).key != before


def test_drift_and_packages_of_a_base_image(intent: Intent) -> None:
    recipe = intent.recipe(GPU)
    found = inputs.load(recipe)
    newer = {**found.distribution.effective}
    newer["git"] = {field: value for field, value in newer["git"].items() if field != LICENCE} | {"Version": "9"}
    newer["apt"] = {**newer["apt"], "SHA256": ""}
    drifted = found.distribution.model_copy(update={"effective": newer})
    assert (drifted.held["git"].version, drifted.as_locked) == ("9", found.distribution.held)
    told = {row[0]: row[1:] for row in rows(notices.text(recipe, found.lock, drifted))}
    assert "GPL-2" in told["git 9"][0]  # as the locked one says
    image = {"provider": "image", "reference": "ubuntu@sha256:1"}
    bases = {**intent.components.bases, recipe.variant.base: recipe.base.model_copy(update={**image, "snapshots": {}})}
    other = intent.model_copy(update={"components": intent.components.model_copy(update={"bases": bases})})
    text = notices.text(Recipe(other, recipe.variant), found.lock, drifted)
    assert "\nThe image starts from ubuntu@sha256:1, whose own notices" in text
    assert "of the base image ubuntu@sha256:1" in text
    assert re.search(r"\tdebian(-security)?: pool/.*main/g/git/\n", text)


def test_nothing_of_this_host(intent: Intent, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one = inputs.load(intent.recipe(GPU)).text["requirements/notices.txt"]
    monkeypatch.setenv("TRAINWRIGHT_STORE", str(tmp_path / "other"))
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    assert inputs.load(intent.recipe(GPU)).text["requirements/notices.txt"] == one
