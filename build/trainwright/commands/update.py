"""The command `trainwright update`."""

from pathlib import Path
from typing import Annotated

import typer

from trainwright.commands.options import DryRun, Framework, Images, Json, app, find_root


@app.command()
def update(
    branch: Annotated[
        str, typer.Option(metavar="NAME", help="The branch to create; it must not exist here, except with --push.")
    ],
    pins: Annotated[list[str] | None, typer.Option(metavar="NAME", help="Move only this pin; repeat for more.")] = None,
    images: Images = None,
    framework: Framework = None,
    diff: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write the diff to this file, not after the table.")
    ] = None,
    push: Annotated[
        str, typer.Option(metavar="REMOTE", help="Push the branch to this remote, and replace it there if it is ours.")
    ] = "",
    summary: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write the text of a pull request in Markdown; not if nothing moved."),
    ] = None,
    dry_run: DryRun = False,
    as_json: Json = False,
) -> None:
    """Move pins to what `outdated` allows, on a new branch. Makes one commit with locks and golden texts.

    With --push the branch is on a remote only; a later run replaces it if its last commit is one of `update`.
    """
    from trainwright.core import console, files
    from trainwright.image import tags
    from trainwright.inspect import update_summary
    from trainwright.resolve import update_branch

    asked = update_branch.Asked(framework=framework, images=images, pins=tuple(pins or ()), remote=push)
    with console.progress() as (say, advance):
        found = update_branch.update(find_root(), branch, asked, dry_run, say, advance, update_summary.text)
        how = f" ({found.pushed}: {push})" if found.pushed else ""
        say(
            f"{branch}: {found.commit[: tags.SHORT]}{how}"
            if found.commit
            else f"nothing was written: branch {branch} was not {'pushed' if push else 'created'}"
        )
    if summary and found.summary:
        files.write_named(summary, found.summary)
    if diff:
        files.write(diff, found.diff)
    if as_json:
        console.show([found.model_dump()], as_json=True)
        return
    console.show([move.model_dump() for move in found.moves], as_json=False)
    short = [row.model_dump() | {"old": row.old[: tags.SHORT], "new": row.new[: tags.SHORT]} for row in found.images]
    if short:
        print()
        console.show(short, as_json=False)
    if found.diff and not diff:
        print(f"\n{found.diff}", end="")
