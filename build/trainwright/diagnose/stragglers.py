"""Find the rank of a running job that is late: from step times that ranks print, or from when they called collectives.

Ranks that wait for each other in each step take equally long for it. So the time of a whole step shows only since when
all are slower; which rank it is, times show that end before the ranks meet, and the order in which they came. Pure.
"""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from statistics import median

from trainwright.core.toml import Model, load
from trainwright.diagnose.causes import Expression

FILE = "dockerfiles/stragglers.toml"
SECONDS = {"s": 1.0, "ms": 1e-3, "us": 1e-6}
NORMAL = 1.4826  # from the median absolute deviation to the standard deviation
WIDEST = 0.95  # quantile
Series = Mapping[int, float]  # of each step


class Rules(Model):
    share: float
    seconds: float
    noise: float
    steps: int
    most: float
    kept: int
    slower: float


class Lines(Model):
    step: list[str]
    rank: list[str]


class Time(Model):
    id: str
    line: Expression
    unit: str
    own: bool = False
    per: bool = False


class Settings(Model):
    """The content of stragglers.toml."""

    late: Rules
    lines: Lines
    times: list[Time]


def load_settings(root: Path) -> Settings:
    return load(root / FILE, Settings)


@dataclass(frozen=True)
class Late:
    """A rank that is late until the end of what is known, or with `rank` None all of them."""

    rank: int | None
    by: float  # seconds, the median
    usual: float  # seconds that others take, or that all took before
    since: int  # the first step or collective
    first: bool  # it is the first one that is known
    unit: str  # step, collective


class Paces:
    """The times that ranks print. Feed it lines."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self._times = [(one, re.compile(one.line)) for one in settings.times]
        self._steps = [re.compile(text) for text in settings.lines.step]
        self._ranks = [re.compile(text) for text in settings.lines.rank]
        self.own: dict[str, dict[int, dict[int, float]]] = {}
        self.whole: dict[str, dict[int, dict[int, float]]] = {}

    def feed(self, text: str, rank: int | None) -> bool:
        """Note what a line says of time; return whether it says anything."""
        any_ = False
        for time, line in self._times:
            if found := line.search(text):
                rank = rank if rank is not None else self._number(self._ranks, text)
                if rank is None:
                    return False
                groups = found.groupdict()
                value, unit = float(found["value"]), groups.get("unit") or groups.get("after") or time.unit
                if time.per and not value:
                    continue
                seconds = (1 / value if time.per else value) * SECONDS[unit]
                any_ = self._note(time, rank, self._number(self._steps, text), seconds) or any_
        return any_

    def _number(self, expressions: Sequence["re.Pattern[str]"], text: str) -> int | None:
        return next((int(found[1]) for one in expressions if (found := one.search(text))), None)

    def _note(self, time: Time, rank: int, step: int | None, seconds: float) -> bool:
        known = (self.own if time.own else self.whole).setdefault(time.id, {}).setdefault(rank, {})
        step = max(known, default=-1) + 1 if step is None else step
        if known and step < max(known):  # it began again
            known.clear()
        known[step] = known.get(step, 0.0) + seconds if time.own and step in known else seconds
        if len(known) > self.settings.late.kept:
            del known[min(known)]
        return True

    @property
    def steps(self) -> int:
        """Return the last step that any rank has told."""
        kinds = (*self.own.values(), *self.whole.values())
        return max((step for kind in kinds for one in kind.values() for step in one), default=0)

    def late(self) -> list[Late]:
        """Return the ranks that are late, the worst one first; else that all became slower, if they did."""
        for series in [*self.own.values(), *self.whole.values()]:
            if found := of_times(series, self.settings.late):
                return found
        for series in self.whole.values():
            if one := of_all(series, self.settings.late):
                return [one]
        return []


class WatchedPaces:
    """The same of a log that grows: reports a rank that is late once, and again after it was not."""

    def __init__(self, paces: Paces) -> None:
        self.paces, self._told, self._at = paces, set[int | None](), 0

    def line(self, speaker: str, text: str) -> list[str]:
        """Process a line; `speaker` is "rank N" where the log says so."""
        label = speaker.removeprefix("rank ")
        if not self.paces.feed(text, int(label) if label.isdecimal() else None):
            return []
        steps = self.paces.steps
        if abs(steps - self._at) < self.paces.settings.late.steps:  # less: it began again
            return []
        self._at, late = steps, self.paces.late()
        new = [one for one in late if one.rank not in self._told]
        self._told = {one.rank for one in late}
        return [line for one in new for line in said(one)]


def said(one: Late) -> list[str]:
    """Return the words for a rank that is late, or for all of them."""
    if one.rank is None:
        return [
            f"straggler: all ranks take {seconds(one.by)} more for a step than {seconds(one.usual)}, "
            f"since step {one.since}",
            "  fix: these times do not show which rank is late: a dump of the flight recorder of each rank does",
        ]
    since = "from its first step on" if one.first else f"since step {one.since}"
    return [
        f"straggler: rank {one.rank} takes {seconds(one.by)} longer than the others' {seconds(one.usual)}, {since}",
        "  fix: look at its host: nvidia-smi -q -d PERFORMANCE,TEMPERATURE, dmesg, what else runs there",
    ]


def of_times(series: Mapping[int, Series], rules: Rules) -> list[Late]:
    """Return the ranks that take longer than the others for what they do by themselves."""
    steps = sorted(
        step for step, count in Counter(step for one in series.values() for step in one).items() if count > 1
    )
    if len(series) < 2 or len(steps) < rules.steps:
        return []
    usual = {step: sorted(one[step] for one in series.values() if step in one) for step in steps}
    least = {step: max(rules.share * values[(len(values) - 1) // 2], rules.seconds) for step, values in usual.items()}
    found = []
    for rank, own in series.items():
        excess = {step: own[step] - _others(usual[step], own[step]) for step in steps if step in own}
        quiet = [abs(value) for value in excess.values() if value < least[steps[-1]]]
        noise = rules.noise * NORMAL * median(quiet) if len(quiet) > rules.steps else 0.0
        flags = [(step, value > max(least[step], noise)) for step, value in excess.items()]
        since = begun(flags, rules)
        if since is not None:
            later = [step for step in excess if step >= since]
            by, others = median(excess[step] for step in later), median(own[step] - excess[step] for step in later)
            found.append(Late(rank, by, others, since, since == flags[0][0], "step"))
    return sorted(found, key=lambda one: -one.by) if 2 * len(found) <= len(series) else []


def _others(ranked: list[float], own: float) -> float:
    """Return the median of the other ranks."""
    rest = list(ranked)
    rest.remove(own)
    return median(rest)


def begun(flags: Sequence[tuple[int, bool]], rules: Rules) -> int | None:
    """Return since when most flags are set until the end; None if the last ones are not."""
    if len(flags) < rules.steps or sum(flag for _, flag in flags[-rules.steps :]) < rules.most * rules.steps:
        return None
    return onset(flags, rules.most / (1 - rules.most))


def onset(flags: Sequence[tuple[int, bool]], cost: float) -> int:
    """Return where the end begins that has the most flags, each that is not set counted against `cost` that are."""
    best, since, total = 0.0, flags[-1][0], 0.0
    for step, flag in reversed(flags):
        total += 1.0 if flag else -cost
        if flag and total >= best:
            best, since = total, step
    return since


def of_all(series: Mapping[int, Series], rules: Rules) -> Late | None:
    """Return since when the steps of all ranks take longer."""
    values: dict[int, list[float]] = {}
    for one in series.values():
        for step, seconds in one.items():
            values.setdefault(step, []).append(seconds)
    steps = sorted(values)
    typical = [median(values[step]) for step in steps]
    if len(steps) < 3 * rules.steps:
        return None
    before = median(typical[1 : rules.steps + 1])  # the first one has the start in it
    off = NORMAL * median(abs(value - before) for value in typical[1 : rules.steps + 1])
    least = max((1 + rules.slower) * before, before + rules.seconds, before + rules.noise * off)
    since = begun([(step, value > least) for step, value in zip(steps, typical, strict=True)], rules)
    if since is None or since == steps[0]:
        return None
    now = median(value for step, value in zip(steps, typical, strict=True) if step >= since)
    return Late(None, now - before, before, since, False, "step")


def of_arrivals(arrived: Mapping[int, Series], rules: Rules) -> Late | None:
    """Return the rank that comes last to the collectives in which the others wait.

    `arrived` has the seconds of each collective's call, of each rank; the clocks of hosts must agree.
    """
    counts = Counter(number for one in arrived.values() for number in one)
    numbers = sorted(number for number, count in counts.items() if count == len(arrived))
    if len(arrived) < 2 or len(numbers) < rules.steps:
        return None
    last: dict[int, tuple[int, float]] = {}
    for number in numbers:
        order = sorted((one[number], rank) for rank, one in arrived.items())
        last[number] = order[-1][1], order[-1][0] - median(time for time, _ in order[:-1])
    recent = sorted(late for _, late in list(last.values())[-max(len(last) // 2, rules.steps) :])
    widest = recent[int(WIDEST * (len(recent) - 1))]
    waited = [number for number in numbers if last[number][1] >= max(widest / 2, rules.seconds)]
    if len(waited) < rules.steps:
        return None
    rank = Counter(last[number][0] for number in waited[-rules.steps :]).most_common(1)[0][0]
    if begun([(number, last[number][0] == rank) for number in waited], rules) is None:
        return None
    # The others wait in one collective of a step, and in many runs of them only now and then before: those count, too.
    flags = {number for number in waited if last[number][0] == rank}
    end = [number for number in numbers if number >= waited[-rules.steps]]
    share = min(sum(number in flags for number in end) / len(end), rules.most)
    since = onset([(number, number in flags) for number in numbers], 0.5 * share / (1 - share))
    later = [number for number in waited if number >= since]
    by = median(last[number][1] for number in later)
    first = next(other for other in arrived if other != rank)
    gaps = [arrived[first][b] - arrived[first][a] for a, b in pairwise(later)]
    usual = median(gaps) if gaps else 0.0
    if by < rules.share * usual:
        return None
    return Late(rank, by, usual, since, since == waited[0] and since <= numbers[1], "collective")


def seconds(value: float) -> str:
    return f"{value:.2f} s" if value >= 1 else f"{1000 * value:.0f} ms"
