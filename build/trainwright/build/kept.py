"""Keep the outcomes of checks in the store, by the digest of everything that they depend on.

The caller names what a check depends on: what it reads (one layer by its diff_id, the whole file system by all layers),
its code, its data and its tool. Because a check that raises has no outcome, a failure is never kept.
"""

import json
import os
import platform
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from filelock import FileLock

from trainwright.core import store
from trainwright.core.files import write
from trainwright.lock.lockfile import digest


class Kept(NamedTuple):
    outcome: Any  # a JSON value
    when: str  # UTC, to the second; "" for an outcome made just now


def code(*paths: Path) -> str:
    """Return the digest of files, and of all files below folders: names and contents."""
    files = {
        str(file.relative_to(path.parent)): store.sha256_of(file)
        for path in paths
        for file in (path.rglob("*") if path.is_dir() else [path])
        if file.is_file() and "__pycache__" not in file.parts
    }
    return digest(files)


def host() -> dict[str, Any]:
    """Return what a check that runs programs depends on besides the image: this host's kernel and processors."""
    return {"kernel": platform.release(), "architecture": platform.machine(), "cpus": os.cpu_count()}


def find(check: str, on: Mapping[str, Any]) -> Kept | None:
    """Return the kept outcome, or None if there is none or its file is damaged."""
    try:
        said = json.loads(_place(check, on).read_bytes())
        sound = digest(said["on"]) == digest(on) and said["digest"] == digest([said["when"], said["outcome"]])
        return Kept(said["outcome"], str(said["when"])) if sound else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def keep(check: str, on: Mapping[str, Any], outcome: Any) -> None:
    """Keep an outcome that was reached just now."""
    when = datetime.now(UTC).isoformat(timespec="seconds")
    said = {"check": check, "on": on, "when": when, "digest": digest([when, outcome]), "outcome": outcome}
    with store.told():
        write(_place(check, on), json.dumps(said))


def outcome(check: str, on: Mapping[str, Any], make: Callable[[], Any]) -> Kept:
    """Return the kept outcome, else keep what `make` returns; of several processes one makes it, the others wait."""
    if found := find(check, on):
        return found
    place = _place(check, on)
    with store.told():
        place.parent.mkdir(parents=True, exist_ok=True)
        lock = FileLock(place.with_suffix(".lock"))
        lock.acquire()
    try:
        if found := find(check, on):
            return found
        made = make()
        keep(check, on, made)
    finally:
        lock.release()
    return Kept(made, "")


def _place(check: str, on: Mapping[str, Any]) -> Path:
    return store.root() / "kept" / check / f"{digest(on)}.json"
