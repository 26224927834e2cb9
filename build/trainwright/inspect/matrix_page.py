"""Render the whole matrix for people, one row per image: as a Markdown table and as one page with filters."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from jinja2 import Environment, StrictUndefined

from trainwright.lock.facts import undocumented
from trainwright.matrix.matrix import Recipe
from trainwright.matrix.records import Standing

PAGE = Path(__file__).with_name("matrix_page.html.j2")
COMPONENTS = ("cuda", "nccl", "openmpi", "libfabric", "aws-ofi-nccl")  # what a job's communication depends on

COLUMNS = {
    "id": "image",
    "state": "state",
    "tested": "tested by",
    "version": "version",
    "accelerator": "accelerator",
    "python": "Python",
    "target": "target",
    "base": "base",
    "architecture": "arch",
    "transport": "transport",
    "cuda": "CUDA",
    "nccl": "NCCL",
    "openmpi": "Open MPI",
    "libfabric": "libfabric",
    "aws-ofi-nccl": "aws-ofi-nccl",
    "day": "proved on",
    "digest": "digest",
}
FILTERS = ("framework", "accelerator", "target", "base", "architecture", "transport", "tested", "state")
STATES = {
    "proved": "built, probed, image-tested and pushed with exactly its present inputs",
    "unproved": "can be built; never was, or with other inputs",
    "blocked": "an input cannot be had",
}


def tested_where(recipe: Recipe, standing: Standing) -> str:
    """Return where an image is tested: make test, CI, by hand (a proof was recorded), or never."""
    return recipe.variant.tested or ("by hand" if standing.record else "never")


def transport(recipe: Recipe) -> str:
    """Return the transport between hosts, as the pins state it."""
    pin, plugin = recipe.pins.get("libfabric"), "aws-ofi-nccl" in recipe.pins
    if pin and pin.provider != "distro":
        notes = undocumented(recipe) if plugin else []
        return "efa, not documented" if any(": aws-ofi-nccl " in note for note in notes) else "efa"
    if plugin:
        return "efa, unsupported"  # over the distribution's libfabric
    return "tcp" if recipe.variant.accelerator == "cpu" else "single-node"


def version(recipe: Recipe, standing: Standing) -> str:
    """Return the framework's version: of the pinned framework component whose version is of this release."""
    held = [
        standing.versions[name]
        for name in recipe.pins
        if recipe.component(name).position == "framework" and name in standing.versions
    ]
    return next((text for text in held if text.startswith(f"{recipe.variant.release}.")), recipe.variant.release)


def row(recipe: Recipe, standing: Standing) -> dict[str, Any]:
    """Return all facts of one image that a table or a program may need."""
    base = recipe.base
    proved = standing.record if standing.state == "proved" else None  # the reason states a proof of earlier inputs
    return {
        **recipe.variant.model_dump(include={"id", "framework", "release"}),
        "version": version(recipe, standing),
        **recipe.variant.model_dump(include={"accelerator", "python", "target", "base"}),
        "architecture": base.architecture,
        "transport": transport(recipe),
        **{name: standing.versions.get(name, "") for name in COMPONENTS},
        **recipe.variant.model_dump(include={"devel", "default", "instances"}),
        "tested": tested_where(recipe, standing),
        "state": standing.state,
        "reason": standing.reason,
        "notes": undocumented(recipe),
        "day": str(proved.day) if proved else "",
        "digest": proved.digest if proved else "",
        "key": standing.key,
        **({"overridden": standing.overridden} if standing.overridden else {}),
        "where": proved.where.model_dump() if proved else None,
    }


def summary(rows: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Count the images in each state, and those with each reason."""
    rows = list(rows)
    found = {state: [one for one in rows if one["state"] == state] for state in STATES}
    return {
        "counts": {state: len(held) for state, held in found.items()} | {"all": len(rows)},
        "reasons": {state: dict(Counter(one["reason"] for one in held)) for state, held in found.items()},
    }


def sentence(counts: Mapping[str, int]) -> str:
    return f"{counts['all']} images: " + ", ".join(f"{counts[state]} {state}" for state in STATES)


def markdown(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return one table per framework, and the reasons for the images' states."""
    said = summary(rows)
    lines = [
        "# The matrix",
        "",
        "Written by `make matrix`; do not edit it. [matrix.html](matrix.html) is the same with filters; "
        "`trainwright matrix` and `trainwright list --state blocked` say it on a terminal.",
        "",
        f"**{sentence(said['counts'])}.**",
        "",
        *(f"- **{state}**: {meaning}" for state, meaning in STATES.items()),
        "",
        "Tested by `make test`, by CI beside those, by hand, or never: `[tested]` in `dockerfiles/matrix.toml`. "
        "Transport `efa` is over the libfabric of the EFA installer or of the base; unsupported: of the distribution; "
        "not documented: see below.",
    ]
    for framework in dict.fromkeys(one["framework"] for one in rows):
        lines += ["", f"## {framework}", "", "| " + " | ".join(COLUMNS.values()) + " |", "|---" * len(COLUMNS) + "|"]
        lines += [
            "| " + " | ".join(_cell(name, one) for name in COLUMNS) + " |"
            for one in rows
            if one["framework"] == framework
        ]
    for state, title in (("proved", "How proved"), ("unproved", "Why unproved"), ("blocked", "Why blocked")):
        lines += ["", f"## {title}", ""] if said["reasons"][state] else []
        for reason in said["reasons"][state]:
            held = [one["id"] for one in rows if (one["state"], one["reason"]) == (state, reason)]
            lines.append(f"- {reason}: " + ", ".join(f"`{identity}`" for identity in held))
    notes = dict.fromkeys(note for one in rows for note in one["notes"])
    lines += ["", "## Not documented", ""] if notes else []
    for note in notes:
        lines.append(f"- {note}: " + ", ".join(f"`{one['id']}`" for one in rows if note in one["notes"]))
    return "\n".join(lines) + "\n"


def _cell(name: str, one: Mapping[str, Any]) -> str:
    text = str(one[name])
    if name == "state":
        return f"**{text}**" if text == "proved" else text
    return f"`{text}`" if text and name in ("id", "digest") else text


def html(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return one self-contained page; without scripts it is a plain table."""
    environment = Environment(undefined=StrictUndefined, autoescape=True, trim_blocks=True, lstrip_blocks=True)
    values = {name: sorted({str(one[name]) for one in rows} - {""}) for name in FILTERS}
    values["state"] = [state for state in STATES if state in values["state"]]
    names = COLUMNS | {"framework": "framework"}
    columns = COLUMNS | {"reason": "why"}
    template = environment.from_string(PAGE.read_text())
    return (
        template.render(
            rows=[{**one, "reason": "; ".join(filter(None, [one["reason"], *one["notes"]]))} for one in rows],
            columns=columns,
            filters={name: (names[name], values[name]) for name in FILTERS},
            states=STATES,
            counts=summary(rows)["counts"],
        ).rstrip()
        + "\n"
    )
