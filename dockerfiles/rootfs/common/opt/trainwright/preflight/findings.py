"""Define the input and output of the preflight's checks: facts about host and job, and findings.

A fact that could not be determined is None, and its finding is `unknown`, never `ok`. A finding is `refused` only if
the job would fail later, or would use TCP between hosts that have EFA.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

Json = dict[str, Any]

OK, UNKNOWN, WARNING, REFUSED = "ok", "unknown", "warning", "refused"
WORST_FIRST = (REFUSED, WARNING, UNKNOWN, OK)
UNLIMITED = -1
IMAGE, HOST = 5, 10  # exit codes: the image differs from its declaration; the host lacks what the job needs
ALLOW_TCP = "TRAINWRIGHT_ALLOW_TCP"


@dataclass(frozen=True)
class Finding:
    """Hold one line of the report. `code` is the exit code of the command if the level is `refused`."""

    check: str
    level: str
    found: str
    expected: str = ""
    where: str = ""
    fix: str = ""
    code: int = HOST

    def text(self) -> str:
        if not self.expected:
            return self.found
        place = f" ({self.where})" if self.where else ""
        return f"expected {self.expected}, found {self.found}{place}. Fix: {self.fix}"


@dataclass(frozen=True)
class Facts:
    """Hold the facts about this host and the job. None: could not be determined."""

    # the job
    hosts: tuple[str, ...] = ()  # (): one host
    host: str = ""
    peers: tuple[str, ...] = ()  # host names that must resolve
    processes: int = 1  # on this host
    interface: str = ""
    distribution: str = ""
    allow_tcp: bool = False
    environment: dict[str, str] = field(default_factory=dict)
    # the instance
    instance: str | None = None  # type without `ml.`; "" if this is not an EC2 instance
    told_by: str = ""  # the source of `instance`
    efa_said: bool | None = None  # the value of TRAINWRIGHT_EFA
    # its network
    efa_devices: tuple[str, ...] | None = None  # of the host: /sys/class/infiniband
    uverbs: tuple[str, ...] = ()  # of this container: /dev/infiniband
    providers: tuple[str, ...] | None = None  # libfabric's providers
    efa_answer: str | None = None  # error of `fi_info -p efa`; "" if it finds interfaces
    plugins: dict[str, str | None] = field(default_factory=dict)  # file -> the loader's error, "" if it loads
    cudart: str | None = None  # the loader's error for libcudart.so, by the name that the plugin uses
    interfaces: tuple[str, ...] = ()
    addresses: dict[str, tuple[str, ...]] | None = None  # host of the job -> its IP addresses, () for none
    wait: float = 0  # seconds until the names had to resolve
    # limits
    memlock: int | None = None  # bytes, or UNLIMITED
    pins_anything: bool | None = None  # CAP_IPC_LOCK: memlock does not apply
    nofile: int | None = None
    tasks_left: int | None = None  # processes and threads that may still be started, or UNLIMITED
    shm: int | None = None  # free bytes in /dev/shm
    # GPUs
    gpus: int | None = None
    driver: str = ""  # version of the kernel module; "" if it is not loaded
    cuda_of_driver: int | None = None  # CUDA version as cuDriverGetVersion encodes it: 13020 is 13.2
    libcuda_said: str = ""  # the error if cuda_of_driver is None
    gdrdrv: str = ""  # version of the host's module; "" if it is not loaded
    gdrdrv_device: bool = False


@dataclass(frozen=True)
class Case:
    """Hold the facts and the data that they are judged by: components of declared.json, and preflight.json."""

    facts: Facts
    components: Json
    data: Json

    @property
    def several(self) -> bool:
        return len(self.facts.hosts) > 1

    @property
    def known(self) -> list[int] | None:
        """Return [EFA interfaces, GPUs] of the instance type, or None if this image does not know the type."""
        if self.facts.instance is None:
            return None
        if not self.facts.instance:
            return [0, 0]
        row: list[int] | None = self.data["instances"].get(self.facts.instance)
        return row

    @property
    def interfaces_of_efa(self) -> int | None:
        """Return the expected number of EFA interfaces, or None if unknown.

        It is at least 1 if TRAINWRIGHT_EFA=1 or if the host has EFA devices.
        """
        told, there = self.facts.efa_said, len(self.facts.uverbs) if self.facts.efa_devices else 0
        if told is False:
            return 0
        named = self.known[0] if self.known else None
        if told or there or self.facts.efa_devices:
            return max(named or 0, 1)
        return named

    @property
    def trains_on_gpus(self) -> bool:
        return "cuda" in self.components and bool(self.facts.gpus or (self.known and self.known[1]))

    @property
    def name(self) -> str:
        return self.facts.instance or "this host"


def stricter(case: Case) -> str:
    """Return the level of findings that prevent EFA: `warning` if TCP is allowed, else `refused`."""
    return WARNING if case.facts.allow_tcp else REFUSED
