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
    from trainwright.core import console
    from trainwright.inspect import matrix_page
    from trainwright.lock import additions

    rows = rows_of(framework, images, state, instance, moved=True)
    ready = additions.settings(find_root()).ready({row["id"] for row in rows})
    if as_json:
        fields = ("id", "framework", "accelerator", "target", "default", "tested", "state", "reason", "digest")
        console.data(
            {
                **matrix_page.summary(rows),
                "images": [{name: row[name] for name in fields} for row in rows],
                "on_top": ready,
            }
        )
        return
    console.show(
        [{name: row[name] for name in ("id", "state", "default", "tested", "reason")} for row in rows], as_json
    )
    typer.echo(matrix_page.sentence(matrix_page.summary(rows)["counts"]), err=True)
    if ready:
        print()
        console.show(ready, as_json)
