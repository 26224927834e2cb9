"""Compute the inputs of one image from the locks and the store, without network and engine."""

import hashlib
from dataclasses import replace
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Self

from pydantic import Field

from trainwright.core import store
from trainwright.core.errors import ConfigError, DamagedLock, LockError, StaleLock
from trainwright.core.files import write
from trainwright.core.toml import Model, line_of, parse, read
from trainwright.image import bake, bootstrap, notices, probe, render, tags
from trainwright.image import key as image_key
from trainwright.lock import facts, lockfile, overlaps, packages
from trainwright.matrix import overlaid
from trainwright.matrix.compat import Verdict
from trainwright.matrix.matrix import Intent, Recipe, once_per_intent
from trainwright.matrix.model import Lock, Package, PythonFile, Variant
from trainwright.matrix.records import Drift
from trainwright.matrix.validate import BASES, MATRIX, edit, in_base, in_row

UNREACHED = "this address was not reached from here: {address}"


class Distribution(Model):
    """The packages of a base as locked, and as used if the mirror has dropped locked versions."""

    intent: str
    epoch: int  # seconds: the date of the index that they were locked from
    locked: packages.Stanzas
    effective: packages.Stanzas
    drift: list[Drift]
    unmet: tuple[str, str] | None  # a package, and its dependency that these do not satisfy
    image: str = ""  # what the base starts from, by digest; "" for a base that is bootstrapped

    # Computed once for all images on this base: equal text yields the same object.
    @cached_property
    def held(self) -> dict[str, Package]:
        return packages.to_packages(self.effective)

    @cached_property
    def as_locked(self) -> dict[str, Package]:
        """Return the packages as locked. Callers must not modify the result."""
        return self.held if self.effective == self.locked else packages.to_packages(self.locked)

    @cached_property
    def noted(self) -> dict[tuple[str, ...], str]:
        """Cache of notices.text(): what it says of the packages, which is the same for all images on a base."""
        return {}

    @cached_property
    def manifest(self) -> str:
        """Return the digest of the packages that will be used."""
        return packages.manifest_digest(self.effective)

    @cached_property
    def locked_manifest(self) -> str:
        """Return the digest of the locked packages, against which additional packages were resolved."""
        return packages.manifest_digest(self.locked)

    @cached_property
    def lines(self) -> str:
        """Return the image's package list, one package per line."""
        return "".join(f"{package.name}={package.version} {package.sha256}\n" for package in self.held.values())

    def packages(self) -> dict[str, Package]:
        return dict(self.held)

    def __copy__(self) -> Self:
        """Copy without the cached results, because model_copy() changes what they were computed from."""
        made = super().__copy__()
        for name in made.__dict__.keys() - type(self).model_fields.keys():
            del made.__dict__[name]
        return made


class Compilation(Model):
    """The inputs for compiling one source distribution against the image that it is added to."""

    name: str
    image: str  # id of the image that holds the compilers
    sdist: PythonFile
    wheels: dict[str, list[PythonFile]]  # folder to its wheels
    text: dict[str, str]  # path to rendered text
    key: str  # sha256 (hex) of everything that determines the wheel
    wheel: PythonFile | None  # the wheel of an earlier compilation; None: not compiled here yet


class Inputs(Model):
    """One image, ready to be laid out and built."""

    recipe: Recipe
    lock: Lock
    distribution: Distribution
    pins: dict[str, str]  # component to exact version
    versions: dict[str, str]  # component to the version it reports itself, as the probe must find it
    text: dict[str, str]  # path below out/<id>/ to rendered text
    rootfs: dict[str, Path]  # path below out/<id>/rootfs/ to its source
    base_key: str  # sha256 (hex) of the base's inputs
    wheels: dict[str, list[PythonFile]]  # folder below out/<id>/wheels/ to its wheels
    tools: Distribution | None  # distribution packages of compile stages; None if nothing is compiled
    warnings: list[Verdict]  # unmet rules of compat.toml with severity warn
    blocked: list[str]  # facts that could not be established
    overlay: str = ""  # sha256 (hex) of what a project says that this image is made of; "" without any
    overridden: list[str] = Field(
        default=[]
    )  # rules of compat.toml that would judge it otherwise, and a project overrides
    key: str
    tag: str
    name: str  # in the engine
    parent: "Inputs | None" = None  # the image that a requirements file adds packages to
    compile: tuple[Compilation, ...] = ()  # the added packages that are compiled against the parent

    @property
    def variant(self) -> Variant:
        return self.recipe.variant

    @property
    def drift(self) -> list[Drift]:
        """Return the drift of the base's packages and of those that compile stages add to them."""
        return self.distribution.drift + (self.tools.drift if self.tools else [])


def lock_path(recipe: Recipe) -> Path:
    return recipe.root / recipe.variant.lock_file


def packages_path(intent: Intent, base: str, tools: bool = False) -> Path:
    """Return the path of a base's package lock; with `tools`, of the lock of the packages that compile stages add."""
    return intent.root / "dockerfiles/locks" / f"{base}{'.build' * tools}.packages"


def drift_path(locked: packages.Stanzas) -> Path:
    """Return the path in the store that records replacements for packages that left the mirror."""
    digest = packages.manifest_digest(locked)
    return store.root() / "drift" / f"{digest}.packages"


def _read(path: Path, fix: str) -> str:
    name = f"dockerfiles/locks/{path.name}"
    if not path.exists():
        raise StaleLock(f"the lock {path.name} does not exist", where=name, fix=fix)
    return read(path, name, DamagedLock, f"git checkout -- {name}, or {fix}")


def read_lock(recipe: Recipe) -> Lock:
    fix = lockfile.RELOCK.format(id=recipe.id)
    try:
        return parse(_read(lock_path(recipe), fix), Lock, recipe.variant.lock_file)
    except ConfigError as error:  # locks are not edited by hand, so the remedy is to lock again
        raise DamagedLock(error.what, where=error.where, why=error.why, fix=fix) from None


def read_distribution(
    intent: Intent, base: str, tools: bool = False, as_locked: bool = False, fix: str = "trainwright lock"
) -> Distribution:
    """Return a base's package lock, with the drift that an earlier fetch recorded unless `as_locked`.

    Raises LockError, with `fix` as the command that locks the base's packages.
    """
    path = packages_path(intent, base, tools)
    text = _read(path, fix)
    drift, recorded = store.root() / "drift" / _drift_name(text, path.name), ""
    if not as_locked and drift.exists():
        recorded = read(drift, error=LockError, fix=f"rm {drift}")
    return _distribution(text, path.name, recorded)


@lru_cache(maxsize=32)
def _drift_name(text: str, name: str) -> str:
    return drift_path(packages.parse(text, name)[1]).name


@lru_cache(maxsize=32)  # many images share few bases: equal text yields the same object
def _distribution(text: str, name: str, recorded: str) -> Distribution:
    header, locked = packages.parse(text, name)
    effective = packages.parse(recorded, f"the drift of {name}")[1] if recorded else locked
    return Distribution(
        intent=header["Intent"],
        epoch=packages.epoch_of(header),
        locked=locked,
        effective=effective,
        drift=packages.drift(locked, effective),
        unmet=packages.unmet(effective),
        image=header.get("Image", ""),
    )


def record_drift(header: dict[str, str], locked: packages.Stanzas, effective: packages.Stanzas) -> None:
    write(drift_path(locked), packages.dump(header, effective))


def packages_intent(intent: Intent, base: str, tools: bool) -> str:
    """Return the digest of a package lock's inputs; for compile stages, they include the base's packages."""
    if not tools:
        return lockfile.packages_digest(intent, base, lockfile.distribution_packages(intent, base))
    below = read_distribution(intent, base).locked_manifest
    return lockfile.packages_digest(intent, base, lockfile.build_packages(intent, base), below)


def current_distribution(
    intent: Intent, base: str, tools: bool = False, as_locked: bool = False, fix: str = "trainwright lock"
) -> Distribution:
    """Return a base's package lock if it matches the intent. Raises LockError, with `fix`, if it is stale."""
    found = read_distribution(intent, base, tools, as_locked, fix)
    if found.intent != packages_intent(intent, base, tools):
        path = packages_path(intent, base, tools)
        raise StaleLock(
            f"the package lock {path.stem} is stale",
            where=f"dockerfiles/locks/{path.name}",
            why="what it was resolved from has changed since: the intent, or the base's lock",
            fix=fix,
        )
    return found


def known(recipe: Recipe) -> tuple[Lock | None, dict[str, Package], dict[str, Package]]:
    """Return the contents of the current locks: the image's, its base's packages, and those of compile stages.

    A missing or stale lock gives None or {}, because it differs from what would be built. Raises DamagedLock for an
    unreadable one, because an image must not be reported to lack what its lock names.
    """

    def packages_of(tools: bool) -> dict[str, Package]:
        try:
            return current_distribution(recipe.intent, recipe.variant.base, tools).as_locked
        except DamagedLock:
            raise
        except LockError:
            return {}

    try:
        locked: Lock | None = read_lock(recipe)
    except DamagedLock:
        raise
    except LockError:
        locked = None
    if locked and locked.intent != lockfile.intent_digest(recipe):
        locked = None
    return locked, packages_of(False), packages_of(True) if recipe.compiles else {}


def awaited(recipe: Recipe) -> list[str]:
    """Return the reasons in the intent, one sentence each, why an image has no lock; empty if the intent gives none.

    An `awaits` counts only while its lock is missing: on a host with the awaited input, `trainwright lock`
    writes it.
    """
    base, found = recipe.base, lockfile.without_digest(recipe)
    parts = (False, True) if recipe.compiles else (False,)
    if base.awaits and not all(packages_path(recipe.intent, recipe.variant.base, tools).exists() for tools in parts):
        found.append(UNREACHED.format(address=base.awaits.format(reference=base.reference)))
    if recipe.variant.awaits and not lock_path(recipe).exists():
        found.append(UNREACHED.format(address=recipe.variant.awaits))
    return found


def refuse_awaiting(recipe: Recipe) -> None:
    """Raise LockError, with the line of the reason, if the image awaits something."""
    missing = awaited(recipe)
    if not missing:
        return
    bases = (recipe.root / BASES).read_text()
    fix = f"trainwright lock {recipe.id}   # on a host that reaches it"
    if lockfile.without_digest(recipe):
        where = _without_digest(recipe)
        fix = edit(where, f"its digest; then trainwright lock {recipe.id} on a host that reaches it")
    elif UNREACHED.format(address=recipe.variant.awaits) not in missing:
        where = in_base(bases, recipe.variant.base, "awaits")
    else:
        where = in_row(recipe.variant.framework, recipe.variant.row, (recipe.root / MATRIX).read_text(), "awaits")
    lockfile.refuse_blocked(recipe, missing, where, fix)


def _without_digest(recipe: Recipe) -> str:
    """Return file:line of the reference of compilers, which has no digest."""
    for name, pin in recipe.pins.items():
        if pin.version in recipe.component(name).toolkits:
            file = f"dockerfiles/layers/{name}.toml"
            return f"{file}:{line_of((recipe.root / file).read_text(), ('toolkits', pin.version, 'reference'))}"
    raise AssertionError(f"{recipe.id} has a digest of everything")


def held(intent: Intent) -> list[Recipe]:
    """Return the matrix images that await nothing: each must have a lock."""
    return [recipe for recipe in intent.recipes if not awaited(recipe)]


def text_of(recipe: Recipe) -> dict[str, str]:
    """Map paths below out/<id>/ to rendered text; if the image awaits something, only what the intent determines.

    Raises what `load` raises.
    """
    reasons = awaited(recipe)
    if not reasons:
        return load(recipe).text
    facts.admit(recipe, None, {}, {})
    said = "".join(f"# Blocked, and not built: {reason}\n" for reason in reasons)
    return {"Dockerfile": said + render.check(recipe)}


def _read_locks(recipe: Recipe, as_locked: bool) -> tuple[Distribution, Distribution | None, Lock]:
    """Return the locks of one image if they match the intent and are complete. Raises LockError."""
    refuse_awaiting(recipe)
    fix = lockfile.RELOCK.format(id=recipe.id)
    distribution = current_distribution(recipe.intent, recipe.variant.base, False, as_locked, fix)
    compiling = recipe.compiles
    tools = current_distribution(recipe.intent, recipe.variant.base, True, as_locked, fix) if compiling else None
    locked = read_lock(recipe)
    lockfile.check(recipe, locked, distribution.packages().values())
    overlaps.check(recipe.id, recipe.variant.lock_file, locked.python, locked.overlaps, recipe.intent.compat.winners)
    return distribution, tools, locked


def load(recipe: Recipe, as_locked: bool = False) -> Inputs:
    """Read the locks and render. Raises LockError (stale, missing, blocked) and ConfigError (templates, unused pin).

    `as_locked`: ignore the drift that this host's store records, so that the result is the same on every host.
    """
    try:
        distribution, tools, locked = _read_locks(recipe, as_locked)
    except LockError:
        render.check(recipe)  # checked first: a new lock would not fix these errors,
        facts.admit(recipe, None, {}, {})  # nor incompatible pins
        raise
    recipe = replace(recipe, image=distribution.image)
    base, found = recipe.base, distribution.packages()
    build = tools.packages() if tools else {}
    warnings = facts.admit(recipe, locked, found, build)
    overridden = facts.overridden(recipe, locked, found, build)
    if base.provider == "packages" and (lacking := distribution.unmet):
        raise LockError(
            f"package {lacking[1]} is missing from the lock",
            where=f"dockerfiles/locks/{recipe.variant.base}.packages",
            why=f"{lacking[0]} requires it",
            fix=f"{lockfile.RELOCK.format(id=recipe.id)} --update --write",
        )

    wheels, pins = render.folders_of(recipe, locked), lockfile.pin_versions(recipe, locked, found)
    text = render.render(recipe, locked, pins, wheels, found, build, distribution.epoch)
    text["requirements/packages.txt"] = distribution.lines
    text["requirements/notices.txt"] = notices.text(recipe, locked, distribution)
    rootfs = _rootfs(recipe)
    manifest = distribution.manifest
    base_key = _base_key(recipe.intent, recipe.variant.base, manifest, distribution.epoch, distribution.image)
    files = {f"wheels/{folder}/{entry.file}": entry.sha256 for folder in wheels for entry in wheels[folder]}
    files |= {f"rootfs/{name}": _fingerprint(recipe.intent, path) for name, path in rootfs.items()}
    files |= {f"sources/{source.name}": source.commit or source.sha256 for source in locked.sources}
    files["base"] = base_key
    if tools:
        files["build-packages"] = tools.manifest
    folders = [f"wheels/{folder}" for folder in wheels] + ["requirements", "rootfs", "packages"]
    folders += ["sources"] if locked.sources else []
    folders += ["build-packages"] if tools else []
    own = overlaid.used_by(recipe, overridden)
    overlay = lockfile.digest(own) if own else ""
    files |= {"overlay": overlay} if own else {}
    unnamed = bake.bake(base, distribution.epoch, folders)
    key = image_key.input_key({**text, "docker-bake.json": unnamed}, files, manifest)
    tag = tags.key_tag(recipe.id, key)
    name = tags.engine_name(recipe.variant.framework, tag)
    text["docker-bake.json"] = bake.bake(base, distribution.epoch, folders, name, key)
    return Inputs(
        recipe=recipe,
        lock=locked,
        distribution=distribution,
        tools=tools,
        wheels=wheels,
        pins=pins,
        versions=probe.expected_versions(recipe, pins),
        text=text,
        rootfs=rootfs,
        base_key=base_key,
        warnings=warnings,
        overlay=overlay,
        overridden=overridden,
        blocked=lockfile.blocked(locked, pins),
        key=key,
        tag=tag,
        name=name,
    )


@once_per_intent
def _base_key(intent: Intent, base: str, manifest: str, epoch: int, image: str) -> str:
    asked = lockfile.distribution_packages(intent, base)
    facts = [lockfile.base_facts(intent.components.bases[base]), asked, manifest, bootstrap.FORMAT, epoch]
    return lockfile.digest([*facts, *filter(None, [image])])


def _rootfs(recipe: Recipe) -> dict[str, Path]:
    """Return the image's rootfs files: common ones, its target's and its components'.

    Raises ConfigError for a component that consists of its files there, and has none.
    """
    for pin in recipe.pins:
        if recipe.provider(pin).kind == "own" and not _files_of(recipe.intent, pin):
            where = f"dockerfiles/layers/{pin}.toml"
            line = line_of((recipe.root / where).read_text(), ("providers", recipe.pins[pin].provider, "own"))
            raise ConfigError(
                f"component {pin!r} of {recipe.id} has no files",
                where=f"{where}:{line}",
                why=f"`own = true` says that it is the files of dockerfiles/rootfs/{pin}/, which is empty or not there",
                fix=f"put its files into dockerfiles/rootfs/{pin}/, or take its pin out of dockerfiles/matrix.toml",
            )
    parts = sorted({"common", recipe.variant.target, *recipe.pins})
    return {name: path for part in parts for name, path in _files_of(recipe.intent, part).items()}


def rootfs_fingerprints(found: Inputs) -> dict[str, str]:
    """Return the fingerprint of each file of an image's rootfs."""
    return {name: _fingerprint(found.recipe.intent, path) for name, path in sorted(found.rootfs.items())}


@once_per_intent
def _files_of(intent: Intent, part: str) -> dict[str, Path]:
    folder = intent.root / "dockerfiles/rootfs"
    return {
        str(path.relative_to(folder)): path
        for path in sorted((folder / part).rglob("*"))
        if path.is_file() and "__pycache__" not in path.parts
    }


@once_per_intent
def _fingerprint(intent: Intent, path: Path) -> str:  # noqa: ARG001  # which keeps it
    """Return a fingerprint of content and executable bit; other mode bits depend on the checkout, not on the image."""
    executable = "x" if path.stat().st_mode & 0o100 else "-"
    return hashlib.sha256(path.read_bytes()).hexdigest() + executable
