"""Decide after each round: the culprit with its probability, nobody, or that more runs are needed."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from trainwright.gate.find.belief import weigh
from trainwright.gate.find.likelihood import Likelihood
from trainwright.gate.find.model import EVERYONE, NOBODY, Belief, Cluster, Culprit, Result, Settings
from trainwright.gate.find.plan import Covered

PATHS = ("link", "boundary", "uplink")
State = Literal["found", "nobody", "more", "not established"]


@dataclass(frozen=True)
class Answer:
    state: State
    culprit: Culprit
    chance: float  # of the culprit, or of nobody
    rounds: int
    runs: list[int] = field(default_factory=list)  # places of the results that show it
    part: bool = False  # the host is established, and not which part of it


def judge(
    cluster: Cluster, results: Sequence[Result], likelihood: Likelihood, most: int | None = None
) -> tuple[Answer, Belief]:
    """Return the answer of all runs so far."""
    belief, settings = weigh(cluster, results, likelihood), likelihood.settings
    rounds = max((result.round for result in results), default=0)
    return _answer(cluster, results, belief, settings, rounds, most or settings.rounds.most), belief


def _answer(
    cluster: Cluster, results: Sequence[Result], belief: Belief, settings: Settings, rounds: int, most: int
) -> Answer:
    who, chance = belief.best
    if who == NOBODY:
        if chance >= 1 - settings.error.miss and Covered(cluster, results, settings).complete:
            return Answer("nobody", who, chance, rounds)
    elif (
        (sure := guilt(belief, who)) >= 1 - (settings.error.path if who[0] in PATHS else settings.error.blame)
        and chance >= 1 - settings.error.more
        and not (who[0] == "rail" and int(who[2]) < 0)
        and not (who == EVERYONE and rounds < 2)  # a slow start is over in the second round
    ):
        return Answer("found", who, sure, rounds, shown(cluster, results, belief, who))
    if rounds < (min(most, settings.rounds.two) if cluster.size == 2 else most):
        return Answer("more", who, chance, rounds)
    whole: dict[Culprit, float] = {}
    for culprit, share in belief.chances.items():
        if culprit[0] in ("hosts", "rail"):
            one = ("hosts", *culprit[1:]) if culprit[0] == "hosts" else ("hosts", culprit[1])
            whole[one] = whole.get(one, 0.0) + share
    host, chance_of_host = max(whole.items(), key=lambda one: one[1], default=(NOBODY, 0.0))
    if chance_of_host >= 1 - settings.error.blame:
        return Answer("found", host, chance_of_host, rounds, shown(cluster, results, belief, host), part=True)
    return Answer("not established", who, chance, rounds, shown(cluster, results, belief, who))


def guilt(belief: Belief, who: Culprit) -> float:
    """Return the probability that these are at fault, whatever else is."""
    if who[0] != "hosts":
        return belief.chances.get(who, 0.0)
    return sum(chance for one, chance in belief.chances.items() if one[0] == "hosts" and set(who) <= set(one))


def established(belief: Belief, settings: Settings) -> list[int]:
    """Return the hosts that are at fault beyond the stated error, whatever else is at fault, and which part of them."""
    sums = dict[int, float]()
    for who, chance in belief.chances.items():
        for host in who[1:] if who[0] == "hosts" else who[1:2] if who[0] == "rail" else ():
            sums[int(host)] = sums.get(int(host), 0.0) + chance
    return sorted(host for host, chance in sums.items() if chance >= 1 - settings.error.blame)


def shown(cluster: Cluster, results: Sequence[Result], belief: Belief, who: Culprit) -> list[int]:
    """Return the places of the runs that touch the culprit and were slow or did not end."""
    slow = [place for place, score in belief.scores.items() if score is None or score < -2]
    return [place for place in slow if touches(cluster, results[place].test.hosts, who)]


def touches(cluster: Cluster, hosts: tuple[int, ...], who: Culprit) -> bool:
    kind, numbers = who[0], {int(word) for word in who[1:]}
    if kind == "hosts":
        return bool(numbers & set(hosts))
    if kind == "rail":
        return int(who[1]) in hosts
    if kind == "link":
        return numbers <= set(hosts)
    crossed = cluster.crossed(hosts)
    if kind == "boundary":
        return tuple(sorted(numbers)) in crossed
    if kind == "uplink":
        return any(numbers & set(pair) for pair in crossed)
    return kind == "everyone"
