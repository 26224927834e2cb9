"""Search hosts that are played by programs of this machine: faults, interrupts, and records that go on."""

import json
import os
import re
import signal
import time
from pathlib import Path

import finding
import pytest
from hosts import ROOT, quick
from unit.forked import Forked

from trainwright.core.errors import ConfigError, EnvironmentProblem
from trainwright.gate import floors, spec
from trainwright.gate import run as gate_run
from trainwright.gate.find import execute, model, prepare, record, report, search
from trainwright.gate.find.execute import Job, Step, side_by_side
from trainwright.gate.find.search import Found, Search
from trainwright.matrix import instances

pytestmark = pytest.mark.waits
HOSTS = [f"h{number}" for number in range(6)]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    place = tmp_path / "hosts"
    finding.write(place)
    finding.write_ssh(place)
    for host in HOSTS:
        (place / f"fault.{host}").write_text("ok\n")
    monkeypatch.setenv("PATH", f"{place}/bin:{os.environ['PATH']}")
    monkeypatch.setattr(gate_run, "script", lambda _: quick())
    monkeypatch.setattr(execute, "POLL_SECONDS", 0.02)
    return place


def settings() -> model.Settings:
    """Return settings with long limits, and a short wait: a host that is away stays away."""
    known = model.load_settings(ROOT)
    run = known.run.model_copy(update={"limit": 60, "rail_limit": 60, "grace": 1, "wait": 5})
    return known.model_copy(update={"run": run})


def searched(tmp_path: Path, hosts: list[str] = HOSTS, gpus: int = 1) -> tuple[Search, model.Settings]:
    known = settings()
    whole = spec.make(
        spec.load_settings(ROOT),
        instances.load_instances(ROOT),
        floors.load_floors(ROOT),
        name="gate-x",
        nodes=len(hosts),
        gpus=gpus,
        hosts=hosts,
    )
    cluster, _ = prepare.cluster(whole, "ssh", None)
    return Search(ROOT, whole, "ssh", cluster, known, tmp_path / "runs", gate_run.script(ROOT)), known


def find(tmp_path: Path, hosts: list[str] = HOSTS, gpus: int = 1) -> tuple[Found, list[str]]:
    asked, known = searched(tmp_path, hosts, gpus)
    found = search.find(asked, print)
    return found, report.lines(found, known, "ssh")


def test_a_host_that_dies_is_found_and_its_error_named(folder: Path, tmp_path: Path) -> None:
    (folder / "fault.h1").write_text("dies\n")
    _, said = find(tmp_path)
    assert said[0] == "at fault: h1"
    assert any("error: " in line for line in said)


def test_one_rail_of_a_host_is_told_apart(folder: Path, tmp_path: Path) -> None:
    (folder / "fault.h2").write_text("rail 1 0.5\n")
    _, said = find(tmp_path, gpus=2)
    assert said[0] == "at fault: GPU 1 of h2, or the network card that belongs to it"


def test_a_host_that_is_away_is_left_out_and_one_that_leaves_too(folder: Path, tmp_path: Path) -> None:
    (folder / "away.h0").write_text("")
    asked, known = searched(tmp_path)

    def say(line: str) -> None:
        if line.startswith("round 2:"):
            (folder / "away.h5").write_text("")

    (folder / "fault.h3").write_text("slow 0.5\n")
    found = search.find(asked, say)
    assert set(found.gone) == {"h0", "h5"}
    assert "ssh does not reach it" in found.gone["h0"]
    assert "it left in round" in found.gone["h5"]
    assert report.named(found.answer.culprit, found.cluster) == "h3"
    assert any("h0: ssh does not reach it" in line for line in report.lines(found, known, "ssh"))


def test_nothing_can_be_compared_where_only_one_host_answers(folder: Path, tmp_path: Path) -> None:
    for host in HOSTS[1:]:
        (folder / f"away.{host}").write_text("")
    with pytest.raises(EnvironmentProblem, match="fewer than two hosts"):
        find(tmp_path)


def test_two_hosts_are_not_told_apart_and_that_is_said(folder: Path, tmp_path: Path) -> None:
    (folder / "fault.h1").write_text("dies\n")
    found, said = find(tmp_path, HOSTS[:2])
    assert found.answer.state == "not established"
    assert any("a third one is needed" in line for line in said)


def test_a_search_goes_on_from_the_runs_that_are_recorded(folder: Path, tmp_path: Path) -> None:
    """It finds a slow host with the runs that show it, and its folder is refused for other hosts."""
    (folder / "fault.h4").write_text("slow 0.5\n")
    asked, known = searched(tmp_path)

    def stop(line: str) -> None:
        if line.startswith("round 2:"):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        search.find(asked, stop)
    before = record.read(asked.folder)
    assert {run.round for run in before} == {1}
    with (asked.folder / record.RUNS).open("a") as file:
        file.write('{"round": 2, "ho')  # what the end of the machine left
    told: list[str] = []
    found = search.find(asked, told.append)
    assert told[0] == f"{len(before)} runs are recorded in {asked.folder}"
    assert record.read(asked.folder)[: len(before)] == before

    said = report.lines(found, known, "ssh")
    assert said[0] == "at fault: h4"
    shown = [line for line in said if re.match(r"  round \d+: .*h4.*: \d+% slower \(r\d\d-.*\.log\)", line)]
    assert len(shown) >= 2
    assert all((asked.folder / found.results[place].log).exists() for place in found.answer.runs)
    lines = [json.loads(line) for line in (asked.folder / record.RUNS).read_text().splitlines()]
    assert all(set(line) == {"round", "hosts", "kind", "speed", "rails", "why", "log", "signs"} for line in lines)

    with pytest.raises(ConfigError) as caught:
        find(tmp_path, HOSTS[:5])
    assert "hosts: h0, h1, h2, h3, h4, h5 there, h0, h1, h2, h3, h4 here" in caught.value.why


def test_a_damaged_record_names_its_line(folder: Path, tmp_path: Path) -> None:
    asked, _ = searched(tmp_path)
    asked.folder.mkdir()
    record.open_folder(asked.folder, record.Head(hosts=HOSTS, on="ssh", image="", instance="", gpus=1))
    (asked.folder / record.RUNS).write_text('{"round": "x"}\n')
    with pytest.raises(ConfigError) as caught:
        search.find(asked, print)
    assert caught.value.where.endswith("runs.jsonl:1")


def left(mark: Path) -> list[str]:
    """List the processes whose command or environment names a folder."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            text = (entry / "cmdline").read_bytes() + (entry / "environ").read_bytes()
        except OSError:
            continue
        if str(mark).encode() in text and int(entry.name) != os.getpid():
            found.append((entry / "cmdline").read_bytes().replace(b"\0", b" ").decode()[:200])
    return found


@pytest.mark.parametrize("ignored", [False, True], ids=["foreground", "background"])
def test_an_interrupt_during_a_hang_ends_everything(
    folder: Path, tmp_path: Path, ignored: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a shell starts in the background ignores SIGINT, and so do its children, whatever they trap."""
    monkeypatch.setattr(execute, "AGAIN_SECONDS", 0.1 if ignored else 60)  # in the foreground SIGINT must be enough
    monkeypatch.setattr(execute, "KILL_SECONDS", 600)
    for host in HOSTS:
        (folder / f"fault.{host}").write_text("hang\n")
    (tmp_path / "hostfile").write_text("\n".join(HOSTS) + "\n")
    command = ["gate", "--find", "--on", "ssh", "--gpus", "1"]
    command += ["--hosts", str(tmp_path / "hostfile"), "--folder", str(tmp_path / "runs")]
    begun = re.compile(r"^round 1")
    child = Forked(command, ROOT, lambda: signal.signal(signal.SIGINT, signal.SIG_IGN) if ignored else None)
    while not begun.match(line := child.stderr.readline()):
        assert line, "it ended"
    logs = tmp_path / "runs"
    while not any("all_reduce begins" in log.read_text() for log in logs.glob("r01-*.log")):
        assert child.poll() is None
        time.sleep(0.01)
    child.send_signal(signal.SIGTERM if ignored else signal.SIGINT)
    rest = child.communicate()[1]
    assert child.returncode == 130, rest
    assert left(folder) == []


def test_a_program_that_ignores_every_signal_is_killed_at_last(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, seconds in (("POLL", 0.02), ("AGAIN", 0.1), ("KILL", 0.3)):
        monkeypatch.setattr(execute, f"{name}_SECONDS", seconds)
    text = f"trap '' INT TERM; set -m; MARK={tmp_path} sleep 1001 & MARK={tmp_path} sleep 1002"
    jobs = [Job([Step(text, tmp_path / "log", 0.5)]), Job([Step("echo done", tmp_path / "other", 30)])]
    side_by_side(jobs, 2)
    assert [job.codes for job in jobs] == [[124], [0]]
    assert left(tmp_path) == []
