"""The command `trainwright diagnose`."""

from pathlib import Path
from typing import Annotated, Any

import typer

from trainwright.commands.options import Json, OneRegion, app, find_root
from trainwright.core.errors import ConfigError, EnvironmentProblem, NotRunError, printable

Left = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[LOG...]",
        help="Logs, or folders of a job's logs, recorder dumps and ncclras output; - is standard input.",
    ),
]
HEALTHY = "it ended well, and no line shows a known cause of a failure or of a slow job"


@app.command()
def diagnose(
    logs: Left = None,
    job: Annotated[str, typer.Option(metavar="NAME", help="A SageMaker training job, whose log CloudWatch has.")] = "",
    region: OneRegion = "",
    html: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write one self-contained page: the ranks over time.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Find out why a job failed, and which rank first. Shows the line that proves it, and the fix; 7: unknown."""
    from trainwright.core import console
    from trainwright.gate import diagnosis

    if bool(logs) == bool(job):
        fix = "trainwright diagnose LOG..., or trainwright diagnose --job NAME"
        raise ConfigError("diagnose requires either logs or --job, and not both", fix=fix)
    rows = _of_job(job, region) if job else diagnosis.diagnosed(find_root(), logs or [])
    if html:
        _write(html, rows)
    if as_json:
        console.data(rows)
    else:
        for row in rows:  # sentences do not fit in a table
            _show(row)
    unknown = [row for row in rows if row["cause"] == "unknown"]
    if unknown:
        raise typer.Exit(NotRunError.exit_code)


def _of_job(job: str, region: str) -> list[dict[str, Any]]:
    """Return the diagnosis of a SageMaker job: of its log, and of SageMaker's reason if the log does not say why.

    Raises what bring() raises.
    """
    import tempfile

    from trainwright.diagnose import watch
    from trainwright.gate import diagnosis
    from trainwright.jobs import log_files
    from trainwright.registry import aws

    def say(line: str) -> None:
        typer.echo(line, err=True)

    with tempfile.TemporaryDirectory() as folder:
        where = aws.regions(region)[0]
        known = diagnosis.known_of(find_root())
        following = watch.Watch(known.reader.fresh(), watch.load_settings(find_root()))
        brought = log_files.bring(job, where, following, say, Path(folder))
        names = brought.names
        rows = diagnosis.diagnosed(find_root(), sorted(names), known, names) if names else []
        if brought.reason and all(row["cause"] in ("none", "unknown") for row in rows):
            said = Path(folder) / "FailureReason"
            said.write_text(f"{brought.reason}\n")
            rows = [row for row in rows if row["cause"] == "unknown"]  # a job that failed did not end well
            rows += diagnosis.diagnosed(find_root(), [str(said)], known, {str(said): "SageMaker's FailureReason"})
        return rows


def _write(path: Path, rows: list[dict[str, Any]]) -> None:
    """Write the page, completely or not at all. Raises EnvironmentProblem."""
    from trainwright.core import files
    from trainwright.diagnose.job import html

    try:
        files.write(path, html.html(rows))
    except OSError as error:
        raise EnvironmentProblem("the page cannot be written", where=str(path), why=str(error.strerror)) from None


def _show(row: dict[str, Any]) -> None:
    if row["cause"] == "none":
        row = row | {"what": row["what"] or HEALTHY}
    typer.echo(f"{printable(row['log'])}: {'no failure found' if row['cause'] == 'none' else row['cause']}")
    for name in ("what", "evidence", "then", "fix"):
        for text in str(row[name]).splitlines()[:1]:
            typer.echo(f"  {name + ':':<10}{printable(text)}")
        for text in str(row[name]).splitlines()[1:]:
            typer.echo(f"  {'':<10}{printable(text)}")
