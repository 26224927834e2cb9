"""Weigh who may be at fault: every hypothesis by how well it explains all runs so far."""

import math
from collections.abc import Collection, Iterable, Mapping, Sequence

from trainwright.gate.find.likelihood import Likelihood, log_mean, log_sum, rounded
from trainwright.gate.find.model import EVERYONE, NOBODY, Belief, Cluster, Culprit, Result, ladder, links
from trainwright.gate.find.scores import scores
from trainwright.gate.find.signs import summed, weights

Vector = Sequence[float]
BEAM, KEPT, LARGEST_SET = 4, 6, 5  # sets of hosts that are extended, extensions of each, hosts of a set
FAR = 20.0  # logarithm: a set that is so much worse than the best one is not extended
LEAST = 1e-6  # chance below which a hypothesis is not listed


def added(vectors: Iterable[Vector], count: int) -> list[float]:
    rows = list(vectors)
    return list(map(sum, zip(*rows, strict=True))) if rows else [0.0] * count


class _Weigher:
    """The likelihood ratios of all runs, by what they touch."""

    def __init__(self, cluster: Cluster, results: Sequence[Result], likelihood: Likelihood) -> None:
        self.cluster, self.likelihood, self.settings = cluster, likelihood, likelihood.settings
        self.count = likelihood.count
        found = scores(cluster, results, self.settings)
        self.scores = found
        self.signs = summed(cluster, results, self.settings.evidence)
        self.beside = weights(cluster, self.signs, self.settings.evidence)  # of each host
        self.alone: list[list[Vector]] = [[] for _ in cluster.names]
        self.plain: list[list[tuple[int, Vector]]] = [[] for _ in cluster.names]
        self.flaps: list[list[list[Vector]]] = [[[] for _ in self.settings.prior.flaps] for _ in cluster.names]
        self.railed: list[list[tuple[int, Vector, Vector, Sequence[Vector]]]] = [[] for _ in cluster.names]
        self.groups: list[list[tuple[int, Vector]]] = [[] for _ in cluster.names]
        self.links: dict[tuple[int, int], list[Vector]] = {}
        self.crossed: dict[tuple[int, int], list[Vector]] = {}
        self.broken = [result.kind != "ok" for result in results]
        self.sizes = sorted({len(result.test.hosts) for result in results if len(result.test.hosts) > 3})
        for place, result in enumerate(results):
            self._add(place, result)

    def _add(self, place: int, result: Result) -> None:
        score, hosts = self.scores.whole[place], result.test.hosts
        ratios: Vector = self.likelihood.of(score)
        if len(hosts) == 1:
            self.alone[hosts[0]].append(ratios)
            return
        if result.rails:
            run = self.likelihood.railed(score, self.scores.rails[place])
            ratios, flaps = run.both, run.flaps
            for host in hosts:
                self.railed[host].append((place, run.every, run.whole, run.each))
        else:
            for host in hosts:
                self.plain[host].append((place, ratios))
            flaps = self.likelihood.flaps(rounded(score))
        for host in hosts:
            for share, vector in enumerate(flaps):
                self.flaps[host][share].append(vector)
            if len(hosts) > 3:
                self.groups[host].append((len(hosts), ratios))
        for link in links(hosts):
            self.links.setdefault(link, []).append(ratios)
        for pair in self.cluster.crossed(hosts):
            self.crossed.setdefault(pair, []).append(ratios)

    def host(self, host: int, skip: Collection[int] = ()) -> float:
        """Return the evidence of a host that is slow in every run, perhaps alone, perhaps rail by rail."""
        plain = added((vector for place, vector in self.plain[host] if place not in skip), self.count)
        railed = [one for one in self.railed[host] if one[0] not in skip]
        ways = [plain]
        if railed:
            every = added((one[1] for one in railed), self.count)
            whole = added((one[2] for one in railed), self.count)
            ways = [added((plain, every), self.count), added((plain, whole), self.count)]
        if self.alone[host]:
            alone = added(self.alone[host], self.count)
            ways += [added((way, alone), self.count) for way in ways]
        return self.beside[host] + log_mean([log_mean(way) for way in ways])

    def flapping(self, host: int) -> float:
        return self.beside[host] + log_mean([log_mean(added(vectors, self.count)) for vectors in self.flaps[host]])

    def group(self, host: int) -> float:
        """Return the evidence of a host that is slow in groups from some size on."""
        if not self.sizes:
            return self.beside[host]
        found = []
        for least in self.sizes:
            found.append(log_mean(added((vector for size, vector in self.groups[host] if size >= least), self.count)))
        return self.beside[host] + log_mean(found)

    def rails(self, host: int) -> dict[int, float]:
        """Return the evidence of each rail of a host; of none in particular (-1) if they were never run one by one."""
        plain = added((vector for _, vector in self.plain[host]), self.count)
        if not self.railed[host]:
            return {-1: self.beside[host] + log_mean(plain)}
        number = min(len(each) for *_, each in self.railed[host])
        return {
            rail: self.beside[host]
            + log_mean(added((plain, *(each[rail] for *_, each in self.railed[host])), self.count))
            for rail in range(number)
        }

    def everyone(self) -> float:
        reached, broken = self.settings.effect.reached, self.settings.noise.broken
        hangs, ended = math.log(reached / broken), math.log((1 - reached) / (1 - broken))
        return sum(hangs if one else ended for one in self.broken)


def weigh(cluster: Cluster, results: Sequence[Result], likelihood: Likelihood) -> Belief:
    """Return the posterior probabilities of all hypotheses after these runs."""
    found, prior, size = _Weigher(cluster, results, likelihood), likelihood.settings.prior, cluster.size
    weights: dict[Culprit, float] = {
        NOBODY: math.log(prior.none),
        EVERYONE: math.log(prior.everyone) + found.everyone(),
    }
    before: dict[Culprit, float] = dict.fromkeys(weights, 0.0)
    rest: list[float] = []  # hypotheses that no run has touched, and sets of hosts that are not listed
    steady = [found.host(host) for host in range(size)]
    group = prior.group if ladder(cluster, likelihood.settings) else LEAST  # of few hosts no two groups can be made
    in_groups = [math.log(group / size) + found.group(host) for host in range(size)]
    hosts = []
    for host in range(size):
        ways = [math.log(prior.host / size) + steady[host], math.log(prior.flapping / size) + found.flapping(host)]
        hosts.append(log_sum([*ways, in_groups[host]]))
        weights["hosts", host] = hosts[host]
        before["hosts", host] = math.log((prior.host + prior.flapping + group) / size)
    _rails(found, weights, before)
    _links(found, weights, before, rest)
    _boundaries(found, weights, before, rest)
    _sets(found, steady, weights, rest)
    total = log_sum([*weights.values(), *rest])
    chances = {who: math.exp(weight - total) for who, weight in weights.items() if weight - total > math.log(LEAST)}
    return Belief(
        chances=chances or {NOBODY: 0.0},
        evidence=[weight - before["hosts", host] for host, weight in enumerate(hosts)],
        lifts={who: weights[who] - before.get(who, -math.inf) for who in chances},
        sd=found.scores.spread["together"],
        pair=found.scores.centres.get(("together", 2, False)),
        scores=dict(enumerate(found.scores.whole)),
        rails=_by_host(chances, "rail"),
        groups={host: chance for host, weight in enumerate(in_groups) if (chance := math.exp(weight - total)) > LEAST},
        signs=found.signs,
    )


def _by_host(chances: Mapping[Culprit, float], kind: str) -> dict[int, float]:
    found: dict[int, float] = {}
    for who, chance in chances.items():
        if who[0] == kind:
            found[int(who[1])] = found.get(int(who[1]), 0.0) + chance
    return found


def _rails(found: _Weigher, weights: dict[Culprit, float], before: dict[Culprit, float]) -> None:
    number, size = found.cluster.rails, found.cluster.size
    if number < 2:
        return
    each = math.log(found.settings.prior.rail / size)
    for host in range(size):
        rails = found.rails(host)
        for rail, evidence in rails.items():
            before["rail", host, rail] = each - math.log(len(rails))
            weights["rail", host, rail] = before["rail", host, rail] + evidence


def _links(found: _Weigher, weights: dict[Culprit, float], before: dict[Culprit, float], rest: list[float]) -> None:
    """Weigh links: those of the ring, and others that happen to be measured."""
    size, prior, ring = found.cluster.size, found.settings.prior.link, found.cluster.ring
    if not ring:
        return
    share, other = math.log(0.8 * prior / len(ring)), math.log(0.2 * prior / max(size * (size - 1) / 2, 1))
    for link, vectors in found.links.items():
        before["link", *link] = share if link in ring else other
        weights["link", *link] = before["link", *link] + log_mean(added(vectors, found.count))
    if left := len(ring - found.links.keys()):
        rest.append(share + math.log(left))


def _boundaries(
    found: _Weigher, weights: dict[Culprit, float], before: dict[Culprit, float], rest: list[float]
) -> None:
    boundaries, prior = found.cluster.boundaries, found.settings.prior
    if not boundaries:
        return
    share = math.log(prior.boundary / len(boundaries))
    by_rack: dict[int, list[Vector]] = {}
    for pair, vectors in found.crossed.items():
        before["boundary", *pair] = share
        weights["boundary", *pair] = share + log_mean(added(vectors, found.count))
        for rack in pair:
            by_rack.setdefault(rack, []).extend(vectors)
    if left := len(boundaries - found.crossed.keys()):
        rest.append(share + math.log(left))
    if len(boundaries) < 2:  # of two racks, one's uplink is the boundary
        return
    for rack, vectors in by_rack.items():
        uplink = math.log(prior.uplink / len(found.cluster.members))
        before["uplink", rack] = uplink
        weights["uplink", rack] = uplink + log_mean(added(vectors, found.count))


def _sets(found: _Weigher, steady: Sequence[float], weights: dict[Culprit, float], rest: list[float]) -> None:
    """Weigh several hosts: the best sets, each extended by one more host that explains the rest."""
    size = found.cluster.size
    if size < 3:
        return
    tests = [{place for place, _ in found.plain[host]} | {one[0] for one in found.railed[host]} for host in range(size)]
    ratio = math.log(found.settings.prior.second / size)
    singles: list[tuple[float, tuple[int, ...]]] = [(weights["hosts", host], (host,)) for host in range(size)]
    beam = sorted(singles, reverse=True)[:BEAM]
    best = beam[0][0]
    for _ in range(min(LARGEST_SET, (size - 1) // 2) - 1):
        larger: dict[tuple[int, ...], float] = {}
        for weight, members in beam:
            if weight < best - FAR:
                continue
            of_set = set[int]().union(*(tests[member] for member in members))
            more = []
            for other in range(size):
                if other not in members:
                    shared = tests[other] & of_set
                    evidence = found.host(other, shared) if shared else steady[other]
                    more.append((weight + ratio + evidence, other))
            more.sort(reverse=True)
            for total, other in more[:KEPT]:
                several = tuple(sorted((*members, other)))
                larger[several] = max(larger.get(several, -math.inf), total)
            if more[KEPT:]:
                rest.append(log_sum([total for total, _ in more[KEPT:]]))
        for several, weight in larger.items():
            weights["hosts", *several] = weight
            best = max(best, weight)
        beam = sorted(((weight, several) for several, weight in larger.items()), reverse=True)[:BEAM]
