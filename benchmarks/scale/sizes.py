"""Bytes, minutes and money of so many images: sums over layers that were really built and pushed, and timed builds.

A copy differs from its original in one small Python package: it shares the layers below the one of small wheels.
"""

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from scale.settings import Settings


class Layer(NamedTuple):
    digest: str
    size: int  # bytes, compressed
    common: bool  # an image with another small wheel has this very layer, too


FRAMEWORK, SMALL_WHEELS = "uv pip install", "uv pip check"  # words of a layer's history


def layers(manifest: Mapping[str, Any], config: Mapping[str, Any]) -> list[Layer]:
    """Of a published image. Small wheels are the first that pip's check follows; what is above depends on them."""
    history = [row["created_by"] for row in config["history"] if not row.get("empty_layer")]
    changed = next(number for number, words in enumerate(history) if SMALL_WHEELS in words)
    rows = manifest["layers"]
    return [Layer(row["digest"], row["size"], number < changed) for number, row in enumerate(rows)]


def stored(images: Iterable[tuple[str, str]], held: Mapping[str, list[Layer]], by_repository: bool) -> int:
    """Bytes of (id of a copy, id of its original), each layer once: once for each repository, or once for all.

    Amazon ECR takes no layer from another repository unless an account asks for it; a plain registry does.
    """
    seen = {
        (
            original.partition("-")[0] if by_repository else "",
            layer.digest,
            "" if layer.common else identity,
        ): layer.size
        for identity, original in images
        for layer in held[original]
    }
    return sum(seen.values())


def changed_bytes(images: Iterable[tuple[str, str]], held: Mapping[str, list[Layer]]) -> int:
    """What a new small wheel has each of these send, to one region."""
    return sum(layer.size for _, original in images for layer in held[original] if not layer.common)


def minutes(images: Iterable[tuple[str, str]], settings: Settings) -> float:
    """Of builds from nothing, added up."""
    cold = {row.what: row.cold for row in settings.seconds}
    return sum(cold["cuda" if "-cu" in original else "cpu"] for _, original in images) / 60


def price(settings: Settings, name: str) -> float:
    return next(row.usd for row in settings.prices if row.id == name)
