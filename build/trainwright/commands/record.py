"""The command `trainwright record`."""

from pathlib import Path
from typing import Annotated

import typer

from trainwright.commands.options import Framework, Images, Json, NoWait, app, chosen
from trainwright.core.errors import ConfigError


@app.command()
def record(
    images: Images = None,
    framework: Framework = None,
    training: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Report of the training tests on one image.")
    ] = None,
    no_wait: NoWait = False,
    as_json: Json = False,
) -> None:
    """Record in dockerfiles/proofs/ what was proved here. Requires probe, tests and push with the present inputs.

    Without an image and --framework, every image with results in out/ is recorded.
    """
    from trainwright.build import recording
    from trainwright.core import console

    intent, recipes = chosen(framework, images)
    if framework is None and images is None:
        recipes = recording.candidates(recipes)
    if training and len(recipes) != 1:
        raise ConfigError(f"--training requires one image, but {len(recipes)} were chosen", fix="add <id>")
    with console.alone(intent.root, no_wait):
        rows, error = recording.record(recipes, training)
    console.show(rows, as_json)
    if error:
        raise error
