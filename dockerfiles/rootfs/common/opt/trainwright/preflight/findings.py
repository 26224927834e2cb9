"""What a check is given and what it says: facts, findings, and what both are about. Nothing is read here.

What could not be found out is None in the facts, and `unknown` in the findings, never `ok`. Only what makes a job fail
later, or lets its hosts talk TCP where they have EFA, is `refused`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

Json = dict[str, Any]

OK, UNKNOWN, WARNING, REFUSED = "ok", "unknown", "warning", "refused"
WORST_FIRST = (REFUSED, WARNING, UNKNOWN, OK)
UNLIMITED = -1
IMAGE, HOST = 5, 10  # exit codes: the image is not what it declares; the host does not offer what the job needs
ALLOW_TCP = "TRAINWRIGHT_ALLOW_TCP"


@dataclass(frozen=True)
class Finding:
    """One line of the report; `code` is what the command ends with where it is refused."""

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
        return f"expected {self.expected}, found {self.found}{place}. To go on: {self.fix}"


@dataclass(frozen=True)
class Facts:
    """What is there. None: could not be found out."""

    # the job
    hosts: tuple[str, ...] = ()  # () is one host
    host: str = ""
    peers: tuple[str, ...] = ()  # names that must lead to a host
    processes: int = 1  # on this host
    interface: str = ""
    distribution: str = ""
    allow_tcp: bool = False
    environment: dict[str, str] = field(default_factory=dict)
    # the instance
    instance: str | None = None  # type without `ml.`; "" is no instance of EC2
    told_by: str = ""  # who says so
    efa_said: bool | None = None  # as TRAINWRIGHT_EFA says
    # its network
    efa_devices: tuple[str, ...] | None = None  # of the host: /sys/class/infiniband
    uverbs: tuple[str, ...] = ()  # of this container: /dev/infiniband
    providers: tuple[str, ...] | None = None  # what libfabric has
    efa_answer: str | None = None  # of `fi_info -p efa`: "" where it finds interfaces, else its last words
    plugins: dict[str, str | None] = field(default_factory=dict)  # file to the loader's message, "" where it loads
    cudart: str | None = None  # the same for libcudart.so, as the plugin opens it
    interfaces: tuple[str, ...] = ()
    addresses: dict[str, tuple[str, ...]] | None = None  # host of the job to its addresses; () where it has none
    wait: float = 0  # seconds that they were given
    # limits
    memlock: int | None = None  # bytes, or UNLIMITED
    pins_anything: bool | None = None  # CAP_IPC_LOCK: the limit does not hold
    nofile: int | None = None
    tasks_left: int | None = None  # processes and threads that may still be started, or UNLIMITED
    shm: int | None = None  # bytes that are free in /dev/shm
    # GPUs
    gpus: int | None = None
    driver: str = ""  # version of the kernel module; "" where there is none
    cuda_of_driver: int | None = None  # as cuDriverGetVersion writes it: 13020
    libcuda_said: str = ""  # why that one is None
    gdrdrv: str = ""  # version of the module on the host; "" where there is none
    gdrdrv_device: bool = False


@dataclass(frozen=True)
class Case:
    """The facts, with what they are judged by: components of declared.json, and preflight.json."""

    facts: Facts
    components: Json
    data: Json

    @property
    def several(self) -> bool:
        return len(self.facts.hosts) > 1

    @property
    def known(self) -> list[int] | None:
        """EFA interfaces and GPUs of the instance type; None where this image does not know it."""
        if self.facts.instance is None:
            return None
        if not self.facts.instance:
            return [0, 0]
        row: list[int] | None = self.data["instances"].get(self.facts.instance)
        return row

    @property
    def interfaces_of_efa(self) -> int | None:
        """How many this host should have; at least one where somebody says so, or some are there."""
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
    """The level of what keeps hosts from talking over EFA."""
    return WARNING if case.facts.allow_tcp else REFUSED
