"""Keep the runs of a search in a folder, each as soon as it ends: a search that was interrupted goes on from there."""

import json
import os
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import Field, ValidationError

from trainwright.core.errors import ConfigError
from trainwright.core.files import write
from trainwright.core.toml import Model
from trainwright.gate.find.model import Cluster, Kind, Result, Sign, Test

SEARCH, RUNS = "search.json", "runs.jsonl"


class Head(Model):
    """What all runs of a folder have in common."""

    hosts: list[str]
    on: str
    image: str
    instance: str
    gpus: int


class Run(Model):
    """One line of runs.jsonl."""

    round: int
    hosts: list[str]
    kind: Kind
    speed: float | None = None  # logarithm of busbw
    rails: list[float | None] = Field(default=[])
    why: str = ""
    log: str = ""
    signs: list[Sign] = Field(default=[])


def open_folder(folder: Path, head: Head) -> list[Run]:
    """Return the runs that are recorded in a folder; a new folder has none. Raises ConfigError for another search."""
    path = folder / SEARCH
    if not path.exists():
        write(path, json.dumps(head.model_dump(), indent=1) + "\n")
        return []
    try:
        found = Head.model_validate_json(path.read_bytes())
    except (ValidationError, ValueError) as error:
        raise ConfigError("the record of the search cannot be read", where=str(path), why=str(error)) from None
    for name, recorded in found.model_dump().items():
        if recorded != (asked := getattr(head, name)):
            raise ConfigError(
                "the recorded runs are those of another search",
                where=str(path),
                why=f"{name}: {_short(recorded)} there, {_short(asked)} here",
                fix="--folder with another name starts a new search",
            )
    return read(folder)


def _short(value: Any) -> str:
    text = ", ".join(map(str, value)) if isinstance(value, list) else str(value) or "nothing"
    return text if len(text) <= 80 else f"{text[:77]}..."


def read(folder: Path) -> list[Run]:
    """Return the recorded runs. The last line may be cut by what ended the search. Raises ConfigError."""
    path, found = folder / RUNS, list[Run]()
    lines = path.read_bytes().splitlines(keepends=True) if path.exists() else []
    for number, line in enumerate(lines, 1):
        try:
            found.append(Run.model_validate_json(line))
        except (ValidationError, ValueError) as error:
            if number == len(lines) and not line.endswith(b"\n"):
                path.write_bytes(b"".join(lines[:-1]))
                break
            fix = f"remove the line, or --folder with another name: {folder} has only whole lines of a search"
            raise ConfigError(
                "a recorded run cannot be read", where=f"{path}:{number}", why=str(error), fix=fix
            ) from None
    return found


def add(folder: Path, run: Run) -> None:
    with (folder / RUNS).open("a") as file:
        file.write(run.model_dump_json() + "\n")
        file.flush()
        os.fsync(file.fileno())


def results(runs: Sequence[Run], names: Sequence[str]) -> list[Result]:
    """Return the runs whose hosts are all there, by the places of the hosts."""
    place = {name: number for number, name in enumerate(names)}
    return [
        Result(
            Test(tuple(place[host] for host in run.hosts), rails=bool(run.rails)),
            run.round,
            run.speed,
            tuple(run.rails),
            run.kind,
            run.why,
            run.log,
            tuple(run.signs),
        )
        for run in runs
        if all(host in place for host in run.hosts)
    ]


def without(cluster: Cluster, gone: Collection[str] | Mapping[str, str]) -> Cluster:
    """Return the cluster without some hosts."""
    kept = [number for number, name in enumerate(cluster.names) if name not in gone]
    return Cluster(
        tuple(cluster.names[number] for number in kept),
        tuple(cluster.racks[number] for number in kept) if cluster.racks else (),
        cluster.rails,
        cluster.alone,
    )
