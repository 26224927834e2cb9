"""Graft upon a foreign image, and say whether that went as its row declares, and what it cost."""

import json
import shutil
import subprocess
import sys
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from foreign.images import Image

from trainwright.registry import client

ROOT = Path(__file__).parents[2]
STEP = """
import torch
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU(), torch.nn.Linear(8, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(3):
    optimizer.zero_grad()
    loss = model(torch.ones(4, 8)).square().mean()
    loss.backward()
    optimizer.step()
print(torch.__version__, f"loss {loss.item():.8f}")
"""
IMPORT = "import torch; print(torch.__version__)"


@dataclass
class Outcome:
    """A row of the table."""

    image: str
    anatomy: str
    found: str
    planned: str
    became: str  # built, refused: <traps>, or the error's exit code
    seconds: float = 0  # of the command, with the image in the engine
    pull_seconds: float = 0
    added_bytes: int = 0
    nccl_before: list[str] = field(default_factory=list)
    nccl_after: list[str] = field(default_factory=list)
    layers: int = 0  # of the image below, which the graft holds with the same digests
    runs: str = ""  # what its framework says, in both
    wrong: list[str] = field(default_factory=list)  # what differs from the row of images.toml

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def checkout(folder: Path) -> Path:
    """Make a checkout with the project's declarations, where grafts write their files."""
    for name in ("dockerfiles", "scripts"):
        shutil.copytree(ROOT / name, folder / name)
    return folder


def pull(reference: str) -> float:
    began = time.monotonic()
    subprocess.run(["docker", "pull", "--quiet", reference], capture_output=True)
    return time.monotonic() - began


def says(reference: str, python: str, script: str) -> str:
    """Return what a script prints in an image, as the image's user, without network."""
    words = ["docker", "run", "--rm", "--network=none", "--entrypoint", python, reference, "-c", script]
    done = subprocess.run(words, capture_output=True, text=True)
    return done.stdout.strip() if done.returncode == 0 else f"exit code {done.returncode}: {done.stderr.strip()[-300:]}"


def command(tree: Path, *words: str) -> tuple[int, dict[str, Any], str]:
    """Run `trainwright graft`; return its exit code, its JSON and its messages."""
    done = subprocess.run(
        [Path(sys.executable).with_name("trainwright"), "graft", *words, "--json"],
        cwd=tree,
        capture_output=True,
        text=True,
    )
    return done.returncode, json.loads(done.stdout) if done.stdout else {}, done.stderr


def graft(tree: Path, registry: str, one: Image, reference: str, fabric: str = "none") -> Outcome:
    """Graft upon one image, push the graft, compare both, and remove them from the engine."""
    pulled = pull(reference)
    words = [reference, "--name", one.name, "--fabric", fabric, "--push", "--registry", registry]
    began = time.monotonic()
    code, said, errors = command(tree, *words)
    seconds = time.monotonic() - began
    traps = said.get("plan", {}).get("traps", [])
    outcome = Outcome(
        image=one.name,
        anatomy=one.anatomy,
        found=summary(said),
        planned=", ".join(f"{row['what']} {row['does']}" for row in said.get("plan", {}).get("steps", [])),
        became=became(code, traps, errors),
        seconds=round(seconds, 1),
        pull_seconds=round(pulled, 1),
    )
    outcome.wrong = list(differences(one, code, traps, errors))
    result = said.get("graft", {})
    try:
        if result:
            compare(outcome, one, said, reference)
    finally:
        names = [name for name in (result.get("image"), result.get("uri"), reference) if name]
        subprocess.run(["docker", "rmi", *names], capture_output=True)
    return outcome


def compare(outcome: Outcome, one: Image, said: dict[str, Any], reference: str) -> None:
    """Add to an outcome what a graft has of the image below: layers, NCCL, and what its framework computes."""
    result = said["graft"]
    outcome.added_bytes = result["added_bytes"]
    outcome.nccl_before, outcome.nccl_after = result["nccl_before"], result["nccl_after"]
    lower, own = (client.image(*uri.split("@"))["layers"] for uri in (reference, result["uri"]))
    outcome.layers = len(lower)
    if [row["digest"] for row in own[: len(lower)]] != [row["digest"] for row in lower]:
        outcome.wrong.append("the lower layers have other digests")
    if result["nccl_before"] != result["nccl_after"]:
        outcome.wrong.append(f"NCCL was {result['nccl_before']}, is {result['nccl_after']}")
    rows = [row["found"] for row in said["found"] if row["what"] == "python"]
    python = next(row for row in rows if "used by the graft" in row).split()[0]
    script = STEP if one.real else IMPORT
    before, after = says(reference, python, script), says(result["image"], python, script)
    outcome.runs = after
    if before != after or before.startswith("exit code"):
        outcome.wrong.append(f"its framework said {before!r}, says {after!r}")


def differences(one: Image, code: int, traps: list[dict[str, str]], errors: str) -> list[str]:
    """Return what differs from the row of an image."""
    told = []
    if code != one.exit_code:
        told.append(f"exit code {code}, not {one.exit_code}: {errors[-400:]}")
    for state, wanted in (("refused", one.refused), ("handled", one.handled)):
        named = sorted(trap["name"] for trap in traps if trap["state"] == state)
        if named != sorted(wanted):
            told.append(f"{state}: {named}, not {sorted(wanted)}")
    return told


def became(code: int, traps: list[dict[str, str]], errors: str) -> str:
    refused = [trap["name"] for trap in traps if trap["state"] == "refused"]
    if code == 0:
        return "built"
    if refused:
        return f"refused: {', '.join(refused)}"
    line = next((line for line in errors.splitlines() if line.startswith("error: ")), "")
    return f"exit code {code}: {line.removeprefix('error: ')[:80]}"


def summary(said: dict[str, Any]) -> str:
    """Return what was found, in one line."""
    rows = {row["what"]: row["found"] for row in reversed(said.get("found", []))}
    pythons = [row["found"] for row in said.get("found", []) if "used by the graft" in row["found"]]
    told = [rows.get("distribution", rows.get("inside", "")), *(" ".join(row.split()[:2]) for row in pythons)]
    return "; ".join(filter(None, [*told, rows.get("framework", "")]))
