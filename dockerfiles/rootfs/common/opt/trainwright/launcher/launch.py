"""A training script on this host of a job: which hosts there are, is the image what it declares, are all there, go.

    trainwright-launch [--distribution plain|torchrun|mpi|tensorflow] [--processes N] SCRIPT [ARGS...]

The same on SageMaker, Slurm, Kubernetes and plain hosts (worlds.py says how each is read). The exit code is the
script's; where another host's script failed first, that one's.
"""

import os
import socket
import traceback
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import failures
import following
import options
import processes
import ranks
import ssh
import starting
import trust
import watch
import worlds
from errors import LauncherError, note
from following import Result
from meeting import Alone, Meeting
from signals import Signals, Stopped
from worlds import World

CHECK = "trainwright-check"
WATCH = "TRAINWRIGHT_WATCH"
IMPLIED = {"mpijob": "mpi", "pytorchjob": "torchrun"}  # what a platform's own variables are for
Settings = Mapping[str, int]


def read(path: str) -> str | None:
    """A file's text; None where there is none."""
    try:
        return Path(path).read_text(errors="replace")
    except OSError:
        return None


def world(flags: worlds.Flags, environ: Mapping[str, str]) -> World:
    """Raises LauncherError."""
    return worlds.world(environ, read, flags, options.gpus([path.name for path in Path("/dev").iterdir()], environ))


def distribution(asked: str, world: World) -> str:
    """What starts the ranks. Raises LauncherError where hosts would train side by side, each for itself."""
    if asked or (implied := IMPLIED.get(world.platform, "")):
        return asked or implied
    if world.size > 1:
        raise LauncherError(
            f"{world.size} hosts, and nothing that makes one job of them", "", "--distribution torchrun"
        )
    return "plain"


def count(kind: str, asked: int, platform: int) -> int:
    """Processes on each host: one rank for each GPU where ranks are what is started. Raises LauncherError."""
    if kind == "plain" and asked > 1:
        fix = f"--distribution torchrun, mpi or tensorflow; or without --processes {asked}"
        raise LauncherError(
            f"--processes {asked} with the distribution plain", "plain is one process on each host", fix
        )
    return {"plain": 1, "tensorflow": asked or 1}.get(kind, platform)


def check(world: World, distribution: str, environ: Mapping[str, str], settings: Settings) -> Result:
    """Is this what the image declares, and can it train here: its exit code, and what it says."""
    asked = {
        "TRAINWRIGHT_HOSTS": ",".join(world.hosts),
        "TRAINWRIGHT_HOST": world.host,
        "TRAINWRIGHT_PEERS": ",".join(world.peers),
        "TRAINWRIGHT_PROCESSES": str(world.processes if world.host in world.rank_hosts else 0),
        "TRAINWRIGHT_INTERFACE": world.interface,
        "TRAINWRIGHT_DISTRIBUTION": distribution,
    }
    child = processes.Child([CHECK], {**environ, **asked}, settings["tail_bytes"])
    code = failures.exit_code(child.process.wait())
    return code, child.tail(settings["drain_seconds"]).strip() or f"{CHECK} ended with {code}"


def meet(world: World, settings: Settings, secret: trust.Secret | None, keys: ssh.Keys | None) -> Meeting:
    """All hosts of the job are there, and each has the others' public keys. Raises LauncherError."""
    card = {ssh.CARD: keys.public} if keys else {}
    if not watched(world):
        return Alone()
    if not secret and not world.index:
        note(f"this job has no secret, so whoever reaches {world.main} can end it: set {trust.VARIABLE} on all hosts")
    return watch.join(world, settings, secret, card)


def watched(world: World) -> bool:
    return world.size > 1 and os.environ.get(WATCH) != "off"


def start(
    job: following.Job, kind: str, asked: options.Options, environ: dict[str, str], keys: ssh.Keys | None
) -> None:
    """From here on a signal is the script's. Raises LauncherError."""
    world, tail = job.world, job.settings["tail_bytes"]
    ports = ports_of(world, kind, job.settings)
    agent = ssh.agent(keys, job.meeting) if keys and not world.index else ""
    job.signals.raising = False
    if kind == "tensorflow":
        for number in range(world.processes):
            own = {**environ, **starting.tensorflow(world, ports, environ, number)}
            job.children.append(processes.Child(starting.script(asked.words), own, tail))
    elif kind == "plain":
        job.children.append(processes.Child(starting.script(asked.words), environ, tail))
    elif kind == "torchrun":
        command = [*starting.torchrun(world, ports[0], environ), *ranks_of(job, asked, kind)]
        job.children.append(processes.Child(command, starting.for_torchrun(environ), tail, script=False))
        job.agents = True
    elif world.index and keys:
        job.servers.append(ssh.serve(keys, job.meeting, environ))
    else:
        _, said = processes.said(["mpirun", "--version"], job.settings["program_seconds"])
        major = starting.openmpi_major(said)
        command = [*starting.mpirun(world, major, asked.mpi_options, agent), *ranks_of(job, asked, kind)]
        job.children.append(processes.Child(command, starting.for_mpirun(environ), tail, script=False))


def ports_of(world: World, kind: str, settings: Settings) -> list[int]:
    """Hosts must agree on them; a host alone takes free ones, as another job may run beside it."""
    if world.size > 1:
        first = settings["tensorflow_port" if kind == "tensorflow" else "torch_port"]
        return [first + number for number in range(world.processes)]
    with ExitStack() as left:
        sockets = [left.enter_context(socket.socket()) for _ in range(max(1, world.processes))]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [int(one.getsockname()[1]) for one in sockets]


def ranks_of(job: following.Job, asked: options.Options, kind: str) -> list[str]:
    command = starting.script(asked.words, mpi=kind == "mpi")
    return starting.rank(str(job.folder), command, starting.kept(asked.mpi_options))


def run(asked: options.Options, world: World, settings: Settings, signals: Signals, spared: list[int]) -> Result:
    """Check, meet, start, follow. `spared`: processes that are not ours. Raises LauncherError, Stopped."""
    kind, secret = distribution(asked.distribution, world), None
    world = replace(world, processes=count(kind, asked.flags.processes, world.processes))
    if kind == "mpi" and world.size > 1 and not watched(world):
        raise LauncherError("MPI over several hosts needs the watch", f"{WATCH}=off", f"unset {WATCH} on all hosts")
    with ExitStack() as left:
        left.callback(processes.kill_below, spared)  # of a check that was stopped, too
        try:
            secret = trust.take(os.environ)
            if kind == "mpi":
                ssh.refuse_untrusted(world, secret, os.environ)
            code, said = check(world, kind, os.environ, settings)
            if code:
                tell(world, settings, secret, code, said)
                return code, said[: settings["failure_characters"]]
            folder = ranks.folder(world.job, alone=world.size == 1)
            left.callback(ranks.remove, folder)
            keys = ssh.make_keys(settings) if kind == "mpi" and world.size > 1 else None
            if keys:
                left.callback(ssh.remove, keys)
            environ = starting.common(world, os.environ)
            ranks.prepare(folder, environ)
        except LauncherError as problem:
            tell(world, settings, secret, 1, str(problem))
            raise
        except Stopped:
            soon = {**settings, "tell_seconds": settings["peer_stop_seconds"]}
            tell(world, soon, secret, 128 + signals.number, stopped(world.host, signals))
            raise
        meeting = meet(world, settings, secret, keys)
        left.callback(meeting.close)
        job = following.Job(world, settings, meeting, signals, folder, spared, watched=watched(world))
        try:
            start(job, kind, asked, environ, keys)
            return following.follow(job)
        except LauncherError as problem:
            meeting.say("failed", code=1, cause=f"{world.host}: {problem}")
            raise
        except Stopped:
            meeting.say("stop", cause=signals.name)
            raise
        finally:
            for server in job.servers:
                server.terminate()


def tell(world: World, settings: Settings, secret: trust.Secret | None, code: int, said: str) -> None:
    """The other hosts need not wait for one that does not come."""
    if watched(world):
        watch.tell(world, settings, secret, code, said if said.startswith(world.host) else f"{world.host}: {said}")


def main(words: Sequence[str], settings: Settings) -> int:
    signals, spared = Signals(), processes.below(os.getpid())
    place, host = failures.place(os.environ), "this host"
    try:
        signals.install()  # one that `train` held back comes here and now
        processes.adopt()
        failures.begin(place)
        asked = options.parse(words)
        here = world(asked.flags, os.environ)
        host = here.host
        code, said = run(asked, here, settings, signals, spared)
    except LauncherError as problem:
        code, said = 1, f"{host}: {problem}"
    except Stopped:
        code, said = 128 + signals.number, stopped(host, signals)
    except Exception as problem:  # ours to mend; the platform must hear of it nevertheless
        traceback.print_exc()
        code, said = 1, f"{host}: the launcher failed: {type(problem).__name__}: {problem}"
    signals.raising = False
    if code:
        failures.write(place, said)
        note(said)
    else:
        failures.succeed(place)
    following.uploads(spared, settings["upload_seconds"])
    return code


def stopped(host: str, signals: Signals) -> str:
    return f"{host}: stopped by {signals.name} before its script ran"
