"""Say the answer of a search: who is at fault, what shows it, what was not established, what to do."""

import math
from collections import Counter
from collections.abc import Sequence
from typing import Any

from trainwright.core.errors import NotRunError, TestError
from trainwright.core.progress import few
from trainwright.gate.find import evidence
from trainwright.gate.find.model import Cluster, Culprit, Settings, ladder
from trainwright.gate.find.search import Found

SHOWN = 12  # runs, hosts
HOSTS = 4  # of one run
DRAIN = {
    "slurm": "scontrol update nodename={host} state=drain reason={reason}",
    "kubernetes": "kubectl cordon {host}",
}


def named(who: Culprit, cluster: Cluster, racks: Sequence[str] = ()) -> str:
    """Return the words for a culprit."""
    kind, numbers = who[0], [int(word) for word in who[1:]]
    if kind == "hosts":
        return " and ".join(cluster.names[host] for host in numbers)
    if kind == "rail":
        return f"GPU {numbers[1]} of {cluster.names[numbers[0]]}, or the network card that belongs to it"
    if kind == "link":
        return f"the link between {cluster.names[numbers[0]]} and {cluster.names[numbers[1]]}"
    if kind in ("boundary", "uplink"):
        names = [racks[rack] if rack < len(racks) else f"rack {rack}" for rack in numbers]
        return f"the boundary between {' and '.join(names)}" if kind == "boundary" else f"the uplink of {names[0]}"
    return "all hosts alike" if kind == "everyone" else "no host"


def hosts_of(who: Culprit, cluster: Cluster) -> list[str]:
    """Return the hosts to take out; of links and boundaries none."""
    numbers = [int(word) for word in who[1:]]
    places = numbers if who[0] == "hosts" else numbers[:1] if who[0] == "rail" else []
    return [cluster.names[host] for host in places]


def lacks(found: Found, settings: Settings) -> list[str]:
    """Return what the search did not establish."""
    cluster, sizes = found.cluster, ladder(found.cluster, settings)
    said = [f"a host that is slower by less than {1 - math.exp(-settings.effect.least * found.belief.sd):.0%}"]
    if found.answer.state == "nobody":
        said.append(f"a fault that shows only in groups of more than {sizes[-1] if sizes else 2} hosts")
        said.append("a fault that all hosts share: trainwright judge --baseline compares with another day")
    said.append("a slow link that the ring over all hosts does not use")
    if not cluster.racks:
        said.append("a boundary between racks: --racks FILE says which hosts share one")
    if cluster.rails < 2 and cluster.size > 1:
        said.append("which GPU or network card of a host it is")
    if found.answer.part:
        said.append("whether it is the whole host or one GPU and its network card")
    if not cluster.alone:
        said.append("whether a host is slow alone, too")
    said += absent(found)
    said += [f"{host}: {why}" for host, why in found.gone.items()]
    if cluster.size == 2:
        said.append("which of two hosts it is: a third one is needed to compare with")
    return said


def absent(found: Found) -> list[str]:
    """Say which evidence was not there, for each kind and reason."""
    reasons = Counter((sign.source, sign.what) for sign in found.belief.signs if sign.state == "not there")
    size = found.cluster.size
    return [
        f"{evidence.title(kind)}: not there on {'any' if count == size else count} of {size} hosts: {what}"
        for (kind, what), count in sorted(reasons.items())
    ]


def evidence_lines(found: Found) -> list[str]:
    """Say what else speaks for or against the hosts that are at fault, and against any other host."""
    blamed = hosts_of(found.answer.culprit, found.cluster) if found.answer.state == "found" else []
    said = [
        f"  {sign.host}: {evidence.title(sign.source)}: {sign.what}"
        for sign in found.belief.signs
        if sign.state == "bad" or (sign.state == "fine" and sign.host in blamed)
    ]
    return ["beside the runs:", *said] if said else []


def lines(
    found: Found, settings: Settings, on: str, racks: Sequence[str] = (), expected: float | None = None
) -> list[str]:
    """Return the answer for people."""
    one, cluster = found.answer, found.cluster
    who = named(one.culprit, cluster, racks)
    if one.state == "found":
        said = [f"at fault: {who}", f"probability: {_share(one.chance)}, after {one.rounds} rounds"]
    elif one.state == "nobody":
        said = [f"no host is at fault: {_share(one.chance)}, after {one.rounds} rounds"]
    else:
        ranked = sorted(found.belief.chances.items(), key=lambda pair: -pair[1])[:4]
        likely = "; ".join(f"{named(culprit, cluster, racks)}: {_share(chance)}" for culprit, chance in ranked)
        said = [f"not established after {one.rounds} rounds", f"most probable: {likely}"]
    if fleet := of_fleet(found, expected):
        said.append(fleet)
    shown = one.runs if one.state != "nobody" else []
    for place in shown[:SHOWN]:
        result, score = found.results[place], found.belief.scores[place]
        hosts = few([cluster.names[host] for host in result.test.hosts], HOSTS, ", ")
        what = f"{result.kind}: {result.why}" if score is None else f"{slower(score, found.belief.sd):.0%} slower"
        said.append(f"  round {result.round}: {hosts}: {what}" + (f" ({result.log})" if result.log else ""))
    if len(shown) > SHOWN:
        said.append(f"  and {len(shown) - SHOWN} more")
    said += evidence_lines(found)
    said += ["not established:", *(f"  {what}" for what in lacks(found, settings))]
    drained = hosts_of(one.culprit, cluster) if one.state == "found" and on in DRAIN else []
    if drained:
        said.append("to take it out (nothing was changed):")
        said += [f"  {DRAIN[on].format(host=host, reason='gate-find')}" for host in drained]
    return said


def of_fleet(found: Found, expected: float | None) -> str:
    """Say what the median pair is beside a baseline; "" without one."""
    if expected is None or found.belief.pair is None:
        return ""
    share = math.exp(found.belief.pair - expected) - 1
    return f"the median pair is {abs(share):.1%} {'slower' if share < 0 else 'faster'} than the baseline"


def slower(score: float, sd: float) -> float:
    return 1 - math.exp(min(score, 0.0) * sd)


def _share(chance: float) -> str:
    return "more than 99.9%" if chance > 0.9995 else f"{chance:.1%}"


def data(found: Found, settings: Settings, racks: Sequence[str] = (), expected: float | None = None) -> dict[str, Any]:
    """Return the answer for programs."""
    one, cluster = found.answer, found.cluster
    return {
        "state": one.state,
        "culprit": list(one.culprit),
        "what": named(one.culprit, cluster, racks),
        "hosts": hosts_of(one.culprit, cluster),
        "probability": one.chance,
        "rounds": one.rounds,
        "runs": [found.results[place].log for place in one.runs],
        "chances": [
            {"what": named(who, cluster, racks), "probability": chance}
            for who, chance in sorted(found.belief.chances.items(), key=lambda pair: -pair[1])[:SHOWN]
        ],
        "evidence": [sign.model_dump(exclude={"own"}) for sign in found.belief.signs],
        "not_established": lacks(found, settings),
        "gone": found.gone,
        "fleet": of_fleet(found, expected),
    }


def refuse(found: Found, folder: str, racks: Sequence[str] = ()) -> None:
    """Raise TestError for a culprit, NotRunError for an answer that is not established."""
    who = named(found.answer.culprit, found.cluster, racks)
    if found.answer.state == "found":
        raise TestError(
            f"at fault: {who}",
            where=folder,
            why=f"{len(found.answer.runs)} runs show it",
            fix="take it out, and run the gate again",
        )
    if found.answer.state == "not established":
        raise NotRunError(
            "not established which host is at fault",
            where=folder,
            why=f"most probable: {who} ({_share(found.answer.chance)})",
            fix="the logs of the runs in this folder, or more hosts to compare with",
        )
