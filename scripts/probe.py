"""Runs inside a finished image, with its own Python, and prints as JSON what is really there. Judges nothing.

argv[1] holds the questions as JSON, from the [probe] tables of dockerfiles/layers/: component to
{"command": [...]} or {"code": "..."}, and a "pattern" whose one group is the version.
"""

import hashlib
import json
import os
import re
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from importlib.metadata import distributions
from pathlib import Path

LISTS = Path("/opt/trainwright/files")  # one file per component that was compiled: `sha256  /path` per line
PATIENCE = 300  # seconds: the first import of a framework reads gigabytes
NCCL = re.compile(r"libnccl(-[0-9a-f]+)?\.so")  # with a hash in its name where auditwheel has copied it
VERSION_OF_NCCL = """
import ctypes, sys
number = ctypes.c_int()
ctypes.CDLL(sys.argv[1]).ncclGetVersion(ctypes.byref(number))
print(number.value)
"""
# Appended to the code of a question: which NCCL a process maps that has loaded the component.
MAPPED = """
lines = [line.split(None, 5) for line in open("/proc/self/maps")]
print("\\nmaps", *(parts[5].strip() for parts in lines if len(parts) > 5), sep="\\n")
"""


def output(command):
    """What a program prints; "" where it is not there or does not end."""
    try:
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=PATIENCE)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.decode(errors="replace")


def nccls(paths):
    return sorted({path for path in paths if NCCL.match(Path(path).name)})


def answer(question):
    """The version that a component says of itself (None: it says none), and the NCCL its process maps."""
    code = question.get("code")
    printed = output(["python", "-c", code + MAPPED] if code else question["command"])
    said, _, maps = printed.partition("\nmaps\n")
    found = re.search(question["pattern"], said)
    return found.group(1) if found else None, nccls(maps.splitlines())


def python_packages():
    return {re.sub(r"[-_.]+", "-", found.metadata["Name"]).lower(): found.version for found in distributions()}


def distribution_packages():
    """dpkg's own list; empty where the distribution has no dpkg."""
    try:
        listed = subprocess.run(
            ["dpkg-query", "-W", "-f", "${Package} ${Version} ${db:Status-Abbrev}\n"],
            stdout=subprocess.PIPE,
            check=True,
        )
    except OSError:
        return {}
    rows = [line.split() for line in listed.stdout.decode().splitlines()]
    return {name: version for name, version, state in rows if state.startswith("ii")}


def claims():
    """Component to path to [sha256 as built, sha256 as found; "" where it is not there]."""
    lists = sorted(LISTS.iterdir()) if LISTS.is_dir() else []
    return {path.name: dict(map(claim, path.read_text().splitlines())) for path in lists}


def claim(line):
    built, path = line.split(None, 1)
    file = Path(path)
    return path, [built, hashlib.sha256(file.read_bytes()).hexdigest() if file.is_file() else ""]


def libnccl():
    """Every file called libnccl on disk, links followed, to the version that it says; "" where it says none."""
    found = set()
    for folder, folders, files in os.walk("/"):
        if folder == "/":
            folders[:] = [name for name in folders if name not in ("proc", "sys", "dev")]
        found |= {str(Path(folder, name).resolve()) for name in files if NCCL.match(name)}
    return {path: dotted(output(["python", "-c", VERSION_OF_NCCL, path]).strip()) for path in sorted(found)}


def dotted(number):
    """NCCL's own integer as people write it: 23007 is 2.30.7; "" for anything else that was printed."""
    value = int(number) if number.isdigit() else 0
    return f"{value // 10000}.{value // 100 % 100}.{value % 100}" if value else ""


def programs(paths):
    """Those that start a process of their own and name libnccl."""
    for path in map(Path, paths):
        if ".so" not in path.name and path.is_file() and os.access(path, os.X_OK):
            content = path.read_bytes()
            if content.startswith(b"\x7fELF") and b"libnccl" in content:
                yield str(path)


def full_pipe():
    """Both ends of a pipe that takes no further byte: who writes there stands still, and can be looked at."""
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    try:
        while True:
            os.write(writer, bytes(65536))
    except BlockingIOError:
        os.set_blocking(writer, True)  # the programs share this setting, and are to wait
    return reader, writer


def stands(process):
    """Whether a process has ended, or waits to write."""
    try:
        return process.poll() is not None or "pipe" in Path(f"/proc/{process.pid}/wchan").read_text()
    except OSError:
        return False


def mapped_by(paths):
    """Program to the NCCL that it really maps. Without a GPU it would end at once, so its output is a full pipe."""
    _, writer = full_pipe()
    started = {
        path: subprocess.Popen([path], stdin=subprocess.DEVNULL, stdout=writer, stderr=writer, start_new_session=True)
        for path in paths
    }
    end = time.monotonic() + 20  # a kernel that does not say where a process waits
    while time.monotonic() < end and not all(map(stands, started.values())):
        time.sleep(0.1)
    found = {}
    for path, process in started.items():
        try:
            lines = Path(f"/proc/{process.pid}/maps").read_text().splitlines()
        except OSError:
            lines = []
        found[path] = nccls(parts[5] for parts in (line.split(None, 5) for line in lines) if len(parts) > 5)
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    return found


def everything(questions):
    with ThreadPoolExecutor(os.cpu_count()) as pool:  # each question is a process; importing a framework takes seconds
        asked = {name: pool.submit(answer, question) for name, question in questions.items()}
    answers = {name: said.result() for name, said in asked.items()}
    claimed = claims()
    started = mapped_by(sorted({path for paths in claimed.values() for path in programs(paths)}))
    return {
        "versions": {name: version for name, (version, _) in answers.items() if version is not None},
        "libnccl": libnccl(),
        "mapped": {name: maps for name, (_, maps) in answers.items() if maps} | started,
        "files": claimed,
        "python_packages": python_packages(),
        "packages": distribution_packages(),
    }


if __name__ == "__main__":
    print(json.dumps(everything(json.loads(sys.argv[1]))))
