"""Test this host's download settings: a silent mirror does not count as missing data, and no setting enters an image.

Needs the distribution's mirror.
"""

import gzip
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from tiny import built_in_this_run, host_of_this_run, plant, store_of_this_run, trainwright

from trainwright.docker import engine
from trainwright.image import inputs
from trainwright.matrix.matrix import Recipe, load_intent

pytestmark = pytest.mark.engine
NOBODY = "http://127.0.0.1:1/debian-security"


@pytest.fixture(scope="module")
def built() -> Iterator[Path]:
    with store_of_this_run():
        yield built_in_this_run()


def test_a_dead_security_archive_is_no_lock_without_security_updates(tmp_path: Path) -> None:
    plant(tmp_path)
    done = trainwright(tmp_path, "lock", TRAINWRIGHT_MIRRORS=f"debian-security={NOBODY}")
    assert done.returncode == 10, done.stderr
    assert "the package index cannot be fetched" in done.stderr
    assert not (tmp_path / "dockerfiles/locks").exists()


def test_an_outage_is_no_drift(built: Path, tmp_path: Path) -> None:
    tree, store = tmp_path / "tree", tmp_path / "store"
    shutil.copytree(built, tree, ignore=shutil.ignore_patterns("out"))
    dead = {"TRAINWRIGHT_MIRRORS": "debian=http://127.0.0.1:1/debian", "TRAINWRIGHT_STORE": str(store)}
    done = trainwright(tree, "fetch", "--framework", "tiny", **dead)
    assert done.returncode == 10, done.stderr
    assert "cannot be fetched" in done.stderr
    assert not (store / "drift").exists()


def test_no_setting_of_this_host_gets_into_an_image(built: Path, tmp_path: Path) -> None:
    """A mirror's password and a corporate CA serve while sources are fetched: neither a layer nor a file has them."""
    host = host_of_this_run()
    assert not [secret for secret in host.secrets if secret in host.said]
    marks = [secret.encode() for secret in host.secrets]
    assert len(marks) == 2  # else the loop below shows nothing
    intent = load_intent(built)
    name = inputs.load(Recipe(intent, intent.variants[0])).name
    engine.save(name, tmp_path / "layout")
    folders = [built / "out", built / "dockerfiles", tmp_path / "layout"]
    for path in [path for folder in folders for path in folder.rglob("*") if path.is_file()]:
        content = path.read_bytes()
        content = gzip.decompress(content) if content.startswith(b"\x1f\x8b") else content
        assert not [mark for mark in marks if mark in content], path
