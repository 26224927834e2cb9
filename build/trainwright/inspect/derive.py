"""Write a project that starts from an image, build it, or rewrite a Dockerfile's FROM; overwrite only on request."""

from contextlib import suppress
from pathlib import Path

from trainwright.core import store
from trainwright.core.errors import BuildError, ConfigError, EnvironmentProblem
from trainwright.core.files import write_named
from trainwright.core.process import run
from trainwright.core.toml import read
from trainwright.docker import buildx, engine
from trainwright.inspect import derived, parent
from trainwright.inspect.derived import Parent
from trainwright.resolve import pip_files


def write_project(folder: Path, name: str, parent: Parent) -> list[str]:
    """Write the project's files and return their names.

    Raises ConfigError if one exists already, EnvironmentProblem if one cannot be written; no new file is left then.
    """
    files = derived.project(name, parent)
    if there := [file for file in files if (folder / file).exists()]:
        raise ConfigError(
            f"{folder} already holds a project",
            why=f"it has {', '.join(there)}",
            fix=f"name another folder, or trainwright derive {parent.uri} --dockerfile {folder / 'Dockerfile'}",
        )
    try:
        for file, text in files.items():
            write_named(folder / file, text)
    except EnvironmentProblem:  # because half a project would look complete, remove it
        for file in files:
            with suppress(OSError):
                (folder / file).unlink()
        raise
    return list(files)


def rewrite(dockerfile: Path, name: str, parent: Parent, wanted: bool) -> str:
    """Return the diff of the Dockerfile's FROM, or "" if it starts from the parent already; write it if `wanted`.

    With `wanted`, derived.toml beside it is written too and replaces one that names another parent. Raises ConfigError.
    """
    if not dockerfile.is_file():
        raise ConfigError(f"the Dockerfile {dockerfile} does not exist", fix="trainwright derive <id> --into DIR")
    old = read(dockerfile, str(dockerfile))
    new = derived.rewritten(old, parent.uri, str(dockerfile))
    if wanted:
        write_named(dockerfile.parent / derived.FILE, derived.toml(name, parent))
        if new != old:
            write_named(dockerfile, new)
    return derived.difference(old, new, str(dockerfile))


def build(folder: Path) -> str:
    """Build a project with pip's settings and the CAs of this host, which enter no layer; return the image's name.

    Afterwards the engine holds the image, whichever builder buildx uses. Raises ConfigError if the folder has no
    derived.toml, BuildError, EnvironmentProblem.
    """
    project = parent.read_project(folder)
    here = engine.builds_itself()
    if not here:
        buildx.must_hand_over(engine.builder())
    with store.scratch() as made:
        secrets = list[str]()
        for name, content in pip_files.contents(f"{derived.SECRETS}/{pip_files.CA}").items():
            (made / name).write_bytes(content)
            secrets.append(f"--secret=id={name},src={made}/{name}")
        kind = "type=image" if here else f"type=docker,dest={made / 'image.tar'}"  # no other builder keeps the image
        output = f"--output={kind},name={project.name},oci-mediatypes=false"
        run(
            [engine.buildx(), "build", "--provenance=false", "--sbom=false", output, *secrets, folder],
            error=BuildError,
            what=f"the build of {project.name} failed",
            fix=f"trainwright derive --build {folder}",
            show=True,
            out_to_err=True,
        )
        if not here:
            with engine.told(f"{project.name} cannot be loaded"), (made / "image.tar").open("rb") as image:
                engine.client().images.load(image)
    return project.name
