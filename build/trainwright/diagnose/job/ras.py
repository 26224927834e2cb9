"""Read the output of NCCL's RAS (`ncclras`): processes that are gone, ranks that called fewer operations than others.

Sources: NVIDIA/nccl src/ras/client_support.cc of 2.24 to 2.31, and its user guide, "RAS".
"""

import re
from dataclasses import dataclass, field

HEAD = re.compile(rb"^Job summary\s*\n=|^Communicators\.\.\. \(", re.MULTILINE)
TOTAL = re.compile(r"^\s+(\d{1,6})(?:\s+\d[\d-]{0,12}){2}\s+(\d{1,7})\s+(\d{1,7})\s*$")
PROCESS = re.compile(r"^\s+Process (\d{1,10}) on node ([\w.:%-]{1,200}) managing GPUs? ([\d, -]{1,200})")
RANK = re.compile(r"^\s+Rank (\d{1,7})(?: has launched up to operation (\d{1,18})| has not launched any operations)?"
                  r" -- GPU (\S{1,40}) managed by process (\d{1,10}) on node ([\w.:%-]{1,200})")  # fmt: skip
COUNT = re.compile(r"^\s+(\d{1,7}) ranks have (?:launched up to operation (\d{1,18})|not launched any operations)")
GONE = ("INCOMPLETE", "DEAD")


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


def is_ras(head: bytes) -> bool:
    return bool(HEAD.search(head))


def answered(text: str, file: str) -> Ras:
    """Return what RAS says."""
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
