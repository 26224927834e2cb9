"""Test scripts/test-all.sh with stand-ins: the order of `make test`, and that a failing parallel build fails it."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
STAND_INS = {
    "scripts/test-images.sh": 'case "$*" in *--dry-run*) echo "a sagemaker cpu" ;; *) echo "the images" ;; esac',
    ".venv/bin/trainwright": "case $1 in registry) echo 127.0.0.1:1 ;; "
    'build) echo "a log of $REGISTRY"; exit {build} ;;'
    ' *) echo "$1" ;; esac',
    ".venv/bin/python": 'case "$*" in *tests/unit*) echo unit; exit {unit} ;; *) echo engine ;; esac',
}


@pytest.mark.parametrize(
    ("build", "check", "unit", "code", "ran"),
    [
        (0, 0, 0, 0, ["check", "lock", "lint", "unit", "engine", "the images"]),
        (5, 0, 0, 5, ["check", "lock", "lint", "unit"]),
        (0, 0, 1, 1, ["check", "lock", "lint", "unit"]),
        (0, 1, 0, 2, ["check"]),
    ],
    ids=["all is well", "the build fails", "a unit test fails", "a check of the code fails"],
)
def test_the_order_of_make_test(tmp_path: Path, build: int, check: int, unit: int, code: int, ran: list[str]) -> None:
    (tmp_path / "Makefile").write_text(f"check:\n\t@echo check\n\t@exit {check}\n")
    for name, text in STAND_INS.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(
            "#!/usr/bin/env bash\n" + text.replace("{build}", str(build)).replace("{unit}", str(unit)) + "\n"
        )
        path.chmod(0o755)
    for name in ("test-all.sh", "lib.sh"):
        shutil.copy(ROOT / "scripts" / name, tmp_path / "scripts")
    held = os.environ | {"TMPDIR": str(tmp_path / "scratch")}
    (tmp_path / "scratch").mkdir()
    ended = subprocess.run([tmp_path / "scripts/test-all.sh"], env=held, capture_output=True, text=True, timeout=60)
    assert (ended.returncode, ended.stdout.splitlines()) == (code, ran), ended.stderr
    assert ("a log of 127.0.0.1:1" in ended.stderr) == (build != 0)
    assert list((tmp_path / "scratch").iterdir()) == []
