"""Read what network cards, DCGM and NCCL say of hosts, and weigh it beside the runs."""

import json
import math
import os
import re
import subprocess
from pathlib import Path

import finding
import pytest
from finding import WITNESSES
from hosts import ROOT
from typer.testing import CliRunner

from trainwright.commands import register
from trainwright.commands.options import app
from trainwright.gate import run as gate_run
from trainwright.gate.find import answer, evidence, model, record, report, signs
from trainwright.gate.find.likelihood import Likelihood
from trainwright.gate.find.model import Cluster, Result, Sign, Test
from trainwright.gate.find.search import Found

SETTINGS = model.load_settings(ROOT)
register(["gate"])
HOSTS = ["node0", "node1"]


def heard(tmp_path: Path, text: str, hosts: list[str]) -> dict[str, list[Sign]]:
    log = tmp_path / "run.log"
    log.write_text(text)
    found: dict[str, list[Sign]] = {}
    for sign in evidence.of_run(log, hosts, hosts, SETTINGS.evidence):
        found.setdefault(sign.source, []).append(sign)
    return found


@pytest.mark.parametrize(
    ("file", "state", "what"),
    [
        ("dcgm-4.5-pass.json", "fine", "24 results passed"),
        ("dcgm-4.5-memory.json", "bad", "memory GPU 3: Detected 2 uncorrectable ECC errors"),
        ("dcgm-4.5-persistence.json", "fine", "8 results passed"),
        ("dcgm-4.5-no-engine.json", "not there", "dcgmi gave no result: "),
        ("dcgm-3.3-pcie.json", "bad", "PCIe GPU 1: GPU 1 is running at PCI link width 4X"),
    ],
)
def test_the_verdict_of_dcgm(tmp_path: Path, file: str, state: str, what: str) -> None:
    text = (WITNESSES / file).read_text().replace("\n", " ")
    (sign,) = heard(tmp_path, f"witness dcgm before node0 {text}\n", ["node0"])["dcgm"]
    assert sign.state == state
    assert what in sign.what


def of_dcgm(category: str, warning: object) -> str:
    """Return an output of DCGM 3 in which one test failed."""
    test = {"name": "t", "results": [{"gpu_id": "1", "status": "Fail", "warnings": [warning]}, {"status": "Pass"}]}
    return json.dumps({"DCGM GPU Diagnostic": {"test_categories": [{"category": category, "tests": [test]}]}})


@pytest.mark.parametrize(
    ("category", "warning", "state"),
    [
        ("Deployment", "Persistence mode for GPU 1 is disabled.", "fine"),  # without severities: by its category
        ("Hardware", "x", "bad"),
        ("Hardware", {"warning": "x", "error_severity": 5}, "fine"),
        ("Deployment", {"warning": "x", "error_severity": 2}, "bad"),
    ],
)
def test_a_mere_setting_of_the_host_is_no_failure(tmp_path: Path, category: str, warning: object, state: str) -> None:
    (sign,) = heard(tmp_path, f"witness dcgm before node0 {of_dcgm(category, warning)}\n", ["node0"])["dcgm"]
    assert sign.state == state


@pytest.mark.parametrize(
    "said",
    [
        "none: no dcgmi on PATH",
        f'{{"DCGM Diagnostic": {"[" * 100_000}',
        of_dcgm("Hardware", "x").replace('{"test_c', '{"runtime_error": "no engine", "test_c'),
        "Error: Unable to connect to host engine. Host engine connection invalid/disconnected.",
        '{"DCGM Diagnostic": {"test_categories": [{"tests": 7}]}}',
        '{"DCGM Diagnostic": {"test_categories": []}}',
        '{"DCGM Diagnostic": 3}',
        '{"DCGM Diagnostic": {"test_categ',
        "",
    ],
)
def test_a_dcgm_that_says_nothing_is_not_there(tmp_path: Path, said: str) -> None:
    (sign,) = heard(tmp_path, f"witness dcgm before node0 {said}\n", ["node0"])["dcgm"]
    assert sign.state == "not there"
    assert sign.what


def test_a_host_that_was_not_asked_again_has_no_new_verdict(tmp_path: Path) -> None:
    assert "dcgm" not in heard(tmp_path, "", HOSTS)


@pytest.mark.parametrize(
    ("file", "hosts", "states"),
    [
        ("nccl-2.31-pass.txt", ["node0"], ["fine"]),
        ("nccl-2.31-p2p.txt", ["node0"], ["bad"]),
        ("nccl-2.31-p2p.txt", HOSTS, ["bad", "bad"]),  # either of them
        ("nccl-2.32-net.txt", HOSTS, ["fine", "bad"]),
    ],
)
def test_the_diagnostics_of_nccl(tmp_path: Path, file: str, hosts: list[str], states: list[str]) -> None:
    found = heard(tmp_path, (WITNESSES / file).read_text(), hosts)["nccl"]
    assert [sign.state for sign in found] == states
    assert all(sign.own == (len(hosts) == 1) for sign in found if sign.state == "bad")


@pytest.mark.parametrize(
    ("line", "state"),
    [
        ("[OK]   p2p: no transfer failed", "fine"),  # what is well says so, whatever its words
        ("[INFO] p2p: data mismatch between GPU 1 and GPU 4", "bad"),
        ("[INFO] net bw: test unable to complete in allocated time", "fine"),
    ],
)
def test_a_line_of_nccls_diagnostics(tmp_path: Path, line: str, state: str) -> None:
    (sign,) = heard(tmp_path, f"node0:1 NCCL DIAG {line}\n", ["node0"])["nccl"]
    assert sign.state == state


def test_an_older_nccl_has_no_diagnostics(tmp_path: Path) -> None:
    (sign,) = heard(tmp_path, "NCCL version 2.30.7+cuda13.2\n", ["node0"])["nccl"]
    assert (sign.state, sign.what) == ("not there", "NCCL 2.30.7 has no diagnostics; 2.31 has")


def asked(tmp_path: Path, when: str, **more: str) -> str:
    """Run what a host is asked, with the cards of this folder."""
    script = evidence.asked(gate_run.script(ROOT), first=True)
    start = script.index("witnesses() {")
    text = script[start : script.index("\n}\n", start) + 3] + f"witnesses {when} node0\n"
    environment = {"PATH": f"{tmp_path}/bin:/usr/bin:/bin", "GATE_SYS": f"{tmp_path}/sys/node0", **more}
    done = subprocess.run(["bash", "-euc", text], capture_output=True, text=True, env=environment, check=True)
    assert done.stderr == ""
    return done.stdout


def test_the_counters_of_cards_are_read_before_and_after(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    finding.write_witnesses(tmp_path, ["node0"])
    before = asked(tmp_path, "before")
    port = tmp_path / "sys/node0/class/infiniband/rdmap32s27/ports/1/hw_counters"
    (port / "impaired_remote_conn_events").write_text("1055\n")
    (port / "tx_bytes").write_text("999999999\n")
    found = heard(tmp_path, before + asked(tmp_path, "after"), ["node0"])
    (cards,) = found["nics"]
    assert (cards.state, cards.events) == ("bad", 33)
    assert cards.what == "rdmap32s27/1 impaired_remote_conn_events +33"
    assert [sign.state for sign in found["dcgm"]] == ["fine"]


def test_a_bridge_is_no_card(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    for name in ("docker0", "eth0"):
        (tmp_path / "sys/node0/class/net" / name).mkdir(parents=True)
        (tmp_path / "sys/node0/class/net" / name / "carrier_changes").write_text("7\n")
    (tmp_path / "sys/node0/class/net/eth0/device").mkdir()
    cards = [line for line in asked(tmp_path, "before").splitlines() if line.startswith("witness nics")]
    assert cards == ["witness nics before node0 eth0 carrier_changes=7"]


def counted(tmp_path: Path, before: str, after: str, hosts: list[str]) -> list[Sign]:
    lines = [
        f"witness nics {when} {host} {text}\n"
        for when, text in (("before", before), ("after", after))
        for host in hosts
    ]
    return heard(tmp_path, "".join(lines), hosts)["nics"]


def test_the_largest_growth_is_named_first_and_a_pair_does_not_show_whose_it_is(tmp_path: Path) -> None:
    first, second = counted(tmp_path, "eth0 rx_errors=0 tx_errors=0", "eth0 rx_errors=3 tx_errors=9", HOSTS)
    assert (first.what, first.own, first.events) == ("eth0 tx_errors +9, eth0 rx_errors +3", False, 12)
    assert (second.host, second.own) == ("node1", False)
    assert [sign.own for sign in counted(tmp_path, "eth0 rx_errors=0", "eth0 rx_errors=9", ["node0"])] == [True]


def test_counters_that_are_not_of_errors_say_nothing(tmp_path: Path) -> None:
    (sign,) = counted(tmp_path, "eth0 odd=0", "eth0 odd=9", ["node0"])
    assert (sign.state, sign.what) == ("not there", "none of its counters is one of errors that is known")


def test_a_host_may_have_another_name_than_the_one_by_which_it_is_reached(tmp_path: Path) -> None:
    log = tmp_path / "run.log"
    log.write_text("witness dcgm before ip-10-0-0-7 none: x\n")
    assert [
        one.what
        for one in evidence.of_run(log, ["10.0.0.7"], ["root@10.0.0.7"], SETTINGS.evidence)
        if one.source == "dcgm"
    ] == ["x"]
    log.write_text("witness dcgm before node1.cluster.internal none: x\n")
    found = [
        (one.host, one.what) for one in evidence.of_run(log, HOSTS, HOSTS, SETTINGS.evidence) if one.source == "dcgm"
    ]
    assert found == [("node1", "x")]


def test_a_machine_without_cards_and_dcgm_says_so(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    said = asked(tmp_path, "before") + asked(tmp_path, "after")
    found = heard(tmp_path, said, ["node0"])
    assert {name: (one.state, one.what) for name, (one,) in found.items()} == {
        "dcgm": ("not there", "no dcgmi on PATH"),
        "nics": ("not there", "no counters in /sys/class/infiniband or /sys/class/net"),
        "nccl": ("not there", "no line NCCL DIAG, and none says which NCCL it is"),
    }


def test_only_a_first_run_asks_for_what_takes_long() -> None:
    script = gate_run.script(ROOT)
    assert evidence.MARK in script
    assert "dcgmi diag" in evidence.asked(script, first=True)
    assert "dcgmi diag" not in evidence.asked(script, first=False)
    assert "witness nics" in evidence.asked(script, first=False)


CLUSTER = Cluster(tuple(f"h{number}" for number in range(6)), (), 1, alone=False)


def run(hosts: tuple[int, ...], number: int, events: dict[int, int], source: str = "nics") -> Result:
    found = tuple(
        Sign(
            source=source,
            host=f"h{host}",
            state="bad" if events.get(host, 0) >= 5 else "fine",
            what="x",
            own=len(hosts) == 1,
            events=events.get(host, 0),
        )
        for host in hosts
    )
    return Result(Test(hosts), number, 5.0, signs=found)


ROUNDS = [((0, 1), (2, 3), (4, 5)), ((1, 2), (3, 4), (5, 0)), ((0, 2), (1, 4), (3, 5))]


def test_the_card_that_has_errors_with_every_partner_is_bad_and_its_partners_are_not() -> None:
    """Both ends of a connection count its errors."""
    results = [
        run(hosts, number, dict.fromkeys(hosts, 50) if 2 in hosts else {})
        for number, tests in enumerate(ROUNDS, 1)
        for hosts in tests
    ]
    found = signs.summed(CLUSTER, results, SETTINGS.evidence)
    assert [sign.state for sign in found] == ["fine", "fine", "bad", "fine", "fine", "fine"]
    assert found[2].what == "x, in 3 of 3 runs"


@pytest.mark.parametrize(
    ("runs", "state"),
    [
        ([((0, 1), 50), ((0, 1), 50)], "fine"),  # one partner: it may be that one's
        ([((0, 1), 50), ((0, 2), 50)], "bad"),
        ([((0, 1), 50), ((0, 2), 50), ((0, 3), 0), ((0, 4), 0)], "fine"),  # half of its runs at most
        ([((0,), 50)], "bad"),
    ],
)
def test_how_many_runs_speak_against_a_host(runs: list[tuple[tuple[int, ...], int]], state: str) -> None:
    results = [run(hosts, 1, {0: events}) for hosts, events in runs]
    results += [run((5,), 1, {}), run((3,), 1, {}), run((4,), 1, {})]  # the median host has none
    assert signs.summed(CLUSTER, results, SETTINGS.evidence)[0].state == state


def test_a_host_that_left_counts_no_more() -> None:
    left = Result(Test((0, 1)), 1, 5.0, signs=(Sign(source="nics", host="gone", state="bad", what="x"),))
    assert signs.summed(CLUSTER, [left], SETTINGS.evidence) == []


def test_errors_that_the_whole_fleet_has_are_no_evidence() -> None:
    results = [run(hosts, 1, dict.fromkeys(hosts, 50)) for tests in ROUNDS for hosts in tests]
    assert {sign.state for sign in signs.summed(CLUSTER, results, SETTINGS.evidence)} == {"fine"}


def test_what_is_not_there_weighs_nothing_and_all_of_it_at_most_so_much() -> None:
    def one(state: str, source: str, host: str) -> Sign:
        return Sign.model_validate({"source": source, "host": host, "state": state, "what": ""})

    found = [one("not there", kind, "h0") for kind in evidence.kinds()]
    found += [one("bad", kind, "h1") for kind in evidence.kinds()] + [one("fine", "dcgm", "h2")]
    weights = signs.weights(CLUSTER, found, SETTINGS.evidence)
    assert weights[0] == weights[3] == 0.0
    assert weights[1] == pytest.approx(math.log(SETTINGS.evidence.most))
    assert weights[2] < 0.0
    assert set(SETTINGS.evidence.rates) == set(evidence.kinds())


def test_evidence_alone_blames_nobody_and_makes_slow_runs_weigh_more() -> None:
    bad = Sign(source="dcgm", host="h1", state="bad", what="memory GPU 3: ECC")
    likelihood = Likelihood(SETTINGS)
    quiet = [Result(Test(hosts), 1, 5.0, signs=(bad,) if 1 in hosts else ()) for hosts in ROUNDS[0]]
    found, _ = answer.judge(CLUSTER, quiet, likelihood)
    assert found.state == "more"
    slow = [
        Result(Test(hosts), 1, 4.0 if 1 in hosts else 5.0, signs=(bad,) if 1 in hosts else ()) for hosts in ROUNDS[0]
    ]
    _, belief = answer.judge(CLUSTER, slow, likelihood)
    assert belief.chances["hosts", 1] > 10 * belief.chances["hosts", 0]
    said = report.evidence_lines(Found(answer.Answer("more", ("hosts", 1), 0.5, 1), belief, CLUSTER, slow))
    assert said == ["beside the runs:", "  h1: DCGM: memory GPU 3: ECC"]


def test_signs_are_recorded_and_read_again(tmp_path: Path) -> None:
    sign = Sign(source="nics", host="h1", state="bad", what="x", own=False, events=7)
    record.add(tmp_path, record.Run(round=1, hosts=["h0", "h1"], kind="ok", speed=5.0, signs=[sign]))
    assert record.results(record.read(tmp_path), CLUSTER.names)[0].signs == (sign,)
    old = '{"round": 1, "hosts": ["h0", "h1"], "kind": "ok", "speed": 5.0, "rails": [], "why": "", "log": ""}\n'
    (tmp_path / record.RUNS).write_text(old)  # of a search that was begun before
    assert record.read(tmp_path)[0].signs == []


@pytest.mark.waits
def test_a_search_shows_what_the_cards_and_dcgm_say_of_the_guilty_host(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place, names = tmp_path / "hosts", [f"h{number}" for number in range(6)]
    finding.write(place)
    finding.write_ssh(place)
    finding.write_witnesses(place, names)
    for host in names:
        (place / f"fault.{host}").write_text("slow 0.8 errors\n" if host == "h4" else "ok\n")
    (place / "dcgm.h4.json").write_text((WITNESSES / "dcgm-4.5-memory.json").read_text())
    monkeypatch.setenv("PATH", f"{place}/bin:{os.environ['PATH']}")
    (tmp_path / "list").write_text("\n".join(names))
    words = ["gate", "--find", "--on", "ssh", "--hosts", str(tmp_path / "list"), "--gpus", "1"]
    done = CliRunner().invoke(app, [*words, "--folder", str(tmp_path / "runs")])
    said = done.output.splitlines()
    assert "at fault: h4" in said, f"{done.output} {done.exception!r}"
    assert any(re.fullmatch(r"  h4: DCGM: memory GPU 3: Detected 2 uncorrectable .*", line) for line in said)
    cards = [
        line for line in said if line.startswith("  h4: error counters of its network cards: rdmap16s27/1 retrans")
    ]
    assert re.search(r"\+40, in (\d) of \1 runs$", cards[0])
    others = [line for line in said if re.match(r"  h[01235]: ", line)]
    assert others == []
    assert (
        "  NCCL's diagnostics: not there on any of 6 hosts: no line NCCL DIAG, and none says which NCCL it is" in said
    )


def test_a_kind_of_evidence_that_is_no_longer_known_counts_for_nothing() -> None:
    old = Sign(source="old", host="h1", state="bad", what="x")
    assert signs.weights(CLUSTER, [old], SETTINGS.evidence) == [0.0] * CLUSTER.size
    found = Found(
        answer.Answer("more", ("hosts", 1), 0.5, 1), answer.judge(CLUSTER, [], Likelihood(SETTINGS))[1], CLUSTER, []
    )
    found.belief.signs[:] = [old]
    assert report.evidence_lines(found) == ["beside the runs:", "  h1: old: x"]
