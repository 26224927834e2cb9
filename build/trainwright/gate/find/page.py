"""Render a search as one self-contained page: hosts as a heat map, the pairs measured, the rounds over time."""

import math
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

from jinja2 import Environment, StrictUndefined

from trainwright.gate.find import report
from trainwright.gate.find.model import Culprit, Settings
from trainwright.gate.find.search import Found
from trainwright.gate.reports.junit import printable

PAGE = Path(__file__).with_name("page.html.j2")
CELL, GAP, COLUMNS, LABEL = 22, 3, 32, 150  # of the map of hosts
MOST_PAIRS, MATRIX = 96, 640  # hosts of the matrix of pairs, and its width
WIDEST, LEGIBLE = 40, 14  # of a cell of that matrix: at most, and enough for its row's name
WIDTH, HEIGHT, LEFT, BOTTOM = 900, 260, 56, 34  # of the chart of rounds
SOME, SLOW = -2.0, -4.0  # scores
SUSPECTS = 10


def level(score: float | None) -> str:
    """Return the class of a score: how far below the fleet."""
    if score is None:
        return "broken"
    return "slow" if score < SLOW else "some" if score < SOME else "fine"


def html(found: Found, settings: Settings, on: str, racks: Sequence[str] = (), expected: float | None = None) -> str:
    environment = Environment(undefined=StrictUndefined, autoescape=True, trim_blocks=True, lstrip_blocks=True)
    answer, cluster = found.answer, found.cluster
    ranked = sorted(found.belief.chances.items(), key=lambda one: -one[1])[:SUSPECTS]
    text = environment.from_string(PAGE.read_text()).render(
        title=report.named(answer.culprit, cluster, racks) if answer.state == "found" else answer.state,
        answer=answer,
        lines=report.lines(found, settings, on, racks, expected),
        hosts=_hosts(found, racks),
        pairs=_pairs(found),
        rounds=_rounds(found),
        suspects=[(report.named(who, cluster, racks), chance) for who, chance in ranked],
        counts={"hosts": cluster.size, "runs": len(found.results), "rounds": answer.rounds},
        sd=found.belief.sd,
    )
    return printable(text).rstrip() + "\n"


def _guilty(who: Culprit) -> set[int]:
    """Return the hosts of a culprit."""
    numbers = [int(word) for word in who[1:]]
    return set(numbers[:1] if who[0] == "rail" else numbers if who[0] in ("hosts", "link") else ())


def _hosts(found: Found, racks: Sequence[str]) -> dict[str, Any]:
    """Return the map: a row for each rack, or rows of as many hosts as fit."""
    cluster, scores = found.cluster, found.belief.scores
    blamed = _guilty(found.answer.culprit) if found.answer.state == "found" else set[int]()
    of_host: dict[int, list[float | None]] = {host: [] for host in range(cluster.size)}
    for place, result in enumerate(found.results):
        together = result.test.hosts
        for host in together if len(together) > 1 else ():
            # A run with a host that is at fault says nothing of the others.
            if host in blamed or blamed.isdisjoint(together):
                of_host[host].append(scores[place])
    rows = [(racks[rack] if rack < len(racks) else f"rack {rack}", hosts) for rack, hosts in cluster.members.items()]
    if not rows:
        starts = range(0, cluster.size, COLUMNS)
        rows = [
            (f"from {cluster.names[first]}", list(range(cluster.size))[first : first + COLUMNS]) for first in starts
        ]
    cells, labels, top = list[dict[str, Any]](), list[tuple[int, str]](), 0
    for name, hosts in rows:
        labels.append((top, name))
        for number, host in enumerate(hosts):
            row, column = divmod(number, COLUMNS)
            values = of_host[host]
            ended = [value for value in values if value is not None]
            broken = 2 * (len(values) - len(ended)) > len(values)
            typical = None if broken else median(ended) if ended else 0.0
            words = "no run without a host at fault"
            if values or not blamed:
                words = f"{len(values)} runs with others, {_words(typical, found.belief.sd)}"
            cells.append(
                {
                    "x": LABEL + column * (CELL + GAP),
                    "y": top + row * (CELL + GAP),
                    "level": level(typical) if values else "none",
                    "guilty": host in blamed,
                    "title": f"{cluster.names[host]}: {words}",
                }
            )
        top += (-(-len(hosts) // COLUMNS)) * (CELL + GAP) + GAP
    return {"cells": cells, "labels": labels, "width": LABEL + COLUMNS * (CELL + GAP), "height": top, "cell": CELL}


def _words(score: float | None, sd: float) -> str:
    return "most did not end" if score is None else f"typically {report.slower(score, sd):.0%} slower"


def _pairs(found: Found) -> dict[str, Any] | None:
    """Return the matrix of the pairs that were measured; None for too many hosts."""
    cluster, size = found.cluster, found.cluster.size
    if size > MOST_PAIRS:
        return None
    cell, worst = min(MATRIX / size, WIDEST), dict[tuple[int, int], float | None]()
    for place, result in enumerate(found.results):
        if len(result.test.hosts) == 2:
            score, pair = found.belief.scores[place], (min(result.test.hosts), max(result.test.hosts))
            known = worst.get(pair, math.inf)
            worst[pair] = None if score is None or known is None else min(known, score)
    cells = [
        {
            "x": round(column * cell, 1),
            "y": round(row * cell, 1),
            "level": level(score),
            "title": f"{cluster.names[row]} and {cluster.names[column]}: {_words(score, found.belief.sd)}",
        }
        for (a, b), score in sorted(worst.items())
        for row, column in ((a, b), (b, a))
    ]
    names = [(round((row + 0.5) * cell + 4), name) for row, name in enumerate(cluster.names)] if cell >= LEGIBLE else []
    left, side = LABEL if names else 0, round(cell * size)
    return {"cells": cells, "cell": round(cell - min(1.0, cell / 8), 1), "size": side, "names": names, "left": left}


def _rounds(found: Found) -> dict[str, Any]:
    """Return the chart: each run of several hosts by its round, and how much slower it was."""
    blamed = set(found.answer.runs)
    several = [place for place, result in enumerate(found.results) if len(result.test.hosts) > 1]
    ended = [score for place in several if (score := found.belief.scores[place]) is not None]
    least = min([-0.3, *(max(score * found.belief.sd, -3.0) for score in ended)])
    most, last = max([0.05, *(score * found.belief.sd for score in ended)]), max(found.answer.rounds, 1)

    def x(place: int) -> float:
        spread = (place * 37 % 21 - 10) / 30
        return round(LEFT + (found.results[place].round - 0.5 + spread) / last * (WIDTH - LEFT), 1)

    def y(value: float) -> float:
        return round((most - value) / (most - least) * (HEIGHT - 2 * BOTTOM) + 8, 1)

    dots = []
    for place in several:
        score, result = found.belief.scores[place], found.results[place]
        names = ", ".join(found.cluster.names[host] for host in result.test.hosts[:4])
        said = result.kind if score is None else f"{1 - math.exp(score * found.belief.sd):+.1%} slower"
        dots.append(
            {
                "x": x(place),
                "y": HEIGHT - BOTTOM - 6 if score is None else y(max(score * found.belief.sd, least)),
                "level": level(score),
                "shows": place in blamed,
                "title": f"round {result.round}: {names}: {said}",
            }
        )
    marks = [value for value in (0.0, 0.1, 0.25, 0.5, 0.75, 0.9) if math.log(1 - value) >= least]
    return {
        "dots": dots,
        "ticks": [(round(LEFT + (number - 0.5) / last * (WIDTH - LEFT), 1), number) for number in range(1, last + 1)],
        "marks": [(y(math.log(1 - value)), f"{-value:.0%}" if value else "fleet") for value in marks],
        "broken": HEIGHT - BOTTOM - 6 if any(dot["level"] == "broken" for dot in dots) else None,
        "width": WIDTH,
        "height": HEIGHT,
        "left": LEFT,
        "bottom": HEIGHT - BOTTOM + 6,
    }
