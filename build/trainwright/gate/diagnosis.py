"""Diagnose logs: by what their lines say, and logs of nccl-tests also by the judge's checks."""

import re
import shutil
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trainwright.core.errors import ConfigError, masked
from trainwright.diagnose.answer import Answer, answer, ends_in_failure
from trainwright.diagnose.causes import Cause, load_causes
from trainwright.diagnose.job import archives
from trainwright.diagnose.job import diagnosis as job_diagnosis
from trainwright.diagnose.job.collect import Left, left
from trainwright.diagnose.job.file_names import of_one_process
from trainwright.diagnose.job.said import load_settings
from trainwright.diagnose.job.streams import labelled
from trainwright.diagnose.log_lines import STANDARD_INPUT, opened
from trainwright.diagnose.reader import Reader
from trainwright.diagnose.reader import load_settings as load_reader_settings
from trainwright.diagnose.statements import STATED
from trainwright.diagnose.survival import said_to_fail
from trainwright.gate import judge
from trainwright.gate.case import Case, Declared, Log
from trainwright.gate.floors import Floors, load_floors

EXPLAINED = ("exit code", "errors", "completion", "footer", "signature")  # checks that name no cause of their own
WEAKER = {"none": 1, STATED: 2, "unknown": 3}  # answers that count less than any other one of the same process
JSON_KEYS = (b'"nccl_version"', b'"bus_bw"')  # in the output of nccl-tests -J


@dataclass
class Known:
    """What is read of this checkout for every log."""

    root: Path
    causes: list[Cause]
    reader: Reader  # compiled once: each log is read by a fresh one of it
    floors: Floors


def known_of(root: Path) -> Known:
    causes = load_causes(root)
    return Known(root, causes, Reader(causes, load_reader_settings(root)), load_floors(root))


def diagnosed(
    root: Path, paths: list[str], known: Known | None = None, names: dict[str, str] | None = None
) -> list[dict[str, Any]]:
    """Return the diagnosis of the job, if these are logs of its ranks; else of each log.

    `names` says what files are called in the answer. Raises ConfigError for a log that cannot be read.
    """
    known, names = known or known_of(root), dict(names or {})
    with tempfile.TemporaryDirectory() as folder:
        if STANDARD_INPUT in paths:  # it may be read twice
            copy = Path(folder) / "input"
            with copy.open("wb") as out:
                shutil.copyfileobj(sys.stdin.buffer, out)
            paths, names = (
                [str(copy) if path == STANDARD_INPUT else path for path in paths],
                {str(copy): STANDARD_INPUT},
            )
        paths, names = archives.unpacked(paths, Path(folder) / "archives", names)
        try:
            return _all(left(paths), known, names)
        except ConfigError as error:
            error.where = names.get(error.where, error.where)
            raise


def _all(found: Left, known: Known, names: dict[str, str]) -> list[dict[str, Any]]:
    if len(found.logs) == 1 and not (found.folder or found.dumps or found.ras):
        return [_of_one_log(found, known, names)]
    if job := _of_job(found, known, names):
        return [job]
    return [_of_process(logs, known, names) for logs in of_one_process(found.logs)]


def _of_one_log(found: Left, known: Known, names: dict[str, str]) -> dict[str, Any]:
    """Diagnose one log alone, and as the logs of several ranks or hosts where that may say more."""
    log, consequences = found.logs[0], load_settings(known.root).consequences
    labels = labelled(log)
    if labels == "hosts":
        job = _of_job(found, known, names)
        if job and job["cause"] not in {*consequences, "unknown"}:
            return job
        row = _row(log, known, names)
        if job and job["cause"] == "unknown":  # of a hang: who came less far
            return job if row["cause"] == "unknown" else row
        # What one writer noticed was over where another one said that all went well.
        return job if job and row["cause"] != "none" else row
    reader = _read(log, known)
    row = _row(log, known, names, reader)
    symptom = row["cause"] in consequences
    if labels and row["cause"] == "unknown":
        job = _of_job(found, known, names)
        return job if job and job["cause"] == "unknown" else row
    if row["cause"] in WEAKER or not (symptom or any(map(reader.conditions.at, reader.settings.reports))):
        return row
    job = _of_job(found, known, names)
    if not job or (symptom and labels):
        return job or row
    named = job["job"]["world"] > 1 and job["job"]["failed_first"]
    return job if named and (symptom or row["cause"] == job["cause"]) else row


def _of_job(found: Left, known: Known, names: dict[str, str]) -> dict[str, Any] | None:
    return job_diagnosis.of_job(found, known.root, known.causes, known.reader, names)


def _of_process(logs: list[str], known: Known, names: dict[str, str]) -> dict[str, Any]:
    """Return one diagnosis of the files that one process wrote: what it failed of may stand in either."""
    readers = [_read(log, known) for log in logs]
    rows = [_row(log, known, names, reader) for log, reader in zip(logs, readers, strict=True)]
    if any(row["cause"] == "none" for row in rows):  # then a cause counts only where it was the end of the other one
        rows = [row for row, reader in zip(rows, readers, strict=True) if row["cause"] in WEAKER or _failed(reader)]
    row = min(rows, key=lambda one: (WEAKER.get(one["cause"], 0), not one["evidence"]))
    shown = ", ".join(names.get(log, log) for log in logs)
    if len(logs) > 1:
        row["evidence"] = re.sub(r"(?m)^line (\d+):", lambda found: f"{row['log']}:{found[1]}:", row["evidence"])
    return {**row, "log": shown}


def _failed(reader: Reader) -> bool:
    """Return whether a log says that the job failed, or ends with an exception or with what is mostly the end."""
    return said_to_fail(reader) or ends_in_failure(reader)


def _row(log: str, known: Known, names: dict[str, str], reader: Reader | None = None) -> dict[str, Any]:
    return {"log": names.get(log, log), **_diagnosis(log, known, reader or _read(log, known))}


def _read(file: str, known: Known) -> Reader:
    reader = known.reader.fresh()
    with opened(file) as stream:
        reader.read(stream)
    return reader


def _diagnosis(file: str, known: Known, reader: Reader) -> dict[str, str]:
    if reader.tables or _of_json(file):
        return _of_tables(file, known, answer(reader))
    found = answer(reader)
    if found.state != "cause" and (judged := _transport(reader, known)):
        return judged
    said = {"cause": found.finding.cause.id if found.finding else found.state}
    return {**said, "what": found.what, "evidence": found.evidence, "then": ", ".join(found.then), "fix": found.fix}


def _transport(reader: Reader, known: Known) -> dict[str, str] | None:
    """Return what the judge says of the network of a job without tables, if it is wrong."""
    if any(name.startswith(tuple(reader.settings.fast_providers)) for name in reader.seen.providers):
        return None
    case = Case(Log([], None, reader.seen, [], reader.lines), Declared(), None, known.floors)
    verdict = judge.judge("", case, known.causes)
    failed = [check for check in verdict.checks if check.state == "fail" and check.name not in EXPLAINED]
    if not failed or not verdict.cause:
        return None
    evidence = masked("; ".join(check.evidence for check in failed))
    return {"cause": verdict.cause, "what": verdict.why, "evidence": evidence, "then": "", "fix": verdict.fix}


def _of_tables(file: str, known: Known, found: Answer) -> dict[str, str]:
    """Return the diagnosis of a log of nccl-tests, which the judge's checks explain better than its lines do."""
    from trainwright.gate import read  # here: what it imports takes longer than a short log

    (verdict,) = read.verdicts(known.root, [file], Declared())
    failed = masked("; ".join(check.evidence for check in verdict.checks if check.state == "fail"))
    said = {"cause": verdict.cause or "unknown", "what": verdict.why, "evidence": failed, "then": ""}
    if verdict.cause and verdict.cause != "exit-code":
        return {**said, "fix": verdict.fix}
    named = found.finding
    if named and named.cause.id == STATED and verdict.verdict == "pass":  # the table shows that it was survived
        named = None
    if found.state == "cause" and named:
        return {
            "cause": named.cause.id,
            "what": found.what,
            "evidence": found.evidence,
            "then": "",
            "fix": found.fix,
        }
    if verdict.cause:
        return {**said, "fix": verdict.fix}
    if verdict.verdict == "pass":
        return {**said, "cause": "none", "fix": ""}
    lacks = "; ".join(dict.fromkeys(check.evidence for check in verdict.checks if check.state == "not established"))
    what = f"no line proves a cause; {lacks}" if lacks else "no line proves a cause"
    fix = "run it again with NCCL_DEBUG=INFO and NCCL_DEBUG_SUBSYS=INIT,NET,ENV, and keep the output of every rank"
    return {**said, "what": what, "evidence": failed or found.evidence, "fix": fix}


def _of_json(file: str) -> bool:
    """Return whether a file is the output of nccl-tests -J, whole or cut."""
    with opened(file) as stream:
        head = stream.read(1 << 16).lstrip()
    return head.startswith(b"{") and any(key in head for key in JSON_KEYS)
