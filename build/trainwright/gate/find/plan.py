"""Plan the next round: suspects with hosts that look fine, side by side with what was not measured yet."""

import math
from collections import Counter
from collections.abc import Iterable, Sequence

from trainwright.gate.find.model import Belief, Cluster, Culprit, Result, Settings, Test, ladder, links, ordered

SHUFFLE, LARGE = 7919, 104729  # primes, so that each round mixes the rest differently
LIFTED = 0.7  # logarithm: this much more probable than before any run


class Covered:
    """What has been measured so far."""

    def __init__(self, cluster: Cluster, results: Iterable[Result], settings: Settings) -> None:
        self.links: Counter[tuple[int, int]] = Counter()  # by how many pairs
        self.boundaries: set[tuple[int, int]] = set()
        self.railed: set[int] = set()
        self.counts = [0] * cluster.size
        self.slots: dict[int, set[int]] = {size: set() for size in ladder(cluster, settings)}
        for result in results:
            hosts = result.test.hosts
            self.links.update(links(hosts) if len(hosts) == 2 else ())
            self.boundaries |= cluster.crossed(hosts)
            self.railed |= set(hosts) if result.rails else set()
            for host in hosts if len(hosts) > 1 else ():
                self.counts[host] += 1
            if len(hosts) in self.slots:
                self.slots[len(hosts)] |= set(hosts)
        self.left_links = cluster.ring - self.links.keys()
        self.left_boundaries = cluster.boundaries - self.boundaries
        self.left_sizes = [size for size, seen in self.slots.items() if len(seen) < cluster.size]

    @property
    def complete(self) -> bool:
        return not (self.left_links or self.left_boundaries or self.left_sizes)


class _Round:
    def __init__(self, cluster: Cluster, results: Sequence[Result], belief: Belief, settings: Settings) -> None:
        self.cluster, self.results, self.belief, self.settings = cluster, results, belief, settings
        self.covered = Covered(cluster, results, settings)
        self.number = max(result.round for result in results) + 1
        self.free = dict.fromkeys(range(cluster.size))
        self.tests: list[Test] = []

    def take(self, *hosts: int, rails: bool = False) -> bool:
        """Take these hosts for a run, if all are free."""
        if len(set(hosts)) != len(hosts) or not all(host in self.free for host in hosts):
            return False
        for host in hosts:
            del self.free[host]
        self.tests.append(Test(hosts, rails))
        return True

    def clear(self, among: Iterable[int], other_than: Iterable[int] = ()) -> list[int]:
        """Return the free hosts of these that look fine, the best one first."""
        evidence, avoided = self.belief.evidence, set(other_than)
        spread = (self.number * SHUFFLE) % self.cluster.size
        return sorted(
            (host for host in among if host in self.free and host not in avoided),
            key=lambda host: (round(evidence[host]), (host + spread) % self.cluster.size),
        )

    # --- suspects ----------------------------------------------------------------------------------------------------

    def suspects(self) -> None:
        doubt, ranked = self.settings.rounds.doubt, sorted(self.belief.chances.items(), key=lambda one: -one[1])
        self.in_groups()
        for who, chance in ranked:
            if chance > doubt and self.lifted(who):
                self.again(who)

    def lifted(self, who: Culprit) -> bool:
        """Return whether the runs speak against this one; in the end, whether it is left at all."""
        return self.belief.lifts.get(who, 0.0) > (0.0 if self.covered.complete else LIFTED)

    def again(self, who: Culprit) -> None:
        kind, numbers = who[0], [int(word) for word in who[1:]]
        if kind in ("hosts", "rail"):
            for host in numbers if kind == "hosts" else numbers[:1]:
                self.beside_a_clear_one(host)
        elif kind == "link":
            both = self.covered.links[numbers[0], numbers[1]]
            if all(self.covered.counts[host] >= 2 * both for host in numbers):  # else each with another one first
                self.take(numbers[0], numbers[1])
        elif kind in ("boundary", "uplink"):
            members = self.cluster.members
            here = self.clear(members[numbers[0]])
            others = [rack for rack in members if rack != numbers[0]] if kind == "uplink" else [numbers[1]]
            there = self.clear(host for rack in others for host in members[rack])
            for pair in ((a, b) for a in here[:4] for b in there[:4]):
                if ordered(*pair) not in self.covered.links and self.take(*pair):
                    break

    def beside_a_clear_one(self, host: int) -> None:
        if host not in self.free:
            return
        met = {other for link in self.covered.links if host in link for other in link}
        racks, rack = self.cluster.racks, -1
        others = self.clear(self.free, {host} | met) or self.clear(self.free, {host})
        if racks and any(who[0] in ("boundary", "uplink") and racks[host] in who[1:] for who, _ in self.likely()):
            rack = racks[host]
        others.sort(key=lambda other: rack >= 0 and racks[other] != rack)  # stable
        if others:
            self.take(host, others[0], rails=self.cluster.rails > 1 and self.belief.rails.get(host, 0.0) > 0.0005)

    def likely(self) -> list[tuple[Culprit, float]]:
        return [(who, chance) for who, chance in self.belief.chances.items() if chance > self.settings.rounds.doubt]

    def in_groups(self) -> None:
        """Spread hosts that seem slow in groups only over as many groups as there can be."""
        chances = {
            host: chance
            for host, chance in self.belief.groups.items()
            if chance > self.settings.rounds.doubt and self.lifted(("hosts", host))
        }
        sizes = ladder(self.cluster, self.settings)
        if not any(len(result.test.hosts) > 3 for result in self.results):
            return  # what was slow was so in a pair
        if not sizes or sum(chances.values()) < self.settings.error.miss:
            return
        suspects = sorted(chances, key=lambda host: -chances[host])
        size = self.slowest_group(suspects[0]) or sizes[0]
        number = len(self.free) // size
        if number < 2:
            return
        groups: list[list[int]] = [[] for _ in range(number)]
        for place, host in enumerate(suspects[: number * size]):
            turn, column = divmod(place, number)
            groups[column if turn % 2 == 0 else number - 1 - column].append(host)
        rest = iter(self.clear(self.free, suspects))
        used = [group for group in groups if group]
        for group in used if len(used) > 1 else groups[:2]:
            while len(group) < size and (more := next(rest, None)) is not None:
                group.append(more)
            if len(group) == size:
                self.take(*sorted(group))

    def slowest_group(self, host: int) -> int:
        """Return the size of the group in which a host was slowest."""
        found = [
            (-math.inf if (score := self.belief.scores[place]) is None else score, len(result.test.hosts))
            for place, result in enumerate(self.results)
            if len(result.test.hosts) > 3 and host in result.test.hosts
        ]
        return min(found, default=(0.0, 0))[1]

    # --- all others --------------------------------------------------------------------------------------------------

    def fill(self) -> None:
        for link in sorted(self.covered.left_links):
            self.take(*link)
        for one, two in sorted(self.covered.left_boundaries):
            here, there = self.clear(self.cluster.members[one]), self.clear(self.cluster.members[two])
            if here and there:
                self.take(here[0], there[0])
        if 2 * len(self.free) > self.cluster.size:
            self.groups()
        if self.covered.complete and self.number % 2:
            self.again_in_groups()
        self.pairs()
        self.odd_one()
        self.controls()

    def groups(self) -> None:
        for size in self.covered.left_sizes[:1]:
            seen = self.covered.slots[size]
            order = sorted(self.free, key=lambda host: (host in seen, host))
            while len(order) >= size and order[0] not in seen:
                self.take(*sorted(order[:size]))
                order = order[size:]

    def again_in_groups(self) -> None:
        sizes, rest = ladder(self.cluster, self.settings), self.shuffled()
        size = sizes[self.number // 2 % len(sizes)] if sizes else len(rest) + 1
        for start in range(0, len(rest) - size + 1, size):
            self.take(*sorted(rest[start : start + size]))

    def shuffled(self) -> list[int]:
        size = self.cluster.size
        return sorted(self.free, key=lambda host: ((host + 1) * SHUFFLE * self.number**2 % LARGE, host * size))

    def pairs(self) -> None:
        rest = self.shuffled()
        while len(rest) > 1:
            first = rest.pop(0)
            new = [place for place, host in enumerate(rest[:20]) if ordered(first, host) not in self.covered.links]
            self.take(first, rest.pop(new[0] if new else 0))

    def odd_one(self) -> None:
        """Make the last pair a group of three, where a host is left."""
        for host in list(self.free):
            if self.tests and len(self.tests[-1].hosts) == 2 and not self.tests[-1].rails:
                self.tests[-1] = Test((*self.tests[-1].hosts, host))
                del self.free[host]
            elif self.cluster.alone:
                self.take(host)

    def controls(self) -> None:
        """Run some pairs that look fine rail by rail, too: suspects are compared with them."""
        if any(test.rails for test in self.tests):
            wanted = self.settings.rounds.controls
            for place, test in enumerate(self.tests):
                if len(test.hosts) == 2 and not test.rails and wanted:
                    self.tests[place], wanted = Test(test.hosts, rails=True), wanted - 1


def next_round(cluster: Cluster, results: Sequence[Result], belief: Belief | None, settings: Settings) -> list[Test]:
    """Return the runs of the next round, on disjoint hosts."""
    if belief is None or not results:
        if cluster.alone or cluster.size < 2:
            return [Test((host,)) for host in range(cluster.size)]
        return [Test((host, host + 1)) for host in range(0, cluster.size - 1, 2)]
    planned = _Round(cluster, results, belief, settings)
    planned.suspects()
    planned.fill()
    return planned.tests
