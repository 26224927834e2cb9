"""Shared by the commands: the program itself, common options, and the choice of images."""

import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from trainwright.core.errors import ConfigError, did_you_mean

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    help="Build, prove and publish training images for AWS accelerators.",
)

Framework = Annotated[str | None, typer.Option(help="Choose the default image of this framework.")]
Images = Annotated[
    list[str] | None, typer.Argument(metavar="[IMAGE]...", help="Ids or globs of images; see `trainwright list`.")
]


def _deprecated(only: str | None) -> str | None:
    if only is not None:
        typer.echo(f"note: --only is deprecated; name the images as arguments: {shlex.quote(only)}", err=True)
    return only


Only = Annotated[str | None, typer.Option(metavar="GLOB", hidden=True, callback=_deprecated)]
Json = Annotated[bool, typer.Option("--json", help="Print JSON to standard output.")]
Registry = Annotated[
    str, typer.Option(envvar="REGISTRY", help="host[:port][/prefix], or ecr[/prefix]; empty: the registry on loopback.")
]
Region = Annotated[
    str,
    typer.Option(envvar="TRAINWRIGHT_REGIONS", metavar="NAME,...", help="Regions of Amazon ECR; empty: the account's."),
]

WaiveGate = Annotated[
    str, typer.Option(metavar="'NAME: REASON'", help="Release without a gate result: who is responsible, and why.")
]

NoWait = Annotated[bool, typer.Option("--no-wait", help="Fail at once if another trainwright works in this checkout.")]

With = Annotated[Path | None, typer.Option("--with", metavar="FILE", help="Add the packages of a requirements file.")]
Name = Annotated[str, typer.Option(metavar="NAME", help="With --with: call the image <id>-with-NAME.")]
StopOnCause = Annotated[bool, typer.Option("--stop-on-cause", help="Stop the job at a cause that no job survives.")]
StopOnSilence = Annotated[bool, typer.Option("--stop-on-silence", help="Stop the job when no host logs anything.")]
OneRegion = Annotated[str, typer.Option(envvar="AWS_REGION", metavar="NAME", help="The job's; default: the account's.")]
Logs = Annotated[
    list[str], typer.Argument(metavar="LOG...", help="Output of nccl-tests, also of its -J; - is standard input.")
]
State = Annotated[str | None, typer.Option(metavar="STATE", help="Only proved, unproved or blocked images.")]
Instance = Annotated[str | None, typer.Option(metavar="TYPE", help="Only images for this type, such as p5.48xlarge.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Show what would happen; change nothing.")]


# The same words for the same thing in run, emit, launch and gate. Old names work for one release more.
RENAMED = {
    "run": {"--hosts": "--nodes"},
    "launch": {"--hosts": "--nodes", "--environment": "--env"},
    "emit": {"--data": "--channel"},
}


def renamed(words: Sequence[str]) -> list[str]:
    """Return a command line with the present names of options that were renamed, and print a note for each."""
    command = next((word for word in words if not word.startswith("-")), "")
    names, found = RENAMED.get(command, {}), list[str]()
    for number, word in enumerate(words):
        option, equals, value = word.partition("=")
        own = "--" not in words[:number]  # what follows -- is the script's
        new = names.get(option, "") if own else ""
        if new and "--json" not in words:
            print(f"note: {option} of {command} is deprecated; it is {new}", file=sys.stderr)
        found.append(f"{new}{equals}{value}" if new else word)
    return found


def find_root() -> Path:
    """Return the checkout that the command works on: the nearest folder upwards with dockerfiles/matrix.toml."""
    for folder in [Path.cwd(), *Path.cwd().parents]:
        if (folder / "dockerfiles/matrix.toml").exists():
            return folder
    raise ConfigError(
        "this folder is not in a trainwright checkout",
        where=str(Path.cwd()),
        fix="cd to the folder that holds dockerfiles/",
    )


def named(images: list[str] | None, only: str | None = None) -> str | None:
    """Return the globs of a command line, separated by spaces, as select() takes them; None for none."""
    return " ".join([*(images or ()), *([only] if only is not None else ())]) if images or only is not None else None


def chosen(framework: str | None, only: str | None) -> tuple[Any, Any]:
    from trainwright.matrix.matrix import load_intent, select

    intent = load_intent(find_root())
    return intent, select(intent.variants, framework, only)


def asked_for(
    framework: str | None, only: str | None, requirements: Path | None = None, name: str = ""
) -> tuple[Any, Any]:
    """Return the chosen images for a command that takes hours: without a choice it fails instead of taking all."""
    intent, variants = chosen(framework, only)
    if framework is None and only is None:
        raise ConfigError(
            "no image was chosen",
            why=did_you_mean("", {variant.framework for variant in intent.variants}),
            fix=f"the same command with --framework {intent.variants[0].framework} or '<id or glob>' "
            f"(of make: FRAMEWORK={intent.variants[0].framework})",
        )
    return intent, on_top(variants, requirements, name) if requirements or name else variants


def on_top(variants: Any, requirements: Path | None, name: str) -> Any:
    """Return the image that consists of another one and the packages of a requirements file."""
    from trainwright.lock import additions

    if requirements is None:
        raise ConfigError("--name requires --with", fix="trainwright build --help")
    if len(variants) != 1:
        raise ConfigError(
            f"--with requires one image, but {len(variants)} were chosen",
            why=", ".join(variant.id for variant in variants[:5]),
            fix=f"name one: {variants[0].id}",
        )
    return [additions.on_top(variants[0], str(requirements), name)]
