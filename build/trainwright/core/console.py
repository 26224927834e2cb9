"""Print for people: tables, progress, errors, with colour only on a terminal; and JSON for machines."""

import json
import os
import re
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from trainwright.core.errors import Refusals, TrainwrightError, printable

if TYPE_CHECKING:
    from trainwright.build.state import Done

NARROW = 3  # characters: the narrowest readable column
ROOM = 40  # characters that sentences in the last column should have, before other columns are left out for them
DIGEST = re.compile(r"(sha256:[0-9a-f]{12})[0-9a-f]{52}")


def show(rows: list[dict[str, Any]], as_json: bool, spare: Sequence[str] = ()) -> None:
    """Print a list as a table, or as a JSON array. An empty table prints nothing: the caller explains it.

    `spare` are columns that a narrow terminal leaves out, the first one first, so that the last column is readable.
    """
    if as_json:
        print(json.dumps(rows, indent=2))
        return
    if not rows:
        return
    names = list(rows[0])
    if not (sys.stdout.isatty() or os.environ.get("FORCE_COLOR")):
        print("\n".join(_lines([names, *([_cell(row.get(name)) for name in names] for row in rows)])))
        return
    from rich.console import Console
    from rich.table import Table

    console = Console(highlight=False, markup=False)
    width = console.width  # before it is widened for a table that does not fit
    names, less = _fitting(rows, names, spare, width)
    table = Table(box=None, pad_edge=False, header_style="bold")
    # Because the first column identifies the row and is copied, it is never folded. The others fold, down to NARROW.
    whole = max(len(line) for row in rows for line in [names[0], *_cell(row.get(names[0])).splitlines()])
    for number, name in enumerate(names):
        table.add_column(name, overflow="fold", no_wrap=number == 0, min_width=NARROW if number else whole)
    for row in rows:
        table.add_row(*(_cell(row.get(name)) for name in names))
    console.size = (max(console.width, whole + len(names[1:]) * (NARROW + 1)), console.height)
    with console.capture() as shown:
        console.print(table)
    print("\n".join(line.rstrip() for line in shown.get().splitlines()))
    if less:
        print(f"left out on {width} columns: {', '.join(less)}; --json has all", file=sys.stderr)


def _fitting(
    rows: list[dict[str, Any]], names: list[str], spare: Sequence[str], width: int
) -> tuple[list[str], list[str]]:
    """Return the columns to show, and those left out so that the last one has ROOM, or its longest cell."""
    wide = {
        name: max(len(line) for row in rows for line in [name, *_cell(row.get(name)).splitlines()]) for name in names
    }
    less = list[str]()
    for name in spare:
        if width - sum(wide[one] + 2 for one in names[:-1] if one not in less) >= min(ROOM, wide[names[-1]]):
            break
        less.append(name)
    return [name for name in names if name not in less], less


def brief(text: str) -> str:
    """Shorten the digests in a sentence to what tells them apart."""
    return DIGEST.sub(r"\1...", text)


def _lines(rows: list[list[str]]) -> Iterator[str]:
    """Lay a table out for a pipe, which has no width: a row is one line, unless a cell has several."""
    columns = [[line for cell in column for line in cell.splitlines()] for column in zip(*rows, strict=True)]
    widths = [max([NARROW if number else 0, *map(len, lines)]) for number, lines in enumerate(columns)]
    for row in rows:
        for parts in zip_longest(*(cell.splitlines() or [""] for cell in row), fillvalue=""):
            yield "  ".join(part.ljust(width) for part, width in zip(parts, widths, strict=True)).rstrip()


def data(value: Any) -> None:
    """Print JSON for machines to standard output."""
    print(json.dumps(value, indent=2))


def _cell(value: Any) -> str:
    if value is None or value is False:
        return ""
    return "yes" if value is True else printable(str(value))


def human(size: float | None) -> str:
    """Format bytes for people, in powers of ten."""
    if size is None:
        return ""
    return f"{size / 1e9:.2f} GB" if size >= 1e9 else f"{size / 1e6:.1f} MB"


def final(done: "list[Done]", as_json: bool) -> None:
    """Print the result of a long command: image, key, size, time, digest, reason."""
    if as_json:
        rows = [
            {**row.image.to_json(), "action": row.action, "reason": row.why, "seconds": round(row.seconds, 2)}
            | ({"steps": row.steps} if row.steps else {})
            for row in done
        ]
        print(json.dumps(rows, indent=2))
        return
    show(
        [
            {
                "id": row.image.id,
                "did": row.action,
                "key": row.image.key[:12],
                "size": human(row.image.size),
                "time": f"{row.seconds:.1f} s",
                "digest": row.image.digest or "(not pushed)",
                "drift": str(len(row.image.drift)) if row.image.drift else "none",
                "why": row.why,
            }
            for row in done
        ],
        as_json=False,
    )
    for row in filter(lambda row: row.steps, done):
        print("\n".join([f"\n{row.image.id}", *(f"{number:4}. {step}" for number, step in enumerate(row.steps, 1))]))
    for row in done:
        if row.image.uri and row.action in ("skip", "pushed"):  # the registry has it: it was just queried
            print(f"\n{row.image.uri}")


def _coloured() -> bool:
    return sys.stderr.isatty() and not os.environ.get("NO_COLOR")


def pasteable(text: str) -> str:
    """Prefix our commands with .venv/bin, where `make` installs them, if they are not on PATH."""
    if shutil.which("trainwright"):
        return text
    return re.sub(r"(?m)(?:^|(?<=&& ))(?=trainwright )", ".venv/bin/", text)


def complain(error: TrainwrightError, as_json: bool) -> None:
    """Print one error: what, where, why, and the command that fixes it."""
    if as_json:
        print(json.dumps(error.as_dict()), file=sys.stderr)
        return
    bold, red, off = ("\033[1m", "\033[31m", "\033[0m") if _coloured() else ("", "", "")
    print(f"{red}error:{off} {bold}{error.what}{off}", file=sys.stderr)
    if isinstance(error, Refusals):
        for row in error.rows:
            complain(row, as_json)
        return
    for name, text in (("where", error.where), ("why", error.why), ("fix", pasteable(error.fix))):
        if text:
            indented = text.strip().replace("\n", "\n         ")
            print(f"  {name + ':':<6} {indented}", file=sys.stderr)


@contextmanager
def progress(total: int = 0) -> Iterator[tuple[Callable[[str], None], Callable[[int], None]]]:
    """Yield a function for a line and a function for bytes; the bar is drawn only on a terminal and only for bytes."""

    def say(line: str) -> None:
        print(line, file=sys.stderr, flush=True)

    if not total or not sys.stderr.isatty():
        done = 0

        def count(size: int) -> None:
            """Print a line after each quarter of the download."""
            nonlocal done
            before, done = done, done + size
            if total and 4 * before // total != 4 * done // total:
                say(f"fetched {human(done)} of {human(total)}")

        if total:
            say(f"fetching {human(total)}")
        yield say, count
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

    columns = (TextColumn("fetching"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=total)

        def advance(count: int) -> None:
            bar.advance(task, count)
            if bar.tasks[0].completed >= total:
                bar.stop()

        yield say, advance


@contextmanager
def alone(root: Path, no_wait: bool = False, reads: bool = False) -> Iterator[None]:
    """Lock the checkout for one writing command at a time; a command that only `reads` does not wait.

    Files of killed commands are removed first, because they would appear as uncommitted in git.
    """
    from trainwright.core.files import only_one, tidy
    from trainwright.core.project import home
    from trainwright.core.project_files import WRITTEN

    if reads:
        yield
        return
    root = home(root)
    with only_one(root / "out", lambda line: print(line, file=sys.stderr, flush=True), wait=not no_wait):
        for folder in (*(root / "dockerfiles" / name for name in WRITTEN), *(root / "out").glob("*/")):
            tidy(folder)
        yield


COLOURS = (36, 33, 35, 32, 34)  # of a terminal, one host after the other
BOLD, RED = 1, 31
COLOUR = re.compile(r"(\x1b\[[0-9;]{0,40}m)")  # all that a log may tell a terminal


def log_printer(to: TextIO) -> Callable[[str], None]:
    """Return a function that prints `name | text`; on a terminal each host has a colour, and the watch stands out."""
    coloured = to.isatty() and not os.environ.get("NO_COLOR")

    def say(line: str) -> None:
        line = "".join(part if COLOUR.fullmatch(part) else printable(part) for part in COLOUR.split(line))
        name, bar, text = line.partition(" | ")
        if coloured and bar:
            number = name.strip().rpartition("-")[2]
            colour = (
                COLOURS[int(number) % len(COLOURS)]
                if re.fullmatch("[0-9]{1,9}", number)
                else RED
                if "watch" in name
                else BOLD
            )
            after = "\033[0m" if "\033[" in text else ""  # a host's own colours end with its line
            line = f"\033[{colour}m{name} |\033[0m {text}{after}"
        to.write(f"{line}\n")
        to.flush()

    return say
