"""Commands that lock, fetch, build, test and push."""

import subprocess
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from trainwright.commands.options import (
    Framework,
    Json,
    Name,
    NoWait,
    Only,
    Region,
    Registry,
    WaiveGate,
    With,
    app,
    asked_for,
    chosen,
    on_top,
)
from trainwright.errors import ConfigError

CACHE = "TRAINWRIGHT_CACHE"  # a cache to read and to write
ENGINE = "scripts/engine.py"


@app.command()
def lock(
    only: Only = None,
    framework: Framework = None,
    check: Annotated[bool, typer.Option("--check", help="Only say whether the locks are current; no network.")] = False,
    update: Annotated[bool, typer.Option("--update", help="Show how every lock would change; write nothing.")] = False,
    write: Annotated[bool, typer.Option("--write", help="With --update: write that, too.")] = False,
    with_: With = None,
    name: Name = "",
    no_wait: NoWait = False,
    as_json: Json = False,
) -> None:
    """Resolve the intent to exact versions and checksums, and write what is stale or missing of dockerfiles/locks/."""
    from trainwright import locking, relocking, report

    if (write and not update) or (check and update):
        raise ConfigError("--write belongs to --update, and --check to neither", fix="trainwright lock --help")
    intent, variants = chosen(framework, only)
    reads = check or (update and not write)
    if with_ or name:
        with report.alone(intent.root, no_wait, reads):
            return _lock_additions(intent, on_top(variants, with_, name)[0], check, update, write, as_json)
    if check:
        rows, error = locking.check_locks(intent, variants)
        report.show(rows, as_json)
        if error:
            raise error
        return None
    with report.alone(intent.root, no_wait, reads), report.progress() as (say, advance):
        if not update:
            rows = locking.lock_all(intent, variants, only is not None, say, advance)
        else:
            rows = [change.model_dump() for change in relocking.update(intent, variants, write, say, advance)]
            say(_changes(len(rows), write, "lock"))
    return report.show(rows, as_json)


def _changes(count: int, written: bool, words: str) -> str:
    if not count:
        return "every lock is what it would be, were it resolved now"
    return f"{count} changes" + ("; written" if written else f"; `trainwright {words} --update --write` writes them")


def _lock_additions(intent: Any, variant: Any, check: bool, update: bool, write: bool, as_json: bool) -> None:
    from trainwright import adding, report

    if check:
        rows, error = adding.check_lock(intent, variant)
        report.show(rows, as_json)
        if error:
            raise error
        return
    with report.progress() as (say, advance):
        if not update:
            rows = adding.lock_additions(intent, variant, say, advance)
        else:
            rows = [change.model_dump() for change in adding.update(intent, variant, write, say, advance)]
            say(_changes(len(rows), write, f"lock {variant.words}"))
    report.show(rows, as_json)


@app.command()
def outdated(only: Only = None, framework: Framework = None, as_json: Json = False) -> None:
    """What upstream has newer than the pins, as far as it can be reached."""
    from trainwright import report, updates

    intent, variants = chosen(framework, only)
    with report.progress() as (say, _):
        rows = updates.outdated(intent, variants, say)
    report.show([row.model_dump() for row in rows], as_json)


@app.command()
def fetch(only: Only = None, framework: Framework = None, as_json: Json = False) -> None:
    """Bring every locked file into the store, verified."""
    from trainwright import fetching, locking, report

    intent, variants = chosen(framework, only)
    if framework is None and only is None:
        variants, blocked = locking.waiting(intent, variants)
        if blocked:
            typer.echo(f"{len(blocked)} locks are blocked, and not fetched: trainwright plan", err=True)
    with report.progress(fetching.to_fetch(intent, variants)) as (say, advance):
        fetching.fetch(intent, variants, say, advance)
        rows = fetching.fetched(intent, variants)
    report.show(rows, as_json)


@app.command()
def build(
    only: Only = None,
    framework: Framework = None,
    with_: With = None,
    name: Name = "",
    registry: Registry = "",
    cache_to: Annotated[
        str, typer.Option(metavar="REPOSITORY[:TAG]", envvar=CACHE, help="Keep there what each step made.")
    ] = "",
    cache_from: Annotated[
        list[str] | None,
        typer.Option(metavar="REPOSITORY[:TAG]", envvar=CACHE, help="Take from there what another host's steps made."),
    ] = None,
    region: Region = "",
    and_push: Annotated[bool, typer.Option("--push", help="Then push it, as `trainwright push` does.")] = False,
    set_up: Annotated[
        bool, typer.Option("--set-up", help="Where they are needed: the engine, and for --push the registry.")
    ] = False,
    no_wait: NoWait = False,
    as_json: Json = False,
) -> None:
    """Build what is not built yet, and probe it: what the image holds must be what the lock says."""
    from trainwright import building, children, fetching, images, report
    from trainwright.builders import Cache

    cache = Cache(to=cache_to, sources=cache_from or [])
    intent, variants = asked_for(framework, only, with_, name)
    with report.alone(intent.root, no_wait):
        if set_up and and_push and not registry:
            _set_up_registry(intent.root)
        found = [children.load(intent, variant) for variant in variants]
        held, why = images.published_if_known(intent, found, registry, region)
        lacking = images.lacking(variants, held, everywhere=and_push)
        if set_up and lacking:
            _set_up_engine(intent.root)
        with report.progress(fetching.to_fetch(intent, lacking)) as (say, advance):
            if why:
                say(why)
            done = [
                building.build(intent, variant, None, say, advance, cache, held.get(variant.id)) for variant in variants
            ]
        if not (and_push and as_json):
            report.final(done, as_json)
        if and_push and lacking:  # the build may have met a drift, which changes the key
            found, held = [children.load(intent, variant) for variant in variants], {}
        if and_push:
            report.final(_push(intent, found, held, registry, region), as_json)


def _set_up_engine(root: Path) -> None:
    """Have an engine that answers and is new enough. Exits as the script does, which has said why."""
    if code := subprocess.call([sys.executable, root / ENGINE, "ensure"]):
        raise typer.Exit(code)


def _set_up_registry(root: Path) -> None:
    """Start the registry on loopback if it does not answer; not where an AWS account says that another one is meant."""
    from trainwright import host_settings, loopback

    if host_settings.aws_account() or loopback.answers(root):
        return
    _set_up_engine(root)
    loopback.up(root, lambda line: typer.echo(line, err=True))


def _push(
    intent: Any, found: Any, held: Any, registry: str, region: str, release: str = "", waive_gate: str = ""
) -> Any:
    """`held` is what the registry is known to have; empty: it is asked."""
    from trainwright import images, publishing, report

    with report.progress() as (say, _):
        for one in found:
            publishing.refuse(intent, one, release)
        held = held or images.published(intent, found, registry, region)
        return [publishing.push(intent, one.variant, held[one.variant.id], release, say, waive_gate) for one in found]


@app.command("test")
def test_(
    only: Only = None,
    framework: Framework = None,
    with_: With = None,
    name: Name = "",
    image: Annotated[
        str, typer.Option(metavar="NAME", help="An image on top of one of ours: its parent's tests.")
    ] = "",
    registry: Registry = "",
    no_wait: NoWait = False,
    as_json: Json = False,
) -> None:
    """Run the image tests on the built images."""
    from trainwright import images, report, testing, verifying

    if image:
        if only or framework or with_:
            raise ConfigError(
                "--image says which image", why="its labels name the parent", fix="trainwright test --help"
            )
        intent, _ = chosen(None, None)
        with report.progress() as (say, _):
            passed = verifying.test(intent, image, say)
        report.show([{"image": image, "tests": f"{passed} passed"}], as_json)
        return
    intent, variants = asked_for(framework, only, with_, name)
    with report.alone(intent.root, no_wait), report.progress() as (say, _):
        done = [
            testing.test(intent, variant, images.repository_if_any(intent, variant, registry), say)
            for variant in variants
        ]
    report.final(done, as_json)


@app.command()
def push(
    only: Only = None,
    framework: Framework = None,
    with_: With = None,
    name: Name = "",
    registry: Registry = "",
    region: Region = "",
    release: Annotated[str, typer.Option(metavar="TAG", help="One more tag, for people; it never moves.")] = "",
    waive_gate: WaiveGate = "",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would happen.")] = False,
    no_wait: NoWait = False,
    as_json: Json = False,
) -> None:
    """Prove, push by digest, verify what the registry holds, and only then tag."""
    from trainwright import children, errors, images, report
    from trainwright.lock import refuse_blocked

    intent, variants = asked_for(framework, only, with_, name)
    with report.alone(intent.root, no_wait, reads=dry_run):
        found = [children.load(intent, variant) for variant in variants]
        if dry_run:
            from trainwright import forecasting

            for one in found:  # all else is said after the steps; of what is blocked there are none
                refuse_blocked(one.variant, one.blocked)
            held = images.published(intent, found, registry, region)
            told = [forecasting.forecast(intent, each, held[each.id], release, waive_gate) for each in variants]
            report.final([each.done for each in told], as_json)
            return errors.refuse_all("a push would end here", [error for each in told for error in each.refused])
        done = _push(intent, found, {}, registry, region, release, waive_gate)
    return report.final(done, as_json)


@app.command()
def record(
    only: Only = None,
    framework: Framework = None,
    training: Annotated[
        Path | None, typer.Option(metavar="FILE", help="The training tests' report, of one image.")
    ] = None,
    no_wait: NoWait = False,
    as_json: Json = False,
) -> None:
    """Write down what was proved here, in dockerfiles/proofs/: probed, tested and pushed with the present inputs.

    Without --only and --framework: every image that out/ says something of.
    """
    from trainwright import recording, report

    intent, variants = chosen(framework, only)
    if framework is None and only is None:
        variants = recording.candidates(intent, variants)
    if training and len(variants) != 1:
        raise ConfigError(f"--training is about one image, and {len(variants)} were asked for", fix="add --only <id>")
    with report.alone(intent.root, no_wait):
        rows, error = recording.record(intent, variants, training)
    report.show(rows, as_json)
    if error:
        raise error
