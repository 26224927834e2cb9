"""Watch a growing log: report known causes as soon as a line shows one, and silence. Pure: `now` is a parameter."""

from pathlib import Path

from trainwright.core.toml import Model, load
from trainwright.diagnose import reader, stragglers
from trainwright.diagnose.answer import answer, found
from trainwright.diagnose.causes import Cause, load_causes
from trainwright.diagnose.stragglers import Paces, WatchedPaces

FILE = "dockerfiles/follow.toml"
WENT_ON = "no failure is established: nothing above is shown to have ended the job"


class Poll(Model):
    file_seconds: float
    logs_seconds: float
    status_seconds: float
    first_wait_seconds: float
    longest_wait_seconds: float
    patience_seconds: float


class Logs(Model):
    group: str
    look_back_seconds: float
    margin_seconds: float
    settle_seconds: float
    longest_settle_seconds: float
    sweep_seconds: float
    late_events: int


class Silence(Model):
    job_seconds: float
    host_seconds: float


class Settings(Model):
    """The content of follow.toml."""

    poll: Poll
    log: Logs
    silence: Silence


def load_settings(root: Path) -> Settings:
    return load(root / FILE, Settings)


def load_watch(root: Path, hosts: int = 0) -> "Watch":
    """Return a watch with the causes and settings of a checkout."""
    reading = reader.Reader(load_causes(root), reader.load_settings(root))
    return Watch(reading, load_settings(root), hosts, Paces(stragglers.load_settings(root)))


class Host:
    """The times of a host's lines, in seconds of the reader's clock."""

    def __init__(self, now: float) -> None:
        self.first = self.last = now
        self.pause = 0.0  # the longest pause
        self.told = False


class Watch:
    """A watch over a job's lines; each call returns the messages to report, each once.

    `hosts` is the job's number of hosts, 0 if unknown: on a lone host, network problems are not causes. The causes are
    found by the reader that `diagnose` uses, and the final one is its answer.
    """

    def __init__(self, reading: reader.Reader, settings: Settings, hosts: int = 0, paces: Paces | None = None) -> None:
        self.settings, self.hosts = settings, hosts
        self.failed = False  # whether the job is known to have failed
        self.silent = False  # no host has spoken for longer than the settings allow
        self._reader = reading
        self._seen, self._said = set[str](), list[list[str]]()  # ids of causes that lines showed; what was reported
        self.lines, self._speakers = 0, dict[str, Host]()
        self._paces = WatchedPaces(paces) if paces else None
        self._spoke: float | None = None  # when any host last spoke; None: the clock is stopped

    def line(self, host: str, text: str, now: float) -> list[str]:
        """Process a line of a host; `host` is "" if the log does not say which host wrote it."""
        self.lines += 1
        self._spoke, self.silent = now, False
        speaker = self._speakers.setdefault(host, Host(now))
        speaker.pause, speaker.last, speaker.told = max(speaker.pause, now - speaker.last), now, False
        return self.note(text) + (self._paces.line(host, text) if self._paces else [])

    def note(self, text: str) -> list[str]:
        """Process a text about the job that is not of a host, such as SageMaker's failure reason."""
        if not self._reader.feed(text, self.lines):
            return []
        return self._news()

    def tick(self, now: float, training: bool = True) -> list[str]:
        """Report silence as of `now`; the clock is stopped while the job does not train."""
        if not training:
            self._spoke = None
            return []
        self._spoke = now if self._spoke is None else self._spoke
        quiet, said = now - self._spoke, []
        if quiet >= self.settings.silence.job_seconds and not self.silent:
            self.silent = True
            said.append(f"silence: no host has logged anything for {minutes(quiet)}, but the job should be training")
            said.append("  fix: it may hang: py-spy dump on each rank; look at the rank with a different stack")
        return said + ([] if self.silent else self._lone(now))

    def _lone(self, now: float) -> list[str]:
        limit, said = self.settings.silence.host_seconds, []
        for name, host in self._speakers.items():
            others = [other for other in self._speakers.values() if other is not host]
            talking = any(now - other.last < limit / 2 for other in others)
            # Because many jobs log on one host only, silence counts only for a host that used to speak.
            used_to = host.last - host.first >= limit and host.pause < limit / 2
            if talking and used_to and now - host.last >= limit and not host.told:
                host.told = True
                said.append(f"silence: {name} has logged nothing for {minutes(now - host.last)}, but other hosts have")
                said.append(f"  fix: if the step does not move, look at {name} first: nvidia-smi, dmesg, py-spy dump")
        return said

    def end(self) -> list[str]:
        """Report what `diagnose` answers for the whole log, unless it was the last cause that was reported."""
        last = self.cause
        if last is None:
            return [WENT_ON] if self._said and not self.failed else []
        told = _told(*last)
        if told not in self._said:
            return [f"first cause: {told[0]}", *told[1:]] if self._said else told
        return [] if self._said[-1] == told else [f"{last[0].id}: this is the first cause, of those above"]

    @property
    def cause(self) -> tuple[Cause, str] | None:
        """Return the first cause, with its evidence; sentence and fix are those of the answer."""
        one = answer(self._reader, self.hosts, self.failed)
        if not one.finding:
            return None
        return one.finding.cause.model_copy(update={"what": one.what, "fix": one.fix}), one.evidence

    def stops(self) -> tuple[Cause, str] | None:
        """Return the first cause so far that no program survives, and this one did not, with its evidence."""
        if not any(cause.stops for cause, _ in self._shown()):
            return None
        alive = (one for one in found(self._reader, self.hosts) if not one.survived)
        return next(((one.cause, one.told) for one in alive if one.cause.stops and not one.cause.without), None)

    def _shown(self) -> list[tuple[Cause, str]]:
        """List the causes that the lines so far show, but none that a later line alone may exclude."""
        return [
            (cause, evidence)
            for cause, evidence in self._reader.signatures.found
            if not cause.without and not (cause.network and self.hosts == 1)
        ]

    def _news(self) -> list[str]:
        new = [(cause, evidence) for cause, evidence in self._shown() if cause.id not in self._seen]
        self._seen.update(cause.id for cause, _ in new)  # causes lower in the file are less specific
        return self._tell(_told(*new[0])) if new else []

    def _tell(self, told: list[str]) -> list[str]:
        self._said.append(told)
        return told


def _told(cause: Cause, evidence: str) -> list[str]:
    return [f"{cause.id}: {cause.what}", f"  {evidence}", f"  fix: {cause.fix}"]


def minutes(seconds: float) -> str:
    """Format seconds for people: 90 s, 15 min, 2 h 5 min."""
    whole = round(seconds)
    if whole < 120:
        return f"{whole} s"
    hours, rest = divmod(whole // 60, 60)
    return f"{hours} h {rest} min" if hours else f"{rest} min"
