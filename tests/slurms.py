"""Start a real Slurm on loopback, with several nodes of this one machine, if Slurm is installed.

Tried with Debian 12's slurmctld, slurmd, slurm-client (22.05.8) and munge, which may also be unpacked into a folder on
PATH (with LD_LIBRARY_PATH). Its nodes have no GPUs.
"""

import os
import re
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

PROGRAMS = ("munged", "slurmctld", "slurmd", "slurmstepd", "sbatch", "srun", "scontrol", "scancel", "sinfo")
WAIT = 60  # seconds, for anything
CONF = """\
ClusterName=proof
SlurmctldHost=localhost(127.0.0.1)
SlurmctldPort={ports[0]}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.sock
CredType=cred/munge
PluginDir={plugins}
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
MpiDefault=none
SwitchType=switch/none
ReturnToService=2
JobRequeue=0
SlurmdParameters=config_overrides
{nodes}
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""
NODE = "NodeName={name} NodeHostname=localhost NodeAddr=127.0.0.1 Port={port} CPUs=4"


def until(true: Callable[[], Any], what: str, seconds: float = WAIT) -> Any:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if found := true():
            return found
        time.sleep(0.2)
    raise AssertionError(f"{what}: not within {seconds} s")


Run = Callable[..., "subprocess.CompletedProcess[str]"]


def programs() -> dict[str, str]:
    """Return the paths of Slurm's programs; skip the test where one is missing."""
    found = {name: shutil.which(name) or shutil.which(f"{name}-wlm") for name in PROGRAMS}
    if missing := [name for name, path in found.items() if not path]:
        pytest.skip(f"not run: no {', '.join(missing)} (Debian's slurmctld, slurmd, slurm-client, munge)")
    if os.geteuid():
        pytest.skip("not run: slurmd wants root")
    return {name: str(path) for name, path in found.items()}


@contextmanager
def running(nodes: int, texts: Mapping[str, str]) -> Iterator[Run]:
    """Start nodes n1, n2 ...; yield a function that runs one of Slurm's commands, and stop all of it afterwards.

    `texts` are programs that jobs find before all others.
    """
    found, names = programs(), [f"n{number + 1}" for number in range(nodes)]
    plugins = next(Path(found["slurmd"]).parents[1].glob("lib/*/slurm*/auth_munge.so"), Path("/none/none")).parent
    with tempfile.TemporaryDirectory(prefix="slurm-") as name:  # short: a socket's path has 107 characters
        folder = Path(name)
        for part in ("bin", "state", "job"):
            (folder / part).mkdir()
        (folder / "key").write_bytes(os.urandom(1024))
        (folder / "key").chmod(0o600)
        ports = free_ports(nodes + 1)
        rows = "\n".join(NODE.format(name=one, port=port) for one, port in zip(names, ports[1:], strict=True))
        (folder / "slurm.conf").write_text(CONF.format(folder=folder, plugins=plugins, ports=ports, nodes=rows))
        for program, text in texts.items():
            (folder / "bin" / program).write_text(text)
            (folder / "bin" / program).chmod(0o755)
        own = {"SLURM_CONF": str(folder / "slurm.conf"), "PATH": f"{folder}/bin:{os.environ['PATH']}"}
        if libraries := os.environ.get("LD_LIBRARY_PATH"):
            own["LD_LIBRARY_PATH"] = libraries
        munge = [f"--{word}={folder}/{word}" for word in ("pid-file", "log-file", "seed-file")]
        commands = [
            [found["munged"], "-F", "--force", f"--key-file={folder}/key", f"--socket={folder}/munge.sock", *munge],
            [found["slurmctld"], "-D"],
            *([found["slurmd"], "-D", "-N", node, "-d", found["slurmstepd"]] for node in names),
        ]
        started = list["subprocess.Popen[bytes]"]()

        def run(program: str, *words: str) -> "subprocess.CompletedProcess[str]":
            command = [found[program], *words]
            return subprocess.run(command, cwd=folder / "job", env=own, capture_output=True, text=True, timeout=WAIT)

        try:
            with (folder / "log").open("wb") as log:
                for command in commands:
                    started.append(subprocess.Popen(command, env=own, stdout=log, stderr=log))
                    until(lambda: len(started) > 1 or (folder / "munge.sock").exists(), "munged")
            until(lambda: run("sinfo", "-h", "-N", "-o", "%T").stdout.split() == ["idle"] * nodes, f"{nodes} nodes")
            yield run
        finally:
            if len(started) == len(commands):
                run("scancel", "--user=root")
                time.sleep(1)
            for child in reversed(started):
                child.terminate()
            for child in started:
                try:
                    child.wait(10)
                except subprocess.TimeoutExpired:
                    child.kill()
                    child.wait()


def free_ports(count: int) -> list[int]:
    held = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    try:
        return [one.getsockname()[1] for one in held]
    finally:
        for one in held:
            one.close()


def log_of(slurm: Run, job: str) -> Path:
    return Path(re.findall(r"StdOut=(\S+)", slurm("scontrol", "show", "job", job).stdout)[0])


def state(slurm: Run, job: str) -> str:
    return str(re.findall(r"JobState=(\w+)", slurm("scontrol", "show", "job", job).stdout)[0])
