"""Draw verdicts as one PNG for chats and tickets: the charts of each log, and its checks beside them."""

import textwrap
import warnings
from collections.abc import Sequence
from io import BytesIO
from typing import TYPE_CHECKING

from trainwright.core.errors import ConfigError, EnvironmentProblem
from trainwright.gate.judge import Verdict
from trainwright.gate.reports import charts
from trainwright.gate.reports.charts import Panel
from trainwright.gate.reports.html import ORDER, SIGNS, VERDICTS
from trainwright.gate.reports.junit import printable

if TYPE_CHECKING:
    from matplotlib.axes import Axes

COLOURS = {"pass": "#17703a", "fail": "#a32018", "not established": "#7a5600", "not applicable": "#5c6570"}
COLOURS |= {"incomplete": "#7a5600", "ungraded": "#7a5600"}
SIDES = (("#0b57d0", "#0b57d0"), ("#b8480a", "white"))  # colours of line and edge, and of the marker's fill
QUIET, INK = "#5c6570", "#1a1d21"
WIDTH, HEIGHT, DPI = 13.0, 4.6, 110  # inches per row, and pixels per inch
MOST_ROWS = 120  # higher pictures exceed what viewers open
LINES, CHARACTERS = 25, 84  # of the text beside a chart
MOST_NAME = 58  # last characters of a file's name


def png(found: Sequence[tuple[Verdict, Sequence[Panel]]]) -> bytes:
    """Return the picture. Raises ConfigError for more charts than one picture can show, EnvironmentProblem
    without matplotlib.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise EnvironmentProblem(
            "--png requires matplotlib, which is not installed",
            why="only this option draws with it; --html has the same charts as SVG",
            fix=".venv/bin/python -m pip install -r requirements-png.lock   # or: pip install 'trainwright[png]'",
        ) from None

    rows = [(verdict, panel, n == 0) for verdict, panels in found for n, panel in enumerate(panels or [None])]
    if len(rows) > MOST_ROWS:
        raise ConfigError(
            f"{len(rows)} charts are too many for one PNG", where="--png", fix="use --html, or give fewer logs"
        )
    figure = Figure(figsize=(WIDTH, HEIGHT * len(rows)), dpi=DPI, facecolor="white")
    grid = figure.add_gridspec(
        len(rows),
        2,
        width_ratios=[1, 1.05],
        wspace=0.06,
        hspace=0.42,
        left=0.06,
        right=0.99,
        top=1 - 0.62 / (HEIGHT * len(rows)),
        bottom=0.62 / (HEIGHT * len(rows)),
    )
    for number, (verdict, panel, first) in enumerate(rows):
        axes, text = figure.add_subplot(grid[number, 0]), figure.add_subplot(grid[number, 1])
        text.set_axis_off()
        if panel:
            _chart(axes, panel)
        else:
            axes.set_axis_off()
            axes.text(0.02, 0.9, "no table with rows: there is nothing to draw", color=QUIET, fontsize=10)
        if first:
            _words(text, verdict)
    held = BytesIO()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing")  # the font lacks letters of a log: it shows boxes
        figure.savefig(held, format="png", metadata={"Software": None})
    return held.getvalue()


def _chart(axes: "Axes", panel: Panel) -> None:
    ticks, sizes = charts.size_ticks(panel.sizes), panel.sizes
    for curve, style, name in zip(panel.baseline, (":", "--"), charts.SIDES, strict=True):
        if curve:
            label = f"baseline {panel.baseline_name}, {name}"
            axes.plot(*zip(*curve, strict=True), style, color="#7b3fa0", linewidth=1.4, label=label)
    for curve, (line, fill), name in zip(panel.sides, SIDES, charts.SIDES, strict=True):
        across, up = zip(*curve, strict=True)
        axes.plot(across, up, "o-", color=line, markerfacecolor=fill, linewidth=1.8, markersize=4.5, label=name)
    axes.set_xscale("log", base=2)
    if panel.ceiling:
        label = f"ceiling {panel.ceiling.busbw:g} GB/s"
        axes.axhline(panel.ceiling.busbw, color=QUIET, linestyle=(0, (6, 3)), linewidth=1.4, label=label)
    for level in panel.floors:
        label = f"floor {level.busbw:g} GB/s from {charts.size_text(level.start)}"
        axes.plot([level.start, sizes[-1] * 1.15], [level.busbw] * 2, color=COLOURS["fail"], linewidth=1.8, label=label)
        axes.fill_between([level.start, sizes[-1] * 1.15], level.busbw, color=COLOURS["fail"], alpha=0.1, linewidth=0)
    axes.set_xticks(ticks, [charts.size_text(size) for size in ticks])
    axes.set_xticks([], minor=True)
    axes.set_xlim(sizes[0] / 1.15, sizes[-1] * 1.15)
    upright = charts.busbw_ticks(panel.highest)
    axes.set_yticks(upright, [f"{value:g}" for value in upright])
    axes.set_ylim(0, upright[-1])
    axes.set_ylabel("busbw, GB/s", color=QUIET)
    axes.grid(axis="y", color="#dde1e6", linewidth=0.8)
    axes.set_axisbelow(True)
    axes.tick_params(colors=QUIET, labelsize=8.5, length=3)
    for edge in ("top", "right"):
        axes.spines[edge].set_visible(False)
    title = f"{panel.title}   {panel.about}"
    axes.set_title(title, loc="left", fontsize=10, color=INK, parse_math=False)
    axes.legend(fontsize=8, frameon=False, loc="upper left", bbox_to_anchor=(-0.02, -0.07), ncols=3)
    if panel.absent:
        axes.text(0.99, 0.02, panel.absent, color=QUIET, fontsize=8, ha="right", transform=axes.transAxes)


def _end(name: str) -> str:
    return name if len(name) <= MOST_NAME else f"…{name[-MOST_NAME:]}"


def _words(axes: "Axes", verdict: Verdict) -> None:
    """Write the verdict, its cause, and every check with its evidence, most severe first."""
    colour = COLOURS[verdict.verdict]
    axes.set_title(
        f"{VERDICTS[verdict.verdict]} {verdict.verdict}   {_end(printable(verdict.file))}",
        loc="left",
        fontsize=10,
        fontweight="bold",
        color=colour,
        parse_math=False,
    )
    lines = [
        (INK, text) for text in textwrap.wrap(printable(f"{verdict.cause}: {verdict.why}"), CHARACTERS) if verdict.cause
    ]
    for check in sorted(verdict.checks, key=lambda one: ORDER.index(one.state)):
        words = f"{SIGNS[check.state]} {check.name}: {check.state}; {check.evidence}"
        pieces = textwrap.wrap(printable(words), CHARACTERS, subsequent_indent="    ", max_lines=3, placeholder=" …")
        lines += [(COLOURS[check.state], piece) for piece in pieces]
    if len(lines) > LINES:
        lines[LINES - 1 :] = [(INK, f"… {len(lines) - LINES + 1} more lines: --html has all of them")]
    for number, (shade, text) in enumerate(lines):
        height = 0.985 - number / LINES
        axes.text(0, height, text, color=shade, fontsize=8.2, va="top", parse_math=False, transform=axes.transAxes)
