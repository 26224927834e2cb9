"""The command and the environment of each distribution. Nothing is read and nothing is started here.

The user's own variables win over ours. None is set that slows a job down or hides its transport: no NCCL_PROTO, no
NCCL_IB_DISABLE, no NCCL_MIN_NRINGS, no NCCL_DEBUG.
"""

import json
import re
import shlex
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import PurePosixPath

from errors import LauncherError
from worlds import World

DISTRIBUTIONS = ("plain", "torchrun", "mpi", "tensorflow")
PYTHON = "/opt/venv/bin/python"
LAUNCHER = "/opt/trainwright/launcher"
# As its first line says; a file that may not be executed has no say.
SHELL_SCRIPT = 'if [ -x "$0" ]; then exec "$0" "$@"; fi; exec /bin/sh "$0" "$@"'
# Of one process alone: another rank must not have them from the host that starts it.
OF_MPI = ("OMPI_", "PMIX_", "PRTE_", "ORTE_", "PMI_", "OPAL_")

Environ = Mapping[str, str]


def script(words: Sequence[str], mpi: bool = False) -> list[str]:
    """`train.py --epochs 3`, `-m package`, `train.sh` or any program as a command. Python holds nothing back.

    Under MPI a rank that raises must end all of them, which mpi4py's own runner does. LauncherError for no words.
    """
    if not words:
        raise LauncherError("no script to run", "after the options comes a script", "trainwright-launch train.py")
    python = [PYTHON, "-u", *(["-m", "mpi4py"] if mpi else [])]
    if words[0] == "-m" or words[0].endswith(".py"):
        return [*python, *words]
    name = words[0] if "/" in words[0] else f"./{words[0]}"
    return ["/bin/sh", "-c", SHELL_SCRIPT, name, *words[1:]] if PurePosixPath(name).suffix == ".sh" else list(words)


def rank(folder: str, command: Sequence[str], keep: Sequence[str] = ()) -> list[str]:
    """A rank's own parent, on its own host: it hands on signals, and writes down how the rank ended, and why."""
    return [PYTHON, "-IB", LAUNCHER, "--rank", folder, "--keep", ",".join(keep), "--", *command]


def common(world: World, environ: Environ) -> dict[str, str]:
    """What a job's processes find beside their host's own environment."""
    said = dict(environ)
    if world.size > 1 and world.interface:
        for name in ("NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME"):
            said.setdefault(name, world.interface)
    return said


def for_torchrun(environ: Environ) -> dict[str, str]:
    """torchrun takes PET_* for options that are not given; the ones of the rendezvous are given, all of them."""
    given = ("PET_RDZV_", "PET_MASTER_", "PET_NNODES", "PET_NODE_RANK", "PET_NPROC_PER_NODE")
    return {name: value for name, value in environ.items() if not name.startswith(given)}


def torchrun(world: World, port: int, environ: Environ) -> list[str]:
    """The agent of this host; the rendezvous is static, on the main host. The rank's command comes after it.

    Raises LauncherError for a job that wants torchrun's elastic rendezvous: the hosts here are a fixed list.
    """
    if environ.get("PET_RDZV_BACKEND", "static") != "static":
        why = f"PET_RDZV_BACKEND={environ['PET_RDZV_BACKEND']}, and the launcher's hosts are a fixed list"
        raise LauncherError("an elastic rendezvous is torchrun's own", why, "start torchrun itself, or unset it")
    return [
        *(PYTHON, "-B", f"{LAUNCHER}/agent.py"),
        f"--nnodes={world.size}",
        f"--nproc-per-node={world.processes}",
        f"--node-rank={world.index}",
        f"--master-addr={world.main if world.size > 1 else '127.0.0.1'}",
        f"--master-port={port}",
        "--no-python",
    ]


def openmpi_major(said: str) -> int:
    """Of what `mpirun --version` says. Raises LauncherError for another MPI."""
    found = re.search(r"Open MPI\) (\d+)\.", said)
    if not found:
        first = (said.strip().splitlines() or ["nothing"])[0]
        raise LauncherError("mpirun is none of Open MPI's", f"it says {first!r}", "an image with Open MPI")
    return int(found[1])


def mpirun(world: World, major: int, options: str = "", agent: str = "") -> list[str]:
    """mpirun on the main host. `options` are the user's own and come last; `agent` is how it reaches other hosts.

    Open MPI 4 starts its daemons itself, Open MPI 5 through PRRTE, which has its own parameters.
    """
    own = shlex.split(options)
    hosts = (
        [f"{host}:{world.processes}" for host in world.rank_hosts]
        if world.size > 1
        else [f"localhost:{world.processes}"]
    )
    words = ["mpirun", "--host", ",".join(hosts)]
    ranks = str(world.processes * len(world.rank_hosts))
    for names, value in ((("np", "n", "c"), ranks), (("bind-to",), "none"), (("map-by",), "slot")):
        if not ({f"-{name}" for name in names} | {f"--{name}" for name in names}) & set(own):
            words += [f"-{names[0]}" if names[0] == "np" else f"--{names[0]}", value]
    four, many = major < 5, world.size > 1 and bool(world.interface)
    runtime = "--mca" if four else "--prtemca"
    wanted = [
        ("--mca", "btl", "^openib", four),
        ("--mca", "btl_vader_single_copy_mechanism", "none", four),
        ("--mca", "orte_abort_on_non_zero_status", "1", four),
        ("--mca", "btl_tcp_if_include", world.interface, many),
        (runtime, "oob_tcp_if_include" if four else "prte_if_include", world.interface, many),
        (runtime, "plm_rsh_no_tree_spawn" if four else "plm_ssh_no_tree_spawn", "1", world.size > 1),
        (runtime, "orte_keep_fqdn_hostnames" if four else "prte_keep_fqdn_hostnames", "1", world.size > 1),
        (runtime, "plm_rsh_agent" if four else "plm_ssh_agent", agent, bool(agent)),
    ]
    words += ["--tag-output"] if four else ["--output", "tag"]
    for flag, name, value, applies in wanted:
        if applies and name not in own:  # Open MPI 4 does not take a parameter twice
            words += [flag, name, value]
    return [*words, *own]


def for_mpirun(environ: Environ) -> dict[str, str]:
    """An MPIJob's operator names its own hostfile and ssh in the environment; the command line has ours.

    By Slurm's variables mpirun would ask srun for its daemons, and no image has that; by those of the task that srun
    started it would take itself for a rank. Ranks see them, as of_rank says.
    """
    theirs = ("OMPI_MCA_orte_default_hostfile", "OMPI_MCA_plm_rsh_args", "OMPI_MCA_orte_set_default_slots")
    return {
        name: value
        for name, value in environ.items()
        if name not in theirs and (not name.startswith(("SLURM_", "PMIX_", "PMI_")) or "_MCA_" in name)
    }


def kept(options: str) -> list[str]:
    """The variables that the user's own `-x` sets: a rank has them from mpirun, not from its host."""
    words = shlex.split(options)
    return [word.partition("=")[0] for flag, word in pairwise(words) if flag == "-x"]


def of_rank(own: Environ, host: Environ, keep: Sequence[str]) -> dict[str, str]:
    """A rank's environment: its host's, and over it what MPI or torchrun set for this one process."""
    over = {name: value for name, value in own.items() if name.startswith(OF_MPI) or name in keep}
    return {**own, **{name: value for name, value in host.items() if not name.startswith(OF_MPI)}, **over}


def tensorflow(world: World, ports: Sequence[int], environ: Environ, number: int) -> dict[str, str]:
    """TF_CONFIG of process `number` of this host, unless the user brings one. Every process is a worker; 0 is chief.

    Raises LauncherError where the user's own would make several processes of a host the same one.
    """
    if "TF_CONFIG" in environ:
        if world.processes > 1:
            why = f"it names one task, and {world.processes} processes would start with it"
            raise LauncherError("TF_CONFIG is set already", why, "--processes 1, or unset TF_CONFIG")
        return {}
    name = {host: host if world.size > 1 else "localhost" for host in world.hosts}
    workers = [f"{name[host]}:{port}" for host in world.hosts for port in ports]
    task = {"type": "worker", "index": world.index * world.processes + number}
    return {"TF_CONFIG": json.dumps({"cluster": {"worker": workers}, "task": task})}
