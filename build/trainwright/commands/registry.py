"""Commands for the registry on loopback, which `push` uses unless REGISTRY names another one."""

import typer

from trainwright.commands.options import Json, app, find_root

registry = typer.Typer(no_args_is_help=True, help="Run the registry on loopback. `push` without REGISTRY uses it.")
app.add_typer(registry, name="registry")


@registry.command()
def up(as_json: Json = False) -> None:
    """Start the registry if it does not run, and print its address."""
    from trainwright.build import loopback
    from trainwright.core import console

    address = loopback.up(find_root(), lambda said: typer.echo(said, err=True))
    if as_json:
        console.data({"address": address})
    else:
        typer.echo(address)


@registry.command()
def down(as_json: Json = False) -> None:
    """Stop the registry; its data stays."""
    from trainwright.build import loopback
    from trainwright.core import console, host_settings

    stopped, data = loopback.down(), host_settings.registry_data()
    if as_json:
        console.data({"stopped": stopped, "data": str(data)})
    elif stopped:
        typer.echo(f"Stopped the registry ({stopped}). Its data stays in {data}", err=True)
    else:
        typer.echo("The registry is not running; nothing to stop.", err=True)


@registry.command()
def status(as_json: Json = False) -> None:
    """Show whether the registry runs, its address, data and log."""
    from trainwright.build import loopback
    from trainwright.core import console

    said = loopback.status(find_root())
    if as_json:
        console.data(said)
    for line in () if as_json else loopback.status_lines(said):
        typer.echo(line)
