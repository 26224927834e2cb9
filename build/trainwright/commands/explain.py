"""The command `trainwright explain`."""

import typer

from trainwright.commands.options import Framework, Images, Json, app, asked_for
from trainwright.core.errors import ConfigError, did_you_mean


@app.command()
def explain(images: Images = None, framework: Framework = None, as_json: Json = False) -> None:
    """Explain the version of each component of an image. Shows its declaration, its resolution and its rules."""
    from trainwright.core import console
    from trainwright.image import inputs
    from trainwright.inspect import explain as inspect_explain

    intent, variants = asked_for(framework, images)
    if len(variants) > 1:
        names = [variant.id for variant in variants]
        raise ConfigError(f"explain requires one image, but {len(names)} were chosen", why=did_you_mean("", names))
    (variant,) = variants
    locked, packages, build_packages = inputs.known(intent.recipe(variant))
    rows = inspect_explain.explain(intent.recipe(variant), locked, packages, build_packages)
    for number, table in enumerate(inspect_explain.as_tables(rows) if not as_json else ()):
        print(end="\n" * number)
        console.show(table, as_json)
    if as_json:
        console.show([row.model_dump(mode="json") for row in rows], as_json)
    if missing := inputs.awaited(intent.recipe(variant)):
        typer.echo(f"\n{variant.id} is blocked: {'; '.join(missing)}", err=True)
    elif any(row.resolved == inspect_explain.NOT_LOCKED for row in rows):
        typer.echo(f"\na lock is missing or stale: trainwright lock {variant.id}", err=True)
