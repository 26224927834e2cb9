"""Read dumps of PyTorch's flight recorder: which collectives each rank called, and which of them it completed.

Sources: torch/csrc/distributed/c10d/FlightRecorder.hpp and FlightRecorderDetail.hpp; dumps of torch 2.13 over Gloo.
"""

import json
import re
from dataclasses import dataclass, field
from typing import Any

from trainwright.diagnose.job.unpickle import LARGEST, Refused, unpickled

MAJOR = "2"  # of the format's version
MOST_ENTRIES = 200_000
VERSION, ENTRIES = re.compile(rb'"version"\s*:\s*"\d+\.\d+"'), re.compile(rb'"entries"\s*:\s*\[')
RANK_IN_NAME = re.compile(
    r"(\d{1,6})(?:\.(?:json|pickle|pkl|pt|bin|gz|zst))*$"
)  # TORCH_FR_DUMP_TEMP_FILE ends with the rank


@dataclass(frozen=True)
class Entry:
    """One collective as a rank called it."""

    seq: int
    op: str  # all_reduce
    sizes: str  # of its inputs and their types
    created: float  # seconds
    completed: bool
    number: int = 0  # its place in the dump
    ended: bool = False  # its state says so; `completed` is also what a rank gave up
    role: int = 0  # which of the rank's own groups, in the order in which it made them: the same on all ranks of a job

    @property
    def words(self) -> str:
        return f"{self.op} {self.sizes}".strip()


@dataclass
class Dump:
    """What one rank recorded."""

    rank: int
    file: str
    groups: dict[str, list[Entry]] = field(default_factory=dict)  # collectives of each process group, by number
    members: dict[str, set[int]] = field(default_factory=dict)  # the ranks of each group, where the dump has them
    world: int = 0

    @property
    def entries(self) -> list[Entry]:
        return [entry for entries in self.groups.values() for entry in entries]


def is_dump(head: bytes) -> bool:
    """Return whether a file begins like a dump of the recorder, or like any pickle."""
    if head[:1] == b"\x80" and head[1:2] in (b"\x02", b"\x03", b"\x04", b"\x05"):
        return True
    text = head.lstrip()
    return text.startswith(b"{") and (
        bool(VERSION.search(text) and ENTRIES.search(text))
        or any(key in text for key in (b'"collective_seq_id"', b'"pg_status"', b'"pg_config"'))
    )


def dumped(data: bytes, file: str) -> Dump:
    """Return the content of a dump. Raises Refused with the reason, which needs no more words."""
    if len(data) > LARGEST:
        raise Refused(f"it has {len(data)} bytes; the limit is {LARGEST}")
    value = unpickled(data) if data[:1] == b"\x80" else _of_json(data)
    if not isinstance(value, dict) or "version" not in value or not isinstance(value.get("entries", []), (list, tuple)):
        raise Refused("it is not a dump of the flight recorder")
    version = str(value["version"])[:20]
    if version.partition(".")[0] != MAJOR:
        raise Refused(f"it has version {version} of the recorder's format; this release reads version {MAJOR}")
    named = RANK_IN_NAME.search(file)
    if named is None and not isinstance(value.get("rank"), int):
        raise Refused("neither its name nor its content says which rank wrote it; a name ends with the rank")
    found = Dump(value["rank"] if named is None else int(named[1]), file)
    for config in _dicts(value.get("pg_config")):
        ranks = {int(one) for one in re.findall(r"\d{1,6}", str(config.get("ranks", ""))[:1_000_000])}
        found.members[str(config.get("name", ""))[:100]] = ranks
        found.world = max(found.world, max(ranks, default=-1) + 1)
    for number, row in enumerate(value.get("entries", ())[:MOST_ENTRIES]):
        _add(found, row, number)
    return found


def _of_json(data: bytes) -> object:
    try:
        return json.loads(data)
    except (ValueError, RecursionError):  # ValueError: also bytes that are not text
        raise Refused("it is cut or damaged: not valid JSON") from None


def _dicts(value: object) -> list[dict[str, Any]]:
    return [one for one in value.values() if isinstance(one, dict)] if isinstance(value, dict) else []


def _add(dump: Dump, row: object, number: int) -> None:
    if not isinstance(row, dict) or row.get("is_p2p"):
        return
    seq, created = row.get("collective_seq_id"), row.get("time_created_ns")
    if not isinstance(seq, int) or not isinstance(created, int):
        raise Refused(f"its entry {number} has no sequence number or no time")
    group = row.get("process_group")
    name = str(group[0])[:100] if isinstance(group, (list, tuple)) and group else ""
    sizes = " ".join(f"{_plain(row.get('input_sizes'))} {_plain(row.get('input_dtypes'))}".split())
    completed = bool(row.get("retired")) or row.get("state") == "completed"
    op = str(row.get("profiling_name", ""))[:100].rpartition(":")[2]
    role = row.get("pg_id")
    role, ended = role if isinstance(role, int) else 0, row.get("state") == "completed"
    dump.groups.setdefault(name, []).append(Entry(seq, op, sizes, created / 1e9, completed, number, ended, role))


def _plain(value: object) -> str:
    """Format [[2, 3]] as 2x3, ["Float"] as Float."""
    if not isinstance(value, (list, tuple)):
        return ""
    parts = ["x".join(map(str, one)) or "1" if isinstance(one, (list, tuple)) else str(one) for one in value[:8]]
    return " ".join(parts)[:120]
