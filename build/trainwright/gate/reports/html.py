"""Render verdicts as one self-contained page: the charts are inline SVG, and only the filter needs scripts."""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jinja2 import Environment, StrictUndefined

from trainwright.gate.judge import Verdict
from trainwright.gate.reports import charts
from trainwright.gate.reports.charts import Curve, Panel
from trainwright.gate.reports.junit import printable

PAGE = Path(__file__).with_name("page.html.j2")
SIGNS = {"pass": "✓", "fail": "✗", "not established": "?", "not applicable": "–"}
VERDICTS = {"pass": "✓", "fail": "✗", "incomplete": "?", "ungraded": "?"}
ORDER = ("fail", "not established", "pass", "not applicable")
WIDTH, HEIGHT = 640, 320  # of a chart, in the units of SVG
LEFT, RIGHT, TOP, BOTTOM = 56, 16, 14, 40  # around its plot


@dataclass(frozen=True)
class Drawn:
    """A panel in the coordinates of its picture."""

    x_ticks: list[tuple[float, str]]
    y_ticks: list[tuple[float, str]]
    curves: list[tuple[str, str, list[tuple[float, float, str]]]]  # class, path, dots with their labels
    ceiling: float | None
    floors: list[tuple[float, float]]  # start, height


def drawn(panel: Panel) -> Drawn:
    sizes, ticks = panel.sizes, charts.busbw_ticks(panel.highest)
    first, last = math.log2(max(sizes[0], 1)), math.log2(max(sizes[-1], 1))
    across, up = WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM

    def x(size: int) -> float:
        share = (math.log2(max(size, 1)) - first) / (last - first) if last > first else 0.5
        return round(LEFT + share * across, 1)

    def y(busbw: float) -> float:
        return round(TOP + (1 - busbw / ticks[-1]) * up, 1)

    def curve(name: str, points: Curve, words: str) -> tuple[str, str, list[tuple[float, float, str]]]:
        dots = [(x(s), y(v), f"{words}: {v:g} GB/s at {charts.size_text(s)}") for s, v in points]
        return name, " ".join(f"{px},{py}" for px, py, _ in dots), dots

    sides = [(f"side{n}", panel.sides[n], charts.SIDES[n]) for n in (0, 1)]
    then = [(f"base{n}", panel.baseline[n], f"{panel.baseline_name}, {charts.SIDES[n]}") for n in (0, 1)]
    return Drawn(
        x_ticks=[(x(size), charts.size_text(size)) for size in charts.size_ticks(sizes)],
        y_ticks=[(y(value), f"{value:g}") for value in ticks],
        curves=[curve(*one) for one in (*then, *sides) if one[1]],
        ceiling=y(panel.ceiling.busbw) if panel.ceiling else None,
        floors=[(x(level.start), y(level.busbw)) for level in panel.floors],
    )


def html(found: Sequence[tuple[Verdict, Sequence[Panel]]]) -> str:
    """Render the page of these logs."""
    environment = Environment(undefined=StrictUndefined, autoescape=True, trim_blocks=True, lstrip_blocks=True)
    template = environment.from_string(PAGE.read_text())
    verdicts = Counter[str](verdict.verdict for verdict, _ in found)
    text = template.render(
        logs=[_log(number, verdict, panels) for number, (verdict, panels) in enumerate(found, 1)],
        counts={name: verdicts[name] for name in VERDICTS if verdicts[name]},
        verdict_signs=VERDICTS,
        signs=SIGNS,
        states=SIGNS,
        size_text=charts.size_text,
        box={"width": WIDTH, "height": HEIGHT, "left": LEFT, "right": WIDTH - RIGHT, "bottom": HEIGHT - BOTTOM},
    )
    return printable(text).rstrip() + "\n"


def _log(number: int, verdict: Verdict, panels: Sequence[Panel]) -> dict[str, Any]:
    return {
        "number": number,
        "verdict": verdict,
        "ranks": ranks(verdict),
        "checks": sorted(verdict.checks, key=lambda check: ORDER.index(check.state)),
        "counts": Counter(check.state for check in verdict.checks),
        "panels": [(panel, drawn(panel)) for panel in panels],
    }


def ranks(verdict: Verdict) -> str:
    """Return one number or interval for each table, or one for all if equal; a dash if its numbers give none."""
    texts = ["-" if low is None else str(low) if low == high else f"{low}-{high or ''}" for low, high in verdict.ranks]
    return texts[0] if len(set(texts)) == 1 else ", ".join(texts)
