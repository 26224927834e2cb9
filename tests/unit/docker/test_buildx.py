"""Test the description of the builder by buildx, and the errors that it causes before a build."""

from pathlib import Path

import pytest

from trainwright.core.errors import EnvironmentProblem
from trainwright.docker import engine
from trainwright.docker.buildx import (
    Builder,
    Cache,
    cache_words,
    must_build_for,
    must_export_caches,
    must_hand_over,
    must_hold,
    parse,
)
from trainwright.registry.settings import publication

ROOT = Path(__file__).parents[3]
SAID = """\
Name:          default
Driver:        docker
Last Activity: 2026-11-22 01:17:17 +0000 UTC

Nodes:
Name:             node
Endpoint:         far
Status:           running
Platforms:        linux/amd64*, linux/amd64/v2, linux/arm64
Features:
 Automatically load images to the Docker Engine image store: true
 Cache export:                                               {cache}
 Docker exporter:                                            {images}
Labels:
 org.mobyproject.buildkit.worker.hostname:             vm
"""
FULL = parse(SAID.format(cache="true", images="true"))
POOR = parse(SAID.format(cache="false", images="false"))
MUTE = parse(SAID[: SAID.index("Features")])


def test_what_inspect_says_is_read() -> None:
    platforms = ["linux/amd64", "linux/amd64/v2", "linux/arm64"]
    known = {"name": "default", "driver": "docker", "endpoint": "far", "platforms": platforms}
    assert Builder(**known, exports_cache=True, exports_images=True) == FULL
    assert (POOR.exports_cache, POOR.exports_images) == (False, False)
    assert (MUTE.exports_cache, MUTE.exports_images) == (None, None)


def test_a_builder_that_was_not_started_yet_says_nothing_of_platforms() -> None:
    new = parse(
        "Name:   far\nDriver: docker-container\n\nNodes:\nName:     far0\nEndpoint: default\nStatus:   inactive\n"
    )
    assert (new.platforms, new.endpoint) == ([], "default")
    must_build_for(new, "arm64")


def test_an_architecture_is_one_of_those_that_it_names() -> None:
    must_build_for(FULL, "arm64")
    with pytest.raises(EnvironmentProblem, match="arm"):
        must_build_for(FULL, "arm")


@pytest.mark.parametrize("check", [must_export_caches, must_hand_over])
def test_a_builder_that_says_that_it_cannot_is_refused(check: object) -> None:
    assert callable(check)
    check(FULL)
    check(MUTE)  # an older buildx tells nothing: BuildKit will
    with pytest.raises(EnvironmentProblem, match="default") as caught:
        check(POOR)
    assert caught.value.exit_code == 10
    assert caught.value.fix


def test_another_builder_has_no_image_of_the_engine() -> None:
    must_hold(FULL, [])
    with pytest.raises(EnvironmentProblem, match="cannot start from trainwright/a:1"):
        must_hold(FULL, ["trainwright/a:1"])


def test_a_cache_is_one_tag_for_each_image_unless_somebody_names_one() -> None:
    export = publication(ROOT).cache.export
    words = cache_words(Cache(to="host:5000/cache", sources=["host:5000/cache", "host/other:tag"]), "id", export)
    assert words == [
        "--set",
        "image.cache-from=type=registry,ref=host:5000/cache:cache-id",
        "--set",
        "image.cache-from=type=registry,ref=host/other:tag",
        "--set",
        f"image.cache-to=type=registry,ref=host:5000/cache:cache-id,{export}",
    ]
    assert cache_words(Cache(), "id", export) == []


def test_amazon_ecr_takes_a_cache_in_this_form_alone() -> None:
    assert {"mode=max", "image-manifest=true", "oci-mediatypes=true"} <= set(publication(ROOT).cache.export.split(","))


def test_a_cache_may_move_in_a_repository_whose_tags_do_not() -> None:
    caches = publication(ROOT).repository.caches
    (_, said) = cache_words(Cache(to="host/a"), "id", "mode=max")
    assert said.partition("ref=host/a:")[2].startswith(caches.removesuffix("*"))


@pytest.mark.parametrize(
    ("flags", "limit", "words"),
    [
        ("--max-used-space", "4GB", ["--all --force --max-used-space 4GB"]),
        ("--keep-storage", "4GB", ["--all --force --max-used-space 4GB", "--all --force --keep-storage 4GB"]),
        ("", "0", ["--all --force"]),
    ],
)
def test_pruning_the_cache_with_a_newer_and_an_older_buildx(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, flags: str, limit: str, words: list[str]
) -> None:
    plugin = tmp_path / "buildx"
    said = f'echo "$*" >>{tmp_path}/said; case "$*" in *space*|*storage*) case "$*" in *{flags}*) ;; '
    plugin.write_text(f"#!/bin/sh\n{said}*) echo unknown flag >&2; exit 1;; esac;; esac\n")
    plugin.chmod(0o755)
    monkeypatch.setattr(engine, "buildx", lambda: plugin)
    engine.prune_cache(limit)
    assert (tmp_path / "said").read_text().splitlines() == [f"prune {line}" for line in words]


def test_a_cache_that_cannot_be_pruned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plugin = tmp_path / "buildx"
    plugin.write_text(f"#!/bin/sh\necho >>{tmp_path}/calls; echo no engine >&2; exit 1\n")
    plugin.chmod(0o755)
    monkeypatch.setattr(engine, "buildx", lambda: plugin)
    for limit in ("4GB", "0"):
        with pytest.raises(EnvironmentProblem) as raised:
            engine.prune_cache(limit)
        assert (raised.value.what, raised.value.why) == ("the build cache cannot be pruned", "no engine")
    assert (tmp_path / "calls").read_text() == "\n\n"  # an older buildx is no reason for this
