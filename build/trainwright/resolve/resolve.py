"""Turn the intent into locks: resolve what is stale or missing, fetch it once, and write it."""

from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

from trainwright.core import mirrors, project, store
from trainwright.core.errors import EnvironmentProblem, LockError, TrainwrightError
from trainwright.core.files import write
from trainwright.core.progress import Progress, Say, counted
from trainwright.core.toml import load
from trainwright.image import inputs, render
from trainwright.lock import facts, lockfile, overlaps, packages, wheel_files
from trainwright.matrix.matrix import Intent, Recipe
from trainwright.matrix.model import Group, Lock, Package, PythonFile, Source
from trainwright.resolve import apt, apt_container, foreign, licences, own_python, pypi, rpm
from trainwright.resolve.fetch import files_of, must, own_index, resolve_packages

IMAGE: tuple[Group, ...] = ("framework", "toolkit", "devel")  # groups of the one solution of an image and its twin


def lock_packages(intent: Intent, base: str, tools: bool, below: packages.Stanzas, say: Say) -> tuple[Path, str]:
    """Resolve a base's packages; with `tools`, those that compile stages add to the base's packages (`below`).

    Returns the lock's path and new text; writes nothing.
    """
    names = lockfile.build_packages(intent, base) if tools else lockfile.distribution_packages(intent, base)
    path = inputs.packages_path(intent, base, tools)
    say(f"{path.stem}: resolving {counted(len(names), 'package')} and their dependencies")
    definition = intent.components.bases[base]
    image = {"Image": foreign.pinned(definition.reference)} if definition.provider == "image" else {}
    date, stanzas = resolve_packages(intent, base, tools, below, *image.values())
    under = packages.manifest_digest(below) if tools else ""
    header = {"Intent": lockfile.packages_digest(intent, base, names, under), "Date": date, **image}
    return path, packages.dump(header, stanzas)


def described(intent: Intent, base: str, text: str, below: packages.Stanzas, say: Say, progress: Progress) -> str:
    """Return a resolved package lock with what only the package files say, which are fetched: licences, signatures."""
    definition = intent.components.bases[base]
    if definition.manager == "apt":
        return with_licences(intent, base, text, below, say, progress)
    header, stanzas = packages.parse(text, base)
    return packages.dump(header, with_signatures(intent, base, stanzas, header["Image"], say, progress))


def with_signatures(
    intent: Intent, base: str, stanzas: packages.Stanzas, image: str, say: Say, progress: Progress
) -> packages.Stanzas:
    """Return resolved rpm packages with the key that signed each of them; the files are fetched, and verified by rpm.

    `image` is the image that they are resolved for. Raises LockError for a file without a valid signature.
    """
    definition, own = intent.components.bases[base], files_of(packages.to_packages(stanzas))
    missing = [one for one in own if not store.has(one.sha256)]
    must(store.fetch(rpm.wanted(missing), progress), "cannot be fetched")
    say(f"{base}: verifying the signatures of {counted(len(own), 'package')}")
    return rpm.signed(intent.root, definition, stanzas, apt_container.inside(foreign.in_engine(image)))


def with_licences(intent: Intent, base: str, text: str, below: packages.Stanzas, say: Say, progress: Progress) -> str:
    """Return a resolved package lock with the licence of each package, for which the package files are fetched.

    `below` are the base's packages under compile stages, because one of them may hold a package's documentation.
    """
    header, stanzas = packages.parse(text, base)
    own, known = packages.to_packages(stanzas), packages.to_packages({**below, **stanzas})
    say(f"{base}: reading the licences of {len(files_of(own))} packages")

    def lost(wanted: list[Package]) -> dict[str, str]:
        sought, epoch = [package for package in wanted if not store.has(package.sha256)], packages.epoch_of(header)
        files = apt.wanted(intent.components.bases[base], sought, epoch) if sought else []
        return store.fetch(files, progress)

    def deb_of(name: str) -> Path | None:
        found = files_of({name: known[name]} if name in known else {})
        return store.path_of(found[0].sha256) if found and not lost(found) else None

    must(lost(files_of(own)), "cannot be fetched")
    said = {package.name: licences.licence(package.name, deb_of) for package in files_of(own)}
    full = {name: stanza | ({packages.LICENCE: said[name]} if name in said else {}) for name, stanza in stanzas.items()}
    return packages.dump(header, full)


class Solved(NamedTuple):
    """One Python package of a solution: its purpose, and the file that fits the image's platform."""

    group: Group
    compile: bool
    offer: pypi.Offer


def held_versions(recipe: Recipe) -> dict[Group, dict[str, str]]:
    """Return the versions of an image's present lock, stale or not, by group and name; {} without a readable lock."""
    found = dict[Group, dict[str, str]]()
    with suppress(TrainwrightError):
        for entry in load(inputs.lock_path(recipe), Lock).python:
            found.setdefault(entry.group, {})[entry.name] = entry.version
    return found


def solve(recipe: Recipe, say: Say, held: Mapping[Group, Mapping[str, str]] = MappingProxyType({})) -> list[Solved]:
    """Resolve an image's Python packages; fetch metadata alone. Versions that `held` names stay if the pins allow them.

    The image, its twin and its compile stages share one solution. Solutions of fewer requirements, constrained to these
    versions, then show which package belongs to which of them.
    """
    base = recipe.base
    index = own_index(recipe)
    twins = lockfile.twins(recipe)
    image = twins[0]
    wanted, tools = lockfile.requirements(image), lockfile.build_requirements(image)
    every = [*wanted.values(), *tools, *(text for twin in twins for text in lockfile.requirements(twin).values())]
    every = list(dict.fromkeys(every))
    say(f"{recipe.variant.lock}: resolving {counted(len(every), 'Python requirement')}")
    solved = _solved(recipe, every, {name: text for group in IMAGE for name, text in held.get(group, {}).items()})
    chosen = [f"{offer.name}=={offer.version}" for offer in solved]

    def needed(requirements: list[str]) -> set[str]:
        if not requirements:
            return set()
        return {
            offer.name for offer in pypi.resolve(requirements, recipe.variant.python, base, index, constraints=chosen)
        }

    core = [text for pin, text in wanted.items() if recipe.component(pin).position != "toolkit"]
    framework, runtime, compiled = needed(core), needed(list(wanted.values())), needed(tools)
    groups: dict[str, Group] = {
        offer.name: "framework" if offer.name in framework else "toolkit" if offer.name in runtime else "devel"
        for offer in solved
    }
    found = [Solved(groups[offer.name], offer.name in compiled, offer) for offer in solved]
    tables: list[tuple[Group, dict[str, str]]] = [
        ("tools", recipe.tools.python_tools),
        ("sdist-build", recipe.tools.sdist_build),
    ]
    for group, table in tables:
        pinned = [f"{name}=={version}" for name, version in table.items()]
        found += [Solved(group, False, offer) for offer in _solved(recipe, pinned, held.get(group, {}))]
    return found


def _solved(recipe: Recipe, requirements: list[str], held: Mapping[str, str]) -> list[pypi.Offer]:
    """Resolve requirements with all `held` versions; anew, if one of these does not go with a pin that has moved."""
    asked = {lockfile.name_of(text) for text in requirements}
    constraints = [f"{name}=={version}" for name, version in sorted(held.items()) if name not in asked]
    words, index = (requirements, recipe.variant.python, recipe.base), own_index(recipe)
    with suppress(LockError, EnvironmentProblem):  # the second: the framework's own index was asked for these versions
        if constraints:
            return pypi.resolve(*words, index, constraints=constraints)
    return pypi.resolve(*words, index)


def lock_python(
    recipe: Recipe,
    solved: list[Solved],
    progress: Progress,
    say: Say = lambda _: None,
    look: own_python.Look | None = None,
) -> tuple[Path, str]:
    """Return the lock's path and text for a solution and the sources; fetch every file to verify size and existence.

    `look` describes a base that has its own Python, which only such an image needs.

    Raises IncompatibleError if two wheels claim one path with different bytes and compat.toml names no winner.
    """
    entries = entries_of(recipe, solved, progress)
    same, _ = wheel_files.found(entries)
    own, brought = own_python.entries(recipe, look, say)
    entries += own
    overlaps.check(recipe.id, recipe.variant.lock_file, entries, same, recipe.intent.compat.winners)
    text = lockfile.dump(
        Lock(
            intent=lockfile.intent_digest(recipe),
            entries=lockfile.entries_digest(entries, same),
            python=entries,
            sources=lock_sources(recipe),
            brought=brought,
            overlaps=same,
        )
    )
    return inputs.lock_path(recipe), text


def entries_of(recipe: Recipe, solved: list[Solved], progress: Progress) -> list[PythonFile]:
    """Return a solution as entries of a lock; fetch every file to verify size and existence."""
    files = [store.Wanted(name=offer.file, sha256=offer.sha256, size=0, urls=[offer.url]) for _, _, offer in solved]
    must(store.fetch(files, progress, **pypi.trust()), "cannot be fetched")
    return [
        PythonFile(
            name=offer.name,
            version=offer.version,
            file=offer.file,
            sha256=offer.sha256,
            size=store.path_of(offer.sha256).stat().st_size,
            group=group,
            compile=compiled,
            licence=pypi.licence(store.path_of(offer.sha256), offer.file),
            needs=pypi.needs(store.path_of(offer.sha256), offer.file, recipe.variant.python, recipe.base),
        )
        for group, compiled, offer in solved
    ]


def lock_sources(recipe: Recipe) -> list[Source]:
    image = lockfile.twins(recipe)[0]
    return [lock_source(image, pin) for pin in image.pins if is_source(image, pin)]


def is_source(recipe: Recipe, pin: str) -> bool:
    return recipe.provider(pin).kind in ("source", "file")


def lock_source(recipe: Recipe, name: str) -> Source:
    """Return a component's source from its release's facts; without a fact, the lock lacks it and is blocked."""
    pin, component = recipe.pins[name], recipe.component(name)
    provider, release = recipe.provider(name), lockfile.release_of(recipe, name)
    return Source(
        name=name,
        version=pin.version,
        url=(provider.git or provider.url).format(version=pin.version),
        tag=provider.tag.format(version=pin.version),
        commit=release.commit,
        sha256=release.sha256,
        size=release.size,
        licence=component.licence,
        checksums=release.checksums,
    )


def admit(intent: Intent, recipes: list[Recipe]) -> None:
    """Check, before anything is resolved, that the images can be built and that each mirror's name is known.

    Raises LockError or ConfigError.
    """
    for recipe in recipes:
        toolkit = recipe.toolkit
        if toolkit and not lockfile.DIGEST.search(toolkit.reference):
            raise LockError(
                lockfile.without_digest(recipe)[0],
                where="dockerfiles/layers",
                why="an image to copy compilers from must be pinned by digest, because its tag can change",
                fix=f"$EDITOR dockerfiles/layers   # add the digest of {toolkit.reference}",
            )
    mirrors.check_names(archive for base in intent.components.bases.values() for archive in base.archives)
    for recipe in recipes:
        render.check(recipe)
        facts.admit(recipe, None, {}, {})


def bases_of(recipes: list[Recipe]) -> list[tuple[str, bool]]:
    """List the package locks: each base, and whether the lock is that of its compile stages."""
    compiling = {recipe.variant.base for recipe in recipes if recipe.compiles}
    return [(base, False) for base in sorted({one.variant.base for one in recipes})] + [
        (base, True) for base in sorted(compiling)
    ]


def waiting(recipes: list[Recipe]) -> tuple[list[Recipe], list[dict[str, str]]]:
    """Return the images that can be locked, and a row for each lock that waits for an unavailable input."""
    reasons = {recipe.id: inputs.awaited(recipe) for recipe in recipes}
    names = {recipe.id: recipe.variant.lock for recipe in recipes}
    rows = {name: {"lock": name, "state": "blocked", "why": "; ".join(reasons[one])} for one, name in names.items()}
    held = [recipe for recipe in recipes if not reasons[recipe.id]]
    return held, [row for name, row in rows.items() if name not in {recipe.variant.lock for recipe in held}]


def lock_all(
    intent: Intent,
    recipes: list[Recipe],
    by_name: bool,
    say: Say,
    progress: Progress,
    look: own_python.Look | None = None,
) -> list[dict[str, str]]:
    """Write the stale or missing locks; try a lock that waits for an input only if it is requested by name.

    A stale lock keeps its versions where the pins allow it, so that a new pin moves nothing else; `update` moves them.
    """
    rows: list[dict[str, str]] = []
    if not by_name:
        recipes, rows = waiting(recipes)
    admit(intent, recipes)
    for base, tools in bases_of(recipes):
        name = inputs.packages_path(intent, base, tools).stem
        if is_current(inputs.current_distribution, intent, base, tools):
            rows.append(_kept(name))
        else:
            below = inputs.read_distribution(intent, base).locked if tools else {}
            path, text = lock_packages(intent, base, tools, below, say)
            rows.append(_written(name, path, described(intent, base, text, below, say, progress)))
    locks = {recipe.variant.lock: recipe for recipe in recipes}
    stale = [name for name, recipe in locks.items() if not is_current(inputs.load, recipe)]
    rows += [_kept(name) for name in locks if name not in stale]
    for number, name in enumerate(stale, 1):
        if len(stale) > 1:
            say(f"lock {number} of {len(stale)}")
        solved = solve(locks[name], say, held_versions(locks[name]))
        rows.append(_written(name, *lock_python(locks[name], solved, progress, say, look)))
    return [row | {"why": row.get("why", "")} for row in rows] if any("why" in row for row in rows) else rows


def check_locks(intent: Intent, recipes: list[Recipe]) -> tuple[list[dict[str, str]], LockError | None]:
    """Return every lock with its state and why, and the error to exit with if one is not current; use no network.

    Raises ConfigError and IncompatibleError, which no lock would fix.
    """
    found: dict[Path, LockError | None] = {}
    recipes, blocked = waiting(recipes)
    for base, tools in bases_of(recipes):
        found[inputs.packages_path(intent, base, tools)] = _complaint(inputs.current_distribution, intent, base, tools)
    for recipe in recipes:
        own, complaint = inputs.lock_path(recipe), _complaint(inputs.load, recipe)
        blamed = next(
            (path for path in found if complaint and complaint.where.partition(":")[0].endswith(f"/{path.name}")), own
        )
        found[blamed] = found.get(blamed) or complaint
        if blamed != own:  # its packages' lock is at fault; its own lock is checked for whether it matches the intent
            found[own] = found.get(own) or _complaint(_answers, recipe)
    rows = [_state(path, complaint) for path, complaint in found.items()] + blocked
    wrong = [complaint for complaint in found.values() if complaint]
    if not wrong:
        return rows, None
    lacking = next((complaint.fix for complaint in wrong if "--update" in complaint.fix), "")
    what = f"{len(wrong)} of {len(found)} locks {'is' if len(wrong) == 1 else 'are'} stale or missing"
    fix = "trainwright lock"
    if len(recipes) < len(inputs.held(intent)):  # the others were not asked for, and may well be stale
        lost = {path for path, complaint in found.items() if complaint}
        ids = [recipe.variant.lock for recipe in recipes if lost & _locks_of(recipe)]  # a twin has that of its image
        fix = lockfile.RELOCK.format(id=" ".join(dict.fromkeys(ids)))
    return rows, LockError(what, where="dockerfiles/locks", fix=lacking or fix)


def _locks_of(recipe: Recipe) -> set[Path]:
    packages_of = (inputs.packages_path(recipe.intent, recipe.variant.base, tools) for tools in (False, True))
    return {inputs.lock_path(recipe), *packages_of}


def _answers(recipe: Recipe) -> None:
    if inputs.read_lock(recipe).intent != lockfile.intent_digest(recipe):
        raise LockError("the lock is stale: the matrix or a component changed since it was written")


def _complaint(read: Callable[..., object], *words: object) -> LockError | None:
    try:
        read(*words)
    except LockError as error:
        return error
    return None


def _state(path: Path, complaint: LockError | None) -> dict[str, str]:
    """Return one row of the table: what is wrong with a lock, without the lock's path."""
    state = "current" if complaint is None else "stale" if path.exists() else "missing"
    why = "" if complaint is None or state == "missing" else ": ".join(filter(None, (complaint.named, complaint.why)))
    return {"lock": path.stem, "state": state, "why": why}


def is_current(read: Callable[..., object], *words: object) -> bool:
    return _complaint(read, *words) is None


def _written(name: str, path: Path, text: str) -> dict[str, str]:
    same = path.is_file() and path.read_bytes() == text.encode()
    write(project.place(path), text)
    return {"lock": name, "state": "unchanged" if same else "written", "why": ""}


def _kept(name: str) -> dict[str, str]:
    return {"lock": name, "state": "current", "why": ""}
