"""Read the job's settings: from TRAINWRIGHT_* variables first, then from SageMaker's resourceconfig.json."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

MODES = ("refuse", "warn", "off")
YES_OR_NO = {"": None, "1": True, "0": False}


class SettingError(Exception):
    """Raised for an invalid variable or argument; the text names the valid values."""


@dataclass(frozen=True)
class Settings:
    mode: str
    hosts: tuple[str, ...]  # (): none named, so one host
    host: str
    peers: tuple[str, ...]  # host names that must resolve; default: `hosts`
    processes: int  # on this host; 0: it only starts those of other hosts
    interface: str
    distribution: str
    allow_tcp: bool
    efa: bool | None
    instance: str  # type without `ml.`; "" if not given
    told_by: str  # the source of `instance`
    wait: float  # seconds until the host names have to resolve


def settings(environ: Mapping[str, str], resources: Mapping[str, Any], local: list[str], wait: float) -> Settings:
    """Return the job's settings.

    `resources`: SageMaker's resourceconfig.json, or {}. `local`: instance types that SageMaker's local mode reports.
    `wait`: default of TRAINWRIGHT_PEER_WAIT in seconds. Raises SettingError for an invalid value.
    """
    hosts = names(environ, "TRAINWRIGHT_HOSTS")
    host = environ.get("TRAINWRIGHT_HOST", "")
    if not hosts:
        hosts, host = group(resources), host or str(resources.get("current_host", ""))
    if host and hosts and host not in hosts:
        raise SettingError(f"TRAINWRIGHT_HOST is {host!r}, which TRAINWRIGHT_HOSTS does not name: {', '.join(hosts)}")
    if len(set(hosts)) < len(hosts):
        raise SettingError(f"TRAINWRIGHT_HOSTS names a host twice: {', '.join(hosts)}")
    named, told_by = environ.get("TRAINWRIGHT_INSTANCE", ""), "TRAINWRIGHT_INSTANCE"
    if not named:
        named, told_by = str(resources.get("current_instance_type", "")), "resourceconfig.json"
    instance = named.removeprefix("ml.")
    if instance in local:
        instance, told_by = "", f"{told_by} says {instance}"
    elif not instance:
        told_by = ""
    return Settings(
        mode=one_of(environ, "TRAINWRIGHT_PREFLIGHT", MODES),
        hosts=hosts,
        host=host,
        peers=names(environ, "TRAINWRIGHT_PEERS") or hosts,
        processes=int(number(environ, "TRAINWRIGHT_PROCESSES", 1, least=0)),
        interface=environ.get("TRAINWRIGHT_INTERFACE", ""),
        distribution=environ.get("TRAINWRIGHT_DISTRIBUTION", ""),
        allow_tcp=bool(yes_or_no(environ, "TRAINWRIGHT_ALLOW_TCP")),
        efa=yes_or_no(environ, "TRAINWRIGHT_EFA"),
        instance=instance,
        told_by=told_by,
        wait=number(environ, "TRAINWRIGHT_PEER_WAIT", wait, least=0),
    )


def group(resources: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the hosts of this host's instance group, because each group is one job; without groups, all hosts."""
    own = resources.get("current_group_name")
    for one in resources.get("instance_groups") or []:
        if one.get("instance_group_name") == own:
            return tuple(map(str, one.get("hosts") or ()))
    return tuple(map(str, resources.get("hosts") or ()))


def names(environ: Mapping[str, str], variable: str) -> tuple[str, ...]:
    return tuple(word.strip() for word in environ.get(variable, "").split(",") if word.strip())


def one_of(environ: Mapping[str, str], name: str, values: tuple[str, ...]) -> str:
    value = environ.get(name) or values[0]
    if value not in values:
        raise SettingError(f"{name} is {value!r}: expected {', '.join(values[:-1])} or {values[-1]}")
    return value


def yes_or_no(environ: Mapping[str, str], name: str) -> bool | None:
    value = environ.get(name, "")
    if value not in YES_OR_NO:
        raise SettingError(f"{name} is {value!r}: expected 1, 0 or no value")
    return YES_OR_NO[value]


def number(environ: Mapping[str, str], name: str, otherwise: float, least: float) -> float:
    text = environ.get(name, "")
    try:
        value = float(text) if text else otherwise
    except ValueError:
        value = math.nan
    if not least <= value < math.inf:
        raise SettingError(f"{name} is {text!r}: expected a number of {least} or more")
    return value
