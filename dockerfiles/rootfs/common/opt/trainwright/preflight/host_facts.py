"""Collect the facts about this host from /dev, /proc, /sys, limits and programs. Every wait has a timeout."""

from __future__ import annotations

import os
import re
import resource
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from threading import Event, Thread
from typing import Any

from findings import UNLIMITED, Facts
from job_settings import Settings

CAP_IPC_LOCK = 14  # capabilities(7)
AMAZON = ("efa", "0x1d0f")  # driver and PCI vendor of an EFA interface
OPEN = "import ctypes, os, sys; ctypes.CDLL(sys.argv[1], os.RTLD_NOW)"  # the flags with which NCCL opens its plugin
ASK_LIBCUDA = """
import ctypes
number = ctypes.c_int()
if error := ctypes.CDLL("libcuda.so.1").cuDriverGetVersion(ctypes.byref(number)):
    raise SystemExit(f"cuDriverGetVersion failed with {error}")
print(number.value)
"""

Answer = tuple[int, str] | None  # exit code and output of a program; None if it did not end in time
Addresses = dict[str, tuple[str, ...]] | None


def gather(chosen: Settings, components: Mapping[str, Any], libraries: Mapping[str, Any], data: Any) -> Facts:
    """Collect all facts except the peers' addresses. Programs run in parallel."""
    plugins = [path for path, one in libraries.items() if one["component"] == "aws-ofi-nccl"]
    commands = {path: python(OPEN, path) for path in plugins}
    if plugins:
        commands["cudart"] = python(OPEN, "libcudart.so")
    if "cuda" in components:
        commands["cuda"] = python(ASK_LIBCUDA)
    uverbs = names(Path("/dev/infiniband"), r"uverbs\d+")
    if uverbs and len(chosen.hosts) > 1 and "libfabric" in components:  # without uverbs libfabric never lists efa
        commands |= {"providers": ["fi_info", "-l"], "efa": ["fi_info", "-p", "efa"]}
    said = answers(commands, data["seconds"]["probe"])
    instance, told_by = (chosen.instance, chosen.told_by) if chosen.told_by else dmi(Path("/"))
    return Facts(
        hosts=chosen.hosts,
        peers=chosen.peers,
        host=chosen.host,
        processes=chosen.processes,
        interface=chosen.interface,
        distribution=chosen.distribution,
        allow_tcp=chosen.allow_tcp,
        environment=dict(os.environ),
        instance=instance,
        told_by=told_by,
        efa_said=chosen.efa,
        efa_devices=efa_devices(Path("/sys/class/infiniband")),
        uverbs=uverbs,
        providers=providers(said.get("providers")),
        efa_answer=trouble(said.get("efa")),
        plugins={path: trouble(said[path]) for path in plugins},
        cudart=trouble(said.get("cudart")),
        interfaces=tuple(name for _, name in socket.if_nameindex()),
        memlock=soft(resource.RLIMIT_MEMLOCK),
        pins_anything=may(CAP_IPC_LOCK, text(Path("/proc/self/status"))),
        nofile=soft(resource.RLIMIT_NOFILE),
        tasks_left=tasks_left(Path("/sys/fs/cgroup"), os.getuid()),
        shm=free(Path("/dev/shm")),
        gpus=len(names(Path("/dev"), r"nvidia\d+")),
        driver=driver_version(text(Path("/proc/driver/nvidia/version"))),
        cuda_of_driver=number(said.get("cuda")),
        libcuda_said=trouble(said.get("cuda")) or "",
        gdrdrv=text(Path("/sys/module/gdrdrv/version")).strip(),
        gdrdrv_device=Path("/dev/gdrdrv").exists(),
        wait=chosen.wait,
    )


def say(line: str) -> None:
    print(f"preflight: {line}", file=sys.stderr, flush=True)


# --- programs --------------------------------------------------------------------------------------------------------


def python(code: str, *words: str) -> list[str]:
    return [sys.executable, "-IBc", code, *words]


def answers(commands: Mapping[str, list[str]], seconds: float) -> dict[str, Answer]:
    """Run all commands in parallel. Returns exit code and output of each, or None if it does not end in time."""
    started = {name: background(partial(answer, command, seconds)) for name, command in commands.items()}
    return {name: result() for name, result in started.items()}


def answer(command: list[str], seconds: float) -> Answer:
    try:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    except OSError as error:
        return 127, str(error)  # a shell's exit code for a missing program
    try:
        output = process.communicate(timeout=seconds)[0]
    except subprocess.TimeoutExpired:
        process.kill()  # without waiting, because a process that hangs in a driver cannot be killed
        return None
    return process.returncode, output.decode(errors="replace").strip()


def trouble(said: Answer) -> str | None:
    """Return a program's last line of output if it failed, "" if it succeeded, None if it did not end in time."""
    if said is None:
        return None
    code, words = said
    return (words.splitlines() or [f"exit code {code}"])[-1].removeprefix("OSError: ") if code else ""


def number(said: Answer) -> int | None:
    return int(said[1]) if said and said[0] == 0 and said[1].isdigit() else None


def providers(said: Answer) -> tuple[str, ...] | None:
    """Parse the providers from `fi_info -l`: the unindented lines that end with a colon."""
    if said is None or said[0]:
        return None
    return tuple(line[:-1] for line in said[1].splitlines() if re.fullmatch(r"\S+:", line))


# --- files -----------------------------------------------------------------------------------------------------------


def text(path: Path) -> str:
    """Return the text of a file of /proc or /sys, or "" if it cannot be read."""
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""


def names(folder: Path, pattern: str) -> tuple[str, ...]:
    try:
        return tuple(sorted(one.name for one in folder.iterdir() if re.fullmatch(pattern, one.name)))
    except OSError:
        return ()


def dmi(root: Path) -> tuple[str | None, str]:
    """Return the instance type from DMI, and its source: "" if this is not EC2, None if it is unknown."""
    folder = root / "sys/devices/virtual/dmi/id"
    vendor, product = text(folder / "sys_vendor").strip(), text(folder / "product_name").strip()
    if not vendor or vendor == "Xen":  # EC2 instances before Nitro all have the product name `HVM domU`
        return None, ""
    if vendor != "Amazon EC2":
        return "", f"{vendor} {product}".strip()
    if not re.fullmatch(r"[a-z0-9-]+\.[a-z0-9-]+", product):
        return None, ""
    return product, "/sys/devices/virtual/dmi/id/product_name"


def efa_devices(folder: Path) -> tuple[str, ...]:
    """Return the EFA devices of the folder; the others are InfiniBand."""
    found = []
    for name in names(folder, ".+"):
        driver = folder / name / "device/driver"
        if driver.resolve().name in AMAZON or text(folder / name / "device/vendor").strip() in AMAZON:
            found.append(name)
    return tuple(found)


def driver_version(said: str) -> str:
    """Parse the driver version from the first line of /proc/driver/nvidia/version, or ""."""
    found = re.search(r"\b\d{3,}\.\d+(\.\d+)?\b", said.partition("\n")[0])
    return found.group() if found else ""


def may(capability: int, status: str) -> bool | None:
    """Return whether /proc/self/status shows an effective capability; None if it shows none at all."""
    found = re.search(r"^CapEff:\s*([0-9a-f]+)$", status, re.MULTILINE)
    return bool(int(found.group(1), 16) >> capability & 1) if found else None


def soft(kind: int) -> int:
    value = resource.getrlimit(kind)[0]
    return UNLIMITED if value == resource.RLIM_INFINITY else value


def tasks_left(cgroup: Path, user: int) -> int:
    """Return how many processes and threads may still start, by the container's cgroup and by user (except root)."""
    left = [] if user == 0 else [soft(resource.RLIMIT_NPROC)]
    for folder in (cgroup, cgroup / "pids"):  # version 2 and 1 of control groups
        most, now = text(folder / "pids.max").strip(), text(folder / "pids.current").strip()
        if most.isdigit() and now.isdigit():
            left.append(max(0, int(most) - int(now)))
    return min((one for one in left if one != UNLIMITED), default=UNLIMITED)


def free(folder: Path) -> int | None:
    try:
        found = os.statvfs(folder)
    except OSError:
        return 0 if not folder.exists() else None
    return found.f_bavail * found.f_frsize


# --- names of hosts --------------------------------------------------------------------------------------------------


def background(work: Callable[[], Any]) -> Callable[[], Any]:
    """Start work in a daemon thread. Returns a function that waits for its result or raises its error."""
    results: list[Any] = []

    def run() -> None:
        try:
            results.append((work(), None))
        except BaseException as error:  # raised again in result()
            results.append((None, error))

    thread = Thread(target=run, daemon=True)
    thread.start()

    def result() -> Any:
        thread.join()
        value, error = results[0]
        if error:
            raise error
        return value

    return result


def addresses_of(host: str) -> tuple[str, ...]:
    try:
        return tuple(sorted({str(row[4][0]) for row in socket.getaddrinfo(host, None)}))
    except (OSError, UnicodeError):
        return ()


def look_up(hosts: tuple[str, ...], wait: float, seconds: Mapping[str, float], stop: Event) -> Addresses:
    """Resolve every host name, again and again for `wait` seconds until all resolve. Returns None if `stop` is set.

    A resolver may take minutes for one name, so each lookup has its own thread, which is abandoned at the end.
    """
    found: dict[str, tuple[str, ...]] = {}
    asked: dict[str, Thread] = {}
    began = said = time.monotonic()
    while True:
        for host in hosts:
            if host not in found and not (host in asked and asked[host].is_alive()):
                asked[host] = Thread(target=keep, args=(found, host), daemon=True)
                asked[host].start()
        turn = time.monotonic() + seconds["retry"]
        while time.monotonic() < turn and not stop.is_set():
            if not (waiting := [thread for thread in asked.values() if thread.is_alive()]):
                break
            waiting[0].join(seconds["retry"] / 10)
        now = time.monotonic()
        missing = [host for host in hosts if host not in found]
        if not missing or now >= began + wait:
            return {host: found.get(host, ()) for host in hosts}
        if now - said >= seconds["say"]:
            say(f"waiting for the names to resolve: {', '.join(missing)} ({now - began:.0f} of {wait:.0f} s)")
            said = now
        if stop.wait(max(0.0, min(turn, began + wait) - now)):
            return None


def keep(found: dict[str, tuple[str, ...]], host: str) -> None:
    if addresses := addresses_of(host):
        found[host] = addresses
