"""Measure busbw from logs: record a baseline, or compare two images. Only logs that pass the needed checks count."""

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from glob import has_magic
from hashlib import sha256
from pathlib import Path
from statistics import median
from typing import Literal

import tomlkit

from trainwright.core import files, project
from trainwright.core.errors import ConfigError, NotRunError, TestError
from trainwright.diagnose import log_lines
from trainwright.gate import baseline, read, regression
from trainwright.gate.baseline import FOLDER, NAME, Baseline, Point
from trainwright.gate.case import Case, Declared, header_ranks
from trainwright.gate.floors import load_floors
from trainwright.gate.judge import Verdict
from trainwright.gate.regression import Compared, Run
from trainwright.gate.reports import charts

SPEED = ("floor", "baseline")  # checks that a slow run fails: speed is what a comparison measures
NEEDED = ("completion", "footer", "wrong values", "algbw")  # without these checks a log has no valid number


def record(
    root: Path, name: str, logs: list[str], declared: Declared, unproved: bool, replace: bool = False
) -> Baseline:
    """Write baselines/<name>.toml. Raises ConfigError, also for a taken name; NotRunError for logs that do not pass."""
    if not NAME.fullmatch(name):
        raise ConfigError(f"{name!r} is not a baseline name", why="only letters, digits, dots and dashes are allowed")
    if name in baseline.names(root) and not replace:
        why = "later runs would be compared with other values"
        raise ConfigError(f"baseline {name!r} exists already", where=f"{FOLDER}/{name}.toml", why=why, fix="--replace")
    if not (declared.instance and declared.nodes):
        raise ConfigError("a baseline requires an instance type and a number of nodes", fix="--instance, --nodes")
    examined = read.examined(root, logs, declared)
    bad = [verdict for verdict, _ in examined if verdict.verdict != "pass"]
    if bad and not unproved:
        fix = f"trainwright judge {bad[0].file}; --unproved records it anyway, and notes that in the file"
        raise NotRunError("nothing was recorded", where=bad[0].file, why=f"verdict {bad[0].verdict}", fix=fix)
    digests = {verdict.image for verdict, _ in examined}
    if len(digests) > 1:
        raise ConfigError(
            "the logs come from several images", why=", ".join(sorted(one or "not named" for one in digests))
        )
    points = _points([case for _, case in examined])
    if not points:
        raise NotRunError(
            "nothing was recorded", where=logs[0], why="the log has no table with rows of a known collective"
        )
    found = Baseline(
        name=name,
        instance=declared.instance,
        nodes=declared.nodes,
        digest=digests.pop(),
        day=datetime.now(UTC).date(),
        proved=not bad,
        logs={Path(file).name: _sha256(file) for file in logs},
        points=points,
    )
    document = tomlkit.document()
    document.add(tomlkit.comment("Written by `trainwright baseline record`; busbw in GB/s, sizes in bytes."))
    document.update(found.model_dump(exclude_none=True))
    files.write(project.place(root / FOLDER / f"{name}.toml"), tomlkit.dumps(document))
    return found


def _sha256(file: str) -> str:
    return sha256(Path(file).read_bytes()).hexdigest()


def _points(cases: Sequence[Case]) -> list[Point]:
    """Return the median of every point over all logs."""
    held: dict[tuple[str, str, int], tuple[list[float], list[float]]] = {}
    for case in cases:
        for table in case.log.tables:
            if collective := case.collective(table):
                for row in table.rows:
                    sides = held.setdefault((collective, case.algorithm, row.size), ([], []))
                    for values, side in zip(sides, row.sides, strict=True):
                        values.append(side.busbw.value)
    return [
        Point(collective=key[0], algorithm=key[1], size=key[2], out_of_place=median(out), in_place=median(within))
        for key, (out, within) in sorted(held.items())
        if key[2] and median(out) > 0 and median(within) > 0
    ]


# --- two images ------------------------------------------------------------------------------------------------------


def compare(root: Path, a: list[str], b: list[str], declared: Declared, same_hosts: bool = False) -> Compared:
    """Compare the logs of images A and B. `same_hosts`: treat the hosts as the same, whatever names the logs have.

    Raises ConfigError; NotRunError for unusable logs, or logs that are not from one allocation.
    """
    a, b = _files(a, "--a"), _files(b, "--b")
    if twice := sorted(file for file in {*a, *b} if [*a, *b].count(file) > 1):
        raise ConfigError("the same log was given twice", where=twice[0], fix="trainwright compare --help")
    _refuse_copies([*a, *b])
    examined = read.examined(root, [*a, *b], declared)
    for verdict, _ in examined:
        _refuse_unusable(verdict)
    _refuse_apart(examined, same_hosts)
    images: list[Literal["A", "B"]] = ["A" if number < len(a) else "B" for number in range(len(examined))]
    for image in "AB":
        digests = {v.image for (v, _), its in zip(examined, images, strict=True) if its == image} - {""}
        if len(digests) > 1:
            raise ConfigError(f"the logs of {image} come from several images", why=", ".join(sorted(digests)))
    runs = [
        Run(file=verdict.file, image=image, started=case.log.started, busbw=dict(_speeds(case)))
        for (verdict, case), image in zip(examined, images, strict=True)
    ]
    large: dict[str, int] = {}
    for _, case in examined:
        for table in case.log.tables:
            large[case.collective(table)] = case.large(table)
    return regression.compare(runs, large, load_floors(root).comparison)


def _files(said: list[str], option: str) -> list[str]:
    """Return named files, a folder's *.log files, and a pattern's matches. Raises ConfigError if there are none."""
    found: list[str] = []
    for text in said:
        path = Path(text)
        if path.is_dir():
            some = [str(log) for log in sorted(path.glob("*.log"))]
        else:
            some = [text] if path.exists() or not has_magic(text) else _matched(path)
        if not some:
            raise ConfigError("no log was found", where=f"{option} {text}", fix="trainwright compare --help")
        found += some
    return found


def _matched(pattern: Path) -> list[str]:
    start = Path(pattern.anchor)
    return [str(path) for path in sorted(start.glob(str(pattern.relative_to(pattern.anchor))))]


def _refuse_copies(logs: list[str]) -> None:
    """Check that no two logs are identical, because two runs never print the same times. Raises NotRunError."""
    held: dict[str, str] = {}
    for file in logs:
        digest = log_lines.digest(file)
        if digest in held:
            why = f"{file} is a copy of {held[digest]}: two runs never print the same times"
            raise NotRunError("not established: two logs are identical", where=file, why=why, fix="name each run once")
        held[digest] = file


def _refuse_unusable(verdict: Verdict) -> None:
    for check in verdict.checks:
        failed = check.state == "fail" and check.name not in SPEED
        if failed or (check.name in NEEDED and check.state != "pass"):
            why = f"{check.name}: {check.evidence}"
            fix = f"trainwright judge {verdict.file}"
            raise NotRunError("not established: a log has no valid speed", where=verdict.file, why=why, fix=fix)


def _refuse_apart(examined: list[tuple[Verdict, Case]], same_hosts: bool) -> None:
    """Check that all logs that name their hosts and ranks name the same ones. Raises NotRunError."""
    for what, say in (("hosts", _hosts), ("ranks", _ranks)):
        said = {words: verdict.file for verdict, case in examined if (words := say(case))}
        if len(said) > 1 and not (same_hosts and say is _hosts):
            why = "; ".join(f"{file}: {words}" for words, file in sorted(said.items()))
            fix = "--same-hosts, if only the names of pods or containers differ" if say is _hosts else ""
            raise NotRunError(
                f"not established: the logs have different {what}, so they are not from one allocation",
                why=why,
                fix=fix,
            )


def _hosts(case: Case) -> str:
    return ", ".join(
        sorted(set[str]().union(*(table.header.hosts for table in case.log.tables)) or case.log.seen.hosts)
    )


def _ranks(case: Case) -> str:
    counts = {header_ranks(table.header) for table in case.log.tables if table.header.ranks} | case.log.seen.ranks
    return ", ".join(map(str, sorted(count for count in counts if count)))


def _speeds(case: Case) -> Iterator[tuple[tuple[str, int, str], float]]:
    """Yield the median over a log's own repetitions."""
    held: dict[tuple[str, int, str], list[float]] = {}
    for table in case.log.tables:
        for row in table.rows:
            for side, name in zip(row.sides, charts.SIDES, strict=True):
                if side.busbw.value > 0 and row.size:
                    held.setdefault((case.collective(table), row.size, name), []).append(side.busbw.value)
    for key, values in held.items():
        yield key, median(values)


def refuse(found: Compared) -> None:
    """Raise TestError for a regression, NotRunError for a result that is not established."""
    if found.verdict == "regression":
        raise TestError("regression", why=found.why, fix="run both again, interleaved; then look at what changed")
    if found.verdict == "not established":
        raise NotRunError("not established whether B is slower", why=found.why, fix="make more runs, in the order ABBA")
