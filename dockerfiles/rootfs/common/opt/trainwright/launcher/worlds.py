"""Which hosts a job has, which of them this is, and how many processes it starts there: as each platform says it.

Nothing is read here but through `read`, and nothing is guessed: what a platform leaves out is an error that says so.
Facts: SageMaker's resourceconfig.json (AWS documentation); srun(1), "OUTPUT ENVIRONMENT VARIABLES"; kubeflow's training
operator (PET_*, and WORLD_SIZE, RANK, MASTER_ADDR before it) and mpi-operator v2 (/etc/mpi/hostfile, pod names).
"""

import hashlib
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from errors import LauncherError

Environ = Mapping[str, str]
Read = Callable[[str], str | None]  # a file's text; None where there is none

RESOURCES = "/opt/ml/input/config/resourceconfig.json"
HOSTFILE = "/etc/mpi/hostfile"
POD = re.compile(r"(?P<job>.+)-(?P<role>master|launcher|worker)(?:-(?P<number>\d+))?")


@dataclass(frozen=True)
class Flags:
    """What the command line says; it wins over every platform."""

    hosts: tuple[str, ...] = ()
    host: str = ""
    processes: int = 0
    interface: str = ""
    worker: bool = False


@dataclass(frozen=True)
class World:
    """`hosts` in order of rank, `host` is this one; `processes` on each. `ranked` hosts have ranks; none named: all."""

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
    def size(self) -> int:
        """How many hosts."""
        return len(self.hosts)

    @property
    def main(self) -> str:
        return self.hosts[0]

    @property
    def peers(self) -> tuple[str, ...]:
        """The hosts whose names must be ones that DNS knows: torchrun asks for the main one alone."""
        return (self.main,) if self.platform == "pytorchjob" else self.hosts

    @property
    def rank_hosts(self) -> tuple[str, ...]:
        return self.ranked or self.hosts


def world(environ: Environ, read: Read, flags: Flags = Flags(), gpus: int = 0) -> World:
    """Flags, else SageMaker, Slurm, an MPIJob, a PyTorchJob, else this host alone. `gpus`: how many this host has.

    Raises LauncherError where a platform says half of what is needed.
    """
    says = _asked(flags) or _sagemaker(read) or _slurm(environ) or _mpijob(environ, read, flags.worker)
    platform, job, hosts, host, processes, wanted, ranked = says or _pytorchjob(environ) or _alone()
    if len(set(hosts)) != len(hosts):
        raise LauncherError(f"a host is named twice: {', '.join(hosts)}", platform, "name every host once")
    if host not in hosts:
        raise LauncherError(f"{host or 'this host'} is none of {', '.join(hosts)}", platform, "--hosts a,b --host a")
    return World(
        platform=platform,
        job=job or environ.get("TRAINING_JOB_NAME") or hashlib.sha256(",".join(hosts).encode()).hexdigest()[:16],
        hosts=hosts,
        host=host,
        processes=flags.processes or processes or gpus or 1,
        interface=interface(read, flags.interface or wanted),
        ranked=ranked,
    )


# Platform, job, hosts, this host, processes (0: as many as GPUs), interface, hosts with ranks (none: all).
Says = tuple[str, str, tuple[str, ...], str, int, str, tuple[str, ...]]


def _alone() -> Says:
    return "one host", "", ("localhost",), "localhost", 0, "", ()


def _asked(flags: Flags) -> Says | None:
    if not flags.hosts:
        return None
    if not flags.host and len(flags.hosts) > 1:
        raise LauncherError("which of the hosts is this one?", f"--hosts {','.join(flags.hosts)}", "--host NAME")
    return "flags", "", flags.hosts, flags.host or flags.hosts[0], flags.processes, "", ()


def _sagemaker(read: Read) -> Says | None:
    """In a heterogeneous cluster, the hosts of this host's own group make one job, as the toolkit has it."""
    text = read(RESOURCES)
    if text is None:
        return None
    try:
        said = json.loads(text)
        hosts, host = [str(name) for name in said["hosts"]], str(said["current_host"])
    except (ValueError, KeyError, TypeError) as problem:
        why = f"{type(problem).__name__}: {problem}"
        raise LauncherError(f"{RESOURCES} does not say which hosts there are", why, "it is the platform's") from None
    for group in said.get("instance_groups") or []:
        if group.get("instance_group_name") == said.get("current_group_name") and host in group.get("hosts", []):
            hosts = [str(name) for name in group["hosts"]]
    return "sagemaker", "", _in_order(hosts), host, 0, str(said.get("network_interface_name") or ""), ()


def _in_order(hosts: Sequence[str]) -> tuple[str, ...]:
    """algo-2 before algo-10; every host must come to the same order, whatever its own file's order is."""
    return tuple(sorted(hosts, key=lambda name: [int(part) if part.isdigit() else part for part in _pieces(name)]))


def _pieces(name: str) -> list[str]:
    return re.split(r"(\d+)", name)


def _slurm(environ: Environ) -> Says | None:
    """One task on each node: `srun --ntasks-per-node=1 trainwright-launch ...`."""
    nodes = environ.get("SLURM_STEP_NODELIST") or environ.get("SLURM_JOB_NODELIST", "")
    if "SLURM_JOB_ID" not in environ or "SLURM_PROCID" not in environ or not nodes:
        return None  # in a batch script without srun, this is one host like any other
    hosts = nodelist(nodes)
    count, tasks = len(hosts), int(environ.get("SLURM_STEP_NUM_TASKS") or environ.get("SLURM_NTASKS") or len(hosts))
    if tasks != count:
        why = f"the launcher starts the processes of a host itself; srun started {tasks} tasks on {count} hosts"
        raise LauncherError("one task for each host is wanted", why, "srun --ntasks-per-node=1")
    index = int(environ.get("SLURM_NODEID", "0"))
    if index >= count:
        raise LauncherError(f"SLURM_NODEID is {index}, and there are {count} hosts", nodes, "start it with srun")
    gpus = environ.get("SLURM_GPUS_ON_NODE", "")
    job = f"{environ['SLURM_JOB_ID']}.{environ.get('SLURM_STEP_ID', '0')}"
    return "slurm", job, hosts, hosts[index], int(gpus) if gpus.isdigit() else 0, "", ()


def nodelist(text: str) -> tuple[str, ...]:
    """`p5-[01-03,07],login` is p5-01 p5-02 p5-03 p5-07 login; several brackets in one name multiply.

    Raises LauncherError for what Slurm never writes.
    """
    names = list[str]()
    for word in re.findall(r"(?:[^,\[\]]|\[[^\]]*\])+", text):
        names += _expanded(word)
    if not names or text.count("[") != text.count("]"):
        raise LauncherError(f"no list of nodes: {text!r}", "as in node[01-03,07]", "start it with srun")
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
            raise LauncherError(f"no list of nodes: {word!r}", "as in node[01-03,07]", "start it with srun")
        numbers += [str(number).zfill(len(first)) for number in range(int(first), int(last) + 1)]
    before, after = word[: found.start()], word[found.end() :]
    return [f"{before}{number}{rest}" for number in numbers for rest in _expanded(after)]


def _mpijob(environ: Environ, read: Read, worker: bool) -> Says | None:
    """The launcher's pod knows the workers by its hostfile; a worker knows the launcher by its own full name."""
    text = read(HOSTFILE)
    if text:
        rows = [re.match(r"([^\s:]+)(?:\s+slots=|:)?(\d+)?", row) for row in text.splitlines() if row.strip()]
        workers = tuple(row[1] for row in rows if row)
        slots = int(next((row[2] for row in rows if row and row[2]), "0"))
        me = environ.get("HOSTNAME", "")
        own = next((name for name in workers if name.partition(".")[0] == me), "")
        if own:  # runLauncherAsWorker: the launcher is the first row, and has ranks like the others
            return "mpijob", _job_of(me), workers, own, slots, "", ()
        host = _full_name(read, me)
        return "mpijob", _job_of(me), (host, *workers), host, slots, "", workers
    if not worker:
        return None
    me = environ.get("HOSTNAME", "")
    pod = POD.fullmatch(me)
    if not pod or pod["role"] != "worker" or not pod["number"]:
        why = "a worker waits for its launcher, and finds it by --hosts, or as an MPIJob names its pods"
        raise LauncherError(f"--worker, and {me or 'this host'} is no JOB-worker-N", why, "--hosts main,me --host me")
    full = _full_name(read, me)
    above = [full.replace(me, f"{pod['job']}-worker-{number}", 1) for number in range(int(pod["number"]) + 1)]
    launcher = full.replace(me, f"{pod['job']}-launcher", 1)
    return "mpijob", pod["job"], (launcher, *above), above[-1], 0, "", tuple(above)


def _full_name(read: Read, name: str) -> str:
    """As Kubernetes writes it into /etc/hosts of a pod with a subdomain, without the cluster's own domain."""
    for row in (read("/etc/hosts") or "").splitlines():
        for word in row.split("#")[0].split()[1:]:
            if word.startswith(f"{name}."):
                return re.sub(r"(\.svc)\..*", r"\1", word)
    return name


def _job_of(pod: str) -> str:
    found = POD.fullmatch(pod)
    return found["job"] if found else pod


def _pytorchjob(environ: Environ) -> Says | None:
    """torchrun's own variables for its agent, else those of the operator before them: RANK is then the pod's."""
    if environ.get("PET_RDZV_BACKEND", "static") != "static":
        why = f"PET_RDZV_BACKEND={environ['PET_RDZV_BACKEND']}: hosts that come and go are torchrun's own to watch"
        raise LauncherError(
            "an elastic rendezvous is not the launcher's", why, "start torchrun itself, or no elasticPolicy"
        )
    count = environ.get("PET_NNODES") or environ.get("WORLD_SIZE", "")
    rank = environ.get("PET_NODE_RANK") or environ.get("RANK", "")
    main = environ.get("PET_MASTER_ADDR") or environ.get("MASTER_ADDR", "")
    if not (count and rank and main) or "LOCAL_RANK" in environ:
        return None
    if not (count.isdigit() and rank.isdigit() and int(rank) < int(count)):
        why = f"{count} hosts, this one is {rank}"
        raise LauncherError("PET_NNODES and PET_NODE_RANK do not fit", why, "a fixed number of replicas")
    me = environ.get("HOSTNAME", "")
    if main in ("localhost", "127.0.0.1") and rank == "0":
        main = me or main
    hosts = (main, *(_replica(main, me, number) for number in range(1, int(count))))
    processes = environ.get("PET_NPROC_PER_NODE", "")
    host = hosts[int(rank)]
    return "pytorchjob", _job_of(main), hosts, host, int(processes) if processes.isdigit() else 0, "", ()


def _replica(main: str, me: str, number: int) -> str:
    """A master counts beside the workers. Only the main host's name must be one that DNS knows."""
    short, dot, domain = main.partition(".")
    found = POD.fullmatch(short)
    if not found or not POD.fullmatch(me or short):
        return f"host-{number}"
    return f"{found['job']}-worker-{number - (found['role'] == 'master')}{dot}{domain}"


# --- the network -----------------------------------------------------------------------------------------------------


def interface(read: Read, wanted: str = "") -> str:
    """The wanted one if this host has it, else the one of the default route, else any that has a route; "" if none has.

    Platforms name interfaces that are not there: local mode of SageMaker's SDKs says ethwe.
    """
    if wanted and read(f"/sys/class/net/{wanted}/address") is not None:
        return wanted
    rows = [row.split() for row in (read("/proc/net/route") or "").splitlines()[1:]]
    routes = sorted((row[1] != "00000000", int(row[6]), row[0]) for row in rows if len(row) > 7 and row[0] != "lo")
    if routes:
        return routes[0][2]
    rows = [row.split() for row in (read("/proc/net/ipv6_route") or "").splitlines()]
    return next((row[-1] for row in rows if len(row) > 9 and row[1] == "00" and row[-1] != "lo"), "")
