"""Read the output of NCCL's RAS (`ncclras`): processes that are gone, ranks that called fewer operations than others.

Sources: NVIDIA/nccl src/ras/client_support.cc of 2.24 to 2.31 (text; JSON from 2.28.7 on), and its user guide, "RAS".
"""

import json
import re
from dataclasses import dataclass, field
from typing import Any

from trainwright.diagnose.job.unpickle import Refused

HEAD = re.compile(rb"^Job summary\s*\n=|^Communicators\.\.\. \(", re.MULTILINE)
TOTAL = re.compile(r"^\s+(\d{1,6})(?:\s+\d[\d-]{0,12}){2}\s+(\d{1,7})\s+(\d{1,7})\s*$")
PROCESS = re.compile(r"^\s+Process (\d{1,10}) on node ([\w.:%-]{1,200}) managing GPUs? ([\d, -]{1,200})")
RANK = re.compile(r"^\s+Rank (\d{1,7})(?: has launched up to operation (\d{1,18})| has not launched any operations)?"
                  r" -- GPU (\S{1,40}) managed by process (\d{1,10}) on node ([\w.:%-]{1,200})")  # fmt: skip
COUNT = re.compile(r"^\s+(\d{1,7}) ranks have (?:launched up to operation (\d{1,18})|not launched any operations)")
GONE = ("INCOMPLETE", "DEAD")
JSON_HEAD = (b'"nccl_version"', b'"communicators_count"')  # of `ncclras -f json`
HEAD_BYTES = 1 << 16
NOWHERE = "unknown"  # the host of a process that RAS cannot place


@dataclass(frozen=True)
class Named:
    """A process or rank that RAS names."""

    host: str
    text: str
    rank: int | None = None  # of the communicator
    count: int = 0  # operations that it launched


@dataclass
class Ras:
    """One answer of RAS."""

    file: str
    ranks: int = 0
    hosts: int = 0
    gone: list[Named] = field(default_factory=list)
    behind: list[Named] = field(default_factory=list)  # ranks that launched fewer operations than most
    numbered: bool = False  # ranks are those of a communicator as large as the job


def is_ras(head: bytes) -> bool:
    return bool(HEAD.search(head)) or _is_json(head)


def _is_json(head: bytes) -> bool:
    return head.lstrip().startswith(b"{") and all(word in head for word in JSON_HEAD)


def answered(data: bytes, file: str) -> Ras:
    """Return what RAS says. Raises Refused for JSON that is damaged or of another form."""
    if not _is_json(data[:HEAD_BYTES]):
        return _of_text(data.decode(errors="replace"), file)
    try:
        value = json.loads(data)
    except (ValueError, RecursionError):
        raise Refused("it is cut or damaged: not valid JSON") from None
    try:
        return _of_json(value, file)
    except (KeyError, TypeError, ValueError, AttributeError):
        raise Refused("it is not in the form in which ncclras of NCCL 2.28 to 2.31 writes JSON") from None


def _of_json(value: dict[str, Any], file: str) -> Ras:
    found, groups = Ras(file, numbered=True), list[dict[str, Any]](value["communicators"])
    found.ranks = max((int(group["size"]) for group in groups), default=0)
    hosts, gone = set[str](), set[tuple[str, int, int]]()
    for group in groups:
        ranks, missing = list(group["ranks"]), list(group["missing_ranks"])
        hosts |= {str(one["host"]) for one in [*ranks, *missing]} - {NOWHERE}
        whole = int(group["size"]) == found.ranks
        for one in missing:
            dead, quiet = one["status"]["considered_dead"] is True, one["status"]["unresponsive"] is True
            who = str(one["host"]), int(one["pid"]), int(one["cuda_dev"])
            if (dead or quiet) and who not in gone:  # one that answers has only left this communicator
                gone.add(who)
                text = f"{'DEAD' if dead else 'INCOMPLETE'}: {_who(one)}"
                found.gone.append(Named(_host(one), text, int(one["rank"]) if whole else None))
        found.behind += _behind(ranks, whole)
    found.hosts = len(hosts)
    return found


def _behind(ranks: list[dict[str, Any]], whole: bool) -> list[Named]:
    """Return the ranks of a communicator that launched fewer operations of some kind than others."""
    found = dict[int, Named]()
    for kind in dict.fromkeys(kind for one in ranks for kind in one["collective_counts"]):
        counts = [int(one["collective_counts"][kind]) for one in ranks]
        for one, number in zip(ranks, counts, strict=True):
            if number < max(counts):
                text = f"{_who(one)} has launched {number} {kind} operations, others up to {max(counts)}"
                row = Named(_host(one), text, int(one["rank"]) if whole else None, number)
                found.setdefault(int(one["rank"]), row)
    return list(found.values())


def _who(one: dict[str, Any]) -> str:
    text = f"rank {int(one['rank'])} -- GPU {int(one['cuda_dev'])} managed by process {int(one['pid'])} on node"
    return f"{text} {str(one['host'])[:200]}"


def _host(one: dict[str, Any]) -> str:
    return "" if one["host"] == NOWHERE else str(one["host"])[:200]


def _of_text(text: str, file: str) -> Ras:
    found, state = Ras(file), ""
    counts, named, group = list[tuple[int, int]](), list[Named](), 0  # of one communicator

    def compare() -> None:
        most = max(counts, default=(0, 0))[1]
        found.behind += [one for one in named if one.count < most]
        counts.clear()
        named.clear()

    for line in text.splitlines():
        line = line[:1000]
        if line and not line[0].isspace():
            compare()
            word = line.split()[-1]
            state = word if word in GONE else "MISMATCH" if word == "MISMATCH" else ""
        elif not found.ranks and (total := TOTAL.match(line)):
            found.hosts, found.ranks = int(total[1]), int(total[3])
        elif process := PROCESS.match(line):
            if state in GONE:
                found.gone.append(Named(process[2], f"{state}: {line.strip()}"))
        elif count := COUNT.match(line):
            group = int(count[2] or 0)
            counts.append((int(count[1]), group))
        elif rank := RANK.match(line):
            single = " has " in line.partition("--")[0]
            called = int(rank[2] or 0) if single else group
            counts.extend([(1, called)] if single else [])
            one = Named(rank[5], line.strip(), int(rank[1]), called)
            (named if state == "MISMATCH" else found.gone if state in GONE else []).append(one)
    compare()
    return found
