"""Where the matrix says what: which of its tables has the last word on a pin, and on which line."""

import re
from collections.abc import Mapping

from trainwright.config import line_of
from trainwright.model import Matrix, Variant

MATRIX = "dockerfiles/matrix.toml"


def declared(matrix: Matrix, variant: Variant, name: str, text: str) -> tuple[str, str]:
    """Which table of the matrix has the last word on a pin, and its file:line. `text` is that of matrix.toml."""
    framework, row = variant.framework, variant.row
    of_row = matrix.frameworks[framework].rows[row].pins
    tables: list[tuple[str, Mapping[str, str], tuple[int | str, ...]]] = [
        ("devel", matrix.devel.pins if variant.devel else {}, ("devel",)),
        (f"target {variant.target}", matrix.targets[variant.target].pins, ("targets", variant.target)),
        (f"row {row + 1} of {framework}", of_row, ("frameworks", framework, "rows", row)),
        ("common", matrix.common.pins, ("common",)),
    ]
    what, path = next((what, path) for what, pins, path in tables if name in pins)
    lines, start = text.splitlines(), line_of(text, path) - 1
    key = re.compile(rf"""(^|[\s,{{.]|["']){re.escape(name)}["']?\s*=""")
    line = next((n for n in range(start, len(lines)) if key.search(lines[n].split("#")[0])), start)
    return what, f"{MATRIX}:{line + 1}"
