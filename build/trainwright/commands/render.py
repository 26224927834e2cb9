"""The command `trainwright render`."""

from trainwright.commands.options import Framework, Images, Json, NoWait, app, chosen


@app.command()
def render(
    images: Images = None,
    framework: Framework = None,
    no_wait: NoWait = False,
    as_json: Json = False,
) -> None:
    """Write the Dockerfile, the bake file and the requirement files to out/<id>/."""
    from trainwright.build import build, state
    from trainwright.core import console
    from trainwright.image import inputs

    intent, recipes = chosen(framework, images)
    rows = []
    with console.alone(intent.root, no_wait):
        for recipe in recipes:
            blocked = "; ".join(inputs.awaited(recipe))
            build.write_text(inputs.text_of(recipe), state.out_folder(recipe))
            key = "" if blocked else inputs.load(recipe).key
            rows.append({"id": recipe.id, "key": key, "folder": f"out/{recipe.id}", "blocked": blocked})
    console.show(rows, as_json)
