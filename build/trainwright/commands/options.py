"""What commands share: the program itself, options, the images that were asked for."""

from pathlib import Path
from typing import Annotated, Any

import typer

from trainwright.core.errors import ConfigError, did_you_mean

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    help="Training images that are what they say they are.",
)

Framework = Annotated[str | None, typer.Option(help="The framework's one default image.")]
Only = Annotated[str | None, typer.Option(metavar="GLOB", help="Images by id or glob; see `trainwright list`.")]
Json = Annotated[bool, typer.Option("--json", help="Machine-readable, to standard output.")]
Registry = Annotated[
    str, typer.Option(envvar="REGISTRY", help="host[:port][/prefix], or ecr[/prefix]; empty: the one on loopback.")
]
Region = Annotated[
    str, typer.Option(envvar="TRAINWRIGHT_REGIONS", metavar="NAME,...", help="Of Amazon ECR; empty: the account's.")
]

WaiveGate = Annotated[
    str, typer.Option(metavar="'NAME: REASON'", help="Release without a gate result; who answers for it, and why.")
]

NoWait = Annotated[
    bool, typer.Option("--no-wait", help="Where another trainwright works in this checkout: an error, at once.")
]

With = Annotated[Path | None, typer.Option("--with", metavar="FILE", help="Packages of a requirements file on top.")]
Name = Annotated[str, typer.Option(metavar="NAME", help="With --with: the image is <id>-with-NAME.")]
StopOnCause = Annotated[bool, typer.Option("--stop-on-cause", help="Stop the job at a cause that nothing survives.")]
StopOnSilence = Annotated[bool, typer.Option("--stop-on-silence", help="Stop the job when no host speaks any more.")]
OneRegion = Annotated[str, typer.Option(envvar="AWS_REGION", metavar="NAME", help="Of the job; else the account's.")]
Logs = Annotated[
    list[str], typer.Argument(metavar="LOG...", help="Output of nccl-tests, or of -J; - is standard input.")
]
State = Annotated[str | None, typer.Option(metavar="STATE", help="proved, unproved or blocked.")]
Instance = Annotated[str | None, typer.Option(metavar="TYPE", help="Those that are for it, such as p5.48xlarge.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Say what would happen; change nothing.")]


def find_root() -> Path:
    """The checkout that the command works on: the nearest folder upwards with dockerfiles/matrix.toml."""
    for folder in [Path.cwd(), *Path.cwd().parents]:
        if (folder / "dockerfiles/matrix.toml").exists():
            return folder
    raise ConfigError("no checkout here", where=str(Path.cwd()), fix="cd to the folder that holds dockerfiles/")


def chosen(framework: str | None, only: str | None) -> tuple[Any, Any]:
    from trainwright.matrix.matrix import load_intent, select

    intent = load_intent(find_root())
    return intent, select(intent.variants, framework, only)


def asked_for(
    framework: str | None, only: str | None, requirements: Path | None = None, name: str = ""
) -> tuple[Any, Any]:
    """For what costs hours: never "everything" because nothing was said."""
    intent, variants = chosen(framework, only)
    if framework is None and only is None:
        raise ConfigError(
            "nothing was asked for",
            why=did_you_mean("", {variant.framework for variant in intent.variants}),
            fix=f"the same command with --framework {intent.variants[0].framework} or --only '<id or glob>' "
            f"(of make: FRAMEWORK={intent.variants[0].framework})",
        )
    return intent, on_top(variants, requirements, name) if requirements or name else variants


def on_top(variants: Any, requirements: Path | None, name: str) -> Any:
    """The one image that packages of a requirements file make of another one."""
    from trainwright.lock import additions

    if requirements is None:
        raise ConfigError("--name belongs to --with", fix="trainwright build --help")
    if len(variants) != 1:
        raise ConfigError(
            f"--with goes on top of one image, and {len(variants)} were asked for",
            why=", ".join(variant.id for variant in variants[:5]),
            fix=f"--only {variants[0].id}",
        )
    return [additions.on_top(variants[0], str(requirements), name)]
