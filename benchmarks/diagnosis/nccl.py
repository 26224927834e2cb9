"""Run the jobs over NCCL, on one GPU that all ranks share, and keep their logs, the watchdog's dumps and the truth.

Usage: python benchmarks/diagnosis/nccl.py OUT --seeds 1,2 [--only FAULT,...] [--width 4]
It needs an NVIDIA GPU and a Python with PyTorch for CUDA; the fault `address` also needs cupy. Each rank is a host of
its own to NCCL, so NCCL talks over sockets, as it does between hosts without EFA. A job takes up to two minutes.
"""

import argparse
import json
import os
import random
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

import log_layouts
from generate import CASES, HERE, Job, Line, heard

SETTINGS = CASES["nccl"]
FAULTS = [name for name, row in CASES["faults"].items() if row.get("nccl")]
PROGRAM = HERE / "nccl_rank.py"
DUMP = "nccl_trace_rank_"
AFTER = 75.0  # seconds behind two time limits: the watchdog waits a minute before it ends its process
PORT = 20_000


def planned(fault: str, seed: int) -> Job:
    """Return the job of a fault and a seed, always the same."""
    case, draw = CASES["faults"][fault], random.Random(f"nccl {fault} {seed}")
    hosts, each = draw.choice(SETTINGS["shapes"])
    ranks, world = hosts * each, dict[str, int]()
    culprits = {"healthy": [], "port-in-use": [0]}.get(fault, [draw.randrange(ranks)])
    variant = draw.choice(case["variants"]) if fault == "no-data" else ""
    if fault == "wrong-world":
        culprits, variant, world = [ranks], "missing", {str(rank): ranks + 1 for rank in range(ranks)}
    layout = draw.choice(SETTINGS["layouts"])
    if layout == "torchrun" and fault in ("wrong-world", "port-in-use"):
        layout = "ranks"
    return Job(
        f"nccl-{fault}-{seed}", fault, variant, seed, hosts, each, culprits, layout, draw.randrange(3, 8),
        draw.random() < 0.5, draw.random() < 0.5, False, steps=14, timeout=SETTINGS["timeout"], world=world,
        script=draw.choice(SETTINGS["scripts"]),
    )  # fmt: skip


class Run:
    """A job while it runs."""

    def __init__(self, job: Job, port: int) -> None:
        self.job, self.port, self.folder = job, port, Path(job.folder)
        self.draw = random.Random(job.name)
        self.lines, self.codes = list[Line](), dict[int, int]()
        self.processes: dict[int, subprocess.Popen[bytes]] = {}  # by rank; by -1 - host those of torchrun
        self.pipes: dict[int, tuple[int, int, bytearray]] = {}  # rank, host, what is read of an unfinished line

    def environment(self) -> dict[str, str]:
        return {
            **os.environ,
            "JOB": json.dumps(asdict(self.job)),
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(self.port),
            "NCCL_SOCKET_IFNAME": "lo",
            "NCCL_DEBUG": self.draw.choice(["WARN", "INFO", "WARN", "VERSION"]),
            "OMP_NUM_THREADS": "1",
            "PYTHONUNBUFFERED": "1",
            "TORCH_NCCL_DUMP_ON_TIMEOUT": "1",
            **dict.fromkeys(
                ("TORCH_FR_BUFFER_SIZE", "TORCH_NCCL_TRACE_BUFFER_SIZE"), "200"
            ),  # the second: its older name
            **dict.fromkeys(("TORCH_FR_DUMP_TEMP_FILE", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE"), f"{self.folder}/{DUMP}"),
        }

    def start(self) -> None:
        job, settings = self.job, self.environment()
        torchrun = job.layout == "torchrun"
        for number in range(job.hosts if torchrun else job.ranks):
            command, mine = [sys.executable], dict[str, str]()
            if torchrun:
                command += [
                    "-m",
                    "torch.distributed.run",
                    "--nnodes",
                    str(job.hosts),
                    "--nproc-per-node",
                    str(job.each),
                ]
                command += ["--node-rank", str(number), "--master-addr", "127.0.0.1", "--master-port", str(self.port)]
                command += ["--log-dir", f"{self.folder}/torchrun-{number}", "--tee", "3"] if job.seed % 2 else []
            else:
                world = str(job.world.get(str(number), job.ranks))
                mine = {"RANK": str(number), "WORLD_SIZE": world, "LOCAL_RANK": str(number % job.each)}
            reads, writes = os.pipe()
            self.processes[-1 - number if torchrun else number] = subprocess.Popen(
                [*command, str(PROGRAM)], stdout=writes, stderr=writes, stdin=subprocess.DEVNULL,
                env={**settings, **mine}, start_new_session=True,
            )  # fmt: skip
            os.close(writes)
            self.pipes[reads] = (-1, number, bytearray()) if torchrun else (number, number // job.each, bytearray())

    def follow(self) -> None:
        """Read what the ranks say until all have ended, or would say nothing more."""
        begun, strikes, wait = time.time(), 0.0, self.draw.uniform(0.3, 0.9)
        outside = {"stopped": signal.SIGSTOP, "killed": signal.SIGKILL}.get(self.job.fault)
        while self.pipes and time.time() - begun < 2 * self.job.timeout + AFTER:
            for pipe in select.select(list(self.pipes), [], [], 0.1)[0]:
                self.lines += heard(self.pipes, pipe)
            for number, process in self.processes.items():
                if number not in self.codes and process.poll() is not None:
                    self.codes[number] = process.returncode
            if not strikes and self.ready() == self.job.ranks:
                strikes = time.time() + wait
            if outside and strikes and time.time() > strikes:
                os.kill(int((self.folder / f"ready-{self.job.culprits[0]}").read_text()), outside)
                outside = None

    def ready(self) -> int:
        return len(list(self.folder.glob("ready-*")))

    def stop(self) -> None:
        """End what is left, and read the rest."""
        for process in self.processes.values():
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
        for path in self.folder.glob("ready-*"):  # ranks of torchrun have sessions of their own
            try:
                number = int(path.read_text())
                if os.fsencode(self.folder) in Path(f"/proc/{number}/environ").read_bytes():
                    os.kill(number, signal.SIGKILL)
            except (OSError, ValueError):  # it has ended, or ended before it wrote its number
                continue
        until = time.time() + 5
        while self.pipes and time.time() < until:
            for pipe in select.select(list(self.pipes), [], [], 0.1)[0]:
                self.lines += heard(self.pipes, pipe)


def generated(job: Job, out: Path, port: int) -> str:
    """Run a job, write its folder, and return a sentence about it."""
    began = time.time()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as work, socket.socket() as taken:
        job.folder = work
        if job.fault == "port-in-use":
            taken.bind(("", port))
            taken.listen(64)
        run = Run(job, port)
        run.start()
        try:
            run.follow()
            ended = not run.pipes
        finally:
            run.stop()
        folder = out / job.name
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        codes = {number: code for number, code in run.codes.items() if number >= 0}
        for name, text in log_layouts.written(job, run.lines, codes).items():
            (folder / name).write_text(neutral(text))
        dumps = sorted(Path(work).glob(f"{DUMP}*"))
        for dump in dumps:
            (folder / dump.name).write_bytes(neutral_dump(dump.read_bytes()))
        label: dict[str, Any] = {name: value for name, value in asdict(job).items() if name not in ("folder", "pause")}
        label |= {"codes": run.codes, "ready": run.ready(), "ended": ended}
    (folder / "label.json").write_text(json.dumps(label, indent=1) + "\n")
    return f"{job.name}: {job.ranks} ranks, {job.layout}, {len(dumps)} dumps, {time.time() - began:.0f} s"


def neutral(text: str) -> str:
    """Return a log without the paths of this machine."""
    text = text.replace(str(PROGRAM), "/opt/ml/code/main.py").replace(str(HERE), "/opt/ml/code")
    return text.replace(sys.prefix, "/usr")


def neutral_dump(data: bytes) -> bytes:
    """Return a dump of plain values with the paths of its frames alike."""
    import pickle

    value = pickle.loads(data)  # of a process that we started
    for entry in value["entries"]:
        for frame in entry.get("frames", []):
            frame["filename"] = neutral(frame["filename"])
    return pickle.dumps(value, 2)


def lacking() -> str:
    """Return what this machine lacks for these jobs, "" for nothing."""
    try:
        import torch
    except ImportError:
        return f"PyTorch: {sys.executable} has none; take a Python with PyTorch for CUDA"
    if not torch.cuda.is_available():
        return "an NVIDIA GPU that PyTorch sees: nvidia-smi; torch.version.cuda is " + str(torch.version.cuda)
    return "" if torch.distributed.is_nccl_available() else "PyTorch with NCCL"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("out", type=Path)
    parser.add_argument("--seeds", default="1", help="numbers with commas between them")
    parser.add_argument("--only", default=",".join(FAULTS), help="faults, in place of all")
    parser.add_argument("--width", type=int, default=4, help="jobs at a time")
    given = parser.parse_args()
    if unknown := set(given.only.split(",")) - set(FAULTS):
        sys.exit(f"error: no such fault: {', '.join(sorted(unknown))}; there are {', '.join(FAULTS)}")
    if lack := lacking():
        sys.exit(f"error: these jobs need {lack}")
    jobs = [planned(fault, int(seed)) for seed in given.seeds.split(",") for fault in given.only.split(",")]
    with ThreadPoolExecutor(given.width) as pool:
        tasks = [pool.submit(generated, job, given.out, PORT + 7 * number) for number, job in enumerate(jobs)]
        for task in tasks:
            print(task.result(), flush=True)


if __name__ == "__main__":
    main()
