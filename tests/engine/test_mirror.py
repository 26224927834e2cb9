"""Test this host's download settings: a silent mirror does not count as missing data, and no setting enters an image.

Needs the distribution's mirror.
"""

import gzip
import subprocess
from pathlib import Path
from uuid import uuid4

import pytest
from tiny import plant, trainwright

from trainwright.docker import engine
from trainwright.image import inputs
from trainwright.matrix.matrix import Recipe, load_intent

pytestmark = pytest.mark.engine
NOBODY = "http://127.0.0.1:1/debian-security"


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    plant(tmp_path)
    return tmp_path


def test_a_dead_security_archive_is_no_lock_without_security_updates(tree: Path) -> None:
    done = trainwright(tree, "lock", TRAINWRIGHT_MIRRORS=f"debian-security={NOBODY}")
    assert done.returncode == 10, done.stderr
    assert "the package index cannot be fetched" in done.stderr
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


def test_no_setting_of_this_host_gets_into_an_image(tree: Path, tmp_path: Path) -> None:
    """A mirror's password and a corporate CA serve while sources are fetched: neither a layer nor a file has them."""
    password = f"secret-{uuid4().hex}"
    certificate = subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", "/dev/null", "-subj", "/CN=corporate"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    marks = [password.encode(), certificate.splitlines()[5].encode()]
    settings = {
        "TRAINWRIGHT_MIRRORS": f"https://github.com=https://me:{password}@127.0.0.1:1/git",
        "TRAINWRIGHT_CA": certificate,
    }
    for words in (["lock"], ["build", "--framework", "tiny"]):
        done = trainwright(tree, *words, **settings)
        assert done.returncode == 0, done.stderr
        assert password not in done.stdout + done.stderr
    intent = load_intent(tree)
    name = inputs.load(Recipe(intent, intent.variants[0])).name
    engine.save(name, tmp_path / "layout")
    engine.client().images.remove(name, force=True)  # an image of this test alone
    written = [path for folder in ("out", "dockerfiles", "layout") for path in (tmp_path / folder).rglob("*")]
    for path in filter(Path.is_file, written):
        content = path.read_bytes()
        content = gzip.decompress(content) if content.startswith(b"\x1f\x8b") else content
        assert not [mark for mark in marks if mark in content], path
