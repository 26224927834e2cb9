"""The command `trainwright derive`."""

from pathlib import Path
from typing import Annotated

import typer

from trainwright.commands.options import Json, Registry, app, find_root
from trainwright.core.errors import ConfigError


@app.command()
def derive(
    image: Annotated[
        str, typer.Argument(metavar="[ID|URI]", help="Image to start from: an id of the matrix, or repository@digest.")
    ] = "",
    into: Annotated[Path | None, typer.Option(metavar="DIR", help="Write the project to this folder.")] = None,
    name: Annotated[str, typer.Option(help="Name of the built image; default: the folder's name.")] = "",
    dockerfile: Annotated[
        Path | None, typer.Option(help="Existing Dockerfile: show how its FROM would change.")
    ] = None,
    write: Annotated[bool, typer.Option("--write", help="With --dockerfile: write the change.")] = False,
    build: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Build this project, with this host's CAs and pip's settings.")
    ] = None,
    registry: Registry = "",
    as_json: Json = False,
) -> None:
    """Start a project from an image by its digest. Can also show how an existing Dockerfile has to change."""
    from trainwright.core import console
    from trainwright.inspect import derive as inspect_derive
    from trainwright.inspect import parent as inspect_parent
    from trainwright.matrix.matrix import load_intent
    from trainwright.resolve import pip_files

    if sum(option is not None for option in (dockerfile, into, build)) != 1 or (write and not dockerfile):
        raise ConfigError(
            "derive requires one of --into DIR, --build DIR and --dockerfile FILE, and --write requires --dockerfile",
            fix="trainwright derive --help",
        )
    if bool(image) == bool(build):
        if build:
            raise ConfigError(
                f"--build takes no image, but {image} was given", why=f"{build}/derived.toml names the image"
            )
        raise ConfigError("--into and --dockerfile require an image to start from", fix="trainwright list")
    if build:
        for note in pip_files.notes():
            typer.echo(note, err=True)
        return console.show([{"image": inspect_derive.build(build), "project": str(build)}], as_json)
    parent = inspect_parent.parent_of(load_intent(find_root()), image, registry)
    if into:
        files = inspect_derive.write_project(into, name or into.resolve().name, parent)
        console.show([{"file": str(into / file), "parent": parent.uri} for file in files], as_json)
    elif dockerfile:
        told = inspect_derive.rewrite(dockerfile, name or dockerfile.resolve().parent.name, parent, write)
        if as_json:
            console.data({"file": str(dockerfile), "parent": parent.uri, "difference": told, "written": write})
        else:
            print(told or f"{dockerfile} starts from {parent.uri}", end="" if told else "\n")
    return None
