"""Write verdicts: on a terminal, and into files as an HTML page, a PNG picture, JUnit XML."""

from collections.abc import Sequence
from pathlib import Path

from trainwright.core import console as core_console
from trainwright.core import files
from trainwright.core.errors import EnvironmentProblem, printable
from trainwright.gate.case import Case
from trainwright.gate.judge import Verdict
from trainwright.gate.reports import charts, junit
from trainwright.gate.reports import html as gate_html
from trainwright.gate.reports import png as gate_png
from trainwright.gate.reports.html import ORDER, SIGNS, VERDICTS, ranks

STYLES = {"pass": "green", "fail": "red", "not established": "yellow", "not applicable": "dim"}
STYLES |= {"incomplete": "yellow", "ungraded": "yellow"}
PIPE = 100_000  # columns without a terminal, so that no line is wrapped


def show(found: Sequence[Verdict]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console(highlight=False, markup=False, emoji=False)
    if not console.is_terminal:
        console.width = PIPE
    for verdict in found:
        heading = Text(f"{VERDICTS[verdict.verdict]} {verdict.verdict}", style=f"bold {STYLES[verdict.verdict]}")
        heading.append(f"  {printable(verdict.file)}", style="not bold default")
        table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
        table.add_column(no_wrap=True)
        table.add_column(no_wrap=True)
        table.add_column(overflow="fold")
        for check in sorted(verdict.checks, key=lambda one: ORDER.index(one.state)):
            style = STYLES[check.state]
            quiet = style if check.state == "not applicable" else ""
            state = Text(f"{SIGNS[check.state]} {check.state}", style=style)
            table.add_row(Text(f"  {check.name}", style=quiet), state, Text(printable(check.evidence), style=quiet))
        said = {"cause": verdict.cause or "", "what": verdict.why, "fix": verdict.fix}
        for name, text in said.items():
            if text:
                table.add_row(Text(f"  {name}", style="bold"), "", Text(text))
        for part in (heading, table):
            with console.capture() as shown:
                console.print(part, soft_wrap=part is heading)
            print("\n".join(line.rstrip() for line in shown.get().splitlines()))
        print()
    if len(found) > 1:
        core_console.show([row(verdict) for verdict in found], as_json=False)


def row(verdict: Verdict) -> dict[str, str]:
    """Return the summary of one log; its name comes last because it may be long."""
    return {
        "verdict": verdict.verdict,
        "ranks": ranks(verdict),
        "peak busbw": "" if verdict.peak_busbw is None else f"{verdict.peak_busbw:g} GB/s",
        "cause": verdict.cause or "",
        "log": verdict.file,
    }


def write(found: Sequence[tuple[Verdict, Case]], html: Path | None, png: Path | None, xml: Path | None) -> None:
    """Write the requested files, each completely or not at all. Raises ConfigError, EnvironmentProblem."""
    drawn = [(verdict, charts.panels(case)) for verdict, case in found] if html or png else []
    wanted: list[tuple[Path, str | bytes]] = []
    if html:
        wanted.append((html, gate_html.html(drawn)))
    if png:
        wanted.append((png, gate_png.png(drawn)))
    if xml:
        wanted.append((xml, junit.xml([verdict for verdict, _ in found])))
    for path, content in wanted:
        try:
            files.write(path, content)
        except OSError as error:
            raise EnvironmentProblem("the report cannot be written", where=str(path), why=str(error.strerror)) from None
