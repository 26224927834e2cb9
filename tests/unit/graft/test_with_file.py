"""Test the packages of a requirements file in a graft: resolved beside the image's own, refused, locked, rendered."""

import functools
import json
import runpy
import sys
import sysconfig
from collections.abc import Callable
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import pytest
from sdists import sdist
from unit.graft.records import (
    DIGEST,
    Edit,
    config,
    edited,
    first_python,
    grafted,
    packages,
    rendered,
    unchanged,
    wanted,
)

from trainwright.core.errors import BuildError, ConfigError, IncompatibleError, LockError, NotRunError, TrainwrightError
from trainwright.gate import run as gate
from trainwright.graft import build, files, lock, recorded, results, with_file
from trainwright.graft import plan as graft_plan
from trainwright.graft import recipe as graft_recipe
from trainwright.graft.traps import traps
from trainwright.graft.wanted import File, Trap
from trainwright.matrix.matrix import Intent, Recipe
from trainwright.matrix.model import Lock
from trainwright.resolve import pypi

ROOT = Path(__file__).parents[3]
BELOW = "pytorch-2.13-cpu-py311-ec2-train"
SITE = "/opt/venv/lib/python3.11/site-packages"
EMPTY = Lock(intent="0" * 64, entries="0" * 64, python=[])


@pytest.fixture
def team(tmp_path: Path) -> Callable[[str], File]:
    """Return a function that makes a requirements file with this text."""

    def make(text: str) -> File:
        path = tmp_path / "team.txt"
        path.write_text(text)
        return graft_plan.file_of(path)

    return make


@pytest.fixture
def folder(tmp_path: Path, wheel: Callable[..., str], monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make a folder with all that this host can install: packages of the image in other versions, and some more."""
    place = tmp_path / "wheels"
    place.mkdir()
    for version in ("1.26.4", "2.4.6"):  # the image has the latter
        wheel(place, "numpy", version)
    wheel(place, "torch", "2.14.0")
    wheel(place, "alpha", "1.0", ("numpy>=2", "torch"))
    wheel(place, "alpha", "2.0", ("numpy<2",))
    wheel(place, "beta", "1.0", ("alpha", "torch>=2.14"))
    wheel(place, "extra", "1.0")
    wheel(place, "extra", "2.0")
    wheel(place, "boost", "1.0", ("nvidia-nccl-cu12",))
    wheel(place, "nvidia_nccl_cu12", "2.30.7")
    wheel(place, "other", "1.0")
    next(place.glob("other-*")).rename(place / "other-1.0-cp311-cp311-win_amd64.whl")
    sdist(place, "pure", "1.0", {})
    sdist(place, "mixed", "2.0", {})
    wheel(place, "mixed", "1.0")
    monkeypatch.setattr(pypi, "pip_settings", functools.cache(lambda: {"find-links": str(place), "no-index": "1"}))
    return place


def recipe_of(intent: Intent, file: File, edit: Edit = unchanged) -> Recipe:
    found, asked = edited(edit), wanted(intent, file=file)
    made = graft_plan.plan(intent, found, asked)
    return graft_recipe.recipe(intent, found, asked, made.id, made.framework)


def solved(intent: Intent, file: File, edit: Edit = unchanged, held: Lock = EMPTY) -> Lock:
    return with_file.onto(
        recipe_of(intent, file, edit), edited(edit), held, file, lambda _: None, lambda *_, **__: None
    )


# --- what is resolved ------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("folder")
def test_what_the_image_lacks_is_locked_beside_what_it_holds(intent: Intent, team: Callable[[str], File]) -> None:
    """alpha 2.0 would move numpy, and mixed 2.0 has no wheel."""
    made = solved(intent, team("alpha\nmixed\nnumpy\n"))
    assert {entry.name: (entry.version, entry.group) for entry in made.python} == {
        "alpha": ("1.0", "added"),
        "mixed": ("1.0", "added"),
    }
    assert all(entry.sha256 and entry.file.endswith(".whl") for entry in made.python)
    assert made.entries != EMPTY.entries


@pytest.mark.usefixtures("folder")
def test_what_the_graft_adds_itself_stays_too(intent: Intent, team: Callable[[str], File]) -> None:
    held = EMPTY.model_copy(update={"python": packages(["extra"], "toolkit")})
    with pytest.raises(IncompatibleError, match=r"extra>=2 would change extra 1$"):
        solved(intent, team("extra>=2\n"), held=held)
    made = solved(intent, team("alpha\nextra\n"), held=held)
    assert [entry.name for entry in made.python] == ["extra", "alpha"]


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(
    ("text", "kind", "told"),
    [
        ("torch==2.14\n", IncompatibleError, ["torch==2.14 would change torch 2.13.0+cpu", "graft upon an image"]),
        ("numpy<2\n", IncompatibleError, ["numpy<2 would change numpy 2.4.6", "team.example/train:1 holds"]),
        ("alpha==2.0\n", IncompatibleError, ["numpy from 2.4.6 to 1.26.4", "team.example/train:1 holds", "alpha==1.0"]),
        (
            "beta\n",
            IncompatibleError,
            ["beta would change torch from 2.13.0+cpu to 2.14.0", "an image that has torch="],
        ),
        ("boost\n", IncompatibleError, ["boost would add nvidia-nccl-cu12 2.30.7", "a second NCCL"]),
        ("alpha\npure\n", LockError, ["pure cannot be resolved", "no usable wheels", "build a wheel of it", ":2"]),
        ("other\n", LockError, ["other cannot be resolved", "win_amd64", "build a wheel of it"]),
        ("nowhere\n", LockError, ["nowhere cannot be resolved", "trainwright doctor"]),
        ("alpha  # trainwright: compile\n", ConfigError, ["cannot be compiled for team.example/train:1"]),
        ("torch[opt]\n", ConfigError, ["what torch[opt] requires is not known"]),
        ("torch\n", ConfigError, ["already has all of these packages", "trainwright graft team.example/train:1"]),
    ],
)
def test_what_is_refused(
    intent: Intent, team: Callable[[str], File], text: str, kind: type[TrainwrightError], told: list[str]
) -> None:
    with pytest.raises(kind) as error:
        solved(intent, team(text))
    said = " ".join([error.value.what, error.value.where, error.value.why, error.value.fix])
    assert [words for words in told if words not in said] == []


@pytest.mark.usefixtures("folder")
def test_a_package_in_a_version_that_pip_cannot_compare(intent: Intent, team: Callable[[str], File]) -> None:
    """conda has such; pip's rules hold no requirement against it, so nothing may take its place."""

    def conda(record: dict[str, Any]) -> None:
        record["inside"]["pythons"][0]["packages"]["extra"] = "2024a-cuda"

    python = edited(conda).python
    assert python
    assert "extra" not in [entry.name for entry in with_file.of_the_image(python)]
    assert [entry.name for entry in solved(intent, team("alpha\n"), conda).python] == ["alpha"]
    with pytest.raises(IncompatibleError, match=r"extra 2\.0 would replace extra 2024a-cuda"):
        solved(intent, team("extra\n"), conda)


@pytest.mark.parametrize("text", ["", "einops @ https://example.org/a.whl\n", "-e .\n", "not a requirement\n"])
def test_a_bad_file(team: Callable[[str], File], text: str) -> None:
    with pytest.raises(ConfigError, match=r"team\.txt|requirement|index|allowed"):
        team(text)


def test_files_that_cannot_be_named_or_read(tmp_path: Path) -> None:
    for name in ("__.txt", "a" * 40 + ".txt"):
        (tmp_path / name).write_text("einops\n")
        with pytest.raises(ConfigError, match="cannot be part of an image's name") as error:
            graft_plan.file_of(tmp_path / name)
        assert error.value.fix.endswith("team.txt")
    with pytest.raises(ConfigError, match="cannot be read"):
        graft_plan.file_of(tmp_path / "none.txt")


# --- what is planned -------------------------------------------------------------------------------------------------


def test_the_plan_names_the_file(intent: Intent, team: Callable[[str], File]) -> None:
    file = team("alpha\nextra\n")
    made = graft_plan.plan(intent, edited(unchanged), wanted(intent, file=file))
    assert made.id == f"{BELOW}-with-team"
    (step,) = [step for step in made.steps if step.does == "are added"]
    assert step.what == f"2 requirements of {file.path}"
    assert SITE in step.why
    assert graft_plan.plan(intent, edited(unchanged), wanted(intent)).id == BELOW


@pytest.mark.parametrize(
    ("edit", "name", "found"),
    [
        (first_python(site_exists=False), "site-packages", "does not exist"),
        (first_python(site_rights=[0, 0, 0o555]), "site-packages", "read-only for every user"),
        (config(volumes=["/opt/venv/lib"]), "VOLUME", "/opt/venv/lib"),
        (lambda record: record["inside"].update(pythons=[]), "no Python", "no interpreter"),
    ],
)
def test_nothing_is_added_where_nothing_can_be_installed(
    intent: Intent, team: Callable[[str], File], edit: Edit, name: str, found: str
) -> None:
    def refused(asked: File | None) -> list[Trap]:
        return [trap for trap in traps(edited(edit), wanted(intent, file=asked)) if trap.state == "refused"]

    (trap,) = refused(team("alpha\n"))
    assert trap.name == name
    assert found in trap.found
    assert bool(refused(None)) == (name == "no Python")  # the launcher installs nothing there


# --- what is rendered ------------------------------------------------------------------------------------------------


def test_the_packages_get_a_layer_of_their_own_before_what_names_them(
    intent: Intent, tmp_path: Path, team: Callable[[str], File]
) -> None:
    _, one = grafted(intent, tmp_path, file=team("alpha\n"))
    text = one.inputs.text
    assert text["requirements/added.txt"] == "".join(
        f"{name}==1 --hash=sha256:{'c' * 64}\n" for name in ("alpha", "needed")
    )
    docker = text["Dockerfile"]
    install = docker.index("--no-deps --require-hashes --no-index --find-links /wheels -r /requirements.txt")
    assert docker.index("FROM base AS uv") < docker.index("from=added") < docker.index("refuse_overlaps.py /wheels")
    assert docker.index("refuse_overlaps.py /wheels") < install < docker.index("ADD --link graft.tar")
    assert docker.count("RUN --network=none") == docker.count("RUN ")
    contexts = json.loads(text["docker-bake.json"])["target"]["image"]["contexts"]
    assert contexts["added"] == "wheels/added"
    declared = json.loads(one.files["opt/trainwright/declared.json"][0])
    assert (declared["python"]["needed"], declared["python"]["torch"]) == ("1", "2.13.0+cpu")
    assert declared["packages"]["bash"] == "5.2.15-2+b13"  # none is locked, so those that were found
    assert "alpha==1\n" in one.files["opt/trainwright/constraints.txt"][0]
    assert "alpha 1\t" in one.files["opt/trainwright/notices.txt"][0]
    assert one.inputs.wheels.keys() == {"tools", "added"}


def test_the_key_counts_the_wheels(intent: Intent, tmp_path: Path, team: Callable[[str], File]) -> None:
    here, one = grafted(intent, tmp_path, file=team("alpha\n"))
    assert one.key != rendered(intent).key
    file = team("alpha\n").model_copy(update={"path": "elsewhere/team.txt"})
    assert grafted(intent, tmp_path, file=file)[1].key == one.key
    again = recorded.must(here, one.id)
    held = lock.held(again.recipe, again.found, tmp_path / "out" / one.id, files.epoch(""), again.file)
    assert held
    changed = [entry.model_copy(update={"sha256": "d" * 64}) for entry in held.lock.python]
    other = held._replace(lock=held.lock.model_copy(update={"python": changed}))
    assert files.graft(again.recipe, again.found, again.made, other).key != one.key


def test_the_lock_answers_the_lines_of_the_file(intent: Intent, tmp_path: Path, team: Callable[[str], File]) -> None:
    file = team("alpha\n")
    recipe, found = recipe_of(intent, file), edited(unchanged)
    first = lock._intent(recipe, found, file)
    assert lock._intent(recipe, found, team("# ours\n\nalpha\n")) == first
    assert lock._intent(recipe, found, team("alpha>=1\n")) != first
    assert lock._intent(recipe, found) != first


# --- what is proved and shown ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("more", "told"),
    [
        ({"alpha": "1", "needed": "1"}, ""),
        ({"alpha": "1"}, "needed"),
        ({"alpha": "2", "needed": "1"}, "alpha"),
        ({"alpha": "1", "needed": "1", "numpy": "2.5.0"}, "numpy"),
        ({"alpha": "1", "needed": "1", "unknown": "1"}, "unknown"),
        ({"alpha": "2", "needed": "1", "unknown": "1"}, "alpha, unknown"),
    ],
)
def test_the_probe_compares_what_was_added(
    intent: Intent, tmp_path: Path, team: Callable[[str], File], more: dict[str, str], told: str
) -> None:
    here, one = grafted(intent, tmp_path, file=team("alpha\n"))
    again = recorded.must(here, one.id)
    held = edited(unchanged).inside
    assert held
    after = edited(first_python(packages=held.pythons[0].packages | more))
    wrong = list(build.differences(edited(unchanged), after, again.made, one))
    assert wrong == ([f"packages of /opt/venv/bin/python: {told}"] if told else [])


def test_what_was_added_is_read_again_without_the_file(
    intent: Intent, tmp_path: Path, team: Callable[[str], File]
) -> None:
    file = team("alpha>=1  # ours\n")
    here, one = grafted(intent, tmp_path, file=file)
    Path(file.path).unlink()
    again = recorded.must(here, one.id)
    assert again.file == file
    assert recorded.inputs(here, again).key == one.key
    rows = with_file.explained(again.recipe, recorded.inputs(here, again).inputs.lock, file)
    assert [(row.component, row.declared, row.where) for row in rows] == [
        ("alpha", "alpha>=1", f"{file.path}:1"),
        ("needed", "required by another wheel", ""),
    ]
    _, other = grafted(intent, tmp_path, "sagemaker", file=file)
    assert with_file.named(other.inputs.recipe, other.inputs.lock) == ["alpha 1", "needed 1"]  # without the toolkit
    grafted(intent, tmp_path)  # one without a file: the column is for all
    assert [row["with"] for row in results.table(tmp_path)] == ["", file.path, file.path]
    assert gate.subject(tmp_path, one.id, "slurm").reference.endswith(DIGEST)
    command = recorded.command_of(tmp_path, one.id, "")
    assert (
        command == f"trainwright graft team.example/train:1 --target ec2 --fabric none --name team --with {file.path}"
    )


def test_an_unpushed_one_is_told_from_an_image_of_the_matrix_with_packages_on_top(
    intent: Intent, tmp_path: Path, team: Callable[[str], File]
) -> None:
    here, one = grafted(intent, tmp_path, pushed=False, file=team("alpha\n"))
    with pytest.raises(NotRunError, match="was not pushed from here") as error:
        gate.subject(here.root, one.id, "slurm")
    assert error.value.fix.startswith("trainwright graft IMAGE --push")


# --- files of the image's own packages -------------------------------------------------------------------------------


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make an environment for the script that runs in the image; return its site-packages."""
    paths = {"purelib": "site", "platlib": "site64", "scripts": "bin", "data": ""}
    monkeypatch.setattr(sysconfig, "get_paths", lambda: {kind: str(tmp_path / name) for kind, name in paths.items()})
    for name in ("site/cv2", "site64/cv2", "bin", "wheels"):
        (tmp_path / name).mkdir(parents=True)
    monkeypatch.setattr(sys, "argv", ["refuse_overlaps.py", str(tmp_path / "wheels")])
    return tmp_path / "site"


def test_a_wheel_that_is_not_pure_goes_to_another_folder(site: Path, tmp_path: Path) -> None:
    with ZipFile(tmp_path / "wheels/vision-1-cp39-abi3-linux_x86_64.whl", "w") as wheel:
        wheel.writestr("cv2/__init__.py", "ours")
        wheel.writestr("vision-1.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: false\n")
    (site / "cv2/__init__.py").write_text("theirs")
    script = str(ROOT / "dockerfiles/graft/refuse_overlaps.py")
    runpy.run_path(script, run_name="__main__")
    (tmp_path / "site64/cv2/__init__.py").write_text("theirs")
    with pytest.raises(SystemExit, match="site64/cv2"):
        runpy.run_path(script, run_name="__main__")


@pytest.mark.parametrize(
    ("there", "told"),
    [
        ({}, ""),
        ({"site/cv2/__init__.py": "ours"}, ""),  # the same bytes
        ({"site/cv2/__init__.py": "else"}, "site/cv2/__init__.py"),  # as long
        ({"site/cv2/__init__.py": "ours and more"}, "site/cv2/__init__.py"),
        ({"site/deep.py": "theirs"}, "site/deep.py"),
        ({"bin/run": "theirs"}, "bin/run"),
        ({"bin/tool": "theirs"}, "bin/tool"),
    ],
)
def test_a_wheel_that_would_replace_a_file(site: Path, tmp_path: Path, there: dict[str, str], told: str) -> None:
    with ZipFile(tmp_path / "wheels/vision-1-py3-none-any.whl", "w") as wheel:
        wheel.writestr("cv2/__init__.py", "ours")
        wheel.writestr("vision-1.data/purelib/deep.py", "ours")
        wheel.writestr("vision-1.data/scripts/run", "ours")
        wheel.writestr("vision-1.dist-info/entry_points.txt", "[console_scripts]\ntool = cv2:main\n")
    for name, text in there.items():
        (tmp_path / name).write_text(text)
    script = str(ROOT / "dockerfiles/graft/refuse_overlaps.py")
    assert site.is_dir()
    if not told:
        runpy.run_path(script, run_name="__main__")
        return
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(script, run_name="__main__")
    assert ended.value.code == f"refuse_overlaps: vision-1-py3-none-any.whl would replace {tmp_path / told}"


def test_a_build_that_this_ended_is_one_error(team: Callable[[str], File]) -> None:
    file, found = team("vision\n"), edited(unchanged)
    why = "> RUN refuse_overlaps.py /wheels:\n0.2 refuse_overlaps: vision-1.whl would replace /site/cv2/__init__.py\n"
    with pytest.raises(IncompatibleError, match="would replace files of team") as error, with_file.refused(found, file):
        raise BuildError("the build failed", why=why)
    assert error.value.why.startswith("vision-1.whl would replace /site/cv2/__init__.py")
    for given, text in ((None, why), (file, "something else")):
        with pytest.raises(BuildError, match="the build failed"), with_file.refused(found, given):
            raise BuildError("the build failed", why=text)
