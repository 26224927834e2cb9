"""The command `trainwright explain`."""

import typer

from trainwright.commands.options import Framework, Images, Json, app, asked_for, find_root
from trainwright.core.errors import ConfigError, did_you_mean


@app.command()
def explain(images: Images = None, framework: Framework = None, as_json: Json = False) -> None:
    """Explain the version of each component of an image. Shows its declaration, its resolution and its rules."""
    from trainwright.core import console, project
    from trainwright.graft import results
    from trainwright.image import inputs
    from trainwright.inspect import explain as inspect_explain
    from trainwright.lock import additions
    from trainwright.matrix.matrix import load_intent
    from trainwright.matrix.model import Lock
    from trainwright.publish import licences

    intent = load_intent(find_root())
    locked: Lock | None
    decided, beyond = dict[str, str](), list[inspect_explain.Explained]()
    name = images[0] if images and len(images) == 1 else ""
    if name and intent.find(name) is None and results.is_graft(intent.root, name):
        from trainwright.graft import recorded, with_file

        one = recorded.must(intent, name)
        recipe, own, decided = one.recipe, recorded.inputs(intent, one).inputs, one.decided
        locked, packages = own.lock, own.distribution.packages()
        build_packages = own.tools.packages() if own.tools else {}
        beyond = with_file.explained(recipe, own.lock, one.file) if one.file else []
    else:
        _, recipes = asked_for(framework, images)
        if len(recipes) > 1:
            names = [recipe.id for recipe in recipes]
            raise ConfigError(f"explain requires one image, but {len(names)} were chosen", why=did_you_mean("", names))
        (recipe,) = recipes
        locked, packages, build_packages = inputs.known(recipe)
    rows = inspect_explain.explain(recipe, locked, packages, build_packages, decided)
    rows += [row for row in beyond if row.component not in {known.component for known in rows}]
    ready = additions.settings(recipe.root).ready([recipe.id])
    restricted = licences.table(recipe, locked)
    absent = inspect_explain.left_out_table(recipe, locked)
    tables = [*inspect_explain.as_tables(rows), absent, restricted, ready] if not as_json else []
    for number, table in enumerate(filter(None, tables)):
        print(end="\n" * number)
        console.show(table, as_json)
    if not (as_json or restricted):
        print(f"\nno row of {licences.FILE} restricts where it may be published")
    if as_json:
        console.show([row.model_dump(mode="json") for row in rows], as_json)
    if any(row.where.endswith("(installed)") for row in rows) and not as_json:
        typer.echo(f"\n(installed): a file below {project.installed()}", err=True)
    if missing := inputs.awaited(recipe):
        typer.echo(f"\n{recipe.id} is blocked: {'; '.join(missing)}", err=True)
    elif any(row.resolved == inspect_explain.NOT_LOCKED for row in rows):
        typer.echo(f"\na lock is missing or stale: trainwright lock {recipe.id}", err=True)
