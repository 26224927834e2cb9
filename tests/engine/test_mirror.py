"""Mirrors that do not answer: nothing is locked or replaced as if it were gone. Needs the distribution's mirror."""

from pathlib import Path

import pytest
from tiny import plant, trainwright

pytestmark = pytest.mark.engine
NOBODY = "http://127.0.0.1:1/debian-security"


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    plant(tmp_path)
    return tmp_path


def test_a_dead_security_archive_is_no_lock_without_security_updates(tree: Path) -> None:
    done = trainwright(tree, "lock", TRAINWRIGHT_MIRRORS=f"debian-security={NOBODY}")
    assert done.returncode == 10, done.stderr
    assert "the package index cannot be had" in done.stderr
    assert not (tree / "dockerfiles/locks").exists()


def test_an_outage_is_no_drift(tree: Path, tmp_path: Path) -> None:
    locked = trainwright(tree, "lock")
    assert locked.returncode == 0, locked.stderr
    store = tmp_path / "store"
    dead = {"TRAINWRIGHT_MIRRORS": "debian=http://127.0.0.1:1/debian", "TRAINWRIGHT_STORE": str(store)}
    done = trainwright(tree, "fetch", "--framework", "tiny", **dead)
    assert done.returncode == 10, done.stderr
    assert "cannot be fetched" in done.stderr
    assert not (store / "drift").exists()
