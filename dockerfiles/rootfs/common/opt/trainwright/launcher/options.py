"""Parse the command line: options of the launcher, then the script and its own arguments."""

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import starting
from errors import LauncherError
from worlds import Flags

NAMES = ("distribution", "processes", "hosts", "host", "interface", "mpi-options", "worker")
USAGE = (
    f"trainwright-launch [--distribution {'|'.join(starting.DISTRIBUTIONS)}] [--processes N] [--hosts a,b --host a] "
    "[--interface eth0] [--mpi-options TEXT] SCRIPT [ARGS...], or --worker on the hosts where mpirun starts ranks"
)


@dataclass(frozen=True)
class Options:
    flags: Flags
    distribution: str  # "": the platform's default
    mpi_options: str
    words: tuple[str, ...]


def parse(words: Sequence[str]) -> Options:
    """Parse the launcher's arguments. Raises LauncherError for an unknown, repeated or incomplete option."""
    said, rest = dict[str, str](), list(words)
    while rest and rest[0].startswith("--"):
        name, equals, value = rest.pop(0)[2:].partition("=")
        if not name:
            break
        if name not in NAMES:
            near = difflib.get_close_matches(name, NAMES, n=1)
            why = f"did you mean --{near[0]}?" if near else f"the options are {', '.join(f'--{one}' for one in NAMES)}"
            raise LauncherError(f"--{name} is not an option", why, USAGE)
        if name in said:
            raise LauncherError(f"--{name} is given twice", "it takes one value", USAGE)
        if name != "worker" and not equals:
            if not rest:
                raise LauncherError(f"--{name} requires a value", "", USAGE)
            value = rest.pop(0)
        said[name] = value
    distribution, processes = said.get("distribution", ""), said.get("processes", "0")
    if distribution and distribution not in starting.DISTRIBUTIONS:
        near = difflib.get_close_matches(distribution, starting.DISTRIBUTIONS, n=1)
        why = f"did you mean {near[0]}?" if near else f"expected one of {', '.join(starting.DISTRIBUTIONS)}"
        raise LauncherError(f"unknown distribution {distribution!r}", why, USAGE)
    if not processes.isdigit():
        raise LauncherError(f"--processes {processes} is not a number", "expected the processes of each host", USAGE)
    worker = "worker" in said
    if not rest and not worker:
        raise LauncherError("no script to run", "the script comes after the options", USAGE)
    flags = Flags(
        hosts=tuple(filter(None, said.get("hosts", "").split(","))),
        host=said.get("host", ""),
        processes=int(processes),
        interface=said.get("interface", ""),
        worker=worker,
    )
    return Options(flags, "mpi" if worker else distribution, said.get("mpi-options", ""), tuple(rest))


def gpus(names: Sequence[str], environ: Mapping[str, str]) -> int:
    """Count the GPUs that a process on this host sees. `names`: the file names in /dev."""
    if (visible := environ.get("CUDA_VISIBLE_DEVICES")) is not None:
        return len([word for word in visible.split(",") if word.strip() not in ("", "-1")])
    return len([name for name in names if name.startswith("nvidia") and name[6:].isdigit()])
