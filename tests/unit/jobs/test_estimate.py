"""`trainwright estimate`: the arithmetic of a ring all-reduce, worked out by hand."""

import json
from pathlib import Path
from typing import Any

import pytest

from trainwright.jobs import estimate

ROOT = Path(__file__).parents[3]
SEVEN_BILLION = ("--parameters", "7B", "--instance", "p5.48xlarge")


def asked(cli: Any, *words: str) -> dict[str, Any]:
    ended = cli(ROOT, "estimate", *words, "--json")
    assert ended.code == 0, ended.err
    found: dict[str, Any] = json.loads(ended.out)
    return found


def test_two_hosts_at_a_measured_busbw(cli: Any) -> None:
    """7e9 gradients of 2 bytes; each of 16 ranks sends 2 * 15/16 of 14 GB; at 350 GB/s these take 75 ms."""
    found = asked(cli, *SEVEN_BILLION, "--busbw", "350", "--step", "0.3")
    assert (found["ranks"], found["gradients"], found["sent"]) == (16, 14_000_000_000, 26_250_000_000)
    efa, tcp = found["ways"]
    assert (efa["over"], efa["basis"], efa["seconds"]) == ("EFA", "measured", pytest.approx(0.075))
    assert (efa["efficiency"], efa["efficiency_overlapped"]) == (pytest.approx(0.8), 1.0)
    assert tcp["over"] == "TCP"
    assert tcp["seconds"] == pytest.approx(26.25 / tcp["busbw"])
    assert tcp["efficiency_overlapped"] == pytest.approx(min(1.0, 0.3 / tcp["seconds"]))


def test_without_a_measurement_the_floor_counts_and_without_a_step_no_efficiency(cli: Any) -> None:
    efa, _ = asked(cli, *SEVEN_BILLION)["ways"]
    assert efa["basis"].startswith("the floor: ")
    assert efa["efficiency"] is None


def test_one_host_sends_over_nvlink_alone(cli: Any) -> None:
    found = asked(cli, *SEVEN_BILLION, "--nodes", "1", "--precision", "fp32")
    assert (found["ranks"], found["gradients"], [way["over"] for way in found["ways"]]) == (
        8,
        28_000_000_000,
        ["NVLink"],
    )


def test_one_rank_sends_nothing(cli: Any) -> None:
    found = asked(cli, "--parameters", "1e9", "--instance", "g5.xlarge", "--nodes", "1")
    assert (found["ranks"], found["sent"], found["ways"]) == (1, 0, [])


@pytest.mark.parametrize(
    ("text", "count"), [("7B", 7e9), ("350M", 350e6), ("7e9", 7e9), ("1_000k", 1e6), ("1.5t", 1.5e12)]
)
def test_numbers_of_parameters(text: str, count: float) -> None:
    assert estimate.parameters(text) == count


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--parameters", "seven", "--instance", "p5.48xlarge"), "'seven' is not a number of parameters"),
        (("--parameters", "0", "--instance", "p5.48xlarge"), "'0' is not a number of parameters"),
        (("--parameters", "7B", "--instance", "p5.48xlrage"), "did you mean 'p5.48xlarge'"),
        ((*SEVEN_BILLION, "--precision", "bf61"), "unknown precision 'bf61'"),
    ],
)
def test_what_is_wrong_is_one_error(cli: Any, words: tuple[str, ...], said: str) -> None:
    ended = cli(ROOT, "estimate", *words)
    assert ended.code == 2
    assert said in ended.err
