"""Test images that are listed but never built: sources without a checksum, and incompatible versions."""

import json
import re
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from trainwright.matrix.matrix import load_intent

Edit = Callable[[Path, str, str], None]
Cli = Callable[..., Any]
FLAGSHIP = "pytorch-2.15-cu132-py313-ec2"
SINGLE = f"{FLAGSHIP}-single-node"
MATRIX = "dockerfiles/matrix.toml"


@pytest.fixture
def blocked(tree: Path, edit: Edit, settle: Callable[[Path], None]) -> Path:
    """Make a checkout with an EFA installer whose sha256 and contents are not established."""
    edit(
        tree / MATRIX,
        r'^stack = "efa"\ndevel = true\npins = \{',
        'stack = "efa"\ndevel = true\npins = { efa-installer = "1.51.0",',
    )
    settle(tree)
    return tree


def test_a_blocked_image_is_planned_with_what_is_missing(blocked: Path, cli: Cli) -> None:
    ended = cli(blocked, "plan", f"{FLAGSHIP}*", "--json")
    assert ended.code == 0, ended.err
    rows = {row["id"]: row for row in json.loads(ended.out)}
    assert {name for name, row in rows.items() if row["action"] == "blocked"} == {FLAGSHIP, f"{FLAGSHIP}-devel"}
    assert rows[FLAGSHIP]["reason"] == (
        "efa-installer 1.51.0: sha256 not established; openmpi: version not established"
    )
    assert rows[f"{FLAGSHIP}-distro"]["action"] == "build"  # the others are as before


def test_a_blocked_image_is_listed_rendered_and_its_lock_is_current(blocked: Path, cli: Cli) -> None:
    for words in (["list"], ["render", FLAGSHIP], ["lock", "--check", FLAGSHIP]):
        assert cli(blocked, *words).code == 0, words
    assert "1.51.0" in (blocked / "out" / FLAGSHIP / "Dockerfile").read_text()


@pytest.mark.parametrize(
    ("words", "identity"),
    [
        ("build", FLAGSHIP),
        ("build", f"{FLAGSHIP}-devel"),
        ("push --registry 127.0.0.1:1", FLAGSHIP),
        ("push --dry-run --registry 127.0.0.1:1", FLAGSHIP),
    ],
)
def test_a_blocked_image_is_neither_built_nor_published(blocked: Path, cli: Cli, words: str, identity: str) -> None:
    ended = cli(blocked, *words.split(), identity)
    assert (ended.code, ended.out) == (4, "")
    assert f"{identity} is blocked: efa-installer 1.51.0: sha256 not established" in ended.err
    assert f"dockerfiles/locks/{FLAGSHIP}.toml" in ended.err


def test_a_blocked_image_is_fetched_up_to_what_is_missing(
    blocked: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    from trainwright.resolve import fetch

    monkeypatch.setattr(fetch, "_fetch_packages", lambda *_: None)
    ended = cli(blocked, "fetch", FLAGSHIP)
    assert ended.code == 4
    assert "efa-installer 1.51.0" in ended.err


@pytest.mark.parametrize(
    ("identity", "file", "line"),
    [
        ("pytorch-2.13-cpu-py313-ec2", MATRIX, 'awaits = "https://download.pytorch.org/whl/cpu'),
        ("pytorch-2.15-cu132-py312-sagemaker-ubuntu-24.04", "dockerfiles/bases.toml", "awaits = "),
        ("base-1.0-cu128-py312-sagemaker-nvidia-cuda", "dockerfiles/bases.toml", "awaits = "),  # of what it is like
        ("pytorch-2.8-cu129-py312-sagemaker-dlc", "dockerfiles/bases.toml", "awaits = "),
    ],
)
def test_what_awaits_something_says_where_that_is_written(
    tree: Path, cli: Cli, identity: str, file: str, line: str
) -> None:
    variant = next(v for v in load_intent(tree).variants if v.id == identity)
    ended = cli(tree, "build", identity)
    assert (ended.code, ended.out) == (4, "")
    assert f"{identity} is blocked: " in ended.err
    number = int(re.search(rf"where: {file}:(\d+)", ended.err)[1])  # type: ignore[index]
    lines = (tree / file).read_text().splitlines()
    assert lines[number - 1].startswith(line)
    if file != MATRIX:
        said = tomllib.loads((tree / file).read_text())["bases"][variant.base]
        key = line.split()[0]
        owner = variant.base if key in said else said["like"]
        header = next(text for text in reversed(lines[:number]) if text.startswith("[bases."))
        assert header.split("]")[0] == f'[bases."{owner}"'
    assert f"trainwright lock {identity}" in ended.err
    assert "on a host that reaches it" in ended.err
    ended = cli(tree, "explain", identity)
    assert ended.code == 0
    assert f"{identity} is blocked: " in ended.err
    assert "stale" not in ended.err


def test_compilers_without_a_digest_are_named_where_they_are_written(tree: Path, edit: Edit, cli: Cli) -> None:
    file, identity = "dockerfiles/layers/cuda.toml", "pytorch-2.10-cu128-py311-ec2"
    edit(tree / file, r'(?<=devel-ubuntu22.04)@sha256:\w+"$', '"')
    ended = cli(tree, "build", identity)
    assert ended.code == 4
    number = int(re.search(rf"where: {file}:(\d+)", ended.err)[1])  # type: ignore[index]
    assert (tree / file).read_text().splitlines()[number - 1].startswith("reference = ")
    assert f"$EDITOR +{number} {file}" in ended.err


COMMANDS = (["plan"], ["render"], ["build"], ["lock"], ["lock", "--check"], ["lock", "--update"], ["fetch"])


@pytest.mark.parametrize(
    ("pattern", "new", "identity", "blamed", "says"),
    [
        (
            r'cuda = "13.2.2" \}',
            'cuda = "13.2.2", nccl = "wheel 2.29.7" }',
            SINGLE,
            'nccl = "wheel 2.29.7" }',
            [
                "torch 2.15.0 (of ==2.15.0) requires nccl ==2.30.7, and the image has 2.29.7",
                "nearest that works: nccl 2.30.7",
                '# nccl = "wheel 2.30.7"',  # as it is written there: without the provider it would be refused again
            ],
        ),
        (
            r'^efa-installer = ".*"',
            'efa-installer = "1.47.0"',
            FLAGSHIP,
            'efa-installer = "1.47.0"',  # not that of aws-ofi-nccl, which says no version
            [
                "aws-ofi-nccl 1.18.0 is in the banned range ==1.18.0",
                "efa-installer 1.47.0 is in the banned range ==1.47.0",
                "nearest that works: efa-installer 1.49.0",  # of 1.48.0 no sha256 is established
                '# efa-installer = "1.49.0"',
            ],
        ),
    ],
    ids=["torch and NCCL", "a banned installer"],
)
def test_versions_that_do_not_go_together(
    tree: Path, edit: Edit, cli: Cli, pattern: str, new: str, identity: str, blamed: str, says: list[str]
) -> None:
    """Before anything is resolved, and before a stale lock is said: no new lock would mend it."""
    edit(tree / MATRIX, pattern, new)
    line = next(n for n, row in enumerate((tree / MATRIX).read_text().splitlines(), 1) if blamed in row)
    for words in COMMANDS:
        ended = cli(tree, *words, identity)
        assert (ended.code, ended.out) == (3, ""), words
        for part in [*says, f"{MATRIX}:{line}", "evidence: ", "checked 2026-"]:
            assert part in ended.err, words
        assert f"$EDITOR +{line} {MATRIX}" in ended.err
    file, _, number = re.search(r"\((dockerfiles/compat\.toml):(\d+)\)$", ended.err, re.MULTILINE).group(1, 1, 2)  # type: ignore[union-attr]
    rule = "\n".join((tree / file).read_text().splitlines()[int(number) - 1 :]).split("[[rules]]")[1]
    assert re.search(r'^rule = "(.*)"$', rule, re.MULTILINE).group(1) in ended.err  # type: ignore[union-attr]
    assert cli(tree, "list").code == 3  # in which the image is in error
    assert cli(tree, "plan", f"{FLAGSHIP}-distro").code == 0  # the others are as before


def test_a_refusal_because_of_an_instance_type_names_it(tree: Path, edit: Edit, cli: Cli) -> None:
    edit(
        tree / MATRIX,
        r'^flavour = "single-node"',
        'flavour = "single-node"\ninstances = ["p3dn.24xlarge", "p4d.24xlarge"]',
    )
    ended = cli(tree, "plan", SINGLE)
    assert ended.code == 3
    assert "sm >=75, and the image has 70" in ended.err
    assert "p3dn.24xlarge (V100) is sm 70" in ended.err
    assert "p4d" not in ended.err


def test_a_refusal_that_only_the_lock_can_tell(
    tree: Path, edit: Edit, cli: Cli, settle: Callable[[Path], None]
) -> None:
    """No pin says which libfabric the distribution has: with the lock it is known, and refused."""
    path = tree / "dockerfiles/locks/debian-13.packages"
    edit(path, r"^Package: libfabric-bin\nVersion: .*", "Package: libfabric-bin\nVersion: 1.17.0-3")
    settle(tree)
    ended = cli(tree, "plan", f"{FLAGSHIP}-distro")
    assert ended.code == 3
    assert "libfabric" in ended.err
