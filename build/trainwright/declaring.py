"""Where the matrix says what: which of its tables has the last word on a pin, and on which line."""

import re
from collections.abc import Mapping

from trainwright.config import line_of
from trainwright.matrix import Intent, expand
from trainwright.model import Variant

MATRIX = "dockerfiles/matrix.toml"


def declared(intent: Intent, variant: Variant, name: str, text: str) -> tuple[str, str]:
    """Which table of the matrix has the last word on a pin, and its file:line. `text` is that of matrix.toml."""
    matrix, framework = intent.matrix, variant.framework
    rows = matrix.frameworks[framework].rows
    row = next(n for n in range(len(rows)) if variant.id in _ids(intent, framework, n))
    tables: list[tuple[str, Mapping[str, str], tuple[int | str, ...]]] = [
        ("devel", matrix.devel.pins if variant.devel else {}, ("devel",)),
        (f"target {variant.target}", matrix.targets[variant.target].pins, ("targets", variant.target)),
        (f"row {row + 1} of {framework}", rows[row].pins, ("frameworks", framework, "rows", row)),
        ("common", matrix.common.pins, ("common",)),
    ]
    what, path = next((what, path) for what, pins, path in tables if name in pins)
    lines, start = text.splitlines(), line_of(text, path) - 1
    key = re.compile(rf"""(^|[\s,{{.]|["']){re.escape(name)}["']?\s*=""")
    line = next((n for n in range(start, len(lines)) if key.search(lines[n].split("#")[0])), start)
    return what, f"{MATRIX}:{line + 1}"


def _ids(intent: Intent, framework: str, row: int) -> set[str]:
    """The images of one row of the matrix."""
    whole = intent.matrix.frameworks[framework]
    alone = {framework: whole.model_copy(update={"rows": [whole.rows[row]]})}
    matrix = intent.matrix.model_copy(update={"frameworks": alone})
    return {variant.id for variant in expand(matrix, intent.components.components)}
