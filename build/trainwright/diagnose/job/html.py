"""Draw the ranks of a job over time as one self-contained page: an inline SVG, no scripts."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from jinja2 import Environment, StrictUndefined

from trainwright.core.errors import printable

PAGE = Path(__file__).with_name("page.html.j2")
WIDTH, LEFT, RIGHT, TOP, BOTTOM = 1100, 190, 20, 26, 34  # in the units of SVG
ROW = 18
MOST_ROWS = 128
BEFORE = 120.0  # seconds before the first failure that are drawn, of a longer job
ZONE = 900.0  # seconds: logs have local time, dumps have UTC, and zones differ by quarters of an hour
MOST_TICKS = 8
STEPS = (0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1800, 3600, 7200, 21600, 86400)
QUIET = ("silent", "never arrived")


@dataclass
class Row:
    """One rank in the picture."""

    name: str
    state: str
    y: float
    told: str
    bar: tuple[float, float] | None = None  # x of its beginning and end
    dots: list[tuple[float, str, str]] = field(default_factory=list)  # x, class, words
    end: float | None = None  # x of the mark
    words: str = ""


def html(rows: Sequence[dict[str, Any]]) -> str:
    """Render the page of these answers."""
    environment = Environment(undefined=StrictUndefined, autoescape=True, trim_blocks=True, lstrip_blocks=True)
    template = environment.from_string(PAGE.read_text())
    text = template.render(answers=[{**row, "picture": picture(row["job"]) if "job" in row else None} for row in rows])
    return printable(text).rstrip() + "\n"


def picture(job: dict[str, Any]) -> dict[str, Any] | None:
    """Return the coordinates of a job's picture; None if nothing in it has a time."""
    ranks = _shown(job)
    shift = _shift(ranks)
    spans = {rank["rank"]: _span(rank, shift) for rank in ranks}
    times = [time for span in spans.values() if span for time in span]
    if not times:
        return None
    failed = _failed(job, ranks, spans, shift)
    end = max(times)
    start = max(min(times), failed - BEFORE) if failed is not None else min(times)
    margin = max((end - start) * 0.02, 0.2)
    start, end = start - margin, end + margin

    def x(time: float) -> float:
        return round(LEFT + (min(max(time, start), end) - start) / (end - start) * (WIDTH - LEFT - RIGHT), 1)

    rows = [_row(rank, number, spans[rank["rank"]], start, shift, x) for number, rank in enumerate(ranks)]
    for row in rows:
        if row.bar is None and failed is not None and row.state in QUIET:
            row.end = x(failed)
    origin = failed if failed is not None else start
    return {
        "rows": rows,
        "failed": x(failed) if failed is not None else None,
        "ticks": [(x(time), told) for time, told in _ticks(start, end, origin)],
        "width": WIDTH,
        "left": LEFT,
        "right": WIDTH - RIGHT,
        "bottom": TOP + ROW * len(rows),
        "height": TOP + ROW * len(rows) + BOTTOM,
        "hidden": len(job["ranks"]) - len(ranks),
        "origin": "seconds since the first failure" if failed is not None else "seconds",
    }


def _shown(job: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the ranks to draw: those that failed first, then those that did not just follow."""
    ranks: list[dict[str, Any]] = job["ranks"]
    order = sorted(ranks, key=lambda rank: (rank["rank"] not in job["failed_first"], rank["state"] == "followed"))
    return sorted(order[:MOST_ROWS], key=lambda rank: rank["rank"])


def _shift(ranks: list[dict[str, Any]]) -> float:
    """Return the difference between the clock of the logs and that of the dumps."""
    pairs = [
        (rank["last_time"], rank["collectives"][-1][2]) for rank in ranks if rank["last_time"] and rank["collectives"]
    ]
    return round(median(log - dump for log, dump in pairs) / ZONE) * ZONE if pairs else 0.0


def _span(rank: dict[str, Any], shift: float) -> tuple[float, float] | None:
    times = [time - shift for time in (rank["first_time"], rank["time"], rank["last_time"]) if time]
    times += [one[2] for one in rank["collectives"]]
    if rank["waited"] and rank["collectives"]:  # it gave up this long after its last call
        times.append(rank["collectives"][-1][2] + rank["waited"])
    return (min(times), max(times)) if times else None


def _failed(job: dict[str, Any], ranks: list[dict[str, Any]], spans: dict[int, Any], shift: float) -> float | None:
    """Return when the first failure was: the last that is known of the ranks that failed first."""
    first = [rank for rank in ranks if rank["rank"] in job["failed_first"]]
    times = [rank["time"] - shift if rank["time"] else spans[rank["rank"]][1] for rank in first if spans[rank["rank"]]]
    if not times:  # nothing of these has a time: the others' last calls are the last that went well
        times = [rank["collectives"][-1][2] for rank in ranks if rank["collectives"] and job["failed_first"]]
    return min(times) if times else None


def _row(rank: dict[str, Any], number: int, span: Any, start: float, shift: float, x: Any) -> Row:
    y = TOP + ROW * number + ROW / 2
    name = f"rank {rank['rank']}" + (f" · {rank['host']}" if rank["host"] else "")
    told = f"{name}: {rank['state'] or 'nothing wrong'}" + (f". {rank['evidence']}" if rank["evidence"] else "")
    row = Row(name[:26], rank["state"] or "fine", y, told[:400])
    if span is None:
        row.words = "neither its log nor a dump has a time"
        return row
    row.bar = x(span[0]), x(span[1])
    waited = rank["waited"] and rank["collectives"]
    if rank["time"] and not waited:
        row.end = x(rank["time"] - shift)
    elif rank["collectives"] or not rank["evidence"]:  # else its log does not say when it failed
        row.end = x(span[1])
    for seq, op, time, completed in rank["collectives"]:
        if time >= start:
            state = "done" if completed else "open"
            row.dots.append((x(time), state, f"{name}: collective {seq}, {op}{'' if completed else ', not completed'}"))
    return row


def _ticks(start: float, end: float, origin: float) -> list[tuple[float, str]]:
    step = next((one for one in STEPS if (end - start) / one <= MOST_TICKS), STEPS[-1] * 7)
    first = int((start - origin) // step) + 1
    found = list[tuple[float, str]]()
    for number in range(first, first + MOST_TICKS + 2):
        if origin + number * step <= end:
            found.append((origin + number * step, f"{number * step:+g} s" if number else "0"))
    return found
