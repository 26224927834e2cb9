"""Test the digest of the code that proves an image: only a change to that code changes it."""

import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from trainwright.build import proof_code
from trainwright.matrix.matrix import Intent

ROOT = Path(__file__).parents[3]
TORCH, JAX, CUDA = (
    "pytorch-2.13-cpu-py311-sagemaker",
    "jax-0.12-cpu-py313-sagemaker",
    "pytorch-2.15-cu132-py313-sagemaker-single-node",
)


@pytest.fixture
def checkout(tmp_path: Path) -> Iterator[Path]:
    """Copy the parts of this checkout that prove an image, so that tests can change them."""
    for folder in ("tests/image", "tests/train", "tests/cluster"):
        shutil.copytree(ROOT / folder, tmp_path / folder, ignore=shutil.ignore_patterns("__pycache__"))
    for path in [*ROOT.glob("tests/*.py"), ROOT / "scripts/probe.py", *ROOT.glob("docs/examples/*.py")]:
        (tmp_path / path.relative_to(ROOT)).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, tmp_path / path.relative_to(ROOT))
    yield tmp_path
    shutil.rmtree(tmp_path)


def moved(root: Path, intent: Intent, before: dict[str, str]) -> set[str]:
    return {identity for identity, digest in sums(root, intent).items() if digest != before[identity]}


def sums(root: Path, intent: Intent) -> dict[str, str]:
    intent = intent.model_copy(update={"root": root})
    return {identity: proof_code.digest(intent.recipe(identity)) for identity in (TORCH, JAX, CUDA)}


@pytest.fixture(scope="module")
def before(intent: Intent) -> dict[str, str]:
    """Return the digests of this checkout; a copy has the same (test_the_digest_is_of_no_machine)."""
    return sums(ROOT, intent)


ALL = {TORCH, JAX, CUDA}
CHANGES: dict[str, tuple[str, str, str, set[str]]] = {
    "a comment": ("tests/image/test_files.py", r"\Z", "# a remark\n", set()),
    "a docstring": ("tests/image/test_files.py", r'\A"""', '"""Reworded: ', set()),
    "an annotation": ("tests/image/conftest.py", r"(def nccl_number\(declared): Inputs\) -> int", r"\1)", set()),
    "a remark in TOML": ("tests/image/expected.toml", r"\A", "# a remark\n", set()),
    "a test of all": ("tests/image/test_files.py", r"\Z", "\ndef test_more() -> None:\n    assert True\n", ALL),
    "a test of PyTorch": (
        "tests/image/test_torch.py",
        r"\Z",
        "\ndef test_more() -> None:\n    assert True\n",
        {TORCH, CUDA},
    ),
    "a test of JAX": ("tests/image/test_jax.py", r"\Z", "\ndef test_more() -> None:\n    assert True\n", {JAX}),
    "a value in TOML": ("tests/image/expected.toml", r"\A", "more = 1\n", ALL),
    "what tests share": ("tests/saved.py", r"\Z", "\nMORE = 1\n", ALL),
    "what all tests share": ("tests/conftest.py", r"\Z", "\nMORE = 1\n", ALL),
    "the probe": ("scripts/probe.py", r"\Z", "\nMORE = 1\n", ALL),
    "a program of JAX": ("tests/image/programs/jax_step.py", r"\Z", "\nMORE = 1\n", {JAX}),
    "an example that a test runs": ("docs/examples/step_profile.py", r"\Z", "\nMORE = 1\n", {TORCH, CUDA}),
    "jobs of several hosts": ("tests/cluster/harness.py", r"\Z", "\nMORE = 1\n", {TORCH, JAX}),  # for CPUs alone
    "tests of such jobs": ("tests/cluster/test_jobs.py", r"\Z", "\nMORE = 1\n", {TORCH, JAX}),
    "failures of such jobs, which only `make test-cluster` tries": (
        "tests/cluster/test_failures.py",
        r"\Z",
        "\nMORE = 1\n",
        set(),
    ),
    "other tests": ("tests/registries.py", r"\Z", "\nMORE = 1\n", set()),
}


@pytest.mark.parametrize("what", CHANGES)
def test_what_moves_a_proof(checkout: Path, intent: Intent, before: dict[str, str], what: str) -> None:
    file, pattern, new, wanted = CHANGES[what]
    path = checkout / file
    text, count = re.subn(pattern, new, path.read_text(), count=1)
    assert count == 1
    path.write_text(text)
    assert moved(checkout, intent, before) == wanted


def test_what_counts_of_trainwright(intent: Intent) -> None:
    """Functions that a proof reaches; nothing of what reads the intent, and nothing that only builds."""
    found = proof_code.parts(intent.recipe(TORCH), "probe")
    assert {"trainwright.build.build:prove", "trainwright.image.probe:compare", "scripts/probe.py"} <= found.keys()
    found |= proof_code.parts(intent.recipe(TORCH), "image")
    assert {"trainwright.build.image_tests:image_tests", "saved", "tests/image/expected.toml"} <= found.keys()
    assert not {
        name for name in found if re.match(r"trainwright\.(image\.inputs|matrix\.matrix|resolve|cli|publish)\b", name)
    }
    assert "trainwright.build.build:lay_out" not in found


def test_the_digest_is_of_no_machine(checkout: Path, intent: Intent, before: dict[str, str]) -> None:
    assert sums(checkout, intent) == before


@pytest.mark.parametrize("identity", [TORCH, JAX, CUDA])
def test_the_tests_that_count_are_those_that_pytest_takes(intent: Intent, identity: str) -> None:
    """It deselects by marks when it collects; the digest, by the marks in the text."""
    words = ["tests/image", "--variant", identity, "--collect-only", "--quiet", "--no-header", "-p", "no:cacheprovider"]
    said = subprocess.run(
        [sys.executable, "-m", "pytest", *words], cwd=ROOT, capture_output=True, text=True, check=True
    )
    taken = set(re.findall(r"^tests/image/(\w+)\.py::", said.stdout, re.MULTILINE))
    found = proof_code.parts(intent.recipe(identity), "image")
    assert taken == {name.removeprefix("image.") for name in found if name.startswith("image.test_")} != set()


def test_what_is_looked_up_for_one_image_is_right_for_another(intent: Intent) -> None:
    """Only what all of them share is kept: which tests count is a matter of each."""
    shared = proof_code._Sources(ROOT)
    for identity in (TORCH, JAX):
        recipe = intent.recipe(identity)
        for kind in proof_code.kinds(recipe):
            assert proof_code._walk(recipe, kind, shared) == proof_code.parts(recipe, kind)


def test_what_is_written_down_is_not_about_older_code(checkout: Path, intent: Intent) -> None:
    """`prove` asks what is due, and records hours later: a test may have been edited since."""
    recipe = intent.model_copy(update={"root": checkout}).recipe(TORCH)
    asked = proof_code.digest(recipe)
    assert proof_code.digest_now(recipe) == asked
    with (checkout / "tests/image/test_files.py").open("a") as file:
        file.write("\ndef test_more() -> None:\n    assert True\n")
    assert proof_code.digest(recipe) == asked != proof_code.digest_now(recipe)
