"""Simulate a host for scripts/gate.sh: its PATH begins with programs of the test."""

import os
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
SCRIPT = ROOT / "scripts/gate.sh"
LOGS = Path(__file__).parent / "unit/nccl-tests"
DIGEST = "sha256:" + "a1" * 32
GOOD = "05_ok_p5_1node_8gpu_nvlink.txt"  # an all_reduce of 8 ranks
# Before the script: its pauses are short, so that it sees at once that a program has ended. Its clock jumps where a
# program leaves a file `jump.NUMBER.SECONDS`: a test of a limit waits for what hangs, and for no second more.
PAUSE = """\
sleep() {
  local jump
  for jump in "${MARK:-/nowhere}"/jump.*; do
    [ -e "$jump" ] || break
    rm "$jump"
    SECONDS=$((SECONDS + ${jump##*.}))
    return
  done
  command sleep 0.02
}
"""
WORDS = "--least 8 --most 1024 --factor 2 --iterations 20 --warmup 1 --limit 30 --grace 1 --gpus 8 --wait 30".split()  # noqa: SIM905


def quick(script: str = "") -> str:
    """Return scripts/gate.sh, or another text of it, with PAUSE before it."""
    return PAUSE + (script or SCRIPT.read_text())


@dataclass
class Host:
    """A machine whose PATH begins with programs of the test."""

    folder: Path

    def program(self, name: str, text: str) -> None:
        path = self.folder / name
        path.write_text(f"#!/usr/bin/env bash\n{text}\n")
        path.chmod(0o755)

    def prints(self, name: str, log: str) -> None:
        self.program(name, f"cat {LOGS / log}")

    def command(self, collectives: str, *words: str) -> list[str]:
        return ["bash", "-s", "--", "--image", f"x/y@{DIGEST}", "--collectives", collectives, *WORDS, *words]

    @property
    def environment(self) -> dict[str, str]:
        return {**os.environ, "PATH": f"{self.folder}:{os.environ['PATH']}", "MARK": str(self.folder)}

    def run(self, collectives: str, *words: str, script: str = "") -> subprocess.CompletedProcess[str]:
        """Run the script through standard input, as every launcher does."""
        return subprocess.run(
            self.command(collectives, *words),
            input=quick(script),
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=60,
        )

    def left(self) -> list[str]:
        """List the processes that our programs started and that still run."""
        return marked(self.folder)


def jumps(*seconds: int) -> str:
    """Return the line of a program that lets the script's clock jump, one jump for each pause of the script."""
    return "touch " + " ".join(f'"$MARK/jump.{number}.{one}"' for number, one in enumerate(seconds))


HANGS = "trap '' TERM\nsleep 600 &\nsetsid sleep 601 &\necho '# nThread 1'\nwait"

ROW = re.compile(r"(?:^|(?<=<stdout>:)) +\d+ +\d+ +float +sum .*$", re.MULTILINE)


def slowed(text: str, factor: float, ranks: int = 16) -> str:
    """Return an all_reduce log with longer times and lower bandwidths, which are consistent with each other."""

    def changed(match: re.Match[str]) -> str:
        words = match[0].split()
        for at in (-8, -4):
            time = float(words[at]) / factor
            algbw = int(words[0]) / time / 1000
            words[at : at + 3] = [f"{time:.2f}", f"{algbw:.2f}", f"{algbw * 2 * (ranks - 1) / ranks:.2f}"]
        return "  " + "  ".join(words)

    text = ROW.sub(changed, text)
    values = [float(match[0].split()[at]) for match in ROW.finditer(text) for at in (-6, -2)]
    return re.sub(r"(# Avg bus bandwidth    : )\S+", rf"\g<1>{sum(values) / len(values):g}", text)


def marked(folder: Path) -> list[str]:
    """List the command lines of running processes that have MARK=folder in their environment."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            if f"MARK={folder}".encode() in (entry / "environ").read_bytes():
                found.append((entry / "cmdline").read_bytes().replace(b"\0", b" ").decode())
        except OSError:
            continue
    return found
