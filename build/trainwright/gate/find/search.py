"""Search on real hosts: run the rounds, record each run, judge, and stop when it is known."""

import shlex
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from trainwright.core.errors import EnvironmentProblem
from trainwright.gate.diagnosis import Known, known_of
from trainwright.gate.find import answer, evidence, launch, plan, record
from trainwright.gate.find.answer import Answer
from trainwright.gate.find.execute import Job, Step, side_by_side
from trainwright.gate.find.likelihood import Likelihood
from trainwright.gate.find.model import Belief, Cluster, Result, Settings, Sign, Test
from trainwright.gate.find.outcome import Outcome, outcome
from trainwright.gate.spec import Run

PROBE_SECONDS = 20
Say = Callable[[str], None]


@dataclass
class Search:
    """What is searched, and by which means."""

    root: Path
    whole: Run  # of all hosts
    on: str
    cluster: Cluster
    settings: Settings
    folder: Path
    script: str
    job: str = ""  # on Kubernetes: the job whose pods are measured
    pods: dict[str, str] = field(default_factory=dict)  # of each node its worker


@dataclass
class Found:
    """The answer, with all that shows it."""

    answer: Answer
    belief: Belief
    cluster: Cluster  # the hosts that were there until the end
    results: list[Result]
    gone: dict[str, str] = field(default_factory=dict)  # host, why
    runs: list[record.Run] = field(default_factory=list)


def find(search: Search, say: Say) -> Found:
    """Run rounds until the answer is known. Goes on from the runs that the folder has."""
    known, likelihood = known_of(search.root), Likelihood(search.settings)
    whole = search.whole
    head = record.Head(
        hosts=list(search.cluster.names),
        on=search.on,
        image=whole.image,
        instance=whole.instance,
        gpus=whole.gpus,
    )
    runs = record.open_folder(search.folder, head)
    if runs:
        say(f"{len(runs)} runs are recorded in {search.folder}")
    told = set[str]()
    gone = _unreachable(search, list(search.cluster.names))
    for name, why in gone.items():
        say(f"{name}: {why}; it is left out")
    while True:
        cluster = record.without(search.cluster, gone)
        if cluster.size < 2:
            raise EnvironmentProblem(
                "fewer than two hosts can be reached", why="; ".join(f"{host}: {why}" for host, why in gone.items())
            )
        results = record.results(runs, cluster.names)
        found, belief = answer.judge(cluster, results, likelihood) if results else (None, None)
        if found and belief and found.state != "more":
            return Found(found, belief, cluster, results, gone, runs)
        if belief:
            for host in answer.established(belief, search.settings):
                if cluster.names[host] not in told:
                    told.add(cluster.names[host])
                    say(f"{cluster.names[host]} is at fault; the search goes on for which part of it, and for others")
        number = max((run.round for run in runs), default=0) + 1
        tests = plan.next_round(cluster, results, belief, search.settings)
        begun = time.monotonic()
        say(f"round {number}: {described(tests)}")
        _round(search, cluster, tests, number, known, runs, gone, say)
        say(f"round {number} took {time.monotonic() - begun:.0f} s")


def described(tests: Sequence[Test]) -> str:
    """Return how many runs of which size."""
    sizes = sorted({len(test.hosts) for test in tests})
    words = {1: "host alone", 2: "pair"}
    counts = [(sum(len(test.hosts) == size for test in tests), words.get(size, f"group of {size}")) for size in sizes]
    railed = sum(test.rails for test in tests)
    text = ", ".join(f"{count} {_plural(word, count)}" for count, word in counts)
    return text + (f", {railed} of them rail by rail" if railed else "")


def _plural(word: str, count: int) -> str:
    first, *rest = word.split(" ", 1)
    return word if count == 1 else " ".join((f"{first}s", *rest))


def steps(search: Search, cluster: Cluster, test: Test, number: int, first: bool = False) -> list[Step]:
    """Return the runs of a test: with all GPUs, and then each rail by itself.

    `first`: no host of it was measured before, so that each is asked for what is asked only once.
    """
    hosts = [cluster.names[host] for host in test.hosts]
    found = []
    for rail in (None, *(range(cluster.rails) if test.rails else ())):
        plain = "-".join(host.rpartition("@")[2].partition(".")[0] for host in hosts[:2])
        name = f"r{number:02}-{test.hosts[0]}-{plain[:40]}" + (f"-x{len(hosts)}" if len(hosts) > 2 else "")
        name += "" if rail is None else f"-rail{rail}"
        reached = [search.pods.get(host, host) for host in hosts]
        run = launch.part(search.whole, reached, search.on, search.settings, f"{search.whole.name}-{name}", rail)
        script = evidence.asked(search.script, first) if rail is None else search.script
        text = launch.text(run, search.on, script, search.job)
        found.append(Step(text, search.folder / f"{name}.log", run.seconds))
    return found


def _round(
    search: Search,
    cluster: Cluster,
    tests: Sequence[Test],
    number: int,
    known: Known,
    runs: list[record.Run],
    gone: dict[str, str],
    say: Say,
) -> None:
    seen = {host for run in runs for host in run.hosts}
    jobs = [
        Job(steps(search, cluster, test, number, not any(cluster.names[host] in seen for host in test.hosts)))
        for test in tests
    ]
    away = list[str]()

    def done(place: int) -> None:
        test, job = tests[place], jobs[place]
        hosts = [cluster.names[host] for host in test.hosts]
        found = [
            outcome(known, step.log, code, search.settings.run.least)
            for step, code in zip(job.steps, job.codes, strict=True)
        ]
        left = _unreachable(search, hosts) if any(one.away for one in found) else {}
        if left:
            gone.update({host: f"it left in round {number}: {why}" for host, why in left.items()})
            away.extend(left)
            return
        reached = [search.pods.get(host, host) for host in hosts]
        signs = evidence.of_run(job.steps[0].log, hosts, reached, search.settings.evidence)
        run = recorded(hosts, number, found, job.steps[0].log, signs)
        record.add(search.folder, run)
        runs.append(run)
        if run.kind != "ok":
            say(f"{' and '.join(hosts[:4])}: {run.kind}: {run.why}")

    side_by_side(jobs, search.settings.run.side_by_side, done)
    for host in away:
        say(f"{host}: {gone[host]}")


def recorded(
    hosts: Sequence[str], number: int, found: Sequence[Outcome], log: Path, signs: Sequence[Sign] = ()
) -> record.Run:
    whole, rails = found[0], found[1:]
    return record.Run(
        round=number,
        hosts=list(hosts),
        kind=whole.kind,
        speed=whole.speed,
        rails=[one.speed for one in rails],
        why=whole.why,
        log=log.name,
        signs=list(signs),
    )


def _unreachable(search: Search, hosts: Sequence[str]) -> dict[str, str]:
    """Return the hosts that do not answer, with the reason. Only of ssh it can be asked beforehand."""
    if search.on != "ssh":
        return {}
    folder = search.folder / "probes"
    jobs = [
        Job(
            [
                Step(
                    shlex.join(["ssh", "-o", "BatchMode=yes", "-o", "ConnectTimeout=10", host, "true"]),
                    folder / f"{host}.log",
                    PROBE_SECONDS,
                )
            ]
        )
        for host in hosts
    ]
    side_by_side(jobs, search.settings.run.side_by_side)
    found = {}
    for host, job in zip(hosts, jobs, strict=True):
        if job.codes != [0]:
            lines = (folder / f"{host}.log").read_text(errors="replace").strip().splitlines()
            found[host] = f"ssh does not reach it: {lines[-1] if lines else f'no answer in {PROBE_SECONDS} s'}"
    return found
