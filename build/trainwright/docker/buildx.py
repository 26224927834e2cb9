"""Describe the builder in use from `buildx inspect`, and check that it can do what a build requires."""

import re
from collections.abc import Iterable

from pydantic import Field

from trainwright.core.errors import EnvironmentProblem
from trainwright.core.toml import Model

FIX = "unset BUILDX_BUILDER DOCKER_CONTEXT   # the engine's own builder; `docker buildx ls` lists the others"


class Builder(Model):
    """A buildx builder, described by the first of its nodes."""

    name: str
    driver: str  # docker: BuildKit inside an engine; docker-container, kubernetes, remote: a separate BuildKit
    endpoint: str  # a docker context, or an address
    platforms: list[str]
    exports_cache: bool | None  # None: not stated
    exports_images: bool | None  # as a file that an engine loads


class Cache(Model):
    """The places of a build's step cache for other hosts: repositories, or tags in them; "" and [] mean none."""

    to: str = ""
    sources: list[str] = Field(default=[])


def parse(said: str) -> Builder:
    """Parse the output of `buildx --debug inspect`, or of `buildx inspect`, which omits the features."""

    def after(name: str) -> str:
        found = re.search(rf"^ *{name}:[ \t]*(.*?) *$", said, re.MULTILINE)
        return found[1] if found else ""

    answers = {"true": True, "false": False}
    return Builder(
        name=after("Name"),
        driver=after("Driver"),
        endpoint=after("Endpoint"),
        platforms=[word for word in re.split(r"[\s,*]+", after("Platforms")) if word],
        exports_cache=answers.get(after("Cache export")),
        exports_images=answers.get(after("Docker exporter")),
    )


def must_build_for(builder: Builder, architecture: str) -> None:
    """Raise EnvironmentProblem if neither the builder's processor nor an emulator runs `architecture`."""
    if builder.platforms and f"linux/{architecture}" not in builder.platforms:
        raise EnvironmentProblem(
            f"this engine cannot build images for {architecture}",
            why=f"it builds for {', '.join(builder.platforms)}",
            fix=f"build on a host with {architecture}, or install an emulator here (binfmt_misc)",
        )


def must_export_caches(builder: Builder) -> None:
    """Raise EnvironmentProblem if the builder states that it cannot export caches."""
    if builder.exports_cache is False:
        raise EnvironmentProblem(
            f"the builder {builder.name} cannot export a build cache",
            why=f"its driver is {builder.driver}; an engine needs the containerd image store for that",
            fix='set {"features": {"containerd-snapshotter": true}} in the daemon\'s configuration, or build without '
            "--cache-to",
        )


def must_hand_over(builder: Builder) -> None:
    """Raise EnvironmentProblem if no other engine can load the builder's images. `builder` is not the engine's own."""
    if builder.exports_images is False:
        raise EnvironmentProblem(
            f"images of the builder {builder.name} cannot be loaded into this engine",
            why=f"it is another engine (driver {builder.driver}, {builder.endpoint}) and cannot export images",
            fix=FIX,
        )


def must_hold(builder: Builder, images: Iterable[str]) -> None:
    """Raise EnvironmentProblem if a build of another builder starts from `images`, which only the engine holds."""
    if held := sorted(images):
        raise EnvironmentProblem(
            f"the builder {builder.name} cannot start from {held[0]}",
            why=f"only this engine holds that image, and {builder.name} ({builder.driver}) is a different one",
            fix=FIX,
        )


def cache_words(cache: Cache, identity: str, export: str) -> list[str]:
    """Return bake's cache options; a repository without a tag gets this image's tag.

    `export` holds the attributes of the cache exporter.
    """
    words = [f"type=registry,ref={_reference(place, identity)}" for place in cache.sources]
    found = [word for row in words for word in ("--set", f"image.cache-from={row}")]
    if cache.to:
        found += ["--set", f"image.cache-to=type=registry,ref={_reference(cache.to, identity)},{export}"]
    return found


def _reference(place: str, identity: str) -> str:
    """Return the cache's reference; without a tag it gets `cache-<id>`, the mutable tag among immutable ones."""
    return place if ":" in place.rpartition("/")[2] else f"{place}:cache-{identity}"
