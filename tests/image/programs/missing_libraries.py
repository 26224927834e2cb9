"""Prints as JSON how many ELF files the image holds, and every `file: library` that the loader does not find."""

import json
import os
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOTS = ["/opt", "/usr", "/etc", "/var", "/root"]
PROGRAM, LIBRARY = 2, 3  # e_type; object files have no libraries to find
NOT_FOUND = re.compile(r"^\s*(\S+) => not found", re.MULTILINE)


def is_elf(path):
    file = os.open(path, os.O_RDONLY)
    try:
        header = os.read(file, 18)
    finally:
        os.close(file)
    return header[:4] == b"\x7fELF" and header[16] in (PROGRAM, LIBRARY)


def files(folder):
    """Every file in a folder and below, no link among them."""
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                yield from files(entry.path)
            elif entry.is_file(follow_symlinks=False):
                yield entry.path


def loader():
    """The one that starts this very Python: ldd asks it, too, from a shell that costs ten times as much."""
    maps = Path("/proc/self/maps").read_text().splitlines()
    return next(path for path in (line.split()[-1] for line in maps) if "/ld-linux" in path)


def missing(path):
    said = subprocess.run([LOADER, path], env=TRACE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    return [f"{path}: {name}" for name in NOT_FOUND.findall(said.stdout)]


LOADER, TRACE = loader(), {**os.environ, "LD_TRACE_LOADED_OBJECTS": "1"}  # it tells what it finds, and starts nothing
found = [path for root in sys.argv[1:] or ROOTS for path in files(root) if is_elf(path)]
with ThreadPoolExecutor(os.cpu_count()) as pool:
    lines = sorted({line for said in pool.map(missing, found) for line in said})
print(json.dumps({"files": len(found), "missing": lines}))
