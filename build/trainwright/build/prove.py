"""Prove the images whose inputs this machine can get, one after the other: disk, sources, build, push, tests, record.

`scripts/test-images.sh` builds, pushes and tests, as for CI; `recording` records. Because a record says which inputs
were proved, an interrupted run goes on where it ended.
"""

import json
import re
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby
from pathlib import Path
from threading import Event, Thread
from typing import Any, Literal, TypeVar
from urllib.parse import urlsplit

from trainwright.build import build, disk, loopback, proofs, recording, state
from trainwright.core import console, host_settings, process, project, store
from trainwright.core.errors import (
    AwsError,
    BuildError,
    ConfigError,
    EnvironmentProblem,
    IncompatibleError,
    LockError,
    NotRunError,
    RegistryError,
    TestError,
    TrainwrightError,
)
from trainwright.core.files import only_one, write
from trainwright.core.progress import Say, counted, few
from trainwright.docker import buildx, engine
from trainwright.image import inputs
from trainwright.image.inputs import Inputs
from trainwright.matrix.matrix import Recipe, load_intent
from trainwright.matrix.records import Standing
from trainwright.registry import client
from trainwright.resolve import fetch, foreign, upstream

R = TypeVar("R")

SCRIPT = "scripts/test-images.sh"
UPDATE = "trainwright lock --update"
# The class of a failure by the exit code of what failed.
CODES: dict[int, type[TrainwrightError]] = {
    kind.exit_code: kind
    for kind in (
        *(ConfigError, IncompatibleError, LockError, BuildError, TestError),
        *(NotRunError, RegistryError, AwsError, EnvironmentProblem),
    )
}


@dataclass
class Row:
    """The result for one image: one row of the table at the end."""

    id: str
    state: Literal["to prove", "proved", "failed", "left"]
    reason: str
    seconds: float = 0
    error: TrainwrightError | None = None  # of a failed image
    fix: str = ""  # of a left image: what would let it be proved
    retry: bool = False  # a left image can be proved on this machine, with more time or disk or its fix: exit code 7

    @property
    def said(self) -> str:
        """Return the reason, and what helps."""
        return "; ".join(filter(None, (self.reason, self.fix)))


@dataclass
class Plan:
    """The images to prove, in order; those that cannot be proved, and why; the number of those that are proved."""

    images: list[Inputs]
    left: list[Row]
    proved: int
    reasons: dict[str, str]  # of the images to prove: id to why it is not proved


@dataclass
class How:
    """Settings of one run."""

    root: Path
    say: Say
    keep: bool = False  # proved images stay in the engine
    until: float = float("inf")  # no image begins later; seconds of time.monotonic()

    @cached_property
    def host(self) -> host_settings.Host:
        return host_settings.host(self.root)

    @property
    def rest(self) -> float:
        """Return the bytes that each disk needs beyond what an image's sources say."""
        return self.host.prove.rest_gb * 1e9

    @property
    def folder(self) -> Path:
        """Return the folder of logs, and of the names of images that a run brought into the engine."""
        return self.root / "out/.prove"


# --- which images, in which order ------------------------------------------------------------------------------------


def plan(recipes: Iterable[Recipe]) -> Plan:
    """Sort images into those to prove and those that cannot be proved here. Uses no network and no engine."""
    found = Plan([], [], 0, {})
    for recipe in recipes:
        standing = proofs.standing(recipe)
        due = _due(recipe, standing)
        if not due:
            found.proved += 1
            continue
        if standing.state == "blocked":
            found.left.append(Row(recipe.id, "left", standing.reason, fix=_unblocking(recipe)))
            continue
        try:
            one = inputs.load(recipe)
        except TrainwrightError as error:
            project.cite(error, recipe.root)
            found.left.append(Row(recipe.id, "left", error.named, fix=error.fix, retry=True))
            continue
        if why := drifted(one):
            found.left.append(Row(recipe.id, "left", why, fix=UPDATE))
            continue
        found.images.append(one)
        found.reasons[recipe.id] = due
    found.images = order(found.images)
    return found


def _due(recipe: Recipe, standing: Standing) -> str:
    """Return why an image is to be proved, or proved again; "" for one that is proved by the present tests."""
    if standing.state == "proved" and standing.record:
        return proofs.changed(recipe, standing.record)
    return standing.reason or standing.state


def _unblocking(recipe: Recipe) -> str:
    """Return what to do for an image that awaits an address or a digest; "" for one that lacks something else."""
    try:
        inputs.refuse_awaiting(recipe)
    except LockError as error:
        return error.fix
    return ""


def order(images: Iterable[Inputs]) -> list[Inputs]:
    """Order images so that caches serve, and cheap ones come first.

    Images with the same framework, accelerator and Python share the largest wheels and stay together, and within those
    the ones on the same base. Smaller sources come first, then what compiles nothing; a devel twin after its image;
    an image for EC2 beside the one for SageMaker.
    """

    def size(one: Inputs) -> int:
        return sum(disk.sources_of(one).values())

    def wheels(one: Inputs) -> tuple[str, ...]:
        return (one.variant.framework, one.variant.release, one.variant.accelerator, one.variant.python)

    def row(one: Inputs) -> tuple[str, ...]:
        return (*wheels(one), one.variant.base, one.variant.flavour)

    def cost(group: list[Inputs]) -> tuple[bool, int]:
        return any(one.recipe.compiles for one in group), min(map(size, group))

    rows = [sorted(group, key=lambda one: (one.variant.devel, one.variant.target)) for group in _grouped(images, row)]
    families = _grouped(rows, lambda group: wheels(group[0]))
    for family in families:
        family.sort(key=cost)
    families.sort(key=lambda family: (min(cost(group)[1] for group in family), wheels(family[0][0])))
    return [one for family in families for group in family for one in group]


def _grouped(rows: Iterable[R], key: Callable[[R], tuple[str, ...]]) -> list[list[R]]:
    return [list(group) for _, group in groupby(sorted(rows, key=key), key)]


def drifted(found: Inputs) -> str:
    """Return why an image cannot be recorded although it can be built: packages that left the mirror; or ""."""
    if not found.drift:
        return ""
    one = f"{counted(len(found.drift), 'locked package')} left the mirror, such as {found.drift[0].package}"
    return f"{one}: an image with other packages is not recorded"


def starts_from(recipe: Recipe) -> list[str]:
    """Return the images of others that a build starts from or copies compilers from."""
    base = [recipe.base.reference] if recipe.base.provider == "image" else []
    return base + ([recipe.toolkit.reference] if recipe.toolkit else [])


# --- what would happen -----------------------------------------------------------------------------------------------


def forecast(how: How, planned: Plan) -> list[dict[str, Any]]:
    """Return a row for each image: those to prove in their order, with bytes to fetch and needed on disk; the rest.

    `untried` says that something must be fetched, which this does not try. Raises EnvironmentProblem if an engine
    answers and cannot be used.
    """
    answers = engine.answers()
    folder = _engine_folder() if answers else None
    rows, left = list[dict[str, Any]](), list[Row]()
    for one in planned.images:
        if answers and (unbuildable := _unbuildable(one)):
            left.append(unbuildable)
            continue
        wanted = disk.to_prove(one, how.host.prove.disk, folder, build=True)
        disks = disk.disks(wanted, how.rest)
        short = disk.short(disks)
        to_fetch = fetch.to_fetch([one.recipe])
        absent = [source for source in one.lock.sources if not upstream.has(source)]
        unknown = [f"{source.name} from {urlsplit(source.url).hostname}" for source in absent]
        notes = [planned.reasons[one.variant.id]]
        notes += [f"also to fetch: {', '.join(unknown)}"] if unknown else []
        notes += [f"short of disk now: {disk.said(row)}" for row in short]
        row = {
            "id": one.variant.id,
            "state": "waits for disk" if short else "to prove",
            "fetch": to_fetch,
            "disk": int(sum(row.need for row in disks)),
        }
        rows.append({**row, "untried": bool(to_fetch or absent), "reason": "; ".join(notes)})
    none = {"fetch": None, "disk": None, "untried": False}
    return rows + [{"id": row.id, "state": row.state, **none, "reason": row.said} for row in left + planned.left]


def summary(rows: Iterable[dict[str, Any]]) -> str:
    """Return the numbers of a forecast in one line."""
    rows = list(rows)
    states = [row["state"] for row in rows]
    waits, untried = states.count("waits for disk"), sum(row["untried"] for row in rows)
    said = f"{states.count('to prove')} to prove"
    said += f", {waits} wait{'s' * (waits == 1)} for disk" if waits else ""
    said += f", {states.count('left')} left"
    return said + (f"; {untried} need{'s' * (untried == 1)} a download that was not tried" if untried else "")


def _unbuildable(found: Inputs) -> Row | None:
    """Return a row if the builder does not run the image's architecture. Raises EnvironmentProblem if none answers."""
    builder = engine.builder()
    try:
        buildx.must_build_for(builder, found.recipe.base.architecture)
    except EnvironmentProblem as error:
        return Row(found.variant.id, "left", _line(error), fix=error.fix)
    return None


# --- one after the other ---------------------------------------------------------------------------------------------


def run(how: How, planned: Plan, wait: bool = True) -> tuple[list[Row], bool]:
    """Prove the images of a plan; return a row for each image, and whether Ctrl-C ended it.

    Raises EnvironmentProblem if engine, buildx or registry do not answer, or another such command works here and `wait`
    is false. Everything else is a row.
    """
    engine.client()
    engine.builder()
    address = loopback.up(how.root, how.say)
    if planned.images:
        project.place(proofs.record_path(planned.images[0].recipe))  # raises now rather than after hours
    rows, waiting = list[Row](), list(planned.images)
    project.make_out(how.root)
    with only_one(how.folder, how.say, wait):
        try:
            for row in _each(how, waiting, address):
                rows.append(row)
                how.say(f"prove: {row.id}: {row.state} after {row.seconds:.0f} s: {row.said}")
        except KeyboardInterrupt:
            rows += [Row(one.variant.id, "left", "interrupted", retry=True) for one in waiting]
            return rows + planned.left, True
    return rows + planned.left, False


def _each(how: How, waiting: list[Inputs], address: str) -> Iterator[Row]:
    """Yield a row for each image, and take it out of `waiting`: first those that lack an input, which takes seconds."""
    lost = dict[str, TrainwrightError]()
    for one in list(waiting):
        if found := _lacking(one, lost):
            waiting.remove(one)
            yield found
    images = list(waiting)
    for number, one in enumerate(images, 1):
        if time.monotonic() > how.until:
            row = Row(one.variant.id, "left", "no image begins after the given minutes", retry=True)
        else:
            if number > 1:
                _prune(how)
            how.say(f"prove: {one.variant.id}, {number} of {len(images)}")
            row = _one(one.variant.id, how, address)
        waiting.pop(0)
        yield row


def _lacking(found: Inputs, lost: dict[str, TrainwrightError]) -> Row | None:
    """Return a row if an image cannot be built here, or if a source is not to be had; `lost` collects such sources.

    Sources are fetched before the first build, because they come from addresses that no package mirror replaces.
    """
    if row := _unbuildable(found):
        return row
    for source in found.lock.sources:
        name = source.commit or source.sha256
        if name not in lost and not upstream.has(source):
            try:
                with console.progress(source.size or 0) as (say, advance):
                    upstream.fetch(source, say, advance)
            except TrainwrightError as error:
                lost[name] = error
        if name in lost:
            return _unproved(found.variant.id, lost[name])
    return None


def _unproved(identity: str, error: TrainwrightError) -> Row:
    """Return the row for an error before the build: `left` if an input cannot be had here, else `failed`."""
    if error.where == str(store.root()):  # the store's own errors: full, not writable
        return Row(identity, "left", _line(error), fix=error.fix, retry=True)
    if isinstance(error, EnvironmentProblem | LockError):
        return Row(identity, "left", f"not reached: {_line(error)}", fix=error.fix)
    if isinstance(error, NotRunError):
        return Row(identity, "left", error.what, fix=error.fix)
    return Row(identity, "failed", _line(error), error=error)


def _line(error: TrainwrightError) -> str:
    return " ".join([f"{error.what}:" if error.why else error.what, *error.why.split()])


def _one(identity: str, how: How, address: str) -> Row:
    """Prove and record one image; every failure is its row, and ends no other proof."""
    began = time.monotonic()
    try:
        row = _prove(identity, how, address)
    except TrainwrightError as error:
        row = Row(identity, "failed", error.why or error.what, error=error)
    except OSError as problem:  # a log or a record that cannot be written, an engine that went away
        told = EnvironmentProblem(f"{identity} was not proved", why=str(problem), fix="trainwright doctor; df -h")
        row = Row(identity, "failed", told.why, error=told)
    row.seconds = time.monotonic() - began
    return row


def _prove(identity: str, how: How, address: str) -> Row:
    """Prove and record one image; return its row, without the seconds. Raises TrainwrightError and OSError.

    Files are read anew, because they may have changed since the first image began.
    """
    recipe = load_intent(how.root).find(identity)
    if recipe is None:
        return Row(identity, "left", "it is not in the matrix any more", fix="trainwright list")
    standing = proofs.standing(recipe)
    if not _due(recipe, standing):
        return Row(identity, "proved", standing.reason)
    try:
        found = inputs.load(recipe)
        _make_room(found, how, address)
    except TrainwrightError as error:
        return Row(identity, "left", _line(error), fix=error.fix, retry=True)
    try:
        if recipe.variant.devel:
            _bring_runtime(recipe, how, address)
        found = _bring(recipe)
    except TrainwrightError as error:
        return _unproved(identity, error)
    _will_bring(how, identity, found.name)
    _build_and_test(recipe, how, address)
    with console.alone(how.root):
        rows, refused = recording.record([recipe])
    if refused:
        raise refused
    _take_out(how, identity)
    return Row(identity, "proved", rows[0]["why"])


def _bring(recipe: Recipe) -> Inputs:
    """Fetch everything that the build starts from. Raises EnvironmentProblem, LockError, BuildError, NotRunError."""
    with console.progress(fetch.to_fetch([recipe])) as (say, advance):
        fetch.fetch(recipe.intent, [recipe], say, advance)
        found = inputs.load(recipe)
        for reference in starts_from(found.recipe):
            say(f"{recipe.id}: pulling {reference}")
            foreign.pinned(reference)
    if why := drifted(found):
        raise NotRunError(why, fix=UPDATE)
    return found


def _bring_runtime(twin: Recipe, how: How, address: str) -> None:
    """Pull the image that a devel twin is the twin of, because the twin's tests load there what they compile.

    Raises NotRunError if it is not published, and what else a pull raises.
    """
    found = inputs.load(twin.intent.recipe(twin.variant.lock))
    repository = state.repository_if_any(found.recipe, address)
    if repository and (digest := client.resolve(repository, found.tag)):
        _will_bring(how, twin.id, found.name, f"{repository}@{digest}")
    build.bring(found, how.say, repository)


def _build_and_test(recipe: Recipe, how: How, address: str) -> None:
    """Run scripts/test-images.sh; in a project, which has no training tests, build and push. Raises what failed."""
    home, log = project.home(how.root), how.folder / f"{recipe.id}.log"
    words: list[str | Path] = [how.root / SCRIPT, "--keep", recipe.id]
    if home != how.root:
        words = [sys.executable, "-m", "trainwright.cli", "build", "--push", recipe.id]
    grace = how.host.prove.stop_seconds
    with _freeing(how):
        code, said = process.logged(words, log, cwd=home, env={"REGISTRY": address}, grace=grace)
    if code:
        raise CODES.get(code, TestError)(
            f"{recipe.id} was not proved",
            where=str(log),
            why=reason(said) or f"{words[0]} ended with exit code {code}",
            fix=f"less {log}; then trainwright prove {recipe.id}",
        )


def reason(said: str) -> str:
    """Return one line of an output that says why it failed: the last error of ours, and the first failed test."""
    found, why, failed = "", "", list[str]()
    for line in said.splitlines():
        if line.startswith('{"error":'):
            try:
                row = json.loads(line)
                found, why = str(row["error"]), str(row["why"])
            except (ValueError, KeyError):
                continue
        elif match := re.match(r"error: (.*)", line):
            found, why = match[1], ""
        elif found and not why and (match := re.match(r" +why: +(.*)", line)):
            why = match[1]
        elif match := re.match(r"(?:FAILED|ERROR) (\S.*)", line):
            failed.append(match[1])
    why = "" if "its output is above" in why else why.strip().splitlines()[-1] if why.strip() else ""
    return ": ".join(filter(None, (found, why, few(failed, 1))))


# --- disk ------------------------------------------------------------------------------------------------------------


def _engine_folder() -> Path | None:
    """Return the engine's folder; None if it is on another machine. Raises EnvironmentProblem if no engine answers."""
    with engine.told("the engine does not say where its images are"):
        return disk.engine_folder(engine.facts())


def _make_room(found: Inputs, how: How, address: str) -> None:
    """Check that the proof has the disk that it needs; where the engine's has too little, remove all build cache and
    what earlier proofs left.

    Raises EnvironmentProblem.
    """
    entry = state.plan_one(found, state.repository_if_any(found.recipe, address), engine.answers)
    if entry.action == "reuse":
        return
    folder = _engine_folder()
    wanted = disk.to_prove(found, how.host.prove.disk, folder, entry.action == "build")

    short = disk.short(disk.disks(wanted, how.rest))
    if any(folder in one.paths for one in short):
        why = "; ".join(map(disk.said, short))
        how.say(f"prove: {found.variant.id}: {why}; removing the build cache, and images of proofs that did not end")
        engine.prune_cache("0")
        for file in sorted(how.folder.glob("*.images")):
            if file.stem != found.variant.id:
                _take_out(how, file.stem)
        short = disk.short(disk.disks(wanted, how.rest))
    if short:
        why = "; ".join(map(disk.said, short))
        fix = "docker image prune --all; docs/how-to.md, 'Make the store smaller'"
        raise EnvironmentProblem("not enough free disk", where=str(how.root), why=why, fix=fix)


@contextmanager
def _freeing(how: How) -> Iterator[None]:
    """Remove the build cache whenever little is left on the engine's disk: a built image is loaded, listed and tested
    without the cache. The disk of an engine on another machine is not seen, and its cache is left alone.

    BuildKit keeps what a running build uses.
    """
    ended, settings, folder = Event(), how.host.prove, _engine_folder()
    if folder is None:
        yield
        return
    paths = {folder: 0.0}

    def watch() -> None:
        while not ended.wait(settings.look_seconds):
            if min(one.free for one in disk.disks(paths)) < settings.low_gb * 1e9:
                how.say(f"prove: less than {settings.low_gb:.0f} GB free; removing the build cache")
                with suppress(EnvironmentProblem):
                    engine.prune_cache("0")
                ended.wait(settings.stop_seconds)  # until that shows

    thread = Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def _brought(how: How, identity: str) -> Path:
    """Return the file that names the images which runs brought into the engine, also with earlier inputs."""
    return how.folder / f"{identity}.images"


def _will_bring(how: How, identity: str, name: str, *others: str) -> None:
    """Note an image that the engine does not hold yet, under all of its names."""
    if not how.keep and engine.image_id(name) is None:
        file = _brought(how, identity)
        write(file, "\n".join([*_names(file), name, *others]) + "\n")


def _names(file: Path) -> list[str]:
    return file.read_text().split() if file.exists() else []


def _take_out(how: How, identity: str) -> None:
    """Remove what runs brought into the engine of an image, under its own names and the registry's."""
    file = _brought(how, identity)
    if not file.exists():
        return
    try:
        if not how.keep:
            image = state.read_image(how.root / "out" / identity)
            for name in filter(None, [*_names(file), image.uri if image else ""]):
                engine.remove(name)
        file.unlink()
    except TrainwrightError as error:  # as with the cache: it takes disk, and ends no proof
        how.say(f"prove: {_line(error)}")
    except OSError as problem:
        how.say(f"prove: {problem}")


def _prune(how: How) -> None:
    """Prune the build cache to what the next image may use; an engine that does not prune ends no proof."""
    try:
        engine.prune_cache(how.host.prove.cache_between)
    except EnvironmentProblem as error:
        how.say(f"prove: {error.what}: {error.why}")
