"""Validate a registry's answers: JSON objects, manifests, image configurations. Sends no request."""

import json
import re
from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, ValidationError

from trainwright.docker.oci_layout import Kinds

DIGEST = re.compile("sha256:[0-9a-f]{64}")


class _Settings(BaseModel):
    Labels: dict[str, str] | None = None


class _Layers(BaseModel):
    diff_ids: list[str] | None = None


class _Configuration(BaseModel):
    """The part of an image's configuration that is read here."""

    config: _Settings | None = None
    rootfs: _Layers | None = None


def parsed(content: bytes) -> dict[str, Any]:
    """Parse a JSON object. Raises ValueError for anything else."""
    try:
        found = json.loads(content)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    if not isinstance(found, dict):
        raise ValueError(f"it is a {type(found).__name__}")  # noqa: TRY004  # callers catch what json.loads raises
    return found


def no_manifest(found: dict[str, Any]) -> str:
    """Return why this is not a manifest of an image (configuration, layers), an index or an artifact; "" if it is."""
    rows = [found.get("config"), *_rows(found.get("layers"))] if {"config", "layers"} & found.keys() else []
    if all(map(_is_descriptor, [*rows, *_rows(found.get("manifests", []))])):
        return ""
    return "its configuration or its layers are missing, or one of its entries has no digest or no size"


def no_configuration(found: dict[str, Any]) -> str:
    """Return why this is not an image's configuration; "" if it is."""
    try:
        _Configuration.model_validate(found)
    except ValidationError as error:
        return f"its configuration is not valid: {error}"
    return ""


def other_layers(configuration: Mapping[str, Any], count: int) -> str:
    """Return why a configuration does not name `count` layers by their digests; "" if it does."""
    named = (configuration.get("rootfs") or {}).get("diff_ids") or []
    if len(named) != count:
        return f"its configuration names {len(named)} layers, its manifest {count}"
    return "" if all(map(DIGEST.fullmatch, named)) else "its configuration has a layer without a valid digest"


def other_kinds(found: Mapping[str, Any], wanted: Kinds) -> list[str]:
    """Return a sentence for each part of an image whose media type is not one of these.

    A manifest without layers is not an image: the one sentence says so.
    """
    if "layers" not in found:
        return [f"its manifest has no layers: its media type is {found.get('mediaType')}, expected {wanted.manifest}"]
    parts: list[tuple[str, object, tuple[str, ...]]] = [("manifest", found.get("mediaType"), (wanted.manifest,))]
    parts.append(("configuration", found["config"].get("mediaType"), (wanted.config,)))
    parts += [("layer", layer.get("mediaType"), wanted.layers) for layer in found["layers"]]
    return [
        f"the media type of its {part} is {said}, expected {' or '.join(kinds)}"
        for part, said, kinds in parts
        if said not in kinds
    ]


def _rows(said: object) -> list[object]:
    return said if isinstance(said, list) else [None]


def _is_descriptor(row: object) -> bool:
    if not isinstance(row, dict):
        return False
    digest, size = row.get("digest"), row.get("size")
    return isinstance(digest, str) and bool(DIGEST.fullmatch(digest)) and type(size) is int and size >= 0
