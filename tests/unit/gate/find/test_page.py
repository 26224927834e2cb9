"""Render the page of a search: complete, escaped, and the guilty one marked."""

import html.parser
import re
from pathlib import Path

import pytest
from find import measure, world

from trainwright.core.errors import ConfigError
from trainwright.gate.find import answer, forecast, model, page, plan, report, topology
from trainwright.gate.find.likelihood import Likelihood
from trainwright.gate.find.model import Cluster, Result, Test
from trainwright.gate.find.search import Found, described

SETTINGS = model.load_settings(measure.ROOT)
EVIL = "<script>alert(1)</script>"


def found(kind: str, hosts: int, seed: int = 3) -> Found:
    one, likelihood = world.make(seed, kind, hosts), Likelihood(SETTINGS)
    results: list[Result] = []
    belief = None
    for number in range(1, SETTINGS.rounds.most + 1):
        results += one.run(plan.next_round(one.cluster, results, belief, SETTINGS), number)
        answered, belief = answer.judge(one.cluster, results, likelihood)
        if answered.state != "more":
            break
    assert belief
    return Found(answered, belief, one.cluster, results, {EVIL: EVIL})


class Checker(html.parser.HTMLParser):
    """Check that every element is closed."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag != "meta" or not attrs:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        pass

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


@pytest.mark.parametrize(("kind", "hosts"), [("bad host", 24), ("none", 16), ("rack boundary", 24), ("two hosts", 120)])
def test_the_page_is_whole_and_marks_the_guilty_ones(kind: str, hosts: int) -> None:
    one = found(kind, hosts)
    text = page.html(one, SETTINGS, "slurm", [EVIL])
    checker = Checker()
    checker.feed(text)
    assert checker.open == []
    assert EVIL not in text
    marked = len(re.findall(r'<rect class="\w+ guilty" x="\d+" y="\d+" width="22"', text))
    assert marked == {"bad host": 1, "two hosts": 2}.get(kind, 0)
    assert text.count("<circle") == sum(len(result.test.hosts) > 1 for result in one.results)
    assert ("Too many hosts for a matrix" in text) is (hosts > page.MOST_PAIRS)


def test_a_host_that_ran_only_with_the_guilty_one_is_not_shown_as_slow() -> None:
    likelihood, cluster = Likelihood(SETTINGS), Cluster(("h0", "h1", "h2", "h3", "h4"), (), 1, alone=False)
    runs = [((0, 1), 4.0), ((2, 3), 5.0), ((1, 3, 4), 4.0), ((0, 2), 5.0), ((1, 2), 4.0), ((0, 3), 5.0)]
    results = [Result(Test(hosts), 1 + place // 2, speed) for place, (hosts, speed) in enumerate(runs)]
    _, belief = answer.judge(cluster, results, likelihood)
    one = Found(answer.Answer("found", ("hosts", 1), 1.0, 3), belief, cluster, results)
    text = page.html(one, SETTINGS, "ssh")
    shown = dict(re.findall(r'<rect class="([^"]+)"[^>]*><title>(h\d: [^<]+)</title>', text))
    assert shown["slow guilty"].startswith("h1: ")
    assert shown["none"] == "h4: no run without a host at fault"
    assert all(f">{name}</text>" in text for name in cluster.names)


def test_commands_to_drain_are_printed_for_hosts_only() -> None:
    said = report.lines(found("bad host", 24), SETTINGS, "slurm")
    assert sum("scontrol update nodename=host" in line for line in said) == 1
    assert not any("scontrol" in line for line in report.lines(found("rack boundary", 24), SETTINGS, "slurm"))
    assert not any("scontrol" in line for line in report.lines(found("bad host", 24), SETTINGS, "ssh"))


def test_what_was_not_established_is_said() -> None:
    one = found("none", 16)
    said = report.lacks(one, SETTINGS)
    assert any("groups of more than 8 hosts" in line for line in said)
    assert any(re.search(r"slower by less than \d+%", line) for line in said)
    assert f"{EVIL}: {EVIL}" in said


def test_the_fleet_is_compared_with_a_baseline() -> None:
    one = found("none", 16)
    assert one.belief.pair is not None
    assert "10.0% slower" in report.of_fleet(one, one.belief.pair + 0.10536)
    assert report.of_fleet(one, None) == ""


def test_a_forecast_of_1024_hosts_has_disjoint_runs() -> None:
    one = Cluster(tuple(f"h{number}" for number in range(1024)), rails=8)
    planned = forecast.forecast(one, SETTINGS, 8, bad=5, most=4)
    assert [described(tests) for tests in planned.rounds][:2] == ["1024 hosts alone", "512 pairs"]
    for tests in planned.rounds:
        hosts = [host for test in tests for host in test.hosts]
        assert len(hosts) == len(set(hosts))
    assert planned.gpu_hours == pytest.approx(planned.seconds * 1024 * 8 / 3600)


SLURM = """\
# comment
SwitchName=s0 Nodes=n[01-02,04]
SwitchName=s1 Nodes=n03,m1
SwitchName=top Switches=s[0-1]
"""
EC2 = """{"Instances": [
 {"InstanceId": "i-1", "NetworkNodes": ["nn-a", "nn-b", "nn-c"]},
 {"InstanceId": "i-2", "PrivateDnsName": "ip-1.ec2.internal", "NetworkNodes": ["nn-a", "nn-b", "nn-d"]}]}"""
NODES = """{"items": [
 {"metadata": {"name": "a", "labels": {
  "topology.k8s.aws/network-node-layer-3": "nn-1", "topology.k8s.aws/network-node-layer-1": "x"}}},
 {"metadata": {"name": "b", "labels": {"topology.kubernetes.io/rack": "r2", "kubernetes.io/hostname": "b.example"}}},
 {"metadata": {"name": "c"}}]}"""


@pytest.mark.parametrize(
    ("text", "hosts", "wanted"),
    [
        (SLURM, ["n01", "root@n02.example", "n03", "n04", "m1"], (0, 0, 1, 0, 1)),
        (EC2, ["i-1", "ip-1"], (0, 1)),
        (NODES, ["a", "b.example"], (0, 1)),
    ],
    ids=["slurm", "ec2", "nodes"],
)
def test_racks_are_read(tmp_path: Path, text: str, hosts: list[str], wanted: tuple[int, ...]) -> None:
    file = tmp_path / "topology"
    file.write_text(text)
    assert topology.racks(file, hosts)[0] == wanted
    with pytest.raises(ConfigError, match="does not have x"):
        topology.racks(file, ["x"])


@pytest.mark.parametrize("text", ['{"items": 3}', "[1]", '{"Instances": [{}]}', "{"])
def test_a_topology_that_cannot_be_read_says_which_would_do(tmp_path: Path, text: str) -> None:
    file = tmp_path / "topology"
    file.write_text(text)
    with pytest.raises(ConfigError, match="cannot be read"):
        topology.racks(file, ["a"])
