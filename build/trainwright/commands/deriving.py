"""Commands for whoever builds on top of an image."""

from pathlib import Path
from typing import Annotated

import typer

from trainwright.commands.options import Json, Registry, app, find_root
from trainwright.errors import ConfigError


@app.command()
def derive(
    image: Annotated[str, typer.Argument(metavar="[ID|URI]", help="An id of the matrix, or repository@digest.")] = "",
    into: Annotated[Path | None, typer.Option(metavar="DIR", help="Where the project is written.")] = None,
    name: Annotated[str, typer.Option(help="What the built image is called; default: the folder's name.")] = "",
    dockerfile: Annotated[Path | None, typer.Option(help="One that exists: show how its FROM would change.")] = None,
    write: Annotated[bool, typer.Option("--write", help="With --dockerfile: change it.")] = False,
    build: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Build that project, with this host's CAs and pip's settings.")
    ] = None,
    registry: Registry = "",
    as_json: Json = False,
) -> None:
    """Start a project from an image by its digest, or show what an existing Dockerfile lacks of that."""
    from trainwright import deriving, parents, pip_files, report
    from trainwright.matrix import load_intent

    if sum(option is not None for option in (dockerfile, into, build)) != 1 or (write and not dockerfile):
        raise ConfigError(
            "derive requires one of --into DIR, --build DIR and --dockerfile FILE, and --write requires --dockerfile",
            fix="trainwright derive --help",
        )
    if bool(image) == bool(build):
        if build:
            raise ConfigError(f"--build takes no image, and {image} is one", why=f"{build}/derived.toml names it")
        raise ConfigError("--into and --dockerfile require an image to start from", fix="trainwright list")
    if build:
        for note in pip_files.notes():
            typer.echo(note, err=True)
        return report.show([{"image": deriving.build(build), "project": str(build)}], as_json)
    parent = parents.parent_of(load_intent(find_root()), image, registry)
    if into:
        files = deriving.write_project(into, name or into.resolve().name, parent)
        report.show([{"file": str(into / file), "parent": parent.uri} for file in files], as_json)
    elif dockerfile:
        told = deriving.rewrite(dockerfile, name or dockerfile.resolve().parent.name, parent, write)
        if as_json:
            report.data({"file": str(dockerfile), "parent": parent.uri, "difference": told, "written": write})
        else:
            print(told or f"{dockerfile} starts from {parent.uri}", end="" if told else "\n")
    return None


@app.command()
def verify(
    image: Annotated[
        str, typer.Argument(metavar="IMAGE|DIR", help="In a registry or the engine; or a folder with derived.toml.")
    ],
    parent: Annotated[str, typer.Option(metavar="URI", help="What it starts from, where it does not say so.")] = "",
    tests: Annotated[bool, typer.Option("--tests", help="Run the parent's image tests on it, too.")] = False,
    key: Annotated[
        str, typer.Option(envvar="TRAINWRIGHT_VERIFY_KEY", metavar="FILE", help="Of a published image: a public key.")
    ] = "",
    contents: Annotated[
        bool, typer.Option("--contents/--no-contents", help="Of a published image: pull it, and ask it what it holds.")
    ] = True,
    registry: Registry = "",
    as_json: Json = False,
) -> None:
    """A published image of ours: tags, signature, provenance, SBOM and contents against the lock (5: not; 7: unknown).

    One that was built on top of ours (a folder, --parent, or an image with the label that `derive` writes): whether
    it holds what it starts from unchanged (5: not).
    """
    from trainwright import inspecting, report, verifying
    from trainwright.matrix import load_intent

    intent = load_intent(find_root())
    if not (parent or tests) and not Path(image).is_dir() and inspecting.is_published(image):
        with report.progress() as (say, _):
            found = inspecting.inspect(intent, image, key, contents, say)
        if as_json:
            report.data(found.model_dump())
        else:
            report.show([row.model_dump() for row in found.rows], as_json)
            typer.echo(f"{found.id}: {found.uri}", err=True)
        inspecting.judge(found)
        return
    with report.progress() as (say, _):
        verdict = verifying.verify(intent, image, parent, registry, say)
    rows = [row.model_dump(exclude={"traces"}) for row in verdict.rows]
    if as_json:
        report.data({**verdict.model_dump(exclude={"rows"}), "rows": rows})
    else:
        report.show([{name: row[name] for name in row if name != "fix"} for row in rows], as_json)
        typer.echo(f"{verdict.image} on {verdict.parent} ({verdict.id}); {verdict.checkout}", err=True)
    verifying.judge(verdict)
    if tests:
        with report.progress() as (say, _):
            say(f"{verifying.test(intent, verdict.image, say)} image tests passed")
