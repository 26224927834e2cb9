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

    intent, variants = chosen(framework, images)
    rows = []
    with console.alone(intent.root, no_wait):
        for variant in variants:
            blocked = "; ".join(inputs.awaited(intent.recipe(variant)))
            build.write_text(inputs.text_of(intent.recipe(variant)), state.out_folder(intent.recipe(variant)))
            key = "" if blocked else inputs.load(intent.recipe(variant)).key
            rows.append({"id": variant.id, "key": key, "folder": f"out/{variant.id}", "blocked": blocked})
    console.show(rows, as_json)
