"""Test rendered text: what a rendered folder must not contain, and errors in templates."""

import json
import os
import re
import subprocess
import time
from collections.abc import Callable
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import pytest

from trainwright.build import lint
from trainwright.core.errors import ConfigError
from trainwright.image import inputs, render
from trainwright.lock.wheels import is_wheel
from trainwright.matrix.matrix import Intent, Recipe, load_intent
from trainwright.matrix.model import Variant

Edit = Callable[[Path, str, str], None]
Settle = Callable[[Path], None]
ROOT = Path(__file__).parents[3]
REFERENCE = "registry.invalid/debian@sha256:" + "d" * 64


def variant_of(intent: Intent, target: str) -> Variant:
    return next(variant for variant in intent.variants if variant.target == target)


def rendered(root: Path, only: str = "*") -> dict[str, dict[str, str]]:
    intent = load_intent(root)
    return {
        recipe.id: inputs.load(recipe).text
        for recipe in inputs.held(intent)
        if any(fnmatch(recipe.id, glob) for glob in only.split())
    }


@pytest.fixture(scope="module")
def texts() -> dict[str, dict[str, str]]:
    """Return every rendered file of this checkout."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRAINWRIGHT_STORE", "/dev/null/store")
        return rendered(ROOT)


@pytest.fixture
def on_image(tree: Path, settle: Settle) -> Path:
    """Make a checkout with the same variants, whose base is a registry image by digest."""
    path = tree / "dockerfiles/bases.toml"
    path.write_text(
        re.sub(
            r'^provider = "packages".*', f'provider = "image"\nreference = "{REFERENCE}"', path.read_text(), flags=re.M
        )
    )
    settle(tree)
    return tree


def rules(dockerfile: str) -> list[str]:
    """List the rules that a Dockerfile of ours breaks."""
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
        # The notices say where sources are; nothing reads them in a build.
        assert [name for name, text in files.items() if "://" in text] == ["requirements/notices.txt"]


def test_rules_on_an_image(on_image: Path) -> None:
    for files in rendered(on_image, "*-sagemaker*").values():
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


# An instruction that hadolint reads, over all of its lines; a label says what the image is called.
STEP = re.compile(r"^(?!LABEL)[A-Z]+ (?:.*\\\n)*.*\n", re.MULTILINE)


@pytest.mark.waits
def test_hadolint_has_nothing_to_say_on_an_image(on_image: Path) -> None:
    """Those for SageMaker have all that the others have, and more; of the real ones test_whole_matrix.py asks all.

    An image that has no step of its own, but its names alone, would be read for nothing.
    """
    texts = {identity: files["Dockerfile"] for identity, files in rendered(on_image, "*-sagemaker").items()}
    steps = {identity: {re.sub(r"\d", "", step) for step in STEP.findall(text)} for identity, text in texts.items()}
    found, left = dict[str, str](), set[str]().union(*steps.values())
    while left:  # the image with the most steps that no other one had
        identity = max(steps, key=lambda one: len(steps[one] & left))
        found[identity] = texts[identity]
        left -= steps[identity]
    assert len(found) > 3
    rows = lint.hadolint(ROOT, found)
    assert [row for row in rows if row.state != "ok"] == []
    assert {row.subject for row in rows} == found.keys()


def test_no_key_of_a_packages_own_tests_stays_in_an_image(texts: dict[str, dict[str, str]], tmp_path: Path) -> None:
    """gevent's wheel brings CPython's test keys, and RECORD must not name what is gone: every step that installs."""
    steps = {
        step
        for files in texts.values()
        for step in re.findall(r"^RUN (?:.*\\\n)*.*\n", files["Dockerfile"].rpartition("\nFROM ")[2], re.MULTILINE)
        if "uv pip install --offline --python /opt/venv/bin/python" in step
    }
    ends = {
        "&& find /opt/venv" + step.partition("&& find /opt/venv")[2].partition("&& find / -xdev")[0] for step in steps
    }
    (end,) = ends  # the same in each
    site = tmp_path / "lib/python3/site-packages"
    for name in (
        "gevent/tests/a.pem",
        "gevent/tests/deep/b.key",
        "tornado/test/c.key",
        "gevent/ca.pem",
        "gevent/tests/d.py",
    ):
        (site / name).parent.mkdir(parents=True, exist_ok=True)
        (site / name).touch()
    record = site / "gevent-1.dist-info/RECORD"
    record.parent.mkdir()
    other = site / "other-1.dist-info/RECORD"  # of a layer below: writing it anew would put it into this one, too
    other.parent.mkdir()
    other.write_text("other/tests.pem,sha256=x,1\n")
    before = other.stat().st_ino
    record.write_text(
        "".join(f"{path.relative_to(site)},sha256=x,1\n" for path in sorted(site.rglob("*.*")) if path.is_file())
    )
    command = end.replace("/opt/venv", str(tmp_path)).removeprefix("&&").strip().removesuffix("\\")
    subprocess.run(["sh", "-c", command], check=True)
    assert sorted(path.name for path in site.rglob("*.*") if path.is_file()) == ["ca.pem", "d.py"]
    assert other.stat().st_ino == before
    assert record.read_text() == "gevent/ca.pem,sha256=x,1\ngevent/tests/d.py,sha256=x,1\n"


def test_no_clock_no_environment_no_random(
    texts: dict[str, dict[str, str]], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(time, "time", lambda: 0.0)
    for name in list(os.environ):
        monkeypatch.delenv(name)
    monkeypatch.setenv("TRAINWRIGHT_STORE", "/dev/null/other")
    assert rendered(ROOT, "*-distro") == {name: text for name, text in texts.items() if name.endswith("-distro")}


def test_every_context_of_the_dockerfile_is_in_the_bake_file(texts: dict[str, dict[str, str]]) -> None:
    for files in texts.values():
        dockerfile = files["Dockerfile"]
        stages = {"base", *re.findall(r"^FROM \S+ AS (\S+)$", dockerfile, re.MULTILINE)}
        wanted = set(re.findall(r"[ ,]--from=(\S+)|[ ,]from=([^\s,]+)", dockerfile))
        names = {name for pair in wanted for name in pair if name and "/" not in name} - stages  # no other's images
        assert names <= json.loads(files["docker-bake.json"])["target"]["image"]["contexts"].keys()
        assert names


def test_requirements_admit_exactly_the_locked_files(intent: Intent, texts: dict[str, dict[str, str]]) -> None:
    for recipe in inputs.held(intent):
        found, files, variant = inputs.load(recipe), texts[recipe.id], recipe.variant
        admitted = "".join(text for name, text in files.items() if name.startswith("requirements/"))
        own = {"framework", "toolkit"} | ({"devel"} if variant.devel else set())
        compiles = recipe.compiles
        for entry in found.lock.python:
            wanted = entry.group in own | {"tools", "sdist-build"} or (entry.compile and compiles)
            line = f"{entry.name}=={entry.version} --hash=sha256:{entry.sha256}\n"
            assert (line in admitted) == (wanted and is_wheel(entry)), entry.name
        installed = {entry.name for entry in found.lock.python if entry.group in own}
        constrained = files["requirements/constraints.txt"].splitlines()
        if refused := [line for line in constrained if line.endswith("<0")]:  # after those that are held
            assert variant.framework == "tensorflow"
            assert constrained[-len(refused) :] == refused
            constrained = constrained[: -len(refused)]
        assert [line.split("==")[0] for line in constrained] == sorted(installed)


# --- what a template may get wrong ---------------------------------------------------------------------------------


def refused(tree: Path, target: str = "sagemaker") -> ConfigError:
    intent = load_intent(tree)
    with pytest.raises(ConfigError) as raised:
        inputs.load(Recipe(intent, variant_of(intent, target)))
    assert raised.value.exit_code == 2
    return raised.value


@pytest.mark.parametrize(
    ("layer", "text", "meant"),
    [
        ("openmpi", "{{ pins.opnmpi }}", "openmpi"),
        ("openmpi", "{{ varaint.id }}", "variant"),
        ("openmpi", "{{ variant.nothing }}", ""),
        ("openmpi", '{{ pins["openmp"] }}', "openmpi"),
    ],
)
def test_undefined_variable(tree: Path, layer: str, text: str, meant: str) -> None:
    path = tree / f"dockerfiles/layers/{layer}.j2"
    rows = path.read_text().splitlines()
    line = rows.index("{% macro runtime() %}") + 2
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
    edit(tree / "dockerfiles/frameworks/image.j2", r"layers/python\.j2", "layers/pyhton.j2")
    assert "pyhton" in refused(tree).why


def test_framework_without_a_template(tree: Path) -> None:
    (tree / "dockerfiles/frameworks/pytorch.j2").unlink()
    assert "frameworks/pytorch.j2" in refused(tree).where


def test_pin_that_no_template_consumes(tree: Path, edit: Edit) -> None:
    """The layer is still there, and installs whatever it likes."""
    edit(tree / "dockerfiles/layers/libfabric.j2", r"\{\{ pins.libfabric \}\}", "1")
    error = refused(tree)
    assert error.what == "pin 'libfabric' of pytorch-2.13-cpu-py311-sagemaker is not used by any template"
    assert error.where == "dockerfiles/frameworks/pytorch.j2"


COMPONENT = """
licence = "MIT"
summary = "consumed by nobody"
position = "system"
[probe]
command = ["true"]
pattern = "(.*)"
[providers.one]
{provider}
"""


@pytest.mark.parametrize(
    ("provider", "pin"),
    [('packages = ["example"]', "one"), ('requirement = "example=={version}"', "1.0"), ('git = "x"\ntag = "v"', "1.0")],
)
def test_unused_pin_is_said_before_the_stale_lock(tree: Path, edit: Edit, provider: str, pin: str) -> None:
    """Whoever adds one would otherwise be told to lock first, for minutes, and only then that nobody wants it."""
    (tree / "dockerfiles/layers/example.toml").write_text(COMPONENT.format(provider=provider))
    (tree / "dockerfiles/layers/example.j2").write_text("{% macro runtime() %}\nLABEL a=b\n{% endmacro %}\n")
    edit(tree / "dockerfiles/matrix.toml", r"^\[common.pins\]", f'[common.pins]\nexample = "{pin}"')
    assert "'example'" in refused(tree).what


def test_a_test_of_versions_on_what_is_none(tree: Path, edit: Edit) -> None:
    """`within` raises ValueError: an error of the template, and no traceback."""
    edit(tree / "dockerfiles/layers/pip.j2", r"\{\{ python", '{{ "distro" is within(">=1") }}{{ python')
    assert "is not a version" in refused(tree).why


def test_a_stage_that_nobody_defines(tree: Path, edit: Edit) -> None:
    """`FROM cuda-compiler` in an image that pins no CUDA: the engine would ask a registry for it."""
    edit(tree / "dockerfiles/layers/pip.j2", r"\A", "{% macro stage() %}\nFROM cuda-compiler AS pip\n{% endmacro %}\n")
    error = refused(tree)
    assert "the stage 'cuda-compiler'" in error.what


def test_check_and_render_agree_on_what_is_consumed(intent: Intent) -> None:
    """The dry run of `check` must not be stricter, nor laxer, than the real one."""
    for variant in intent.variants:
        render.check(Recipe(intent, variant))


def test_what_is_compiled_against_the_others_comes_after_them(texts: dict[str, dict[str, str]]) -> None:
    """Its stage has the wheels of the image, and a job's constraints hold it as they hold those."""
    found = texts["horovod-0.28-cpu-py311-sagemaker"]
    stages = re.split(r"^FROM ", found["Dockerfile"], flags=re.M)
    (stage,) = [text for text in stages if text.startswith("builder AS horovod")]
    installed = re.findall(r"-r (/requirements\S*)", stages[-1])
    own = re.findall(r"-r (/requirements\S*)", stage)
    assert own == [f"/requirements/{name}.txt" for name in ("framework-1", "libraries", "sdist-build")]
    assert len(installed) == len(own), "the image has layers that its stage knows nothing of"
    assert stages[-1].rindex("from=horovod,source=/out,") > stages[-1].rindex("-r /requirements")
    assert re.findall(r"from=([\w-]+),source=horovod-[\d.]+\.tar\.gz", found["Dockerfile"]) == ["sdist-compile"]
    assert "\nhorovod==" in found["requirements/constraints.txt"]


def test_bake_file_builds_one_plain_image(texts: dict[str, dict[str, str]]) -> None:
    """SageMaker pulls a single-platform image with Docker media types; an attestation would make it an index."""
    for files in texts.values():
        target: dict[str, Any] = json.loads(files["docker-bake.json"])["target"]["image"]
        assert len(target["platforms"]) == 1
        assert target["attest"] == ["type=provenance,disabled=true", "type=sbom,disabled=true"]
        assert "oci-mediatypes=false" in target["output"][0]
        assert int(target["args"]["SOURCE_DATE_EPOCH"]) > 0
