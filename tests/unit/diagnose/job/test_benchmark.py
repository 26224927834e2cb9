"""Test the answers for every fourth job of the benchmark: logs and recorder dumps of real Gloo jobs with a fault."""

import json
import tarfile
from pathlib import Path

import pytest
from diagnosis import score

ARCHIVE = Path(score.__file__).parent / "jobs.tar.gz"
EACH = 4


@pytest.fixture(scope="module")
def jobs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Unpack the jobs that are looked at."""
    folder = tmp_path_factory.mktemp("jobs")
    with tarfile.open(ARCHIVE) as archive:
        members = archive.getmembers()
        labels = sorted(Path(one.name) for one in members if Path(one.name).name == "label.json")
        assert len(labels) >= 200
        wanted = {label.parent for label in labels[::EACH]}
        for one in members:
            if wanted & {*Path(one.name).parents} and (content := archive.extractfile(one)):
                (folder / one.name).parent.mkdir(parents=True, exist_ok=True)
                (folder / one.name).write_bytes(content.read())
    return folder


def test_the_rank_that_failed_first_is_named_and_no_other_one(jobs: Path) -> None:
    labels = [json.loads(path.read_text()) for path in sorted(jobs.rglob("label.json"))]
    assert len(labels) >= 200 // EACH
    right, wrong = 0, list[str]()
    for label in labels:
        answer = score.ours(jobs / label["name"], dumps=True)
        cause, rank = score.right(label, answer)
        right += cause and rank
        wrong += [f"{label['name']}: {answer}"] * bool(answer["ranks"] and not rank)
    assert wrong == []
    assert right >= 0.95 * len(labels)
