"""The command `trainwright lint`."""

from typing import Annotated

import typer

from trainwright.commands.options import Framework, Json, Only, app, chosen


@app.command()
def lint(
    only: Only = None,
    framework: Framework = None,
    require_check: Annotated[
        bool, typer.Option("--require-check", help="An engine that knows no check is an error (7).")
    ] = False,
    as_json: Json = False,
) -> None:
    """hadolint and BuildKit's check on every rendered Dockerfile, shellcheck on every script."""
    from trainwright.build import lint as build_lint
    from trainwright.core import console

    rows = build_lint.lint(*chosen(framework, only))
    console.show([row.model_dump() for row in rows], as_json)
    with console.progress() as (say, _):
        build_lint.judge(rows, require_check, say)
