"""The command `trainwright diagnose`."""

from typing import TYPE_CHECKING

import typer

from trainwright.commands.options import Json, Logs, app, find_root
from trainwright.core.errors import printable

if TYPE_CHECKING:
    from trainwright.gate.case import Case
    from trainwright.gate.judge import Verdict


@app.command()
def diagnose(logs: Logs, as_json: Json = False) -> None:
    """Find out why a job over NCCL failed. Shows cause, the line that proves it, and the fix; or "unknown"."""
    from trainwright.core import console
    from trainwright.gate import read
    from trainwright.gate.case import Declared

    rows = [_diagnosis(verdict, case) for verdict, case in read.examined(find_root(), logs, Declared())]
    if as_json:
        console.data(rows)
        return
    for row in rows:  # sentences do not fit in a table
        typer.echo(f"{printable(row['log'])}: {row['cause']}")
        for name in ("what", "evidence", "fix"):
            if row[name]:
                typer.echo(f"  {name + ':':<10}{printable(row[name])}")


def _diagnosis(verdict: "Verdict", case: "Case") -> dict[str, str]:
    """Return the diagnosis of one log; if nothing proves a cause, return the next step instead."""
    evidence = "; ".join(check.evidence for check in verdict.checks if check.state == "fail")
    said = {"log": verdict.file, "cause": verdict.cause or "unknown", "what": verdict.why, "evidence": evidence}
    if verdict.cause:
        return {**said, "fix": verdict.fix}
    if verdict.verdict == "pass":
        return {**said, "cause": "none", "fix": ""}
    if case.log.silent:
        what = "it has no line from NCCL or nccl-tests"
        return {**said, "what": what, "fix": "pass a log of the job's ranks; with NCCL_DEBUG=INFO they log more"}
    lacks = "; ".join(dict.fromkeys(check.evidence for check in verdict.checks if check.state == "not established"))
    what = f"no line proves a cause; {lacks}" if lacks else "no line proves a cause"
    fix = "run it again with NCCL_DEBUG=INFO and NCCL_DEBUG_SUBSYS=INIT,NET,ENV, and keep the output of every rank"
    return {**said, "what": what, "fix": fix}
