"""Containers of the image under test with all GPUs of this host; without a GPU each test says that it was not run."""

import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from docker.types import DeviceRequest

from trainwright.docker import engine

PROGRAMS = Path(__file__).parent / "programs"
LIMIT_SECONDS = 300


@pytest.fixture(scope="session")
def gpus() -> int:
    """The GPUs that the host's driver lists."""
    try:
        listed = subprocess.run(["nvidia-smi", "--list-gpus"], capture_output=True, text=True, check=False).stdout
    except OSError:
        listed = ""
    found = listed.count("GPU ")
    if not found:
        pytest.skip("not run: this host has no NVIDIA GPU (nvidia-smi --list-gpus names none)")
    return found


@pytest.fixture
def on_gpus(gpus: int, image: str, pack: Callable[[Mapping[str, bytes]], bytes]) -> Callable[..., tuple[int, str]]:
    """Run a command in the image with all GPUs; return its exit code and its output."""

    def on_gpus(*command: str, environment: Mapping[str, str] | None = None) -> tuple[int, str]:
        files = {f"/programs/{path.name}": path.read_bytes() for path in PROGRAMS.iterdir() if path.is_file()}
        labels, everything = {"io.trainwright.test": "gpu"}, [DeviceRequest(count=-1, capabilities=[["gpu"]])]
        started = engine.client().containers.create(
            image,
            command=list(command),
            device_requests=everything,
            labels=labels,
            environment=dict(environment or {}),
            shm_size="1g",
        )
        try:
            started.put_archive("/", pack(files))
            started.start()
            return started.wait(timeout=LIMIT_SECONDS)["StatusCode"], started.logs().decode(errors="replace")
        finally:
            started.remove(force=True, v=True)

    return on_gpus
