"""The command `trainwright init`."""

import tempfile
from pathlib import Path
from typing import Annotated, Literal

import typer

from trainwright.commands.options import Json, app
from trainwright.core.errors import ConfigError, EnvironmentProblem

EXAMPLE = "docs/examples/project"


@app.command()
def init(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="New or empty folder.")],
    ci: Annotated[
        Literal["codebuild", "github", "none"],
        typer.Option(help="Write buildspec.yml, or a workflow of GitHub Actions."),
    ] = "codebuild",
    as_json: Json = False,
) -> None:
    """Write a team's project: rows, a component, a cause and a rule of its own, on top of the installed data."""
    from trainwright.core import console

    if folder.exists() and not folder.is_dir():
        raise ConfigError(f"{folder} is not a folder", where=str(folder), fix="trainwright init <another name>")
    if folder.exists() and any(folder.iterdir()):
        raise ConfigError(
            f"{folder} is not empty",
            where=str(folder),
            why="a project is written into a folder of its own, and no file is overwritten",
            fix="trainwright init <another name>, then copy what you want",
        )
    whole = folder.absolute()
    try:
        whole.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=whole.parent, prefix=f".{whole.name}.") as scratch:
            made = Path(scratch, "project")
            _write(made, ci)
            names = sorted(str(path.relative_to(made)) for path in made.rglob("*") if path.is_file())
            whole.mkdir(exist_ok=True)
            for path in made.iterdir():  # the folder stays, because it may be the shell's own
                path.rename(whole / path.name)
    except OSError as error:
        why = str(error.strerror or error)
        raise EnvironmentProblem(
            f"{folder} cannot be written", where=str(error.filename or folder), why=why, fix=f"ls -ld {whole.parent}"
        ) from None
    console.show([{"file": f"{folder}/{name}"} for name in names], as_json)
    typer.echo(f"next: cd {folder} && trainwright list own", err=True)


def _write(made: Path, ci: str) -> None:
    """Write the example project; its lock is that of its sibling, because its component adds no package."""
    from trainwright import __version__
    from trainwright.core import project
    from trainwright.core.files import write
    from trainwright.core.project_files import FILE
    from trainwright.core.toml import load
    from trainwright.inspect import upgrade
    from trainwright.lock import lockfile
    from trainwright.matrix.matrix import load_intent
    from trainwright.matrix.model import Lock

    example = project.installed() / EXAMPLE
    for name, path in project.files_of(example, ["."]):
        if not name.startswith("ci/") and path.name != "trainwright.lock":
            project.copy(path, made / name)
    if ci != "none":
        for name, path in project.files_of(example / "ci" / ci, ["."]):
            project.copy(path, made / name)
    for name in (FILE, "trainwright-requirements.txt"):
        text = (made / name).read_text()
        write(made / name, text.replace(">=0.1.0", f">={__version__}"))
    intent = load_intent(project.tree(made, declared=True))
    for recipe in intent.recipes:
        place, variant = made / recipe.variant.lock_file, recipe.variant
        sibling = project.installed() / variant.lock_file.replace(f"-{variant.flavour}.toml", ".toml")
        if not (recipe.root / variant.lock_file).is_file() and sibling.is_file() and variant.flavour == "team":
            lock = load(sibling, Lock).model_copy(update={"intent": lockfile.intent_digest(recipe)})
            write(place, lockfile.dump(lock))
    project.tree.cache_clear()  # the lock is in the tree now
    now = upgrade.compare(load_intent(project.tree(made, declared=True)), made)[1]
    write(made / upgrade.FILE, upgrade.dump(now))
