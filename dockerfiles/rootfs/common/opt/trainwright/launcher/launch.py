"""Run a training script on this host of a job: find the hosts, check this one, wait for the others, start the ranks.

    trainwright-launch [--distribution plain|torchrun|mpi|tensorflow] [--processes N] SCRIPT [ARGS...]

It works the same on SageMaker, Slurm, Kubernetes and plain hosts; worlds.py reads each platform. The exit code is that
of the script, or of the script that failed first on another host.
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
IMPLIED = {"mpijob": "mpi", "pytorchjob": "torchrun"}  # platform -> the distribution that it exists for
Settings = Mapping[str, int]


def read(path: str) -> str | None:
    """Return a file's text, or None if it cannot be read."""
    try:
        return Path(path).read_text(errors="replace")
    except OSError:
        return None


def world(flags: worlds.Flags, environ: Mapping[str, str]) -> World:
    """Read the hosts of the job, and this host's GPUs. Raises LauncherError if a platform's data are incomplete."""
    return worlds.world(environ, read, flags, options.gpus([path.name for path in Path("/dev").iterdir()], environ))


def distribution(asked: str, world: World) -> str:
    """Choose the distribution, which starts the ranks.

    Raises LauncherError for several hosts without one, because each host would then train by itself.
    """
    if asked or (implied := IMPLIED.get(world.platform, "")):
        return asked or implied
    if world.host_count > 1:
        why = "without one, each host would train by itself"
        raise LauncherError(
            f"a job of {world.host_count} hosts requires a distribution", why, "--distribution torchrun"
        )
    return "plain"


def count(kind: str, asked: int, platform: int) -> int:
    """Return the number of processes on each host; torchrun and mpi default to one for each GPU.

    Raises LauncherError for several processes with the distribution plain.
    """
    if kind == "plain" and asked > 1:
        fix = f"--distribution torchrun, mpi or tensorflow; or omit --processes {asked}"
        raise LauncherError(
            f"--processes {asked} requires another distribution", "plain starts one process on each host", fix
        )
    return {"plain": 1, "tensorflow": asked or 1}.get(kind, platform)


def check(world: World, distribution: str, environ: Mapping[str, str], settings: Settings) -> Result:
    """Run trainwright-check, which verifies the image and the host. Returns its exit code and its report."""
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
    return code, child.tail(settings["drain_seconds"]).strip() or f"{CHECK} ended with exit code {code}"


def meet(world: World, settings: Settings, secret: trust.Secret | None, keys: ssh.Keys | None) -> Meeting:
    """Wait until all hosts of the job have joined and have exchanged their public ssh keys.

    Raises LauncherError if a host does not join in time, is refused, or fails meanwhile.
    """
    card = {ssh.CARD: keys.public} if keys else {}
    if not watched(world):
        return Alone()
    if not secret and not world.index:
        risk = f"any process that can connect to {world.main} can end the job"
        note(f"this job has no secret, so {risk}: set {trust.VARIABLE} on all hosts")
    return watch.join(world, settings, secret, card)


def watched(world: World) -> bool:
    return world.host_count > 1 and os.environ.get(WATCH) != "off"


def start(
    job: following.Job, kind: str, asked: options.Options, environ: dict[str, str], keys: ssh.Keys | None
) -> None:
    """Start this host's part of the job; from here on the launcher passes signals on to the script.

    Raises LauncherError if a command cannot be started.
    """
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
        _, said = processes.run(["mpirun", "--version"], job.settings["program_seconds"])
        major = starting.openmpi_major(said)
        command = [*starting.mpirun(world, major, asked.mpi_options, agent), *ranks_of(job, asked, kind)]
        job.children.append(processes.Child(command, starting.for_mpirun(environ), tail, script=False))


def ports_of(world: World, kind: str, settings: Settings) -> list[int]:
    """Return one port for each process: fixed ports, which all hosts know, or free ones for a job of one host.

    Another job may run on the same host, so a job of one host must not take the fixed ones.
    """
    if world.host_count > 1:
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
    """Check this host, wait for the others, start the ranks and follow them to their end.

    `spared`: pids that ran before the launcher and are never killed. Raises LauncherError, Stopped.
    """
    kind, secret = distribution(asked.distribution, world), None
    world = replace(world, processes=count(kind, asked.flags.processes, world.processes))
    if kind == "mpi" and world.host_count > 1 and not watched(world):
        why = f"{WATCH}=off closes the connection between the hosts, over which they exchange their ssh keys"
        what = f"MPI over several hosts does not work with {WATCH}=off"
        raise LauncherError(what, why, f"unset {WATCH} on all hosts")
    with ExitStack() as left:
        left.callback(processes.kill_below, spared)  # also ends the processes of a check that was stopped
        try:
            secret = trust.take(os.environ)
            if kind == "mpi":
                ssh.refuse_untrusted(world, secret, os.environ)
            code, said = check(world, kind, os.environ, settings)
            if code:
                tell(world, settings, secret, code, said)
                return code, said[: settings["failure_characters"]]
            folder = ranks.folder(world.job, alone=world.host_count == 1)
            left.callback(ranks.remove, folder)
            keys = ssh.make_keys(settings) if kind == "mpi" and world.host_count > 1 else None
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
    """Tell the other hosts that this one failed, so that they do not wait for it."""
    if watched(world):
        watch.tell(world, settings, secret, code, said if said.startswith(world.host) else f"{world.host}: {said}")


def main(words: Sequence[str], settings: Settings) -> int:
    signals, spared = Signals(), processes.below(os.getpid())
    place, host = failures.place(os.environ), "this host"
    try:
        signals.install()  # delivers a signal that `train` had blocked
        processes.become_subreaper()
        failures.begin(place)
        asked = options.parse(words)
        here = world(asked.flags, os.environ)
        host = here.host
        code, said = run(asked, here, settings, signals, spared)
    except LauncherError as problem:
        code, said = 1, f"{host}: {problem}"
    except Stopped:
        code, said = 128 + signals.number, stopped(host, signals)
    except Exception as problem:  # a defect of the launcher; the platform still needs a failure file
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
