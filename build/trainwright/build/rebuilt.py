"""Explain how a rebuilt image differs from the existing one: which layer, which path, which field."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import Field

from trainwright.core.toml import Model
from trainwright.docker.oci_layout import Entry

ABSENT = "(not there)"
ARGUMENTS = re.compile(r"\|\d+ (\w+=\S* )+")  # build arguments that BuildKit records between RUN and its command


class Row(Model):
    """One difference. `layer` is the layer's number from 1 with its instruction, or "configuration"."""

    layer: str
    path: str
    what: str
    rebuilt: str
    held: str


class Rebuilt(Model):
    """The result of one rebuild."""

    id: str
    key: str
    rebuilt: str  # digest
    held: str = ""  # digest of the image it was compared with; "" if there was none
    where: str = ""  # where that image is
    same: bool | None = None  # None: not compared
    seconds: float
    differences: list[Row] = Field(default=[])


def config_rows(rebuilt: Mapping[str, Any], held: Mapping[str, Any]) -> Iterator[Row]:
    """Yield the differences of two configurations, except rootfs, because the layers are compared themselves."""
    ours, theirs = _flat(rebuilt), _flat(held)
    for name in sorted(ours.keys() | theirs.keys()):
        before, after = theirs.get(name, ABSENT), ours.get(name, ABSENT)
        if before != after and not name.startswith("rootfs"):
            yield Row(layer="configuration", path=name, what="value", rebuilt=after, held=before)


def _flat(config: Mapping[str, Any], above: str = "") -> dict[str, str]:
    """Map dotted names to text, one per label and variable, so that a difference names a single value."""
    found: dict[str, str] = {}
    for name, value in config.items():
        if isinstance(value, Mapping):
            found |= _flat(value, f"{above}{name}.")
        elif isinstance(value, list):
            found |= _flat({str(number): row for number, row in enumerate(value)}, f"{above}{name}.")
        else:
            found[above + name] = str(value)
    return found


def names(config: Mapping[str, Any]) -> list[str]:
    """Return a name for each layer: its number from 1, and the beginning of its instruction."""
    made = [step.get("created_by", "") for step in config.get("history", []) if not step.get("empty_layer")]
    count = len(config["rootfs"]["diff_ids"])
    texts = made if len(made) == count else [""] * count
    return [f"{number} {_short(text)}".strip() for number, text in enumerate(texts, 1)]


def _short(instruction: str) -> str:
    plain = ARGUMENTS.sub("", instruction).replace("/bin/sh -c ", "").removesuffix(" # buildkit")
    words = plain.split()
    return " ".join(word for word in words if not word.startswith("--mount="))[:60]


def layer_rows(name: str, rebuilt: Mapping[str, Entry], held: Mapping[str, Entry]) -> Iterator[Row]:
    """Yield the differences of two layers with different digests, by path."""
    found = False
    for path in sorted(rebuilt.keys() | held.keys()):
        for row in _entry_rows(name, path, rebuilt.get(path), held.get(path)):
            found = True
            yield row
    if not found:
        yield Row(layer=name, path="", what="order or encoding of the archive", rebuilt="", held="")


def _entry_rows(name: str, path: str, rebuilt: Entry | None, held: Entry | None) -> Iterator[Row]:
    if rebuilt is None or held is None:
        there = "there"
        yield Row(
            layer=name,
            path=path,
            what="presence",
            rebuilt=there if rebuilt else ABSENT,
            held=there if held else ABSENT,
        )
        return
    ours, theirs = rebuilt._asdict(), held._asdict()
    for what in (field for field in ours if ours[field] != theirs[field]):
        yield Row(layer=name, path=path, what=what, rebuilt=_text(ours[what]), held=_text(theirs[what]))


def _text(value: Any) -> str:
    text = str(value)
    return text[:12] if len(text) == 64 else text


def compression(name: str) -> Row:
    """Return the difference of two layers with the same content under different digests."""
    return Row(
        layer=name,
        path="",
        what="compression",
        rebuilt="same content",
        held="same content, compressed by another BuildKit",
    )
