"""Compare two images: configuration, contents, and the layers to pull for the second on a host with the first."""

from collections.abc import Iterator, Mapping
from typing import Any, Literal

from pydantic import Field

from trainwright.core.toml import Model
from trainwright.image.tags import VERSION_LABEL
from trainwright.inspect.image_config import DEFAULT_SHELL, environment, user
from trainwright.lock import diff

SAID = ("Cmd", "WorkingDir", "Shell", "StopSignal", "ExposedPorts", "Volumes", "Healthcheck", "OnBuild")
HELD = {
    "versions": "component",
    "distribution": "distribution package",
    "python": "Python package",
    "sources": "source",
}


class Contents(Model):
    """The contents of an image. A field is None if it is unknown here."""

    by: str  # the source of this information
    versions: dict[str, str] | None = None  # of components
    distribution: dict[str, str] | None = None
    python: dict[str, str] | None = None
    sources: dict[str, tuple[str, str]] | None = None  # version, and commit or sha256


class Blob(Model):
    digest: str
    size: int  # bytes, compressed


class Side(Model):
    """One of the two images."""

    said: str  # as the user named it
    name: str  # its location
    id: str = ""
    key: str = ""
    digest: str = ""  # of the manifest; "" if it is in no registry
    configuration: str = ""  # its digest; "" if it is in no registry
    compression: str = ""  # of its layers: gzip or zstd; "" if it is in no registry
    config: dict[str, Any] | None = None  # Env, Entrypoint, User, Labels; None if it was never built
    layers: list[Blob] | None = None  # None: only a registry knows compressed layers
    unpacked: list[str] = Field(default=[])  # digests of the unpacked layers
    contents: Contents


class Row(Model):
    """One difference. `old` or `new` is "" if that side lacks the item."""

    what: str
    name: str
    change: Literal["added", "removed", "changed"]
    old: str
    new: str


class Layers(Model):
    """The layers to pull for the second image on a host with the first. Bytes are None unless a registry has both."""

    shared: int
    new: int
    gone: int
    shared_bytes: int | None = None
    new_bytes: int | None = None
    old_size: int | None = None
    new_size: int | None = None


class Comparison(Model):
    """The result of `trainwright diff`."""

    old: Side
    new: Side
    rows: list[Row]
    layers: Layers | None
    unknown: list[str]  # what could not be compared, and why


def compare(old: Side, new: Side) -> Comparison:
    """Return all differences, those of the image configuration first."""
    rows, unknown = [*_config(old, new)], [*_unsaid(old, new)]
    for field, what in HELD.items():
        before, after = getattr(old.contents, field), getattr(new.contents, field)
        if before is None or after is None:
            unknown += [
                f"{what}s of {side.said}: not listed by {side.contents.by}"
                for side, held in ((old, before), (new, after))
                if held is None
            ]
            continue
        rows += _held(what, before, after)
    return Comparison(old=old, new=new, rows=rows, layers=_layers(old, new), unknown=unknown)


def same_image(old: Side, new: Side) -> bool:
    """Return whether two manifests are of one image: one configuration, so that their layers have the same files."""
    return bool(old.configuration) and old.configuration == new.configuration and old.digest != new.digest


def _unsaid(old: Side, new: Side) -> Iterator[str]:
    for side in (old, new):
        if side.config is None:
            yield f"labels, configuration and layers of {side.said}: it is not built"


def _held(what: str, before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[Row]:
    one, other = (
        {name: (held, "") if isinstance(held, str) else held for name, held in side.items()} for side in (before, after)
    )
    for change in diff.changes("", "source", one, other):
        how: Literal["added", "removed", "changed"]
        how = "added" if change.name not in one else "removed" if change.name not in other else "changed"
        yield Row(what=what, name=change.name, change=how, old=change.old, new=change.new)


def _config(old: Side, new: Side) -> Iterator[Row]:
    if old.config is None or new.config is None:
        return
    for what, before, after in (
        ("label", _labels(old), _labels(new)),
        ("variable", environment(old.config), environment(new.config)),
        ("configuration", _said(old.config), _said(new.config)),
    ):
        yield from _held(what, before, after)


def _labels(side: Side) -> dict[str, str]:
    labels = dict((side.config or {}).get("Labels") or {})
    if side.contents.versions is None:
        return labels
    return {name: value for name, value in labels.items() if not name.startswith(VERSION_LABEL)}


def _said(config: Mapping[str, Any]) -> dict[str, str]:
    found = {name: _text(config[name]) for name in SAID if config.get(name)}
    if config.get("Shell") == DEFAULT_SHELL:
        del found["Shell"]
    return found | {"Entrypoint": _text(config.get("Entrypoint") or []), "User": user(config)}


def _text(value: Any) -> str:
    if isinstance(value, list):
        return " ".join(map(str, value))
    return (
        ", ".join(f"{key} {held}" if held else key for key, held in value.items())
        if isinstance(value, dict)
        else str(value)
    )


def _layers(old: Side, new: Side) -> Layers | None:
    if old.config is None or new.config is None:
        return None
    if old.layers is None or new.layers is None:
        had, wanted = set(old.unpacked), set(new.unpacked)
        return Layers(shared=len(had & wanted), new=len(wanted - had), gone=len(had - wanted))
    before, after = ({blob.digest: blob.size for blob in side.layers or []} for side in (old, new))
    return Layers(
        shared=len(before.keys() & after.keys()),
        new=len(after.keys() - before.keys()),
        gone=len(before.keys() - after.keys()),
        shared_bytes=sum(after[digest] for digest in before.keys() & after.keys()),
        new_bytes=sum(after[digest] for digest in after.keys() - before.keys()),
        old_size=sum(before.values()),
        new_size=sum(after.values()),
    )
