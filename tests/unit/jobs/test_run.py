"""Test what `run` refuses before it starts a container."""

from pathlib import Path

import pytest

from trainwright.core.errors import ConfigError
from trainwright.docker import engine
from trainwright.image.tags import ID_LABEL, VERSION_LABEL
from trainwright.jobs import run
from trainwright.matrix.matrix import Intent


def job(intent: Intent, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, labels: dict[str, str]) -> run.Job:
    (tmp_path / "train.py").write_text("")
    monkeypatch.setattr(engine, "image_id", lambda _: "sha256:1")
    monkeypatch.setattr(engine, "labels", lambda _: labels)
    return run.job(intent.root, "registry.example.com/team:1", tmp_path / "train.py", [])


def test_an_image_that_lacks_the_toolkit_is_refused(
    intent: Intent, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its containers would end with 127, because nothing in them is called train."""
    ours = {ID_LABEL: "pytorch-2.13-cpu-py311-ec2", f"{VERSION_LABEL}torch": "2.13.0"}
    with pytest.raises(ConfigError, match="has no sagemaker-training") as caught:
        job(intent, tmp_path, monkeypatch, ours)
    assert "trainwright list" in str(caught.value.fix)
    assert job(intent, tmp_path, monkeypatch, {**ours, f"{VERSION_LABEL}sagemaker-training": "5.1.4"}).hosts == 1
    assert job(intent, tmp_path, monkeypatch, {"maintainer": "others"}).hosts == 1  # it may have it, unlabelled
