"""The command `trainwright test`."""

from typing import Annotated

import typer

from trainwright.commands.options import Framework, Images, Json, Name, NoWait, Registry, With, app, asked_for, chosen
from trainwright.core.errors import ConfigError


@app.command("test")
def test_(
    images: Images = None,
    framework: Framework = None,
    with_: With = None,
    name: Name = "",
    image: Annotated[str, typer.Option(metavar="NAME", help="A derived image: run the tests of its parent.")] = "",
    registry: Registry = "",
    no_wait: NoWait = False,
    as_json: Json = False,
) -> None:
    """Run the image tests on the built images."""
    from trainwright.build import image_tests, state
    from trainwright.core import console
    from trainwright.inspect import verify_child

    image_tests.refuse_without_pytest()
    if image:
        if images or framework or with_:
            raise ConfigError(
                "--image excludes ids, --framework and --with",
                why="the labels of the image determine which tests run",
                fix="trainwright test --help",
            )
        intent, _ = chosen(None, None)
        with console.progress() as (say, _):
            passed = verify_child.test(intent, image, say)
        console.show([{"image": image, "tests": f"{passed} passed"}], as_json)
        return
    intent, recipes = asked_for(framework, images, with_, name)
    with console.alone(intent.root, no_wait), console.progress() as (say, _):
        done = [image_tests.test(recipe, state.repository_if_any(recipe, registry), say) for recipe in recipes]
    console.final(done, as_json)
