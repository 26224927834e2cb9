"""The command `trainwright record`."""

from pathlib import Path
from typing import Annotated

import typer

from trainwright.commands.options import (
    Framework,
    Json,
    NoWait,
    Only,
    app,
    chosen,
)
from trainwright.core.errors import ConfigError


@app.command()
def record(
    only: Only = None,
    framework: Framework = None,
    training: Annotated[
        Path | None, typer.Option(metavar="FILE", help="The training tests' report, of one image.")
    ] = None,
    no_wait: NoWait = False,
    as_json: Json = False,
) -> None:
    """Write down what was proved here, in dockerfiles/proofs/: probed, tested and pushed with the present inputs.

    Without --only and --framework: every image that out/ says something of.
    """
    from trainwright.build import recording
    from trainwright.core import console

    intent, variants = chosen(framework, only)
    if framework is None and only is None:
        variants = recording.candidates(intent, variants)
    if training and len(variants) != 1:
        raise ConfigError(f"--training is about one image, and {len(variants)} were asked for", fix="add --only <id>")
    with console.alone(intent.root, no_wait):
        rows, error = recording.record(intent, variants, training)
    console.show(rows, as_json)
    if error:
        raise error
