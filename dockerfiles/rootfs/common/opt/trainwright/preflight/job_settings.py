"""What the job is, and what somebody said about it: TRAINWRIGHT_* first, then what SageMaker wrote."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

MODES = ("refuse", "warn", "off")
YES_OR_NO = {"": None, "1": True, "0": False}


class SettingError(Exception):
    """A variable that says nothing sensible; the text says what would be."""


@dataclass(frozen=True)
class Settings:
    mode: str
    hosts: tuple[str, ...]  # () where nobody named any: one host
    host: str
    peers: tuple[str, ...]  # names that must lead to a host; those of `hosts` where nobody says it
    processes: int  # on this host; 0: it only starts those of others
    interface: str
    distribution: str
    allow_tcp: bool
    efa: bool | None
    instance: str  # without `ml.`; "" where nobody said it
    told_by: str
    wait: float  # seconds, for names of hosts


def settings(environ: Mapping[str, str], resources: Mapping[str, Any], local: list[str], wait: float) -> Settings:
    """`resources` is SageMaker's resourceconfig.json or {}, `wait` how long peers may take where nobody says it.

    Raises SettingError.
    """
    hosts = names(environ, "TRAINWRIGHT_HOSTS")
    host = environ.get("TRAINWRIGHT_HOST", "")
    if not hosts:
        hosts, host = group(resources), host or str(resources.get("current_host", ""))
    if host and hosts and host not in hosts:
        raise SettingError(f"TRAINWRIGHT_HOST is {host!r}, which is none of TRAINWRIGHT_HOSTS: {', '.join(hosts)}")
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
    """The hosts of this host's instance group, which are those that train together; else all of them."""
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
        raise SettingError(f"{name} is {value!r}: {', '.join(values[:-1])} or {values[-1]}")
    return value


def yes_or_no(environ: Mapping[str, str], name: str) -> bool | None:
    value = environ.get(name, "")
    if value not in YES_OR_NO:
        raise SettingError(f"{name} is {value!r}: 1, 0 or nothing")
    return YES_OR_NO[value]


def number(environ: Mapping[str, str], name: str, otherwise: float, least: float) -> float:
    text = environ.get(name, "")
    try:
        value = float(text) if text else otherwise
    except ValueError:
        value = math.nan
    if not least <= value < math.inf:
        raise SettingError(f"{name} is {text!r}: a number, {least} or more")
    return value
