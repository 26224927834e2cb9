"""Compile the wheels that need torch and CUDA, once for each pair of versions, and keep them in the store."""

import shlex
import shutil
from pathlib import Path

from packaging.utils import canonicalize_name, parse_wheel_filename
from packaging.version import Version

from trainwright.build import baking
from trainwright.core import store
from trainwright.core.errors import BuildError
from trainwright.core.files import write
from trainwright.core.progress import Say
from trainwright.image import child
from trainwright.image.inputs import Compilation, Inputs
from trainwright.matrix.model import PythonFile
from trainwright.resolve import pypi


def compile_wheel(found: Inputs, job: Compilation, out: Path, say: Say) -> None:
    """Compile one source distribution in out/<id>/compile/<name>/, and keep the wheel. Raises BuildError."""
    folder = out / "compile" / job.name
    shutil.rmtree(folder, ignore_errors=True)
    for name, entries in job.wheels.items():
        (folder / "wheels" / name).mkdir(parents=True)
        for entry in entries:
            store.place(entry.sha256, folder / "wheels" / name / entry.file, entry.file)
    for name, text in job.text.items():
        write(folder / name, text)
    say(f"{found.variant.id}: compiling {job.sdist.file} in {job.image}")
    baking.bake(folder)
    wheel = _made(found, job, folder)
    with store.scratch() as place:
        shutil.copyfile(folder / "wheel" / wheel.file, place / wheel.file)
        store.add(place / wheel.file, wheel.sha256)
    child.remember(job.key, wheel)


def _made(found: Inputs, job: Compilation, folder: Path) -> PythonFile:
    """Return the one wheel of a compilation.

    Raises BuildError unless name, version, Python and machine are the image's.
    """
    base = found.recipe.base
    made = sorted((folder / "wheel").glob("*.whl"))
    wanted = (str(canonicalize_name(job.sdist.name)), Version(job.sdist.version))
    named = [parse_wheel_filename(path.name) for path in made]
    fits = {*pypi.tags(found.variant.python, base)}
    if [(str(name), version) for name, version, _, _ in named] != [wanted] or not named[0][3] & fits:
        raise BuildError(
            f"the build of {job.sdist.file} made no wheel with its name and version for this image",
            where=str(folder),
            why=f"the build left {', '.join(path.name for path in made) or 'nothing'}",
            fix=f"cd {shlex.quote(str(folder))} && docker buildx bake",
        )
    path = made[0]
    return job.sdist.model_copy(
        update={"file": path.name, "sha256": store.sha256_of(path), "size": path.stat().st_size}
    )
