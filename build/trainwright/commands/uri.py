"""The command `trainwright uri`."""

from typing import Annotated

import typer

from trainwright.commands.options import Json, Region, Registry, app, find_root


@app.command()
def uri(
    image: Annotated[str, typer.Argument(metavar="ID", help="Id of an image; see `trainwright list`.")],
    registry: Registry = "",
    region: Region = "",
    release: Annotated[
        str,
        typer.Option(metavar="NAME", help="Release, such as 2026.11.0; default: the image with the present inputs."),
    ] = "",
    digest: Annotated[
        bool, typer.Option("--digest", help="Print the digest, repository@sha256:..., not a tag.")
    ] = False,
    zstd: Annotated[
        bool, typer.Option("--zstd/--gzip", help="Print the image's zstd twin, which SageMaker does not pull.")
    ] = False,
    instance: Annotated[
        str, typer.Option(metavar="TYPE", help="Check that it can train there: ml.p5.48xlarge, or without ml.")
    ] = "",
    as_json: Json = False,
) -> None:
    """Print the URI of a published image, one line per region."""
    from trainwright.core import console
    from trainwright.core.errors import ConfigError
    from trainwright.jobs import launch as jobs_launch
    from trainwright.publish import twins
    from trainwright.publish import uri as publish_uri

    root = find_root()
    if zstd and instance.startswith("ml."):
        raise ConfigError("SageMaker pulls no zstd twin", where="--zstd", why=twins.SAGEMAKER, fix="leave --zstd out")
    notes = jobs_launch.fitting_notes(root, image, instance) if instance else []
    found = publish_uri.uris(root, image, registry, region, release, digest, zstd=zstd)
    notes += publish_uri.notes(found)
    if as_json:
        console.data({"uris": [one.model_dump() for one in found], "notes": notes})
        return
    for one in found:
        typer.echo(one.uri)
    for note in notes:
        typer.echo(f"note: {note}", err=True)
