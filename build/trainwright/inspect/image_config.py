"""Compare a derived image's configuration with its parent's: environment, entrypoint and user. No layer shows them."""

from collections.abc import Iterable, Mapping
from typing import Any

from trainwright.inspect.child_check import Look, Row, State

# A child may append to these, because the first match is used.
PATHS = ("PATH", "LD_LIBRARY_PATH", "LIBRARY_PATH", "CPATH", "PYTHONPATH", "PKG_CONFIG_PATH", "MANPATH")
DEFAULT_SHELL = ["/bin/sh", "-c"]  # what Docker uses where an image names none
# Each makes the loader, pip or uv search elsewhere than the parent's files state; an empty value does so, too.
NOT_SET = {
    "LD_PRELOAD": "the loader loads it before every library of the parent",
    "LD_LIBRARY_PATH": "the loader searches it before the parent's libraries",
    "LD_AUDIT": "the loader calls it for every library",
    "PIP_CONFIG_FILE": "pip uses it instead of the parent's constraints",
    "PIP_CONSTRAINT": "pip uses it instead of the parent's constraints",
    "UV_CONSTRAINT": "uv uses it instead of the parent's constraints",
}


def compare(
    declared: Mapping[str, Any], look: Look, parent: Mapping[str, Any], child: Mapping[str, Any]
) -> Iterable[Row]:
    """Yield each setting that the child changed and must keep; nothing if it kept all.

    `declared` and `look` are the parent's; `parent` and `child` are image `Config`s.
    """
    was, now = environment(parent), environment(child)
    for name in sorted(was):
        if not _kept(name, was[name], now.get(name)):
            yield _variable(name, was[name], now.get(name), _how_to_keep(name))
    for name in sorted(now.keys() - was.keys()):
        if why := NOT_SET.get(name) or _loads_something_else(declared, look, name, now[name]):
            yield _variable(name, "", now[name], f"do not set {name} in the image: {why}")
    before, after = parent.get("Entrypoint") or [], child.get("Entrypoint") or []
    if after[: len(before)] != before:
        start = " ".join(before)
        yield Row(
            what="entrypoint",
            state="changed" if after else "removed",
            was=start,
            now=" ".join(after),
            fix=f"leave ENTRYPOINT out, or let it start with {start}",
            refused=True,
            traces=("ENTRYPOINT*",),
        )
    if user(parent) != user(child):
        yield Row(
            what="user",
            state="changed",
            was=user(parent),
            now=user(child),
            fix=f"end with USER {user(parent)}; `docker run --user` sets another user",
            refused=True,
            traces=("USER *",),
        )


def environment(config: Mapping[str, Any]) -> dict[str, str]:
    """Return each variable's value, as the engine passes it to every process of a container."""
    return {name: value for name, _, value in (line.partition("=") for line in config.get("Env") or [])}


def user(config: Mapping[str, Any]) -> str:
    """Return a container's default user; engines write the same root in several ways."""
    said = str(config.get("User") or "")
    return "root" if said in ("", "0", "root", "0:0", "root:root") else said


def _kept(name: str, was: str, now: str | None) -> bool:
    if now is None:
        return False
    return was == now or (name in PATHS and bool(was) and now.startswith(f"{was}:"))


def _how_to_keep(name: str) -> str:
    if name in PATHS:
        return f"append to the parent's value: ENV {name}=${name}:..."
    return f"remove {name} from its ENV: the parent sets it"


def _loads_something_else(declared: Mapping[str, Any], look: Look, name: str, value: str) -> str:
    """Return why a value makes a component load another library than its own, or "" if it does not."""
    for component, facts in sorted(declared["components"].items()):
        if name in facts["variables"]:
            own = {path: library for path, library in look.libraries.items() if library.component == component}
            names = {word for path, library in own.items() for word in (path, path.rpartition("/")[2], *library.names)}
            if not names & {pattern.format(value=value) for pattern in facts["variables"][name]}:
                return f"{component} would load another library"
    return ""


def _variable(name: str, was: str, now: str | None, fix: str) -> Row:
    state: State = "changed" if now is not None else "removed"
    return Row(
        what=f"variable {name}",
        state=state,
        was=was,
        now=now or "",
        fix=fix,
        refused=True,
        traces=(f"ENV {name}=*", f"ENV * {name}=*"),
    )
