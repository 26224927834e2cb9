"""Score trainwright's answers for the jobs of this folder: the cause, and the rank that failed first.

Usage: python benchmarks/diagnosis/score.py JOBS [--without-dumps] [--answers FILE]
JOBS is jobs.tar.gz, jobs-nccl.tar.gz or a folder of jobs.
--answers scores another tool's: {"job": {"cause": "...", "ranks": [3]}}.
"""

import argparse
import json
import shutil
import sys
import tarfile
import tempfile
import tomllib
from collections import Counter
from functools import cache
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parents[1] / "build"))
FAULTS = tomllib.loads((HERE / "cases.toml").read_text())["faults"]


@cache
def _known() -> Any:
    from trainwright.gate.diagnosis import known_of

    return known_of(HERE.parents[1])


def ours(folder: Path, dumps: bool) -> dict[str, Any]:
    """Return our answer for a job's folder, without its label."""
    from trainwright.gate.diagnosis import diagnosed

    with tempfile.TemporaryDirectory() as copy:
        kept = shutil.ignore_patterns("label.json", *([] if dumps else ["fr_trace_*", "nccl_trace_*"]))
        shutil.copytree(folder, copy, ignore=kept, dirs_exist_ok=True)
        row: dict[str, Any] = diagnosed(HERE.parents[1], [copy], _known())[0]
    return {"cause": row["cause"], "ranks": row.get("job", {}).get("failed_first", []), "what": row["what"]}


def right(label: dict[str, Any], answer: dict[str, Any]) -> tuple[bool, bool]:
    """Return whether the cause and the ranks are right. All ranks of a lost host, or some of them, name the host."""
    culprits, ranks = set(label["culprits"]), set(answer["ranks"])
    fault = FAULTS[label["fault"]]
    causes = fault["causes"] + (fault.get("over_nccl", []) if label["name"].startswith("nccl-") else [])
    host = label["fault"] in ("killed-host", "cut-network")
    ok = bool(ranks) and ranks <= culprits if host else ranks == culprits
    return answer["cause"] in causes, ok


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("jobs", type=Path)
    parser.add_argument("--without-dumps", action="store_true")
    parser.add_argument("--answers", type=Path)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    from trainwright.core.files import unpack

    with tempfile.TemporaryDirectory() as unpacked:
        jobs = given.jobs
        if jobs.is_file():
            with tarfile.open(jobs) as archive:
                unpack(archive, Path(unpacked))
            jobs = Path(unpacked)
        answers = json.loads(given.answers.read_text()) if given.answers else {}
        rows = list[tuple[dict[str, Any], dict[str, Any]]]()
        for path in sorted(jobs.rglob("label.json")):
            label = json.loads(path.read_text())
            answer = (
                answers.get(label["name"], {"cause": "", "ranks": []})
                if answers
                else ours(path.parent, not given.without_dumps)
            )
            rows.append((label, answer))
    report(rows)
    if given.json:
        given.json.write_text(json.dumps({label["name"]: answer for label, answer in rows}, indent=1) + "\n")


def report(rows: list[tuple[dict[str, Any], dict[str, Any]]]) -> None:
    """Print the misses, then a row for each fault: jobs, right causes, right ranks, and what was answered."""
    totals = Counter[str]()
    for label, answer in rows:
        cause, rank = right(label, answer)
        if not (cause and rank):
            truth = f"{label['layout']}, {label['hosts']}x{label['each']}, rank {label['culprits']} {label['variant']}"
            print(f"miss {label['name']} ({truth}): {answer['cause']} {answer['ranks']} {answer.get('what', '')[:110]}")
    print("\n| fault | jobs | cause | rank | answers |\n|---|---|---|---|---|")
    for fault in FAULTS:
        mine = [(label, answer) for label, answer in rows if label["fault"] == fault]
        if not mine:
            continue
        scored = [right(label, answer) for label, answer in mine]
        causes, ranks = sum(one for one, _ in scored), sum(one for _, one in scored)
        totals.update(jobs=len(mine), causes=causes, ranks=ranks)
        said = Counter(answer["cause"] for _, answer in mine).most_common()
        print(
            f"| {fault} | {len(mine)} | {causes} | {ranks} | {', '.join(f'{name} {number}' for name, number in said)} |"
        )
    print(f"| all | {totals['jobs']} | {totals['causes']} | {totals['ranks']} | |")


if __name__ == "__main__":
    main()
