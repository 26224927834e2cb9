"""cases.toml, and the table that a run of it gives. Pure, apart from reading that file."""

import tomllib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from trainwright.core.toml import Model

HERE = Path(__file__).parent
COLUMNS = ("path", "distribution", "what", "hosts", "processes", "seconds", "result")


class Case(Model):
    """One job. `needs` are the components without which an image cannot run it."""

    script: str
    path: str
    distribution: str
    hosts: int
    needs: tuple[str, ...]
    processes: int = 1

    @property
    def id(self) -> str:
        ranks = f"x{self.processes}" if self.processes > 1 else ""
        return f"{self.path}-{self.distribution}-{self.script}-{self.hosts}{ranks}"


class Paths(Model):
    platforms: tuple[str, ...]
    distribution: str
    script: str
    needs: tuple[str, ...]


class Values(Model):
    script: str
    distribution: str
    hosts: tuple[int, ...]
    needs: tuple[str, ...]
    path: str = "flags"
    processes: int = 1


class Settings(Model):
    limit_seconds: int
    compared: tuple[str, ...]
    paths: tuple[Paths, ...]
    values: tuple[Values, ...]


def settings() -> Settings:
    return Settings.model_validate(tomllib.loads((HERE / "cases.toml").read_text()))


def cases(found: Settings) -> list[Case]:
    made = [
        Case(script=row.script, path=path, distribution=row.distribution, hosts=2, needs=_needs(path, row.needs))
        for row in found.paths
        for path in row.platforms
    ]
    for row in found.values:
        given = row.model_dump(exclude={"hosts", "needs"})
        made += [Case(**given, hosts=hosts, needs=_needs(row.path, row.needs)) for hosts in row.hosts]
    return made


def _needs(path: str, needs: Sequence[str]) -> tuple[str, ...]:
    return ("sagemaker-training", *needs) if path.startswith("sagemaker") else tuple(needs)


def rows(reports: Iterable[tuple[str, Mapping[str, Any]]], pins: Iterable[str] | None) -> list[dict[str, Any]]:
    """Of each case and each further test: result and measurements. A case that no report names is "not run", and why.

    `reports` are outcome and properties of each test (of the same names as COLUMNS), `pins` the image's components;
    None where no case was asked for.
    """
    held, further, done = set(pins or ()), list[dict[str, Any]](), dict[str, dict[str, Any]]()
    for outcome, properties in reports:
        row = {name: properties.get(name, "") for name in COLUMNS} | {"result": outcome}
        if case_id := properties.get("case"):
            done[case_id] = row
        else:
            further.append(row)
    found = list[dict[str, Any]]()
    for case in cases(settings()):
        if case.id in done:
            found.append(done[case.id])
        elif pins is not None:
            missing = [name for name in case.needs if name not in held]
            why = f"not run: the image has no {', '.join(missing)}" if missing else "not run"
            found.append(
                {**case.model_dump(exclude={"script", "needs"}), "what": case.script, "seconds": "", "result": why}
            )
    return found + sorted(further, key=lambda row: str(row["what"]))


def markdown(title: str, found: Sequence[Mapping[str, Any]]) -> str:
    lines = [f"| {' | '.join(COLUMNS)} |", f"|{'---|' * len(COLUMNS)}"]
    lines += [f"| {' | '.join(str(row[name]) for name in COLUMNS)} |" for row in found]
    return "\n".join([title, "", *lines, ""])
