"""Forecast a search: its rounds, minutes and GPU-hours, where one host is at fault and where none is. Pure."""

from dataclasses import dataclass

from trainwright.gate.find import answer, plan
from trainwright.gate.find.likelihood import Likelihood
from trainwright.gate.find.model import Cluster, Result, Settings, Test

SLOW = 1.0  # logarithm: how slow the bad host of the forecast is


@dataclass(frozen=True)
class Forecast:
    rounds: list[list[Test]]
    seconds: int
    gpu_hours: float


def forecast(cluster: Cluster, settings: Settings, gpus: int, bad: int | None = None, most: int = 0) -> Forecast:
    """Plan a search without noise. `bad` is the host that is at fault; `most` ends it after so many rounds."""
    likelihood, results = Likelihood(settings), list[Result]()
    rounds, belief = list[list[Test]](), None
    while len(rounds) < (most or settings.rounds.most):
        tests = plan.next_round(cluster, results, belief, settings)
        rounds.append(tests)
        results += [_result(cluster, test, len(rounds), bad) for test in tests]
        if most and len(rounds) == most:
            break
        found, belief = answer.judge(cluster, results, likelihood)
        if found.state != "more":
            break
    took = [max(seconds(test, cluster, settings) for test in tests) for tests in rounds]
    return Forecast(rounds, sum(took), sum(took) * cluster.size * gpus / 3600)


def _result(cluster: Cluster, test: Test, number: int, bad: int | None) -> Result:
    speed = -SLOW if bad in test.hosts and len(test.hosts) > 1 else 0.0
    return Result(test, number, speed, (speed,) * cluster.rails if test.rails else ())


def seconds(test: Test, cluster: Cluster, settings: Settings) -> int:
    return settings.run.seconds + (cluster.rails * settings.run.rail_seconds if test.rails else 0)


def lines(cluster: Cluster, settings: Settings, gpus: int) -> list[str]:
    """Return the plan for people: what it takes, and its first rounds."""
    nobody = forecast(cluster, settings, gpus)
    guilty = forecast(cluster, settings, gpus, bad=cluster.size // 2)
    said = [f"{cluster.size} hosts, with racks" if cluster.racks else f"{cluster.size} hosts, racks unknown"]
    for what, one in (("if one host is at fault", guilty), ("if no host is", nobody)):
        minutes = f"{one.seconds / 60:.0f} minutes, {one.gpu_hours:.1f} GPU-hours"
        said.append(f"{what}: {len(one.rounds)} rounds, about {minutes}")
    if cluster.rails > 1:
        short, long = (seconds(Test((0, 1), rails), cluster, settings) for rails in (False, True))
        said.append(f"a round takes about {short} s, and {long} s where a suspect is measured rail by rail")
    hang = settings.run.limit + settings.run.grace
    said.append(
        f"a run that hangs adds up to {hang / 60:.0f} minutes to its round; at most {settings.rounds.most} rounds"
    )
    return said
