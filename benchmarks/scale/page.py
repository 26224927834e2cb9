"""docs/scale.md: the tables between its marks are those of docs/scale.json."""

import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from scale.settings import Limit, Settings

MARK = "<!-- {name}: written by benchmarks/scale/measure.py -->"
Row = Mapping[str, Any]


def table(heads: Iterable[str], rows: Iterable[Iterable[object]]) -> str:
    heads = list(heads)
    lines = [heads, ["---"] * len(heads), *([str(cell) for cell in row] for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def decisions(rows: list[Row]) -> str:
    heads = (
        "images",
        "keys, s",
        "`plan`, nothing changed",
        "decisions/s",
        "calls",
        "`plan`, nothing published",
        "MB held",
    )
    return table(
        (*heads, "a plain registry, one place"),
        (
            (
                row["images"],
                row["keys_seconds"],
                f"{row['nothing changed']['seconds']} s",
                row["nothing changed"]["decisions_per_second"],
                sum(row["nothing changed"]["calls"].values()),
                f"{row['nothing published']['seconds']} s",
                row["nothing changed"]["megabytes"],
                f"{row['plain registry']['seconds']} s, {row['plain registry']['requests']} requests",
            )
            for row in rows
        ),
    )


def changes(rows: list[Row]) -> str:
    heads = (
        "images",
        "what changed",
        "builds",
        "minutes, cold, added up",
        "USD of CodeBuild",
        "minutes, one warm engine",
    )
    names = ("change", "builds", "cold_minutes", "build_usd", "warm_minutes", "gigabytes_sent")
    heads_of = (*heads, "GB sent to 5 regions")
    return table(heads_of, ((row["images"], *(one[name] for name in names)) for row in rows for one in row["changes"]))


def bytes_(rows: list[Row]) -> str:
    heads = ("images", "GB, if none shared a layer", "as ECR stores them", "with mounts across repositories")
    names = ("images", "apart_gigabytes", "stored_gigabytes", "mounted_gigabytes", "month_usd")
    return table((*heads, "USD a month, 5 regions"), ((row[name] for name in names) for row in rows))


def bake(rows: list[Row]) -> str:
    heads = ("images", "`render`", "bake files", "`bake --print`, each", "all as one file", "its `bake --print`")
    return table(
        heads,
        (
            (
                row["images"],
                f"{one['render_seconds']} s, {one['text_megabytes']} MB of text",
                f"{one['bytes'] / 1000:.0f} kB",
                f"{one['print_each_seconds']} s" if "print_each_seconds" in one else one["buildx"],
                f"{one['together_bytes'] / 1000:.0f} kB" if "together_bytes" in one else "",
                f"{one['print_together_seconds']} s" if "print_together_seconds" in one else "",
            )
            for row in rows
            for one in [row["bake"]]
        ),
    )


def numbers(row: Row) -> dict[str, float]:
    """What limits are compared with: of the change that all images feel."""
    worst = max(row["changes"], key=lambda one: one["builds"])
    return {
        "builds": worst["builds"],
        "warm_minutes": worst["warm_minutes"],
        "stored_gigabytes": row["stored_gigabytes"],
        "plain_seconds": row["plain registry"]["seconds"],
        "put_image_seconds": 2 * worst["builds"] / 10,  # a digest, and its tag
    }


def first_beyond(limit: Limit, rows: list[Row]) -> str:
    for row in rows:
        if (value := numbers(row)[limit.of]) > limit.most:
            return f"{row['images']} ({value:g})"
    return f"not at {rows[-1]['images']} ({numbers(rows[-1])[limit.of]:g})"


def limits(rows: list[Row], known: Settings) -> str:
    found = [(first_beyond(limit, rows), limit) for limit in known.limits]
    found.sort(key=lambda pair: int(re.sub("^not at ", "9", pair[0]).split()[0]))
    heads = ("first beyond it, at images", "what ends", "at", "what takes over", "source")
    return table(heads, ((where, row.id, f"{row.most:g}", row.instead, row.source) for where, row in found))


def tables(result: Row, known: Settings) -> Iterator[tuple[str, str]]:
    rows = result["rows"]
    yield (
        "when",
        f"Measured on {result['day']}: {result['machine']}; other work ran beside it, so seconds are upper bounds.",
    )
    yield "decisions", decisions(rows)
    yield "changes", changes(rows)
    yield "bytes", bytes_(rows)
    yield "bake", bake(rows)
    yield "limits", limits(rows, known)


def filled(text: str, result: Row, known: Settings) -> str:
    """The page with these results. Raises ValueError where it lacks a mark."""
    for name, content in tables(result, known):
        mark = MARK.format(name=name)
        head, found, tail = text.partition(mark)
        if not found:
            raise ValueError(f"docs/scale.md has no {mark}")
        rest = re.sub(r"\A\n(?:[^\n<#][^\n]*\n)*", "", tail)
        text = f"{head}{mark}\n{content}\n{rest}" if rest.startswith("\n") else f"{head}{mark}\n{content}\n\n{rest}"
    return text


def write(path: Path, result: Row, known: Settings) -> None:
    path.write_text(filled(path.read_text(), result, known))
