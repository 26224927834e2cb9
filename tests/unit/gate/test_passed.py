"""Test that a release requires a passed gate for the same digest, or a waiver with a person's name."""

import shutil
from pathlib import Path
from typing import Any

import pytest

from trainwright.core.errors import ConfigError, NotRunError
from trainwright.gate import passed, read
from trainwright.gate.case import Declared
from trainwright.gate.judge import Verdict
from trainwright.matrix.matrix import Recipe, load_intent

ROOT = Path(__file__).parents[3]
LOG = next((Path(__file__).parents[1] / "nccl-tests").glob("07*.txt"))
DIGEST, OTHER = f"sha256:{'a' * 64}", f"sha256:{'b' * 64}"
GPU, CPU = "pytorch-2.15-cu132-py313-sagemaker", "pytorch-2.13-cpu-py311-sagemaker"


def recipe(root: Path, identity: str) -> Recipe:
    return load_intent(ROOT).model_copy(update={"root": root}).recipe(identity)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Make a checkout without recorded gates."""
    shutil.copytree(ROOT / "dockerfiles", tmp_path / "dockerfiles", ignore=shutil.ignore_patterns("gates", "layers"))
    return tmp_path


def verdicts(root: Path, *digests: str, **declared: Any) -> tuple[list[Verdict], Declared]:
    """Judge one log of our runner for each digest."""
    files = []
    for number, digest in enumerate(digests):
        text = LOG.read_text().partition("## --- verbatim")[2]
        today = "Selected provider is efa, fabric is efa (found 4 nics)"
        path = root / f"{number}.log"
        path.write_text(f"gate: image host/x@{digest}\n" + text.replace("Selected Provider is efa", today))
        files.append(str(path))
    said = Declared(**({"instance": "p4d.24xlarge", "nodes": 2} | declared))
    return read.verdicts(ROOT, files, said), said


def test_what_passed_may_be_released_and_nothing_else(root: Path) -> None:
    passed.record(recipe(root, GPU), ["all_reduce"], *verdicts(root, DIGEST))
    found = passed.check(recipe(root, GPU), DIGEST, "")
    assert found.state == "passed"
    assert found.detail.startswith("2 x p4d.24xlarge on 20")
    with pytest.raises(NotRunError, match="has not passed the gate") as error:
        passed.check(recipe(root, GPU), OTHER, "")
    assert DIGEST in error.value.why
    assert f"--record {GPU}" in error.value.fix


def test_fewer_interfaces_that_were_declared_stay_visible(root: Path) -> None:
    found, declared = verdicts(root, DIGEST, nics=4)
    passed.record(recipe(root, GPU), ["all_reduce"], found, declared)
    assert "2 x p4d.24xlarge with 4 EFA interfaces each on" in passed.check(recipe(root, GPU), DIGEST, "").detail


def test_nothing_recorded(root: Path) -> None:
    with pytest.raises(NotRunError, match="has not passed the gate") as error:
        passed.check(recipe(root, GPU), DIGEST, "")
    assert ".toml does not exist" in error.value.why


def test_an_image_without_nccl_needs_none(root: Path) -> None:
    found = passed.check(recipe(root, CPU), DIGEST, "")
    assert (found.state, found.detail) == ("not run", "it has no NCCL: nothing to gate")


def test_a_waiver_has_a_name_and_a_reason(root: Path) -> None:
    found = passed.check(recipe(root, GPU), DIGEST, "Ada Lovelace: no p5 until December")
    assert (found.state, found.detail) == ("not run", "waived by Ada Lovelace: no p5 until December")
    for bad in ("yes", "Ada:", ": because"):
        with pytest.raises(ConfigError, match="who waives"):
            passed.check(recipe(root, GPU), DIGEST, bad)


@pytest.mark.parametrize(
    ("digests", "declared", "why"),
    [
        ((DIGEST, OTHER), {}, "the logs must name one image, found sha256:a"),
        ((DIGEST,), {"instance": ""}, "--instance"),
        ((DIGEST,), {"nodes": None, "world_size": 16}, "--nodes"),
        ((DIGEST,), {"exit_code": 3}, "fail"),
        (("none",), {}, "the logs must name one image, found none"),
    ],
)
def test_what_does_not_prove_one_image_is_not_recorded(
    root: Path, digests: tuple[str, ...], declared: dict[str, Any], why: str
) -> None:
    with pytest.raises(NotRunError, match="no gate was recorded") as error:
        passed.record(recipe(root, GPU), ["all_reduce"], *verdicts(root, *digests, **declared))
    assert why in error.value.why
    assert not (root / passed.FOLDER).exists()


def test_all_collectives_and_more_than_one_node(root: Path) -> None:
    found, declared = verdicts(root, DIGEST)
    with pytest.raises(NotRunError) as error:
        passed.record(recipe(root, GPU), ["all_reduce", "broadcast"], found, declared)
    assert "the logs lack broadcast" in error.value.why
    with pytest.raises(NotRunError) as error:
        passed.record(recipe(root, GPU), ["all_reduce"], found, declared.model_copy(update={"nodes": 1}))
    assert "one node does not test" in error.value.why


def test_a_record_that_somebody_edited(root: Path) -> None:
    passed.record(recipe(root, GPU), ["all_reduce"], *verdicts(root, DIGEST))
    path = root / passed.FOLDER / f"{GPU}.toml"
    path.write_text(path.read_text().replace("sha256:a", "sha256:z"))
    with pytest.raises(ConfigError, match=r"is not valid"):
        passed.check(recipe(root, GPU), DIGEST, "")
