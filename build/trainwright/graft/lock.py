"""Lock what a graft adds, on the spot: packages for its distribution, wheels for its Python, sources; fetch all of it.

The lock lies in out/<id>/ in the formats of dockerfiles/locks/. It stays as long as image and matrix say the same.
"""

from pathlib import Path
from typing import NamedTuple

from trainwright.core import store
from trainwright.core.errors import EnvironmentProblem, IncompatibleError, LockError
from trainwright.core.files import write
from trainwright.core.progress import Progress, Say
from trainwright.core.toml import parse, read
from trainwright.graft import distribution, with_file
from trainwright.graft import recipe as graft_recipe
from trainwright.graft.distribution import Resolved
from trainwright.graft.found import Found
from trainwright.graft.wanted import File
from trainwright.image.inputs import Distribution
from trainwright.lock import lockfile, packages
from trainwright.lock.additions import lines_of
from trainwright.lock.facts import facts_of
from trainwright.matrix.compat import place, violations
from trainwright.matrix.matrix import Recipe
from trainwright.matrix.model import Group, Lock, PythonFile
from trainwright.matrix.providers import for_accelerator
from trainwright.matrix.remedy import sentence
from trainwright.resolve import pypi, upstream
from trainwright.resolve.fetch import files_of, must, offers_of
from trainwright.resolve.fetch import wanted as files_wanted
from trainwright.resolve.pypi import Beside
from trainwright.resolve.resolve import Solved, entries_of, lock_sources
from trainwright.resolve.with_packages import stand_ins

FILES = ("graft.lock.toml", "graft.packages", "graft.build.packages")


class Locked(NamedTuple):
    """The lock of a graft. `packages` are those of the image with what is added, `tools` those of compile stages."""

    lock: Lock
    packages: Distribution
    tools: Distribution | None


def locked(
    recipe: Recipe, found: Found, out: Path, epoch: int, say: Say, progress: Progress, file: File | None = None
) -> Locked:
    """Return the lock of out/<id>/ if it is current, else a new one, which is written; fetch everything it names.

    `file` has what a team adds, `epoch` is the time of the image. Raises LockError and IncompatibleError if something
    cannot be resolved for this image, EnvironmentProblem if a mirror, an index or an address is not reached.
    """
    wanted = _intent(recipe, found, file)
    one = held(recipe, found, out, epoch, file)
    if one is None:
        one = _resolved(recipe, found, wanted, epoch, say, progress)
        one = one._replace(lock=with_file.onto(recipe, found, one.lock, file, say, progress)) if file else one
        _write(out, one, wanted)
    admit(recipe, one)
    fetch(recipe, one, say, progress)
    return one


def held(recipe: Recipe, found: Found, out: Path, epoch: int, file: File | None = None) -> Locked | None:
    """Return the lock of out/<id>/; None if there is none, or image, matrix or file say something else now."""
    return _read(out, _intent(recipe, found, file), epoch)


def _intent(recipe: Recipe, found: Found, file: File | None = None) -> str:
    python = found.python
    held = python.packages if python else {}
    own = [lines_of(file.asked)] if file else []
    return lockfile.digest(
        [found.pinned, lockfile.intent_digest(recipe), _names(recipe), graft_recipe.tools(recipe), held, *own]
    )


def _names(recipe: Recipe) -> list[str]:
    return lockfile.distribution_packages(recipe.intent, recipe.variant.base)


def _read(out: Path, wanted: str, epoch: int) -> Locked | None:
    own, first, second = (out / name for name in FILES)
    if not own.exists() or not first.exists():
        return None
    lock = parse(read(own, str(own)), Lock, str(own))
    if lock.intent != wanted:
        return None
    return Locked(lock, _distribution(first.read_text(), epoch), _of_tools(second, epoch))


def _of_tools(path: Path, epoch: int) -> Distribution | None:
    return _distribution(path.read_text(), epoch) if path.exists() else None


def _distribution(text: str, epoch: int) -> Distribution:
    header, stanzas = packages.parse(text, FILES[1])
    when = packages.epoch_of(header) if files_of(packages.to_packages(stanzas)) else epoch
    return Distribution(intent=header["Intent"], epoch=when, locked=stanzas, effective=stanzas, drift=[], unmet=None)


def _write(out: Path, one: Locked, wanted: str) -> None:
    for name, state in zip(FILES[1:], (one.packages, one.tools), strict=True):
        (out / name).unlink(missing_ok=True)
        if state:
            write(out / name, packages.dump(_header(wanted, state.epoch), state.locked))
    write(out / FILES[0], lockfile.dump(one.lock))  # last: without it the others do not count


def _header(wanted: str, epoch: int) -> dict[str, str]:
    from datetime import UTC, datetime

    date = datetime.fromtimestamp(epoch, UTC)
    return {"Intent": wanted, "Date": date.strftime("%a, %d %b %Y %H:%M:%S GMT")}


def _resolved(recipe: Recipe, found: Found, wanted: str, epoch: int, say: Say, progress: Progress) -> Locked:
    own, more = distribution.resolved(recipe, found, _names(recipe), graft_recipe.tools(recipe), say, progress)
    whole = _distribution(_text(wanted, epoch, own), epoch)
    added = _distribution(_text(wanted, epoch, more), epoch) if more else None
    python = _python(recipe, found, say, progress)
    sources = lock_sources(recipe)
    entries = lockfile.entries_digest(python)
    return Locked(Lock(intent=wanted, entries=entries, python=python, sources=sources), whole, added)


def _text(wanted: str, epoch: int, found: Resolved) -> str:
    header = {"Intent": wanted, "Date": found.date} if found.date else _header(wanted, epoch)
    return packages.dump(header, found.stanzas)


def _python(recipe: Recipe, found: Found, say: Say, progress: Progress) -> list[PythonFile]:
    """Resolve the wheels that a graft adds, with every package of the image's own Python as a constraint."""
    python = found.python
    assert python is not None  # because the plan refuses an image without Python
    wanted, compiling = list(lockfile.requirements(recipe).values()), cuda_requirements(recipe, found)
    if not wanted and not compiling and not recipe.variant.requirements:
        return []
    solved = list[Solved]()
    with stand_ins(with_file.of_the_image(python)) as folder:
        asked: list[tuple[Group, list[str], bool]] = [("toolkit", wanted, False), ("devel", compiling, True)]
        for group, texts, compiled in asked:
            if texts:
                say(f"{recipe.id}: resolving {', '.join(texts)} for Python {python.version}")
                offers = _offers(recipe, found, texts, str(folder))
                solved += [Solved(group, compiled, one) for one in offers if one.name not in python.packages]
    tools: list[tuple[Group, dict[str, str]]] = [("tools", recipe.tools.python_tools)]
    if wanted or compiling:
        tools.append(("sdist-build", recipe.tools.sdist_build))
    for group, table in tools:
        pinned = [f"{name}=={version}" for name, version in table.items()]
        solved += [Solved(group, False, one) for one in pypi.resolve(pinned, recipe.variant.python, recipe.base)]
    return entries_of(recipe, solved, progress)


def _offers(recipe: Recipe, found: Found, texts: list[str], folder: str) -> list[pypi.Offer]:
    """Resolve requirements that keep every package of the image. Raises IncompatibleError if none do."""
    python = found.python
    held = [f"{name}=={version}" for name, version in sorted(python.packages.items())] if python else []
    words = (texts, recipe.variant.python, recipe.base)
    try:
        return pypi.resolve(*words, constraints=held, beside=Beside(folder=folder))
    except LockError as error:
        raise IncompatibleError(
            f"{', '.join(texts)} cannot be added to {found.reference}",
            where=python.path if python else "",
            why=f"no version goes with the packages of that Python, which stay as they are: {error.why}",
            fix="move the package that is named there in the image, or use --target ec2",
        ) from None


def cuda_requirements(recipe: Recipe, found: Found) -> list[str]:
    """Return the wheels of nvcc that compile stages need; [] if nothing is compiled, or the image has nvcc."""
    if not recipe.compiles or found.has_nvcc:
        return []
    version = f"{found.cuda}.*"
    texts = recipe.component("cuda").provider("wheels").build_requirements
    chosen = (for_accelerator(text, found.accelerator) for text in texts)
    return [text.format(version=version, accelerator=found.accelerator) for text in chosen if text]


def admit(recipe: Recipe, one: Locked) -> None:
    """Judge the exact versions by compat.toml. Raises IncompatibleError for the first rule that refuses them."""
    tools = one.tools.packages() if one.tools else {}
    facts = facts_of(recipe, one.lock, one.packages.packages(), tools)
    for broken in violations(recipe.intent.compat, facts):
        if broken.severity == "refuse":
            raise IncompatibleError(
                f"{recipe.id}: {sentence(broken)}",
                where=recipe.base.reference,
                why=f"{broken.rule} ({place(recipe.root, broken)})",
                fix="use another --fabric, or an image of a newer distribution or framework",
            )


def fetch(recipe: Recipe, one: Locked, say: Say, progress: Progress) -> None:
    """Fetch every file of the lock into the store. Raises LockError, EnvironmentProblem."""
    for state in filter(None, (one.packages, one.tools)):
        missing = [package for package in files_of(state.packages()) if not store.has(package.sha256)]
        if missing:
            lost = store.fetch(files_wanted(recipe.base, missing, state.epoch), progress)
            must(lost, "can no longer be fetched; remove out/" + recipe.id + "/" + FILES[0])
    wheels = [entry for entry in one.lock.python if not store.has(entry.sha256)]
    if wheels:
        offers = offers_of(recipe, wheels)
        files = [
            store.Wanted(
                name=entry.file,
                sha256=entry.sha256,
                size=entry.size,
                urls=[offers[entry.file].url] if entry.file in offers else [],
            )
            for entry in wheels
        ]
        must(store.fetch(files, progress, **pypi.trust()), "can no longer be fetched")
    for source in one.lock.sources:
        try:
            upstream.fetch(source, say, progress)
        except (LockError, EnvironmentProblem) as error:
            raise EnvironmentProblem(
                f"{source.name} {source.version} was not reached from here",
                where=source.url,
                why=error.why or error.what,
                fix=f"export TRAINWRIGHT_MIRRORS='{source.url.rpartition('/')[0]}=<a mirror that has it>', or build "
                "on a host that reaches this address; everything else is locked",
            ) from None
