"""Commands that release, roll back, and say what changed or is affected."""

from pathlib import Path
from typing import Annotated

import typer

from trainwright.commands.options import (
    Framework,
    Json,
    NoWait,
    Only,
    Region,
    Registry,
    WaiveGate,
    app,
    asked_for,
    chosen,
    find_root,
)

DryRun = Annotated[bool, typer.Option("--dry-run", help="Say what would happen; change nothing.")]


@app.command()
def changes(
    since: Annotated[str, typer.Option(metavar="COMMIT", help="A branch, tag or commit to compare this tree with.")],
    as_json: Json = False,
) -> None:
    """Which images are other ones than at a commit, and why."""
    from trainwright import changes as changes_module
    from trainwright import plan, report

    intent, _ = chosen(None, None)
    rows = [row.model_dump() for row in changes_module.since(intent, since)]
    short = [row | {"old": row["old"][: plan.SHORT], "new": row["new"][: plan.SHORT]} for row in rows]
    report.show(rows if as_json else short, as_json)
    if not rows:
        typer.echo(f"no image changes between {since} and this tree", err=True)


@app.command()
def release(
    name: Annotated[str, typer.Argument(metavar="NAME", help="2026.11.0: a train; 2026.11.1: it, and security only.")],
    only: Only = None,
    framework: Framework = None,
    registry: Registry = "",
    region: Region = "",
    waive_gate: WaiveGate = "",
    dry_run: DryRun = False,
    no_wait: NoWait = False,
    as_json: Json = False,
) -> None:
    """Tag what is published and proved, write down what was released, and last move the alias of each image."""
    from trainwright import places, releasing, report, trains

    trains.version(name)  # before anything is read
    intent, variants = asked_for(framework, only)
    with report.alone(intent.root, no_wait, reads=dry_run), report.progress() as (say, _):
        hosts = places.hosts(intent.root, registry, region)
        rows = releasing.release(intent, variants, name, list(map(str, hosts)), dry_run, say, waive_gate)
    report.show([row.model_dump() for row in rows], as_json)
    if not dry_run:
        typer.echo(f"commit {trains.FOLDER}/{name}.toml: it says what {name} is", err=True)


@app.command()
def rollback(
    to: Annotated[str, typer.Option(metavar="NAME", help="The release that aliases shall name again.")],
    only: Only = None,
    registry: Registry = "",
    region: Region = "",
    dry_run: DryRun = False,
    no_wait: NoWait = False,
    as_json: Json = False,
) -> None:
    """Move aliases back to what a release names; no other tag moves."""
    from trainwright import places, releasing, report

    root = find_root()
    releasing.released(root, to, only or "*")  # before anybody is waited for
    with report.alone(root, no_wait, reads=dry_run):
        hosts = places.hosts(root, registry, region)
        rows = releasing.rollback(root, to, only or "*", list(map(str, hosts)), dry_run)
    report.show([row.model_dump() for row in rows], as_json)


@app.command()
def affected(
    by: Annotated[
        list[str], typer.Option(metavar="NAME[=VERSION]", help="As `find --has`; repeat: all of it at once.")
    ],
    registry: Registry = "",
    as_json: Json = False,
) -> None:
    """Which images hold a bad version: of the matrix as it is, and of every release, with their digests."""
    from trainwright import affected as affected_module
    from trainwright import finding, places, report
    from trainwright.errors import RegistryError

    queries = [finding.query(text, "--by") for text in by]
    intent, _ = chosen(None, None)
    host = None
    try:
        host = str(places.hosts(intent.root, registry)[0])
    except RegistryError as error:
        typer.echo(f"which digest an alias names is unknown: {error.what}", err=True)
    rows, exists = affected_module.affected(intent, queries, host)
    report.show([row.model_dump() for row in rows], as_json)
    if not rows:
        typer.echo(f"no image has it, and none had it in any release; {exists}", err=True)


@app.command()
def update(
    branch: Annotated[str, typer.Option(metavar="NAME", help="The branch to make; one that exists is refused.")],
    pins: Annotated[list[str] | None, typer.Option(metavar="NAME", help="This pin alone; repeat for more.")] = None,
    only: Only = None,
    framework: Framework = None,
    diff: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write the diff there, and not after the table.")
    ] = None,
    dry_run: DryRun = False,
    as_json: Json = False,
) -> None:
    """Move pins to what `outdated` allows, on a new branch: locks, golden texts, one commit. This tree stays."""
    from trainwright import files, plan, report, updating

    asked = updating.Asked(framework=framework, only=only, pins=tuple(pins or ()))
    with report.progress() as (say, advance):
        found = updating.update(find_root(), branch, asked, dry_run, say, advance)
        say(f"{branch}: {found.commit[: plan.SHORT]}" if found.commit else f"nothing was written: no branch {branch}")
    if diff:
        files.write(diff, found.diff)
    if as_json:
        report.show([found.model_dump()], as_json=True)
        return
    report.show([move.model_dump() for move in found.moves], as_json=False)
    short = [row.model_dump() | {"old": row.old[: plan.SHORT], "new": row.new[: plan.SHORT]} for row in found.images]
    if short:
        print()
        report.show(short, as_json=False)
    if found.diff and not diff:
        print(f"\n{found.diff}", end="")
