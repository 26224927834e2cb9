"""The command `trainwright doctor`."""

import typer

from trainwright.commands.options import Json, Registry, app, find_root


@app.command()
def doctor(registry: Registry = "", as_json: Json = False) -> None:
    """Check every precondition on this machine. Each failed one names the command that fixes it."""
    from trainwright.core import console
    from trainwright.doctor import examine

    findings = examine(find_root(), registry)
    console.show([finding.model_dump() for finding in findings], as_json)
    if any(finding.state == "failed" for finding in findings):
        raise typer.Exit(10)
