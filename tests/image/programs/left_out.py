"""Print as JSON which files of the first argument's rules the image holds, or holds with debug sections.

And which files of their packages are not what RECORD says.
"""

import csv
import hashlib
import json
import subprocess
import sys
import sysconfig
from base64 import urlsafe_b64encode
from fnmatch import fnmatchcase
from importlib.metadata import distribution
from pathlib import Path

SITE = Path(sysconfig.get_path("purelib"))
SKIPPED = 300_000_000  # bytes; the digest of a larger file is not compared


def sections(path):
    said = subprocess.run(["readelf", "--section-headers", "--wide", path], capture_output=True, text=True, check=True)
    return ".debug_info" in said.stdout


def sha256(path):
    return "sha256=" + urlsafe_b64encode(hashlib.sha256(path.read_bytes()).digest()).decode().rstrip("=")


found, untrue = {}, []
rules = json.loads(sys.argv[1])
for number, rule in enumerate(rules):
    files = [
        path
        for path in map(str, distribution(rule["package"]).files)
        if any(fnmatchcase(path, glob) for glob in rule["files"])
    ]
    there = {path.relative_to(SITE).as_posix() for glob in rule["files"] for path in SITE.glob(glob) if path.is_file()}
    found[number] = sorted(path for path in {*files, *there} if not rule["debug"] or sections(SITE / path))
for package in {rule["package"] for rule in rules}:
    (record,) = (path for path in distribution(package).files if path.match("*.dist-info/RECORD"))
    for path, digest, size in csv.reader((SITE / record).read_text().splitlines()):
        file = SITE / path
        there = file.is_file() and (not size or file.stat().st_size == int(size))
        if not there or (digest and int(size) < SKIPPED and sha256(file) != digest):
            untrue.append(path)
print(json.dumps({"found": found, "untrue": sorted(untrue)}))
