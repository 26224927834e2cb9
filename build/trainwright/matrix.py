"""Intent into variants: expand the axes, name each image, select by framework, id or glob."""

from collections.abc import Iterator
from fnmatch import fnmatchcase
from itertools import product
from pathlib import Path

from packaging.requirements import InvalidRequirement, Requirement
from packaging.version import InvalidVersion, Version

from trainwright.config import load
from trainwright.errors import ConfigError, did_you_mean
from trainwright.model import Component, Components, Matrix, Model, Variant


class Intent(Model):
    """Everything a person wrote: the matrix, the components, and the variants that follow."""

    root: Path
    matrix: Matrix
    components: Components
    variants: list[Variant]


def image_id(framework: str, release: str, accelerator: str, python: str, target: str, flavour: str) -> str:
    """`<framework>-<major.minor>-<accelerator>-<pyXY>-<target>[-<flavour>]`."""
    parts = [framework, release, accelerator, "py" + python.replace(".", ""), target, flavour]
    return "-".join(part for part in parts if part)


def expand(matrix: Matrix) -> Iterator[Variant]:
    """Every cell of the matrix. The first base of a row is unnamed in the id; another one is a flavour."""
    for name, framework in matrix.frameworks.items():
        for row in framework.rows:
            for accelerator, python, target, base in product(row.accelerators, row.pythons, row.targets, row.bases):
                if target not in matrix.targets:
                    raise ConfigError(
                        f"unknown target {target!r}",
                        where=f"dockerfiles/matrix.toml: frameworks.{name}",
                        why=did_you_mean(target, matrix.targets),
                        fix=f"add [targets.{target}.pins], or correct the row",
                    )
                flavour = "" if base == row.bases[0] else base
                identity = image_id(name, row.release, accelerator, python, target, flavour)
                yield Variant(
                    id=identity,
                    framework=name,
                    release=row.release,
                    accelerator=accelerator,
                    python=python,
                    target=target,
                    base=base,
                    default=identity == framework.default,
                    pins=matrix.common.pins | row.pins | matrix.targets[target].pins,
                )


def load_intent(root: Path) -> Intent:
    """Read matrix.toml and components.toml below `root`. Raises ConfigError with file and line."""
    matrix = load(root / "dockerfiles/matrix.toml", Matrix)
    components = load(root / "dockerfiles/components.toml", Components)
    variants = list(expand(matrix))
    _check(matrix, components, variants)
    return Intent(root=root, matrix=matrix, components=components, variants=variants)


def select(variants: list[Variant], framework: str | None, only: str | None) -> list[Variant]:
    """`framework` means its one default variant, `only` is an id or a glob; neither means all.

    Raises ConfigError, with the valid names, where nothing matches.
    """
    frameworks = {variant.framework for variant in variants}
    if framework is not None and framework not in frameworks:
        raise ConfigError(
            f"unknown framework {framework!r}" if framework else "FRAMEWORK is empty",
            why=did_you_mean(framework, frameworks),
            fix=f"make build FRAMEWORK={min(frameworks)}" if frameworks else "add one to dockerfiles/matrix.toml",
        )
    if framework is not None and only is None:
        return [variant for variant in variants if variant.framework == framework and variant.default]
    chosen = [
        variant
        for variant in variants
        if fnmatchcase(variant.id, only if only is not None else "*") and framework in (None, variant.framework)
    ]
    if not chosen:
        raise ConfigError(
            f"no image is called {only!r}",
            why=did_you_mean(only or "", [variant.id for variant in variants]),
            fix="trainwright list",
        )
    return chosen


def _check(matrix: Matrix, components: Components, variants: list[Variant]) -> None:
    """Names that lead nowhere, and names that nothing leads to."""
    ids = [variant.id for variant in variants]
    if twice := {identity for identity in ids if ids.count(identity) > 1}:
        raise ConfigError(f"two cells of the matrix have the id {min(twice)!r}", where="dockerfiles/matrix.toml")
    for name, framework in matrix.frameworks.items():
        if framework.default not in [variant.id for variant in variants if variant.framework == name]:
            raise ConfigError(
                f"the default of {name} is no cell of the matrix",
                where=f"dockerfiles/matrix.toml: frameworks.{name}.default = {framework.default!r}",
                why=did_you_mean(framework.default, ids),
            )
    for variant in variants:
        for pin in variant.pins:
            if pin not in components.components:
                raise ConfigError(
                    f"pin {pin!r} of {variant.id} names no component",
                    where="dockerfiles/matrix.toml",
                    why=did_you_mean(pin, components.components),
                    fix=f"add [components.{pin}] to dockerfiles/components.toml, or correct the pin",
                )
            _check_pin(variant, pin, components.components[pin])
        if variant.base not in components.bases:
            raise ConfigError(
                f"{variant.id} starts from unknown base {variant.base!r}",
                where="dockerfiles/matrix.toml",
                why=did_you_mean(variant.base, components.bases),
            )
    pinned = {pin for variant in variants for pin in variant.pins}
    for name in components.components:
        if name not in pinned:
            raise ConfigError(
                f"component {name!r} is declared and never pinned",
                where=f"dockerfiles/components.toml: [components.{name}]",
                why="what is declared is what ships: no image of the matrix carries it",
                fix=f"pin it in dockerfiles/matrix.toml, or delete [components.{name}]",
            )


def _check_pin(variant: Variant, pin: str, component: Component) -> None:
    """A version that its provider cannot honour would be declared, and not what ships."""
    declared = variant.pins[pin]
    where = f"dockerfiles/matrix.toml: {pin} = {declared!r}"
    if component.provider == "distro":
        if declared != "distro":
            raise ConfigError(
                f"pin {pin!r} of {variant.id} asks for a version that nobody could honour",
                where=where,
                why="the distribution's packages bring the one that the lock names",
                fix=f'{pin} = "distro", or another provider in [components.{pin}]',
            )
        return
    try:
        Version(declared)
        Requirement(component.requirement.format(version=declared, accelerator=variant.accelerator))
    except (InvalidVersion, InvalidRequirement, KeyError, IndexError, ValueError) as error:
        raise ConfigError(
            f"pin {pin!r} of {variant.id} makes no Python requirement",
            where=f"{where}, dockerfiles/components.toml: [components.{pin}] requirement = {component.requirement!r}",
            why=f"{type(error).__name__}: {error}",
            fix="an exact version, and a requirement with {version} and, if need be, {accelerator}",
        ) from None
