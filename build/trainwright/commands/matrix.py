"""The command `trainwright matrix`."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from trainwright.commands.options import Framework, Images, Instance, Json, State, Vulnerabilities, app, chosen
from trainwright.core.errors import ConfigError, did_you_mean

if TYPE_CHECKING:
    from trainwright.inspect.vulnerabilities.report import Report


def rows_of(
    framework: str | None, images: list[str] | None, state: str | None, instance: str | None, moved: bool = False
) -> list[dict[str, Any]]:
    """Return all facts of the chosen images. Raises ConfigError for an unknown name.

    "proved" depends on the key only; with `moved`, the reason also says whether tests or proving code changed since.
    """
    from trainwright.build import proofs
    from trainwright.inspect import matrix_page
    from trainwright.matrix import instances

    intent, recipes = chosen(framework, images)
    if state is not None and state not in matrix_page.STATES:
        raise ConfigError(
            f"unknown state {state!r}", why=did_you_mean(state, matrix_page.STATES), fix="trainwright list"
        )
    if instance is not None:
        instances.refuse(intent.root, instance)
        instances.architectures([instance], intent.instances)
    rows = list[dict[str, Any]]()
    for recipe in (one for one in recipes if instance is None or instance in one.variant.instances):
        standing = proofs.standing(recipe)
        if state not in (None, standing.state):
            continue
        rows.append(matrix_page.row(recipe, standing))
        if moved and standing.state == "proved" and (why := proofs.due(recipe, standing)):
            rows[-1]["reason"] += f"; but {why}"
    return rows


def look_up(rows: list[dict[str, Any]], snapshots: list[Path]) -> "Report":
    """Add the known vulnerabilities to each row, as `vulnerabilities`. Raises ConfigError for an unreadable one."""
    from trainwright.inspect.vulnerabilities import report

    intent, _ = chosen(None, None)
    found = report.known([intent.recipe(row["id"]) for row in rows], snapshots)
    for row, image in zip(rows, found.images, strict=True):
        row["vulnerabilities"] = report.to_json(image)
    return found


@app.command()
def matrix(
    images: Images = None,
    framework: Framework = None,
    state: State = None,
    instance: Instance = None,
    markdown: Annotated[Path | None, typer.Option(metavar="FILE", help="Write a Markdown table.")] = None,
    html: Annotated[Path | None, typer.Option(metavar="FILE", help="Write one page with filters.")] = None,
    vulnerabilities: Vulnerabilities = None,
    keys: Annotated[bool, typer.Option("--keys", help="Show what a row of matrix.toml can say, and no image.")] = False,
    as_json: Json = False,
) -> None:
    """Show the whole matrix. Has versions, base, transport, where each image is tested, and when it was proved."""
    from trainwright.core import console, project
    from trainwright.core.files import write_named
    from trainwright.inspect import matrix_page

    if keys:
        console.show(matrix_page.keys_of_rows(), as_json)
        folder = project.installed() / "dockerfiles"
        return typer.echo(f"matrix.toml, bases.toml and instances.toml of trainwright itself: {folder}", err=True)
    rows = rows_of(framework, images, state, instance)
    if vulnerabilities:
        for note in (found := look_up(rows, vulnerabilities)).stale + found.notes:
            typer.echo(f"note: {note}", err=True)
    for path, text in ((markdown, matrix_page.markdown), (html, matrix_page.html)):
        if path:
            write_named(path, text(rows))
            typer.echo(f"{path}: {matrix_page.sentence(matrix_page.summary(rows)['counts'])}", err=True)
    if as_json:
        console.data({**matrix_page.summary(rows), "images": rows})
    elif not markdown and not html:
        console.show([{title: row[name] for name, title in matrix_page.COLUMNS.items()} for row in rows], as_json)
        typer.echo(matrix_page.sentence(matrix_page.summary(rows)["counts"]), err=True)
    return None
