"""Define a framework small enough to be built many times in a test run: a base with Python, and pip on top of it.

Each checkout makes a different image, by a label, so that a test run never reuses an image of another run.
"""

import atexit
import fcntl
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import IO, NamedTuple
from uuid import uuid4

import pytest
from filelock import FileLock

ROOT = Path(__file__).parents[1]
ID = "tiny-1.0-cpu-py311-ec2"

MATRIX = """\
[common.pins]
python = "distro"
pip = "{pip}"

[targets.ec2.pins]

[frameworks.tiny]
default = "tiny-1.0-cpu-py311-ec2"

[[frameworks.tiny.rows]]
release = "1.0"
accelerators = ["cpu"]
pythons = ["3.11"]
targets = ["ec2"]
bases = ["debian-12"]
pins = {{}}
"""

TEMPLATE = """\
{% extends "frameworks/image.j2" %}
{% block description %}Python and pip{% endblock %}
{% block version %}1.0{% endblock %}
"""
# One process runs the image tests of a tiny image: there is one, and two further processes would only start and end.
CONFTEST = """\
def pytest_addoption(parser):
    for name in ("--image", "--variant", "--kept"): parser.addoption(name)
def pytest_xdist_auto_num_workers(): return 0
"""
IMAGE = "dockerfiles/frameworks/image.j2"  # where a test puts one more step, late in the image
LAST = 'CMD ["bash"]'
COMPONENTS = ("python", "pip")
TEMPLATES = ("base", "clamp", "python", "pip")


def plant(tree: Path) -> None:
    """Make a checkout whose only framework is `tiny`, with the project's own layers, scripts and settings."""
    import tomlkit

    shutil.copytree(ROOT / "dockerfiles", tree / "dockerfiles", ignore=shutil.ignore_patterns("locks", "layers"))
    shutil.copytree(ROOT / "scripts", tree / "scripts")
    (tree / "dockerfiles/layers").mkdir()
    for name in [*(f"{name}.toml" for name in COMPONENTS), *(f"{name}.j2" for name in TEMPLATES)]:
        shutil.copy(ROOT / "dockerfiles/layers" / name, tree / "dockerfiles/layers")
    bases = tomlkit.parse((ROOT / "dockerfiles/bases.toml").read_text())
    for name in set(bases["bases"]) - {"debian-12"}:
        del bases["bases"][name]
    bases["bases"]["debian-12"]["packages"] = ["apt", "ca-certificates", "tzdata"]
    (tree / "dockerfiles/bases.toml").write_text(tomlkit.dumps(bases))
    matrix = tomlkit.parse((ROOT / "dockerfiles/matrix.toml").read_text())
    (tree / "dockerfiles/matrix.toml").write_text(MATRIX.format(pip=matrix["common"]["pins"]["pip"]))
    publish = tomlkit.parse((ROOT / "dockerfiles/publish.toml").read_text())
    publish["signature"]["required"] = "never"  # tests of signing make a key of their own
    (tree / "dockerfiles/publish.toml").write_text(tomlkit.dumps(publish))
    # What rules are about is no component here: none applies.
    (tree / "dockerfiles/compat.toml").write_text("rules = []\n")
    (tree / "dockerfiles/frameworks/tiny.j2").write_text(TEMPLATE)
    # There before the image is proved: the digest of what proves it may hold this file.
    (tree / "tests/image").mkdir(parents=True)
    (tree / "tests/image/conftest.py").write_text(CONFTEST)
    add(tree, f'LABEL io.trainwright.test="{uuid4().hex}"')


def add(tree: Path, step: str) -> None:
    """Add one step late in the image."""
    text = (tree / IMAGE).read_text()
    assert text.count(LAST) == 1
    (tree / IMAGE).write_text(text.replace(LAST, f"{step}\n{LAST}"))


def trainwright(tree: Path, *words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run the real command line in a separate process."""
    return subprocess.run(
        [Path(sys.executable).with_name("trainwright"), *words],
        cwd=tree,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=600,
    )


@contextmanager
def store_of_this_run() -> Iterator[Path]:
    """Use a store for this test run alone, which its modules and its workers share."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRAINWRIGHT_STORE", str(_store()))
        yield _store()


@cache
def _store() -> Path:
    run = os.environ.get("PYTEST_XDIST_TESTRUNUID") or uuid4().hex
    place = Path(tempfile.gettempdir()) / f"trainwright-store-{run}"
    place.mkdir(mode=0o700, exist_ok=True)
    users = place.with_suffix(".users").open("w")
    fcntl.flock(users, fcntl.LOCK_SH)
    atexit.register(_leave, place, users)
    return place


def _leave(place: Path, users: IO[str]) -> None:
    """Remove the store and its images, unless another worker of this run still uses them."""
    try:
        fcntl.flock(users, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return
    with suppress(OSError):
        _forget(_label(place / "tiny"))
    shutil.rmtree(place, ignore_errors=True)
    Path(users.name).unlink(missing_ok=True)


@cache
def built_in_this_run() -> Path:
    """Return a checkout that is locked and built once in this run. Tests must change only copies of it.

    The same holds for its image in the engine: the first worker that needs it builds it, the others wait. It is made
    with settings of a host that must not get into an image: see host_of_this_run().
    """
    tree, done = _store() / "tiny", _store() / "tiny.done"
    with FileLock(_store() / "tiny.lock"):
        if not done.exists():
            shutil.rmtree(tree, ignore_errors=True)  # another worker failed
            plant(tree)
            secrets, settings = _secrets()
            said = ""
            for words in (["lock"], ["build", "--framework", "tiny"]):
                ended = trainwright(tree, *words, **settings)
                assert ended.returncode == 0, ended.stderr
                said += ended.stdout + ended.stderr
            done.write_text(json.dumps(Built(said, secrets)._asdict()))
    return tree


class Built(NamedTuple):
    """What the commands printed that locked and built the checkout of this run, and the secrets in their settings."""

    said: str
    secrets: list[str]  # of its settings: nothing may hold one


def host_of_this_run() -> Built:
    built_in_this_run()
    return Built(**json.loads((_store() / "tiny.done").read_text()))


def _secrets() -> tuple[list[str], dict[str, str]]:
    """Return the secrets, and this host's settings with them: a mirror with a password, and a corporate CA."""
    from trainwright.core import certificates, mirrors

    password = f"secret-{uuid4().hex}"
    own = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", "/dev/null", "-subj", "/CN=corporate"]
    certificate = subprocess.run(own, capture_output=True, text=True, check=True).stdout
    addresses = mirrors.table() | {"https://github.com": f"https://me:{password}@127.0.0.1:1/git"}
    trusted = certificates.own(given) if (given := os.environ.get(certificates.SETTING, "").strip()) else []
    settings = {
        mirrors.SETTING: " ".join(f"{key}={address}" for key, address in addresses.items()),
        certificates.SETTING: "\n".join([*trusted, certificate]),
    }
    return [password, certificate.splitlines()[5]], settings


def _label(tree: Path) -> str:
    """Return the label of a checkout's images, which its copies share. Raises OSError if there is no checkout."""
    found = re.search(r'(io\.trainwright\.test)="(\w+)"', (tree / IMAGE).read_text())
    assert found
    return f"label={found[1]}={found[2]}"


def _forget(label: str) -> None:
    """Remove this run's images from the engine, also those of copies."""
    own = ["docker", "images", "--quiet", "--filter", label]
    names = set(subprocess.run(own, capture_output=True, text=True, check=True).stdout.split())
    # Left to itself: xdist kills a worker that takes more than ten seconds to end, and a removal may take longer.
    command, nobody = ["docker", "rmi", "--force", *names], subprocess.DEVNULL
    subprocess.Popen(command, stdout=nobody, stderr=nobody, start_new_session=True)
