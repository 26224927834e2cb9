"""Run `trainwright-check` on this host: its output, where it appears, and its exit code."""

import compileall
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from trainwright.image import preflight_settings
from trainwright.matrix.matrix import Intent

OWN = Path(__file__).parents[3] / "dockerfiles/rootfs/common/opt/trainwright"
HOSTS = {"TRAINWRIGHT_HOSTS": "localhost,127.0.0.1", "TRAINWRIGHT_HOST": "localhost"}
SEVERAL = {**HOSTS, "TRAINWRIGHT_PEER_WAIT": "0", "TRAINWRIGHT_EFA": "0"}
NOBODY = {**SEVERAL, "TRAINWRIGHT_HOSTS": "localhost,nobody.invalid"}
ON_EFA = {**SEVERAL, "TRAINWRIGHT_EFA": "", "TRAINWRIGHT_INSTANCE": "ml.p5.48xlarge"}
Check = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="session")
def compiled(memory: Path) -> Path:
    """Compile the preflight once: each start of it writes nothing, as in an image."""
    folder = memory / "preflight"
    shutil.copytree(OWN / "preflight", folder, ignore=shutil.ignore_patterns("__pycache__"))
    compileall.compile_dir(folder, quiet=2)
    return folder


@pytest.fixture
def own(tmp_path: Path, intent: Intent, compiled: Path) -> Path:
    """Make a copy of /opt/trainwright as in an image without a framework."""
    shutil.copytree(compiled, tmp_path / "preflight")
    text = (OWN / "startup_check.py").read_text().replace("/opt/trainwright/", f"{tmp_path}/")
    (tmp_path / "startup_check.py").write_text(text)
    facts: dict[str, Any] = {"version": "1.0", "says": "1.0", "at_start": True, "libraries": [], "symbol": ""}
    facts |= {"variables": {}, "probe": {"code": "print('version 1.0')", "pattern": r"version (\S+)"}}
    components = {"own": facts, "libfabric": {**facts, "at_start": False}}
    content = {"id": "tiny", "accelerator": "cpu", "components": components, "python": {}, "may_move": []}
    (tmp_path / "declared.json").write_text(json.dumps(content))
    (tmp_path / "libraries.json").write_text("{}")
    (tmp_path / "preflight.json").write_text(preflight_settings.text(intent, {}))
    return tmp_path


@pytest.fixture
def check(own: Path) -> Check:
    def check(*words: str, **environment: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-IB", str(own / "preflight"), *words]
        environment = {**os.environ, **environment}
        return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)

    return check


def test_one_host(check: Check) -> None:
    done = check()
    assert done.returncode == 0, done.stderr
    assert "preflight: ok       efa " in done.stderr
    assert "one host: nothing goes over the network" in done.stderr
    assert "trainwright-check: tiny matches its declaration" in done.stderr
    assert done.stdout == ""


@pytest.mark.parametrize(
    ("environment", "code", "words"),
    [
        (ON_EFA, 10, "preflight: refused  efa"),
        ({**ON_EFA, "TRAINWRIGHT_ALLOW_TCP": "1"}, 0, "preflight: warning  efa"),
        ({**ON_EFA, "TRAINWRIGHT_PREFLIGHT": "warn"}, 0, "preflight: warning  efa"),
        ({**ON_EFA, "TRAINWRIGHT_PREFLIGHT": "off"}, 0, "preflight: not run, TRAINWRIGHT_PREFLIGHT=off"),
        ({**ON_EFA, "TRAINWRIGHT_EFA": "0"}, 0, "over TCP: TRAINWRIGHT_EFA=0"),
        ({**SEVERAL, "TRAINWRIGHT_EFA": "1"}, 10, "preflight: refused  efa"),
        (NOBODY, 10, "found none for nobody.invalid"),
        ({"TRAINWRIGHT_PREFLIGHT": "of"}, 2, "TRAINWRIGHT_PREFLIGHT is 'of': expected refuse, warn or off"),
        ({"TRAINWRIGHT_STARTUP_CHECK": "of"}, 2, "TRAINWRIGHT_STARTUP_CHECK is 'of'"),
        ({"TRAINWRIGHT_ALLOW_TCP": "yes"}, 2, "TRAINWRIGHT_ALLOW_TCP is 'yes': expected 1, 0 or no value"),
        ({"TRAINWRIGHT_PEER_WAIT": "nan"}, 2, "TRAINWRIGHT_PEER_WAIT is 'nan'"),
        ({"TRAINWRIGHT_STARTUP_CHECK": "off"}, 0, "not run, TRAINWRIGHT_STARTUP_CHECK=off"),
    ],
)
def test_how_it_ends(check: Check, environment: dict[str, str], code: int, words: str) -> None:
    """Without the startup check, which test_one_host has: it starts programs of the image."""
    done = check(**{"TRAINWRIGHT_STARTUP_CHECK": "off", **environment})
    assert done.returncode == code, done.stderr
    assert words in done.stderr
    assert "Traceback" not in done.stderr


def test_a_changed_image_ends_with_5_whatever_the_host_lacks(check: Check, own: Path) -> None:
    path = own / "declared.json"
    path.write_text(path.read_text().replace('"says": "1.0"', '"says": "2.0"', 1))
    done = check(**ON_EFA)
    assert done.returncode == 5, done.stderr
    assert "component own: declared 2.0, found 1.0" in done.stderr.splitlines()[1]
    assert "preflight: refused  efa" in done.stderr


def test_what_a_machine_reads(check: Check) -> None:
    done = check("--json", **ON_EFA)
    said = json.loads(done.stdout)
    assert done.returncode == said["code"] == 10
    assert [one["level"] for one in said["findings"] if one["check"] == "efa"] == ["refused"]
    assert done.stderr == ""


def test_words_that_it_does_not_know(check: Check) -> None:
    assert check("--jsn").returncode == 2


@pytest.mark.waits
def test_the_wait_for_names_has_an_end_and_is_not_begun_where_the_host_is_refused(check: Check) -> None:
    done = check(**{**NOBODY, "TRAINWRIGHT_PEER_WAIT": "2"})
    assert "expected addresses of 2 host names after 2 s" in done.stderr
    done = check(**{**NOBODY, "TRAINWRIGHT_EFA": "1", "TRAINWRIGHT_PEER_WAIT": "600"})
    assert done.returncode == 10
    assert "preflight: unknown  peers" in done.stderr


def test_a_preflight_that_fails_itself_is_unknown(check: Check, own: Path) -> None:
    (own / "libraries.json").write_text('{"/lib/x.so": {"component": "aws-ofi-nccl", "sha256": "", "names": []}}')
    path = own / "preflight/host_facts.py"
    path.write_text(path.read_text().replace("def dmi(", "def another(", 1))
    done = check(TRAINWRIGHT_STARTUP_CHECK="off")
    assert done.returncode == 0
    assert "preflight: unknown  preflight  the preflight itself failed: NameError" in done.stderr


def test_recording_goes_on_to_work(check: Check, own: Path) -> None:
    done = check("--record")
    assert done.returncode == 0, done.stderr
    assert json.loads((own / "libraries.json").read_text()) == {}
    done = check("--libraries", json.dumps({"components": {}}))
    assert json.loads(done.stdout) == {}
