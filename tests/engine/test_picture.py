"""Test `judge --png` with matplotlib of requirements-png.lock, which .venv lacks: installed as the error says."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.engine, pytest.mark.slow]
ROOT = Path(__file__).parents[2]


def test_pictures_with_the_locked_matplotlib(tmp_path: Path) -> None:
    install = [sys.executable, "-m", "pip", "install", "--quiet", "--target", str(tmp_path), "-r"]
    subprocess.run([*install, "requirements-png.lock"], cwd=ROOT, check=True)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "tests/unit/gate/test_reports.py", "-m", "png"],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "3 passed" in done.stdout
