"""Test packages on top of an image: resolved against its packages, refused with the conflict, locked and keyed."""

import functools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import pytest
from packaging.requirements import Requirement
from sdists import sdist

from trainwright.core import store
from trainwright.core.errors import ConfigError
from trainwright.image import child as image_child
from trainwright.image import inputs, tags
from trainwright.image.inputs import Inputs
from trainwright.lock import additions
from trainwright.matrix.matrix import Intent, Recipe, load_intent
from trainwright.matrix.model import Lock, PythonFile
from trainwright.resolve import pypi, with_packages

Cli = Callable[..., Any]
Edit = Callable[[Path, str, str], None]
CPU = "pytorch-2.13-cpu-py311-sagemaker"
GPU = "pytorch-2.15-cu132-py313-{}-single-node"
BASE = "base-1.0-cu132-py313-ec2-distro"


@pytest.fixture
def folder(tmp_path: Path, wheel: Callable[..., str], intent: Intent, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make a folder with all that this host can install: the images' wheels except torch 2.13.0+cpu, and some."""
    place = tmp_path / "wheels"
    place.mkdir()
    for variant in (v for v in intent.variants if v.id in (CPU, GPU.format("ec2"), BASE)):
        for entry in inputs.load(Recipe(intent, variant)).lock.python:
            if "+" not in entry.version:
                wheel(place, entry.name.replace("-", "_"), entry.version)
    wheel(place, "numpy", "1.26.4")
    wheel(place, "alpha", "1.0", ("numpy>=2", "torch"))
    wheel(place, "alpha", "2.0", ("numpy<2", "filelock"))
    wheel(place, "filelock", "99.0")  # the image holds an older one, and nobody asks for this one
    wheel(place, "beta", "3.0", ("alpha>=2", "fine"))
    wheel(place, "fine", "1.0")
    wheel(place, "boost", "1.0", ("nvidia-nccl-cu12",))
    for name in ("nvidia_nccl_cu12", "nvidia_cublas_cu12", "nvidia_cuda_runtime_cu12"):
        wheel(place, name, "2.30.7")
    sdist(place, "pure", "1.0", {}, ("fine",))
    sdist(place, "ops", "1.0", {}, ("torch",))
    monkeypatch.setattr(pypi, "pip_settings", functools.cache(lambda: {"find-links": str(place), "no-index": "1"}))
    return place


@pytest.fixture
def team(tmp_path: Path) -> Path:
    return tmp_path / "requirements.txt"


@pytest.fixture
def lock(cli: Cli, tree: Path, team: Path) -> Callable[..., Any]:
    """Return a function that runs `trainwright lock --with` for a file with this text."""

    def run(text: str, *words: str, image: str = CPU) -> Any:
        if text:
            team.write_text(text)
        return cli(tree, "lock", image, "--with", str(team), *words)

    return run


def child(tree: Path, team: Path, image: str = CPU) -> Recipe:
    intent = load_intent(tree)
    return additions.on_top(intent.recipe(image), str(team))


def loaded(tree: Path, team: Path, image: str = CPU) -> Inputs:
    return image_child.load(child(tree, team, image))


# --- what is locked --------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("folder")
def test_what_the_image_lacks_is_locked_and_nothing_else(lock: Callable[..., Any], tree: Path, team: Path) -> None:
    assert lock("alpha\npure\n").code == 0
    found = loaded(tree, team)
    added = {entry.name: entry.version for entry in found.wheels["added"]}
    assert added == {"alpha": "1.0", "fine": "1.0", "pure": "1.0"}  # alpha 2.0 would move numpy
    constraints = found.text["requirements/constraints.txt"].splitlines()
    assert {"alpha==1.0", "numpy==2.4.6", "torch==2.13.0+cpu"} <= set(constraints)
    assert constraints == sorted(constraints)
    assert "/sdist/pure-1.0.tar.gz" in found.text["Dockerfile"]
    assert found.variant.id == f"{CPU}-with-requirements"
    assert found.parent
    assert f'io.trainwright.on.key="{found.parent.key}"' in found.text["Dockerfile"]
    assert tags.PARENT_LABEL not in found.text["Dockerfile"]  # there it is repository@digest, and pulled
    assert found.parent.name in found.text["docker-bake.json"]


@pytest.mark.usefixtures("folder")
def test_a_lock_answers_its_file_and_its_image(
    lock: Callable[..., Any], tree: Path, team: Path, edit: Edit, settle: Callable[[Path], None]
) -> None:
    assert lock("alpha\n").code == 0
    assert "current" in lock("").out
    before = loaded(tree, team).key
    assert "current" in lock("alpha # for the team\n", "--check").out
    assert loaded(tree, team).key == before
    ended = lock("alpha\nfine\n", "--check")
    assert ended.code == 4
    assert "stale" in ended.out
    assert f"trainwright lock {CPU} --with {team} --name requirements" in ended.err
    assert "stale" in lock("alpha<1.5\n", "--check").out  # what is locked would do, and nobody has asked
    assert lock("alpha\n", "--check").code == 0
    template = tree / "dockerfiles/frameworks/image.j2"
    edit(template, r"^# The files that change most often come last\.", "# The files that change most often come last!")
    assert loaded(tree, team).key != before  # another image below
    edit(additions.lock_path(child(tree, team)), r"^size = \d+", "size = 1")
    assert "changed by hand" in lock("", "--check").out
    edit(tree / "dockerfiles/locks" / f"{CPU}.toml", r'^version = "26.3"', 'version = "26.2"')  # the image has moved
    settled = lock("", "--check")
    assert settled.code == 4


def test_build_refuses_what_is_not_locked(cli: Cli, tree: Path, team: Path) -> None:
    team.write_text("alpha\n")
    ended = cli(tree, "build", CPU, "--with", str(team), "--name", "team")
    assert (ended.code, ended.out) == (4, "")
    assert f"the lock requirements.{CPU}.lock.toml does not exist" in ended.err
    assert f"trainwright lock {CPU} --with {team} --name team" in ended.err


@pytest.mark.parametrize(
    ("words", "what"),
    [
        (
            ["pytorch-2.13*-py311-*", "--with", "{team}"],
            "--with requires one image, but 2 were chosen",
        ),
        ([CPU, "--name", "team"], "--name requires --with"),
        ([CPU, "--with", "{team}", "--name", "My Team"], "cannot be part of an image's name"),
        ([CPU, "--with", "nowhere.txt"], "cannot be read"),
    ],
)
def test_wrong_words(cli: Cli, tree: Path, team: Path, words: list[str], what: str) -> None:
    ended = cli(tree, "build", *(word.format(team=team) for word in words))
    assert ended.code == 2
    assert what in ended.err


# --- what is refused -------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(
    ("text", "code", "said"),
    [
        ("torch==2.12.0\n", 3, ["torch==2.12.0 would change torch 2.13.0+cpu", ":2"]),
        ("numpy<2\n", 3, ["numpy<2 would change numpy 2.4.6", "was proved with numpy 2.4.6", "--has 'numpy<2'"]),
        (
            "alpha>=2\n",
            3,
            [
                "alpha>=2 would change numpy from 2.4.6 to 1.26.4",
                "alpha 2.0 requires numpy<2",
                "alpha==1.0 in that line",
            ],
        ),
        (
            "beta\n",
            3,
            ["beta would change numpy", "beta 3.0 -> alpha 2.0 requires numpy<2", "no version of beta fits"],
        ),
        ("nowhere\n", 4, ["nowhere cannot be resolved", "nowhere was not found"]),
        ("fine==9\n", 4, ["fine==9 cannot be resolved"]),
        (f"pure --hash=sha256:{'0' * 64}\n", 4, ["pure-1.0.tar.gz does not match any hash", ":2"]),
        ("git+https://git.invalid/a.git\n", 2, ["does not come from a package index", ":2"]),
    ],
)
def test_the_culprit_is_named(lock: Callable[..., Any], team: Path, text: str, code: int, said: list[str]) -> None:
    ended = lock(f"fine\n{text}")
    assert ended.code == code, ended.err
    for words in said:
        assert words in ended.err
    assert "filelock" not in ended.err
    assert f"where: {team}:2" in ended.err
    assert not list(team.parent.glob("*.lock.toml"))


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(
    ("image", "text", "said"),
    [
        (
            BASE,
            "boost\n",
            ["would add nvidia-nccl-cu12 2.30.7", "boost 1.0 requires nvidia-nccl-cu12", "a second NCCL"],
        ),
        (BASE, "nvidia-cuda-runtime-cu12\n", ["would add nvidia-cuda-runtime-cu12", "a second CUDA runtime"]),
        (BASE, "nvidia-cublas\n", []),  # a framework's own, and the only one
        (GPU.format("ec2"), "nvidia-cublas-cu12\n", ["would add nvidia-cublas-cu12", "a second cuBLAS"]),
        (CPU, "boost\n", []),
    ],
)
@pytest.mark.usefixtures("folder")
def test_a_second_one_is_refused_and_a_first_one_is_not(
    lock: Callable[..., Any], image: str, text: str, said: list[str]
) -> None:
    ended = lock(text, image=image)
    assert ended.code == (3 if said else 0), ended.err
    for words in said:
        assert words in ended.err


def test_two_that_claim_one_file_are_refused(
    lock: Callable[..., Any], folder: Path, wheel: Callable[..., str], tree: Path, team: Path
) -> None:
    for name, content in (("left", "1"), ("right", "2")):
        wheel(folder, name, "1.0")
        with ZipFile(folder / f"{name}-1.0-py3-none-any.whl", "a") as archive:
            archive.writestr("shared.py", content)
    ended = lock("left\nright\n")
    assert ended.code == 3
    assert "left 1.0 and right 1.0 claim site-packages/shared.py with different bytes" in ended.err
    assert "not compared with the files of " in ended.err  # the image's own wheels are not on this host
    assert not additions.lock_path(child(tree, team)).exists()


def test_of_an_image_that_brings_its_framework_nobody_knows_what_it_holds(intent: Intent) -> None:
    known = additions.settings(intent.root)
    variant = next(v for v in intent.variants if v.pins.get("torch") and v.pins["torch"].provider == "base")
    empty = Lock(intent="0" * 64, entries="0" * 64, python=[])
    assert additions.harms(known, Recipe(intent, variant), empty).keys() == known.refused.keys()
    cpu = next(v for v in intent.variants if v.id == CPU)
    assert additions.harms(known, Recipe(intent, cpu), empty) == {}
    cuda = next(v for v in intent.variants if v.base == "ubuntu-24.04-cuda-12.8")  # a pin says so, and no wheel
    assert additions.harms(known, Recipe(intent, cuda), empty).keys() == {"nvidia-nccl-*", "nvidia-cuda-runtime*"}


@pytest.mark.usefixtures("folder")
def test_an_update_shows_what_would_change_and_writes_when_told(
    lock: Callable[..., Any], tree: Path, team: Path, folder: Path, wheel: Callable[..., str]
) -> None:
    assert lock("fine\n").code == 0
    path = additions.lock_path(child(tree, team))
    before = path.read_text()
    wheel(folder, "fine", "2.0")
    ended = lock("", "--update", "--json")
    assert ended.code == 0, ended.err
    assert [(row["name"], row["old"], row["new"]) for row in json.loads(ended.out)] == [("fine", "1.0", "2.0")]
    assert f"trainwright lock {CPU} --with {team} --name requirements --update --write" in ended.err
    assert path.read_text() == before
    assert lock("", "--update", "--write").code == 0
    assert loaded(tree, team).wheels["added"][0].version == "2.0"
    ended = lock("", "--update")
    assert (ended.code, "no lock would change" in ended.err) == (0, True)


@pytest.mark.usefixtures("folder")
def test_a_line_for_another_python_asks_for_nothing(lock: Callable[..., Any], tree: Path, team: Path) -> None:
    assert lock("fine\nnumpy<2 ; python_version < '3.8'\n").code == 0
    assert [entry.name for entry in loaded(tree, team).wheels["added"]] == ["fine"]


@pytest.mark.usefixtures("folder")
def test_a_file_that_adds_nothing(lock: Callable[..., Any]) -> None:
    ended = lock("numpy>=2\n")
    assert (ended.code, ended.out) == (2, "")
    assert f"{CPU} already has all of these packages" in ended.err


# --- what is compiled ------------------------------------------------------------------------------------------------

OPS = "ops==1.0  # trainwright: compile OPS_FAST=1\n"


@pytest.mark.usefixtures("folder")
def test_what_is_compiled_against_cuda_is_compiled_in_the_twin(
    lock: Callable[..., Any], tree: Path, team: Path
) -> None:
    image = GPU.format("sagemaker")
    ended = lock(OPS, image=image)
    assert ended.code == 0, ended.err
    found = loaded(tree, team, image)
    [job] = found.compile
    assert (job.image, job.wheel) == (f"{image}-devel", None)
    assert 'TORCH_CUDA_ARCH_LIST="8.0;9.0;10.0;10.3" OPS_FAST="1"' in job.text["Dockerfile"]
    assert f"{image}-devel" in job.text["docker-bake.json"]
    assert image not in job.text["Dockerfile"]
    assert 'io.trainwright.compiled.ops="ops-1.0.tar.gz sha256:' in found.text["Dockerfile"]
    assert found.wheels["added"] == []


@pytest.mark.usefixtures("folder")
def test_one_wheel_serves_every_image_of_one_torch_and_cuda(lock: Callable[..., Any], tree: Path, team: Path) -> None:
    keys = []
    for target in ("sagemaker", "ec2"):
        assert lock(OPS, image=GPU.format(target)).code == 0
        keys.append([loaded(tree, team, GPU.format(target)).compile[0].key])
    assert keys[0] == keys[1]
    assert lock(OPS).code == 0
    assert loaded(tree, team).compile[0].key not in keys[0]  # another torch, and no CUDA
    team.write_text(OPS.replace("FAST=1", "FAST=2"))
    assert loaded(tree, team).compile[0].key != loaded(tree, team, GPU.format("ec2")).compile[0].key
    assert [loaded(tree, team, GPU.format("ec2")).compile[0].key] != keys[1]


@pytest.mark.usefixtures("folder")
def test_another_toolkit_is_another_wheel(lock: Callable[..., Any], tree: Path, team: Path) -> None:
    """Of CUDA 12 nvcc comes out of an image, and is in none of the wheels."""
    image, toml = GPU.format("ec2"), tree / "dockerfiles/layers/cuda.toml"
    held = toml.read_text()
    keys = []
    for digest in ("a", "b"):
        row = f'reference = "registry.example/cuda@sha256:{digest * 64}"\npath = "/usr/local/cuda"\nevidence = "none"'
        toml.write_text(f"{held}\n[toolkits.'13.2.2']\n{row}\n")
        assert lock(OPS, image=image).code == 0
        [job] = loaded(tree, team, image).compile
        keys.append(job.key)
    toml.write_text(held)
    [job] = loaded(tree, team, image).compile
    assert len({*keys, job.key}) == 3


@pytest.mark.usefixtures("folder")
def test_the_key_counts_what_a_compiler_is_given_and_not_what_it_makes(
    lock: Callable[..., Any], tree: Path, team: Path, tmp_path: Path
) -> None:
    assert lock(OPS).code == 0
    before = loaded(tree, team)
    assert "requirements/added.txt" not in before.text
    (tmp_path / "made.whl").write_bytes(b"a wheel")
    sha256 = store.sha256_of(tmp_path / "made.whl")
    file = "ops-1.0-cp311-cp311-linux_x86_64.whl"
    wheel = PythonFile(name="ops", version="1.0", file=file, sha256=sha256, size=7, group="added")
    image_child.remember(before.compile[0].key, wheel)
    assert loaded(tree, team).compile[0].wheel is None  # remembered, and not there
    with store.scratch() as place:
        store.add((tmp_path / "made.whl").replace(place / "made.whl"), sha256)
    after = loaded(tree, team)
    assert after.key == before.key
    assert [entry.file for entry in after.wheels["added"]] == [file]
    assert after.text["requirements/added.txt"] == f"ops==1.0 --hash=sha256:{sha256}\n"


def test_an_image_without_a_twin_compiles_nothing_against_cuda(tree: Path, edit: Edit) -> None:
    edit(tree / "dockerfiles/matrix.toml", r"^devel = true\n(?=pins)", "")
    intent = load_intent(tree)
    recipe = intent.recipe(GPU.format("ec2"))
    with pytest.raises(ConfigError, match="has no twin with compilers") as raised:
        additions.compiler_of(recipe, "ops")
    assert "devel = true" in raised.value.fix


def test_an_image_without_cuda_compiles_for_itself(intent: Intent) -> None:
    recipe = intent.recipe(CPU)
    assert additions.compiler_of(recipe, "ops") is recipe


def test_what_is_known_of_compiled_packages_is_well_formed(intent: Intent) -> None:
    known = additions.settings(intent.root)
    said = additions.environment(known.packages["flash-attn"], ["80", "90"])
    assert said["FLASH_ATTN_CUDA_ARCHS"] == "80;90"
    assert said["TORCH_CUDA_ARCH_LIST"] == "8.0;9.0"
    for row in known.packages.values():
        assert row.evidence
        additions.environment(row, [])


def test_what_packages_are_compiled_with_is_pinned_and_goes_together_with_every_twin(intent: Intent) -> None:
    known = additions.settings(intent.root)
    twins = [one for one in inputs.held(intent) if one.variant.devel and "torch" in one.pins]
    assert twins
    for row in known.packages.values():
        for wanted in map(Requirement, row.build_requirements or []):
            assert str(wanted.specifier).startswith("=="), wanted
            for twin in twins:
                found = [e for e in inputs.read_lock(twin).python if e.group in twin.variant.groups]
                for entry in (e for e in found if e.name == wanted.name):
                    assert entry.version in wanted.specifier, f"{twin.id} holds {entry.name} {entry.version}"


def test_stand_ins_say_what_the_lock_knows(tmp_path: Path) -> None:
    file = "torch-2.13.0+cpu-cp311-cp311-manylinux_2_28_x86_64.whl"
    entry = PythonFile(
        name="torch", version="2.13.0+cpu", file=file, sha256="0" * 64, size=1, group="framework", needs=["sympy"]
    )
    with with_packages.stand_ins([entry, entry.model_copy(update={"version": "2.13.0"})]) as folder:
        assert [path.name for path in folder.iterdir()] == [file]
        assert pypi.requires(folder / file, file) == ["sympy"]
