"""Determine the inputs of an image, whether of the matrix or on top of one, without network and engine."""

from pathlib import Path

from packaging.utils import canonicalize_name

from trainwright.core import store
from trainwright.core.errors import ConfigError, LockError
from trainwright.core.files import write
from trainwright.core.toml import parse, read
from trainwright.image import bake, declared, inputs, notices, render, tags, templates
from trainwright.image import key as image_key
from trainwright.image.inputs import Compilation, Inputs
from trainwright.lock import additions, lockfile, overlaps, requirements
from trainwright.lock.wheels import is_wheel
from trainwright.matrix.matrix import Recipe
from trainwright.matrix.model import Lock, PythonFile


def load(recipe: Recipe) -> Inputs:
    """Read the locks and render. Raises LockError (stale, missing) and ConfigError (templates, the requirements)."""
    if not recipe.variant.parent:
        return inputs.load(recipe)
    below = inputs.load(additions.parent_of(recipe))
    asked, known = requirements.read(Path(recipe.variant.requirements)), additions.settings(recipe.root)
    rows = additions.to_compile(known, asked)
    own = read_lock(recipe)
    additions.check(recipe, below.lock, own, asked, known)
    whole = [*additions.held(recipe, below.lock), *own.python]
    overlaps.check(recipe.id, str(additions.lock_path(recipe)), whole, own.overlaps, recipe.intent.compat.winners)
    by_name = {entry.name: entry for entry in own.python if entry.group == "added"}
    jobs = [compilation(below, own, by_name[entry.name], rows[entry.name]) for entry in own.compiled]
    imports = [rows[job.name].imports for job in jobs if rows[job.name].imports]
    found = _inputs(recipe, below, own, jobs, imports)
    return found.model_copy(update={"blocked": [*found.blocked, *known.blocked(recipe)]})


def read_lock(recipe: Recipe) -> Lock:
    """Read the lock of an image on top of another one. Raises LockError if it is missing or malformed."""
    path, fix = additions.lock_path(recipe), f"trainwright lock {recipe.words}"
    if not path.exists():
        raise LockError(f"the lock {path.name} does not exist", where=str(path), fix=fix)
    try:
        return parse(read(path, str(path)), Lock, str(path))
    except ConfigError as error:  # because locks are not edited by hand, the remedy is to write it again
        raise LockError(error.what, where=error.where, why=error.why, fix=fix) from None


def _inputs(recipe: Recipe, below: Inputs, own: Lock, jobs: list[Compilation], imports: list[str]) -> Inputs:
    compiled = {job.name for job in jobs}
    wheels = {"tools": below.wheels["tools"], "sdist-build": [e for e in own.python if e.group == "sdist-build"]}
    wheels["added"] = [e for e in own.python if e.group == "added" and e.name not in compiled]
    held = additions.held(recipe, below.lock)
    both = [*below.lock.overlaps, *own.overlaps]
    merged = below.lock.model_copy(update={"python": held + own.python, "sources": [], "overlaps": both})
    installed = [entry for _, entry in sorted(recipe.installed(merged).items())]
    base, epoch = recipe.base, below.distribution.epoch
    sdists = {"added": [entry for entry in wheels["added"] if not is_wheel(entry)]}
    context = {
        "variant": recipe.variant,
        "pins": below.pins,
        "epoch": epoch,
        "left_out": {},
        "cut": {},
        "sdists": sdists,
        "compiled": jobs,
        "imports": imports,
        "parent_key": below.key,
    }
    text = {
        "Dockerfile": templates.fill(recipe.intent, "with/image.j2", context),
        "requirements/constraints.txt": render.constraint_lines(installed, render.refused(recipe)),
        "requirements/declared.json": declared.text(recipe, below.pins, installed, below.distribution.packages()),
        "requirements/notices.txt": notices.text(
            recipe, merged.model_copy(update={"sources": below.lock.sources}), below.distribution
        ),
    }
    for folder, entries in wheels.items():
        text[f"requirements/{folder}.txt"] = render.requirement_lines([entry for entry in entries if is_wheel(entry)])
    files = {f"wheels/{folder}/{entry.file}": entry.sha256 for folder in wheels for entry in wheels[folder]}
    # Because a compiler's output is not reproducible, the key is of its inputs.
    files |= {f"compiled/{job.name}": job.key for job in jobs}
    folders = [*(f"wheels/{folder}" for folder in wheels), "requirements"]
    unnamed = bake.bake(base, epoch, folders)
    key = image_key.input_key({**text, "docker-bake.json": unnamed}, files, "", below.key)
    tag = tags.key_tag(recipe.id, key)
    name = tags.engine_name(recipe.variant.framework, tag)
    text["docker-bake.json"] = bake.bake(base, epoch, folders, name, key, {"parent": below.name})
    if known := [job.wheel for job in jobs if job.wheel]:
        wheels["added"] = sorted(wheels["added"] + known, key=lambda entry: entry.name)
        text["requirements/added.txt"] = render.requirement_lines([e for e in wheels["added"] if is_wheel(e)])
    if any(job.wheel is None for job in jobs):  # a folder that was built from must keep the line of such a wheel
        del text["requirements/added.txt"]
    return below.model_copy(
        update={
            "recipe": recipe,
            "lock": merged,
            "parent": below,
            "compile": tuple(jobs),
            "wheels": wheels,
            "tools": None,
            "text": text,
            "rootfs": {},
            "base_key": "",
            "key": key,
            "tag": tag,
            "name": name,
        }
    )


def compilation(below: Inputs, own: Lock, sdist: PythonFile, row: additions.Compilable) -> Compilation:
    """Return what compiles a source distribution, and the wheel if the same torch and CUDA compiled it before."""
    compiler = additions.compiler_of(below.recipe, sdist.name)
    base = compiler.base
    needed = next(entry.build for entry in own.compiled if entry.name == sdist.name)
    build = [entry for entry in own.python if entry.group == "compile-build" and entry.name in needed]
    architectures = compiler.capabilities if "cuda" in compiler.pins else []
    context = {
        "variant": compiler.variant,
        "pins": below.pins,
        "left_out": {},
        "cut": {},
        "sdists": {},
        "epoch": below.distribution.epoch,
        "sdist": sdist,
        "environment": additions.environment(row, architectures),
        "gigabytes_per_job": row.gigabytes_per_job,
        "device_code": architectures if row.device_code else [],
    }
    text = {
        "Dockerfile": templates.fill(compiler.intent, "with/wheel.j2", context),
        "requirements/compile-build.txt": render.requirement_lines(build),
    }
    if context["device_code"]:
        text["requirements/device_code.py"] = (compiler.root / "dockerfiles/with/device_code.py").read_text()
    # Without the compiler's id and target, so that a second image of the same torch and CUDA reuses the wheel.
    against = sorted((e.name, e.version, e.sha256) for e in below.lock.python if e.group in ("framework", "devel"))
    place = [base.architecture, base.glibc, compiler.variant.python, below.pins.get("compiler", "")]
    if toolkit := compiler.toolkit:  # CUDA 12's nvcc is not in these wheels
        place += [toolkit.reference, toolkit.path]
    key = lockfile.digest([image_key.SCHEMA, text, sdist.sha256, against, place])
    folders = [f"wheels/{folder}" for folder in ("tools", "compile-build", "sdist")] + ["requirements"]
    name = inputs.load(compiler).name if compiler.id != below.variant.id else below.name
    epoch = below.distribution.epoch
    text["docker-bake.json"] = bake.bake(base, epoch, folders, images={"compiler": name}, target_folder="wheel")
    wheels = {"tools": below.wheels["tools"], "compile-build": build, "sdist": [sdist]}
    return Compilation(
        name=str(canonicalize_name(sdist.name)),
        image=compiler.id,
        sdist=sdist,
        wheels=wheels,
        text=text,
        key=key,
        wheel=known_wheel(key),
    )


def record(key: str) -> Path:
    """Return the store's file that records the wheel of a compilation."""
    return store.root() / "compiled" / f"{key}.json"


def known_wheel(key: str) -> PythonFile | None:
    try:
        wheel = PythonFile.model_validate_json(record(key).read_bytes())
    except (FileNotFoundError, ValueError):
        return None
    return wheel if store.has(wheel.sha256) else None


def remember(key: str, wheel: PythonFile) -> None:
    write(record(key), wheel.model_dump_json(indent=2) + "\n")
