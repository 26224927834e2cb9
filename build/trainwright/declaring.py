"""Locate declarations in the matrix: which of its tables decides a pin, and on which line."""

import re
from collections.abc import Mapping

import tomli

from trainwright.config import line_of
from trainwright.model import Matrix, Variant

MATRIX = "dockerfiles/matrix.toml"
BASES = "dockerfiles/bases.toml"


def declared(matrix: Matrix, variant: Variant, name: str, text: str) -> tuple[str, str]:
    """Return the table of the matrix that decides a pin, and its file:line. `text` is that of matrix.toml."""
    what, path, _ = last_word(matrix, variant, name)
    lines, start = text.splitlines(), line_of(text, path) - 1
    key = re.compile(rf"""(^|[\s,{{.]|["']){re.escape(name)}["']?\s*=""")
    line = next((n for n in range(start, len(lines)) if key.search(lines[n].split("#")[0])), start)
    return what, f"{MATRIX}:{line + 1}"


def written(matrix: Matrix, variant: Variant, name: str) -> str:
    """Return a pin as written in the matrix: `name = "text"`."""
    return f'{name} = "{last_word(matrix, variant, name)[2]}"'


def in_row(framework: str, row: int, text: str, *path: str) -> str:
    """Return file:line of a key in a row of the matrix; `path` are the keys, the last one is searched for."""
    return f"{MATRIX}:{line_of(text, ('frameworks', framework, 'rows', row, *path))}"


def in_base(bases: str, name: str, key: str) -> str:
    """Return file:line of a key of a base, or of the base that it is like. `bases` is the text of bases.toml."""
    said = tomli.loads(bases)["bases"]
    owner = name if key in said[name] else said[name].get("like", name)
    return f"{BASES}:{line_of(bases, ('bases', owner, key))}"


def edit(where: str, remedy: str) -> str:
    """Return the command that opens file:line, with the remedy as a comment."""
    file, _, line = where.partition(":")
    return f"$EDITOR +{line} {file}   # {remedy}"


def last_word(matrix: Matrix, variant: Variant, name: str) -> tuple[str, tuple[int | str, ...], str]:
    """Return the table that decides a pin, its path in matrix.toml, and the pin as written there."""
    framework, row = variant.framework, variant.row
    of_row = matrix.frameworks[framework].rows[row].pins
    tables: list[tuple[str, Mapping[str, str], tuple[int | str, ...]]] = [
        ("devel", matrix.devel.pins if variant.devel else {}, ("devel",)),
        (f"row {row + 1} of {framework}", of_row, ("frameworks", framework, "rows", row)),
        (f"target {variant.target}", matrix.targets[variant.target].pins, ("targets", variant.target)),
        ("common", matrix.common.pins, ("common",)),
    ]
    return next((what, path, pins[name]) for what, pins, path in tables if name in pins)
