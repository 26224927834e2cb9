"""The command `trainwright lint`."""

from typing import Annotated

import typer

from trainwright.commands.options import Framework, Images, Json, app, chosen


@app.command()
def lint(
    images: Images = None,
    framework: Framework = None,
    require_check: Annotated[
        bool, typer.Option("--require-check", help="Fail (7) if the engine does not support the check.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Lint every rendered Dockerfile and every script. Runs hadolint, BuildKit's check and shellcheck."""
    from trainwright.build import lint as build_lint
    from trainwright.core import console

    rows = build_lint.lint(*chosen(framework, images))
    console.show([row.model_dump() for row in rows], as_json)
    with console.progress() as (say, _):
        build_lint.judge(rows, require_check, say)
