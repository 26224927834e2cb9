"""The command `trainwright list`."""

from typing import TYPE_CHECKING, Any

import typer

from trainwright.commands.options import Framework, Images, Instance, Json, State, Vulnerabilities, app, find_root

if TYPE_CHECKING:
    from trainwright.inspect.vulnerabilities.report import Report


@app.command("list")
def list_(
    images: Images = None,
    framework: Framework = None,
    state: State = None,
    instance: Instance = None,
    vulnerabilities: Vulnerabilities = None,
    as_json: Json = False,
) -> None:
    """List the images, and whether they are proved, and this checkout's grafts. Uses no engine, registry or network.

    An image whose declaration is wrong is shown in the state `error`; the command then ends with the code of the error.

    With --vulnerabilities also what advisories in that snapshot know of their packages: by the SBOM of what was built
    here, by the lock before.
    """
    from trainwright.commands.matrix import look_up, rows_of
    from trainwright.core import console, project
    from trainwright.graft import results
    from trainwright.inspect import matrix_page
    from trainwright.lock import additions

    rows = rows_of(framework, images, state, instance, moved=True)
    root = find_root()
    found = look_up(rows, vulnerabilities) if vulnerabilities and rows else None
    ready = additions.settings(root).ready({row["id"] for row in rows})
    own = results.table(root) if (images, framework, state, instance) == (None,) * 4 else []
    if as_json:
        fields = ["id", "framework", "accelerator", "target", "default", "tested", "state", "reason", "digest"]
        fields += ["error", "overridden", "vulnerabilities"]
        console.data(
            {
                **matrix_page.summary(rows),
                "images": [{name: row[name] for name in fields if name in row} for row in rows],
                "on_top": ready,
                "grafts": own,
                **({"overrides": overrides} if (overrides := project.overrides(root)) else {}),
                **(found.model_dump(exclude={"images"}) if found else {}),
            }
        )
        return _refuse(rows)
    counts = matrix_page.summary(rows)["counts"]
    for row in rows:
        row["state"] += " with override" if "overridden" in row else ""
    if found:
        _findings(rows, found)
        return _refuse(rows)
    names = ("id", "state", "default", "tested", "reason")
    table = [{name: row[name] for name in names} | {"reason": console.brief(row["reason"])} for row in rows]
    console.show(table, as_json, spare=("tested", "default"))
    typer.echo(matrix_page.sentence(counts), err=True)
    for below in filter(None, (ready, own)):
        print()
        console.show(below, as_json)
    return _refuse(rows)


def _refuse(rows: list[dict[str, Any]]) -> None:
    """Raise the errors of the images, after all were shown."""
    from trainwright.core.errors import from_dict, refuse_all

    refuse_all("the declarations of images", [from_dict(row["error"]) for row in rows if "error" in row])


def _findings(rows: list[dict[str, Any]], found: "Report") -> None:
    """Print a table of images with finding counts, a table of findings, and what no snapshot covers."""
    from trainwright.core import console
    from trainwright.inspect.vulnerabilities import report

    console.show(
        [
            {
                "id": row["id"],
                "state": row["state"],
                "by": row["vulnerabilities"]["source"],
                "vulnerabilities": row["vulnerabilities"]["text"],
            }
            for row in rows
        ],
        as_json=False,
    )
    if table := report.table(found.images):
        print()
        console.show(table, as_json=False)
    for line in report.uncovered(found.images):
        typer.echo(line, err=True)
    for note in found.stale + found.notes:
        typer.echo(f"note: {note}", err=True)
