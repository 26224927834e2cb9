"""Compare what a job's processes would load with what the image declares, before the job trains.

For each difference `trainwright-check` names what is declared, what was found, where, and the fix, and ends with 5.
TRAINWRIGHT_STARTUP_CHECK=warn only reports, =off skips the check. Packages that the job added are not differences.
This module uses the standard library only and names no framework: the two files below say what to check.
"""

from __future__ import annotations

import ctypes
import hashlib
import io
import json
import os
import re
import subprocess
import sys
import sysconfig
import threading
import time
from contextlib import redirect_stdout, suppress
from fnmatch import fnmatchcase
from importlib.metadata import distributions
from pathlib import Path
from typing import Any

DECLARED = Path("/opt/trainwright/declared.json")  # rendered from the lock
RECORDED = Path("/opt/trainwright/libraries.json")  # path -> {component, sha256, names}, recorded at build time
MODE = "TRAINWRIGHT_STARTUP_CHECK"
PATIENCE = 600  # seconds, because the first import of a framework may read gigabytes over a network
DIFFERENT = 5

Json = dict[str, Any]
Packages = dict[str, tuple[str, str]]  # name -> version, folder


# --- comparison: pure functions, which read no files -----------------------------------------------------------------


def difference(what: str, declared: str, found: str, where: str, go_on: str) -> str:
    place = f" ({where})" if where else ""
    return f"{what}: declared {declared}, found {found}{place}. Fix: {go_on}"


def package_differences(declared: Json, found: Packages) -> list[str]:
    """List Python packages whose version changed or that were removed; installers such as pip (may_move) are exempt."""
    said = []
    for name, version in sorted(declared["python"].items()):
        if name in declared["may_move"]:
            continue
        if name not in found:
            go_on = f"undo the step that removed it, or run `pip install {name}=={version}`"
            said.append(difference(f"Python package {name}", version, "none", "", go_on))
        elif found[name][0] != version:
            go_on = f"remove {name} from requirements.txt, or use an image that declares {found[name][0]}"
            said.append(difference(f"Python package {name}", version, *found[name], go_on))
    return said


def added(declared: Json, found: Packages) -> list[str]:
    return [f"{name} {found[name][0]}" for name in sorted(found.keys() - declared["python"].keys())]


def version_differences(declared: Json, said: dict[str, str]) -> list[str]:
    """List components that report another version. `said`: component -> version, "" or the error of its import."""
    lines = []
    for name, version in sorted(said.items()):
        wanted = declared["components"][name]["says"]
        public, _, local = version.partition("+")
        # A wheel of the public index has no local version such as +cu132, but the imported module may report one.
        own = local == declared["accelerator"] and "+" not in wanted
        if wanted != (public if own else version):
            go_on = f"undo the change of {name}: in the job's requirements.txt, or in a step on top of the image"
            lines.append(difference(f"component {name}", wanted, version or "no version", "", go_on))
    return lines


def owner(declared: Json, path: str) -> str:
    """Return the component whose library has this file name, or ""."""
    name = path.rpartition("/")[2]
    for component, facts in declared["components"].items():
        if any(fnmatchcase(name, glob) for glob in facts["libraries"]):
            return str(component)
    return ""


def library_differences(declared: Json, recorded: Json, hashes: dict[str, str], mapped: list[str]) -> list[str]:
    """List libraries that were changed or removed, and other copies of them that a process loads.

    `hashes`: recorded path -> its sha256 now, "" if it was removed. `mapped`: the files that a process maps.
    """
    said = []
    for path, facts in sorted(recorded.items()):
        if hashes[path] != facts["sha256"]:
            found = f"sha256 {hashes[path][:12]}" if hashes[path] else "none"
            go_on = f"undo the step that replaced or removed the library of {facts['component']}"
            what = f"library of {facts['component']}"
            said.append(difference(what, f"sha256 {facts['sha256'][:12]}", found, path, go_on))
    for path in sorted(set(mapped) - recorded.keys()):
        if component := owner(declared, path):
            own = [known for known, facts in recorded.items() if facts["component"] == component]
            go_on = "remove that copy, or its folder from LD_PRELOAD, LD_LIBRARY_PATH and ld.so.conf.d"
            what = f"library of {component} that the framework loads"
            said.append(difference(what, ", ".join(own) or "none", path, _told(path), go_on))
    return said


def _told(path: str) -> str:
    """Return which setting makes the loader find a file: "preloaded", "LD_LIBRARY_PATH" or ""."""
    folders = {str(Path(word).resolve()) for word in _words("LD_LIBRARY_PATH")}
    if path in preloaded():
        return "preloaded"
    return "LD_LIBRARY_PATH" if str(Path(path).parent) in folders else ""


def _words(variable: str) -> list[str]:
    return [word for word in re.split("[: ]", os.environ.get(variable, "")) if word]


def preloaded() -> set[str]:
    """Return the files that the loader preloads, by LD_PRELOAD or /etc/ld.so.preload."""
    told = _words("LD_PRELOAD")
    with suppress(OSError):
        told += Path("/etc/ld.so.preload").read_text().split()
    return {str(Path(word).resolve()) for word in told}


def symbol_differences(declared: Json, recorded: Json, provided: dict[str, str]) -> list[str]:
    """List components whose function a preloaded file replaces. `provided`: component -> that file."""
    said = []
    for name, path in sorted(provided.items()):
        if path not in recorded and not owner(declared, path):
            what = f"{declared['components'][name]['symbol']} of {name}"
            go_on = "unset LD_PRELOAD, and remove the file from /etc/ld.so.preload"
            said.append(difference(what, "its own library's", path, "preloaded", go_on))
    return said


def variable_differences(declared: Json, recorded: Json, environment: dict[str, str]) -> list[str]:
    """List environment variables that make a component load another library than the image's."""
    said = []
    for name, facts in sorted(declared["components"].items()):
        own = {path for path, library in recorded.items() if library["component"] == name}
        names = {path.rpartition("/")[2] for path in own}
        for variable, patterns in sorted(facts["variables"].items()):
            value = environment.get(variable, "")
            meant = {pattern.format(value=value) for pattern in patterns}
            if value and not meant & (own | names):
                what = f"{variable} for {name}"
                said.append(difference(what, f"unset, or {_shortest(names)}", value, "", f"unset {variable}"))
    return said


def _shortest(names: set[str]) -> str:
    return min(names, key=len, default="none")


def shadows(site: Path, origins: dict[str, str]) -> list[str]:
    """List modules of the image that Python imports from elsewhere. `origins`: top-level module -> its file."""
    said = []
    for name, origin in sorted(origins.items()):
        own = [path for path in (site / name, site / f"{name}.py") if path.exists()]
        if own and site not in Path(origin).parents:
            go_on = f"rename that file, because Python imports it instead of the image's {name}"
            said.append(difference(f"module {name}", str(own[0]), origin, "", go_on))
    return said


# --- facts: functions that read files or run programs ----------------------------------------------------------------


def packages_on(path: list[str]) -> Packages:
    """Return the installed packages on a path; of several copies the first counts, as with an import."""
    found: Packages = {}
    for one in distributions(path=path):
        name = re.sub(r"[-_.]+", "-", one.metadata["Name"] or "").lower()
        found.setdefault(name, (one.version, str(one.locate_file(""))))
    return found


def mapped_files() -> list[str]:
    rows = [line.split(None, 5) for line in Path("/proc/self/maps").read_text().splitlines()]
    return sorted({row[5].replace(" (deleted)", "") for row in rows if len(row) > 5 and row[5].startswith("/")})


class Symbol(ctypes.Structure):
    """Declare Dl_info of dladdr(3)."""

    _fields_ = [
        ("file", ctypes.c_char_p),
        ("base", ctypes.c_void_p),
        ("name", ctypes.c_char_p),
        ("address", ctypes.c_void_p),
    ]


def provider_of(symbol: str) -> str:
    """Return the file that provides a function to a process that looks it up by name, or ""."""
    loader, found = ctypes.CDLL(None), Symbol()
    try:
        address = ctypes.cast(getattr(loader, symbol), ctypes.c_void_p)
    except AttributeError:
        return ""
    loader.dladdr(address, ctypes.byref(found))
    return str(Path(os.fsdecode(found.file)).resolve()) if found.file else ""


def inspect(declared: Json, recorded: Json) -> Json:
    """Load what a job's process would load, and return versions and origins. Runs in a separate process."""
    said, provided = {}, {}
    for name, facts in declared["components"].items():
        code = facts["probe"].get("code")
        if facts["at_start"] and code:
            printed = io.StringIO()
            try:
                with redirect_stdout(printed):
                    exec(code, {"__name__": "probe"})
                said[name] = version_in(facts["probe"]["pattern"], printed.getvalue())
            except BaseException as error:  # a broken package may raise anything on import, even SystemExit
                said[name] = f"{type(error).__name__}: {error}".splitlines()[0]
    for name, facts in declared["components"].items():
        if facts["symbol"] and (path := provider_of(facts["symbol"])) in preloaded():
            provided[name] = path
    # Also load the libraries that no framework has loaded yet, to see which files their names resolve to.
    for name in sorted({name for facts in recorded.values() for name in facts["names"]}):
        with suppress(OSError):
            ctypes.CDLL(name)
    modules = {name: module for name, module in sys.modules.items() if "." not in name}
    origins = {name: str(Path(file).resolve()) for name, module in modules.items() if (file := _file_of(module))}
    return {"said": said, "provided": provided, "mapped": mapped_files(), "origins": origins}


def _file_of(module: Any) -> str:
    return getattr(module, "__file__", None) or next(iter(getattr(module, "__path__", [])), "")


def version_in(pattern: str, printed: str) -> str:
    found = re.search(pattern, printed)
    return found.group(1) if found else ""


def printed_by(command: list[str]) -> str:
    """Return the output of a program, or "" if it does not exist or does not end in time."""
    try:
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=PATIENCE)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.decode(errors="replace")


def sha256(path: str) -> str:
    digest = hashlib.sha256()
    try:
        with open(path, "rb") as file:  # noqa: PTH123
            while chunk := file.read(1 << 20):
                digest.update(chunk)
    except OSError:
        return ""
    return digest.hexdigest()


# Start like a job's own script, with the current folder first on sys.path.
AS_A_JOB = "import runpy, sys; sys.argv = sys.argv[1:]; runpy.run_path(sys.argv[0], run_name='trainwright_inspect')"


def inspected() -> tuple[Json, str]:
    """Run inspect() in a separate process. Returns its result, or {} and the last line of the process's output."""
    reader, writer = os.pipe()
    command = [sys.executable, "-c", AS_A_JOB, __file__, str(writer)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, pass_fds=[writer])
    os.close(writer)
    kill = threading.Timer(PATIENCE, process.kill)
    kill.start()
    try:
        with os.fdopen(reader) as answer:
            words = _in_thread(lambda: process.stdout.read() if process.stdout else b"")
            text = answer.read()
        process.wait()
    finally:
        kill.cancel()
    last = words().decode(errors="replace").strip().splitlines()
    return (json.loads(text), "") if text else ({}, last[-1] if last else f"exit code {process.returncode}")


def _in_thread(work: Any) -> Any:
    """Start work in a thread. Returns a function that waits for its result."""
    results: list[Any] = []
    thread = threading.Thread(target=lambda: results.append(work()))
    thread.start()

    def result() -> Any:
        thread.join()
        return results[0]

    return result


def compare() -> tuple[list[str], list[str]]:
    """Return all differences, and the packages that the job added."""
    declared, recorded = json.loads(DECLARED.read_text()), json.loads(RECORDED.read_text())
    # Importing a framework takes seconds, so the other checks run meanwhile.
    loaded = _in_thread(inspected)
    site = Path(sysconfig.get_path("purelib"))
    path = [str(Path.cwd()), *_words("PYTHONPATH"), *sys.path]
    packages = packages_on(list(dict.fromkeys(path)))
    hashes = {path: sha256(path) for path in recorded}
    said = {
        name: version_in(facts["probe"]["pattern"], printed_by(facts["probe"]["command"]))
        for name, facts in declared["components"].items()
        if facts["at_start"] and "command" in facts["probe"]
    }
    found, why = loaded()
    lines = package_differences(declared, packages)
    if not found:
        go_on = "undo the installations on top of the image"
        lines.append(difference("process that imports the framework", "success", why, "", go_on))
    else:
        said |= found["said"]
        lines += shadows(site, found["origins"])
        lines += symbol_differences(declared, recorded, found["provided"])
    lines += version_differences(declared, said)
    lines += library_differences(declared, recorded, hashes, found.get("mapped", []))
    lines += variable_differences(declared, recorded, dict(os.environ))
    return lines, added(declared, packages)


def libraries(declared: Json) -> Json:
    """Find every file on disk that has the name of a component's library; the build records the result."""
    names: dict[str, list[str]] = {}
    for line in printed_by(["/sbin/ldconfig", "-p"]).splitlines():
        name, _, path = line.strip().partition(" => ")
        if path and owner(declared, path):
            names.setdefault(str(Path(path).resolve()), []).append(name.split()[0])
    if not any(facts["libraries"] for facts in declared["components"].values()):
        return {}
    found = set()
    for folder, folders, files in os.walk("/"):
        if folder == "/":
            folders[:] = [name for name in folders if name not in ("proc", "sys", "dev")]
        found |= {str(Path(folder, name).resolve()) for name in files if owner(declared, name)}
    return {
        path: {"component": owner(declared, path), "sha256": sha256(path), "names": sorted(names.get(path, []))}
        for path in sorted(found)
        if owner(declared, path)
    }


def report(mode: str, differences: list[str], more: list[str], seconds: float) -> tuple[list[str], int]:
    """Return the lines of the report, and the exit code. `more`: the packages that the job added."""
    said, code = [], 0
    if mode == "off":
        return [f"trainwright-check: not run, {MODE}=off"], 0
    identity = json.loads(DECLARED.read_text())["id"]
    if differences:
        said.append(f"{'WARNING: ' if mode == 'warn' else 'refused: '}this container differs from {identity}")
        said += differences
        if mode != "warn":
            said.append(f"{MODE}=warn starts the job nevertheless")
            code = DIFFERENT
    else:
        said.append(f"{identity} matches its declaration ({seconds:.1f} s)")
    if more:
        said.append(f"added to the image: {', '.join(more)}")
    return [f"trainwright-check: {line}" for line in said], code


def main(words: list[str]) -> int:
    if words == ["--record"]:
        found = libraries(json.loads(DECLARED.read_text()))
        RECORDED.write_text(json.dumps(found, indent=1, sort_keys=True) + "\n")
        return 0
    if words[:1] == ["--libraries"]:  # with the declaration that is given
        print(json.dumps(libraries(json.loads(words[1]))))
        return 0
    mode = os.environ.get(MODE) or "refuse"
    if words or mode not in ("refuse", "warn", "off"):
        print(f"trainwright-check: {MODE} is {mode!r}: expected refuse, warn or off, and no arguments", file=sys.stderr)
        return 2
    if mode == "off":
        print("\n".join(report(mode, [], [], 0)[0]), file=sys.stderr)
        return 0
    began = time.monotonic()
    lines, more = compare()
    said, code = report(mode, lines, more, time.monotonic() - began)
    print("\n".join(said), file=sys.stderr)
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
if __name__ == "trainwright_inspect":
    answer = inspect(json.loads(DECLARED.read_text()), json.loads(RECORDED.read_text()))
    with os.fdopen(int(sys.argv[1]), "w") as pipe:
        pipe.write(json.dumps(answer))
