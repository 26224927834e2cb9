"""Test the errors of the registry on loopback that need no engine."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from trainwright.build import loopback


def test_a_registry_that_removes_an_upload_while_its_files_are_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "blobs").mkdir()
    for name in ("kept", "blobs/layer", "blobs/upload"):
        (tmp_path / name).write_text("four")
    walk = os.walk

    def working(folder: Path) -> Iterator[Any]:
        for found in walk(folder):  # what it has listed is gone when it is looked at
            (tmp_path / "blobs/upload").unlink(missing_ok=True)
            yield found

    assert loopback.held_in(tmp_path) == 12
    monkeypatch.setattr(os, "walk", working)
    assert loopback.held_in(tmp_path) == 8
    assert loopback.held_in(tmp_path / "nowhere") == 0
