"""Read this host's settings from `dockerfiles/host.toml` and the environment."""

import ast
import os
import sys
from collections import ChainMap
from contextlib import suppress
from functools import cache
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from trainwright.core.errors import ConfigError, LockError
from trainwright.core.process import run
from trainwright.core.toml import Model, load


class HostRegistry(Model):
    host: str
    port: int
    other_ports: int
    ready_seconds: int


class HostEngine(BaseModel):
    """The part of [engine] that is validated here; `scripts/engine.py` reads the rest."""

    model_config = ConfigDict(frozen=True)
    minimum: str
    buildx_minimum: str
    check_minimum: str
    check_buildx_minimum: str


class HostDisk(Model):
    """The disk space of builds beyond their sources, in multiples of the sources' compressed size.

    `listing` is a multiple of one image's sources, because images are listed one after the other.
    """

    store: float
    listing: float
    engine: float


class HostJob(Model):
    """Settings of a local training job: size of /dev/shm as Docker writes it, and seconds from SIGTERM to SIGKILL."""

    shm: str
    stop_seconds: int


class HostProve(Model):
    """Settings of `trainwright prove`: disk space to keep free, and how long an interrupted build may take to end.

    `cache_between` is build cache kept between two images, as buildx writes sizes. `rest_gb` is free disk that a proof
    needs beyond `disk`. With less than `low_gb` free, build cache is removed while a proof runs.
    """

    cache_between: str
    stop_seconds: int
    look_seconds: float
    low_gb: float
    rest_gb: float
    disk: HostDisk


class Host(BaseModel):
    """The whole of host.toml; scripts read the tables that are not declared here."""

    model_config = ConfigDict(frozen=True)
    engine: HostEngine
    registry: HostRegistry
    disk: HostDisk
    job: HostJob
    prove: HostProve


def host(root: Path) -> Host:
    return load(root / "dockerfiles/host.toml", Host)


@cache
def pip_settings() -> dict[str, str]:
    """Return pip's effective settings on this host (files and environment), such as `extra-index-url`, unparsed."""
    scopes: dict[str, dict[str, str]] = {"global": {}, "download": {}, "install": {}, ":env:": {}}  # the last one wins
    listed = run(
        [sys.executable, "-m", "pip", "config", "list"],
        error=LockError,
        what="pip's configuration cannot be read",
        fix="make setup",
    )
    for line in listed.splitlines():
        key, _, value = line.partition("=")
        scope, _, name = key.rpartition(".")
        if scope in scopes:
            scopes[scope][name] = str(ast.literal_eval(value))
    return dict(ChainMap(*reversed(scopes.values())))


def registry_data() -> Path:
    """Return the folder where the loopback registry stores its data."""
    home = Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local/share")
    return Path(os.environ.get("TRAINWRIGHT_REGISTRY_DATA") or home / "trainwright/registry").absolute()


def registry_port(root: Path) -> int | None:
    """Return TRAINWRIGHT_REGISTRY_PORT, or None if it is not set. Raises ConfigError for an invalid port."""
    port = os.environ.get("TRAINWRIGHT_REGISTRY_PORT")
    if not port:
        return None
    if not (port.isascii() and port.isdigit() and len(port) <= 5 and 0 < int(port) < 65536):
        raise ConfigError(
            f"TRAINWRIGHT_REGISTRY_PORT={port!r} is not a port number",
            fix=f"export TRAINWRIGHT_REGISTRY_PORT={host(root).registry.port}",
        )
    return int(port)


def registry_address(root: Path) -> str:
    """Return host:port of the loopback registry: the requested port, else that of its last start, else host.toml's.

    Raises ConfigError for an invalid port.
    """
    settings, asked = host(root).registry, registry_port(root)
    with suppress(OSError, ValueError):
        asked = asked or int((registry_data() / "port").read_text())
    return f"{settings.host}:{asked or settings.port}"


def aws_account() -> str:
    """Return the setting or file that configures an AWS account here, or "" if there is none. Uses no network."""
    for name in (
        "AWS_PROFILE",
        "AWS_DEFAULT_PROFILE",
        "AWS_ACCESS_KEY_ID",
        "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
        "AWS_CONTAINER_CREDENTIALS_FULL_URI",
        "AWS_ROLE_ARN",
    ):
        if os.environ.get(name):
            return name
    for setting, default in (
        ("AWS_SHARED_CREDENTIALS_FILE", "~/.aws/credentials"),
        ("AWS_CONFIG_FILE", "~/.aws/config"),
    ):
        file = Path(os.environ.get(setting, default)).expanduser()
        if file.exists():
            return str(file)
    return ""
