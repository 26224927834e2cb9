"""Test the page of a job: the picture's marks, times of logs and dumps on one clock, hostile text."""

import re
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from trainwright.diagnose.job.html import MOST_ROWS, html, picture

T0 = 1_795_514_867.0


def rank(number: int, state: str = "followed", calls: int = 3, **more: Any) -> dict[str, Any]:
    collectives = [[seq, "all_reduce", T0 + seq, seq < calls] for seq in range(1, calls + 1)]
    empty = {"first_time": None, "time": None, "last_time": None, "waited": 0.0, "step": None, "exit_code": None}
    said = {"host": "node-0", "cause": "", "log": "a.log", "line": 1, "evidence": ""}
    return {"rank": number, "state": state, **empty, **said, "collectives": collectives, **more}


def row(ranks: list[dict[str, Any]], first: list[int], **more: Any) -> dict[str, Any]:
    job = {"world": len(ranks), "failed_first": first, "host": "", "notes": [], "ranks": ranks}
    told = {"log": "4 ranks", "cause": "rank-late", "what": "rank 1 is late", "evidence": "", "then": "", "fix": "x"}
    return {**told, "job": job, **more}


def svg(page: str) -> ElementTree.Element:
    found = re.search(r"<svg.*?</svg>", page, re.DOTALL)
    assert found
    return ElementTree.fromstring(found[0])


def test_the_first_failure_is_marked_on_its_rank() -> None:
    ranks = [rank(0, waited=6.0), rank(1, "late", calls=2), rank(2, waited=6.0)]
    drawn = svg(html([row(ranks, [1])]))
    groups = [one for one in drawn if one.tag == "g"]
    assert [one.find("path[@class='culprit']") is not None for one in groups] == [False, True, False]
    assert [one.find("circle[@class='followed']") is not None for one in groups] == [True, False, True]
    assert len(groups[0].findall("line[@class='open']")) == 1
    assert drawn.find("line[@class='when']") is not None


def test_logs_in_local_time_and_dumps_in_utc_are_on_one_clock() -> None:
    for zone in (0, 3600, -19800):
        ranks = [rank(0, last_time=T0 + 3 + zone, time=T0 + 4 + zone), rank(1, "first", 2, last_time=T0 + 2 + zone)]
        found = picture(row(ranks, [1])["job"])
        assert found
        assert len(found["ticks"]) > 2
        bars = [one.bar for one in found["rows"]]
        assert bars[0][0] == bars[1][0]


def test_a_rank_without_any_time_is_drawn_as_silent() -> None:
    found = picture(row([rank(0, waited=6.0), rank(1, "silent", calls=0)], [1])["job"])
    assert found
    assert found["rows"][1].bar is None
    assert found["rows"][1].end == found["failed"]


def test_a_rank_whose_log_does_not_say_when_it_failed_has_no_mark() -> None:
    one = rank(0, evidence="line 7: it timed out", calls=0) | {"time": None, "first_time": 100.0, "last_time": None}
    found = picture(row([one, rank(1, "late", 2)], [1])["job"])
    assert found
    assert found["rows"][0].bar
    assert found["rows"][0].end is None


def test_a_large_job_shows_those_that_failed() -> None:
    ranks = [rank(number) for number in range(1000)]
    ranks[777] = rank(777, "silent", 2)
    found = picture(row(ranks, [777])["job"])
    assert found
    assert len(found["rows"]) == MOST_ROWS
    assert "rank 777 · node-0" in [one.name for one in found["rows"]]
    assert found["hidden"] == 1000 - MOST_ROWS


def test_text_of_logs_is_text(tmp_path: Path) -> None:
    evil = "<script>alert(1)</script>\x1b[31m\x00"
    page = html([row([rank(0, evidence=evil), rank(1, "late", 2, host=evil)], [1], evidence=evil, what=evil)])
    assert "<script" not in page
    assert "\x1b" not in page
    svg(page)


def test_without_times_there_is_a_sentence_and_no_picture() -> None:
    page = html(
        [row([rank(0, calls=0), rank(1, calls=0)], [1]), {**row([], []), "job": {"ranks": [], "failed_first": []}}]
    )
    assert "<svg" not in page
    assert page.count("No picture") == 2
