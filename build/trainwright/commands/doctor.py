"""The command `trainwright doctor`."""

import typer

from trainwright.commands.options import Framework, Images, Json, Registry, app, chosen, find_root


@app.command()
def doctor(images: Images = None, framework: Framework = None, registry: Registry = "", as_json: Json = False) -> None:
    """Check every precondition on this machine. Each failed one names the command that fixes it.

    The disk must have room for the images that are named, else for all default images.
    """
    from trainwright.core import console
    from trainwright.doctor import examine

    ids = None if framework is None and images is None else {recipe.id for recipe in chosen(framework, images)[1]}
    findings = examine(find_root(), registry, ids)
    console.show([finding.model_dump() for finding in findings], as_json)
    if any(finding.state == "failed" for finding in findings):
        raise typer.Exit(10)
