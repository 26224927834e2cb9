"""Look for the fault of simulated clusters, and count how often it is found: `measure.py --help`."""

import argparse
import json
import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT / "build"), str(ROOT / "benchmarks")]

from find import others, world  # noqa: E402 - after the path

from trainwright.gate.find import answer, model, plan  # noqa: E402
from trainwright.gate.find.likelihood import Likelihood  # noqa: E402
from trainwright.gate.find.model import NOBODY, Culprit, Result  # noqa: E402


@dataclass
class Searched:
    """How a search went."""

    answer: answer.Answer
    known: int = 0  # the round after which every bad host was established; 0 for never
    blamed: set[int] = field(default_factory=set)  # hosts that were established after any round


def search(one: world.World, likelihood: Likelihood) -> Searched:
    """Run rounds on a simulated cluster until the search ends."""
    results: list[Result] = []
    belief, known, blamed, guilty = None, 0, set[int](), one.fault.hosts
    for number in range(1, likelihood.settings.rounds.most + 1):
        tests = plan.next_round(one.cluster, results, belief, likelihood.settings)
        results += one.run(tests, number)
        found, belief = answer.judge(one.cluster, results, likelihood)
        now = set(answer.established(belief, likelihood.settings))
        blamed |= now
        known = known or (number if guilty and guilty <= now else 0)
        if found.state != "more":
            break
    return Searched(found, known, blamed)


def innocent(one: world.World, who: Culprit) -> bool:
    """Return whether an answer blames what has no fault. Of a rail's host, the host is not innocent."""
    right = one.fault.culprit
    if who == NOBODY:
        return False
    if who[0] == "hosts":
        guilty = set(right[1:]) if right[0] == "hosts" else {right[1]} if right[0] == "rail" else set()
        return not set(who[1:]) <= guilty
    return who != right


@dataclass
class Row:
    """The outcomes of one kind of fault."""

    clusters: int = 0
    excluded: int = 0
    exact: Counter[str] = field(default_factory=Counter)
    innocent: Counter[str] = field(default_factory=Counter)
    not_established: int = 0
    rounds: list[int] = field(default_factory=list)  # of exact answers
    quick: int = 0  # exact in four rounds at most
    known: int = 0  # every bad host was established in four rounds at most


def measure(
    clusters: int,
    seed: int,
    hosts: int = 0,
    kinds: tuple[str, ...] = world.KINDS,
    wrong: bool = False,
    most_hosts: int = 256,
) -> dict[str, Row]:
    likelihood = Likelihood(model.load_settings(ROOT))
    rows = {kind: Row() for kind in kinds}
    for number in range(clusters):
        kind = kinds[number % len(kinds)]
        row, one = rows[kind], world.make(seed + number, kind, hosts, most_hosts)
        row.clusters += 1
        if not one.told_apart:
            row.excluded += 1
            continue
        went = search(one, likelihood)
        found = went.answer
        named = found.culprit if found.state == "found" else NOBODY
        exact = named == one.fault.culprit and found.state in ("found", "nobody")
        row.exact["ours"] += exact
        row.innocent["ours"] += innocent(one, named) or not went.blamed <= one.fault.hosts
        row.known += 0 < went.known <= 4
        row.not_established += found.state == "not established"
        if exact:
            row.rounds.append(found.rounds)
            row.quick += found.rounds <= 4
        elif wrong:
            print(seed + number, kind, one.cluster.size, f"{one.sd:.3f}", one.tails, one.fault, found, file=sys.stderr)
        for name, way in (("pairwise", others.pairwise), ("bisection", others.bisection)):
            who, _ = way(one)
            row.exact[name] += who == one.fault.culprit
            row.innocent[name] += innocent(one, who)
    return rows


def table(rows: dict[str, Row]) -> str:
    """Return the outcome as a table of Markdown."""
    lines = [
        "| fault | clusters | told apart | exact | innocent | not established | rounds: median, 90%, within 4 "
        "| host known within 4 "
        "| pairs: exact, innocent | bisection: exact, innocent |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    total = Row()
    for kind, row in [*rows.items(), ("all", total)]:
        judged = max(row.clusters - row.excluded, 1)
        if kind != "all":
            total.clusters, total.excluded = total.clusters + row.clusters, total.excluded + row.excluded
            total.not_established += row.not_established
            total.rounds += row.rounds
            total.quick += row.quick
            total.known += row.known
            total.exact += row.exact
            total.innocent += row.innocent
        ranked = sorted(row.rounds) or [0]
        rounds = f"{ranked[len(ranked) // 2]}, {ranked[int(len(ranked) * 0.9)]}, {row.quick / judged:.1%}"
        cells = [kind, str(row.clusters), f"{1 - row.excluded / max(row.clusters, 1):.1%}"]
        cells += [f"{row.exact['ours'] / judged:.1%}", f"{row.innocent['ours'] / judged:.2%}"]
        cells += [f"{row.not_established / judged:.1%}", rounds, f"{row.known / judged:.1%}" if row.known else "-"]
        cells += [
            f"{row.exact[way] / judged:.0%}, {row.innocent[way] / judged:.0%}" for way in ("pairwise", "bisection")
        ]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def merged(files: list[Path]) -> dict[str, Row]:
    """Return the outcomes of several runs of this program, of their --json files."""
    rows: dict[str, Row] = {}
    for file in files:
        for kind, held in json.loads(file.read_text()).items():
            row = rows.setdefault(kind, Row())
            for name in ("clusters", "excluded", "not_established", "quick", "known"):
                setattr(row, name, getattr(row, name) + held[name])
            row.exact.update(held["exact"])
            row.innocent.update(held["innocent"])
            row.rounds += held["rounds"]
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--clusters", type=int, default=900)
    parser.add_argument("--hosts", type=int, default=0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--kind", default="")
    parser.add_argument("--wrong", action="store_true")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--merge", type=Path, nargs="+", metavar="JSON", help="only print the table of these")
    said = parser.parse_args()
    if said.merge:
        print(table(merged(said.merge)))
        return
    begun = time.monotonic()
    kinds = (said.kind,) if said.kind else world.KINDS
    rows = measure(said.clusters, said.seed, said.hosts, kinds, said.wrong)
    print(table(rows))
    print(f"{time.monotonic() - begun:.0f} s")
    if said.json:
        said.json.write_text(json.dumps({kind: vars(row) for kind, row in rows.items()}, indent=1) + "\n")


if __name__ == "__main__":
    main()
