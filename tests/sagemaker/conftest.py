"""Run jobs in the local mode of the SageMaker SDK, which runs an image under Docker Compose.

Each version of the SDK has its own virtual environment, which `make test-sdk` makes. No test calls AWS.
"""

import json
import os
import re
import shutil
import subprocess
import tarfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
LIMIT_SECONDS = 300
NOT_RUN = "not run: "
# Both versions send a line about each call to Amazon unless this says no.
NO_TELEMETRY = "SchemaVersion: '1.0'\nSageMaker: {PythonSDK: {Modules: {TelemetryOptOut: true}}}\n"


@dataclass
class Outcome:
    code: int  # of the program that called the SDK
    said: str
    result: dict[str, Any]  # what rank 0 left in its model, as the SDK handed it over
    failure: str  # /opt/ml/output/failure of all hosts
    seconds: float


def compose() -> list[str] | None:
    """Return the command of Docker Compose, found as the SDKs do; None if it is missing."""
    plugin = subprocess.run(["docker", "compose", "version"], capture_output=True, text=True)
    if plugin.returncode == 0 and re.search(r"version v?([2-9]|\d\d)", plugin.stdout):
        return ["docker", "compose"]
    return ["docker-compose"] if shutil.which("docker-compose") else None


@pytest.fixture(scope="session")
def sdk(pytestconfig: pytest.Config) -> Callable[[str], Path]:
    """Return a function that returns the Python with a version of the SDK: v2 or v3."""

    def python(version: str) -> Path:
        found = Path(pytestconfig.getoption("--sdk") or ROOT / ".sdk", version, "bin/python")
        if not found.exists():
            pytest.skip(f"{NOT_RUN}no SageMaker SDK {version} in {found.parents[1]}; make test-sdk installs it")
        return found

    return python


@pytest.fixture
def local_mode(
    image: str, sdk: Callable[[str], Path], tmp_path: Path, record_property: Callable[[str, object], None]
) -> Iterator[Callable[..., Outcome]]:
    """Run a job: local_mode("v3", "ranks_mpi.py", hosts=2, distribution={"mpi": {...}}). Each test runs one.

    The job's containers and network are always removed afterwards.
    """
    found = compose()
    if found is None:
        pytest.skip(f"{NOT_RUN}there is no Docker Compose, which the SDKs' local mode wants")
    (tmp_path / "config.yaml").write_text(NO_TELEMETRY)
    folder = tmp_path / f"sdk{os.getpid()}"  # Compose names containers after it
    folder.mkdir()
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith(("AWS_", "SAGEMAKER_"))},
        "SAGEMAKER_ADMIN_CONFIG_OVERRIDE": str(tmp_path / "config.yaml"),
        "SAGEMAKER_USER_CONFIG_OVERRIDE": str(tmp_path / "config.yaml"),
        "AWS_EC2_METADATA_DISABLED": "true",
        "AWS_CONFIG_FILE": os.devnull,
        "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
        "AWS_DEFAULT_REGION": "us-east-1",
    }

    def run(
        version: str,
        script: str,
        hosts: int = 1,
        distribution: Mapping[str, Any] | None = None,
        given: Mapping[str, str] | None = None,
        hyperparameters: Mapping[str, Any] | None = None,
    ) -> Outcome:
        job = {
            "image": image,
            "script": script,
            "code": str(HERE / "job"),
            "folder": str(folder),
            "hosts": hosts,
            "distribution": distribution or {},
            "environment": given or {},
            "hyperparameters": hyperparameters or {},
        }
        command = [str(sdk(version)), str(HERE / f"local_{version}.py"), json.dumps(job)]
        began = time.monotonic()
        with (tmp_path / "said").open("w+") as said:
            done = subprocess.run(
                command, stdout=said, stderr=subprocess.STDOUT, env=environment, cwd=tmp_path, timeout=LIMIT_SECONDS
            )
        seconds = round(time.monotonic() - began, 1)
        record_property("seconds", seconds)
        failures = sorted(folder.rglob("failure"))
        return Outcome(
            done.returncode,
            (tmp_path / "said").read_text(errors="replace"),
            model(folder),
            "\n".join(path.read_text(errors="replace") for path in failures),
            seconds,
        )

    try:
        yield run
    finally:
        for file in folder.rglob("docker-compose.yaml"):
            subprocess.run([*found, "-f", file, "down", "--volumes", "--remove-orphans", "--timeout", "1"], check=True)


def model(folder: Path) -> dict[str, Any]:
    """Return result.json from the model that the SDK packed; {} if it does not exist."""
    for packed in folder.rglob("model.tar.gz"):
        with tarfile.open(packed) as archive:
            for entry in archive:
                if entry.name == "result.json" and (file := archive.extractfile(entry)):
                    found: dict[str, Any] = json.loads(file.read())
                    return found
    return {}
