"""Test a team's requirements on top of an image with real tools: lock, compile once, build, prove, test, push."""

import hashlib
import json
import shutil
import subprocess
import tarfile
from collections.abc import Iterator
from pathlib import Path
from zipfile import ZipFile

import pytest
from sdists import sdist
from tiny import ID, built_in_this_run, store_of_this_run, trainwright

pytestmark = [pytest.mark.engine, pytest.mark.registry, pytest.mark.slow]
CHILD = f"{ID}-with-team"

# Compiled against what the image holds, as an extension of torch is: it asks that very pip, and an environment.
OPS = """\
import os, pip, setuptools
with open("ops.py", "w") as file:
    file.write(f"against, fast = {pip.__version__!r}, {os.environ['OPS_FAST']!r}\\n")
setuptools.setup(name="trainwright-ops", version="1.0", py_modules=["ops"])
"""
PURE = 'import setuptools\nsetuptools.setup(name="trainwright-pure", version="1.0", py_modules=["pure"])\n'
TESTS = "def test_it(declared): assert declared.variant.id.endswith('-with-team')\n"


@pytest.fixture(scope="module")
def store() -> Iterator[Path]:
    with store_of_this_run() as place:
        yield place


class Team:
    """A checkout, a requirements file, and a folder of source distributions, which only this host's pip knows."""

    def __init__(self, tree: Path, folder: Path) -> None:
        self.tree, self.folder, self.file = tree, folder, folder / "requirements.txt"
        sdist(folder, "trainwright_ops", "1.0", {"setup.py": OPS})
        sdist(folder, "trainwright_pure", "1.0", {"setup.py": PURE, "pure.py": "answer = 42\n"})
        self.file.write_text("trainwright-pure\neinops\ntrainwright-ops  # trainwright: compile OPS_FAST=yes\n")

    @property
    def out(self) -> Path:
        return self.tree / "out" / CHILD

    def run(self, *words: str, **environment: str) -> subprocess.CompletedProcess[str]:
        own = (ID, "--with", str(self.file), "--name", "team")
        return trainwright(self.tree, *words, *own, PIP_FIND_LINKS=str(self.folder), **environment)

    def row(self, *words: str, **environment: str) -> dict[str, str]:
        done = self.run(*words, "--json", **environment)
        assert done.returncode == 0, done.stderr
        [row] = json.loads(done.stdout)
        return dict(row)


@pytest.fixture(scope="module")
def team(store: Path, tmp_path_factory: pytest.TempPathFactory) -> Team:
    folder = tmp_path_factory.mktemp("team")
    shutil.copytree(built_in_this_run(), folder / "tree", ignore=shutil.ignore_patterns("out"))
    made = Team(folder / "tree", folder)
    locked = made.run("lock")
    assert locked.returncode == 0, locked.stderr
    done = made.run("build")
    assert done.returncode == 0, done.stderr
    return made  # what it builds has the label of what it stands on, and goes with it


def in_image(team: Team, code: str) -> str:
    image = json.loads((team.out / "image.json").read_text())
    command = ["docker", "run", "--rm", "--network=none", image["proof"]["image"], "python", "-c", code]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def test_the_image_holds_what_was_added_and_what_was_below(team: Team) -> None:
    image = json.loads((team.out / "image.json").read_text())
    assert image["proof"]["probe"]["state"] == "passed"
    said = in_image(team, "import einops, ops, pip, pure; print(ops.against == pip.__version__, ops.fast, pure.answer)")
    assert said == "True yes 42"
    held = in_image(team, "print(open('/opt/trainwright/constraints.txt').read())").splitlines()
    assert {"trainwright-ops==1.0", "trainwright-pure==1.0"} <= set(held)
    assert any(line.startswith("pip==") for line in held)
    [wheel] = (team.out / "wheels/added").glob("trainwright_ops-*.whl")
    assert (team.out / "requirements/added.txt").read_text().count("--hash=sha256:") == 2  # pure is a source
    with ZipFile(wheel) as archive:
        assert "ops.py" in archive.namelist()


def test_the_second_time_nothing_is_done_and_no_index_is_asked(team: Team) -> None:
    nobody = {"PIP_INDEX_URL": "http://127.0.0.1:1/simple", "PIP_NO_INDEX": "0"}
    assert team.row("lock", **nobody)["state"] == "current"
    assert team.row("build", **nobody)["action"] == "reuse"


def test_what_was_compiled_is_not_compiled_again(team: Team) -> None:
    """Another image on the same one, with the same extension: its wheel comes out of the store."""
    other = team.file.with_name("other.txt")
    other.write_text("trainwright-ops  # trainwright: compile OPS_FAST=yes\n")
    words = (ID, "--with", str(other), "--name", "team")
    for command in ("lock", "build"):
        done = trainwright(team.tree, command, *words, PIP_FIND_LINKS=str(team.folder))
        assert done.returncode == 0, done.stderr
    assert "compiling" not in done.stderr
    assert "probing" in done.stderr
    assert team.row("build")["action"] == "reuse"  # the first one, in the same folder


def test_it_is_tested_and_pushed_like_any_other(team: Team, registry: str) -> None:
    folder = team.tree / "tests/image"
    (folder / "test_stub.py").write_text(TESTS)
    (folder / "conftest.py").write_text(
        "import pytest\nfrom pathlib import Path\n"
        "from trainwright.image import child\n"
        "from trainwright.lock import additions\nfrom trainwright.matrix import matrix\n"
        "def pytest_addoption(parser):\n"
        "    for name in ('--image', '--variant', '--with', '--name', '--kept'): parser.addoption(name)\n"
        "@pytest.fixture\ndef declared(pytestconfig):\n"
        "    intent, said = matrix.load_intent(Path.cwd()), pytestconfig.getoption\n"
        "    below = matrix.select(intent, None, said('--variant'))[0]\n"
        "    return child.load(additions.on_top(below, said('--with'), said('--name')))\n"
    )
    assert team.row("push", REGISTRY=registry)["action"] == "pushed"
    image = json.loads((team.out / "image.json").read_text())
    assert image["proof"]["tests"]["state"] == "passed"
    assert image["tags"][0].startswith(f"{CHILD}-")
    assert team.row("push", REGISTRY=registry)["action"] == "skip"


def test_a_folder_builds_without_us(team: Team) -> None:
    command = ["docker", "buildx", "bake"]
    for folder in (team.out, team.out / "compile/trainwright-ops"):
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stderr


def test_an_addition_that_changes_the_image_below_fails_by_name(team: Team, tmp_path: Path) -> None:
    """A package that overwrites another one's record, as nothing in its metadata says."""
    tree = tmp_path / "tree"
    shutil.copytree(team.tree, tree, ignore=shutil.ignore_patterns("out", "tests"))
    template = tree / "dockerfiles/with/image.j2"
    rewritten = (
        "RUN sed -i 's/^Version: .*/Version: 1.0/' /opt/venv/lib/python3*/site-packages/pip-*.dist-info/METADATA"
    )
    template.write_text(template.read_text().replace("FROM parent\n", f"FROM parent\n{rewritten}\n"))
    own = (ID, "--with", str(team.file), "--name", "team")
    done = trainwright(tree, "build", *own, PIP_FIND_LINKS=str(team.folder))
    assert done.returncode == 5
    assert "Python package pip: the lock says" in done.stderr


def test_a_compilation_that_gives_something_else_is_refused(team: Team, tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    tree = tmp_path / "tree"
    shutil.copytree(team.tree, tree, ignore=shutil.ignore_patterns("out", "tests"))
    sdist(folder, "trainwright_ops", "1.0", {"setup.py": OPS.replace('version="1.0"', 'version="1.1"')})
    file = folder / "requirements.txt"
    file.write_text("trainwright-ops  # trainwright: compile OPS_FAST=yes\n")
    own = (ID, "--with", str(file), "--name", "team")
    assert trainwright(tree, "lock", *own, PIP_FIND_LINKS=str(folder)).returncode == 0
    done = trainwright(tree, "build", *own, PIP_FIND_LINKS=str(folder))
    assert done.returncode == 5
    assert "declares version 1.0, but the wheel declares version 1.1" in done.stderr  # uv sees it first


def test_a_source_that_needs_the_image_and_does_not_say_so(team: Team, tmp_path: Path) -> None:
    """Without the word `compile` it is built alone, and cannot find what it asks."""
    file = tmp_path / "requirements.txt"
    file.write_text("trainwright-ops\n")
    own = (ID, "--with", str(file), "--name", "team")
    tree = tmp_path / "tree"
    shutil.copytree(team.tree, tree, ignore=shutil.ignore_patterns("out", "tests"))
    assert trainwright(tree, "lock", *own, PIP_FIND_LINKS=str(team.folder)).returncode == 0
    done = trainwright(tree, "build", *own, PIP_FIND_LINKS=str(team.folder))
    assert done.returncode == 5
    assert "ModuleNotFoundError: No module named 'pip'" in done.stderr


def test_the_source_that_was_compiled_is_the_one_that_is_named(team: Team) -> None:
    image = json.loads((team.out / "image.json").read_text())
    command = ["docker", "image", "inspect", image["proof"]["image"], "--format", "{{json .Config.Labels}}"]
    labels = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    assert labels["io.trainwright.id"] == CHILD
    assert labels["io.trainwright.on"] == ID
    file, _, sha256 = labels["io.trainwright.compiled.trainwright-ops"].partition(" sha256:")
    with tarfile.open(team.folder / file) as archive:
        assert "trainwright_ops-1.0/setup.py" in archive.getnames()
    laid = team.out / "compile/trainwright-ops/wheels/sdist" / file
    assert hashlib.sha256(laid.read_bytes()).hexdigest() == sha256
