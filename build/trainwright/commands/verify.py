"""The command `trainwright verify`."""

import functools
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from trainwright.commands.options import Json, Registry, Vulnerabilities, app, find_root

if TYPE_CHECKING:
    from trainwright.inspect.vulnerabilities.report import Report


@app.command()
def verify(
    image: Annotated[
        str,
        typer.Argument(
            metavar="IMAGE|DIR", help="Image in a registry or the engine, or the folder of a derive project."
        ),
    ],
    parent: Annotated[str, typer.Option(metavar="URI", help="Parent image, if the image does not name it.")] = "",
    tests: Annotated[bool, typer.Option("--tests", help="Also run the parent's image tests on it.")] = False,
    key: Annotated[
        str,
        typer.Option(envvar="TRAINWRIGHT_VERIFY_KEY", metavar="FILE", help="For a published image: the public key."),
    ] = "",
    contents: Annotated[
        bool, typer.Option("--contents/--no-contents", help="For a published image: pull it, and probe its contents.")
    ] = True,
    vulnerabilities: Vulnerabilities = None,
    registry: Registry = "",
    as_json: Json = False,
) -> None:
    """Verify a published or a derived image. Exits 5 if a check failed, 7 if one did not run.

    A published image: tags, media types, signature, provenance, SBOM and contents against the lock; with
    --vulnerabilities also what is known of the packages in its signed SBOM. A derived image (a folder, --parent, or an
    image with the label that `derive` writes): whether it holds its parent unchanged.
    """
    from trainwright.core import console
    from trainwright.core.errors import ConfigError
    from trainwright.graft import verify as graft_verify
    from trainwright.inspect import verify_child, verify_published
    from trainwright.matrix.matrix import load_intent

    intent = load_intent(find_root())
    if not (parent or tests) and not Path(image).is_dir() and verify_published.is_published(image):
        with console.progress() as (say, _):
            grafts = functools.partial(graft_verify.known, intent)
            found = verify_published.inspect(intent, image, key, contents, say, vulnerabilities or (), grafts)
        if as_json:
            console.data(found.model_dump())
        else:
            console.show([row.model_dump() for row in found.rows], as_json)
            _findings(found.vulnerabilities)
            typer.echo(f"{found.id}: {found.uri}", err=True)
        verify_published.judge(found)
        return
    if vulnerabilities:
        fix = "trainwright verify <host[:port]/repository:tag> --vulnerabilities SNAPSHOT"
        why = "they are looked up in the signed SBOM of a published image"
        raise ConfigError("--vulnerabilities requires a published image", why=why, fix=fix)
    with console.progress() as (say, _):
        verdict = verify_child.verify(intent, image, parent, registry, say)
    rows = [row.model_dump(exclude={"traces"}) for row in verdict.rows]
    if as_json:
        console.data({**verdict.model_dump(exclude={"rows"}), "rows": rows})
    else:
        console.show([{name: row[name] for name in row if name != "fix"} for row in rows], as_json)
        typer.echo(f"{verdict.image} on {verdict.parent} ({verdict.id}); {verdict.checkout}", err=True)
    verify_child.judge(verdict)
    if tests:
        with console.progress() as (say, _):
            say(f"{verify_child.test(intent, verdict.image, say)} image tests passed")


def _findings(found: "Report | None") -> None:
    from trainwright.core import console
    from trainwright.inspect.vulnerabilities import report

    if found is None:
        return
    if table := report.table(found.images):
        print()
        console.show(table, as_json=False)
    for line in report.uncovered(found.images) + [f"note: {note}" for note in found.stale + found.notes]:
        typer.echo(line, err=True)
