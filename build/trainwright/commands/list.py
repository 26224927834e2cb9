"""The command `trainwright list`."""

import typer

from trainwright.commands.options import Framework, Images, Instance, Json, State, app, find_root


@app.command("list")
def list_(
    images: Images = None,
    framework: Framework = None,
    state: State = None,
    instance: Instance = None,
    as_json: Json = False,
) -> None:
    """List the images, and whether they are proved. Uses no engine, registry or network."""
    from trainwright.commands.matrix import rows_of
    from trainwright.core import console, project
    from trainwright.inspect import matrix_page
    from trainwright.lock import additions

    rows = rows_of(framework, images, state, instance, moved=True)
    root = find_root()
    ready = additions.settings(root).ready({row["id"] for row in rows})
    if as_json:
        fields = (
            "id",
            "framework",
            "accelerator",
            "target",
            "default",
            "tested",
            "state",
            "reason",
            "digest",
            "overridden",
        )
        console.data(
            {
                **matrix_page.summary(rows),
                "images": [{name: row[name] for name in fields if name in row} for row in rows],
                "on_top": ready,
                **({"overrides": overrides} if (overrides := project.overrides(root)) else {}),
            }
        )
        return
    counts = matrix_page.summary(rows)["counts"]
    for row in rows:
        row["state"] += " with override" if "overridden" in row else ""
    console.show(
        [{name: row[name] for name in ("id", "state", "default", "tested", "reason")} for row in rows], as_json
    )
    typer.echo(matrix_page.sentence(counts), err=True)
    if ready:
        print()
        console.show(ready, as_json)
