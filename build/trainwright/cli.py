"""The command line: parse, call, show. Data to standard output, everything else to standard error."""

import os
import signal
import sys
import traceback
from pathlib import Path
from typing import Annotated, Any

import typer

from trainwright import __version__
from trainwright.errors import ConfigError, TrainwrightError, did_you_mean

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
Registry = Annotated[str, typer.Option(envvar="REGISTRY", help="host[:port][/prefix]; empty: the one on loopback.")]


def find_root() -> Path:
    """The checkout that the command works on: the nearest folder upwards with dockerfiles/matrix.toml."""
    for folder in [Path.cwd(), *Path.cwd().parents]:
        if (folder / "dockerfiles/matrix.toml").exists():
            return folder
    raise ConfigError("no checkout here", where=str(Path.cwd()), fix="cd to the folder that holds dockerfiles/")


@app.command("list")
def list_(only: Only = None, framework: Framework = None, as_json: Json = False) -> None:
    """Every image of the matrix."""
    from trainwright import report

    fields = ("id", "framework", "accelerator", "target", "default", "tested")
    rows = [{name: getattr(variant, name) for name in fields} for variant in _chosen(framework, only)[1]]
    report.show(rows, as_json)


@app.command()
def explain(image: Annotated[str, typer.Argument(metavar="ID")], as_json: Json = False) -> None:
    """Why each version of an image is what it is: declared where, resolved to what, held by which rules."""
    from trainwright import explaining, inputs, report

    intent, variants = _chosen(None, image)
    if len(variants) > 1:
        raise ConfigError(f"{image!r} is {len(variants)} images", why=did_you_mean("", [v.id for v in variants]))
    (variant,) = variants
    locked, packages, build_packages = inputs.known(intent, variant)
    rows = explaining.explain(intent, variant, locked, packages, build_packages)
    for number, table in enumerate(explaining.as_tables(rows) if not as_json else ()):
        print(end="\n" * number)
        report.show(table, as_json)
    if as_json:
        report.show([row.model_dump(mode="json") for row in rows], as_json)
    if any(row.resolved == explaining.NOT_LOCKED for row in rows):
        typer.echo(f"\na lock is missing or stale: trainwright lock --only {variant.id}", err=True)


@app.command()
def find(
    has: Annotated[list[str], typer.Option(metavar="NAME[=VERSION]", help="nccl=2.30, 'nccl>=2.29'; repeat for more.")],
    as_json: Json = False,
) -> None:
    """Which images hold a version: of a component, a Python package, a package of the distribution."""
    from trainwright import finding, inputs, report

    intent, variants = _chosen(None, None)
    queries = [finding.query(text) for text in has]
    images = {}
    for variant in variants:
        locked, packages, _ = inputs.known(intent, variant)
        images[variant.id] = finding.holdings(intent, variant, locked, packages)
    rows, exists = finding.find(queries, images, intent.components.components)
    if rows or as_json:
        report.show([row.model_dump() for row in rows], as_json)
    if exists:
        typer.echo(f"no image has it; {exists}", err=True)


@app.command()
def lock(
    only: Only = None,
    framework: Framework = None,
    check: Annotated[bool, typer.Option("--check", help="Only say whether the locks are current; no network.")] = False,
    update: Annotated[bool, typer.Option("--update", help="Show how every lock would change; write nothing.")] = False,
    write: Annotated[bool, typer.Option("--write", help="With --update: write that, too.")] = False,
    as_json: Json = False,
) -> None:
    """Resolve the intent to exact versions and checksums, and write what is stale or missing of dockerfiles/locks/."""
    from trainwright import locking, relocking, report

    if (write and not update) or (check and update):
        raise ConfigError("--write belongs to --update, and --check to neither", fix="trainwright lock --help")
    intent, variants = _chosen(framework, only)
    if check:
        rows, error = locking.check_locks(intent, variants)
        report.show(rows, as_json)
        if error:
            raise error
        return None
    with report.progress() as (say, advance):
        if not update:
            rows = locking.lock_all(intent, variants, say, advance)
        else:
            rows = [change.model_dump() for change in relocking.update(intent, variants, write, say, advance)]
            after = "; written" if write else "; `trainwright lock --update --write` writes them"
            say(f"{len(rows)} changes{after}" if rows else "every lock is what it would be, were it resolved now")
    return report.show(rows, as_json)


@app.command()
def outdated(only: Only = None, framework: Framework = None, as_json: Json = False) -> None:
    """What upstream has newer than the pins, as far as it can be reached."""
    from trainwright import report, updates

    intent, variants = _chosen(framework, only)
    with report.progress() as (say, _):
        rows = updates.outdated(intent, variants, say)
    report.show([row.model_dump() for row in rows], as_json)


@app.command()
def fetch(only: Only = None, framework: Framework = None, as_json: Json = False) -> None:
    """Bring every locked file into the store, verified."""
    from trainwright import fetching, report

    intent, variants = _chosen(framework, only)
    with report.progress(fetching.to_fetch(intent, variants)) as (say, advance):
        fetching.fetch(intent, variants, say, advance)
        rows = fetching.fetched(intent, variants)
    report.show(rows, as_json)


@app.command()
def plan(only: Only = None, framework: Framework = None, registry: Registry = "", as_json: Json = False) -> None:
    """Per image: skip, reuse, build or blocked, with the reason and the input key."""
    from trainwright import engine, images, inputs, report
    from trainwright import plan as plan_module

    intent, variants = _chosen(framework, only)
    rows = []
    for variant in variants:
        repository = images.repository_if_any(intent, variant, registry)
        entry = images.plan_one(inputs.load(intent, variant), repository, engine.answers)
        rows.append(entry)
    shown = None if as_json else {"id", "action", "reason", "key"}
    table = [row.model_dump(include=shown) for row in rows]
    report.show(table if as_json else [row | {"key": row["key"][: plan_module.SHORT]} for row in table], as_json)
    for entry in () if as_json else rows:
        for warning in entry.warnings:
            typer.echo(f"warning: {entry.id}: {warning}", err=True)


@app.command()
def render(only: Only = None, framework: Framework = None, as_json: Json = False) -> None:
    """Write the Dockerfile, the bake file and the requirement files to out/<id>/."""
    from trainwright import building, images, inputs, report

    intent, variants = _chosen(framework, only)
    rows = []
    for variant in variants:
        found = inputs.load(intent, variant)
        building.write_text(found, images.out_folder(intent, variant))
        rows.append({"id": variant.id, "key": found.key, "folder": f"out/{variant.id}"})
    report.show(rows, as_json)


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
    from trainwright import linting, report

    rows = linting.lint(*_chosen(framework, only))
    report.show([row.model_dump() for row in rows], as_json)
    with report.progress() as (say, _):
        linting.judge(rows, require_check, say)


@app.command()
def build(only: Only = None, framework: Framework = None, registry: Registry = "", as_json: Json = False) -> None:
    """Build what is not built yet, and probe it: what the image holds must be what the lock says."""
    from trainwright import building, fetching, images, report

    intent, variants = _asked_for(framework, only)
    with report.alone(intent.root), report.progress(fetching.to_fetch(intent, variants)) as (say, advance):
        done = [
            building.build(intent, variant, images.repository_if_any(intent, variant, registry), say, advance)
            for variant in variants
        ]
    report.final(done, as_json)


@app.command("test")
def test_(only: Only = None, framework: Framework = None, registry: Registry = "", as_json: Json = False) -> None:
    """Run the image tests on the built images."""
    from trainwright import images, publishing, report

    intent, variants = _asked_for(framework, only)
    with report.alone(intent.root), report.progress() as (say, _):
        done = [
            publishing.test(intent, variant, images.repository_if_any(intent, variant, registry), say)
            for variant in variants
        ]
    report.final(done, as_json)


@app.command()
def push(
    only: Only = None,
    framework: Framework = None,
    registry: Registry = "",
    release: Annotated[str, typer.Option(metavar="TAG", help="One more tag, for people; it never moves.")] = "",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would happen.")] = False,
    as_json: Json = False,
) -> None:
    """Prove, push by digest, verify what the registry holds, and only then tag."""
    from trainwright import images, publishing, report

    intent, variants = _asked_for(framework, only)
    with report.alone(intent.root), report.progress() as (say, _):
        done = [
            publishing.push(intent, variant, images.repository(intent, variant, registry), release, dry_run, say)
            for variant in variants
        ]
    report.final(done, as_json)


@app.command()
def doctor(registry: Registry = "", as_json: Json = False) -> None:
    """Every precondition on this machine, with the command that mends it."""
    from trainwright import report
    from trainwright.doctor import examine

    findings = examine(find_root(), registry)
    report.show([finding.model_dump() for finding in findings], as_json)
    if any(finding.state == "failed" for finding in findings):
        raise typer.Exit(10)


def _chosen(framework: str | None, only: str | None) -> tuple[Any, Any]:
    from trainwright.matrix import load_intent, select

    intent = load_intent(find_root())
    return intent, select(intent.variants, framework, only)


def _asked_for(framework: str | None, only: str | None) -> tuple[Any, Any]:
    """For what costs hours: never "everything" because nothing was said."""
    intent, variants = _chosen(framework, only)
    if framework is None and only is None:
        raise ConfigError(
            "nothing was asked for",
            why=did_you_mean("", {variant.framework for variant in intent.variants}),
            fix=f"make build FRAMEWORK={intent.variants[0].framework}",
        )
    return intent, variants


def main() -> None:
    """Run, and turn every expected failure into one message and its exit code."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # also where SIGINT is ignored, as under nohup
    command = typer.main.get_command(app)
    if len(sys.argv) == 1:
        sys.argv.append("--help")
    try:
        code = command.main(standalone_mode=False, prog_name="trainwright")
    except TrainwrightError as error:
        from trainwright import report

        report.complain(error, as_json="--json" in sys.argv)
        code = error.exit_code
    except (KeyboardInterrupt, typer.Abort):
        code = 130
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = 0
    except Exception as error:
        if isinstance(error, typer.TyperException):  # a wrong option: typer says which, and how it is used
            from trainwright import report

            report.complain(ConfigError(error.format_message(), fix="trainwright --help"), as_json="--json" in sys.argv)
            code = 2
        else:
            traceback.print_exc()
            code = 1
    if code == 130:  # typer makes this of Ctrl-C in a command
        print("\ninterrupted; nothing half-written was left behind", file=sys.stderr)
    sys.exit(code if isinstance(code, int) else 0)


@app.callback(invoke_without_command=True)
def _version(version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False) -> None:
    if version:
        print(__version__)
        raise typer.Exit


if __name__ == "__main__":
    main()
