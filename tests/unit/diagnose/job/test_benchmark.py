"""Test the answers for jobs of the benchmark: real logs and dumps of jobs with one fault, over Gloo and NCCL."""

import importlib
import json
import sys
import tarfile
from pathlib import Path
from typing import Any

import pytest
from diagnosis import score

ARCHIVE = Path(score.__file__).parent / "jobs.tar.gz"
OVER_NCCL = ARCHIVE.with_name("jobs-nccl.tar.gz")
EACH = 4  # of the jobs over Gloo
UNKNOWN = {"nccl-stopped-1"}  # it hung before its first step: 12 lines, no failure and no dump


def unpacked(archive: Path, folder: Path, each: int) -> list[dict[str, Any]]:
    """Unpack every so manieth job into a folder; return the truth about them."""
    with tarfile.open(archive) as opened:
        members = opened.getmembers()
        labels = sorted(Path(one.name) for one in members if Path(one.name).name == "label.json")
        wanted = {label.parent for label in labels[::each]}
        for one in members:
            if wanted & {*Path(one.name).parents} and (content := opened.extractfile(one)):
                (folder / one.name).parent.mkdir(parents=True, exist_ok=True)
                (folder / one.name).write_bytes(content.read())
    return [json.loads(path.read_text()) for path in sorted(folder.rglob("label.json"))]


def test_the_rank_that_failed_first_is_named_and_no_other_one(tmp_path: Path) -> None:
    labels = unpacked(ARCHIVE, tmp_path, EACH)
    assert len(labels) >= 200 // EACH
    right, wrong = 0, list[str]()
    for label in labels:
        answer = score.ours(tmp_path / label["name"], dumps=True)
        cause, rank = score.right(label, answer)
        right += cause and rank
        wrong += [f"{label['name']}: {answer}"] * bool(answer["ranks"] and not rank)
    assert wrong == []
    assert right >= 0.95 * len(labels)


def test_jobs_over_nccl_get_their_cause_and_rank(tmp_path: Path) -> None:
    """They ran on one H200; each rank was a host of its own to NCCL."""
    labels = unpacked(OVER_NCCL, tmp_path, 1)
    answers = {label["name"]: score.ours(tmp_path / label["name"], dumps=True) for label in labels}
    assert len(answers) == 29
    missed = {label["name"] for label in labels if score.right(label, answers[label["name"]]) != (True, True)}
    assert missed == UNKNOWN
    assert [answers[name]["ranks"] for name in UNKNOWN] == [[]]


def test_the_jobs_over_nccl_are_those_that_its_script_plans(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [*sys.path])  # the script adds its folder
    planned = importlib.import_module("diagnosis.nccl").planned
    for label in unpacked(OVER_NCCL, tmp_path, 1):
        job = planned(label["fault"], label["seed"])
        assert {name: value for name, value in vars(job).items() if name in label} == {
            name: value for name, value in label.items() if name not in ("codes", "ready", "ended")
        }
