"""Render templates into text as a pure function of the lock: no clock, no environment, no randomness."""

import json
import re
from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase
from typing import Any, get_args

from trainwright.core.errors import ConfigError, did_you_mean
from trainwright.image import declared, preflight_settings
from trainwright.image.templates import fill
from trainwright.lock import overlaps
from trainwright.lock.lockfile import build_packages, distribution_packages, python_name
from trainwright.lock.wheels import COMPILE, LIBRARIES, SDISTS, folders, is_wheel
from trainwright.matrix.compat import floor
from trainwright.matrix.matrix import Recipe
from trainwright.matrix.model import Base, Lock, Package, Position, PythonFile
from trainwright.matrix.providers import for_accelerator, is_compiled


class Pins(Mapping[str, str]):
    """Pins that record which of them were read; a pin that no template reads is an error."""

    def __init__(self, versions: dict[str, str]) -> None:
        self._versions, self.asked = versions, set[str]()

    def __getitem__(self, name: str) -> str:
        self.asked.add(name)
        return self._versions[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._versions)

    def __len__(self) -> int:
        return len(self._versions)


def requirement_lines(files: list[PythonFile]) -> str:
    """Return a requirements file that admits exactly these files: `name==version --hash=sha256:...`."""
    return "".join(f"{entry.name}=={entry.version} --hash=sha256:{entry.sha256}\n" for entry in files)


def constraint_lines(files: list[PythonFile], refused: list[str]) -> str:
    """Return constraints that hold a job's requirements at the proved versions, and admit no version of `refused`."""
    held = "".join(f"{entry.name}=={entry.version}\n" for entry in files)
    return held + "".join(f"{name}<0\n" for name in refused)


def check(recipe: Recipe) -> str:
    """Render the Dockerfile as far as it is known without a lock.

    Raises ConfigError for errors that no lock can fix: an undefined variable, a pin that no template consumes.
    """
    versions = {name: pin.version or pin.provider for name, pin in recipe.pins.items()}
    empty: dict[str, list[PythonFile]] = {"framework-1": [], LIBRARIES: [], "toolkit": [], "devel": [], SDISTS: []}
    return _dockerfile(recipe, versions, empty, {}, {}, 0, {})


def render(
    recipe: Recipe,
    lock: Lock,
    versions: dict[str, str],
    folders: Mapping[str, list[PythonFile]],
    packages: Mapping[str, Package],
    tools: Mapping[str, Package],
    epoch: int,
) -> dict[str, str]:
    """Render the Dockerfile and the requirement files: path below out/<id>/ to text.

    `versions` are those of the pins, `folders` those of folders_of(), `packages` those of the base, `tools` those that
    compile stages have beyond them; `epoch` is SOURCE_DATE_EPOCH in seconds. Raises ConfigError, with template and
    line, for an undefined variable and for a pin that no template consumed.
    """
    rules = left_out(recipe, folders)
    text = _dockerfile(recipe, versions, folders, packages, tools, epoch, rules)
    installed = [entry for _, entry in sorted(recipe.installed(lock).items())]
    rendered = {
        "Dockerfile": text,
        "requirements/constraints.txt": constraint_lines(installed, refused(recipe)),
        "requirements/declared.json": declared.text(recipe, versions, installed, packages),
        "requirements/preflight.json": preflight_settings.text(recipe.intent, versions),
    }
    for folder, entries in folders.items():
        rendered[f"requirements/{folder}.txt"] = requirement_lines([entry for entry in entries if is_wheel(entry)])
    for folder, own in rules.items():
        rendered[f"requirements/{folder}.left-out.json"] = json.dumps(own, indent=1) + "\n"
    return rendered


def left_out(recipe: Recipe, folders: Mapping[str, list[PythonFile]]) -> dict[str, list[dict[str, Any]]]:
    """Return what each folder's installation leaves out: the rules of the pinned components for the packages in it."""
    shipped = recipe.variant.groups
    rules = [(name, rule) for name in sorted(recipe.pins) for rule in recipe.component(name).left_out]
    made: dict[str, list[dict[str, Any]]] = {}
    for folder, entries in folders.items():
        found = [
            {"component": name, "wheel": entry.file, **rule.model_dump(exclude={"not_in"}), "package": entry.name}
            for entry in entries
            if entry.group in shipped and folder != COMPILE
            for name, rule in rules
            if fnmatchcase(entry.name, rule.package) and not any(fnmatchcase(entry.version, one) for one in rule.not_in)
        ]
        if found:
            made[folder] = found
    return made


def refused(recipe: Recipe) -> list[str]:
    """Return the Python packages that contain a pinned package under another name."""
    said = {for_accelerator(recipe.provider(pin).refuses, recipe.variant.accelerator) for pin in recipe.pins}
    return sorted(said - {""})


def folders_of(recipe: Recipe, lock: Lock) -> dict[str, list[PythonFile]]:
    """Return the files of each folder below out/<id>/wheels/."""
    own = {python_name(recipe, pin) for pin in recipe.pins}
    replaced = {for_accelerator(recipe.provider(pin).replaces, recipe.variant.accelerator) for pin in recipe.pins}
    compiled = {python_name(recipe, pin) for pin in recipe.pins if recipe.provider(pin).compile}
    losers = overlaps.losers(lock.overlaps, recipe.intent.compat.winners)
    compiling = recipe.compiles
    return folders(lock.python, own, replaced, recipe.tools.layers, recipe.variant.devel, compiling, compiled, losers)


def _dockerfile(
    recipe: Recipe,
    versions: dict[str, str],
    folders: Mapping[str, list[PythonFile]],
    packages: Mapping[str, Package],
    tools: Mapping[str, Package],
    epoch: int,
    rules: Mapping[str, list[dict[str, Any]]],
) -> str:
    pins, held = Pins(versions), {**packages, **tools}
    installers = {recipe.provider(pin).bundled_by for pin in recipe.pins}
    context = {
        "variant": recipe.variant,
        "base": recipe.base,
        "pins": pins,
        "providers": {name: pin.provider for name, pin in recipe.pins.items()},
        "components": {name: recipe.component(name) for name in _stage_order(recipe)},
        "positions": {
            place: sorted(
                (name for name in recipe.pins if recipe.component(name).position == place),
                key=lambda name: (name not in installers, name),  # a component that bundles others comes before them
            )
            for place in get_args(Position)
        },
        "architectures": recipe.capabilities,
        "toolkit": recipe.toolkit,
        "driver_floor": floor(recipe.intent.compat, "cuda", versions.get("cuda", ""), "driver"),
        "site": f"/opt/venv/lib/python{recipe.variant.python}/site-packages",
        "parts": [folder for folder in folders if folder.startswith("framework-")],
        "left_out": rules,
        "cut": {
            name: [entry for entry in entries if entry.size > recipe.tools.layers.most]
            for name, entries in folders.items()
        },
        "sdists": {name: [entry for entry in entries if not is_wheel(entry)] for name, entries in folders.items()},
        "compiles": recipe.compiles,
        "build_packages": _beyond(recipe.base, tools) * (recipe.base.manager == "dnf")
        or [_exactly(recipe.base, name, held) for name in build_packages(recipe.intent, recipe.variant.base)],
        "epoch": epoch,
        "licences": licences(recipe),
        "packages": _beyond(recipe.base, packages)
        or [
            _exactly(recipe.base, name, held)
            for name in distribution_packages(recipe.intent, recipe.variant.base)
            if recipe.base.manager == "apt" or name not in held
        ],
    }
    text = fill(recipe.intent, f"frameworks/{recipe.variant.framework}.j2", context)
    _check_stages(recipe, text)
    if unused := sorted(set(pins) - pins.asked):
        raise ConfigError(
            f"pin {unused[0]!r} of {recipe.id} is not used by any template",
            where=f"dockerfiles/frameworks/{recipe.variant.framework}.j2",
            why="a version that no template installs must not be advertised",
            fix=f"use pins[{unused[0]!r}] in dockerfiles/layers/{unused[0]}.j2, or remove the pin from matrix.toml",
        )
    return text


def _beyond(base: Base, packages: Mapping[str, Package]) -> list[str]:
    """Return what a registry image lacks, in apt's notation or as files of rpm; [] for a base resolved as a whole."""
    added = [package for package in packages.values() if base.provider == "image" and package.sha256]
    return [one.filename if base.manager == "dnf" else f"{one.name}={one.version}" for one in added]


def _exactly(base: Base, name: str, held: Mapping[str, Package]) -> str:
    """Return a package in apt's notation, or as a file of rpm; without a lock its version is `awaited`."""
    if base.manager == "dnf":
        return held[name].filename if name in held else f"{name}-awaited.rpm"
    return f"{name}={held[name].version}" if name in held else f"{name}=awaited"


def _check_stages(recipe: Recipe, text: str) -> None:
    """Check that each stage is defined above its use, because the engine would otherwise pull an image of that name."""
    known = {"scratch", recipe.base.reference}
    for below, stage in re.findall(r"^FROM (\S+)(?: AS (\S+))?$", text, re.MULTILINE):
        if below not in known:
            raise ConfigError(
                f"{recipe.id} uses the stage {below!r}, which none of its components defines",
                where=f"dockerfiles/frameworks/{recipe.variant.framework}.j2",
                why=f"{did_you_mean(below, known - {''})}; the engine would look for an image of that name",
                fix="pin the component that defines the stage in dockerfiles/matrix.toml",
            )
        known.add(stage)


def _stage_order(recipe: Recipe) -> list[str]:
    """Return components in stage order: the interpreter's installer, what others are compiled with, what is compiled.

    Because a stage can name only those above it, the order in which pins are written is not used.
    """

    def place(name: str) -> tuple[bool, bool, str]:
        compiled = is_compiled(recipe.provider(name))
        return compiled, recipe.component(name).position != "interpreter", name

    return sorted(recipe.pins, key=place)


def licences(recipe: Recipe) -> str:
    """Return the SPDX expression of what the image pins, and of the parts of its installers."""
    pinned = [recipe.component(pin) for pin in recipe.pins]
    said = [licence for one in pinned for licence in (one.licence, *(part.licence for part in one.parts))]
    found = {f"({text})" if " OR " in text else text for text in said if " AND " not in text}
    found |= {part for text in said if " AND " in text for part in text.split(" AND ")}
    return " AND ".join(sorted(found))
