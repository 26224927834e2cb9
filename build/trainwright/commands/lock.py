"""The command `trainwright lock`."""

from typing import Annotated, Any

import typer

from trainwright.commands.options import Framework, Images, Json, Name, NoWait, With, app, chosen, on_top
from trainwright.core.errors import ConfigError
from trainwright.core.progress import counted


@app.command()
def lock(
    images: Images = None,
    framework: Framework = None,
    check: Annotated[bool, typer.Option("--check", help="Only check that the locks are current; no network.")] = False,
    update: Annotated[bool, typer.Option("--update", help="Show how every lock would change; write nothing.")] = False,
    write: Annotated[bool, typer.Option("--write", help="With --update: write the changes.")] = False,
    with_: With = None,
    name: Name = "",
    no_wait: NoWait = False,
    as_json: Json = False,
) -> None:
    """Resolve pins to exact versions and checksums. Writes the stale or missing locks of dockerfiles/locks/."""
    from trainwright.core import console
    from trainwright.graft.held import held
    from trainwright.resolve import relock, resolve

    if (write and not update) or (check and update):
        raise ConfigError("--write requires --update, and --check goes with neither", fix="trainwright lock --help")
    intent, recipes = chosen(framework, images)
    reads = check or (update and not write)
    if with_ or name:
        with console.alone(intent.root, no_wait, reads):
            return _lock_additions(on_top(recipes, with_, name)[0], check, update, write, as_json)
    if check:
        rows, error = resolve.check_locks(intent, recipes)
        console.show(rows, as_json)
        if error:
            raise error
        return None
    with console.alone(intent.root, no_wait, reads), console.progress() as (say, advance):
        if not update:
            rows = resolve.lock_all(intent, recipes, images is not None, say, advance, held)
        else:
            rows = [change.model_dump() for change in relock.update(intent, recipes, write, say, advance, held)]
            say(_changes(len(rows), write, "lock"))
    return console.show(rows, as_json)


def _changes(count: int, written: bool, words: str) -> str:
    if not count:
        return "no lock would change if it were resolved now"
    return counted(count, "change") + (
        "; written" if written else f"; `trainwright {words} --update --write` writes them"
    )


def _lock_additions(recipe: Any, check: bool, update: bool, write: bool, as_json: bool) -> None:
    from trainwright.core import console
    from trainwright.resolve import with_packages

    if check:
        rows, error = with_packages.check_lock(recipe)
        console.show(rows, as_json)
        if error:
            raise error
        return
    with console.progress() as (say, advance):
        if not update:
            rows = with_packages.lock_additions(recipe, say, advance)
        else:
            rows = [change.model_dump() for change in with_packages.update(recipe, write, say, advance)]
            say(_changes(len(rows), write, f"lock {recipe.words}"))
    console.show(rows, as_json)
