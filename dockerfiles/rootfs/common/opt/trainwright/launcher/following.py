"""Follow a running job to its end: ranks that end, peers that fail, and a platform that stops the job.

Every wait except the one for the training itself has a timeout. Exit code and reason are those of the rank that failed
first on any host.
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

Result = tuple[int, str]  # this host's exit code, and the text of its failure file


@dataclass
class Job:
    """Hold the state of a job on this host. `children` is empty on an MPI worker, where sshd starts the ranks."""

    world: World
    settings: Mapping[str, int]
    meeting: Meeting
    signals: Signals
    folder: Path
    spared: list[int]  # pids that ran before the launcher and are never killed
    children: list[processes.Child] = field(default_factory=list)
    servers: list[subprocess.Popen[bytes]] = field(default_factory=list)
    watched: bool = True
    agents: bool = False  # the children are torchrun agents, which may be killed once their ranks have ended
    stopping: str = ""  # why the ranks are being stopped
    deadline: float = 0
    told: set[int] = field(default_factory=set)

    @property
    def poll(self) -> float:
        return self.settings["poll_milliseconds"] / 1000

    def others(self) -> list[int]:
        """Return the pids below this process on an MPI worker: ranks and mpirun's daemon, which must outlive mpirun."""
        apart = {*self.spared, *(server.pid for server in self.servers)}
        return [pid for pid in processes.below(os.getpid()) if pid not in apart]

    def reap(self) -> None:
        processes.reap([*(child.pid for child in self.children), *(server.pid for server in self.servers)])


def follow(job: Job) -> Result:
    """Follow the job until this host's part has ended. Returns its exit code and failure text."""
    while True:
        job.reap()
        if job.signals.number and not job.stopping:
            job.meeting.say("stop", cause=job.signals.name)
            _stop(job, f"stopped by {job.signals.name}", job.settings["stop_seconds"])
        event = job.meeting.heard(job.poll)
        if event and event.kind in ("failed", "lost") and not job.stopping:
            return _ended_by(job, event)
        if event and event.kind == "stop" and not job.stopping:
            _stop(job, f"stopped because {event.host} was stopped ({event.cause})", job.settings["stop_seconds"])
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
    """Send SIGTERM to the ranks. A file tells their parents, so that a rank that then ends does not count as failed."""
    job.stopping, job.deadline = why, time.monotonic() + seconds
    note(f"{job.world.host}: {why}; SIGTERM to the script, SIGKILL after {seconds:g} s")
    try:
        (job.folder / ranks.STOPPING).touch(mode=0o600)
    except OSError as problem:
        note(f"{job.folder} cannot be written: {problem.strerror}")
    _tell_ranks(job)


def _tell_ranks(job: Job) -> None:
    """Send SIGTERM once to each rank, including those that have started since the last call."""
    found = ranks.running(job.folder)
    if not found and _direct(job):
        found = [target for child in job.children if child.ended() is None for target in processes.targets(child.pid)]
    new = [pid for pid in found if pid not in job.told]
    processes.tell(new)
    job.told.update(new)


def _direct(job: Job) -> bool:
    """Return whether the children are the script itself, not torchrun or mpirun."""
    return all(child.is_script for child in job.children)


def _ended(job: Job) -> Result:
    """Wait, after all ranks of this host ended with 0, until those of all hosts have."""
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
    """Report that a rank of this host failed; after SIGTERM or SIGKILL, first wait for another host's cause."""
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
    """Wait up to verdict_seconds for the event that ended the job, which is the same on all hosts. None: no event."""
    end = time.monotonic() + job.settings["verdict_seconds"]
    while time.monotonic() < end:
        event = job.meeting.heard(job.poll)
        if event and event.kind in ("failed", "lost"):
            return event
    return None


def _cause(job: Job) -> Result:
    """Return exit code and last stderr of the rank that failed first; without a record, those of the child process."""
    code = next((failures.exit_code(end) for child in job.children if (end := child.ended())), 1)
    found = ranks.records(job.folder)
    if not found and not _direct(job):
        time.sleep(job.poll)  # a record may still be being written
        found = ranks.records(job.folder)
    if found:
        return found[0].code, found[0].words
    failed = [child for child in job.children if child.ended()]
    words = failed[0].tail(job.settings["drain_seconds"]) if failed else ""
    return code, failures.last_words(words, job.settings["failure_characters"])


def _ended_by(job: Job, event: Event) -> Result:
    """End this host because another one failed. Its ranks may hang in a collective, so they get seconds only."""
    note(f"{job.world.host}: ends because of {event.host}: {event.kind}")
    _end_ranks(job)
    text = event.cause if event.cause.startswith(f"{event.host}:") else f"{event.host}: {event.cause or event.kind}"
    return event.code or 1, text[: job.settings["failure_characters"]]


def _end_ranks(job: Job) -> None:
    """End the remaining ranks: SIGTERM, and SIGKILL after peer_stop_seconds."""
    if _alive(job):
        _stop(job, "another rank failed", job.settings["peer_stop_seconds"])
    while time.monotonic() < job.deadline and _alive(job):
        job.reap()
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
    """Wait for uploads of SageMaker's toolkit, which end by themselves once `success` or `failure` exists."""
    end = time.monotonic() + seconds
    while time.monotonic() < end and any(processes.stat(pid)[0] == os.getpid() for pid in spared):
        processes.reap([])
        time.sleep(seconds / 100)
