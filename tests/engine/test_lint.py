"""Test BuildKit's check on a real engine: it accepts what we render, and finds planted errors."""

import json
from pathlib import Path

import pytest

from trainwright.build import lint
from trainwright.build.lint import Row
from trainwright.docker import engine
from trainwright.image import inputs
from trainwright.matrix.matrix import Recipe, load_intent
from trainwright.matrix.model import Variant

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.engine
IMAGE = "registry.invalid/debian@sha256:" + "d" * 64
BAKE = json.dumps({"target": {"image": {"contexts": {"rootfs": "rootfs"}, "tags": ["trainwright/lint:test"]}}})


@pytest.fixture(autouse=True)
def _new_enough() -> None:
    """Skip if the engine is too old for BuildKit's check: such an engine is supported, but proves nothing here."""
    if why := lint.why_no_check(ROOT):
        pytest.skip(f"not run: {why}")


def checked(dockerfile: str) -> list[Row]:
    return lint.buildkit(ROOT, {"one": {"Dockerfile": dockerfile, "docker-bake.json": BAKE}})


def red(rows: list[Row], *rules: str) -> bool:
    """Return whether the failed rows name exactly these rules."""
    return {row.finding.split(":")[0] for row in rows if row.state == "failed"} == set(rules)


def test_nothing_to_say_of_every_template() -> None:
    """`make test` lints every image; these bring every framework, target, component and provider between them."""
    intent, chosen, seen = load_intent(ROOT), list[Variant](), set[object]()
    for variant in intent.variants:
        brings = {variant.framework, variant.target} | {(name, pin.provider) for name, pin in variant.pins.items()}
        chosen += [variant] if brings - seen else []
        seen |= brings
    rows = lint.buildkit(ROOT, {variant.id: inputs.text_of(Recipe(intent, variant)) for variant in chosen})
    assert {row.subject for row in rows} == {variant.id for variant in chosen}
    assert red(rows), rows


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("FROM scratch as base\n", "FromAsCasing"),
        ("FROM scratch\nCOPY --from=rootfs /$nowhere /a\n", "UndefinedVar"),
        ("FROM scratch\nENV HF_TOKEN=x\n", "SecretsUsedInArgOrEnv"),
        (f"FROM {IMAGE}\nCMD true\n", "JSONArgsRecommended"),
        ("FROM scratch\nRUNN true\n", "dockerfile parse error on line 2"),
    ],
)
def test_a_warning_is_red(text: str, rule: str) -> None:
    assert red(checked(text), rule), checked(text)


def test_a_base_from_a_registry_is_not_fetched_and_nothing_is_tagged() -> None:
    assert red(checked(f"FROM {IMAGE} AS base\nCOPY --link --from=rootfs /a /a\n"))
    assert engine.image_id("trainwright/lint:test") is None
