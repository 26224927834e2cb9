"""Test random matrices: each is refused with an error, or its images render and contain what it declares."""

import random
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, event, given, settings
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn

from trainwright.core.errors import ConfigError, IncompatibleError
from trainwright.image import inputs, render
from trainwright.lock import facts
from trainwright.matrix import validate
from trainwright.matrix.matrix import Intent, Recipe, expand, load_intent
from trainwright.matrix.model import Framework, Matrix, Row, Target, Variant

INTENT = load_intent(Path(__file__).parents[3])  # hypothesis runs a test many times: it is read once
COMPONENTS = INTENT.components.components
ALWAYS = ("python", "pip", "torch")  # an image without these is none of the framework's
VERSIONS = {  # what pins of this checkout and known releases name
    name: sorted(
        {*component.releases}
        | {v.pins[name].version for v in INTENT.variants if name in v.pins and v.pins[name].version}
    )
    or ["1.2.3"]
    for name, component in COMPONENTS.items()
}


@st.composite
def pins(draw: DrawFn, names: list[str]) -> dict[str, str]:
    """Draw some components, each with one of its providers; some pins are wrong."""
    found = {}
    for name in names:
        component = COMPONENTS[name]
        provider = draw(st.sampled_from(sorted(component.providers)))
        kind = component.providers[provider].kind
        version = draw(st.sampled_from(VERSIONS[name]))
        right = provider if kind in ("distro", "bundled") else f"{provider} {version}"
        wrong = draw(st.integers(0, 40)) == 0
        found[name] = draw(st.sampled_from([version, f"{provider} x", "", "nobody 1"])) if wrong else right
    return found


@st.composite
def matrices(draw: DrawFn) -> Matrix:
    optional = sorted(set(COMPONENTS) - set(ALWAYS))
    chosen = draw(st.lists(st.sampled_from(optional), min_size=3, unique=True))
    places = {name: draw(st.sampled_from(["common", "row", "target", "devel"])) for name in chosen}

    def of(place: str) -> list[str]:
        return [name for name in chosen if places[name] == place]

    instances = draw(st.lists(st.sampled_from(sorted(INTENT.instances)), max_size=3))
    accelerators = draw(st.lists(st.sampled_from(["cpu", "cu132", "cu126"]), min_size=1, max_size=2, unique=True))
    rows = [
        Row(
            release="2.15",
            accelerators=accelerators,
            pythons=draw(st.lists(st.sampled_from(["3.11", "3.13"]), min_size=1, unique=True)),
            targets=draw(st.lists(st.sampled_from(["ec2", "sagemaker"]), min_size=1, unique=True)),
            bases=draw(st.lists(st.sampled_from(sorted(INTENT.components.bases)), min_size=1, max_size=2, unique=True)),
            flavour=draw(st.sampled_from(["", "distro"])),
            instances=instances,
            devel=draw(st.booleans()),
            pins=draw(pins(of("row"))),
        )
    ]
    return Matrix(
        common=Target(pins={**draw(pins(list(ALWAYS))), **draw(pins(of("common")))}),
        devel=Target(pins=draw(pins(of("devel")))),
        targets={"ec2": Target(pins={}), "sagemaker": Target(pins=draw(pins(of("target"))))},
        frameworks={"pytorch": Framework(default="", rows=rows)},
    )


CONTEXTS = {"requirements", "rootfs", "sources", "packages", "build-packages", "tools", "sdist-build", "compile"}
CONTEXTS |= {"libraries", "toolkit", "devel", "framework-1"}


def order_of_stages(dockerfile: str) -> list[str]:
    """List the names that stand before their stage, which the engine would take for images of a registry."""
    known, wrong = {"scratch", *CONTEXTS}, []
    for line in dockerfile.splitlines():
        if stage := re.match(r"FROM (\S+)(?: AS (\S+))?$", line):
            wrong += [line] if stage[1] not in known and "/" not in stage[1] else []  # a registry's: named in full
            known.add(stage[2] or "")
        elif named := re.search(r"[ ,-]from=([^,\s]+)", line.split("#")[0]):
            wrong += [line] if named[1] not in known and "/" not in named[1] else []
    return wrong


def test_the_order_of_stages_can_be_wrong() -> None:
    assert order_of_stages("FROM scratch AS base\nFROM base\n") == []
    assert order_of_stages("FROM base\n") == ["FROM base"]
    assert order_of_stages("FROM scratch\nCOPY --link --from=later /a /a\n") == ["COPY --link --from=later /a /a"]
    assert order_of_stages("FROM scratch\nRUN --mount=type=bind,from=x,target=/y true\n") != []


def refused(intent: Intent, variant: Variant) -> str:
    """Return the class of the error that refuses a variant before rendering; "" if it is not refused."""
    try:
        for name in variant.pins:
            validate.check_pin(intent.root, intent.matrix, intent.components, variant, name)
        facts.admit(Recipe(intent, variant), None, {}, {})
    except (ConfigError, IncompatibleError) as error:
        return type(error).__name__
    return ""


def lacks(intent: Intent, variant: Variant) -> str:
    """Return the component that a template uses but that is not pinned; "" if none is missing."""
    try:
        render.check(Recipe(intent, variant))
    except ConfigError as error:
        if "uses the stage 'cuda-compiler'" in error.what:
            return "cuda"
        missing = re.search(r"has no (?:attribute|element) '([\w-]+)'", error.why)
        return missing[1] if missing else str(error)
    return ""


@settings(max_examples=40, suppress_health_check=[HealthCheck.too_slow], phases=[Phase.generate])
@given(matrices())
def test_any_matrix_that_is_admitted_renders_and_carries_what_it_declares(declared: Matrix) -> None:
    try:
        variants = list(expand(declared, COMPONENTS))
    except ConfigError:
        event("no pin")
        return
    intent = INTENT.model_copy(update={"matrix": declared, "variants": variants})
    for variant in (variants[0], variants[-1]):
        if why := refused(intent, variant):
            event(why)
            continue
        if lacking := lacks(intent, variant):
            event("needs another component")
            assert lacking in COMPONENTS.keys() - variant.pins.keys()
            continue
        dockerfile = render.check(Recipe(intent, variant))
        event("renders")
        assert order_of_stages(dockerfile) == []
        for name, pin in variant.pins.items():
            assert f'io.trainwright.version.{name}="{pin.version or pin.provider}"' in dockerfile


# --- the same intent in another order -------------------------------------------------------------------------------

KINDS = [
    recipe
    for recipe in inputs.held(INTENT)
    if recipe.id.endswith(("-2.13-cpu-py311-sagemaker", "-2.15-cu132-py313-ec2", "-2.15-cu132-py313-ec2-distro-devel"))
]


@settings(max_examples=5)
@given(st.randoms(use_true_random=False))
@pytest.mark.parametrize("recipe", KINDS, ids=lambda recipe: recipe.id)
def test_keys_know_no_order(recipe: Recipe, rng: random.Random) -> None:
    """Of pins in matrix.toml, of entries and sources in a lock, of files in a folder: none of them is an input."""
    found, held = inputs.load(recipe), inputs.read_lock(recipe)

    def shuffled(rows: list[Any]) -> list[Any]:
        return rng.sample(rows, len(rows))

    lock = held.model_copy(update={"python": shuffled(held.python), "sources": shuffled(held.sources)})
    other = recipe.variant.model_copy(update={"pins": dict(shuffled(list(recipe.pins.items())))})
    twins = [other if each.id == recipe.id else each for each in INTENT.variants]
    components = INTENT.components.model_copy(update={"components": dict(shuffled(list(COMPONENTS.items())))})
    intent = INTENT.model_copy(update={"variants": shuffled(twins), "components": components})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(inputs, "read_lock", lambda *_: lock)
        patch.setattr(inputs, "_rootfs", lambda *_: dict(shuffled(list(found.rootfs.items()))))
        again = inputs.load(Recipe(intent, other))
    assert again.key == found.key
    assert again.text == found.text
