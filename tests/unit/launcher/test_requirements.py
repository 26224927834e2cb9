"""Test the reason why a job's requirements.txt cannot be installed: the cause in pip's output, not its consequences."""

import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from programs import imported

FILE = Path(__file__).parents[3] / "dockerfiles/rootfs/sagemaker/trainwright_launch.py"
NO_VERSION = (
    "ERROR: Could not find a version that satisfies the requirement foo==1 (from versions: none)\n"
    "ERROR: No matching distribution found for foo==1\n"
)
TLS = (
    "WARNING: Retrying (Retry(total=0, connect=None, read=None, redirect=None)) after connection broken by "
    "'SSLError(SSLCertVerificationError(1, '[SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed: self-signed "
    "certificate (_ssl.c:992)'))': /simple/foo/\n"
    "Could not fetch URL https://index.example/simple/foo/: There was a problem confirming the ssl certificate: "
    "[SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed: self-signed certificate (_ssl.c:992) - skipping\n"
)
NAME = (
    "WARNING: Retrying (Retry(total=0, connect=None, read=None, redirect=None)) after connection broken by "
    "'NameResolutionError(\"Failed to resolve 'nosuch.invalid'\")': /simple/foo/\n"
)
CONFLICT = (
    "ERROR: Cannot install numpy==0.0.1 because these package versions have conflicting dependencies.\n\n"
    "The conflict is caused by:\n    The user requested numpy==0.0.1\n    The user requested (constraint) numpy==2.3\n"
)


@pytest.fixture
def launch(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Import the module that an image's toolkit loads, beside a stand-in for the toolkit."""
    toolkit = ModuleType("sagemaker_training")
    for name in ("_entry_point_type", "entry_point", "environment", "errors", "files", "params"):
        module = ModuleType(f"sagemaker_training.{name}")
        module.__dict__.update(dict.fromkeys(("MPI_ENABLED", "InstallRequirementsError", "Environment"), name))
        setattr(toolkit, name, module)
    monkeypatch.setitem(sys.modules, "sagemaker_training", toolkit)
    monkeypatch.setattr(toolkit.errors, "InstallRequirementsError", Exception)
    return imported(FILE)


@pytest.mark.parametrize(
    ("said", "why"),
    [
        pytest.param(TLS + NO_VERSION, "CERTIFICATE_VERIFY_FAILED", id="a CA it does not know"),
        pytest.param(NAME + NO_VERSION, "nosuch.invalid", id="a name that is none"),
    ],
)
def test_an_index_that_cannot_be_asked_is_no_conflict(launch: Any, said: str, why: str) -> None:
    first, second, *_ = launch.reason(said, "exit status 1").splitlines()
    assert "constraint" not in first
    assert "index" in first
    assert why in second


def test_only_a_conflict_names_the_constraints(launch: Any) -> None:
    assert "(constraint: the versions that the image was tested with)" in launch.reason(CONFLICT, "").splitlines()[0]
    for said in (NO_VERSION, "", "ERROR: Could not open requirements file\n"):
        told = launch.reason(said, "exit status 1")
        assert "constraint" not in told
        assert (said or "exit status 1") in told
