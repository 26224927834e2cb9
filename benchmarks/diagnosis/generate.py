"""Run training jobs over Gloo with one fault each, and keep their logs, recorder dumps and the truth about them.

Usage: nice python benchmarks/diagnosis/generate.py OUT --seeds 14 [--only FAULT,...] [--jobs skipped-01,...]
The Python needs PyTorch for CPUs; root is needed for namespaces. One job runs at a time.
"""

import argparse
import importlib
import json
import os
import random
import select
import shutil
import signal
import sys
import time
import tomllib
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

import log_layouts
from namespaces import ADDRESS, DISK, SHM, SMALL, Host, Switch

CASES = tomllib.loads((Path(__file__).parent / "cases.toml").read_text())
TRIES = 3
HERE = Path(__file__).resolve().parent


@dataclass
class Job:
    """One job and the truth about it."""

    name: str
    fault: str
    variant: str
    seed: int
    hosts: int
    each: int  # ranks of a host
    culprits: list[int]
    layout: str
    at: int  # step
    quiet: bool  # only rank 0 says how it goes
    stamps: bool
    detail: bool  # TORCH_DISTRIBUTED_DEBUG=DETAIL
    steps: int = 40
    pause: float = 0.05
    timeout: float = 6.0
    folder: str = ""
    world: dict[str, int] = field(default_factory=dict)  # what a rank is told, if that is wrong
    script: str = "train"

    @property
    def ranks(self) -> int:
        return self.hosts * self.each


@dataclass
class Line:
    at: float
    rank: int  # -1: of a launcher
    host: int
    text: str


def planned(fault: str, seed: int) -> Job:
    """Return the job of a fault and a seed, always the same."""
    case, draw = CASES["faults"][fault], random.Random(f"{fault} {seed}")
    held_out = CASES["held_out"] if seed >= CASES["held_out"]["first"] else {}
    shapes = held_out.get("shapes", CASES["shapes"])
    hosts, each = draw.choice(shapes)
    if case.get("hosts") and hosts < 3:
        hosts, each = draw.choice([one for one in held_out.get("shapes", CASES["shapes_of_hosts"]) if one[0] >= 3])
    ranks = hosts * each
    culprit = draw.randrange(ranks)
    variant = draw.choice(case.get("variants", [""]))
    layout = draw.choice([one for one in CASES["layouts"] if one not in case.get("not_in", [])])
    culprits, world = [culprit], dict[str, int]()
    if fault in ("killed-host", "cut-network"):
        first = culprit // each * each
        culprits = list(range(first, first + each))
    elif fault == "port-in-use":
        culprits = [0]
    elif fault == "healthy":
        culprits = []
    elif fault == "wrong-world" and variant == "missing":
        culprits, world = [ranks], {str(rank): ranks + 1 for rank in range(ranks)}
    elif fault == "wrong-world":
        culprits = [draw.randrange(1, ranks)]
        world = {str(culprits[0]): ranks + 1}
    return Job(
        f"{fault}-{seed:02}", fault, variant, seed, hosts, each, culprits, layout, draw.randrange(5, 25),
        draw.random() < 0.5, draw.random() < 0.5, layout != "torchrun" and draw.random() < 0.15, world=world,
        script=draw.choice(held_out.get("scripts", ["train"])), timeout=held_out.get("timeout", 6.0),
    )  # fmt: skip


def heard(pipes: dict[int, tuple[int, int, bytearray]], pipe: int) -> list[Line]:
    """Return the whole lines that came by a pipe; it is closed and taken out of `pipes` where no more will come."""
    rank, host, rest = pipes[pipe]
    data = os.read(pipe, 1 << 16)
    *whole, last = bytes(rest + data).split(b"\n")
    rest[:] = last
    if not data:
        os.close(pipe)
        del pipes[pipe]
        whole += [last] if last else []
    return [Line(time.time(), rank, host, one.decode(errors="replace")) for one in whole]


class Run:
    """A job while it runs."""

    def __init__(self, job: Job, port: int) -> None:
        self.job, self.port, self.folder = job, port, Path(job.folder)
        self.lines, self.codes = list[Line](), dict[int, int]()  # codes by rank
        self.pipes: dict[int, tuple[int, int, bytearray]] = {}  # rank, host, what is read of an unfinished line
        self.switch, self.hosts = Switch(), list[Host]()
        self.struck = 0.0

    def environment(self, rank: int) -> dict[str, str]:
        job = self.job
        return {
            "JOB": json.dumps(asdict(job)),
            "RANK": str(rank),
            "WORLD_SIZE": str(job.world.get(str(rank), job.ranks)),
            "LOCAL_RANK": str(rank % job.each),
            "MASTER_ADDR": ADDRESS.format(1),
            "MASTER_PORT": str(self.port),
            "GLOO_SOCKET_IFNAME": "eth0",
            "TORCH_FR_BUFFER_SIZE": "120",
            "OMP_NUM_THREADS": "1",
            "PYTHONUNBUFFERED": "1",
            **({"TORCH_DISTRIBUTED_DEBUG": "DETAIL"} if job.detail else {}),
        }

    def start(self) -> None:
        job = self.job
        for number in range(job.hosts):
            mine = range(number * job.each, (number + 1) * job.each)
            pipes = {rank: os.pipe() for rank in ([-1 - number] if job.layout == "torchrun" else mine)}
            here = any(rank in mine for rank in job.culprits)
            shm = SMALL if job.fault == "shm" and here else SHM
            disk = SMALL.replace("8", "1") if job.fault == "disk" and here else DISK
            self.hosts.append(Host(number, self.switch, lambda n=number, p=pipes: self._in_host(n, p), shm, disk))  # type: ignore[misc]
            for rank, (reads, writes) in pipes.items():
                os.close(writes)
                self.pipes[reads] = (rank if rank >= 0 else -1, number, bytearray())
        for host in self.hosts:
            host.go()

    def _in_host(self, number: int, pipes: dict[int, tuple[int, int]]) -> None:
        """Run in the host: start its ranks, and write down how they ended."""
        import socket

        with socket.socket() as taken:
            if self.job.fault == "port-in-use" and number == 0:
                taken.bind(("", self.port))
                taken.listen(64)
            children = dict[int, int]()
            for rank, (_, writes) in pipes.items():
                child = os.fork()
                if child == 0:
                    taken.close()
                    os.dup2(writes, 1)
                    os.dup2(writes, 2)
                    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
                    os.closerange(3, 200)
                    if rank < 0:
                        self._torchrun(number)
                    self._rank(rank)
                children[child] = rank
            for _, writes in pipes.values():
                os.close(writes)
            while children:
                child, status = os.wait()
                if child in children:
                    rank = children.pop(child)
                    (self.folder / f"code-{rank}").write_text(str(os.waitstatus_to_exitcode(status)))

    def _rank(self, rank: int) -> None:
        code = 0
        os.environ.update(self.environment(rank))
        try:
            importlib.import_module(self.job.script).main(asdict(self.job), rank, int(os.environ["WORLD_SIZE"]))
        except BaseException:
            sys.excepthook(*sys.exc_info())
            code = 1
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)

    def _torchrun(self, number: int) -> None:
        job, script = self.job, str(HERE / f"{self.job.script}.py")
        os.environ.update({**self.environment(0), "TORCH_FR_BUFFER_SIZE": "120"})
        for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK"):
            os.environ.pop(name)
        shape = ["--nnodes", str(job.hosts), "--nproc-per-node", str(job.each), "--node-rank", str(number)]
        meet = ["--master-addr", ADDRESS.format(1), "--master-port", str(self.port)]
        tee = ["--log-dir", f"{job.folder}/torchrun-{number}", "--tee", "3"] if job.seed % 2 else []
        os.execv(sys.executable, [sys.executable, "-m", "torch.distributed.run", *shape, *meet, *tee, script])

    # --- from outside ----------------------------------------------------------------------------------------------

    def pid(self, rank: int) -> int:
        return int((self.folder / f"ready-{rank}").read_text())

    def strike(self) -> None:
        """Do to the job what comes from outside."""
        job, self.struck = self.job, time.time()
        if job.fault == "stopped":
            os.kill(self.pid(job.culprits[0]), signal.SIGSTOP)
        elif job.fault == "killed":
            os.kill(self.pid(job.culprits[0]), signal.SIGKILL)
        elif job.fault in ("killed-host", "cut-network"):
            number = job.culprits[0] // job.each
            self.switch.cut(number)
            if job.fault == "killed-host":
                self.hosts[number].kill()

    def follow(self) -> None:
        """Read what the ranks say until they are done, or would say nothing more."""
        job, draw = self.job, random.Random(self.job.seed)
        begun, struck, failed = time.time(), 0.0, 0.0
        limit = 3 * job.timeout + 150  # torchrun imports PyTorch anew, which takes long on a busy machine
        wait = draw.uniform(0.4, 1.2)
        while self.pipes and time.time() - begun < limit:
            for one in select.select(list(self.pipes), [], [], 0.1)[0]:
                self.lines += heard(self.pipes, one)
            ready = len(list(self.folder.glob("ready-*"))) == job.ranks
            if ready and not struck:
                struck = time.time() + wait
            elif struck and time.time() > struck and wait:
                wait = 0
                self.strike()
            if not failed and any(path.name.startswith("fr_trace") for path in self.folder.iterdir()):
                failed = time.time()
                (self.folder / "dump-now").touch()
            if failed and time.time() - failed > 2 * job.timeout + 4:
                break

    def stop(self) -> None:
        for host in self.hosts:
            host.kill()
            os.waitpid(host.pid, 0)
        while self.pipes:
            for one in list(self.pipes):
                self.lines += heard(self.pipes, one)
        self.switch.close()
        for path in sorted(self.folder.glob("code-*"), key=lambda one: one.stat().st_mtime_ns):
            self.codes[int(path.name.partition("-")[2])] = int(path.read_text() or 0)


def generated(job: Job, out: Path, work: Path, port: int) -> bool:
    """Run a job and write its folder. Returns False for one that a busy machine ended before its fault could come."""
    job.folder = str(work)
    run = Run(job, port)
    run.start()
    try:
        run.follow()
    finally:
        run.stop()
    begins = job.fault not in ("port-in-use", "wrong-world") and job.variant != "raises"
    if begins and len(list(work.glob("ready-*"))) < job.ranks:
        return False
    folder = out / job.name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    lines, lost = run.lines, set[int]()
    if job.variant == "shipped":  # what a host without a network logs and records does not arrive
        lost = set(job.culprits)
        lines = [line for line in lines if line.host != job.culprits[0] // job.each or line.at < run.struck]
        run.codes = {rank: code for rank, code in run.codes.items() if rank not in lost}
    for name, text in log_layouts.written(job, lines, run.codes).items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text.replace(str(HERE), "/opt/ml/code").replace(sys.prefix, "/usr"))
    for dump in sorted(work.glob("fr_trace_*")):
        if dump.suffix != ".part" and int(dump.name.rpartition("_")[2]) not in lost:
            shutil.copyfile(dump, folder / dump.name)
    label: dict[str, Any] = {name: value for name, value in asdict(job).items() if name not in ("folder", "pause")}
    label["codes"] = run.codes
    (folder / "label.json").write_text(json.dumps(label, indent=1) + "\n")
    return True


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("out", type=Path)
    parser.add_argument("--seeds", type=int, default=14)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument(
        "--only", default=",".join(name for name, case in CASES["faults"].items() if not case.get("gpu"))
    )
    parser.add_argument("--jobs", default="", help="names of jobs, in place of all")
    given = parser.parse_args()
    for script in ("train", *CASES["held_out"]["scripts"]):
        importlib.import_module(script)  # once, before the ranks are forked
    port = random.randrange(20_000, 30_000)
    named = [name.rpartition("-")[::2] for name in given.jobs.split(",") if name]
    seeds = range(given.first, given.first + given.seeds)
    every = [(fault, seed) for seed in seeds for fault in given.only.split(",")]
    for fault, seed in [(fault, int(seed)) for fault, seed in named] or every:
        job = planned(fault, seed)
        if (given.out / job.name / "label.json").exists():
            continue
        for _ in range(TRIES):
            work = Path(f"/tmp/diagnosis-{os.getpid()}")
            shutil.rmtree(work, ignore_errors=True)
            work.mkdir()
            port += 1
            began = time.time()
            begun = generated(job, given.out, work, port)
            shutil.rmtree(work, ignore_errors=True)
            told = "" if begun else ", did not begin"
            print(f"{job.name}: {job.ranks} ranks, {job.layout}, {time.time() - began:.0f} s{told}", flush=True)
            if begun:
                break


if __name__ == "__main__":
    main()
