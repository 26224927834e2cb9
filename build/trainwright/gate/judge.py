"""Judge the logs of nccl-tests: run independent checks, each of which can fail alone, and give one verdict.

The verdict is `pass` only if nothing is wrong and nothing is missing that the log or its user promised. The printed
average is never used as a measure of speed, because small messages weigh in it as large ones do.
"""

import re
from collections.abc import Callable, Iterable, Iterator
from typing import Literal

from pydantic import Field

from trainwright.core.toml import Model
from trainwright.diagnose.causes import Cause, Signatures
from trainwright.diagnose.log_lines import like, unprefixed
from trainwright.diagnose.nccl_debug import SOCKETS, Seen
from trainwright.gate import checks
from trainwright.gate.case import Case, Log, Result, State, header_ranks, solve
from trainwright.gate.nccl_tests import Reader

BEGINS = re.compile(r"#\s+(?:nccl-tests version \S|nThread \d|size\s+count\s+type)")  # the first lines of nccl-tests
STARTED = re.compile(r"gate: started at (\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?Z)$")


class Check(Model):
    name: str
    state: State
    evidence: str = ""


class Verdict(Model):
    """The verdict on one log."""

    file: str
    verdict: Literal["pass", "fail", "incomplete", "ungraded"]
    ranks: list[tuple[int | None, int | None]]  # one [low, high] per table; null: no bound, or not applicable
    declared_ranks: int | None
    collectives: list[str] = Field(default=[])
    image: str = ""  # the digest under test, if trainwright's runner wrote it into the log
    peak_busbw: float | None  # GB/s, of both columns of all tables
    cause: str | None
    why: str = ""  # what the cause means
    fix: str = ""
    checks: list[Check]


def read(lines: Iterable[str], causes: list[Cause]) -> Log:
    """Read a log of any length; memory grows only with its tables and its processes."""
    reader, seen, signatures, number, line, started = Reader(), Seen(), Signatures(causes), 0, "\n", ""
    prefix: re.Pattern[str] | None = None
    for number, line in enumerate(lines, 1):
        text, rank = unprefixed(line)
        if prefix and (before := prefix.match(text)):
            text = text[before.end() :]
        elif (begins := BEGINS.search(text)) and (prefix := like(text[: begins.start()])):
            text = text[begins.start() :]
        if text.startswith("##"):  # a heading that was added to the log
            continue
        if text.startswith("gate: started") and (found := STARTED.match(text)):
            started = started or found[1]
        reader.feed(text, rank, number)
        seen.test = reader.over
        if not text[:1].isspace() and (not text.startswith("#") or "NCCL" in text):
            seen.feed(text, rank, number)
            signatures.feed(text, number)
        elif not text.lstrip()[:1].isdigit():
            seen.feed(text.strip(), rank, number)
            signatures.feed(text, number)
    cut = not line.endswith("\n") and "Avg bus bandwidth" in line  # the number may have lost digits
    return Log(reader.tables, reader.header, seen, signatures.found, number, cut, started)


CHECKS: dict[str, Callable[[Case], Result]] = {
    "exit code": checks.exit_code,
    "errors": checks.errors,
    "completion": checks.completion,
    "footer": checks.footer,
    "average": checks.average,
    "wrong values": checks.wrong_values,
    "sizes": checks.sizes,
    "rank count": checks.rank_count,
    "algbw": checks.algbw,
    "transport": checks.transport,
    "nics": checks.nics,
    "gpudirect": checks.gpudirect,
    "nccl version": checks.nccl_version,
    "pins": checks.pins,
    "efa counters": checks.efa_counters,
    "ceiling": checks.ceiling,
    "floor": checks.floor,
}
# The cause behind each failed check, most severe first; signatures of dockerfiles/causes rank between FIRST and LAST.
FIRST = {"wrong values": "wrong-values"}
LAST = {
    "nccl version": "two-nccl",
    "pins": "other-version",
    "rank count": "rank-count",
    "transport": "socket-fallback",
    "nics": "too-few-nics",
    "gpudirect": "no-gpudirect",
    "efa counters": "socket-fallback",
    "algbw": "inconsistent",
    "sizes": "inconsistent",
    "average": "inconsistent",
    "ceiling": "inconsistent",
    "floor": "low-bandwidth",
    "baseline": "low-bandwidth",
    "footer": "low-bandwidth",
    "exit code": "exit-code",
}


def judge(file: str, case: Case, causes: list[Cause]) -> Verdict:
    """Judge one log from its case: the log, what was declared of it, and the references to compare it with."""
    log = case.log
    case.ranks = [solve(table, case.collective(table)) for table in log.tables]
    checks = [Check(name=name, state=state, evidence=text) for name, (state, text) in _results(case)]
    failed = [check.name for check in checks if check.state == "fail"]
    missing = [check for check in checks if check.state == "not established"]
    fatal = next((pair for pair in log.causes if pair[0].fatal), None)
    complete = not any(check.name in ("completion", "footer") for check in missing)
    fell_back = case.several is not False and bool(log.seen.networks & set(SOCKETS))
    if fatal and (fell_back or not complete):
        checks.append(Check(name="signature", state="fail", evidence=fatal[1]))
        failed.append("signature")
    ungraded = [check for check in missing if check.evidence.startswith("ungraded")]
    verdict: Literal["pass", "fail", "incomplete", "ungraded"] = "pass"
    if failed:
        verdict = "fail"
    elif missing:
        verdict = "ungraded" if missing == ungraded else "incomplete"
    cause = _cause(failed, fatal, log) if failed else ""
    known = fatal[0] if fatal and fatal[0].id == cause else _described(cause, causes)
    peaks = [side.busbw.value for table in log.tables for row in table.rows for side in row.sides]
    return Verdict(
        file=file,
        verdict=verdict,
        ranks=[(None, None) if ranks.contradiction else (ranks.low, ranks.high) for ranks in case.ranks],
        declared_ranks=_declared(case),
        collectives=[name for table in log.tables if (name := case.collective(table))],
        image=next(iter(log.seen.images)) if len(log.seen.images) == 1 else "",
        peak_busbw=max(peaks, default=None),
        cause=cause or None,
        why=known.what if known else "",
        fix=known.fix if known else "",
        checks=checks,
    )


def _results(case: Case) -> Iterator[tuple[str, Result]]:
    for name, check in CHECKS.items():
        yield name, check(case)
    if case.baseline:
        yield "baseline", checks.baseline(case)


def _declared(case: Case) -> int | None:
    """Return the declared number of ranks: from the user, NCCL or a header; None if there is none."""
    said = [*case.world.values(), *(header_ranks(t.header) for t in case.log.tables if t.header.ranks)]
    return next((count for count in said if count), None)


def _described(cause: str, causes: list[Cause]) -> Cause | None:
    """Return the cause's row; a general row, without `lines`, comes before one for certain lines."""
    rows = [one for one in causes if one.id == cause]
    return next((one for one in rows if not one.lines), rows[0] if rows else None)


def _cause(failed: list[str], fatal: tuple[Cause, str] | None, log: Log) -> str:
    for check, cause in FIRST.items():
        if check in failed:
            return cause
    if fatal:
        return fatal[0].id
    for check, cause in LAST.items():
        if check in failed:
            if check == "transport" and any(not name.startswith("efa") for name in log.seen.providers):
                return "tcp-provider"
            return cause
    return ""
