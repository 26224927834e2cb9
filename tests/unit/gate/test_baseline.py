"""Test baselines: only logs that pass are recorded, and a log that is slower by more than the tolerance fails."""

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
from logs import complete
from typer.testing import CliRunner

from trainwright.commands import register
from trainwright.commands.options import app
from trainwright.core.errors import ConfigError, NotRunError
from trainwright.gate import baseline, measure, read
from trainwright.gate.case import Declared
from trainwright.gate.floors import load_floors
from trainwright.gate.judge import Verdict
from trainwright.gate.reports import charts

ROOT = Path(__file__).parents[3]
P4D: dict[str, Any] = {"instance": "p4d.24xlarge", "nodes": 2}
DIGEST = "sha256:" + "a" * 64
TOLERANCE = load_floors(ROOT).tolerance
register(["baseline"])
register(["judge"])


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make a checkout with a log that passes, and the log's baseline."""
    ignored = shutil.ignore_patterns("baselines", "layers", "locks", "proofs")
    shutil.copytree(ROOT / "dockerfiles", tmp_path / "dockerfiles", ignore=ignored)
    (tmp_path / "good.log").write_text(f"gate: image example.invalid/x@{DIGEST}\n{complete()}")
    monkeypatch.chdir(tmp_path)
    measure.record(tmp_path, "p4d", ["good.log"], Declared(**P4D), unproved=False)
    return tmp_path


def slowed(root: Path, size: int, factor: float) -> str:
    """Return the log with one slower size in one column; its time and algbw match, the average does not."""
    text = complete()
    row = re.search(rf"^.* {size} +\d+ +float +sum.*$", text, re.MULTILINE)
    assert row
    words = row[0].split()
    time = float(words[-4]) / factor
    algbw = size / time / 1000
    words[-4:-1] = [f"{time:.2f}", f"{algbw:.2f}", f"{algbw * 15 / 8:.2f}"]
    (root / "slow.log").write_text(text.replace(row[0], "  ".join(words)))
    return "slow.log"


def held(root: Path, log: str, tolerance: float | None = None, **declared: Any) -> tuple[str, str]:
    """Return state and evidence of the check against the baseline."""
    known = baseline.read(root, "p4d", tolerance)
    (found,) = read.verdicts(root, [log], Declared(**(declared or P4D)), known)
    (check,) = [check for check in found.checks if check.name == "baseline"]
    return check.state, check.evidence


def test_what_was_recorded_is_in_the_file(root: Path) -> None:
    found = baseline.read(root, "p4d")
    assert (found.instance, found.nodes, found.digest, found.proved) == ("p4d.24xlarge", 2, DIGEST, True)
    assert list(found.logs) == ["good.log"]
    largest = found.points[-1]
    assert (largest.collective, largest.algorithm, largest.size) == ("all_reduce", "any", 4294967296)
    assert (largest.out_of_place, largest.in_place) == (43.81, 43.72)
    assert baseline.names(root) == ["p4d"]


def test_the_median_of_several_logs_is_recorded(root: Path) -> None:
    slowed(root, 4294967296, 0.9)
    shutil.copy(root / "slow.log", root / "slow2.log")
    found = measure.record(root, "three", ["slow.log", "slow2.log"], Declared(**P4D), unproved=True)
    assert found.points[-1].in_place == pytest.approx(0.9 * 43.72, abs=0.02)
    assert not found.proved


def test_the_same_log_is_as_fast_as_itself(root: Path) -> None:
    assert held(root, "good.log")[0] == "pass"


@pytest.mark.parametrize(
    ("size", "loss", "state"),
    [
        (1 << 30, TOLERANCE + 0.01, "fail"),
        (1 << 30, TOLERANCE - 0.01, "pass"),
        (4 << 30, TOLERANCE + 0.01, "fail"),
        (1 << 20, 0.5, "pass"),  # a small message
        (512 << 20, 0.5, "pass"),  # below the size that the floor of p4d names
    ],
)
def test_a_large_message_may_not_be_slower(root: Path, size: int, loss: float, state: str) -> None:
    said, evidence = held(root, slowed(root, size, 1 - loss))
    assert said == state, evidence
    if state == "fail":
        assert f"at {size} bytes, -{loss:.1%}"[:-2] in evidence


def test_the_tolerance_can_be_said(root: Path) -> None:
    log = slowed(root, 1 << 30, 0.9)
    assert held(root, log)[0] == "fail"
    assert held(root, log, 0.12)[0] == "pass"


def test_a_baseline_of_other_hardware_establishes_nothing(root: Path) -> None:
    assert held(root, "good.log", instance="p4de.24xlarge", nodes=2)[0] == "not established"
    assert held(root, "good.log", world_size=16)[0] == "not established"
    other = root / "other.log"
    other.write_text(complete().replace("all_reduce", "reduce_scatter"))
    known = baseline.read(root, "p4d")
    said = Declared(**P4D, collective="alltoall")
    (found,) = read.verdicts(root, [str(other)], said, known)
    assert state(found) == "not established"
    lost = "\n".join(line for line in complete().splitlines() if " 2147483648  " not in line)
    other.write_text(lost)
    assert held(root, str(other)) == (
        "not established",
        "all_reduce: p4d has 2147483648 bytes, the log does not",
    )


def state(found: Verdict) -> str:
    return next(check.state for check in found.checks if check.name == "baseline")


def test_without_one_there_is_no_such_check(root: Path) -> None:
    (found,) = read.verdicts(root, ["good.log"], Declared(**P4D))
    assert "baseline" not in {check.name for check in found.checks}


def test_it_is_drawn(root: Path) -> None:
    ((_, case),) = read.examined(root, ["good.log"], Declared(**P4D), baseline.read(root, "p4d"))
    (panel,) = charts.panels(case)
    for then, now in zip(panel.baseline, panel.sides, strict=True):
        assert then == tuple(point for point in now if point[0] >= 512)  # below it is printed as 0.00
    assert panel.baseline_name == "p4d"


def test_what_does_not_pass_is_not_recorded(root: Path) -> None:
    log = slowed(root, 1 << 30, 0.5)
    with pytest.raises(NotRunError):
        measure.record(root, "new", [log], Declared(**P4D), unproved=False)
    with pytest.raises(ConfigError, match="instance type"):
        measure.record(root, "new", ["good.log"], Declared(), unproved=False)
    with pytest.raises(ConfigError, match="not a baseline name"):
        measure.record(root, "../new", ["good.log"], Declared(**P4D), unproved=False)
    assert baseline.names(root) == ["p4d"]


def test_the_commands(root: Path) -> None:
    options = ["--instance", "p4d.24xlarge", "--nodes", "2"]
    run = CliRunner()
    assert run.invoke(app, ["baseline", "record", "again", "good.log", *options]).exit_code == 0
    rows = json.loads(run.invoke(app, ["baseline", "list", "--json"]).stdout)
    assert [(row["name"], row["collectives"]) for row in rows] == [("again", "all_reduce"), ("p4d", "all_reduce")]
    assert run.invoke(app, ["judge", "good.log", *options, "--baseline", "again"]).exit_code == 0
    failed = run.invoke(app, ["judge", slowed(root, 1 << 30, 0.9), *options, "--baseline", "again", "--json"])
    assert failed.exit_code != 0
    (verdict,) = json.loads(failed.stdout)
    assert {"name": "baseline", "state": "fail"}.items() <= verdict["checks"][-1].items()
    unknown = run.invoke(app, ["judge", "good.log", *options, "--baseline", "agian"])
    assert isinstance(unknown.exception, ConfigError)
    assert "did you mean 'again'" in unknown.exception.why


def test_a_baseline_is_replaced_only_where_that_is_said(root: Path) -> None:
    before = (root / "dockerfiles/baselines/p4d.toml").read_bytes()
    with pytest.raises(ConfigError, match=r"baseline .* exists already"):
        measure.record(root, "p4d", [slowed(root, 1 << 30, 0.9)], Declared(**P4D), unproved=True)
    assert (root / "dockerfiles/baselines/p4d.toml").read_bytes() == before
    measure.record(root, "p4d", ["slow.log"], Declared(**P4D), unproved=True, replace=True)
    words = ["judge", "good.log", "--instance", "p4d.24xlarge", "--nodes", "2", "--baseline", "p4d"]
    assert "the baseline p4d is unproved" in CliRunner().invoke(app, words).stderr
    measure.record(root, "p4d", ["good.log"], Declared(**P4D), unproved=False, replace=True)
    assert "unproved" not in CliRunner().invoke(app, words).stderr
