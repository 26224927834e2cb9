"""Write a long log of a training job for the row `diagnose` of bench.toml, unless it is there.

Of 20 lines 16 are of NCCL, one holds words that a cause looks for, and three are a step of the training.
"""

import random
import shutil
import sys
from pathlib import Path

WORDS = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB",
    "W socket.cpp:401] [c10d] The client socket has timed out after 60s",
    "NET/OFI Selected Provider is efa (found 4 nics)",
    "Insufficient hugepages-2Mi was said once",
    "INFO the DataLoader worker (pid 3) is killed by signal: Killed",
)
LINES = 20_000  # of one piece


def piece(of: random.Random) -> str:
    rows = list[str]()
    for line in range(LINES):
        share, gpu = of.random(), of.randrange(8)
        if share < 0.8:
            host = f"ip-10-0-{gpu}-{gpu}:{4000 + gpu}:{5000 + gpu} [{gpu}] NCCL INFO"
            rows.append(
                f"{host} Channel {line % 32:02d}/0 : {gpu}[{gpu}] -> 9[{gpu}] [send] via NET/Libfabric/{gpu}/GDRDMA"
            )
        elif share < 0.85:
            rows.append(f"{of.choice(WORDS)} {line}")
        else:
            rows.append(
                f"[2026-11-22 10:{line % 60:02d}:00] step {line} loss {of.random():.4f} tokens/s {of.randrange(90_000)}"
            )
    return "\n".join(rows) + "\n"


def main(path: Path, megabytes: int) -> None:
    if path.exists():
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    free = shutil.disk_usage(path.parent).free // 1_000_000
    if megabytes > free:
        sys.exit(f"{path}: {megabytes} MB were asked for, {free} MB are free there; the size is in megabytes")
    of, written = random.Random(1), 0
    with path.open("w") as log:
        while written < megabytes * 1_000_000:
            written += log.write(piece(of))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
