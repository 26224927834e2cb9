"""Build the command and the environment of each distribution, as pure functions.

The user's variables take precedence. Variables that slow a job down or hide its transport are never set: NCCL_PROTO,
NCCL_IB_DISABLE, NCCL_MIN_NRINGS, NCCL_DEBUG.
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
# Run a script with the interpreter of its first line if the file is executable, else with /bin/sh.
SHELL_SCRIPT = 'if [ -x "$0" ]; then exec "$0" "$@"; fi; exec /bin/sh "$0" "$@"'
# Prefixes of variables that belong to one process: a rank must not inherit those of the process that starts it.
OF_MPI = ("OMPI_", "PMIX_", "PRTE_", "ORTE_", "PMI_", "OPAL_")

Environ = Mapping[str, str]


def script(words: Sequence[str], mpi: bool = False) -> list[str]:
    """Return the command for `train.py --epochs 3`, `-m package`, `train.sh` or any program.

    Python runs with -u, so that its output is not buffered. Under MPI it runs with `-m mpi4py`, which ends all ranks
    when one raises an exception. Raises LauncherError if `words` is empty.
    """
    if not words:
        raise LauncherError("no script to run", "the script comes after the options", "trainwright-launch train.py")
    python = [PYTHON, "-u", *(["-m", "mpi4py"] if mpi else [])]
    if words[0] == "-m" or words[0].endswith(".py"):
        return [*python, *words]
    name = words[0] if "/" in words[0] else f"./{words[0]}"
    return ["/bin/sh", "-c", SHELL_SCRIPT, name, *words[1:]] if PurePosixPath(name).suffix == ".sh" else list(words)


def rank(folder: str, command: Sequence[str], keep: Sequence[str] = ()) -> list[str]:
    """Wrap a rank's command in ranks.py, which passes signals on and records how the rank ended."""
    return [PYTHON, "-IB", LAUNCHER, "--rank", folder, "--keep", ",".join(keep), "--", *command]


def common(world: World, environ: Environ) -> dict[str, str]:
    """Add the variables that all processes of the job get; the user's own values stay."""
    said = dict(environ)
    if world.host_count > 1 and world.interface:
        said.setdefault("NCCL_SOCKET_IFNAME", f"={world.interface}")  # without = it is a prefix: eth1 means eth10, too
        said.setdefault("GLOO_SOCKET_IFNAME", world.interface)
    return said


def for_torchrun(environ: Environ) -> dict[str, str]:
    """Remove PET_* of the rendezvous: torchrun reads them as options, and the command line gives all of those."""
    given = ("PET_RDZV_", "PET_MASTER_", "PET_NNODES", "PET_NODE_RANK", "PET_NPROC_PER_NODE")
    return {name: value for name, value in environ.items() if not name.startswith(given)}


def torchrun(world: World, port: int, environ: Environ) -> list[str]:
    """Return the command of this host's torchrun agent, with a static rendezvous on the main host.

    The caller appends the rank's command. Raises LauncherError for an elastic rendezvous: the list of hosts is fixed.
    """
    if environ.get("PET_RDZV_BACKEND", "static") != "static":
        why = f"PET_RDZV_BACKEND={environ['PET_RDZV_BACKEND']}, and the launcher's list of hosts is fixed"
        raise LauncherError("the launcher does not support elastic jobs", why, "start torchrun itself, or unset it")
    return [
        *(PYTHON, "-B", f"{LAUNCHER}/agent.py"),
        f"--nnodes={world.host_count}",
        f"--nproc-per-node={world.processes}",
        f"--node-rank={world.index}",
        f"--master-addr={world.main if world.host_count > 1 else '127.0.0.1'}",
        f"--master-port={port}",
        "--no-python",
    ]


def openmpi_major(said: str) -> int:
    """Read Open MPI's major version from the output of `mpirun --version`. Raises LauncherError for another MPI."""
    found = re.search(r"Open MPI\) (\d+)\.", said)
    if not found:
        first = (said.strip().splitlines() or ["nothing"])[0]
        why = f"`mpirun --version` prints {first!r}"
        raise LauncherError("the mpirun of this image is not Open MPI's", why, "use an image with Open MPI")
    return int(found[1])


def mpirun(world: World, major: int, options: str = "", agent: str = "") -> list[str]:
    """Return the mpirun command of the main host.

    `options`: the user's own, which come last. `agent`: the ssh command by which mpirun reaches other hosts.
    Open MPI 4 starts its daemons itself, Open MPI 5 through PRRTE, whose parameters have other names.
    """
    own = shlex.split(options)
    hosts = (
        [f"{host}:{world.processes}" for host in world.rank_hosts]
        if world.host_count > 1
        else [f"localhost:{world.processes}"]
    )
    words = ["mpirun", "--host", ",".join(hosts)]
    ranks = str(world.processes * len(world.rank_hosts))
    for names, value in ((("np", "n", "c"), ranks), (("bind-to",), "none"), (("map-by",), "slot")):
        if not ({f"-{name}" for name in names} | {f"--{name}" for name in names}) & set(own):
            words += [f"-{names[0]}" if names[0] == "np" else f"--{names[0]}", value]
    four, many = major < 5, world.host_count > 1 and bool(world.interface)
    runtime = "--mca" if four else "--prtemca"
    wanted = [
        ("--mca", "btl", "^openib", four),
        ("--mca", "btl_vader_single_copy_mechanism", "none", four),
        ("--mca", "orte_abort_on_non_zero_status", "1", four),
        ("--mca", "btl_tcp_if_include", world.interface, many),
        (runtime, "oob_tcp_if_include" if four else "prte_if_include", world.interface, many),
        (runtime, "plm_rsh_no_tree_spawn" if four else "plm_ssh_no_tree_spawn", "1", world.host_count > 1),
        (runtime, "orte_keep_fqdn_hostnames" if four else "prte_keep_fqdn_hostnames", "1", world.host_count > 1),
        (runtime, "plm_rsh_agent" if four else "plm_ssh_agent", agent, bool(agent)),
    ]
    words += ["--tag-output"] if four else ["--output", "tag"]
    for flag, name, value, applies in wanted:
        if applies and name not in own:  # Open MPI 4 rejects a parameter that is given twice
            words += [flag, name, value]
    return [*words, *own]


def for_mpirun(environ: Environ) -> dict[str, str]:
    """Remove the variables that contradict mpirun's command line.

    An MPIJob's operator sets its own hostfile and ssh options. With SLURM_* mpirun would start its daemons by srun,
    which the images lack; with PMIX_* and PMI_* of srun's task it would take itself for a rank. Ranks still get them
    (of_rank).
    """
    theirs = ("OMPI_MCA_orte_default_hostfile", "OMPI_MCA_plm_rsh_args", "OMPI_MCA_orte_set_default_slots")
    return {
        name: value
        for name, value in environ.items()
        if name not in theirs and (not name.startswith(("SLURM_", "PMIX_", "PMI_")) or "_MCA_" in name)
    }


def kept(options: str) -> list[str]:
    """Return the names of the variables that the user's mpirun option `-x` exports to the ranks."""
    words = shlex.split(options)
    return [word.partition("=")[0] for flag, word in pairwise(words) if flag == "-x"]


def of_rank(own: Environ, host: Environ, keep: Sequence[str]) -> dict[str, str]:
    """Return a rank's environment: its host's, overridden by what MPI set for this process and by `keep`."""
    over = {name: value for name, value in own.items() if name.startswith(OF_MPI) or name in keep}
    return {**own, **{name: value for name, value in host.items() if not name.startswith(OF_MPI)}, **over}


def tensorflow(world: World, ports: Sequence[int], environ: Environ, number: int) -> dict[str, str]:
    """Return TF_CONFIG for process `number` of this host, or {} if the user sets it. All are workers; 0 is the chief.

    Raises LauncherError if the user's TF_CONFIG would give several processes of this host the same task.
    """
    if "TF_CONFIG" in environ:
        if world.processes > 1:
            why = f"it describes one task, and {world.processes} processes would start with it"
            raise LauncherError("TF_CONFIG is set already", why, "--processes 1, or unset TF_CONFIG")
        return {}
    name = {host: host if world.host_count > 1 else "localhost" for host in world.hosts}
    workers = [f"{name[host]}:{port}" for host in world.hosts for port in ports]
    task = {"type": "worker", "index": world.index * world.processes + number}
    return {"TF_CONFIG": json.dumps({"cluster": {"worker": workers}, "task": task})}
