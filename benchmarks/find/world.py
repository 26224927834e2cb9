"""Simulate clusters with one fault each, and runs of nccl-tests on them.

Defined before anything was measured:

- A round is a set of runs on disjoint hosts, side by side; each host is in one run at most. The first round, every host
  alone, counts.
- The noise of a round is the standard deviation of the logarithm of a run's busbw, tails included. It is swept from 2
  to 5%, because recorded runs do not have the noise between hosts.
- A fault can be told apart if its effect is at least three such standard deviations, or if its runs do not end, and if
  it shows in groups of half the hosts. Others are excluded, and counted.
- A link is one of those between neighbours in the ring: a ring uses no other one.
- Exact: the answer names the faulty host, both hosts, the host and its rail, the link, the boundary, or "nobody". An
  innocent is blamed if the answer names a host, link or boundary that has no fault, or if a host without a fault was
  said to be at fault after any round before it.
- A bad host is known after the round in which it is at fault beyond the stated error. The search goes on from there
  where something else may be at fault, too.
"""

import math
import random
from dataclasses import dataclass, field

from trainwright.gate.find.model import Cluster, Culprit, Kind, Result, Test, links, ordered

KINDS = ("bad host", "one rail", "one link", "rack boundary", "two hosts", "fail-slow", "in groups", "flapping", "none")
TAILS = ("student", "mixed", "one-sided")
LEAST_EFFECT = 3.0
FAIL_SLOW = math.log(1 / 0.9)
SPEED = math.log(380.0)  # of a pair; every group size and a single host have another one
RAILS = 8


@dataclass
class Fault:
    kind: str
    culprit: Culprit
    effects: dict[int | tuple[int, int], float | Kind] = field(default_factory=dict)  # of a host, link or boundary
    rail: int = -1
    alone: bool = False  # shows on the host alone, too
    least: int = 2  # hosts of a group from which on it shows
    share: float = 1.0  # of the runs

    @property
    def hosts(self) -> set[int]:
        """Return the hosts at fault."""
        kind, *numbers = self.culprit
        return {int(one) for one in (numbers if kind == "hosts" else numbers[:1] if kind == "rail" else ())}


@dataclass
class World:
    cluster: Cluster
    fault: Fault
    sd: float
    tails: str
    disturbed: float
    random: random.Random
    spread: list[float]  # what a host is off all the time

    @property
    def told_apart(self) -> bool:
        effects = [effect for effect in self.fault.effects.values() if isinstance(effect, float)]
        return (
            all(effect >= LEAST_EFFECT * self.sd for effect in effects) and self.fault.least <= self.cluster.size // 2
        )

    def noise(self) -> float:
        draw, sd = self.random, self.sd
        if self.tails == "student":  # of 4 degrees of freedom, whose standard deviation is the root of 2
            value = draw.gauss() / math.sqrt(draw.gammavariate(2, 2) / 4) / math.sqrt(2) * sd
        elif self.tails == "mixed":
            value = draw.gauss(0, sd / math.sqrt(0.95 + 0.05 * 9)) * (3 if draw.random() < 0.05 else 1)
        else:  # a tail of slow runs: half of the variance
            value = draw.gauss(0, sd / math.sqrt(2)) - (draw.expovariate(1 / sd) - sd) / math.sqrt(2)
        return value

    def run(self, tests: list[Test], number: int) -> list[Result]:
        return [self.one(test, number) for test in tests]

    def one(self, test: Test, number: int) -> Result:
        hosts, draw = test.hosts, self.random
        slow, kind = self._effect(hosts)
        if kind != "ok":
            return Result(test, number, None, (None,) * RAILS if test.rails else (), kind)
        disturbed = draw.uniform(0.1, 0.7) if draw.random() < self.disturbed else 0.0
        off = min(self.spread[host] for host in hosts)
        noise = self.noise() * (0.6 if len(hosts) == 1 else 1.0)
        base = SPEED + (0.2 if len(hosts) == 1 else -0.03 * math.log2(len(hosts)))
        whole = base + off + noise - slow - disturbed
        rails: tuple[float, ...] = ()
        if test.rails:
            of_rail = self.fault.rail in range(RAILS) and slow > 0
            rails = tuple(
                base - 2 + off + self.noise() - disturbed - (slow if not of_rail or rail == self.fault.rail else 0)
                for rail in range(RAILS)
            )
            if of_rail:  # the whole loses a little less than its slowest rail
                whole += slow * draw.uniform(0, 0.2)
        return Result(test, number, whole, rails)

    def _effect(self, hosts: tuple[int, ...]) -> tuple[float, Kind]:
        fault, found = self.fault, list[float | Kind]()
        if len(hosts) < fault.least and not (len(hosts) == 1 and fault.alone):
            return 0.0, "ok"
        touched: list[int | tuple[int, int]] = list(hosts)
        if fault.kind == "one link":
            touched = list(links(hosts))
        elif fault.kind == "rack boundary":
            touched = list(self.cluster.crossed(hosts))
        for one in touched:
            if one in fault.effects and self.random.random() < fault.share:
                found.append(fault.effects[one])
        kinds: list[Kind] = [one for one in found if isinstance(one, str)]
        return (0.0, kinds[0]) if kinds else (max([one for one in found if isinstance(one, float)], default=0.0), "ok")


def make(seed: int, kind: str, hosts: int = 0, most: int = 256) -> World:
    """Return a cluster of 8 hosts to `most`, or of this number, with a fault of this kind."""
    draw = random.Random(seed)
    size = hosts or round(2 ** draw.uniform(3, math.log2(most)))
    possible = [rack for rack in (4, 8, 16, 32) if 2 <= size / rack <= 24] or [max(size // 8, 2)]
    rack = draw.choice(possible)
    cluster = Cluster(tuple(f"host{n}" for n in range(size)), tuple(n // rack for n in range(size)), RAILS)
    sd = draw.uniform(0.02, 0.05)
    spread = [draw.gauss(0, 0.2 * sd) for _ in range(size)]
    fault = _fault(draw, kind, cluster)
    return World(cluster, fault, sd, draw.choice(TAILS), draw.uniform(0, 0.01), draw, spread)


def _effect(draw: random.Random, broken: float = 0.2) -> float | Kind:
    """Return how slow, or how a run ends: "broken" is the share of those."""
    if draw.random() < broken:
        return draw.choice(("hang", "error", "wrong"))
    return draw.uniform(0.2, 1.5)


def _fault(draw: random.Random, kind: str, cluster: Cluster) -> Fault:
    size = cluster.size
    host = draw.randrange(size)
    if kind == "none":
        return Fault(kind, ("none",))
    if kind == "two hosts":
        two = ordered(*draw.sample(range(size), 2))
        return Fault(kind, ("hosts", *two), {one: _effect(draw) for one in two})
    if kind == "one rail":
        rail = draw.randrange(RAILS)
        return Fault(kind, ("rail", host, rail), {host: draw.uniform(0.2, 1.5)}, rail=rail)
    if kind == "one link":
        link = draw.choice(sorted(cluster.ring))
        return Fault(kind, ("link", *link), {link: _effect(draw)})
    if kind == "rack boundary":
        pair = draw.choice(sorted(cluster.boundaries))
        return Fault(kind, ("boundary", *pair), {pair: draw.uniform(0.2, 1.0)})
    if kind == "fail-slow":
        return Fault(kind, ("hosts", host), {host: FAIL_SLOW})
    if kind == "in groups":
        least = draw.choice([number for number in (4, 8, 16) if number <= size // 2])
        return Fault(kind, ("hosts", host), {host: draw.uniform(0.2, 1.0)}, least=least)
    if kind == "flapping":
        return Fault(kind, ("hosts", host), {host: draw.uniform(0.2, 1.0)}, share=draw.uniform(0.3, 0.7))
    return Fault(kind, ("hosts", host), {host: _effect(draw)}, alone=draw.random() < 1 / 3)
