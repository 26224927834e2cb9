"""The command `trainwright graft`."""

from typing import Annotated, Literal

import typer

from trainwright.commands.options import Json, Registry, With, app, find_root


@app.command()
def graft(
    image: Annotated[str, typer.Argument(metavar="IMAGE", help="Reference in a registry or the engine, not ours.")],
    target: Annotated[Literal["ec2", "sagemaker"], typer.Option(help="Where the graft runs.")] = "ec2",
    fabric: Annotated[Literal["none", "efa", "distro"], typer.Option(help="Fabric to add.")] = "none",
    name: Annotated[str, typer.Option(metavar="NAME", help="Last part of the graft's id; default: the image's.")] = "",
    with_: With = None,
    look_only: Annotated[bool, typer.Option("--look-only", help="Show what was found and planned.")] = False,
    push: Annotated[bool, typer.Option("--push", help="Push the graft by digest, and tag it with its key.")] = False,
    twin: Annotated[
        bool | None,
        typer.Option("--twin/--no-twin", help="With --push, also the zstd twin; default: as publish.toml says."),
    ] = None,
    set_up: Annotated[
        bool, typer.Option("--set-up", help="Start the engine, and for --push the registry, if needed.")
    ] = False,
    registry: Registry = "",
    as_json: Json = False,
) -> None:
    """Put a fabric, launcher and preflight on an image of others. Looks into it and plans first, and refuses traps."""
    from trainwright.commands.build import set_up_engine, set_up_registry
    from trainwright.core import console, project
    from trainwright.core.errors import ConfigError, refuse_all
    from trainwright.graft import build as graft_build
    from trainwright.graft import found as graft_found
    from trainwright.graft import look as graft_look
    from trainwright.graft import plan as graft_plan
    from trainwright.matrix.matrix import load_intent
    from trainwright.publish import attest
    from trainwright.registry import locations

    def say(line: str) -> None:
        typer.echo(line, err=True)

    if look_only and push:
        raise ConfigError("--look-only builds nothing that --push could send", fix=f"trainwright graft {image} --push")
    intent = load_intent(find_root())
    project.make_out(intent.root)
    if set_up:
        set_up_engine(intent.root)
    if set_up and push and not registry:
        set_up_registry(intent.root)
    hosts = locations.hosts(intent.root, registry) if push else []
    forbidden = graft_build.forbidden(intent, image, [host.place("trainwright") for host in hosts])
    file = graft_plan.file_of(with_) if with_ else None
    wanted = graft_plan.asked_for(intent, target, fabric, graft_look.architecture(), forbidden, file)
    found = graft_look.look(intent, image, say)
    made = graft_plan.plan(intent, found, wanted, name)
    refused = graft_plan.refusals(found, made)
    shown = {"found": graft_found.rows(found), "plan": made.model_dump()}
    if look_only or refused:
        if as_json:
            console.data(shown)
        else:
            tables = (
                graft_found.rows(found),
                *([row.model_dump() for row in part] for part in (made.steps, made.traps)),
            )
            for rows in tables:
                console.show(rows, False)
                print()
        refuse_all(f"{image} cannot be grafted upon", refused)
        return
    if hosts:
        attest.must_be_possible(intent.root, "push")
    with console.progress() as (tell, progress):
        one, result = graft_build.build(intent, found, wanted, made, tell, progress)
    for host in hosts:
        place, out = host.place(made.repository), intent.root / "out" / one.id
        result = graft_build.push(found, one, result, place, out, say, twin)
    if as_json:
        console.data({**shown, "graft": result.model_dump()})
    else:
        console.show([{"what": key, "is": value} for key, value in result.shown()], False)
