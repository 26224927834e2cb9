"""Templates into text: what a rendered folder must never hold, and what a template may get wrong."""

import json
import os
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from trainwright import inputs, linting, render
from trainwright.errors import ConfigError
from trainwright.matrix import Intent, load_intent
from trainwright.model import Variant

Edit = Callable[[Path, str, str], None]
Settle = Callable[[Path], None]
ROOT = Path(__file__).parents[2]
REFERENCE = "registry.invalid/debian@sha256:" + "d" * 64


def variant_of(intent: Intent, target: str) -> Variant:
    return next(variant for variant in intent.variants if variant.target == target)


def rendered(root: Path) -> dict[str, dict[str, str]]:
    intent = load_intent(root)
    return {variant.id: inputs.load(intent, variant).text for variant in intent.variants}


@pytest.fixture(scope="module")
def texts() -> dict[str, dict[str, str]]:
    """Every rendered file of this checkout."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRAINWRIGHT_STORE", "/nowhere")
        return rendered(ROOT)


@pytest.fixture
def on_image(tree: Path, edit: Edit, settle: Settle) -> Path:
    """The same variants on a registry image by digest."""
    path = tree / "dockerfiles/components.toml"
    edit(path, r'^provider = "packages".*', f'provider = "image"\nreference = "{REFERENCE}"')
    settle(tree)
    return tree


def rules(dockerfile: str) -> list[str]:
    """What a Dockerfile of ours breaks."""
    broken = []
    stages: set[str] = set()
    if "://" in dockerfile:
        broken.append("an address")
    if re.search(r"^#\s*syntax\s*=", dockerfile, re.MULTILINE):
        broken.append("a syntax line: every build would need a registry")
    if "latest" in dockerfile:
        broken.append("latest")
    for reference, stage in re.findall(r"^FROM (\S+)(?: AS (\S+))?$", dockerfile, re.MULTILINE):
        if reference != "scratch" and reference not in stages and not re.search(r"@sha256:[0-9a-f]{64}$", reference):
            broken.append(f"FROM {reference}")
        stages.add(stage)
    for step in re.findall(r"^RUN (.*)", dockerfile, re.MULTILINE):
        if not step.startswith("--network=none"):
            broken.append(f"a step with a network: {step}")
    return broken


def test_rules_of_every_rendered_dockerfile(texts: dict[str, dict[str, str]]) -> None:
    for identity, files in texts.items():
        assert rules(files["Dockerfile"]) == [], identity
        assert not [name for name, text in files.items() if "://" in text]


def test_rules_on_an_image(on_image: Path) -> None:
    for files in rendered(on_image).values():
        assert rules(files["Dockerfile"]) == []
        assert f"FROM {REFERENCE} AS base\n" in files["Dockerfile"]


@pytest.mark.parametrize(
    "line",
    [
        "FROM debian:12",
        "FROM debian:latest",
        "FROM unknown",
        "# syntax=docker/dockerfile:1",
        "ADD https://example.com/a /a",
        "RUN apt-get update",
    ],
)
def test_the_rules_can_fail(line: str) -> None:
    assert rules(line) != []


def test_hadolint_has_nothing_to_say(texts: dict[str, dict[str, str]], on_image: Path) -> None:
    for found in (texts, rendered(on_image)):
        rows = linting.hadolint(ROOT, {identity: files["Dockerfile"] for identity, files in found.items()})
        assert [row for row in rows if row.state != "ok"] == []
        assert {row.subject for row in rows} == found.keys()


def test_no_clock_no_environment_no_random(
    texts: dict[str, dict[str, str]], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(time, "time", lambda: 0.0)
    for name in list(os.environ):
        monkeypatch.delenv(name)
    monkeypatch.setenv("TRAINWRIGHT_STORE", "/nowhere/else")
    assert rendered(ROOT) == texts


def test_every_context_of_the_dockerfile_is_in_the_bake_file(texts: dict[str, dict[str, str]]) -> None:
    for files in texts.values():
        dockerfile = files["Dockerfile"]
        stages = set(re.findall(r"^FROM \S+ AS (\S+)$", dockerfile, re.MULTILINE))
        wanted = set(re.findall(r"[ ,]--from=(\S+)|[ ,]from=([\w-]+)", dockerfile))
        names = {one or other for one, other in wanted} - stages
        assert names <= json.loads(files["docker-bake.json"])["target"]["image"]["contexts"].keys()
        assert names


def test_requirements_admit_exactly_the_locked_files(intent: Intent, texts: dict[str, dict[str, str]]) -> None:
    for variant in intent.variants:
        found, files = inputs.load(intent, variant), texts[variant.id]
        admitted = "".join(text for name, text in files.items() if name.startswith("requirements/"))
        for entry in found.lock.python:
            if render.is_wheel(entry):
                assert f"{entry.name}=={entry.version} --hash=sha256:{entry.sha256}\n" in admitted
        installed = {entry.name for entry in found.lock.python if entry.group in ("framework", "toolkit")}
        constrained = files["requirements/constraints.txt"].splitlines()
        assert {line.split("==")[0] for line in constrained} == installed
        assert constrained == sorted(constrained)


# --- what a template may get wrong ---------------------------------------------------------------------------------


def refused(tree: Path, target: str = "sagemaker") -> ConfigError:
    intent = load_intent(tree)
    with pytest.raises(ConfigError) as raised:
        inputs.load(intent, variant_of(intent, target))
    assert raised.value.exit_code == 2
    return raised.value


@pytest.mark.parametrize(
    ("layer", "text", "line", "meant"),
    [
        ("openmpi", "{{ pins.opnmpi }}", 3, "openmpi"),
        ("openmpi", "{{ varaint.id }}", 3, "variant"),
        ("openmpi", "{{ variant.nothing }}", 3, ""),
        ("openmpi", '{{ pins["openmp"] }}', 3, "openmpi"),
    ],
)
def test_undefined_variable(tree: Path, layer: str, text: str, line: int, meant: str) -> None:
    path = tree / f"dockerfiles/layers/{layer}.j2"
    rows = path.read_text().splitlines()
    path.write_text("\n".join([*rows[: line - 1], text, *rows[line - 1 :]]))
    error = refused(tree)
    assert error.where == f"dockerfiles/layers/{layer}.j2:{line}"
    assert f"did you mean {meant!r}" in error.why if meant else "nothing" in error.why


@pytest.mark.parametrize("text", ["{% if %}", "{{ pins.openmpi | nofilter }}", "{% macro x() %}"])
def test_template_that_is_not_valid(tree: Path, text: str) -> None:
    path = tree / "dockerfiles/layers/openmpi.j2"
    path.write_text("# one\n# two\n" + text + "\n")
    error = refused(tree)
    assert error.where == "dockerfiles/layers/openmpi.j2:3"


def test_layer_that_is_not_there(tree: Path, edit: Edit) -> None:
    edit(tree / "dockerfiles/frameworks/pytorch.j2", r"layers/openmpi\.j2", "layers/openmpl.j2")
    assert "openmpl" in refused(tree).why


def test_framework_without_a_template(tree: Path) -> None:
    (tree / "dockerfiles/frameworks/pytorch.j2").unlink()
    assert "frameworks/pytorch.j2" in refused(tree).where


def test_pin_that_no_template_consumes(tree: Path, edit: Edit) -> None:
    """The layer is still imported, and nobody calls it."""
    edit(tree / "dockerfiles/frameworks/pytorch.j2", r"^\{\{ libfabric.runtime\(\) \}\}\n", "")
    error = refused(tree)
    assert error.what == "pin 'libfabric' of pytorch-2.13-cpu-py311-sagemaker is consumed by no template"
    assert error.where == "dockerfiles/frameworks/pytorch.j2"


def test_pin_that_only_another_target_consumes(tree: Path, edit: Edit, settle: Settle) -> None:
    edit(tree / "dockerfiles/matrix.toml", r"^\[targets.ec2.pins\]", '[targets.ec2.pins]\nsagemaker-training = "5.1.4"')
    assert "'sagemaker-training' of pytorch-2.13-cpu-py311-ec2" in refused(tree, "ec2").what


COMPONENT = """
[components.gdrcopy]
provider = "{provider}"
licence = "MIT"
summary = "consumed by nobody"
{rest}
"""


@pytest.mark.parametrize(
    ("provider", "rest", "version"),
    [("distro", 'packages = ["gdrcopy"]', "distro"), ("python", 'requirement = "gdrcopy=={version}"', "1.0")],
)
def test_unused_pin_is_said_before_the_stale_lock(
    tree: Path, edit: Edit, provider: str, rest: str, version: str
) -> None:
    """Whoever adds one would otherwise be told to lock first, for minutes, and only then that nobody wants it."""
    path = tree / "dockerfiles/components.toml"
    path.write_text(path.read_text() + COMPONENT.format(provider=provider, rest=rest))
    edit(tree / "dockerfiles/matrix.toml", r"^\[common.pins\]", f'[common.pins]\ngdrcopy = "{version}"')
    assert "'gdrcopy'" in refused(tree).what


def test_check_and_render_agree_on_what_is_consumed(intent: Intent) -> None:
    """The dry run of `check` must not be stricter, nor laxer, than the real one."""
    for variant in intent.variants:
        render.check(intent, variant)


def test_bake_file_builds_one_plain_image(texts: dict[str, dict[str, str]]) -> None:
    """SageMaker pulls a single-platform image with Docker media types; an attestation would make it an index."""
    for files in texts.values():
        target: dict[str, Any] = json.loads(files["docker-bake.json"])["target"]["image"]
        assert target["platforms"] == ["linux/amd64"]
        assert target["attest"] == ["type=provenance,disabled=true", "type=sbom,disabled=true"]
        assert "oci-mediatypes=false" in target["output"][0]
        assert int(target["args"]["SOURCE_DATE_EPOCH"]) > 0
