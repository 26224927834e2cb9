"""Test what `run` refuses before it starts a container."""

from pathlib import Path

import pytest

from trainwright.core.errors import ConfigError
from trainwright.docker import engine
from trainwright.image.tags import GRAFT_LABEL, ID_LABEL, VERSION_LABEL
from trainwright.jobs import run
from trainwright.matrix.matrix import Intent


def job(intent: Intent, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, labels: dict[str, str]) -> run.Job:
    (tmp_path / "train.py").write_text("")
    monkeypatch.setattr(engine, "image_id", lambda _: "sha256:1")
    monkeypatch.setattr(engine, "labels", lambda _: labels)
    return run.job(intent.root, "registry.example.com/team:1", tmp_path / "train.py", [])


def test_an_image_for_ec2_is_refused(intent: Intent, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its containers would end with 127, because nothing in them is called train."""
    with pytest.raises(ConfigError, match="ec2-team does not have") as caught:
        job(intent, tmp_path, monkeypatch, {ID_LABEL: "pytorch-2.13-cpu-py311-ec2-team"})
    assert "trainwright list" in str(caught.value.fix)


def test_a_graft_for_ec2_is_one_command_away(intent: Intent, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    labels = {ID_LABEL: "pytorch-2.13-cpu-py311-ec2-team", GRAFT_LABEL: "registry.example.com/team@sha256:1"}
    with pytest.raises(ConfigError) as caught:
        job(intent, tmp_path, monkeypatch, labels)
    assert caught.value.fix.startswith("trainwright graft registry.example.com/team@sha256:1 --target sagemaker;")


@pytest.mark.parametrize(
    "labels",
    [
        {ID_LABEL: "pytorch-2.13-cpu-py311-sagemaker", f"{VERSION_LABEL}torch": "2.13.0"},
        {
            ID_LABEL: "pytorch-2.10-cu130-py313-sagemaker-dlc"
        },  # whose base brings the toolkit, and so has no label of it
        {"maintainer": "others"},
    ],
)
def test_an_image_for_sagemaker_or_of_others_is_taken(
    labels: dict[str, str], intent: Intent, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert job(intent, tmp_path, monkeypatch, labels).hosts == 1
