"""Render the whole matrix for people: a Markdown table with a row per image, and a page with a row per family.

A family is all images of one framework version, accelerator and Python: they differ in target and flavour.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from shlex import quote
from typing import Any, NamedTuple

from jinja2 import Environment, StrictUndefined, Template

from trainwright.core.progress import counted
from trainwright.lock.facts import undocumented
from trainwright.matrix.matrix import Recipe
from trainwright.matrix.model import Row
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
FILTERS = ("framework", "accelerator", "target", "architecture", "transport", "state")
SIGNS = {"proved": "✓", "unproved": "○", "blocked": "✕", "error": "!"}  # beside the colour, for those who do not see it
NAMES = {
    "pytorch": "PyTorch",
    "tensorflow": "TensorFlow",
    "jax": "JAX",
    "horovod": "Horovod",
    "base": "No framework",
    "sagemaker": "SageMaker",
    "ec2": "EC2",
}
FINDINGS = 20  # shown of an image; `list --vulnerabilities` prints all
FLAVOURS = {  # words of chips that do not explain themselves, as the name of a distribution or a vendor does
    "standard": "what the row is about: with CUDA, the EFA installer's fabric for several hosts",
    "single-node": "GPUs of one host: no EFA, nothing compiled",
    "distro": "several hosts over Debian's own libfabric and Open MPI, which Amazon does not support",
    "devel": "the same image with nvcc, headers and cmake, to compile extensions",
    "arm64": "Graviton; without it amd64",
    "mpi-efa": "MPI over EFA, without GPUs",
    "compat": "brings CUDA's forward compatibility for older drivers",
}
STATES = {
    "proved": "built, probed, image-tested and pushed with exactly its present inputs",
    "unproved": "can be built; never was, or with other inputs",
    "blocked": "an input cannot be had",
    "error": "its declaration, lock or record is wrong",
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
        **recipe.variant.model_dump(include={"flavour", "devel", "default", "instances", "driver"}),
        "tested": tested_where(recipe, standing),
        "state": standing.state,
        **({"error": standing.error} if standing.error else {}),
        "reason": standing.reason,
        "notes": undocumented(recipe),
        "day": str(proved.day) if proved else "",
        "digest": proved.digest if proved else "",
        "key": standing.key,
        "size": proved.size if proved else None,
        "tests": dict(proved.tests) if proved else {},
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


def keys_of_rows() -> list[dict[str, Any]]:
    """Return each key of a row of matrix.toml, whether a row requires it, and what it says."""
    return [
        {"key": name, "required": field.is_required(), "says": field.description}
        for name, field in Row.model_fields.items()
    ]


def sentence(counts: Mapping[str, int]) -> str:
    found = ", ".join(f"{counts[state]} {state}" for state in shown(counts))
    return f"{counted(counts['all'], 'image')}: {found}"


def shown(counts: Mapping[str, int]) -> dict[str, str]:
    """Return the states with their meaning; "error" only if an image is in it."""
    return {state: meaning for state, meaning in STATES.items() if counts[state] or state != "error"}


def markdown(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return one table per framework, and the reasons for the images' states."""
    said = summary(rows)
    lines = [
        "# The matrix",
        "",
        "Written by `make matrix`; do not edit it. [matrix.html](matrix.html) is the same as a page to click through; "
        "`trainwright matrix` and `trainwright list --state blocked` say it on a terminal.",
        "",
        f"**{sentence(said['counts'])}.**",
        "",
        *(f"- **{state}**: {meaning}" for state, meaning in shown(said["counts"]).items()),
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
    titles = {"proved": "How proved", "unproved": "Why unproved", "blocked": "Why blocked", "error": "Errors"}
    for state, title in titles.items():
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


class Command(NamedTuple):
    """A command of one image: what it is for, and its text for a shell in the checkout."""

    purpose: str
    text: str


def commands(one: Mapping[str, Any]) -> list[Command]:
    """Return the commands that make sense for an image in its state, in the order in which people need them."""
    name, ours = quote(one["id"]), ".venv/bin/trainwright"
    goals = f"lock build push ONLY={name}" if one["state"] == "blocked" else f"build push ONLY={name}"
    purpose = (
        "Lock, build and prove it where that can be reached" if one["state"] == "blocked" else "Build, prove, push"
    )
    found = [Command(purpose, f"make {goals}")]
    if one["state"] == "proved":
        found.append(Command("Pull what was pushed", f'docker pull "$({ours} uri {name} --digest | head -n 1)"'))
    # The first type is the one that the row is made for; a CPU image names none.
    instance = quote(one["instances"][0]) if one["instances"] else ""
    on = f" --instance {instance}" if instance else ""
    if one["accelerator"] == "cpu" and one["target"] == "sagemaker":  # whose contract `run` follows
        found.append(Command("Train on this machine", f"{ours} run {name} train.py"))
    if one["transport"].startswith("efa") and instance and one["accelerator"] != "cpu":
        found.append(
            Command("Measure NCCL and EFA first (a Slurm job)", f"{ours} gate {name} --on slurm --nodes 2{on}")
        )
    if one["target"] == "sagemaker":
        type_ = f"ml.{instance}" if instance else '"$INSTANCE"'
        found.append(Command("Train on SageMaker", f"{ours} launch {name} train.py --instance {type_}"))
    else:
        found.append(
            Command("Write a job for Slurm", f"{ours} emit {name} train.py --on slurm{on} --output train.sbatch")
        )
    found.append(Command("Why these versions", f"{ours} explain {name}"))
    found.append(Command("What a build would do now", f"{ours} plan {name}"))
    return found


def facts(one: Mapping[str, Any]) -> dict[str, list[tuple[str, str]]]:
    """Return what the panel of an image shows, as (name, value) under its headings. Empty values are left out."""
    where = one["where"] or {}
    tests = ", ".join(f"{number} {kind}" for kind, number in one["tests"].items())
    size = f"{one['size'] / 1e6:,.0f} MB compressed" if one["size"] else ""
    machine = "{architecture}, {cpus} CPUs, {gpu}, Docker {engine}".format(**where) if where else ""
    said = {
        "Versions": [
            (NAMES.get(one["framework"], one["framework"]), one["version"]),
            ("Python", one["python"]),
            *((COLUMNS[name], one[name]) for name in COMPONENTS),
            ("base", f"{one['base']}, {one['architecture']}"),
            ("between hosts", one["transport"]),
            ("NVIDIA driver", one["driver"]),
            ("made for", ", ".join(one["instances"])),
        ],
        "Proof": [
            ("day", one["day"]),
            ("tests passed", tests),
            ("machine", machine),
            ("size", size),
            ("digest", one["digest"]),
            ("key of the inputs", one["key"]),
            ("tested by", one["tested"]),
        ],
    }
    if "vulnerabilities" in one:
        said["Known vulnerabilities"] = _vulnerabilities(one["vulnerabilities"])
    return {title: [(name, value) for name, value in rows if value] for title, rows in said.items()}


def _vulnerabilities(said: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return the counts, and each finding that a newer package corrects."""
    counted = [one for one in said["findings"] if not one["accepted"] and not one["undetermined"]]
    fixable = [
        (one["id"], f"{one['package']} {one['version']}, fixed in {one['fixed']}") for one in counted if one["fixed"]
    ]
    more = (
        [("more", f"{len(fixable) - FINDINGS}: trainwright list --vulnerabilities")] if len(fixable) > FINDINGS else []
    )
    return [("by the snapshots", said["text"]), *fixable[:FINDINGS], *more]


def label(one: Mapping[str, Any]) -> str:
    """Return the text of an image's chip: its flavour, "standard" without one."""
    return "-".join(filter(None, [one["flavour"], "devel" if one["devel"] else ""])) or "standard"


class Family(NamedTuple):
    """All images of one framework version, accelerator and Python."""

    id: str
    framework: str
    title: str
    detail: str
    images: list[Mapping[str, Any]]


def families(rows: Iterable[Mapping[str, Any]]) -> list[Family]:
    """Return the families in the order of the matrix, those of a framework together."""
    found = dict[str, Family]()
    for one in rows:
        python = f"py{one['python'].replace('.', '')}"
        name = "-".join((one["framework"], one["release"], one["accelerator"], python))
        cuda = one["accelerator"].removeprefix("cu")
        runs_on = f"CUDA {cuda[:-1]}.{cuda[-1]}" if cuda.isdigit() else one["accelerator"].upper()
        title = NAMES.get(one["framework"], one["framework"])
        title = title if one["framework"] == "base" else f"{title} {one['release']}"
        new = Family(name, one["framework"], title, f"{runs_on} · Python {one['python']}", [])
        found.setdefault(name, new).images.append(one)
    frameworks = list(dict.fromkeys(one.framework for one in found.values()))
    for family in found.values():
        family.images.sort(key=_place)
    return sorted(found.values(), key=lambda one: frameworks.index(one.framework))


def _place(one: Mapping[str, Any]) -> tuple[int, str, bool]:
    """Sort the plain image first, then known flavours, then the others; a twin after its image."""
    flavour = one["flavour"] or "standard"
    return [*FLAVOURS, flavour].index(flavour), flavour, bool(one["devel"])


@cache
def compiled(text: str) -> Template:
    """Compile the page's template, which takes as long as to fill it."""
    environment = Environment(undefined=StrictUndefined, autoescape=True, trim_blocks=True, lstrip_blocks=True)
    return environment.from_string(text)


def html(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return one self-contained page. Chips are links to the panel of an image, so it works without scripts."""
    values = {name: sorted({str(one[name]) for one in rows} - {""}) for name in FILTERS if name != "state"}
    template = compiled(PAGE.read_text())
    words = {word for one in rows for word in (label(one), *label(one).split("-"))}
    return (
        template.render(
            families=families(rows),
            targets=sorted({one["target"] for one in rows}),
            rows=rows,
            label=label,
            facts=facts,
            commands=commands,
            filters={name: (COLUMNS.get(name, name), values[name]) for name in values},
            names=NAMES,
            states=shown(summary(rows)["counts"]),
            signs=SIGNS,
            flavours={word: meaning for word, meaning in FLAVOURS.items() if word in words},
            counts=summary(rows)["counts"],
        ).rstrip()
        + "\n"
    )
