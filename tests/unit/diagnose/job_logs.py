"""Write the logs and recorder dumps of a job's ranks, and return what `diagnose` says of them."""

from pathlib import Path
from typing import Any

from unit.diagnose.answers import diagnosed

RAISED = """Traceback (most recent call last):
  File "/opt/ml/code/train.py", line 7, in main
    step(batch)
ValueError: 3 channels expected"""
CLOSED = """Traceback (most recent call last):
  File "/opt/ml/code/train.py", line 9, in main
    dist.all_reduce(loss)
RuntimeError: [/src/gloo/transport/tcp/pair.cc:553] Connection closed by peer [10.0.0.2]:31662."""
WAITED = CLOSED.replace("pair.cc:553] Connection closed by peer [10.0.0.2]:31662.", "x.cc:78] ").replace(
    "x.cc:78] ", "unbound_buffer.cc:78] Timed out waiting 6000ms for recv operation to complete"
)


def of_rank(rank: int, text: str) -> str:
    return "".join(f"[rank{rank}]: {line}\n" for line in text.splitlines())


def labelled(label: str, text: str) -> str:
    return "".join(f"{label}{line}\n" for line in text.splitlines())


def answer(*paths: Path) -> dict[str, Any]:
    (row,) = diagnosed(*paths)
    return row


def states(row: dict[str, Any]) -> dict[int, str]:
    return {rank["rank"]: rank["state"] for rank in row["job"]["ranks"]}


def write(folder: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


def of_files(tmp_path: Path, texts: list[str], name: str = "job-{}.log") -> dict[str, Any]:
    return answer(write(tmp_path, {name.format(rank): text for rank, text in enumerate(texts)}))


def dump(rank: int, *ops: str, retired: bool = True) -> dict[str, Any]:
    entries = [
        {
            "collective_seq_id": seq,
            "input_dtypes": ["Float"],
            "input_sizes": [[4]],
            "is_p2p": False,
            "process_group": ["0", "default_pg"],
            "profiling_name": f"gloo:{op}",
            "retired": retired,
            "state": "scheduled",
            "time_created_ns": 1_795_514_867_000_000_000 + seq * 1_000_000,
        }
        for seq, op in enumerate(ops, 1)
    ]
    return {"version": "2.10", "entries": entries, "pg_config": {"0": {"name": "0", "ranks": "[0, 1, 2, 3]"}}}
