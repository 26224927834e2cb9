"""Start a Docker engine for a test, with its own data, socket and network, beside this host's engine."""

import atexit
import json
import os
import shutil
import subprocess
import tempfile
import time
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parents[1]
READY_SECONDS = 60
REGISTRY = """\
version: 0.1
log: {{level: info, accesslog: {{disabled: true}}}}
storage: {{filesystem: {{rootdirectory: {data}}}, delete: {{enabled: true}}}}
http: {{addr: "127.0.0.1:{port}"}}
"""


class Engine(NamedTuple):
    host: str  # for DOCKER_HOST
    folder: Path
    pid: int

    def docker(self, *words: str) -> str:
        """Run the docker client and return its output. Raises CalledProcessError."""
        command = ["docker", "--host", self.host, *words]
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=300).stdout.strip()

    def inside(self, *words: str | Path) -> list[str]:
        """Return the command that runs these words in the engine's network."""
        return ["nsenter", f"--net=/proc/{self.pid}/ns/net", *map(str, words)]


@cache
def _docker_registry() -> list[str | Path]:
    """Return the command of the registry that serves loopback: it runs in any network and starts at once."""
    from trainwright.build import loopback, programs
    from trainwright.core.errors import EnvironmentProblem

    folder = Path(tempfile.mkdtemp(prefix="trainwright-registry-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    try:
        programs.unpack(ROOT, ROOT / loopback.FILES, folder)
    except EnvironmentProblem as problem:
        pytest.skip(f"not run: {problem.what}: {problem.why}")
    return programs.command(folder, "docker-registry")


@contextmanager
def registry_in(folder: Path, port: int, engine: Engine | None = None) -> Iterator[str]:
    """Run a docker-registry with its data in a folder, in an engine's network if one is given; yield host:port."""
    (folder / "config.yml").write_text(REGISTRY.format(data=folder / "data", port=port))
    command = [*_docker_registry(), "serve", folder / "config.yml"]
    log = folder / "registry.log"
    with log.open("w") as said:
        server = subprocess.Popen(engine.inside(*command) if engine else command, stderr=said, stdout=said)
    try:
        for _ in range(200):
            if server.poll() is not None:
                raise RuntimeError(f"docker-registry does not start: {log.read_text()}")
            if "listening on" in log.read_text():
                break
            time.sleep(0.05)
        yield f"127.0.0.1:{port}"
    finally:
        server.terminate()
        server.wait()


@contextmanager
def engine_of_its_own(containerd: bool = True) -> Iterator[Engine]:
    """Start an engine beside this host's; remove it afterwards with all its images. It has its own network.

    Two engines on one bridge would take each other's addresses. `containerd` chooses the image store.
    """
    prefix = tomllib.loads((ROOT / "dockerfiles/host.toml").read_text())["prefix"]
    path = f"{prefix}/bin{os.pathsep}{os.environ['PATH']}"
    programs = ("dockerd", "containerd", "ip", "nsenter", "unshare")
    if missing := [name for name in programs if not shutil.which(name, path=path)]:
        pytest.skip(f"not run: a second engine wants {missing[0]}")
    if subprocess.run(["unshare", "--net", "--mount", "true"], capture_output=True).returncode:
        pytest.skip("not run: a second engine takes root")
    folder = Path(tempfile.mkdtemp(prefix="tw-engine-"))  # short: a socket's path has an end
    (folder / "daemon.json").write_text(json.dumps({"features": {"containerd-snapshotter": containerd}}))
    options = f"--config-file {folder}/daemon.json --data-root {folder}/data --exec-root {folder}/exec"
    start = f"ip link set lo up && exec dockerd {options} --pidfile {folder}/pid --host unix://{folder}/socket"
    with (folder / "log").open("w") as log:
        daemon = subprocess.Popen(
            ["unshare", "--net", "--mount", "sh", "-c", start], stdout=log, stderr=log, env={**os.environ, "PATH": path}
        )
    made = Engine(f"unix://{folder}/socket", folder, daemon.pid)
    try:
        _wait(made, daemon)
        yield made
    finally:
        daemon.terminate()
        daemon.wait(60)
        shutil.rmtree(folder, ignore_errors=True)


def _wait(made: Engine, daemon: "subprocess.Popen[bytes]") -> None:
    end = time.monotonic() + READY_SECONDS
    while time.monotonic() < end and daemon.poll() is None:
        try:
            made.docker("version")
            return
        except subprocess.CalledProcessError:
            time.sleep(0.2)
    raise RuntimeError((made.folder / "log").read_text()[-2000:])
