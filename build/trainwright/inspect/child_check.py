"""Compare a derived image with its parent: each component is unchanged, changed, removed, or a second copy."""

from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from pathlib import PurePosixPath
from typing import Any, Literal

from trainwright.core.progress import few
from trainwright.core.toml import Model
from trainwright.image.declared import PLACE
from trainwright.image.probe import Findings

State = Literal["unchanged", "changed", "removed", "second copy", "added"]
CONSTRAINTS = "/opt/trainwright/constraints.txt"


class OwnFiles(Model):
    """The output of scripts/own_files.py."""

    declared: str
    constraints: list[str]
    files: dict[str, str]  # path to sha256


class Library(Model):
    component: str
    sha256: str
    names: list[str]


class Look(Model):
    """The answers of one image; parent and child get the same questions."""

    own: OwnFiles
    findings: Findings
    libraries: dict[str, Library]  # path on disk, links followed


class Row(Model):
    """One item of the parent, and its state in the child."""

    what: str
    state: State
    was: str = ""
    now: str = ""
    where: str = ""
    by: str = ""  # the instruction of the child's Dockerfile, if it is known
    fix: str = ""  # if the remedy is not to remove the instruction
    refused: bool = False
    traces: tuple[str, ...] = ()  # globs of paths that identify the layer


def compare(declared: Mapping[str, Any], parent: Look, child: Look) -> list[Row]:
    """Return a row for every component, and for every other difference. `declared` is the parent's declaration."""
    return [
        *(_component(name, facts, parent, child) for name, facts in declared["components"].items()),
        *_python(declared, parent.findings.python_packages, child.findings.python_packages),
        *_distribution(parent.findings.packages, child.findings.packages),
        *_own_files(parent.own, child.own),
    ]


def layers(parent: list[str], child: list[str]) -> Row:
    """Return a row that says whether the parent's layers, by digest, are the lowest ones of the child."""
    kept = next((n for n, pair in enumerate(zip(parent, child, strict=False)) if pair[0] != pair[1]), len(parent))
    kept = min(kept, len(child))
    whole = kept == len(parent)
    now = f"all of them, and {len(child) - kept} more" if whole else f"{kept} of them: squashed, or rebased"
    return Row(
        what="stack of layers",
        state="unchanged" if whole else "changed",
        was=f"{len(parent)} layers",
        now=now,
        refused=not whole,
    )


def _component(name: str, facts: Mapping[str, Any], parent: Look, child: Look) -> Row:
    """Return the state of a component from its version, its libraries and its compiled files: the worst one counts."""
    was, now = parent.findings.versions.get(name, ""), child.findings.versions.get(name, "")
    before = {path: library.sha256 for path, library in parent.libraries.items() if library.component == name}
    after = {path: library.sha256 for path, library in child.libraries.items() if library.component == name}
    built = {path: there for path, (_, there) in parent.findings.files.get(name, {}).items()}
    found = {path: there for path, (_, there) in child.findings.files.get(name, {}).items()}
    before |= built
    after |= {path: found.get(path, "") for path in built}
    gone = [path for path in before if not after.get(path)]
    changed = [path for path in before if after.get(path) not in (None, "", before[path])]
    lost = _links_lost(name, parent.libraries, child.libraries)
    more = sorted((after.keys() - before.keys()) | _mapped_elsewhere(name, parent, child))
    # A component that lost its version was removed; one that only lost or changed files was changed.
    state: State = "unchanged"
    if was and not now:
        state = "removed"
    elif was != now or gone or changed or lost:
        state = "changed"
    elif more:
        state = "second copy"
    touched = gone or changed or lost or more
    return Row(
        what=name,
        state=state,
        was=was,
        now=now,
        where=few([f"{path} is gone" for path in [*gone, *lost]] or [*changed, *more], 1),
        # A child may change what ranks neither compute nor communicate with, but a job that needs a removed one fails.
        refused=state == "removed" or (state != "unchanged" and _matters(facts)),
        traces=tuple(touched)
        or (*_traces_of_package(name), *(f"*/bin/{word}" for word in facts["probe"].get("command", [])[:1])),
    )


def _links_lost(component: str, was: Mapping[str, Library], now: Mapping[str, Library]) -> list[str]:
    """Return names that programs are linked with, such as libmpi.so.40, and that no longer lead to the library."""
    return [
        str(PurePosixPath(path).with_name(name))
        for path, library in was.items()
        if library.component == component and path in now
        for name in sorted(set(library.names) - set(now[path].names))
    ]


def _matters(facts: Mapping[str, Any]) -> bool:
    """Return whether ranks use the component to compute or communicate; a child may change others, such as pip."""
    return bool(facts["at_start"] or facts["compiled"] or facts["libraries"])


def _mapped_elsewhere(name: str, parent: Look, child: Look) -> set[str]:
    """Return the NCCL files that a process of the child maps and no process of the parent does."""
    if name != "nccl":
        return set()
    before = {path for paths in parent.findings.mapped.values() for path in paths}
    return {path for paths in child.findings.mapped.values() for path in paths} - before


def _traces_of_package(name: str) -> tuple[str, ...]:
    folder = f"*/site-packages/{name.replace('-', '[-_.]')}"
    return (f"{folder}-*.dist-info*", f"{folder}", f"{folder}/*", f"/var/lib/dpkg/info/*{name}*.list")


def _python(declared: Mapping[str, Any], was: Mapping[str, str], now: Mapping[str, str]) -> Iterable[Row]:
    for name in sorted(was):
        if was[name] != now.get(name):
            yield Row(
                what=f"Python package {name}",
                state="changed" if name in now else "removed",
                was=was[name],
                now=now.get(name, ""),
                refused=name not in declared["may_move"],
                traces=_traces_of_package(name)[:3],
            )
    yield from _added("Python packages", was, now)


def _distribution(was: Mapping[str, str], now: Mapping[str, str]) -> Iterable[Row]:
    """Yield changed packages of the distribution, which are not refused.

    Because a package may get its security update, the libraries that ranks communicate with are judged by their files.
    """
    for name in sorted(was):
        if was[name] != now.get(name):
            state: State = "changed" if name in now else "removed"
            traces = (f"/var/lib/dpkg/info/{name}.list", f"/var/lib/dpkg/info/{name}:*.list")
            yield Row(what=f"package {name}", state=state, was=was[name], now=now.get(name, ""), traces=traces)
    yield from _added("packages of the distribution", was, now)


def _added(what: str, was: Mapping[str, str], now: Mapping[str, str]) -> Iterable[Row]:
    if more := sorted(now.keys() - was.keys()):
        yield Row(what=what, state="added", now=", ".join(f"{name} {now[name]}" for name in more))


def _own_files(was: OwnFiles, now: OwnFiles) -> Iterable[Row]:
    """Yield a refused row for each of trainwright's own files that the child changed or removed.

    Because the declaration, the constraints and the check before a job protect everything else, a child must keep them;
    it may only add constraints.
    """
    for path, digest in was.files.items():
        found = now.files.get(path, "")
        if found == digest or (path == CONSTRAINTS and set(was.constraints) <= set(now.constraints)):
            continue
        what = "declaration" if path == PLACE else "constraints" if path == CONSTRAINTS else "file of trainwright"
        state: State = "changed" if found else "removed"
        yield Row(what=what, state=state, was=digest[:12], now=found[:12], where=path, refused=True, traces=(path,))


def blame(rows: Iterable[Row], steps: list[tuple[str, list[str]]]) -> list[Row]:
    """Return the rows with the instruction whose layer changed them; `steps` are those above the parent, in order.

    A path of a layer starts with "/"; a path that the layer deletes has the deleted file's name. An instruction without
    a layer stands for itself.
    """
    return [row.model_copy(update={"by": _instruction(row.traces, steps)}) if differs(row) else row for row in rows]


def differs(row: Row) -> bool:
    return row.state not in ("unchanged", "added")


def _instruction(traces: tuple[str, ...], steps: list[tuple[str, list[str]]]) -> str:
    """Return the last matching instruction, because its result is what a job gets."""
    for text, paths in reversed(steps):
        if any(fnmatchcase(path, trace) for trace in traces for path in paths):
            return text
    return ""
