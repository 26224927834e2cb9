"""Resolve a requirements file against the image that it is added to, and write the result as a separate lock."""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from zipfile import ZipFile

from trainwright.core import store
from trainwright.core.errors import ConfigError, LockError, TrainwrightError
from trainwright.core.files import write_named
from trainwright.core.progress import Progress, Say, counted
from trainwright.image import child, inputs, render
from trainwright.lock import additions, diff, lockfile, overlaps, requirements, wheel_files
from trainwright.lock.diff import Change
from trainwright.lock.requirements import Asked
from trainwright.lock.wheels import is_wheel
from trainwright.matrix.matrix import Recipe
from trainwright.matrix.model import Compiled, Group, Lock, PythonFile
from trainwright.resolve import conflicts, loadable, pypi
from trainwright.resolve.conflicts import Below, Question
from trainwright.resolve.fetch import must
from trainwright.resolve.pypi import Beside, Offer


def lock_additions(recipe: Recipe, say: Say, progress: Progress) -> list[dict[str, str]]:
    """Write the lock of one image's requirements file, unless it is current. Raises what solved() raises."""
    path = additions.lock_path(recipe)
    if not check_lock(recipe)[1]:
        return [{"lock": str(path), "state": "current"}]
    text = lockfile.dump(solved(recipe, say, progress))
    same = path.is_file() and path.read_bytes() == text.encode()
    write_named(path, text)
    return [{"lock": str(path), "state": "unchanged" if same else "written"}]


def update(recipe: Recipe, keep: bool, say: Say, progress: Progress) -> list[Change]:
    """Resolve the lock anew and return its changes; with `keep`, write it if needed. Raises what solved() raises."""
    path, before = additions.lock_path(recipe), None
    with suppress(LockError):  # a missing or broken lock leaves nothing to compare with
        before = child.read_lock(recipe)
    new = solved(recipe, say, progress)
    held = diff.python_held(before) if before else {}
    moved = diff.changes(path.name, "python", held, diff.python_held(new))
    if keep and (moved or check_lock(recipe)[1]):
        write_named(path, lockfile.dump(new))
    return moved


def solved(recipe: Recipe, say: Say, progress: Progress) -> Lock:
    """Resolve a requirements file against the versions that the image was proved with.

    Raises ConfigError if a line cannot be locked or the parent holds all of it already, IncompatibleError if a line
    would change a version that the image was proved with or a file of its wheels, or needs a library that an image
    without CUDA lacks, LockError if a package exists nowhere.
    """
    below = Below.of(recipe, inputs.load(additions.parent_of(recipe)))
    return solved_upon(recipe, below, requirements.read(Path(recipe.variant.requirements)), say, progress)


def solved_upon(recipe: Recipe, below: Below, asked: Asked, say: Say, progress: Progress) -> Lock:
    """Resolve requirements against any image, of the matrix or of others. Raises what solved() raises."""
    known = additions.settings(recipe.root)
    marked = next((line for line in asked.lines if line.compile), None)
    if marked and below.made_by_others:
        raise ConfigError(
            f"{marked.text} cannot be compiled for {below.name}",
            where=marked.where,
            why="`# trainwright: compile` needs the devel twin of an image of the matrix, with its torch and CUDA",
            fix=f"leave that comment out, and {below.wheel_fix}",
        )
    table = {} if below.made_by_others else additions.to_compile(known, asked)
    say(f"{recipe.id}: resolving {counted(len(asked.lines), 'requirement')} against {below.name}")
    with stand_ins(below.lock.python) as folder:
        question = Question.of(recipe, below, asked, folder)
        conflicts.check_lines(question)
        question = _with_sources(question, table, progress)
        offers = conflicts.solve(question)
        conflicts.check_refused(question, additions.harms(known, recipe, below.lock) | _twice(recipe), offers)
        if not offers:
            raise ConfigError(
                f"{below.name} already has all of these packages",
                where=recipe.variant.requirements,
                fix=below.build,
            )
        files = _files(question, offers, "added", progress)
        for line in asked.lines:
            for entry in files:
                additions.check_hashes(line, entry)
        loadable.check(recipe, files, asked.lines, known.lacking, below.name)
        sources = [entry for entry in files if not is_wheel(entry)]
        plain = _built_with(question, [entry for entry in sources if entry.name not in table], progress)
        compiled, tools = _compiled_with(question, [e for e in sources if e.name in table], table, progress)
    entries = [*files, *plain, *tools]
    whole = [*additions.held(recipe, below.lock), *entries]
    same, unread = wheel_files.found(whole)
    if unread:
        more = "the build compares them" if below.made_by_others else f"trainwright fetch {below.name}"
        say(
            f"{recipe.id}: not compared with the files of {counted(len(unread), 'wheel')} that this host lacks, such "
            f"as {unread[0]}: {more}"
        )
    own = [row for row in same if row not in below.lock.overlaps]
    overlaps.check(recipe.id, below.lock_file, whole, own, recipe.intent.compat.winners)
    return Lock(
        intent=additions.intent_digest(recipe, below.lock, asked, known),
        entries=lockfile.entries_digest(entries, own),
        python=entries,
        compiled=compiled,
        overlaps=own,
    )


def check_lock(recipe: Recipe) -> tuple[list[dict[str, str]], TrainwrightError | None]:
    """Return the lock's state and, if it is not current, the error to exit with; use no network."""
    path = additions.lock_path(recipe)
    try:
        child.load(recipe)
    except LockError as error:
        state = "stale" if path.exists() else "missing"
        return [{"lock": str(path), "state": state, "why": ": ".join(filter(None, (error.named, error.why)))}], error
    return [{"lock": str(path), "state": "current", "why": ""}], None


def _twice(recipe: Recipe) -> dict[str, str]:
    """Return the packages that no job may install on this image, so that no lock adds them either, with the reason."""
    harm = "it has the files of a package of the image under another name, and would overwrite them"
    return dict.fromkeys(render.refused(recipe), harm)


@contextmanager
def stand_ins(entries: Iterable[PythonFile]) -> Iterator[Path]:
    """Yield a folder of stand-ins for the image's versions that no public index has, such as 2.13.0+cpu.

    The wheels hold metadata alone, because the resolver reads nothing else and the image's packages are not installed
    again. The rest of the image has no stand-ins, because uv installs from this folder what it needs to query a source
    distribution, for example setuptools.
    """
    with store.scratch() as folder:
        for entry in entries:
            if (is_wheel(entry) or entry.group == "base") and "+" in entry.version:
                # A base's own Python is only asked for names and versions: no file of its packages is known.
                file = entry.file or f"{entry.name.replace('-', '_')}-{entry.version}-py3-none-any.whl"
                known = store.path_of(entry.sha256) if entry.sha256 else None
                said = pypi.metadata(known, file).as_string() if known and known.is_file() else _metadata(entry)
                info = "-".join(file.split("-")[:2]) + ".dist-info"
                with ZipFile(folder / file, "w") as wheel:
                    wheel.writestr(f"{info}/METADATA", said)
                    wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
                    wheel.writestr(f"{info}/RECORD", "")
        yield folder


def _metadata(entry: PythonFile) -> str:
    """Return the METADATA of a wheel that is not in the store, from what the lock holds of it."""
    needs = "".join(f"Requires-Dist: {need}\n" for need in entry.needs)
    return f"Metadata-Version: 2.1\nName: {entry.name}\nVersion: {entry.version}\n{needs}"


def _with_sources(question: Question, rows: Mapping[str, additions.Compilable], progress: Progress) -> Question:
    """Return the question with the requirements that compiled sources declare, which uv would run without torch."""
    lines = [line for line in question.lines if line.name in rows]
    if not lines:
        return question
    beside = question.beside.model_copy(update={"from_source": tuple(line.name for line in lines)})
    offers = conflicts.resolve(question.model_copy(update={"lines": lines, "beside": beside}), deps=False)
    files = _files(question, offers, "added", progress)
    requires = {
        f"{entry.name}=={entry.version}": pypi.requires(store.path_of(entry.sha256), entry.file) for entry in files
    }
    beside = beside.model_copy(update={"requires": requires})
    return question.model_copy(update={"beside": beside, "constraints": [*question.constraints, *requires]})


def _files(question: Question, offers: Iterable[Offer], group: Group, progress: Progress) -> list[PythonFile]:
    """Turn offers into lock entries; fetch every file, so that its size and existence are verified."""
    offers = list(offers)
    wanted = [store.Wanted(name=offer.file, sha256=offer.sha256, size=0, urls=[offer.url]) for offer in offers]
    must(store.fetch(wanted, progress, **pypi.trust()), "cannot be fetched")

    def entry(offer: Offer) -> PythonFile:
        path = store.path_of(offer.sha256)
        return PythonFile(
            name=offer.name,
            version=offer.version,
            file=offer.file,
            sha256=offer.sha256,
            size=path.stat().st_size,
            group=group,
            licence=pypi.licence(path, offer.file),
            needs=pypi.needs(path, offer.file, question.python, question.base),
        )

    return [entry(offer) for offer in offers]


def _built_with(question: Question, sources: list[PythonFile], progress: Progress) -> list[PythonFile]:
    """Resolve the wheels that build source distributions: those of tools.toml and the declared build requirements."""
    if not sources:
        return []
    own = [f"{name}=={version}" for name, version in question.below.recipe.tools.sdist_build.items()]
    said = [pypi.build_requirements(store.path_of(entry.sha256)) for entry in sources]
    wanted = list(dict.fromkeys([*own, *(text for rows in said for text in rows or [])]))
    return _wheels(question, wanted, [], "sdist-build", progress)


def _compiled_with(
    question: Question,
    sources: list[PythonFile],
    rows: Mapping[str, additions.Compilable],
    progress: Progress,
) -> tuple[list[Compiled], list[PythonFile]]:
    """Resolve what each compilation needs beyond the image with the compilers, whose versions are kept."""
    if not sources:
        return [], []
    below, wanted = question.below, dict[str, list[str]]()
    tools = list(below.recipe.tools.sdist_build)
    for entry in sources:
        said = rows[entry.name].build_requirements
        if said is None:
            said = pypi.build_requirements(store.path_of(entry.sha256))
        wanted[entry.name] = tools if said is None else said
    compiler = additions.compiler_of(below.recipe, sources[0].name)
    present = {name: entry.version for name, entry in compiler.installed(below.lock).items()}
    held = [f"{name}=={version}" for name, version in present.items()]
    every = list(dict.fromkeys(text for texts in wanted.values() for text in texts))
    files = [e for e in _wheels(question, every, held, "compile-build", progress) if e.name not in present]
    pinned = [*held, *(f"{entry.name}=={entry.version}" for entry in files)]
    names = {entry.name for entry in files}
    compiled = []
    for name, texts in wanted.items():
        offers = pypi.resolve(texts, question.python, question.base, constraints=pinned, beside=question.beside)
        compiled.append(Compiled(name=name, build=sorted(names & {offer.name for offer in offers})))
    return compiled, files


def _wheels(
    question: Question, wanted: list[str], held: list[str], group: Group, progress: Progress
) -> list[PythonFile]:
    """Resolve build requirements to wheels. Raises LockError if one has no wheel."""
    plain = Beside(folder=question.beside.folder)
    offers = pypi.resolve(wanted, question.python, question.base, constraints=held, beside=plain)
    present = {text.partition("==")[0] for text in held}
    offers = [offer for offer in offers if offer.name not in present]
    if source := next((offer for offer in offers if not offer.file.endswith(".whl")), None):
        raise LockError(
            f"the build requirement {source.name} {source.version} has no wheel for this image",
            where=question.file,
            why=f"the index only offers {source.file}",
            fix="add an index or a find-links folder with such a wheel to pip's configuration",
        )
    return _files(question, offers, group, progress)
