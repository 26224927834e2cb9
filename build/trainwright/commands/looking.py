"""Commands that look and change nothing but out/<id>/'s text."""

from pathlib import Path
from typing import Annotated, Any

import typer

from trainwright.commands.options import Framework, Json, NoWait, Only, Region, Registry, app, chosen, find_root
from trainwright.errors import ConfigError, did_you_mean

State = Annotated[str | None, typer.Option(metavar="STATE", help="proved, unproved or blocked.")]
Instance = Annotated[str | None, typer.Option(metavar="TYPE", help="Those that are for it, such as p5.48xlarge.")]


def _rows(
    framework: str | None, only: str | None, state: str | None, instance: str | None, moved: bool = False
) -> list[dict[str, Any]]:
    """Everything that is known of the images that were asked for. Raises ConfigError for a name that is none.

    Proved is a matter of the key; with `moved`, the reason says beside it whether tests and proving code changed since.
    """
    from trainwright import instances, overview, proofs

    intent, variants = chosen(framework, only)
    if state is not None and state not in overview.STATES:
        raise ConfigError(f"unknown state {state!r}", why=did_you_mean(state, overview.STATES), fix="trainwright list")
    if instance is not None:
        instances.architectures([instance], intent.instances)
    rows = list[dict[str, Any]]()
    for variant in (one for one in variants if instance is None or instance in one.instances):
        standing = proofs.standing(intent, variant)
        if state not in (None, standing.state):
            continue
        rows.append(overview.row(intent, variant, standing))
        if moved and standing.state == "proved" and (why := proofs.due(intent, variant, standing)):
            rows[-1]["reason"] += f"; but {why}"
    return rows


@app.command("list")
def list_(
    only: Only = None,
    framework: Framework = None,
    state: State = None,
    instance: Instance = None,
    as_json: Json = False,
) -> None:
    """Every image of the matrix, and whether it is proved with its present inputs; no engine, registry or network."""
    from trainwright import overview, report

    rows = _rows(framework, only, state, instance, moved=True)
    if as_json:
        fields = ("id", "framework", "accelerator", "target", "default", "tested", "state", "reason", "digest")
        report.data({**overview.summary(rows), "images": [{name: row[name] for name in fields} for row in rows]})
        return
    report.show([{name: row[name] for name in ("id", "state", "default", "tested", "reason")} for row in rows], as_json)
    typer.echo(overview.sentence(overview.summary(rows)["counts"]), err=True)


@app.command()
def matrix(
    only: Only = None,
    framework: Framework = None,
    state: State = None,
    instance: Instance = None,
    markdown: Annotated[Path | None, typer.Option(metavar="FILE", help="Write it as a table of Markdown.")] = None,
    html: Annotated[Path | None, typer.Option(metavar="FILE", help="Write it as one page with filters.")] = None,
    as_json: Json = False,
) -> None:
    """The whole matrix: versions, base, transport, who tests it where, what is proved of it."""
    from trainwright import overview, report
    from trainwright.files import write_named

    rows = _rows(framework, only, state, instance)
    for path, text in ((markdown, overview.markdown), (html, overview.html)):
        if path:
            write_named(path, text(rows))
            typer.echo(f"{path}: {overview.sentence(overview.summary(rows)['counts'])}", err=True)
    if as_json:
        report.data({**overview.summary(rows), "images": rows})
    elif not markdown and not html:
        report.show([{title: row[name] for name, title in overview.COLUMNS.items()} for row in rows], as_json)
        typer.echo(overview.sentence(overview.summary(rows)["counts"]), err=True)


@app.command()
def explain(image: Annotated[str, typer.Argument(metavar="ID")], as_json: Json = False) -> None:
    """Why each version of an image is what it is: declared where, resolved to what, held by which rules."""
    from trainwright import explaining, inputs, report

    intent, variants = chosen(None, image)
    if len(variants) > 1:
        raise ConfigError(f"{image!r} is {len(variants)} images", why=did_you_mean("", [v.id for v in variants]))
    (variant,) = variants
    locked, packages, build_packages = inputs.known(intent, variant)
    rows = explaining.explain(intent, variant, locked, packages, build_packages)
    for number, table in enumerate(explaining.as_tables(rows) if not as_json else ()):
        print(end="\n" * number)
        report.show(table, as_json)
    if as_json:
        report.show([row.model_dump(mode="json") for row in rows], as_json)
    if missing := inputs.awaited(intent, variant):
        typer.echo(f"\n{variant.id} is blocked: {'; '.join(missing)}", err=True)
    elif any(row.resolved == explaining.NOT_LOCKED for row in rows):
        typer.echo(f"\na lock is missing or stale: trainwright lock --only {variant.id}", err=True)


@app.command()
def find(
    has: Annotated[list[str], typer.Option(metavar="NAME[=VERSION]", help="nccl=2.30, 'nccl>=2.29'; repeat for more.")],
    as_json: Json = False,
) -> None:
    """Which images hold a version: of a component, a Python package, a package of the distribution."""
    from trainwright import finding, inputs, report

    intent, variants = chosen(None, None)
    queries = [finding.query(text) for text in has]
    images = {}
    for variant in variants:
        locked, packages, _ = inputs.known(intent, variant)
        images[variant.id] = finding.holdings(intent, variant, locked, packages)
    rows, exists = finding.find(queries, images, intent.components.components)
    if rows or as_json:
        report.show([row.model_dump() for row in rows], as_json)
    if exists:
        typer.echo(f"no image has it; {exists}", err=True)


@app.command()
def plan(
    only: Only = None,
    framework: Framework = None,
    registry: Registry = "",
    region: Region = "",
    as_json: Json = False,
) -> None:
    """Per image: skip, reuse, build or blocked, with the reason and the input key."""
    from trainwright import images, report
    from trainwright import plan as plan_module

    intent, variants = chosen(framework, only)
    rows, why = images.planned(intent, variants, registry, region)
    if why:
        typer.echo(why, err=True)
    shown = None if as_json else {"id", "action", "reason", "key"}
    table = [row.model_dump(include=shown) for row in rows]
    report.show(table if as_json else [row | {"key": row["key"][: plan_module.SHORT]} for row in table], as_json)
    for entry in () if as_json else rows:
        for warning in entry.warnings:
            typer.echo(f"warning: {entry.id}: {warning}", err=True)


@app.command()
def render(only: Only = None, framework: Framework = None, no_wait: NoWait = False, as_json: Json = False) -> None:
    """Write the Dockerfile, the bake file and the requirement files to out/<id>/."""
    from trainwright import building, images, inputs, report

    intent, variants = chosen(framework, only)
    rows = []
    with report.alone(intent.root, no_wait):
        for variant in variants:
            blocked = "; ".join(inputs.awaited(intent, variant))
            building.write_text(inputs.text_of(intent, variant), images.out_folder(intent, variant))
            key = "" if blocked else inputs.load(intent, variant).key
            rows.append({"id": variant.id, "key": key, "folder": f"out/{variant.id}", "blocked": blocked})
    report.show(rows, as_json)


@app.command()
def lint(
    only: Only = None,
    framework: Framework = None,
    require_check: Annotated[
        bool, typer.Option("--require-check", help="An engine that knows no check is an error (7).")
    ] = False,
    as_json: Json = False,
) -> None:
    """hadolint and BuildKit's check on every rendered Dockerfile, shellcheck on every script."""
    from trainwright import linting, report

    rows = linting.lint(*chosen(framework, only))
    report.show([row.model_dump() for row in rows], as_json)
    with report.progress() as (say, _):
        linting.judge(rows, require_check, say)


@app.command()
def doctor(registry: Registry = "", as_json: Json = False) -> None:
    """Every precondition on this machine, with the command that mends it."""
    from trainwright import report
    from trainwright.doctor import examine

    findings = examine(find_root(), registry)
    report.show([finding.model_dump() for finding in findings], as_json)
    if any(finding.state == "failed" for finding in findings):
        raise typer.Exit(10)
