"""Describe what is searched: hosts with racks and rails, the runs of a round, their results, who may be at fault."""

from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from trainwright.core.toml import Model, load

FILE = "dockerfiles/find.toml"
Share = Annotated[float, Field(gt=0, lt=1)]
Count = Annotated[int, Field(ge=1)]
Kind = Literal["ok", "hang", "error", "wrong"]
# ("none",), ("everyone",), ("hosts", a, b...), ("rail", host, rail), ("link", a, b), ("boundary", r, s), ("uplink", r)
Culprit = tuple[str | int, ...]
NOBODY: Culprit = ("none",)
EVERYONE: Culprit = ("everyone",)


class Error(Model):
    blame: Share
    path: Share
    more: Share
    miss: Share


class Noise(Model):
    sd: Share
    weight: Count
    least: Share
    core: Count
    freedom: Count
    disturbed: Share
    broken: Share


class Effect(Model):
    least: Annotated[float, Field(ge=1)]
    step: Annotated[float, Field(gt=1)]
    steps: Count
    spread: Share
    reached: Share


class Prior(Model):
    host: Share
    flapping: Share
    group: Share
    rail: Share
    link: Share
    boundary: Share
    uplink: Share
    everyone: Share
    second: Share
    flaps: Annotated[list[Share], Field(min_length=1)]

    @property
    def none(self) -> float:
        named = self.host + self.flapping + self.group + self.rail + self.link + self.boundary + self.uplink
        return max(1 - named - self.everyone, 0.01)


class Rounds(Model):
    most: Count
    two: Count
    ladder: Annotated[int, Field(ge=2)]
    doubt: Share
    controls: Count
    few: Count
    racks: Count


class Sweep(Model):
    collective: str
    least: Count
    most: Count
    factor: Annotated[int, Field(ge=2)]
    iterations: Count
    warmup: int
    limit: Count
    rail_limit: Count
    grace: Count
    wait: Count
    ready: Count
    seconds: Count
    rail_seconds: Count
    side_by_side: Count


class Rates(Model):
    """How often a kind of evidence speaks against a host that is at fault, and against one that is not."""

    guilty: Share
    innocent: Share


class Evidence(Model):
    most: Annotated[float, Field(gt=1)]
    events: list[str]
    least: Count
    times: Count
    rates: dict[str, Rates]


class Settings(Model):
    """The whole of find.toml."""

    error: Error
    noise: Noise
    effect: Effect
    prior: Prior
    rounds: Rounds
    run: Sweep
    evidence: Evidence
    environment: dict[str, str]


def load_settings(root: Path) -> Settings:
    return load(root / FILE, Settings)


@dataclass(frozen=True)
class Cluster:
    """The hosts in the order of the ring. `racks` has each host's rack; () where no topology is known."""

    names: tuple[str, ...]
    racks: tuple[int, ...] = ()
    rails: int = 1  # GPUs of a host, each with its own network card; 1: not told apart
    alone: bool = True  # whether a host can be measured by itself

    @property
    def size(self) -> int:
        return len(self.names)

    @cached_property
    def members(self) -> dict[int, list[int]]:
        found: dict[int, list[int]] = {}
        for host, rack in enumerate(self.racks):
            found.setdefault(rack, []).append(host)
        return found

    @cached_property
    def boundaries(self) -> set[tuple[int, int]]:
        racks = sorted(rack for rack, hosts in self.members.items() if len(hosts) > 1)  # else it is the host's own
        return {(one, two) for place, one in enumerate(racks) for two in racks[place + 1 :]}

    @cached_property
    def ring(self) -> set[tuple[int, int]]:
        """Return the links that a ring over all hosts uses."""
        return {ordered(host, (host + 1) % self.size) for host in range(self.size)} if self.size > 1 else set()

    def crossed(self, hosts: tuple[int, ...]) -> set[tuple[int, int]]:
        """Return the boundaries that a ring over these hosts crosses."""
        if not self.racks:
            return set()
        pairs = (ordered(self.racks[a], self.racks[b]) for a, b in links(hosts))
        return {pair for pair in pairs if pair in self.boundaries}


def ordered(a: int, b: int) -> tuple[int, int]:
    return (a, b) if a < b else (b, a)


def links(hosts: tuple[int, ...]) -> set[tuple[int, int]]:
    """Return the links that a ring over these hosts uses."""
    if len(hosts) < 2:
        return set()
    return {ordered(hosts[place - 1], host) for place, host in enumerate(hosts)}


def ladder(cluster: Cluster, settings: Settings) -> list[int]:
    """Return the sizes of larger groups; half of the hosts at most, because a group needs another one beside it."""
    sizes, size = [], settings.rounds.ladder
    while size <= cluster.size // 2:
        sizes.append(size)
        size *= settings.rounds.ladder
    if sizes and sizes[-1] * 2 <= cluster.size // 2:
        sizes.append(cluster.size // 2)
    return sizes


class Sign(Model):
    """What a witness says of a host in one run. `own`: it cannot come from another host of the run."""

    source: str
    host: str
    state: Literal["bad", "fine", "not there"]
    what: str
    own: bool = True
    events: int = 0


@dataclass(frozen=True)
class Test:
    """One run: these hosts, alone or together; with `rails`, afterwards each rail by itself."""

    __test__ = False  # not a test class, despite the name

    hosts: tuple[int, ...]
    rails: bool = False


@dataclass(frozen=True)
class Result:
    """The outcome of a run. `speed` is the logarithm of busbw, None where `kind` is not "ok"."""

    test: Test
    round: int
    speed: float | None
    rails: tuple[float | None, ...] = ()
    kind: Kind = "ok"
    why: str = ""  # the cause of a failure, as diagnosed
    log: str = ""
    signs: tuple[Sign, ...] = ()


@dataclass
class Belief:
    """What the results say: probabilities of who is at fault, and how suspect each host is."""

    chances: dict[Culprit, float]  # of the probable ones; they sum up to at most 1
    evidence: list[float]  # of each host: logarithm of how much better its fault explains the runs than none
    lifts: dict[Culprit, float]  # the same of every hypothesis in `chances`
    sd: float
    pair: float | None  # the median of pairs, as the logarithm of busbw
    scores: dict[int, float | None]  # of each result by its place: in standard deviations; None: it did not end
    rails: dict[int, float] = field(default_factory=dict)  # of each host: that it is one of its rails
    groups: dict[int, float] = field(default_factory=dict)  # of each host: that it is slow in larger groups only
    signs: list[Sign] = field(default_factory=list)  # of each host, what each kind of evidence says over all its runs

    @property
    def best(self) -> tuple[Culprit, float]:
        return max(self.chances.items(), key=lambda one: one[1])
