"""Run the registry on loopback: docker-registry of a locked package, in a container that runs as the user."""

import hashlib
import http.client
import os
import shutil
import socket
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from trainwright.build import programs
from trainwright.core import host_settings, store
from trainwright.core.errors import BuildError, EnvironmentProblem
from trainwright.core.files import write
from trainwright.core.process import run
from trainwright.core.progress import Say
from trainwright.docker import engine

FILES = "dockerfiles/registry"
NAME = "trainwright-registry"
HEADER = "X-Trainwright-Registry"  # in every answer: identifies image and folder
INSIDE = "5000/tcp"  # the port in dockerfiles/registry/config.yml
TAKEN = ("address already in use", "port is already allocated", "ports are not available")  # the engine's messages


# --- what runs -------------------------------------------------------------------------------------------------------


def image(root: Path) -> str:
    """Return the image's name; its tag is the digest of its inputs."""
    hasher = hashlib.sha256()
    for name in ("packages.toml", "Dockerfile", "config.yml"):
        hasher.update((root / FILES / name).read_bytes())
    return f"trainwright/registry:{hasher.hexdigest()[:16]}"


def _build(root: Path, name: str) -> None:
    architecture = str(engine.client().version()["Arch"])
    with store.scratch() as folder:
        context = folder / "context"
        programs.unpack(root, root / FILES, context, architecture)
        shutil.copyfile(root / FILES / "config.yml", context / "config.yml")
        run(
            [
                *(engine.buildx(), "build", "--load", "--provenance=false", "--network=none", "--quiet"),
                *("--file", root / FILES / "Dockerfile", "--tag", name, context),
            ],
            error=BuildError,
            what="the image of the registry cannot be built",
            fix="make doctor",
        )


# --- the container ---------------------------------------------------------------------------------------------------


def _identity(root: Path, data: Path) -> str:
    return hashlib.sha256(f"{image(root)} {data}".encode()).hexdigest()[:16]


def _container(data: Path) -> Any:
    """Return the container that serves a folder, running or not; None if there is none."""
    import docker

    with engine.told("the engine cannot be queried for the registry"):
        try:
            return engine.client().containers.get(_name(data))
        except docker.errors.NotFound:
            return None


def _name(data: Path) -> str:
    """Return the container's name for a folder; because the engine refuses a second one, a folder has one container."""
    return f"{NAME}-{hashlib.sha256(str(data).encode()).hexdigest()[:8]}"


def _port(container: Any) -> int:
    return int(container.attrs["HostConfig"]["PortBindings"][INSIDE][0]["HostPort"])


def _serves(address: str, identity: str) -> bool:
    """Return whether our registry, and not another server, answers at the address."""
    asked = http.client.HTTPConnection(address, timeout=2)
    try:
        asked.request("GET", "/v2/")
        return asked.getresponse().getheader(HEADER) == identity
    except (OSError, http.client.HTTPException):
        return False
    finally:
        asked.close()


def answers(root: Path) -> bool:
    """Return whether our registry runs with the present image and folder; the engine is not queried."""
    return _serves(host_settings.registry_address(root), _identity(root, host_settings.registry_data()))


def _used(host: str, port: int) -> bool:
    with suppress(OSError), socket.create_connection((host, port), 1):
        return True
    return False


def up(root: Path, say: Say = lambda _: None) -> str:
    """Start the registry unless it runs, and build its image if missing; return its host:port.

    Raises ConfigError if the port is invalid, EnvironmentProblem, BuildError.
    """
    data, address = host_settings.registry_data(), host_settings.registry_address(root)
    identity = _identity(root, data)
    if _serves(address, identity):
        return address
    settings, asked = host_settings.host(root).registry, host_settings.registry_port(root)
    found = _container(data)
    if found is not None:
        runs, port = found.status == "running", _port(found)
        if runs and asked not in (None, port):
            raise EnvironmentProblem(
                f"the registry already runs at {settings.host}:{port}, not at {address}",
                fix=f"use that one, or move it:  trainwright registry down && TRAINWRIGHT_REGISTRY_PORT={asked} "
                "trainwright registry up",
            )
        if runs and identity in found.attrs["Config"]["Labels"].values():
            return _ready(found, settings, identity, data)
        found.remove(force=True)  # stopped with its engine, or of an older image
    try:
        data.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        fix = "use another one:  TRAINWRIGHT_REGISTRY_DATA=/some/folder"
        raise EnvironmentProblem(
            "the registry's folder cannot be created", where=str(data), why=str(error), fix=fix
        ) from None
    if engine.image_id(image(root)) is None:
        say("building the registry's image")
        _build(root, image(root))
    first = int(address.rpartition(":")[2])
    ports = [first] if asked else [first, *range(settings.port, settings.port + settings.other_ports + 1)]
    for port in ports:
        if _used(settings.host, port):
            continue
        say(f"Starting a registry at {settings.host}:{port}, data in {data}")
        if started := _start(image(root), data, (settings.host, port), identity):
            return _ready(started, settings, identity, data)
    raise EnvironmentProblem(
        f"port {first} on {settings.host} is in use by another program"
        if asked
        else f"no port of {settings.host} from {ports[1]} to {ports[-1]} is free",
        fix=f"take another port:  TRAINWRIGHT_REGISTRY_PORT={ports[-1] + 1}\n"
        "or use a registry that you have:  REGISTRY=host:port",
    )


def _start(name: str, data: Path, place: tuple[str, int], identity: str) -> Any:
    """Start and return the container; None if the port was taken in the meantime."""
    import docker

    rootless = any("rootless" in word for word in engine.client().info().get("SecurityOptions") or [])
    made = None
    try:
        made = engine.client().containers.create(
            name,
            name=_name(data),
            user="0:0" if rootless else f"{os.getuid()}:{os.getgid()}",  # root of a rootless engine is its user
            ports={INSIDE: place},
            volumes={str(data): {"bind": "/data", "mode": "rw"}},
            environment={"REGISTRY_HTTP_HEADERS": f"{{{HEADER}: [{identity}]}}"},
            labels={"io.trainwright.registry": identity},
            cap_drop=["ALL"],
            security_opt=["label=disable"],  # SELinux would want the folder relabelled
        )
        made.start()
    except docker.errors.APIError as error:
        said = str(error.explanation or error)
        if made is None and error.status_code == http.client.CONFLICT:  # another process started it first
            return _container(data)
        if made is not None:
            made.remove(force=True)
        if any(words in said.lower() for words in TAKEN):
            return None
        raise EnvironmentProblem("the registry's container does not start", why=said, fix="make doctor") from None
    return made


def _ready(container: Any, settings: host_settings.HostRegistry, identity: str, data: Path) -> str:
    container.reload()
    port = _port(container)
    address = f"{settings.host}:{port}"
    end = time.monotonic() + settings.ready_seconds
    while not _serves(address, identity):
        container.reload()
        if container.status in ("exited", "dead") or time.monotonic() > end:
            last = container.logs(tail=5).decode(errors="replace")
            raise EnvironmentProblem(
                f"the registry at {address} does not start",
                why=last
                or f"its container is {container.status}, and the registry does not answer there; "
                "an engine on another machine cannot serve this one's loopback",
                fix=f"docker logs {container.name}; or use a registry that you have:  REGISTRY=host:port",
            )
        time.sleep(0.02)
    write(data / "port", f"{port}\n")
    return address


def down() -> str:
    """Stop the registry; its data stays. Return the name of its container, "" if there was none."""
    found = _container(host_settings.registry_data())
    if found is None:
        return ""
    with engine.told(f"{found.name} cannot be stopped"):
        found.stop(timeout=10)
        found.remove(force=True)
    return str(found.name)


def status(root: Path) -> dict[str, Any]:
    """Return whether and where the registry runs, its container, its folder and the folder's size in bytes."""
    data, address = host_settings.registry_data(), host_settings.registry_address(root)
    found = _container(data)
    runs = found is not None and found.status == "running"
    if runs:
        host = address.rpartition(":")[0]
        address = f"{host}:{_port(found)}"
    return {
        "running": runs,
        "address": address,
        "container": found.name if found is not None else "",
        "data": str(data),
        "bytes": held_in(data),
    }


def held_in(folder: Path) -> int:
    """Return the bytes of all files below a folder; a running registry may remove files during the count."""
    size = 0
    for place, _, names in os.walk(folder):
        for name in names:
            with suppress(FileNotFoundError):
                size += Path(place, name).lstat().st_size
    return size


def status_lines(said: Mapping[str, Any]) -> list[str]:
    """Format status() for people, one line each."""
    host, _, port = said["address"].rpartition(":")
    if said["running"]:
        line = f"{said['address']}, container {said['container']}; stop it:  trainwright registry down"
    elif _used(host, int(port)):
        line = f"not running; port {port} is in use by another program"
    else:
        line = "not running; start it:  trainwright registry up"
    lines = [f"registry  {line}", f"data      {said['data']} ({said['bytes'] / 1e6:.0f} MB)"]
    return [*lines, f"log       docker logs {said['container']}"] if said["container"] else lines
