"""Write verdicts into files: an HTML page, a PNG picture, JUnit XML."""

from collections.abc import Sequence
from pathlib import Path

from trainwright import charts, files, judge_pages, junit, pictures
from trainwright.errors import EnvironmentProblem
from trainwright.judge import Verdict
from trainwright.witnesses import Case


def write(found: Sequence[tuple[Verdict, Case]], html: Path | None, png: Path | None, xml: Path | None) -> None:
    """Write the requested files, each completely or not at all. Raises ConfigError, EnvironmentProblem."""
    drawn = [(verdict, charts.panels(case)) for verdict, case in found] if html or png else []
    wanted: list[tuple[Path, str | bytes]] = []
    if html:
        wanted.append((html, judge_pages.html(drawn)))
    if png:
        wanted.append((png, pictures.png(drawn)))
    if xml:
        wanted.append((xml, junit.xml([verdict for verdict, _ in found])))
    for path, content in wanted:
        try:
            files.write(path, content)
        except OSError as error:
            raise EnvironmentProblem("the report cannot be written", where=str(path), why=str(error.strerror)) from None
