"""Everything that goes into one image, known without network and without engine: from the locks and the store."""

import hashlib
from functools import cached_property, lru_cache
from pathlib import Path

from trainwright import bake, facts, lock, packages, plan, probe, render, store, unpacking
from trainwright.compat import Verdict
from trainwright.config import line_of, parse, read
from trainwright.declaring import BASES, MATRIX, edit, in_base, in_row
from trainwright.errors import ConfigError, DamagedLock, LockError
from trainwright.files import write
from trainwright.matrix import Intent, once_per_intent
from trainwright.model import IN_BASE, Lock, Model, Package, PythonFile, Variant
from trainwright.outcome import Drift


class Distribution(Model):
    """The packages of a base as locked, and as they will be used where the mirror has moved on."""

    intent: str
    epoch: int  # seconds: the date of the index they were locked from
    locked: packages.Stanzas
    effective: packages.Stanzas
    drift: list[Drift]
    unmet: tuple[str, str] | None  # a package, and what it requires that none of these is

    # Worked out once for all images on this base: what is read from the same text is the same object.
    @cached_property
    def held(self) -> dict[str, Package]:
        return packages.to_packages(self.effective)

    @cached_property
    def manifest(self) -> str:
        """Digest of what will be used."""
        return packages.manifest_digest(self.effective)

    @cached_property
    def locked_manifest(self) -> str:
        """Digest of what is locked, which is what packages on top of these were resolved with."""
        return packages.manifest_digest(self.locked)

    @cached_property
    def lines(self) -> str:
        """What the image is said to hold, one package a line."""
        return "".join(f"{package.name}={package.version} {package.sha256}\n" for package in self.held.values())

    def packages(self) -> dict[str, Package]:
        return dict(self.held)


class Compilation(Model):
    """What compiles one source distribution against the image it goes on top of."""

    name: str
    image: str  # id of the image that holds the compilers
    sdist: PythonFile
    wheels: dict[str, list[PythonFile]]  # folder to what lies in it
    text: dict[str, str]  # path to rendered text
    key: str  # sha256 (hex) of all that decides over the wheel
    wheel: PythonFile | None  # what it gave before; None: nobody compiled it here yet


class Inputs(Model):
    """One image, ready to be laid out and built."""

    variant: Variant
    lock: Lock
    distribution: Distribution
    pins: dict[str, str]  # component to exact version
    versions: dict[str, str]  # component to what it says of itself, once the probe has found it so
    text: dict[str, str]  # path below out/<id>/ to rendered text
    rootfs: dict[str, Path]  # path below out/<id>/rootfs/ to its source
    base_key: str  # sha256 (hex) of what the base is made of
    wheels: dict[str, list[PythonFile]]  # folder below out/<id>/wheels/ to what lies in it
    tools: Distribution | None  # distribution packages of compile stages; None where nothing is compiled
    warnings: list[Verdict]  # rules of compat.toml that only warn, and do not hold
    blocked: list[str]  # what nobody could establish
    key: str
    tag: str
    name: str  # in the engine
    parent: "Inputs | None" = None  # the image that a requirements file puts packages on
    compile: tuple[Compilation, ...] = ()  # what of them is compiled against that one

    @property
    def drift(self) -> list[Drift]:
        """Of the base's packages, and of what compilers had beyond them."""
        return self.distribution.drift + (self.tools.drift if self.tools else [])


def lock_path(intent: Intent, variant: Variant) -> Path:
    return intent.root / "dockerfiles/locks" / f"{variant.lock}.toml"


def packages_path(intent: Intent, base: str, tools: bool = False) -> Path:
    """The lock of a base's packages; with `tools`, of what compile stages have beyond them."""
    return intent.root / "dockerfiles/locks" / f"{base}{'.build' * tools}.packages"


def drift_path(locked: packages.Stanzas) -> Path:
    """Where the store remembers what stood in for lost packages of these."""
    digest = packages.manifest_digest(locked)
    return store.root() / "drift" / f"{digest}.packages"


def _read(path: Path) -> str:
    name = f"dockerfiles/locks/{path.name}"
    if not path.exists():
        raise LockError(f"there is no lock {path.name}", where=name, fix="trainwright lock")
    return read(path, name, DamagedLock, f"git checkout -- {name}, or trainwright lock")


def read_lock(intent: Intent, variant: Variant) -> Lock:
    try:
        return parse(_read(lock_path(intent, variant)), Lock, f"dockerfiles/locks/{variant.lock}.toml")
    except ConfigError as error:  # nobody edits a lock: the remedy is to write it again
        raise DamagedLock(error.what, where=error.where, why=error.why, fix=lock.RELOCK.format(id=variant.id)) from None


def read_distribution(intent: Intent, base: str, tools: bool = False, as_locked: bool = False) -> Distribution:
    """The lock of a base's packages, with the drift that an earlier fetch recorded unless `as_locked`.

    Raises LockError.
    """
    path = packages_path(intent, base, tools)
    text = _read(path)
    drift, recorded = store.root() / "drift" / _drift_name(text, path.name), ""
    if not as_locked and drift.exists():
        recorded = read(drift, error=LockError, fix=f"rm {drift}")
    return _distribution(text, path.name, recorded)


@lru_cache(maxsize=32)
def _drift_name(text: str, name: str) -> str:
    return drift_path(packages.parse(text, name)[1]).name


@lru_cache(maxsize=32)  # many images, few bases: what is read is the same object for all of them
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
    )


def record_drift(header: dict[str, str], locked: packages.Stanzas, effective: packages.Stanzas) -> None:
    write(drift_path(locked), packages.dump(header, effective))


def packages_intent(intent: Intent, base: str, tools: bool) -> str:
    """What a package lock must have been resolved from; that of compile stages also from the packages below them."""
    if not tools:
        return lock.packages_digest(intent, base, lock.distribution_packages(intent, base))
    below = read_distribution(intent, base).locked_manifest
    return lock.packages_digest(intent, base, lock.build_packages(intent, base), below)


def current_distribution(intent: Intent, base: str, tools: bool = False, as_locked: bool = False) -> Distribution:
    """The same, if it answers the intent. Raises LockError where it is stale."""
    found = read_distribution(intent, base, tools, as_locked)
    if found.intent != packages_intent(intent, base, tools):
        path = packages_path(intent, base, tools)
        raise LockError(
            f"the package lock {path.stem} is stale",
            where=f"dockerfiles/locks/{path.name}",
            why="what it was resolved from has changed since: the intent, or the base's lock",
            fix="trainwright lock",
        )
    return found


def known(intent: Intent, variant: Variant) -> tuple[Lock | None, dict[str, Package], dict[str, Package]]:
    """What the current locks say: of the variant, of its base's packages, of compile stages.

    None and {} for one that is missing or stale: what it says is not what would be built. Raises LockError for one
    that cannot be read: nobody may be told that an image does not hold what its lock names.
    """

    def packages_of(tools: bool) -> dict[str, Package]:
        try:
            return packages.to_packages(current_distribution(intent, variant.base, tools).locked)
        except DamagedLock:
            raise
        except LockError:
            return {}

    try:
        locked: Lock | None = read_lock(intent, variant)
    except DamagedLock:
        raise
    except LockError:
        locked = None
    if locked and locked.intent != lock.intent_digest(intent, variant):
        locked = None
    return locked, packages_of(False), packages_of(True) if lock.compiles(intent, variant) else {}


def awaited(intent: Intent, variant: Variant) -> list[str]:
    """Why an image has no lock where the intent says so, one sentence each; none where it has, or where nobody knows.

    The intent's word counts only as long as the lock is missing: whoever has what is awaited writes it by name.
    """
    base, found = intent.components.bases[variant.base], lock.without_digest(intent, variant)
    parts = (False, True) if lock.compiles(intent, variant) else (False,)
    if base.awaits and not all(packages_path(intent, variant.base, tools).exists() for tools in parts):
        found.append(base.awaits)
    if variant.awaits and not lock_path(intent, variant).exists():
        found.append(variant.awaits)
    if "python" in variant.pins and variant.pins["python"].provider == IN_BASE:
        found.append("a lock of what the base's own Python holds: such a base could not be had, so none is written yet")
    return found


def refuse_awaiting(intent: Intent, variant: Variant) -> None:
    """Raises LockError for an image that awaits something, with the line that says so."""
    missing = awaited(intent, variant)
    if not missing:
        return
    base, bases = intent.components.bases[variant.base], (intent.root / BASES).read_text()
    fix = f"trainwright lock --only {variant.id}   # on a host that reaches it"
    if lock.without_digest(intent, variant):
        where = _without_digest(intent, variant, bases)
        fix = edit(where, f"its digest; then trainwright lock --only {variant.id} on a host that reaches it")
    elif base.awaits in missing:
        where = in_base(bases, variant.base, "awaits")
    else:
        where = in_row(variant.framework, variant.row, (intent.root / MATRIX).read_text(), "awaits")
    lock.refuse_blocked(variant, missing, where, fix)


def _without_digest(intent: Intent, variant: Variant, bases: str) -> str:
    """file:line of the reference to an image that nothing vouches for: of the base, else of the compilers."""
    base = intent.components.bases[variant.base]
    if base.provider == "image" and not lock.DIGEST.search(base.reference):
        return in_base(bases, variant.base, "reference")
    for name, pin in variant.pins.items():
        if pin.version in intent.components.components[name].toolkits:
            file = f"dockerfiles/layers/{name}.toml"
            return f"{file}:{line_of((intent.root / file).read_text(), ('toolkits', pin.version, 'reference'))}"
    raise AssertionError(f"{variant.id} has a digest of everything")


def held(intent: Intent) -> list[Variant]:
    """The images of the matrix that await nothing: each of them has a lock, or it is an error."""
    return [variant for variant in intent.variants if not awaited(intent, variant)]


def text_of(intent: Intent, variant: Variant) -> dict[str, str]:
    """Path below out/<id>/ to rendered text; of an image that awaits something, as far as the intent alone knows it.

    Raises as `load` does.
    """
    reasons = awaited(intent, variant)
    if not reasons:
        return load(intent, variant).text
    facts.admit(intent, variant, None, {}, {})
    said = "".join(f"# Blocked, and not built: {reason}\n" for reason in reasons)
    return {"Dockerfile": said + render.check(intent, variant)}


def _read_locks(intent: Intent, variant: Variant, as_locked: bool) -> tuple[Distribution, Distribution | None, Lock]:
    """The locks of one image, if they answer the intent and lack nothing. Raises LockError."""
    refuse_awaiting(intent, variant)
    distribution = current_distribution(intent, variant.base, as_locked=as_locked)
    compiling = lock.compiles(intent, variant)
    tools = current_distribution(intent, variant.base, True, as_locked) if compiling else None
    locked = read_lock(intent, variant)
    lock.check(intent, variant, locked, distribution.packages().values())
    return distribution, tools, locked


def load(intent: Intent, variant: Variant, as_locked: bool = False) -> Inputs:
    """Read the locks and render. Raises LockError (stale, missing, blocked) and ConfigError (templates, unused pin).

    `as_locked`: without the drift that this host's store remembers; the same everywhere.
    """
    try:
        distribution, tools, locked = _read_locks(intent, variant, as_locked)
    except LockError:
        render.check(intent, variant)  # said first: no new lock would mend it,
        facts.admit(intent, variant, None, {}, {})  # nor pins that do not go together
        raise
    base, found = intent.components.bases[variant.base], distribution.packages()
    build = tools.packages() if tools else {}
    warnings = facts.admit(intent, variant, locked, found, build)
    if base.provider == "packages" and (lacking := distribution.unmet):
        raise LockError(
            f"package {lacking[1]} is missing from the lock",
            where=f"dockerfiles/locks/{variant.base}.packages",
            why=f"{lacking[0]} requires it",
            fix="trainwright lock --update --write",
        )

    wheels, pins = render.folders_of(intent, variant, locked), lock.pin_versions(intent, variant, locked, found)
    text = render.render(intent, variant, locked, pins, wheels, found, build, distribution.epoch)
    text["requirements/packages.txt"] = distribution.lines
    rootfs = _rootfs(intent, {"common", variant.target, *variant.pins})
    manifest = distribution.manifest
    base_key = _base_key(intent, variant.base, manifest, distribution.epoch)
    files = {f"wheels/{folder}/{entry.file}": entry.sha256 for folder in wheels for entry in wheels[folder]}
    files |= {f"rootfs/{name}": _fingerprint(intent, path) for name, path in rootfs.items()}
    files |= {f"sources/{source.name}": source.commit or source.sha256 for source in locked.sources}
    files["base"] = base_key
    if tools:
        files["build-packages"] = tools.manifest
    folders = [f"wheels/{folder}" for folder in wheels] + ["requirements", "rootfs", "packages"]
    folders += ["sources"] if locked.sources else []
    folders += ["build-packages"] if tools else []
    unnamed = bake.bake(base, distribution.epoch, folders)
    key = plan.input_key({**text, "docker-bake.json": unnamed}, files, manifest)
    tag = plan.tag(variant.id, key)
    name = bake.engine_name(variant, tag)
    text["docker-bake.json"] = bake.bake(base, distribution.epoch, folders, name, key)
    return Inputs(
        variant=variant,
        lock=locked,
        distribution=distribution,
        tools=tools,
        wheels=wheels,
        pins=pins,
        versions=probe.expected_versions(intent, variant, pins),
        text=text,
        rootfs=rootfs,
        base_key=base_key,
        warnings=warnings,
        blocked=lock.blocked(locked, pins),
        key=key,
        tag=tag,
        name=name,
    )


@once_per_intent
def _base_key(intent: Intent, base: str, manifest: str, epoch: int) -> str:
    asked = lock.distribution_packages(intent, base)
    return lock.digest([lock.base_facts(intent.components.bases[base]), asked, manifest, unpacking.FORMAT, epoch])


def _rootfs(intent: Intent, parts: set[str]) -> dict[str, Path]:
    """The files of what the image has: common ones, its target's, its components'."""
    return {name: path for part in sorted(parts) for name, path in _files_of(intent, part).items()}


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
    """Content and whether it is executable; another mode bit is this checkout's, not the image's."""
    executable = "x" if path.stat().st_mode & 0o100 else "-"
    return hashlib.sha256(path.read_bytes()).hexdigest() + executable
