"""The command `trainwright upgrade`."""

from typing import Annotated

import typer

from trainwright.commands.options import Json, NoWait, app, find_root
from trainwright.core.errors import ConfigError
from trainwright.core.progress import counted


@app.command()
def upgrade(
    write: Annotated[bool, typer.Option("--write", help="Accept the present keys: write trainwright.lock.")] = False,
    no_wait: NoWait = False,
    as_json: Json = False,
) -> None:
    """Show what the installed trainwright changes in the keys of a project's images, before anything is built."""
    from trainwright import __version__
    from trainwright.core import console, files, project
    from trainwright.inspect import upgrade as inspect_upgrade
    from trainwright.matrix.matrix import load_intent

    root = find_root()
    home = project.home(root)
    if not project.is_project(root):
        raise ConfigError(
            "this folder is not in a project",
            where=str(home),
            why="`upgrade` compares the keys that a project recorded; a checkout has them in git",
            fix="trainwright init DIR makes a project; in a checkout: trainwright changes --since <commit>",
        )
    recorded = inspect_upgrade.read(home)
    rows, now = inspect_upgrade.compare(load_intent(root), home)
    if as_json:
        was = recorded.trainwright if recorded else ""
        console.data({"recorded": was, "installed": __version__, "images": [row.model_dump() for row in rows]})
    else:
        console.show(
            [{**row.model_dump(), "old": row.old[:12], "new": row.new[:12]} for row in rows],
            as_json,
        )
    if not write:
        inspect_upgrade.judge(rows, recorded)
        return
    if any(row.change == "unknown" for row in rows):
        inspect_upgrade.judge(rows, recorded)
    with console.alone(root, no_wait):
        files.write(home / inspect_upgrade.FILE, inspect_upgrade.dump(now))
    typer.echo(
        f"{inspect_upgrade.FILE}: {counted(len(now.images), 'image')} of trainwright {__version__}; commit it", err=True
    )
