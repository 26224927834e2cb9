"""Compute how much better a fault explains a run than no fault does, in logarithms.

Scores are in standard deviations of a run: 0 is the median of its kind, negative is slower, None did not end. An effect
has a grid of sizes, and one entry more for a host that hangs; each function returns one number for each of these.
"""

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

from trainwright.gate.find.model import Settings

Score = float | None
ROUNDED, CLIPPED = 20, 200.0  # scores are rounded to a twentieth, and taken for at most that far off


class Railed(NamedTuple):
    """The ratios of a run rail by rail."""

    every: list[float]  # all of it affected
    whole: list[float]  # only the run of all rails
    each: list[list[float]]  # one rail, and the run of all
    both: list[float]  # of a link or a boundary, where the rails may be compared with others that cross it, too
    flaps: list[list[float]]  # all of it, of a host that has its fault only in a share of the runs


class Likelihood:
    """Log likelihood ratios against a host without a fault, for one set of settings."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        effect, noise = settings.effect, settings.noise
        self.sizes = [effect.least * effect.step**step for step in range(effect.steps)]
        self.count = effect.steps + 1  # the last one hangs
        self._spreads = [math.hypot(1, effect.spread * size) for size in self.sizes]
        nu = noise.freedom
        self._student = math.lgamma((nu + 1) / 2) - math.lgamma(nu / 2) - 0.5 * math.log(nu * math.pi)
        self.plain = lru_cache(maxsize=None)(self._plain)
        self._value = lru_cache(maxsize=None)(self._densities)
        self.flaps = lru_cache(maxsize=None)(self._flaps)
        self._of_rails = lru_cache(maxsize=None)(self._railed)  # each round weighs all runs so far again

    def _log_student(self, value: float, spread: float) -> float:
        nu = self.settings.noise.freedom
        return self._student - math.log(spread) - (nu + 1) / 2 * math.log1p((value / spread) ** 2 / nu)

    def _densities(self, score: Score) -> tuple[float, tuple[float, ...]]:
        """Return the log density of one value without a fault, and with each effect."""
        noise, effect = self.settings.noise, self.settings.effect
        ended = math.log1p(-noise.broken)
        if score is None:
            broken = math.log(noise.broken)
            return broken, (*[broken] * len(self.sizes), math.log(effect.reached))
        undisturbed = ended + self._log_student(score, 1.0)
        slow = [
            ended + self._log_student(score + size, spread)
            for size, spread in zip(self.sizes, self._spreads, strict=True)
        ]
        rare = noise.disturbed
        null = log_sum((math.log1p(-rare) + undisturbed, math.log(rare) + log_mean(slow)))
        return null, (*slow, math.log1p(-effect.reached) + undisturbed)

    def _ratios(
        self, plain: float, every: Sequence[float], ways: Sequence[Sequence[float]], ended: bool
    ) -> list[list[float]]:
        """Return the ratios of some effects. With or without a fault, a run may be disturbed in all its values, once.

        `plain` is the density without a fault, `every` that where all values are affected; `ended`: any value is there.
        """
        rare = self.settings.noise.disturbed
        usual, disturbed = math.log1p(-rare), math.log(rare) + log_mean(every[:-1])
        if not ended:
            disturbed = math.log(self.settings.noise.broken)
        null = log_add(usual + plain, disturbed)
        return [[log_add(usual + value, disturbed) - null for value in way] for way in ways]

    def _plain(self, score: Score) -> tuple[float, ...]:
        null, faulty = self._value(score)
        return tuple(self._ratios(null, faulty, [faulty], ended=True)[0])

    def _flaps(self, score: Score) -> list[list[float]]:
        return [flapping(self.plain(score), share) for share in self.settings.prior.flaps]

    def of(self, score: Score) -> tuple[float, ...]:
        return self.plain(rounded(score))

    def railed(self, score: Score, rails: Sequence[Score]) -> "Railed":
        """Return the ratios of a run rail by rail."""
        return self._of_rails(rounded(score), tuple(map(rounded, rails)))

    def _railed(self, score: Score, rails: tuple[Score, ...]) -> "Railed":
        null, first = self._value(score)
        values = [self._value(rail) for rail in rails]
        nulls = sum(one for one, _ in values)
        every = [first[size] + sum(one[size] for _, one in values) for size in range(self.count)]
        whole = [value + nulls for value in first]
        each = [[first[size] + one[size] + nulls - own for size in range(self.count)] for own, one in values]
        # The values of one run share what its effect differs by, so that together they must not choose a single size.
        every, whole, *each = (smeared(way) for way in (every, whole, *each))
        ended = score is not None or any(rail is not None for rail in rails)
        ratios = self._ratios(null + nulls, every, [every, whole, *each], ended)
        every_ratios, whole_ratios, *each_ratios = ratios
        half = math.log(2)
        both = [log_add(*two) - half for two in zip(every_ratios, whole_ratios, strict=True)]
        flaps = [flapping(every_ratios, share) for share in self.settings.prior.flaps]
        return Railed(every_ratios, whole_ratios, each_ratios, both, flaps)


def rounded(score: Score) -> Score:
    return None if score is None else round(max(-CLIPPED, min(CLIPPED, score)) * ROUNDED) / ROUNDED


def log_sum(values: Sequence[float]) -> float:
    """Return the logarithm of the sum of exponentials."""
    most = max(values)
    if most == -math.inf:
        return most
    return most + math.log(sum([math.exp(value - most) for value in values]))  # a list: this runs a million times


def log_add(one: float, other: float) -> float:
    """Return the logarithm of the sum of two exponentials."""
    most, least = (one, other) if one > other else (other, one)
    return most if most == -math.inf else most + math.log1p(math.exp(least - most))


def smeared(densities: Sequence[float]) -> list[float]:
    """Return log densities where half of each is of the sizes below and above; the last one, which hangs, has none."""
    *sizes, hangs = densities
    most = max(sizes)
    if most - min(sizes) > 600:  # some exponentials would be none
        padded = [sizes[0], *sizes, sizes[-1]]
        return [log_mean((*padded[place : place + 3], padded[place + 1])) for place in range(len(sizes))] + [hangs]
    raised = [math.exp(size - most) for size in sizes]
    rows = zip([raised[0], *raised[:-1]], raised, [*raised[1:], raised[-1]], strict=True)
    return [most + math.log((below + 2 * one + above) / 4) for below, one, above in rows] + [hangs]


def log_mean(values: Sequence[float]) -> float:
    return log_sum(values) - math.log(len(values))


def flapping(ratios: Sequence[float], share: float) -> list[float]:
    """Return the ratios of a run of a host that has its fault only in a share of the runs."""
    bad, left = math.log(share), math.log1p(-share)
    return [log_add(bad + ratio, left) for ratio in ratios]
