"""Sum up what network cards, NCCL and DCGM say of each host over all runs, and how much that weighs. Pure."""

import math
from collections.abc import Sequence
from statistics import median

from trainwright.gate.find.model import Cluster, Evidence, Result, Sign

AGAIN = 2  # runs with different partners: either end of a bad connection counts its errors


def summed(cluster: Cluster, results: Sequence[Result], settings: Evidence) -> list[Sign]:
    """Return one sign for each host and kind of evidence that any run had."""
    place = {name: number for number, name in enumerate(cluster.names)}
    seen: dict[tuple[str, int], list[tuple[Sign, Result]]] = {}
    for result in results:
        for sign in result.signs:
            if sign.host in place:
                seen.setdefault((sign.source, place[sign.host]), []).append((sign, result))
    usual = _usual(seen)
    return [
        _of_host(runs, usual.get(source, 0.0), settings)
        for (source, _), runs in sorted(seen.items(), key=lambda one: one[0])
    ]


def _usual(seen: dict[tuple[str, int], list[tuple[Sign, Result]]]) -> dict[str, float]:
    """Return the events in a run of the median host, for each kind of evidence."""
    events: dict[str, list[float]] = {}
    for (source, _), runs in seen.items():
        there = [sign.events for sign, _ in runs if sign.state != "not there"]
        if there:
            events.setdefault(source, []).append(float(median(there)))
    return {source: median(values) for source, values in events.items()}


def _of_host(runs: list[tuple[Sign, Result]], usual: float, settings: Evidence) -> Sign:
    there = [(sign, result) for sign, result in runs if sign.state != "not there"]
    if not there:
        return runs[-1][0]
    bad = [
        (sign, result)
        for sign, result in there
        if sign.state == "bad" and (not sign.events or sign.events >= settings.times * usual)
    ]
    own = [sign for sign, _ in bad if sign.own]
    partners = {host for sign, result in bad if not sign.own for host in result.test.hosts}
    shared = len(bad) >= AGAIN and len(partners) > AGAIN and 2 * len(bad) > len(there)
    if not (own or shared):
        return there[-1][0].model_copy(update={"state": "fine", "what": "nothing unusual", "events": 0})
    worst = max(own or [sign for sign, _ in bad], key=lambda sign: sign.events)
    many = f", in {len(bad)} of {len(there)} runs" if len(there) > 1 else ""
    return worst.model_copy(update={"what": f"{worst.what}{many}"})


def weights(cluster: Cluster, found: Sequence[Sign], settings: Evidence) -> list[float]:
    """Return for each host the logarithm of how much more probable its fault is by these signs."""
    place = {name: number for number, name in enumerate(cluster.names)}
    sums, most = [0.0] * cluster.size, math.log(settings.most)
    for sign in found:
        rates = settings.rates.get(sign.source)
        if rates is None:  # a kind of an older version, in a record
            continue
        if sign.state == "bad":
            sums[place[sign.host]] += math.log(rates.guilty / rates.innocent)
        elif sign.state == "fine":
            sums[place[sign.host]] += math.log((1 - rates.guilty) / (1 - rates.innocent))
    return [max(-most, min(most, one)) for one in sums]
