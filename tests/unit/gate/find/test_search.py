"""Search simulated clusters of benchmarks/find: every kind of fault is found, and no innocent host is blamed."""

import math

import pytest
from find import measure, world

from trainwright.gate.find import answer, model, plan
from trainwright.gate.find.likelihood import Likelihood, log_add, log_mean, log_sum, smeared
from trainwright.gate.find.model import NOBODY, Cluster, Result, Test

SETTINGS = model.load_settings(measure.ROOT)
LIKELIHOOD = Likelihood(SETTINGS)
SPEED = 5.0


def cluster(hosts: int, rack: int = 0, rails: int = 1, alone: bool = True) -> Cluster:
    racks = tuple(number // rack for number in range(hosts)) if rack else ()
    return Cluster(tuple(f"h{number}" for number in range(hosts)), racks, rails, alone)


def searched(
    one: Cluster, bad: dict[int, float | None], most: int = SETTINGS.rounds.most
) -> tuple[answer.Answer, list[Result]]:
    """Search where each run that has one of these hosts, together with another one, is so much slower or hangs."""
    results: list[Result] = []
    belief = None
    for number in range(1, most + 1):
        for test in plan.next_round(one, results, belief, SETTINGS):
            slow = [bad[host] for host in test.hosts if host in bad and len(test.hosts) > 1]
            hangs = None in slow
            wobble = sum(test.hosts) * 37 % 11 / 500 - 0.01
            speed = None if hangs else SPEED + wobble - max((value or 0.0 for value in slow), default=0.0)
            rails = tuple(speed for _ in range(one.rails)) if test.rails and not hangs else ()
            results.append(Result(test, number, speed, rails, "hang" if hangs else "ok"))
        found, belief = answer.judge(one, results, LIKELIHOOD)
        if found.state != "more":
            return found, results
    return found, results


@pytest.mark.parametrize("kind", world.KINDS)
def test_every_kind_of_fault_is_found_and_nobody_else_is_blamed(kind: str) -> None:
    (row,) = measure.measure(8, 500, kinds=(kind,), most_hosts=64).values()
    judged = row.clusters - row.excluded
    assert row.innocent["ours"] == 0
    assert row.exact["ours"] >= judged - 1


@pytest.mark.parametrize("hosts", [4, 5, 8, 9, 33])
@pytest.mark.parametrize("effect", [0.5, None])
def test_a_bad_host_among_few_many_and_odd_numbers(hosts: int, effect: float | None) -> None:
    found, results = searched(cluster(hosts), {hosts - 1: effect})
    assert (found.state, found.culprit) == ("found", ("hosts", hosts - 1))
    assert found.runs
    assert all(hosts - 1 in results[place].test.hosts for place in found.runs)


def test_a_healthy_cluster_has_nobody_to_blame() -> None:
    found, _ = searched(cluster(16), {})
    assert (found.state, found.culprit) == ("nobody", NOBODY)


def test_two_hosts_that_hang_together_are_not_told_apart() -> None:
    found, _ = searched(cluster(2), {1: None})
    assert found.state == "not established"


def test_a_cluster_where_nothing_ends_blames_everyone_and_no_host() -> None:
    found, _ = searched(cluster(8, alone=False), dict.fromkeys(range(8)))
    assert (found.state, found.culprit) == ("found", ("everyone",))
    assert found.rounds == 2  # the first one may have been a slow start


def test_one_slow_run_blames_no_host() -> None:
    one = cluster(8)
    results = [Result(Test((host,)), 1, SPEED) for host in range(8)]
    results += [Result(Test((host, host + 1)), 2, SPEED - (host == 2)) for host in range(0, 8, 2)]
    found, belief = answer.judge(one, results, LIKELIHOOD)
    assert found.state == "more"
    assert max(belief.evidence) == max(belief.evidence[2:4])


def test_each_host_is_in_one_run_of_a_round_and_no_pair_comes_again() -> None:
    _, results = searched(cluster(65), {}, most=6)
    for number in range(1, 7):
        hosts = [host for result in results if result.round == number for host in result.test.hosts]
        assert len(hosts) == len(set(hosts)) == 65
    pairs = [tuple(sorted(result.test.hosts)) for result in results if len(result.test.hosts) == 2]
    assert len(pairs) == len(set(pairs))


def test_the_links_of_the_ring_are_measured_in_two_rounds_of_pairs() -> None:
    found, results = searched(cluster(16), {}, most=3)
    assert plan.Covered(cluster(16), results, SETTINGS).left_links == set()
    assert found.state == "more"  # groups were not measured: that nobody is at fault is not established


def test_a_slow_host_is_found_among_eight_where_half_of_the_larger_groups_have_it() -> None:
    """In 20 clusters with noise of 2%: the groups that are slow must not be taken for noise."""
    right = 0
    for seed in range(20):
        one = world.make(seed, "fail-slow", 8)
        one.sd, one.disturbed, one.tails, one.cluster = 0.02, 0.0, "student", cluster(8, alone=False)
        right += measure.search(one, LIKELIHOOD).answer.culprit == one.fault.culprit
    assert right == 20


@pytest.mark.parametrize("densities", [(-1.0, -2.0, -4.0, -9.0), (0.0, -700.0, -1400.0, -1.0), (-3.0, -3.0)])
def test_sums_of_exponentials_are_what_they_are_by_definition(densities: tuple[float, ...]) -> None:
    *sizes, hangs = densities
    for one in densities:
        assert log_add(one, -2.0) == log_add(-2.0, one) == pytest.approx(log_sum((one, -2.0)))
    below, above = [sizes[0], *sizes[:-1]], [*sizes[1:], sizes[-1]]
    wanted = [log_mean(four) for four in zip(below, sizes, sizes, above, strict=True)]
    assert smeared(densities) == pytest.approx([*wanted, hangs])
    assert log_add(-math.inf, -math.inf) == -math.inf
