"""Test the script that looks into an image, on this machine's own Python, and what is made of its answers."""

import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import requests
from programs import imported

from trainwright.core.errors import BuildError
from trainwright.graft import look
from trainwright.graft.found import config_of

ROOT = Path(__file__).parents[3]
ASKED = {"components": {}, "pythons": [], "paths": [], "seconds": 20}


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    module = imported(ROOT / "scripts/look.py")
    monkeypatch.setattr(module, "QUESTIONS", dict(ASKED))
    return module


def test_an_interpreter_counts_once(script: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("python", "python3"):
        (tmp_path / name).write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
        (tmp_path / name).chmod(0o755)
    (tmp_path / "broken").write_text("#!/bin/sh\necho no\n")
    (tmp_path / "broken").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    script.QUESTIONS["pythons"] = [str(tmp_path / "brok*")]
    (one,) = script.pythons()
    assert (one["prefix"], one["kind"]) == (sys.prefix, "venv")
    assert one["packages"]["pytest"] == pytest.__version__


def test_a_framework_says_its_version_or_why_it_has_none(script: ModuleType) -> None:
    row = {"pattern": r"version (\S+)", "libraries": [], "packages": ["pytest"]}
    script.QUESTIONS["components"] = {
        "good": {**row, "code": "import sys; print('version', sys.version_info[0])"},
        "bad": {**row, "code": "raise OSError('libfoo.so is missing')"},
        "absent": {**row, "code": "print('version 1')", "packages": ["no-such-package"]},
    }
    said = script.answers(sys.executable, {"pytest": "9"})
    assert said["good"] == {"version": "3", "error": "", "maps": []}
    assert said["bad"]["error"] == "OSError: libfoo.so is missing"
    assert set(said) == {"good", "bad"}


def test_a_program_that_hangs_or_is_not_there(script: ModuleType) -> None:
    script.QUESTIONS["seconds"] = 0.2
    assert script.output([sys.executable, "-c", "import time; time.sleep(60)"])[1] == 124
    assert script.output(["/no/such/program"])[1] == 127


def test_the_script_starts_with_a_python_that_can_run_it() -> None:
    words = ["/bin/sh", "-c", look.START, "look", "import sys; print(sys.argv[1], sys.flags.isolated)", "question"]
    assert subprocess.run(words, capture_output=True, text=True, check=True).stdout == "question 1\n"


def test_an_image_without_python() -> None:
    found = look._without_python('no python\nmusl\nID=alpine\nPRETTY_NAME="Alpine Linux v3.20"\n')
    assert (found.libc, found.os["PRETTY_NAME"], found.pythons) == ("musl", "Alpine Linux v3.20", [])


def test_the_name_by_which_an_image_is_pinned() -> None:
    rows = ["host:5000/a@sha256:1", "host:5000/b@sha256:2"]
    assert look._pinned("host:5000/b:tag", {"RepoDigests": rows, "Id": "sha256:9"}) == rows[1]
    assert look._pinned("host:5000/b@sha256:2", {"RepoDigests": rows, "Id": "sha256:9"}) == rows[1]
    assert look._pinned("other", {"RepoDigests": [], "Id": "sha256:9"}) == "sha256:9"


def test_no_registry_is_asked_about_an_image_of_the_engine() -> None:
    assert look.lower_manifest("team/train@sha256:" + "a" * 64) is None
    assert look.lower_manifest("sha256:" + "a" * 64) is None


def test_a_configuration_without_values() -> None:
    config = config_of({"Os": "linux", "Config": None, "RootFS": None})
    assert (config.os, config.layers, config.environment) == ("linux", [], {})


def test_a_container_that_does_not_end_is_one_error() -> None:
    class Slow:
        def wait(self, timeout: int) -> dict[str, Any]:
            raise requests.exceptions.ConnectionError(f"Read timed out. (read timeout={timeout})")

    with pytest.raises(BuildError, match="cannot be probed") as failed:
        look._ended(Slow(), "x", 5)
    assert "within 5 seconds" in failed.value.why


def test_rpms_list_has_the_versions_of_a_lock(
    script: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """List each version of a package that is there twice; an epoch of 0 is left out, and a warning is no package."""
    rows = ["bash 5.2-1 x86_64", "vim 2:9-1 x86_64", "tz 0:1-1 noarch", "kernel 5-1 x86_64", "kernel 6-1 x86_64"]
    lines = "\\n".join(["warning: a key is missing", *rows])
    (tmp_path / "rpm").write_text(f"#!/bin/sh\n[ \"$1\" = -qa ] && printf '{lines}\\n'\n")
    (tmp_path / "rpm").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert script.debs() == {}
    found = script.rpms()
    assert found[1] == {"name": "vim", "version": "2:9-1", "architecture": "x86_64"}
    assert script.by_name(found) == {"bash": "5.2-1", "vim": "2:9-1", "tz": "1-1", "kernel": "5-1 and 6-1"}
    (tmp_path / "dpkg-query").write_text("#!/bin/sh\n")  # a mere tool there: no packages, exit code 0
    (tmp_path / "dpkg-query").chmod(0o755)
    assert script.packages() == (script.by_name(found), found)
    (tmp_path / "rpm").write_text("#!/bin/sh\necho bash 5.2-1 x86_64\nexit 1\n")
    assert script.rpms() == []
