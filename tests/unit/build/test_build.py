"""Test the contents of out/<id>/: the right sources, with the same modes for every user and umask."""

import os
from hashlib import sha256
from pathlib import Path
from types import SimpleNamespace

import pytest

from trainwright.build import build, state, syft
from trainwright.core import store
from trainwright.core.errors import BuildError
from trainwright.docker import engine
from trainwright.image import inputs, probe
from trainwright.image.inputs import Inputs
from trainwright.matrix.matrix import Intent, Recipe, load_intent
from trainwright.matrix.records import Image
from trainwright.registry import client

BASE = b"the start of a base"


@pytest.fixture
def found(tree: Path, monkeypatch: pytest.MonkeyPatch) -> Inputs:
    """Return the inputs of the default image, without its wheels and packages."""
    with store.scratch() as folder:
        (folder / "first.tar").write_bytes(BASE)
        digest = sha256(BASE).hexdigest()
        store.add(folder / "first.tar", digest)
    monkeypatch.setattr(build, "first_tar", lambda *_: digest)
    monkeypatch.setattr(build, "lay_out_packages", lambda _base, _state, folder: folder.mkdir())
    intent = load_intent(tree)
    real = inputs.load(Recipe(intent, next(variant for variant in intent.variants if variant.default)))
    return real.model_copy(update={"wheels": {folder: [] for folder in real.wheels}})


EXECUTABLE = ("train", "with-cuda", "trainwright-check", "trainwright-launch", "python3")


def test_what_is_copied_into_an_image_does_not_depend_on_the_umask(
    found: Inputs, intent: Intent, tmp_path: Path
) -> None:
    before = os.umask(0o077)
    try:
        build.lay_out(found, tmp_path)
    finally:
        os.umask(before)
    for part in ("rootfs", "requirements"):
        for path in [tmp_path / part, *(tmp_path / part).rglob("*")]:
            executable = path.is_dir() or path.name in EXECUTABLE
            assert path.stat().st_mode & 0o777 == (0o755 if executable else 0o644), path


def test_what_is_half_laid_out_is_laid_out_again(
    found: Inputs, intent: Intent, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    build.lay_out(found, tmp_path)
    assert build.is_laid_out(found, tmp_path)
    (tmp_path / "image.json").write_text("{}")

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(build, "write_text", interrupted)
    with pytest.raises(KeyboardInterrupt):
        build.lay_out(found, tmp_path)
    assert not build.is_laid_out(found, tmp_path)
    assert not (tmp_path / "image.json").exists()  # it told of what is there no more


def test_another_key_is_not_laid_out(found: Inputs, intent: Intent, tmp_path: Path) -> None:
    build.lay_out(found, tmp_path)
    assert not build.is_laid_out(found.model_copy(update={"key": "0" * 64}), tmp_path)


def test_a_base_that_was_changed_in_the_store_is_refused(found: Inputs, intent: Intent, tmp_path: Path) -> None:
    held = store.path_of(sha256(BASE).hexdigest())
    held.chmod(0o644)
    held.write_bytes(b"another base")
    with pytest.raises(BuildError, match="has changed inside the store"):
        build.lay_out(found, tmp_path)


@pytest.mark.parametrize("differences", [[], ["numpy: the lock says 1, the image 2"]])
def test_a_push_is_not_forgotten_by_a_later_probe(
    found: Inputs, intent: Intent, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, differences: list[str]
) -> None:
    """As `build --with` probes the image that it stands on, where this checkout has not."""
    digest = f"sha256:{'d' * 64}"
    pushed = {"digest": digest, "uri": f"registry/x@{digest}", "uris": [f"registry/x@{digest}"], "tags": [found.tag]}
    state.write_image(tmp_path, Image(id=found.variant.id, key=found.key, **pushed))
    said = SimpleNamespace(versions={}, packages={}, python_packages={}, files={})
    monkeypatch.setattr(build, "findings", lambda *_: (said, ""))
    monkeypatch.setattr(probe, "compare", lambda *_: differences)
    monkeypatch.setattr(client, "manifest_of", lambda _: (digest, {"config": {"size": 1}, "layers": []}))
    for module, name in ((engine, "save"), (syft, "sbom")):
        monkeypatch.setattr(module, name, lambda *words: Path(words[1]).write_text("{}"))
    monkeypatch.setattr(engine, "image_id", lambda _: digest)
    try:
        build.prove(found, tmp_path)
    except BuildError:
        assert differences
    image = state.read_image(tmp_path)
    assert image
    assert {name: getattr(image, name) for name in pushed} == pushed
    assert (image.proof is None) == bool(differences)
