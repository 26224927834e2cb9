"""Find late ranks: of real Gloo jobs of four ranks, one of them slowed from a step on, and of times that are made up.

rank*.log: rank 3 is slowed by 30 ms from step 20 on. fr_*: rank 2 is from step 50 on, of two collectives each.
"""

import random
import re
import shutil
from pathlib import Path

import pytest
from unit.diagnose.answers import diagnosed

from trainwright.diagnose import stragglers
from trainwright.diagnose import watch as diagnose_watch
from trainwright.diagnose.stragglers import Paces

ROOT = Path(__file__).parents[3]
RECORDED = Path(__file__).parent / "stragglers"
SETTINGS = stragglers.load_settings(ROOT)
STEPS = 60


@pytest.mark.parametrize(
    ("files", "rank", "evidence"),
    [
        ("rank*.log", 3, "rank 3 takes 30 ms longer than the others, which take 42 ms, since step 20"),
        (
            "fr_*",
            2,
            "flight recorder: rank 2 comes last to the collectives in which others wait,",
        ),
    ],
)
def test_the_slowed_rank_of_a_real_job(tmp_path: Path, files: str, rank: int, evidence: str) -> None:
    for file in RECORDED.glob(files):
        shutil.copy(file, tmp_path)
    (row,) = diagnosed(tmp_path)
    assert (row["cause"], row["job"]["failed_first"]) == ("straggler", [rank])
    assert row["evidence"].startswith(evidence)
    assert [one["state"] for one in row["job"]["ranks"]].count("late") == 1
    if files == "fr_*":
        assert "since collective 101 (2026-" in row["evidence"]  # the first one of step 50


def test_the_same_job_before_it_was_slowed_has_no_late_rank(tmp_path: Path) -> None:
    for file in RECORDED.glob("rank*.log"):
        (tmp_path / file.name).write_text("".join(file.read_text().splitlines(keepends=True)[:20]))
    (row,) = diagnosed(tmp_path)
    assert row["cause"] == "unknown"


def test_watch_says_it_once_while_the_log_grows() -> None:
    one, said = diagnose_watch.load_watch(ROOT), dict[int, list[str]]()
    logs = [file.read_text().splitlines() for file in sorted(RECORDED.glob("rank*.log"))]
    for step, lines in enumerate(zip(*logs, strict=True)):
        for line in lines:
            if told := one.line("", line, float(step)):
                said[step] = told
    (step,) = said
    assert 25 < step < 45  # ten steps after step 20, looked at every ten steps
    assert re.fullmatch(r"straggler: rank 3 takes \d+ ms longer than the others' \d+ ms, since step 20", said[step][0])


FORMATS = {
    "json": '{{"rank": {rank}, "step": {step}, "compute_time": {own:.5f}, "step_time": {whole:.5f}}}',
    "json-ms": '{{"rank": {rank}, "step": {step}, "forward_time_ms": {own_ms:.3f}}}',
    "words": "step {step} loss 0.5 data: {own_ms:.3f} ms {whole:.3f} s/it",
    "deepspeed": "[Rank 0] step={step} time (ms) | fwd: {own_ms:.2f} | bwd: 3.10 | bwd_allreduce: 0.10",
}


def lines(text: str, late: int | None, since: int, by: float = 0.05, ranks: int = 4) -> list[tuple[int, str]]:
    """Return what ranks print: the whole step takes all of them as long as the slowest one."""
    draw, found = random.Random(7), []
    for step in range(STEPS):
        own = [draw.uniform(0.1, 0.11) + (by if rank == late and step >= since else 0.0) for rank in range(ranks)]
        for rank in range(ranks):
            values = {"own": own[rank], "own_ms": 1000 * own[rank], "whole": max(own), "whole_ms": 1000 * max(own)}
            found.append((rank, text.format(rank=rank, step=step, per=1 / max(own), **values)))
    return found


def fed(rows: list[tuple[int, str]]) -> list[stragglers.Late]:
    paces = Paces(SETTINGS)
    assert all(paces.feed(text, rank) for rank, text in rows)
    return paces.late()


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("since", [0, 25])
def test_times_that_end_before_the_ranks_meet_name_the_rank(form: str, since: int) -> None:
    (found,) = fed(lines(FORMATS[form], 2, since))
    assert (found.rank, found.since, found.first) == (2, since, since == 0)
    assert found.by == pytest.approx(0.05, abs=0.005)


WHOLE = {
    "tqdm": " 42%|####      | {step}/500 [00:12<00:13, {whole:.3f}s/it, loss=0.5]",
    "tqdm-fast": " 42%|####      | {step}/500 [00:12<00:13, {per:.3f}it/s]",
    "megatron": " iteration {step:8d}/     500 | samples: 8 | elapsed time per iteration (ms): {whole_ms:.1f} |",
    "step-time": "Step {step} step time: {whole:.4f} s",
}


@pytest.mark.parametrize("form", WHOLE)
def test_times_of_whole_steps_say_since_when_and_name_no_rank(form: str) -> None:
    (found,) = fed(lines(WHOLE[form], 2, 30))
    assert (found.rank, found.since) == (None, 30)
    assert "do not show which rank is late" in "".join(stragglers.said(found))


@pytest.mark.parametrize("form", [*FORMATS, *WHOLE])
def test_a_steady_job_has_no_late_rank(form: str) -> None:
    assert fed(lines({**FORMATS, **WHOLE}[form], None, 0)) == []


def test_less_than_a_fifth_of_a_step_and_a_rank_that_caught_up_are_not_late() -> None:
    assert fed(lines(FORMATS["json"], 2, 0, by=0.015)) == []
    rows = lines(FORMATS["json"], 2, 10)
    late, steady = rows[: 4 * 40], lines(FORMATS["json"], None, 0)[4 * 40 :]
    assert fed(late + steady) == []


def test_half_of_the_ranks_are_not_late() -> None:
    rows = lines(FORMATS["json"], None, 0, ranks=2)
    slow = [(rank + 2, text.replace(f'"rank": {rank}', f'"rank": {rank + 2}')) for rank, text in rows]
    doubled = [(rank, text.replace('"compute_time": 0.1', '"compute_time": 0.3')) for rank, text in slow]
    both = fed(rows + doubled)
    assert [one.rank for one in both] in ([], [2, 3], [3, 2])


def arrivals(late: int | None, since: int, by: float = 0.03) -> dict[int, dict[int, float]]:
    """Return when ranks call two collectives of each step, one right after the other."""
    draw, clock = random.Random(5), 1000.0
    found: dict[int, dict[int, float]] = {rank: {} for rank in range(4)}
    for step in range(STEPS):
        called = [clock + draw.uniform(0.1, 0.105) + (by if rank == late and step >= since else 0) for rank in range(4)]
        for rank in range(4):
            found[rank][2 * step + 1] = called[rank]
            found[rank][2 * step + 2] = max(called) + draw.uniform(0, 0.0005)
        clock = max(called)
    return found


def test_who_comes_last_is_late_and_who_comes_last_by_chance_is_not() -> None:
    found = stragglers.of_arrivals(arrivals(1, 30), SETTINGS.late)
    assert found
    assert (found.rank, found.since, found.unit) == (1, 61, "collective")
    assert stragglers.of_arrivals(arrivals(None, 0), SETTINGS.late) is None
    assert stragglers.of_arrivals(arrivals(1, 0, by=0.008), SETTINGS.late) is None
    assert stragglers.of_arrivals({0: {1: 1.0}}, SETTINGS.late) is None


def test_every_format_has_words_by_which_its_lines_are_found() -> None:
    assert len({time.line for time in SETTINGS.times}) == len(SETTINGS.times)
    assert not Paces(SETTINGS).feed("step 12 loss 0.5", 0)
    assert not Paces(SETTINGS).feed("step 12 loss 0.5 0.3 s/it", None)  # of which rank is unknown
    assert not Paces(SETTINGS).feed("0 it/s", 0)
