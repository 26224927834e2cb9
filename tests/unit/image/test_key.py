"""Test that the key covers everything that goes into an image, and nothing else."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainwright.image import inputs
from trainwright.image import key as image_key
from trainwright.lock import packages
from trainwright.matrix.matrix import Intent, Recipe, load_intent

Edit = Callable[[Path, str, str], None]
ROOT = Path(__file__).parents[3]
TEXTS = st.dictionaries(st.text(min_size=1), st.text(), min_size=1, max_size=4)


@given(TEXTS, TEXTS, st.text(), st.randoms(use_true_random=False))
def test_order_does_not_matter(text: dict[str, str], files: dict[str, str], manifest: str, random: object) -> None:
    def shuffled(mapping: dict[str, str]) -> dict[str, str]:
        rows = list(mapping.items())
        random.shuffle(rows)  # type: ignore[attr-defined]
        return dict(rows)

    key = image_key.input_key(text, files, manifest)
    assert image_key.input_key(shuffled(text), shuffled(files), manifest) == key


@given(TEXTS, TEXTS, st.text())
def test_everything_matters(text: dict[str, str], files: dict[str, str], manifest: str) -> None:
    name, file = next(iter(text)), next(iter(files))
    keys = [
        image_key.input_key(text, files, manifest),
        image_key.input_key({**text, name: text[name] + "x"}, files, manifest),
        image_key.input_key({key + "x": value for key, value in text.items()}, files, manifest),
        image_key.input_key(text, {**files, file: files[file] + "x"}, manifest),
        image_key.input_key(text, {key + "x": value for key, value in files.items()}, manifest),
        image_key.input_key(text, files, manifest + "x"),
        image_key.input_key(text, files, manifest, "parent"),
    ]
    assert len(set(keys)) == len(keys)


def test_the_schema_number_matters(monkeypatch: pytest.MonkeyPatch) -> None:
    before = image_key.input_key({}, {}, "")
    monkeypatch.setattr(image_key, "SCHEMA", image_key.SCHEMA + 1)
    assert image_key.input_key({}, {}, "") != before


# --- the keys of a checkout ---------------------------------------------------------------------------------------


KINDS = {  # one of each
    "cpu-ec2": "pytorch-2.13-cpu-py311-ec2",
    "cpu-sagemaker": "pytorch-2.13-cpu-py311-sagemaker",
    "compiled": "pytorch-2.15-cu132-py313-ec2-distro",
    "twin": "pytorch-2.15-cu132-py313-ec2-distro-devel",
}
CPU, CUDA = {"cpu-ec2", "cpu-sagemaker"}, {"compiled", "twin"}


def keys(root: Path) -> dict[str, str]:
    intent = load_intent(root)
    held = {variant.id: variant for variant in intent.variants}
    return {kind: inputs.load(Recipe(intent, held[identity])).key for kind, identity in KINDS.items()}


def differing(before: dict[str, str], after: dict[str, str]) -> set[str]:
    return {kind for kind in before if before[kind] != after[kind]}


@pytest.fixture(scope="module")
def committed() -> dict[str, str]:
    """Return the keys of this checkout, computed once, with a store that records no drift."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRAINWRIGHT_STORE", "/dev/null/store")
        return keys(ROOT)


def test_another_clone_in_another_folder(tmp_path: Path, committed: dict[str, str]) -> None:
    """Another umask, another day, another home, time zone, locale, mirror and index: the same keys."""
    root = tmp_path / "a clone"
    before = os.umask(0o077)
    try:
        for folder in ("dockerfiles", "scripts"):
            shutil.copytree(ROOT / folder, root / folder, copy_function=shutil.copyfile)
    finally:
        os.umask(before)
    for path in root.rglob("*"):
        os.utime(path, (10**9, 10**9))
        if path.is_file() and (ROOT / path.relative_to(root)).stat().st_mode & 0o100:
            path.chmod(0o700)
    own = {
        "HOME": str(root),
        "TZ": "Asia/Kolkata",
        "LC_ALL": "C",
        "PYTHONHASHSEED": "1",
        "USER": "somebody",
        "TRAINWRIGHT_STORE": str(root / "store"),
        "TRAINWRIGHT_MIRRORS": "debian=http://mirror.invalid/debian",
        "PIP_INDEX_URL": "http://index.invalid/simple",
        "SOURCE_DATE_EPOCH": "1",
        "COLUMNS": "40",
    }
    command = [sys.executable, "-m", "trainwright.cli", "render", "--json", "pytorch-*-ec2-distro*"]
    ended = subprocess.run(command, cwd=root, env={**os.environ, **own}, capture_output=True, check=True)
    printed = {row["id"]: row["key"] for row in json.loads(ended.stdout)}
    assert printed == {KINDS[kind]: committed[kind] for kind in CUDA}


@pytest.mark.parametrize(
    ("file", "pattern", "new", "changed"),
    [
        ("dockerfiles/layers/openmpi.j2", "^# Open MPI of the distribution", "# The Open MPI", CPU | CUDA),
        ("dockerfiles/layers/sagemaker-training.j2", "# SageMaker's training", "# A", {"cpu-sagemaker"}),
        ("dockerfiles/layers/gdrcopy.j2", "^# Only the library", "# The library", CUDA),
        ("dockerfiles/layers/cuda.j2", r"nvidia/cudnn/include/\*", "nvidia/cudnn/include/cudnn*", {"twin"}),
        ("dockerfiles/rootfs/common/etc/pip.conf", r"\Z", "\n# more\n", CPU | CUDA),
        ("dockerfiles/layers/base.j2", r"/run/adduser /run/runit", "/run/adduser", CPU | CUDA),
        ("dockerfiles/layers/torch.toml", r'^summary = "PyTorch"', 'summary = "Torch"', set()),
        ("dockerfiles/layers/gdrcopy.toml", r'^evidence = "', 'evidence = "seen: ', set()),
        ("dockerfiles/host.toml", r"^port = \d+", "port = 5001", set()),
        ("scripts/engine.py", r"\Z", "\n# more\n", set()),
    ],
)
def test_what_changes_a_key(
    tree: Path, edit: Edit, committed: dict[str, str], file: str, pattern: str, new: str, changed: set[str]
) -> None:
    edit(tree / file, pattern, new)
    assert differing(committed, keys(tree)) == changed


def test_a_file_that_becomes_executable_or_comes_along_changes_the_key(tree: Path, committed: dict[str, str]) -> None:
    path = tree / "dockerfiles/rootfs/common/etc/pip.conf"
    path.chmod(0o755)
    executable = keys(tree)
    path.with_name("more").touch()
    assert differing(committed, executable) == differing(executable, keys(tree)) == CPU | CUDA


def test_drift_changes_the_key(tree: Path, committed: dict[str, str]) -> None:
    intent = load_intent(tree)
    held = inputs.read_distribution(intent, "debian-12")
    newer = {**held.locked, "git": {**held.locked["git"], "Version": "9:9", "SHA256": "9" * 64}}
    header = {"Intent": held.intent, "Date": "Fri, 20 Nov 2026 02:11:10 GMT"}
    inputs.record_drift(header, held.locked, newer)
    drift = inputs.read_distribution(intent, "debian-12").drift
    assert [(entry.package, entry.used) for entry in drift] == [("git", "9:9")]
    assert differing(committed, keys(tree)) == CPU


def test_tag_and_name_carry_the_key_without_being_part_of_it(intent: Intent) -> None:
    found = inputs.load(Recipe(intent, intent.variants[0]))
    assert found.tag == f"{found.variant.id}-{found.key[:12]}"
    assert found.name == f"trainwright/pytorch:{found.tag}"
    target = json.loads(found.text["docker-bake.json"])["target"]["image"]
    assert target["tags"] == [found.name]
    assert target["labels"]["io.trainwright.key"] == found.key


def test_every_locked_package_is_in_the_manifest(intent: Intent) -> None:
    found = inputs.load(Recipe(intent, intent.variants[0]))
    listed = found.text["requirements/packages.txt"].splitlines()
    assert len(listed) == len(packages.to_packages(found.distribution.locked))


# --- what to do ---------------------------------------------------------------------------------------------------

UNKNOWN_ENGINE, UNKNOWN_REGISTRY = "engine: unknown, because none answers", "registry: unknown, because none answers"
NO_ENGINE, NO_REGISTRY = "the engine does not hold it", "the registry does not hold it"


@pytest.mark.parametrize(
    ("published", "present", "action", "reasons"),
    [
        ("sha256:1", None, "skip", ["sha256:1"]),
        ("sha256:1", True, "skip", ["sha256:1"]),
        ("", True, "reuse", [NO_REGISTRY]),
        (None, True, "reuse", [UNKNOWN_REGISTRY]),
        ("", False, "build", ["neither the engine nor the registry holds it"]),
        ("", None, "build", [UNKNOWN_ENGINE, NO_REGISTRY]),
        (None, False, "build", [NO_ENGINE, UNKNOWN_REGISTRY]),
        (None, None, "build", [UNKNOWN_ENGINE, UNKNOWN_REGISTRY]),
    ],
)
def test_decide(published: str | None, present: bool | None, action: str, reasons: list[str]) -> None:
    entry = image_key.decide("id", "key", published, present)
    assert (entry.id, entry.key, entry.action) == ("id", "key", action)
    for reason in reasons:
        assert reason in entry.reason
