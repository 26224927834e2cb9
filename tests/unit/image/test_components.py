"""Test that a component consists of two files in layers/ and its image tests, and that adding one changes no others."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from trainwright.core.errors import ConfigError
from trainwright.image import inputs, probe
from trainwright.matrix.matrix import Intent, Recipe, load_intent
from trainwright.matrix.model import Component, Provider

ROOT = Path(__file__).parents[3]
LAYERS = ROOT / "dockerfiles/layers"
NAMES = sorted(path.stem for path in LAYERS.glob("*.toml"))
# What every image starts from, what compiled ones hand over, and what ends a step.
TEMPLATES_OF_NO_COMPONENT = {"base", "manifest", "clamp"}


def test_the_search_has_not_lost_its_object() -> None:
    assert len(NAMES) > 9
    assert {"torch", "openmpi", "compiler"} < set(NAMES)


def test_every_template_belongs_to_a_component() -> None:
    assert {path.stem for path in LAYERS.glob("*.j2")} - TEMPLATES_OF_NO_COMPONENT == set(NAMES)


@pytest.fixture(params=NAMES)
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def component(intent: Intent, name: str) -> Component:
    return intent.components.components[name]


def test_template(name: str) -> None:
    """It consumes its pin and labels the image with it: what the probe finds is compared with that."""
    text = (LAYERS / f"{name}.j2").read_text()
    assert re.search(r"\{%-? macro runtime\(\)", text)
    assert f"pins.{name}" in text or f'pins["{name}"]' in text


def to_resolve(provider: Provider) -> str:
    """Return what the provider declares to be resolved to facts."""
    return str(provider.git or provider.url or provider.bundled_by or provider.requirement or provider.packages or "")


def test_providers(intent: Intent, component: Component) -> None:
    assert component.providers
    for provider in component.providers.values():
        assert to_resolve(provider) or provider.in_base
        if provider.kind in ("python", "file"):
            assert "{version}" in str(provider.requirement or provider.url)
        if provider.kind == "source":
            assert "{version}" in provider.tag
        if provider.bundled_by:
            assert provider.bundled_by in intent.components.components
            bundles = [
                release.bundles for release in intent.components.components[provider.bundled_by].releases.values()
            ]
            assert any(bundles), "no release says what it brings"


def test_pin(intent: Intent, name: str, component: Component) -> None:
    pins = [variant.pins[name] for variant in intent.variants if name in variant.pins]
    assert pins, "no image of the matrix carries it"
    assert {pin.provider for pin in pins} <= {*component.providers, "base"}


def test_releases_of_what_is_fetched(intent: Intent, name: str, component: Component) -> None:
    """A pinned version that is fetched from upstream is a known release: its commit or sha256 has evidence."""
    for variant in intent.variants:
        pin = variant.pins.get(name)
        if pin and component.provider(pin.provider).kind in ("source", "file"):
            release = component.releases[pin.version]
            assert release.evidence
            assert release.commit or release.sha256 or release.evidence.startswith("blocked"), variant.id


def test_probe(component: Component) -> None:
    asked = component.probe
    assert bool(asked.command) != bool(asked.code), "a program to run, or Python code"
    assert re.compile(asked.pattern).groups == 1
    if asked.code:
        compile(asked.code, "probe", "exec")
    assert probe.shown(asked.shows, "1.2.3")


def test_image_tests(name: str) -> None:
    path = ROOT / "tests/image" / f"test_{name.replace('-', '_')}.py"
    assert path.exists()
    assert f'component("{name}")' in path.read_text()
    assert re.search(r"^def test_", path.read_text(), re.MULTILINE)


def test_every_framework_is_trained_with(intent: Intent) -> None:
    """A framework without digits in its own words would skip the training tests in silence."""
    scripts = {path.stem.removeprefix("digits_") for path in (ROOT / "tests/train").glob("digits_*.py")}
    components = intent.components.components
    assert scripts <= {name for name in components if components[name].position == "framework"}
    without = {
        variant.framework
        for variant in intent.variants
        if variant.target == "sagemaker" and not scripts & variant.pins.keys()
    }
    assert without == {"base"}, "only this one has no framework"


# --- another component: files only ------------------------------------------------------------------------------------

EXAMPLE = """
licence = "GPL-3.0-only"
summary = "shows files, one screen at a time"
position = "system"
[probe]
command = ["less", "--version"]
pattern = 'less (\\d+)'
[providers.distro]
packages = ["less"]
"""
TEMPLATE = """
{% macro runtime() %}
LABEL io.trainwright.version.example="{{ pins.example }}"
{% endmacro %}
"""


def plant(root: Path, edit: Callable[[Path, str, str], None], template: str = TEMPLATE) -> Intent:
    """Add the component `example`: two new files, and its pin in the row."""
    (root / "dockerfiles/layers/example.toml").write_text(EXAMPLE)
    (root / "dockerfiles/layers/example.j2").write_text(template)
    edit(root / "dockerfiles/matrix.toml", r"^pins = \{ ", 'pins = { example = "distro", ')
    return load_intent(root)


def test_another_component_adds_files_only(
    tree: Path, edit: Callable[[Path, str, str], None], settle: Callable[[Path], None]
) -> None:
    plant(tree, edit)
    settle(tree)
    intent = load_intent(tree)
    carrying = [variant for variant in intent.variants if "example" in variant.pins]
    found = inputs.load(Recipe(intent, carrying[0]))
    version = found.distribution.packages()["less"].version
    assert f'LABEL io.trainwright.version.example="{version}"' in found.text["Dockerfile"]
    assert '"GPL-3.0-only' in found.text["Dockerfile"] or " GPL-3.0-only" in found.text["Dockerfile"]
    assert probe.questions(found.recipe, found.pins)["example"] == {
        "command": ["less", "--version"],
        "pattern": r"less (\d+)",
    }
    assert found.versions["example"] == probe.upstream_version(version)
    others = [variant for variant in intent.variants if variant not in carrying]
    assert others, "every image carries it: this shows nothing"
    assert "version.example=" not in inputs.load(Recipe(intent, others[0])).text["Dockerfile"]


def test_another_component_whose_template_forgets_its_pin(
    tree: Path, edit: Callable[[Path, str, str], None], settle: Callable[[Path], None]
) -> None:
    intent = plant(tree, edit, "{% macro runtime() %}\nLABEL a=b\n{% endmacro %}\n")
    variant = next(variant for variant in intent.variants if "example" in variant.pins)
    with pytest.raises(ConfigError, match="'example'"):
        inputs.load(Recipe(intent, variant))
