"""Write the pull request of an update: what moved, what it rebuilds, what the rules say, and what has to be proved."""

import html
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from trainwright.build import proofs
from trainwright.image.changes import ABSENT, Moved, State
from trainwright.image.inputs import Inputs
from trainwright.image.tags import SHORT
from trainwright.inspect.matrix_page import tested_where
from trainwright.matrix.matrix import Intent
from trainwright.matrix.remedy import sentence
from trainwright.publish import licences
from trainwright.resolve import update_branch
from trainwright.resolve.update_branch import Move

LONGEST = 300  # characters of a reason in a table; a pull request on GitHub has at most 65,536
SHOWN = 12  # images that are visible without unfolding


def text(
    new: Intent, old: Mapping[str, State], now: Mapping[str, State], moves: list[Move], images: list[Moved]
) -> str:
    """Return the text, whose first line is the title; "" if nothing moved. `old` and `now` are all images."""
    moved = [move for move in moves if move.state == "moved"]
    if not moved:
        return ""
    left = [move for move in moves if move.state != "moved"]
    before, after = _inputs(old, images), _inputs(now, images)
    parts = [
        [f"# {_safe(update_branch.subject(moved))}"],
        ["## What moved", *_table(("pin", "from", "to", "note"), [(m.name, m.old, m.new, m.why) for m in moved])],
        _rebuilt(images, len(new.recipes)),
        ["## What compat.toml says", *_compat(before, after, left)],
        ["## What licences.toml says", *_licences(before, after)],
        ["## Proofs that are due", *_proofs(new, images)],
    ]
    if left:
        rows = [(m.name, m.old, m.new, m.state, m.why) for m in left]
        parts.append(["## What stays", *_table(("pin", "at", "newest", "state", "why"), rows)])
    return "\n\n".join("\n".join(part) for part in parts) + "\n"


def _inputs(states: Mapping[str, State], images: Iterable[Moved]) -> dict[str, Inputs]:
    found = {image.id: states.get(image.id, ABSENT).inputs for image in images}
    return {name: one for name, one in found.items() if one}


def _rebuilt(images: Sequence[Moved], all_: int) -> list[str]:
    rows = [(image.id, image.new[:SHORT], image.why) for image in images]
    table = _table(("image", "key", "because"), rows)
    if len(rows) > SHOWN:
        table = ["<details><summary>Which</summary>", "", *table, "", "</details>"]
    return [f"## What it rebuilds: {len(images)} of {all_} images", *table]


def _compat(before: dict[str, Inputs], after: dict[str, Inputs], left: Sequence[Move]) -> list[str]:
    """Say which warnings are new, which stay, and which are gone; a rule that refuses keeps a pin where it is."""
    now, then = _warnings(after), _warnings(before)
    rows = [
        ("stays" if warning in then else "**new**", warning[0], warning[1], f"{count} of {len(after)}")
        for warning, count in sorted(now.items(), key=lambda row: (row[0] in then, row[0]))
    ]
    rows += [("gone", warning[0], warning[1], "") for warning in sorted(then.keys() - now.keys())]
    refused = sum(move.state == "refused" for move in left)
    lines = [f"No rule refuses an image. Newer versions that are refused: {refused}."]
    if not rows:
        return ["", *lines, "", "No image has a warning."]
    return ["", *lines, *_table(("warning", "what", "rule", "images"), rows)]


def _warnings(held: dict[str, Inputs]) -> Counter[tuple[str, str]]:
    return Counter((sentence(row), row.rule) for found in held.values() for row in found.warnings)


def _licences(before: dict[str, Inputs], after: dict[str, Inputs]) -> list[str]:
    """Say where the rebuilt images may be published, and whether a licence restricts more of them than before."""
    now, then = _restricted(after), _restricted(before)
    rows = []
    for (name, places, why), held in sorted(now.items()):
        added = held - then.get((name, places, why), set())
        new = f"**{len(added)} newly**: {', '.join(sorted(added)[:3])}" if added else "as before"
        rows.append((name, f"{len(held)} of {len(after)}", places, new, why))
    if not rows:
        return ["", "No licence restricts where these images may be published."]
    return _table(("licence", "images", "published only in", "new", "why"), rows)


def _restricted(held: dict[str, Inputs]) -> dict[tuple[str, str, str], set[str]]:
    found = dict[tuple[str, str, str], set[str]]()
    for name, one in held.items():
        for row, _ in licences.of_image(one.recipe, one.lock):
            found.setdefault((row.name, ", ".join(row.places), row.why), set()).add(name)
    return found


def _proofs(intent: Intent, images: Sequence[Moved]) -> list[str]:
    """List the changed images that were proved, or that CI proves, with the reason why they are due."""
    rows = []
    for image in images:
        if (recipe := intent.find(image.id)) is None:
            continue
        standing = proofs.standing(recipe)
        by = tested_where(recipe, standing)
        if by != "never" and (why := proofs.due(recipe, standing)):
            rows.append((image.id, by, why))
    if not rows:
        return ["", "None of the rebuilt images was proved before, or is proved by `make test` or CI."]
    by_hand = [row[0] for row in rows if row[1] == "by hand"]
    shown = " ".join(f"'{name}'" for name in by_hand)
    how = (
        ["", "By hand:", "", "```sh", f"scripts/test-images.sh {shown}", "trainwright record", "```"] if by_hand else []
    )
    return [*_table(("image", "proved by", "why"), rows), *how]


def _table(names: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """Return a table of Markdown, after an empty line, because a table needs one above it."""
    lines = ["", f"| {' | '.join(names)} |", "|---" * len(names) + "|"]
    return lines + [f"| {' | '.join(map(_safe, row))} |" for row in rows]


def _safe(word: str) -> str:
    """Return a text of upstream for a cell: on one line, without a tag, a link or a mention of an account."""
    short = " ".join(word.split())
    short = short if len(short) <= LONGEST else f"{short[:LONGEST]}..."
    bold = short.startswith("**")  # ours
    safe = html.escape(short, quote=False)
    for mark in "|[]`@\\" + ("" if bold else "*") + "_":
        safe = safe.replace(mark, f"&#{ord(mark)};")
    return safe
