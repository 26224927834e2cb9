"""Turn speeds into scores: how many standard deviations a run is from the median of runs of its kind, in this fleet."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from trainwright.gate.find.model import Cluster, Noise, Result, Settings, Test

NORMAL = 1.4826  # from the median absolute deviation to the standard deviation
ALONE, TOGETHER, RAIL = "alone", "together", "rail"
FASTER = 0.5  # standard deviations by which the faster half of many values is above their median
CROWDED = 4  # groups that all hosts make: with fewer of them, a slow host is in many of the runs
Key = tuple[str, int, bool]  # family, number of hosts, whether it crosses racks


@dataclass(frozen=True)
class Scores:
    whole: list[float | None]  # of each result
    rails: list[tuple[float | None, ...]]
    spread: Mapping[str, float]  # the scale of each family
    centres: Mapping[Key, float]


def key(cluster: Cluster, test: Test, settings: Settings) -> Key:
    apart = len(cluster.members) >= settings.rounds.racks and bool(cluster.crossed(test.hosts))
    size = len(test.hosts)
    return (ALONE if size == 1 else TOGETHER, 2 if size == 3 else size, apart)  # three are a pair and an odd one


def core(values: Sequence[float], noise: Noise) -> list[float]:
    """Return the values that a fault has not slowed down: up to half of the runs may be slow."""
    fast = sorted(values)[-(len(values) // 4) - 1]
    return [value for value in values if value >= fast - noise.core * noise.sd]


def crowded(name: Key, cluster: Cluster) -> bool:
    """Return whether one host is in so many runs of a kind that half of them may be slow: of large groups."""
    return name[1] > 3 and CROWDED * name[1] >= cluster.size


def centre(values: Sequence[float], settings: Settings, half: bool = False) -> float:
    """Return the median; of few values, or with `half`, that of the faster half, which a slow host does not move."""
    ranked = sorted(core(values, settings.noise), reverse=True)
    few = len(values) < settings.rounds.few
    if not half and not few:
        return float(median(ranked))
    faster = float(median(ranked[: (len(ranked) + 1) // 2]))
    return faster if few else faster - FASTER * settings.noise.sd


def scores(cluster: Cluster, results: Sequence[Result], settings: Settings) -> Scores:
    """Score all results together, because the first ones are judged better with those that follow."""
    held: dict[Key, list[float]] = {}
    keys = [key(cluster, result.test, settings) for result in results]
    for result, name in zip(results, keys, strict=True):
        if result.speed is not None:
            held.setdefault(name, []).append(result.speed)
        held.setdefault((RAIL, 2, name[2]), []).extend(rail for rail in result.rails if rail is not None)
    centres = {name: centre(values, settings, crowded(name, cluster)) for name, values in held.items() if values}
    plain = {name: values for name, values in held.items() if not crowded(name, cluster)}
    spread = {family: _spread(family, plain, centres, settings) for family in (ALONE, TOGETHER, RAIL)}
    whole: list[float | None] = []
    rails: list[tuple[float | None, ...]] = []
    for result, name in zip(results, keys, strict=True):
        whole.append(None if result.speed is None else (result.speed - centres[name]) / spread[name[0]])
        middle = centres.get((RAIL, 2, name[2]), 0.0)
        rails.append(tuple(None if rail is None else (rail - middle) / spread[RAIL] for rail in result.rails))
    return Scores(whole, rails, spread, centres)


def _spread(
    family: str, held: Mapping[Key, Sequence[float]], centres: Mapping[Key, float], settings: Settings
) -> float:
    """Return a robust standard deviation: of what is measured, and of what was expected before."""
    off = [
        abs(value - centres[name])
        for name, values in held.items()
        if name[0] == family and len(values) > 2
        for value in core(values, settings.noise)
    ]
    noise, count = settings.noise, len(off)
    measured = NORMAL * median(off) if off else 0.0
    mixed = (noise.weight * noise.sd**2 + count * measured**2) / (noise.weight + count)
    return max(math.sqrt(mixed), noise.least)
