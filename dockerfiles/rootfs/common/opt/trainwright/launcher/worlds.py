"""Read the hosts of the job, this host's name and its number of processes from the platform.

Files are read only through `read`, so tests need none. Nothing is guessed: missing data raise an error.
Sources: SageMaker's resourceconfig.json (AWS documentation); srun(1), "OUTPUT ENVIRONMENT VARIABLES"; kubeflow's
training operator (PET_*, and WORLD_SIZE, RANK, MASTER_ADDR before it) and mpi-operator v2 (/etc/mpi/hostfile, pod
names).
"""

import hashlib
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from errors import LauncherError

Environ = Mapping[str, str]
Read = Callable[[str], str | None]  # path -> the file's text, or None if it does not exist

RESOURCES = "/opt/ml/input/config/resourceconfig.json"
HOSTFILE = "/etc/mpi/hostfile"
POD = re.compile(r"(?P<job>.+)-(?P<role>master|launcher|worker)(?:-(?P<number>\d+))?")


@dataclass(frozen=True)
class Flags:
    """Hold the command line's values, which take precedence over those of the platform."""

    hosts: tuple[str, ...] = ()
    host: str = ""
    processes: int = 0
    interface: str = ""
    worker: bool = False


@dataclass(frozen=True)
class World:
    """Describe the hosts of a job.

    `hosts`: in rank order, the main host first. `host`: this one. `processes`: on each host. `ranked`: the hosts that
    run ranks, () for all. The main host of an MPIJob may run only mpirun.
    """

    platform: str
    job: str
    hosts: tuple[str, ...]
    host: str
    processes: int
    interface: str
    ranked: tuple[str, ...] = ()

    @property
    def index(self) -> int:
        return self.hosts.index(self.host)

    @property
    def host_count(self) -> int:
        return len(self.hosts)

    @property
    def main(self) -> str:
        return self.hosts[0]

    @property
    def peers(self) -> tuple[str, ...]:
        """Return the hosts whose names must resolve. torchrun connects to the main host only."""
        return (self.main,) if self.platform == "pytorchjob" else self.hosts

    @property
    def rank_hosts(self) -> tuple[str, ...]:
        return self.ranked or self.hosts


def world(environ: Environ, read: Read, flags: Flags = Flags(), gpus: int = 0) -> World:
    """Return the job's hosts from the first source that names them, in this order.

    Flags, SageMaker, Slurm, MPIJob, PyTorchJob, else this host alone. `gpus`: number of GPUs of this host.
    Raises LauncherError if the data of a platform are incomplete or contradict each other.
    """
    says = _asked(flags) or _sagemaker(read) or _slurm(environ) or _mpijob(environ, read, flags.worker)
    platform, job, hosts, host, processes, wanted, ranked = says or _pytorchjob(environ) or _alone()
    if len(set(hosts)) != len(hosts):
        why = f"the hosts were read from: {platform}"
        raise LauncherError(f"a host is named twice: {', '.join(hosts)}", why, "name every host once")
    if host not in hosts:
        what = f"{host or 'this host'} is not one of the job's hosts: {', '.join(hosts)}"
        raise LauncherError(what, f"the hosts were read from: {platform}", "--hosts a,b --host a")
    return World(
        platform=platform,
        job=job or environ.get("TRAINING_JOB_NAME") or hashlib.sha256(",".join(hosts).encode()).hexdigest()[:16],
        hosts=hosts,
        host=host,
        processes=flags.processes or processes or gpus or 1,
        interface=interface(read, flags.interface or wanted),
        ranked=ranked,
    )


# Platform, job, hosts, this host, processes (0: one for each GPU), interface, hosts that run ranks (none named: all).
Says = tuple[str, str, tuple[str, ...], str, int, str, tuple[str, ...]]


def _alone() -> Says:
    return "one host", "", ("localhost",), "localhost", 0, "", ()


def _asked(flags: Flags) -> Says | None:
    if not flags.hosts:
        return None
    if not flags.host and len(flags.hosts) > 1:
        why = f"the launcher cannot tell which of {','.join(flags.hosts)} this host is"
        raise LauncherError("--hosts requires --host", why, "--host NAME")
    return "flags", "", flags.hosts, flags.host or flags.hosts[0], flags.processes, "", ()


def _sagemaker(read: Read) -> Says | None:
    """Read resourceconfig.json. In a heterogeneous cluster each instance group is a job, as in SageMaker's toolkit."""
    text = read(RESOURCES)
    if text is None:
        return None
    try:
        said = json.loads(text)
        hosts, host = [str(name) for name in said["hosts"]], str(said["current_host"])
    except (ValueError, KeyError, TypeError) as problem:
        why = f"{type(problem).__name__}: {problem}"
        fix = "SageMaker writes this file; in a local run, correct it"
        raise LauncherError(f"{RESOURCES} does not name the hosts", why, fix) from None
    for group in said.get("instance_groups") or []:
        if group.get("instance_group_name") == said.get("current_group_name") and host in group.get("hosts", []):
            hosts = [str(name) for name in group["hosts"]]
    return "sagemaker", "", _in_order(hosts), host, 0, str(said.get("network_interface_name") or ""), ()


def _in_order(hosts: Sequence[str]) -> tuple[str, ...]:
    """Sort algo-2 before algo-10. All hosts must use the same order, and their files may list the hosts differently."""
    return tuple(sorted(hosts, key=lambda name: [int(part) if part.isdigit() else part for part in _pieces(name)]))


def _pieces(name: str) -> list[str]:
    return re.split(r"(\d+)", name)


def _slurm(environ: Environ) -> Says | None:
    """Read Slurm's variables; requires one task per node: `srun --ntasks-per-node=1 trainwright-launch ...`."""
    nodes = environ.get("SLURM_STEP_NODELIST") or environ.get("SLURM_JOB_NODELIST", "")
    if "SLURM_JOB_ID" not in environ or "SLURM_PROCID" not in environ or not nodes:
        return None  # a batch script without srun runs on one host only
    hosts = nodelist(nodes)
    count, tasks = len(hosts), int(environ.get("SLURM_STEP_NUM_TASKS") or environ.get("SLURM_NTASKS") or len(hosts))
    if tasks != count:
        why = f"the launcher starts the processes of a host itself; srun started {tasks} tasks on {count} hosts"
        raise LauncherError("srun must start one task on each host", why, "srun --ntasks-per-node=1")
    index = int(environ.get("SLURM_NODEID", "0"))
    if index >= count:
        raise LauncherError(f"SLURM_NODEID is {index}, but the job has {count} hosts", nodes, "start it with srun")
    gpus = environ.get("SLURM_GPUS_ON_NODE", "")
    job = f"{environ['SLURM_JOB_ID']}.{environ.get('SLURM_STEP_ID', '0')}"
    return "slurm", job, hosts, hosts[index], int(gpus) if gpus.isdigit() else 0, "", ()


def nodelist(text: str) -> tuple[str, ...]:
    """Expand a Slurm node list: `p5-[01-03,07],login` is p5-01 p5-02 p5-03 p5-07 login.

    Several brackets in one name give every combination. Raises LauncherError for an invalid list.
    """
    names = list[str]()
    for word in re.findall(r"(?:[^,\[\]]|\[[^\]]*\])+", text):
        names += _expanded(word)
    if not names or text.count("[") != text.count("]"):
        raise LauncherError(f"invalid node list {text!r}", "expected a form like node[01-03,07]", "start it with srun")
    return tuple(names)


def _expanded(word: str) -> list[str]:
    found = re.search(r"\[([^\]]*)\]", word)
    if not found:
        return [word]
    numbers = list[str]()
    for part in found[1].split(","):
        first, _, last = part.partition("-")
        last = last or first
        if not (first.isdigit() and last.isdigit() and int(first) <= int(last)):
            why = "expected a form like node[01-03,07]"
            raise LauncherError(f"invalid node list {word!r}", why, "start it with srun")
        numbers += [str(number).zfill(len(first)) for number in range(int(first), int(last) + 1)]
    before, after = word[: found.start()], word[found.end() :]
    return [f"{before}{number}{rest}" for number in numbers for rest in _expanded(after)]


def _mpijob(environ: Environ, read: Read, worker: bool) -> Says | None:
    """Read an MPIJob's hosts: the launcher's pod from its hostfile, a worker from its own pod name."""
    text = read(HOSTFILE)
    if text:
        rows = [re.match(r"([^\s:]+)(?:\s+slots=|:)?(\d+)?", row) for row in text.splitlines() if row.strip()]
        workers = tuple(row[1] for row in rows if row)
        slots = int(next((row[2] for row in rows if row and row[2]), "0"))
        me = environ.get("HOSTNAME", "")
        own = next((name for name in workers if name.partition(".")[0] == me), "")
        if own:  # runLauncherAsWorker: the launcher is the first row of the hostfile, and runs ranks like the others
            return "mpijob", _job_of(me), workers, own, slots, "", ()
        host = _full_name(read, me)
        return "mpijob", _job_of(me), (host, *workers), host, slots, "", workers
    if not worker:
        return None
    me = environ.get("HOSTNAME", "")
    pod = POD.fullmatch(me)
    if not pod or pod["role"] != "worker" or not pod["number"]:
        why = f"a worker finds its launcher by its pod name JOB-worker-N, and this host is {me or 'unnamed'}"
        raise LauncherError("--worker requires --hosts outside of an MPIJob", why, "--hosts main,me --host me")
    full = _full_name(read, me)
    above = [full.replace(me, f"{pod['job']}-worker-{number}", 1) for number in range(int(pod["number"]) + 1)]
    launcher = full.replace(me, f"{pod['job']}-launcher", 1)
    return "mpijob", pod["job"], (launcher, *above), above[-1], 0, "", tuple(above)


def _full_name(read: Read, name: str) -> str:
    """Return a pod's name with its subdomain, as Kubernetes writes it into /etc/hosts, without the cluster's domain."""
    for row in (read("/etc/hosts") or "").splitlines():
        for word in row.split("#")[0].split()[1:]:
            if word.startswith(f"{name}."):
                return re.sub(r"(\.svc)\..*", r"\1", word)
    return name


def _job_of(pod: str) -> str:
    found = POD.fullmatch(pod)
    return found["job"] if found else pod


def _pytorchjob(environ: Environ) -> Says | None:
    """Read a PyTorchJob's PET_* variables, else those of older operators, where RANK is the pod's rank."""
    if environ.get("PET_RDZV_BACKEND", "static") != "static":
        why = f"PET_RDZV_BACKEND={environ['PET_RDZV_BACKEND']}, and the launcher's list of hosts is fixed"
        raise LauncherError(
            "the launcher does not support elastic jobs", why, "start torchrun itself, or remove elasticPolicy"
        )
    count = environ.get("PET_NNODES") or environ.get("WORLD_SIZE", "")
    rank = environ.get("PET_NODE_RANK") or environ.get("RANK", "")
    main = environ.get("PET_MASTER_ADDR") or environ.get("MASTER_ADDR", "")
    if not (count and rank and main) or "LOCAL_RANK" in environ:
        return None
    if not (count.isdigit() and rank.isdigit() and int(rank) < int(count)):
        why = f"the number of hosts is {count}, and the rank of this one is {rank}"
        fix = "set a fixed number of replicas"
        raise LauncherError("PET_NNODES and PET_NODE_RANK contradict each other", why, fix)
    me = environ.get("HOSTNAME", "")
    if main in ("localhost", "127.0.0.1") and rank == "0":
        main = me or main
    hosts = (main, *(_replica(main, me, number) for number in range(1, int(count))))
    processes = environ.get("PET_NPROC_PER_NODE", "")
    host = hosts[int(rank)]
    return "pytorchjob", _job_of(main), hosts, host, int(processes) if processes.isdigit() else 0, "", ()


def _replica(main: str, me: str, number: int) -> str:
    """Return the name of pod `number`. Only the main host's name has to resolve, so a made-up name is enough."""
    short, dot, domain = main.partition(".")
    found = POD.fullmatch(short)
    if not found or not POD.fullmatch(me or short):
        return f"host-{number}"
    return f"{found['job']}-worker-{number - (found['role'] == 'master')}{dot}{domain}"


# --- the network -----------------------------------------------------------------------------------------------------


def interface(read: Read, wanted: str = "") -> str:
    """Return the wanted interface if it exists, else that of the default route, else any with a route, else "".

    Platforms can name an interface that does not exist: local mode of SageMaker's SDKs names ethwe.
    """
    if wanted and read(f"/sys/class/net/{wanted}/address") is not None:
        return wanted
    rows = [row.split() for row in (read("/proc/net/route") or "").splitlines()[1:]]
    routes = sorted((row[1] != "00000000", int(row[6]), row[0]) for row in rows if len(row) > 7 and row[0] != "lo")
    if routes:
        return routes[0][2]
    rows = [row.split() for row in (read("/proc/net/ipv6_route") or "").splitlines()]
    return next((row[-1] for row in rows if len(row) > 9 and row[1] == "00" and row[-1] != "lo"), "")
