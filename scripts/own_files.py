"""Print as JSON, inside an image and with its Python, the files by which trainwright protects its contents."""

import hashlib
import json
from pathlib import Path

OWN = Path("/opt/trainwright")
ELSEWHERE = ("/etc/pip.conf", "/usr/local/bin/trainwright-check")


def text(path):
    return path.read_text() if path.is_file() else ""


if __name__ == "__main__":
    files = [path for path in [*OWN.rglob("*"), *map(Path, ELSEWHERE)] if path.is_file()]
    found = {
        "declared": text(OWN / "declared.json"),
        "constraints": text(OWN / "constraints.txt").splitlines(),
        "files": {str(path): hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(files)},
    }
    print(json.dumps(found))
