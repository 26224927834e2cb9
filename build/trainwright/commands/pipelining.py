"""Commands for pipelines: what CodeBuild and GitHub Actions would build, what a build hands on, a rehearsal of it."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from trainwright.commands.options import Framework, Json, Only, Region, Registry, app, chosen, find_root

if TYPE_CHECKING:
    from trainwright.pipelines import Graph, Settings

ci = typer.Typer(no_args_is_help=True, help="Pipelines of CodeBuild and GitHub Actions: written, and rehearsed here.")
app.add_typer(ci, name="ci")

Since = Annotated[str, typer.Option(metavar="COMMIT", help="Of what is to be built, only what changed since then.")]
Cache = Annotated[
    str, typer.Option(envvar="TRAINWRIGHT_CACHE", help="A build cache that the builds share: see `trainwright build`.")
]
Output = Annotated[Path | None, typer.Option(metavar="FILE", help="Write it there instead of standard output.")]


@ci.command()
def codebuild(
    only: Only = None,
    framework: Framework = None,
    since: Since = "",
    registry: Registry = "",
    region: Region = "",
    cache: Cache = "",
    output: Output = None,
    as_json: Json = False,
) -> None:
    """A buildspec with a batch: a build for each image that `trainwright plan` would build, and for no other one."""
    from trainwright import pipelines

    found, settings = _graph(only, framework, since, registry, region, cache)
    document = pipelines.codebuild(found, settings.codebuild, _variables(registry, region, cache))
    _show(document, found, output, as_json)


@ci.command()
def github(
    only: Only = None,
    framework: Framework = None,
    since: Since = "",
    registry: Registry = "",
    region: Region = "",
    cache: Cache = "",
    output: Output = None,
    as_json: Json = False,
) -> None:
    """The same as a workflow of GitHub Actions: no action of anybody's, and a role by OIDC instead of keys."""
    from trainwright import pipelines

    found, settings = _graph(only, framework, since, registry, region, cache)
    document = pipelines.github(found, settings.github, _variables(registry, region, cache))
    _show(document, found, output, as_json)


@ci.command()
def exports(only: Only = None, framework: Framework = None, as_json: Json = False) -> None:
    """What a build hands on, as lines for a shell: IMAGE_ID, IMAGE_KEY, IMAGE_DIGEST, IMAGE_URI of what was pushed."""
    import shlex

    from trainwright import images, report

    values = images.exported(*chosen(framework, only))
    if as_json:
        report.data(values)
        return
    for name, value in values.items():
        print(f"export {name}={shlex.quote(value)}")


@ci.command()
def rehearse(
    only: Only = None,
    framework: Framework = None,
    buildspec: Annotated[str, typer.Option(metavar="FILE", help="From the root of the checkout.")] = "buildspec.yml",
    registry: Registry = "",
    env: Annotated[list[str] | None, typer.Option(metavar="NAME=VALUE", help="A variable of the project.")] = None,
    minutes: Annotated[float | None, typer.Option(help="After so long it is ended; else as CodeBuild does.")] = None,
    artifacts: Annotated[Path | None, typer.Option(metavar="DIR", help="Where the artifacts go.")] = None,
    as_json: Json = False,
) -> None:
    """The phases of a buildspec as CodeBuild runs them, here: in a clean clone of the last commit (5: it fails).

    It pushes to --registry; without one, to the registry on loopback, whatever the buildspec says.
    """
    from trainwright import pipelines, rehearsing, report
    from trainwright.errors import ConfigError

    root = find_root()
    given: dict[str, str | None] = {"REGISTRY": registry}
    if only or framework:
        given |= {"ONLY": only, "FRAMEWORK": framework}
    for word in env or []:
        name, equals, value = word.partition("=")
        if not equals or not name.isidentifier():
            raise ConfigError(f"{word!r} is no variable", where="--env", fix="--env NAME=VALUE")
        given[name] = value
    longest = minutes or pipelines.settings(root).codebuild.timeout_minutes
    with report.progress() as (say, _):
        found = rehearsing.rehearse(root, buildspec, given, longest, artifacts, say)
    if as_json:
        report.data(found.model_dump())
    else:
        rows = [{**row.model_dump(), "seconds": f"{row.seconds:.1f}"} for row in found.phases]
        report.show(rows, as_json)
        for table in (
            [{**row.model_dump(), "bytes": report.human(row.bytes)} for row in found.collected],
            [{"exported": name, "value": value} for name, value in found.exported.items()],
        ):
            print(end="\n" if table else "")
            report.show(table, as_json)
    rehearsing.refuse(found)


def _graph(
    only: str | None, framework: str | None, since: str, registry: str, region: str, cache: str
) -> "tuple[Graph, Settings]":
    from trainwright import changes, images, pipelines

    intent, variants = chosen(framework, only)
    settings = pipelines.settings(intent.root)
    changed = {row.id for row in changes.since(intent, since)} if since else None
    rows, why = images.planned(intent, variants, registry, region)
    if why:
        typer.echo(why, err=True)
    found = pipelines.graph(rows, variants, intent.components.bases, changed, since, bool(cache))
    return found, settings


def _variables(registry: str, region: str, cache: str) -> dict[str, str]:
    """What every build gets; a registry on loopback would be gone with the machine that built."""
    said = {"REGISTRY": registry or "ecr", "TRAINWRIGHT_REGIONS": region, "TRAINWRIGHT_CACHE": cache}
    return {name: value for name, value in said.items() if value}


def _show(document: dict[str, Any], found: "Graph", output: Path | None, as_json: bool) -> None:
    import shlex
    import sys

    from trainwright import pipelines, report
    from trainwright.files import write

    text = pipelines.text(document, found, shlex.join(["trainwright", *sys.argv[1:]]))
    if output:
        write(output, text)
    if as_json:
        builds = [build._asdict() for build in found.builds]
        report.data({"builds": builds, "left": [row._asdict() for row in found.left], "document": document})
    elif not output:
        print(text, end="")
    where = f"{output}: " if output else ""
    typer.echo(f"{where}{len(found.builds)} to build, {len(found.left)} not", err=True)
    if not found.builds:
        typer.echo("nothing is to be built: the one build in it says so", err=True)
