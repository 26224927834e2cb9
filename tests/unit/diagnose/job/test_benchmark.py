"""Test the answers for every fourth job of the benchmark: logs and recorder dumps of real Gloo jobs with a fault."""

import json
import tarfile
from pathlib import Path

import pytest
from diagnosis import score

from trainwright.core.files import unpack

ARCHIVE = Path(score.__file__).parent / "jobs.tar.gz"
EACH = 4


@pytest.fixture(scope="module")
def jobs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("jobs")
    with tarfile.open(ARCHIVE) as archive:
        unpack(archive, folder)
    return folder


def test_the_rank_that_failed_first_is_named_and_no_other_one(jobs: Path) -> None:
    labels = [json.loads(path.read_text()) for path in sorted(jobs.rglob("label.json"))]
    assert len(labels) >= 200
    right, wrong = 0, list[str]()
    for label in labels[::EACH]:
        answer = score.ours(jobs / label["name"], dumps=True)
        cause, rank = score.right(label, answer)
        right += cause and rank
        wrong += [f"{label['name']}: {answer}"] * bool(answer["ranks"] and not rank)
    assert wrong == []
    assert right >= 0.95 * len(labels[::EACH])
