"""What an image says of itself, in /opt/trainwright/declared.json: compared with it before each job, and by verify."""

from collections.abc import Iterable, Mapping
from typing import Any

from pydantic_core import to_json

from trainwright import probe
from trainwright.matrix import Intent
from trainwright.model import Package, PythonFile, Variant

PLACE = "/opt/trainwright/declared.json"
LIBRARIES = "/opt/trainwright/libraries.json"  # what the image's last step found of them: path to component and sha256


def declaration(
    intent: Intent,
    variant: Variant,
    pins: Mapping[str, str],
    installed: Iterable[PythonFile],
    packages: Mapping[str, Package],
) -> dict[str, Any]:
    """The lock as far as an image can be asked about it, and how: no knowledge of this checkout is needed to compare.

    `pins` is component to exact version, `installed` the image's Python packages, `packages` the distribution's.
    """
    components, says = intent.components.components, probe.expected_versions(intent, variant, pins)
    return {
        "schema": 1,
        "id": variant.id,
        "accelerator": variant.accelerator,
        "components": {
            name: {
                "version": pins[name],
                "says": says[name],
                "position": components[name].position,
                "compiled": components[name].providers[variant.pins[name].provider].kind == "source",
                "probe": probe.questions(intent, [name])[name],
                "at_start": components[name].probe.at_start,
                "libraries": components[name].libraries,
                "symbol": components[name].symbol,
                "variables": components[name].variables,
            }
            for name in sorted(pins, key=lambda name: (*_weight(intent, name), name))
        },
        "python": {entry.name: entry.version for entry in installed},
        "may_move": intent.components.tools.may_move,
        "packages": {name: packages[name].version for name in sorted(packages)},
    }


def _weight(intent: Intent, name: str) -> tuple[bool, bool]:
    """The framework is loaded first, as a job does: which libraries a process gets may depend on who asks first."""
    component = intent.components.components[name]
    return component.position != "framework", bool(component.libraries)


def text(
    intent: Intent,
    variant: Variant,
    pins: Mapping[str, str],
    installed: Iterable[PythonFile],
    packages: Mapping[str, Package],
) -> str:
    """Write it as json.dumps(indent=1) does, which is slow: hundreds of packages in each image."""
    said = declaration(intent, variant, pins, installed, packages)
    return to_json(said, indent=1, ensure_ascii=True).decode() + "\n"
