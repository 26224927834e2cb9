"""Validate the matrix: reject references that do not resolve, and versions that no provider can honour.

Every error names the table of the matrix that decides it, and the line.
"""

import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path

import tomli
from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from trainwright.core.errors import ConfigError, did_you_mean
from trainwright.core.toml import line_of, line_setting, load
from trainwright.matrix.instances import FILE, Instance, family_of, refuse, refused_families, unknown
from trainwright.matrix.model import Base, Component, Components, Matrix, Variant
from trainwright.matrix.providers import VERSIONLESS, bundled, requirement

MATRIX = "dockerfiles/matrix.toml"
BASES = "dockerfiles/bases.toml"


def declared(matrix: Matrix, variant: Variant, name: str, text: str) -> tuple[str, str]:
    """Return the table of the matrix that decides a pin, and its file:line. `text` is that of matrix.toml."""
    what, path, _ = last_word(matrix, variant, name)
    return what, f"{MATRIX}:{line_setting(text, name, line_of(text, path))}"


def written(matrix: Matrix, variant: Variant, name: str) -> str:
    """Return a pin as written in the matrix: `name = "text"`."""
    return f'{name} = "{last_word(matrix, variant, name)[2]}"'


def in_row(framework: str, row: int, text: str, *path: str) -> str:
    """Return file:line of a key in a row of the matrix; `path` are the keys, the last one is searched for."""
    return f"{MATRIX}:{line_of(text, ('frameworks', framework, 'rows', row, *path))}"


def in_instances(root: Path, matrix: Matrix, variant: Variant, instance: str) -> str:
    """Return file:line of an instance type of an image: in its row, else in the row's stack."""
    text, row = (root / MATRIX).read_text(), matrix.frameworks[variant.framework].rows[variant.row]
    if row.instances:
        return in_row(variant.framework, variant.row, text, "instances", instance)
    return f"{MATRIX}:{line_of(text, ('stacks', row.stack, 'instances', instance))}"


def in_base(bases: str, name: str, key: str) -> str:
    """Return file:line of a key of a base, or of the base that it is like. `bases` is the text of bases.toml."""
    said = tomli.loads(bases)["bases"]
    owner = name if key in said[name] else said[name].get("like", name)
    return f"{BASES}:{line_of(bases, ('bases', owner, key))}"


def edit(where: str, remedy: str) -> str:
    """Return the command that opens file:line, with the remedy as a comment."""
    file, _, line = where.partition(":")
    return f"$EDITOR +{line} {file}   # {remedy}"


def last_word(matrix: Matrix, variant: Variant, name: str) -> tuple[str, tuple[int | str, ...], str]:
    """Return the table that decides a pin, its path in matrix.toml, and the pin as written there."""
    framework, row = variant.framework, variant.row
    said = matrix.frameworks[framework].rows[row]
    stack = matrix.stacks[said.stack].pins if said.stack else {}
    tables: list[tuple[str, Mapping[str, str], tuple[int | str, ...]]] = [
        ("devel", matrix.devel.pins if variant.devel else {}, ("devel",)),
        (f"row {row + 1} of {framework}", said.pins, ("frameworks", framework, "rows", row)),
        (f"stack {said.stack}", stack, ("stacks", said.stack)),
        (f"framework {framework}", matrix.frameworks[framework].pins, ("frameworks", framework)),
        (f"target {variant.target}", matrix.targets[variant.target].pins, ("targets", variant.target)),
        ("common", matrix.common.pins, ("common",)),
    ]
    return next((what, path, pins[name]) for what, pins, path in tables if name in pins)


CUDA = ("cuda", "nccl")  # components for GPUs only
# Ids and bases become names of files, folders and tags (at most 128 characters, with a key), lines of scripts and YAML.
NAME, LONGEST = re.compile(r"[a-z0-9]+([._-][a-z0-9]+)*"), 100


def check(root: Path, matrix: Matrix, components: Components, variants: list[Variant]) -> None:
    """Validate every name in the matrix and its references to images, bases and components. Raises ConfigError."""
    ids = [variant.id for variant in variants]
    for what, names, file in (("an image", ids, MATRIX), ("a base", components.bases, "dockerfiles/bases.toml")):
        if wrong := next((name for name in names if not NAME.fullmatch(name) or len(name) > LONGEST), None):
            raise ConfigError(
                f"{wrong!r} is not a valid name of {what}",
                where=str(file),
                why=f"lower-case letters and digits, with single . _ - between; at most {LONGEST} characters",
                fix=f"$EDITOR {file}",
            )
    if twice := {identity for identity in ids if ids.count(identity) > 1}:
        last = [variant for variant in variants if variant.id == min(twice)][-1]
        where = in_row(last.framework, last.row, (root / MATRIX).read_text())
        why = "another row has the same release, accelerator, Python, target and flavour"
        fix = edit(where, "give the row a flavour of its own")
        raise ConfigError(f"two rows of the matrix make the id {min(twice)!r}", where=where, why=why, fix=fix)
    for name, framework in matrix.frameworks.items():
        if framework.default not in [variant.id for variant in variants if variant.framework == name]:
            raise ConfigError(
                f"{framework.default}, the default image of {name}, is not in the matrix",
                where=f"dockerfiles/matrix.toml: frameworks.{name}",
                why=did_you_mean(framework.default, ids),
            )
    used = {row.stack for framework in matrix.frameworks.values() for row in framework.rows}
    if unused := sorted(matrix.stacks.keys() - used):
        where = f"{MATRIX}:{line_of((root / MATRIX).read_text(), ('stacks', unused[0]))}"
        raise ConfigError(f"no row uses the stack {unused[0]!r}", where=where, fix=edit(where, "remove it"))
    for named in (*matrix.tested.make_test, *matrix.tested.ci):
        if named not in ids:
            raise ConfigError(
                f"{named}, listed in [tested], is not in the matrix",
                where="dockerfiles/matrix.toml: tested",
                why=did_you_mean(named, ids),
            )
    for name in components.components:
        for other in {
            other for provider in components.components[name].providers.values() for other in provider.extras
        }:
            if other not in components.components:
                raise ConfigError(
                    f"component {name!r} names extras for {other!r}, which is not a component",
                    where=f"dockerfiles/layers/{name}.toml",
                    why=did_you_mean(other, components.components),
                )
    fine = set[tuple[str, ...]]()  # cache: most images of a matrix have the same pins
    for variant in variants:
        if variant.base not in components.bases:
            raise ConfigError(
                f"{variant.id} starts from unknown base {variant.base!r}",
                where=in_row(variant.framework, variant.row, (root / MATRIX).read_text(), "bases", variant.base),
                why=did_you_mean(variant.base, components.bases),
            )
        _check_accelerator(root, matrix, variant)
        for name, pin in variant.pins.items():
            asked = (name, pin.provider, pin.version, variant.accelerator)
            by_others = components.components[name].provider(pin.provider).kind == "bundled"  # depends on other pins
            if by_others or asked not in fine:
                check_pin(root, matrix, components, variant, name)
                fine.add(asked)
        _check_packages(components, variant)


def check_components(root: Path, variants: list[Variant]) -> None:
    """Raise ConfigError for a component that is added only in part. Only `lint` checks this: no image uses it yet."""
    pinned = {pin for variant in variants for pin in variant.pins}
    for path in sorted((root / "dockerfiles/layers").glob("*.toml")):
        name, where = path.stem, f"dockerfiles/layers/{path.name}"
        load(path, Component)
        if not path.with_suffix(".j2").exists():
            raise ConfigError(f"component {name!r} has no template", where=where, fix=f"write {where[:-5]}.j2")
        if name not in pinned:
            raise ConfigError(
                f"component {name!r} is declared and never pinned",
                where=where,
                why="every declared component must be in an image, and no image of the matrix pins it",
                fix=f"pin it in dockerfiles/matrix.toml, or delete dockerfiles/layers/{name}.*",
            )


def check_instances(
    root: Path, matrix: Matrix, variants: list[Variant], table: Mapping[str, Instance], bases: Mapping[str, Base]
) -> None:
    """Validate instance types: each is described, has the image's architecture and, if needed, is in SageMaker."""
    fine = set[tuple[str, str, str]]()  # cache: most images of a matrix are for the same types
    without_software = refused_families(root)  # of one reading, not of one for each type
    for variant in variants:
        for name in variant.instances:
            asked = (name, bases[variant.base].architecture, variant.target)
            if asked not in fine:
                if name in table and family_of(name) in without_software:
                    refuse(root, name, in_instances(root, matrix, variant, name))
                _check_instance(root, matrix, variant, name, table, bases[variant.base])
                fine.add(asked)


def _check_instance(
    root: Path, matrix: Matrix, variant: Variant, name: str, table: Mapping[str, Instance], base: Base
) -> None:
    def where() -> str:  # only for errors: to find the line takes longer than the checks
        return in_instances(root, matrix, variant, name)

    if name not in table:
        raise unknown(name, table, where())
    if table[name].architecture != base.architecture:
        raise ConfigError(
            f"{variant.id} cannot run on {name}",
            where=where(),
            why=f"{name} is {table[name].architecture}, base {variant.base} {base.architecture}",
            fix=edit(where(), "take the instance type out of the row, or choose another base"),
        )
    if variant.target == "sagemaker" and not table[name].sagemaker:
        raise ConfigError(
            f"{variant.id} is for {name}, which SageMaker does not offer for training",
            where=where(),
            why=f"{FILE} has no SageMaker name of it",
            fix=edit(
                where(),
                f"make another row for target sagemaker, without {name}; or add its SageMaker name to {FILE}",
            ),
        )


_parse = cache(Requirement)  # most images of a matrix have the same pins


def check_pin(root: Path, matrix: Matrix, components: Components, variant: Variant, name: str) -> None:
    """Validate one pin: its provider must honour the version, or the image would not ship what is declared."""
    pin, component = variant.pins[name], components.components[name]
    provider, said = component.provider(pin.provider), written(matrix, variant, name)

    def at(pinned: str) -> str:
        return declared(matrix, variant, pinned, (root / MATRIX).read_text())[1]

    if provider.kind == "bundled":
        try:
            bundled(components, variant, name)
        except ConfigError as error:  # the wrong pin is the installer's, if the image has one
            where = at(provider.bundled_by if provider.bundled_by in variant.pins else name)
            raise ConfigError(error.what, where=where, why=error.why, fix=edit(where, error.fix)) from None
    if provider.kind in VERSIONLESS:
        if pin.version:
            raise ConfigError(
                f"pin {name!r} of {variant.id} has a version, and its provider takes none",
                where=at(name),
                why=f"{said}: the version comes from the distribution's packages, as the lock names it"
                if provider.kind == "distro"
                else f"{said}: the version comes from {provider.bundled_by}, which bundles it",
                fix=edit(at(name), f'{name} = "{pin.provider}", or another provider of dockerfiles/layers/{name}.toml'),
            )
        return
    if provider.kind == "base" and not pin.version:
        return  # the lock says what the base brings
    try:
        Version(pin.version)
    except InvalidVersion:
        raise ConfigError(
            f"pin {name!r} of {variant.id} is not a valid requirement",
            where=at(name),
            why=f"{said}: {pin.version!r} is not a version" if pin.version else f"{said}: it lacks a version",
            fix=edit(at(name), "write an exact version"),
        ) from None
    try:
        if provider.kind == "python":
            _parse(requirement(provider, variant.accelerator, pin.version))
    except (InvalidRequirement, KeyError, IndexError, ValueError) as error:
        file = f"dockerfiles/layers/{name}.toml"
        line = line_of((root / file).read_text(), ("providers", pin.provider, "requirement"))
        raise ConfigError(
            f"pin {name!r} of {variant.id} is not a valid requirement",
            where=f"{file}:{line}",
            why=f"{type(error).__name__}: {error}",
            fix=edit(f"{file}:{line}", "write a requirement with {version} and, if needed, {accelerator}"),
        ) from None


def _check_packages(components: Components, variant: Variant) -> None:
    """Check that no two components are one Python package: an image holds one version, and both would claim it."""
    held: dict[str, str] = {}
    for name, pin in variant.pins.items():
        said = requirement(components.components[name].provider(pin.provider), variant.accelerator, pin.version)
        if package := said and canonicalize_name(_parse(said).name):
            other = held.setdefault(package, name)
            if other != name:
                files = " and ".join(f"dockerfiles/layers/{one}.toml" for one in (other, name))
                raise ConfigError(
                    f"components {other!r} and {name!r} of {variant.id} are the same Python package, {package!r}",
                    where=files,
                    why="an image holds one version of a package, and each component would pin its own",
                    fix=f"$EDITOR {files.replace(' and ', ' ')}   # change one requirement, or remove a pin",
                )


def _check_accelerator(root: Path, matrix: Matrix, variant: Variant) -> None:
    """Check that the pins match the accelerator, which is in the image's name and selects its wheels: the same CUDA."""
    wrong = next((name for name in CUDA if name in variant.pins and variant.accelerator == "cpu"), "")
    why, fix = f"{variant.accelerator} is for hosts without a GPU", f"take the pin of {wrong} out"
    pin = variant.pins.get("cuda")
    number = pin and re.match(r"(\d+)\.(\d+)", pin.version)
    if number and re.fullmatch(r"cu\d+", variant.accelerator):
        major, minor = number.groups()
        if variant.accelerator != f"cu{major}{minor}":
            wrong, why = "cuda", f"{variant.accelerator} names another CUDA than the pin, which is cu{major}{minor}"
            fix = f'accelerators = ["cu{major}{minor}"], or pin the CUDA that {variant.accelerator} names'
    if wrong:
        text = (root / MATRIX).read_text()
        where = declared(matrix, variant, wrong, text)[1]
        raise ConfigError(
            f"{variant.id} pins {wrong} = {variant.pins[wrong].version!r}",
            where=where,
            why=why,
            fix=edit(where, fix),
        )
