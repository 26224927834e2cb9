"""From the first rank to the last: ranks that end, peers that fail, and a platform that stops the job.

Every wait but the one for the training itself has an end. Exit code and reason are those of the rank that failed first,
on whichever host that was.
"""

import os
import subprocess
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import failures
import processes
import ranks
from errors import note
from signals import Signals
from watch import Event, Meeting
from worlds import World

Result = tuple[int, str]  # exit code of this host, and the text of its failure file


@dataclass
class Job:
    """A job on this host. `children` were started here: none on an MPI worker, where sshd starts the ranks."""

    world: World
    settings: Mapping[str, int]
    meeting: Meeting
    signals: Signals
    folder: Path
    spared: list[int]  # processes that were there before, and end by themselves
    children: list[processes.Child] = field(default_factory=list)
    servers: list[subprocess.Popen[bytes]] = field(default_factory=list)
    watched: bool = True
    agents: bool = False  # torchrun's: once its ranks are gone each waits for the other hosts', and has nothing to save
    stopping: str = ""  # why
    deadline: float = 0
    told: set[int] = field(default_factory=set)

    @property
    def poll(self) -> float:
        return self.settings["poll_milliseconds"] / 1000

    def others(self) -> list[int]:
        """What runs below this process on a worker: ranks, and mpirun's daemon, which must not leave before mpirun."""
        apart = {*self.spared, *(server.pid for server in self.servers)}
        return [pid for pid in processes.below(os.getpid()) if pid not in apart]

    def bury(self) -> None:
        processes.bury([*(child.pid for child in self.children), *(server.pid for server in self.servers)])


def follow(job: Job) -> Result:
    """Until nothing of the job is left to do on this host."""
    while True:
        job.bury()
        if job.signals.number and not job.stopping:
            job.meeting.say("stop", cause=job.signals.name)
            _stop(job, f"stopped by {job.signals.name}", job.settings["stop_seconds"])
        event = job.meeting.heard(job.poll)
        if event and event.kind in ("failed", "lost") and not job.stopping:
            return _ended_by(job, event)
        if event and event.kind == "stop" and not job.stopping:
            _stop(job, f"stopped, as {event.host} was ({event.cause})", job.settings["stop_seconds"])
        if job.stopping:
            _tell_ranks(job)
            if time.monotonic() > job.deadline:
                return _killed(job)
        codes = [child.ended() for child in job.children]
        running = None in codes
        if not job.stopping and (ranks.records(job.folder) or any(codes)):
            return _failed(job)
        if job.children and not running:
            return _failed(job) if ranks.records(job.folder) or any(codes) else _ended(job)
        if not job.children and job.stopping and not job.others():
            return _failed(job) if ranks.records(job.folder) else (0, "")
        if not job.children and event and event.kind == "ended" and event.host == job.world.main:
            return _ended(job)


def _stop(job: Job, why: str, seconds: float) -> None:
    """The ranks are told to end; who starts them must not take one that does so for a failure."""
    job.stopping, job.deadline = why, time.monotonic() + seconds
    note(f"{job.world.host}: {why}; SIGTERM to the script, SIGKILL after {seconds:g} s")
    try:
        (job.folder / ranks.STOPPING).touch(mode=0o600)
    except OSError as problem:
        note(f"{job.folder} cannot be written: {problem.strerror}")
    _tell_ranks(job)


def _tell_ranks(job: Job) -> None:
    """Once for each, and to those that start meanwhile."""
    found = ranks.running(job.folder)
    if not found and _direct(job):
        found = [target for child in job.children if child.ended() is None for target in processes.targets(child.pid)]
    new = [pid for pid in found if pid not in job.told]
    processes.tell(new)
    job.told.update(new)


def _direct(job: Job) -> bool:
    """Whether the children are the script itself, not torchrun or mpirun."""
    return all(child.is_script for child in job.children)


def _ended(job: Job) -> Result:
    """All ranks of this host ended well: the job has, once those of all hosts have."""
    if job.stopping or not job.watched:
        return 0, ""
    job.meeting.say("ended")
    while not job.meeting.all_ended(job.poll):
        event = job.meeting.heard(0)
        if event and event.kind in ("failed", "lost"):
            return _ended_by(job, event)
        if event and event.kind == "stop":
            break
        if job.signals.number:
            job.meeting.say("stop", cause=job.signals.name)
            break
    return 0, ""


def _failed(job: Job) -> Result:
    """A rank of this host failed. Where another one killed it, that other one is waited for, to say why."""
    code, words = _cause(job)
    text = failures.text(job.world.host, code, words, job.settings["failure_characters"])
    if job.stopping:
        text = f"{failures.ended(job.world.host, code)}, {job.stopping}\n{words}".strip()
        return code, text[: job.settings["failure_characters"]]
    if not job.watched:
        _end_ranks(job)
        return code, text
    event = _heard_end(job) if code in ranks.KILLED else None
    if not event:
        job.meeting.say("failed", code=code, cause=text)
        event = _heard_end(job)
    if event and event.host != job.world.host:
        return _ended_by(job, event)
    _end_ranks(job)
    return code, text


def _heard_end(job: Job) -> Event | None:
    """What ended the job, as all hosts see it; None if nobody says so in time."""
    end = time.monotonic() + job.settings["verdict_seconds"]
    while time.monotonic() < end:
        event = job.meeting.heard(job.poll)
        if event and event.kind in ("failed", "lost"):
            return event
    return None


def _cause(job: Job) -> Result:
    """Exit code and last words of the rank that failed first; where no rank says so, those of what started it."""
    code = next((failures.exit_code(end) for child in job.children if (end := child.ended())), 1)
    found = ranks.records(job.folder)
    if not found and not _direct(job):
        time.sleep(job.poll)  # its record may be on its way
        found = ranks.records(job.folder)
    if found:
        return found[0].code, found[0].words
    failed = [child for child in job.children if child.ended()]
    words = failed[0].tail(job.settings["drain_seconds"]) if failed else ""
    return code, failures.last_words(words, job.settings["failure_characters"])


def _ended_by(job: Job, event: Event) -> Result:
    """Another host is why this one ends: its ranks may hang in a collective, and have seconds to leave it."""
    note(f"{job.world.host}: ends, as {event.host} {event.kind}")
    _end_ranks(job)
    text = event.cause if event.cause.startswith(f"{event.host}:") else f"{event.host}: {event.cause or event.kind}"
    return event.code or 1, text[: job.settings["failure_characters"]]


def _end_ranks(job: Job) -> None:
    """Those that are left: SIGTERM, and SIGKILL within seconds."""
    if _alive(job):
        _stop(job, "another rank failed", job.settings["peer_stop_seconds"])
    while time.monotonic() < job.deadline and _alive(job):
        job.bury()
        _tell_ranks(job)
        time.sleep(job.poll)
    processes.kill_below(job.spared)


def _alive(job: Job) -> bool:
    started = any(child.ended() is None for child in job.children)
    return (started and not job.agents) or bool(ranks.running(job.folder))


def _killed(job: Job) -> Result:
    processes.kill_below(job.spared)
    seconds, code = job.settings["stop_seconds"], 137
    said = f"{failures.ended(job.world.host, code)}: {job.stopping}, and did not end within {seconds} s"
    note(said)
    return code, said


def uploads(spared: list[int], seconds: float) -> None:
    """What the toolkit left running sends the last files, sees `success` or `failure`, and ends."""
    end = time.monotonic() + seconds
    while time.monotonic() < end and any(processes.stat(pid)[0] == os.getpid() for pid in spared):
        processes.bury([])
        time.sleep(seconds / 100)
