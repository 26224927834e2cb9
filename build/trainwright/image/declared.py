"""Render /opt/trainwright/declared.json: what the image should hold, compared with it before each job and by verify."""

from collections.abc import Iterable, Mapping
from typing import Any

from pydantic_core import to_json

from trainwright.image import probe
from trainwright.matrix.matrix import Recipe
from trainwright.matrix.model import Component, Package, PythonFile

PLACE = "/opt/trainwright/declared.json"
LIBRARIES = "/opt/trainwright/libraries.json"  # written by the image's last step: path to component and sha256


def declaration(
    recipe: Recipe, pins: Mapping[str, str], installed: Iterable[PythonFile], packages: Mapping[str, Package]
) -> dict[str, Any]:
    """Return the part of the lock that an image can be checked against without a checkout, and how to check it.

    `pins` maps components to versions; `installed` are the image's Python packages, `packages` the distribution's.
    """
    says = probe.expected_versions(recipe, pins)
    components = {name: recipe.component(name) for name in pins}
    return {
        "schema": 1,
        "id": recipe.id,
        "accelerator": recipe.variant.accelerator,
        "components": {
            name: {
                "version": pins[name],
                "says": says[name],
                "position": components[name].position,
                "compiled": recipe.provider(name).kind == "source",
                "probe": probe.questions(recipe, [name])[name],
                "at_start": components[name].probe.at_start,
                "libraries": components[name].libraries,
                "symbol": components[name].symbol,
                "variables": components[name].variables,
            }
            for name in sorted(pins, key=lambda name: (*_weight(components[name]), name))
        },
        "python": {entry.name: entry.version for entry in installed},
        "may_move": recipe.tools.may_move,
        "packages": {name: packages[name].version for name in sorted(packages)},
    }


def _weight(component: Component) -> tuple[bool, bool]:
    """Sort the framework first, as a job loads it, because the load order may decide which libraries a process gets."""
    return component.position != "framework", bool(component.libraries)


def text(
    recipe: Recipe, pins: Mapping[str, str], installed: Iterable[PythonFile], packages: Mapping[str, Package]
) -> str:
    """Render it as json.dumps(indent=1) would, which is slow: each image has hundreds of packages."""
    said = declaration(recipe, pins, installed, packages)
    return to_json(said, indent=1, ensure_ascii=True).decode() + "\n"
