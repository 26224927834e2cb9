"""The command `trainwright rollback`."""

from typing import Annotated

import typer

from trainwright.commands.options import DryRun, Images, Json, NoWait, Region, Registry, app, find_root


@app.command()
def rollback(
    to: Annotated[str, typer.Option(metavar="NAME", help="The release that the aliases will point to.")],
    images: Images = None,
    registry: Registry = "",
    region: Region = "",
    dry_run: DryRun = False,
    no_wait: NoWait = False,
    as_json: Json = False,
) -> None:
    """Move aliases back to the images of a release. No other tag moves."""
    from trainwright.core import console
    from trainwright.publish import release as publish_release
    from trainwright.registry import locations

    root = find_root()
    publish_release.released(root, to, images or ["*"])  # before waiting for the lock
    with console.alone(root, no_wait, reads=dry_run):
        hosts = locations.hosts(root, registry, region)
        rows = publish_release.rollback(root, to, images or ["*"], list(map(str, hosts)), dry_run)
    console.show([row.model_dump() for row in rows], as_json)
