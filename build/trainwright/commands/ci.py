"""Commands for pipelines: the builds of CodeBuild and GitHub Actions, and the results that a build passes on."""

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from trainwright.commands.options import Framework, Images, Json, Region, app, chosen, find_root

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from trainwright.publish.pipelines import Graph, Settings

ci = typer.Typer(
    no_args_is_help=True,
    help="Write pipelines for CodeBuild and GitHub Actions, and plan them. Show what was pushed, and what CI proves.",
)
app.add_typer(ci, name="ci")

PUSHED_TO = "ecr"  # the default: a registry on loopback would disappear with the build machine

Since = Annotated[str, typer.Option(metavar="COMMIT", help="Build only images that changed since this commit.")]
Asked = Annotated[
    str, typer.Option(envvar="REGISTRY", help="Registry: host[:port][/prefix], or ecr[/prefix]; empty: ecr.")
]
Cache = Annotated[
    str, typer.Option(envvar="TRAINWRIGHT_CACHE", help="Build cache that the builds share: see `trainwright build`.")
]
Output = Annotated[Path | None, typer.Option(metavar="FILE", help="Write to this file instead of standard output.")]


@ci.command("codebuild", help="Write a buildspec that plans at its commit, and starts a batch of the builds.")
@ci.command("github", help="Write the same as a GitHub Actions workflow. It uses no third-party action, and OIDC.")
def _pipeline(
    context: typer.Context,
    images: Images = None,
    framework: Framework = None,
    since: Since = "",
    registry: Asked = "",
    region: Region = "",
    cache: Cache = "",
    output: Output = None,
    as_json: Json = False,
) -> None:
    import shlex
    import sys

    from trainwright.core import console, project
    from trainwright.core.errors import ConfigError
    from trainwright.core.files import write_named
    from trainwright.publish import pipelines

    root = chosen(framework, images)[0].root
    if project.is_project(root):
        raise ConfigError(
            "this pipeline is one of a checkout: it runs scripts that a project does not have",
            where=str(project.home(root)),
            fix=f"trainwright init --ci {context.info_name} DIR writes the file for a project",
        )
    settings = pipelines.settings(root)
    said = {
        "--framework": framework or "",
        "--since": since,
        "--registry": registry,
        "--region": region,
        "--cache": cache,
    }
    # Each is one word, so that an empty one or one that begins with - is not read as something else.
    words = [*(f"{option}={value}" for option, value in said.items() if value), *(["--", *images] if images else [])]
    if context.info_name == "codebuild":
        document = pipelines.first_build(settings.codebuild, words)
    else:
        document = pipelines.workflow(settings.github, words, _variables(registry, region, cache))
    text = pipelines.static(document, shlex.join(["trainwright", *sys.argv[1:]]))
    if output:
        write_named(output, text)
    if as_json:
        console.data({"document": document})
    elif not output:
        print(text, end="")


@ci.command()
def plan(
    of: Annotated[str, typer.Option("--of", metavar="NAME", help="What runs the builds: codebuild or github.")],
    images: Images = None,
    framework: Framework = None,
    since: Since = "",
    pull_request: Annotated[
        str, typer.Option(metavar="COMMIT", help="Build what changed since the base of a pull request; push nowhere.")
    ] = "",
    registry: Asked = "",
    region: Region = "",
    cache: Cache = "",
    output: Output = None,
    as_json: Json = False,
) -> None:
    """Print the builds of a pipeline: exactly the images that `trainwright plan` would build.

    The first build of a pipeline runs it, at its commit. It prints a buildspec with a batch, or the outputs of a job of
    GitHub Actions.
    """
    from trainwright.core.errors import ConfigError, did_you_mean
    from trainwright.publish import pipelines

    if of not in (known := ("codebuild", "github")):
        raise ConfigError(f"unknown pipeline {of!r}", where="--of", why=did_you_mean(of, known), fix="--of github")
    if pull_request:
        registry = region = ""  # whatever the pipeline's file names: a request must not need its credentials
    found, settings, notes = _graph(images, framework, pull_request or since, registry, region, cache)
    variables = _variables(registry, region, "" if pull_request else cache)
    variables["REGISTRY"] = "" if pull_request else variables["REGISTRY"]
    if of == "codebuild":
        _show(pipelines.codebuild(found, settings.codebuild, variables), found, notes, output, as_json)
    else:
        _show(pipelines.outputs(found, settings.github), found, notes, output, as_json, pipelines.lines)


@ci.command()
def exports(images: Images = None, framework: Framework = None, as_json: Json = False) -> None:
    """Print what was pushed, as shell exports. Sets IMAGE_ID, IMAGE_KEY, IMAGE_DIGEST and IMAGE_URI.

    Without an image and --framework, the variables ONLY or FRAMEWORK choose, as in make; without those, all images that
    were pushed from this checkout.
    """
    import os
    import shlex

    from trainwright.build import state
    from trainwright.core import console
    from trainwright.core.errors import NotRunError
    from trainwright.matrix.matrix import load_intent

    if not (images or framework):
        images = [only] if (only := os.environ.get("ONLY")) else None
        framework = None if images else os.environ.get("FRAMEWORK") or None
    if images or framework:
        values = state.exported(chosen(framework, images)[1])
    else:
        intent = load_intent(find_root())
        recipes, other = state.pushed_here(intent)
        for name in other:
            typer.echo(f"left out {name}: its inputs changed after it was pushed", err=True)
        if not recipes:
            fix = "make build push FRAMEWORK=pytorch; or name it: an id or glob, --framework"
            raise NotRunError("no image was pushed from this checkout with its present inputs", where="out/", fix=fix)
        values = state.exported(recipes)
    if as_json:
        console.data(values)
        return
    for name, value in values.items():
        print(f"export {name}={shlex.quote(value)}")


@ci.command()
def proofs(as_json: Json = False) -> None:
    """List the images that CI proves for this commit.

    Of `ci` in [tested]: images whose record in dockerfiles/proofs/ does not match the present key, tests and proving
    code, and one more, which the commit chooses in turn.
    """
    from trainwright.build import proofs
    from trainwright.core import checkout, console
    from trainwright.matrix.matrix import load_intent

    intent = load_intent(find_root())
    found = {name: proofs.standing(intent.recipe(name)) for name in intent.matrix.tested.ci}
    due = {name: proofs.due(intent.recipe(name), standing) for name, standing in found.items()}
    commit = checkout.commit_of(intent.root, "HEAD")
    turn = proofs.in_turn([name for name, why in due.items() if not why], commit)
    rows = []
    for name in sorted(found, key=lambda one: (one == turn, not due[one])):  # the chosen one last
        record, why = found[name].record, due[name]
        if name == turn:
            why = f"chosen in turn by the commit {commit[:12]}"
        elif not why and record:
            why = f"recorded {record.day} with the present key, tests and proving code"
        action = "prove" if due[name] or name == turn else "left out"
        rows.append({"id": name, "action": action, "reason": why})
    console.show(rows, as_json)


def _graph(
    images: list[str] | None, framework: str | None, since: str, registry: str, region: str, cache: str
) -> "tuple[Graph, Settings, list[str]]":
    """Return the graph, the settings and the notes for the head of the file.

    Raises what state.planned() raises if the user named a registry or a region.
    """
    from trainwright.build import state
    from trainwright.image import changes
    from trainwright.publish import pipelines

    intent, recipes = chosen(framework, images)
    settings = pipelines.settings(intent.root)
    changed = {row.id for row in changes.since(intent, since)} if since else None
    named = bool(registry or region)
    rows, why = state.planned(intent, recipes, registry or PUSHED_TO, region, must_know=named, elsewhere=True)
    found = pipelines.graph(rows, recipes, changed, since, bool(cache))
    return found, settings, _notes(intent.root, registry, region, why)


def _notes(root: Path, registry: str, region: str, why: str) -> list[str]:
    asked = f"{registry or PUSHED_TO}{f' in {region}' if region else ''}"
    notes = [f"{asked} was asked what it has, and is pushed to."]
    if why:
        notes = [f"{' '.join(why.split())}. So all is built that is not blocked, and pushed to {asked}."]
    if re.match(r"(localhost|127\.|\[::1\])", registry):
        notes.append(f"{registry} is on loopback: each build would push to a registry of its own machine.")
    for note in (notes := [*notes, *_commit(root)]):
        typer.echo(f"note: {note}", err=True)
    return notes


def _commit(root: Path) -> list[str]:
    """Return a note that names the commit of the keys: a build of another commit may build other images."""
    from trainwright.core import checkout
    from trainwright.core.errors import ConfigError, EnvironmentProblem

    try:
        commit = checkout.commit_of(root, "HEAD")
        moved = [name for name in checkout.uncommitted(root) if name.startswith(checkout.PARTS)]
    except (ConfigError, EnvironmentProblem):
        return ["The commit is unknown: this folder is not a git checkout."]
    rest = f" and from uncommitted changes, which the builds will not have: {', '.join(moved)}" if moved else ""
    return [f"The keys are computed from commit {commit}{rest}."]


def _variables(registry: str, region: str, cache: str) -> dict[str, str]:
    """Return the variables of every build; a registry on loopback would disappear with the build machine."""
    said = {"REGISTRY": registry or PUSHED_TO, "TRAINWRIGHT_REGIONS": region, "TRAINWRIGHT_CACHE": cache}
    return {name: value for name, value in said.items() if value}


def _show(
    document: dict[str, Any],
    found: "Graph",
    notes: list[str],
    output: Path | None,
    as_json: bool,
    written: "Callable[[Mapping[str, Any]], str] | None" = None,
) -> None:
    import shlex
    import sys

    from trainwright.core import console
    from trainwright.core.files import write_named
    from trainwright.publish import pipelines

    command = shlex.join(["trainwright", *sys.argv[1:]])
    text = written(document) if written else pipelines.text(document, found, command, notes)
    if output:
        write_named(output, text)
    if as_json:
        builds = [build._asdict() for build in found.builds]
        left = [row._asdict() for row in found.left]
        console.data({"builds": builds, "left": left, "notes": notes, "document": document})
    elif not output:
        print(text, end="")
    where = f"{output}: " if output else ""
    typer.echo(f"{where}{len(found.builds)} to build, {len(found.left)} not", err=True)
    if not found.builds:
        typer.echo("no image is to be built", err=True)
