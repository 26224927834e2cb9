"""Runs inside an image of unknown origin, with any Python from 3.6 on, and prints as JSON what the image holds.

Judges nothing. argv[1] holds the questions as JSON: `components` maps a component to its `code` or `command`, its
`pattern`, `libraries` (globs) and `packages` (names of Python packages that bring it); `paths` are places to describe;
`pythons` are globs of interpreters beyond those of PATH; `seconds` limits each program.
"""

import ctypes
import glob
import hashlib
import json
import os
import platform
import re
import subprocess
import sys
from fnmatch import fnmatchcase

QUESTIONS = {}
NOT_HERE = ("proc", "sys", "dev")
NCCL = re.compile(r"libnccl(-[0-9a-f]+)?\.so")
CXX = re.compile(rb"GLIBCXX_(\d+\.\d+(?:\.\d+)?)")
# What an interpreter says of itself. -I: without the current folder and variables that add to sys.path.
ITSELF = r"""
import json, os, re, sys, sysconfig
try:
    from importlib.metadata import distributions
    found = {re.sub(r"[-_.]+", "-", one.metadata["Name"] or "").lower(): one.version for one in distributions()}
except ImportError:
    found = {}
site = sysconfig.get_path("purelib")
try:
    about = os.stat(site)
    writers = [about.st_uid, about.st_gid, about.st_mode & 0o777]
except OSError:
    writers = []
print(json.dumps({
    "version": ".".join(map(str, sys.version_info[:3])),
    "prefix": sys.prefix,
    "base_prefix": getattr(sys, "base_prefix", sys.prefix),
    "site": site,
    "site_exists": os.path.isdir(site),
    "site_rights": writers,
    "packages": found,
}))
"""
VERSION_OF_NCCL = """
import ctypes, sys
number = ctypes.c_int()
ctypes.CDLL(sys.argv[1]).ncclGetVersion(ctypes.byref(number))
print(number.value)
"""
MAPPED = """
print("\\nmaps", *(row.split(None, 5)[5].strip() for row in open("/proc/self/maps") if row.count("/")), sep="\\n")
"""


def output(command):
    """Return what a program prints to both outputs and its exit code; 127 if it cannot be started, 124 if it hangs."""
    seconds = QUESTIONS["seconds"]
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=seconds
        )
    except OSError as problem:
        return str(problem), 127
    except subprocess.TimeoutExpired:
        return "it did not end within %d seconds" % seconds, 124
    return done.stdout.decode(errors="replace"), done.returncode


def content(path):
    try:
        with open(path, errors="replace") as file:
            return file.read(1 << 20)
    except OSError:
        return ""


def os_release():
    rows = (line.partition("=") for line in content("/etc/os-release").splitlines())
    return {
        name: value.strip("\"'")
        for name, _, value in rows
        if name in ("ID", "ID_LIKE", "VERSION_ID", "VERSION_CODENAME", "PRETTY_NAME")
    }


def libc():
    """Return "glibc 2.36", "musl" or "unknown"."""
    if glob.glob("/lib/ld-musl-*"):
        return "musl"
    try:
        call = ctypes.CDLL(None).gnu_get_libc_version
        call.restype = ctypes.c_char_p
        return "glibc " + call().decode()
    except (AttributeError, OSError):
        return "unknown"


def folders_of_path():
    return [folder for folder in os.environ.get("PATH", "").split(":") if folder]


def program(name):
    return next(
        (path for path in (os.path.join(one, name) for one in folders_of_path()) if os.access(path, os.X_OK)), ""
    )


def pythons():
    """Return every interpreter, those of PATH first; several names of one interpreter in one prefix count once."""
    names = [os.path.join(folder, name) for folder in folders_of_path() for name in ("python", "python3")]
    names += sorted(path for pattern in QUESTIONS["pythons"] for path in glob.glob(pattern))
    found = {}
    for path in dict.fromkeys(names):
        if not os.access(path, os.X_OK) or os.path.isdir(path):
            continue
        said, code = output([path, "-I", "-c", ITSELF])
        try:
            facts = json.loads(said) if code == 0 else {}
        except ValueError:
            facts = {}
        if facts and facts["prefix"] not in found:
            found[facts["prefix"]] = dict(facts, path=path, kind=kind(facts))
    return list(found.values())


def kind(facts):
    if facts["prefix"] != facts["base_prefix"]:
        return "venv"
    if os.path.isdir(os.path.join(facts["prefix"], "conda-meta")):
        return "conda"
    return {"/usr": "system", "/usr/local": "local"}.get(facts["prefix"], "other")


def answers(path, packages):
    """Return what each component whose Python package is here says when it is imported."""
    found = {}
    for name, question in sorted(QUESTIONS["components"].items()):
        if "code" not in question or not set(question["packages"]) & set(packages):
            continue
        said, code = output([path, "-B", "-c", question["code"] + MAPPED])
        printed, _, maps = said.partition("\nmaps\n")
        version = re.search(question["pattern"], printed)
        found[name] = {
            "version": version.group(1) if version else "",
            "error": "" if version else (said.strip().splitlines() or ["exit code %d" % code])[-1][:300],
            "maps": sorted({one for one in maps.splitlines() if NCCL.match(os.path.basename(one))}),
        }
    return found


def commands():
    found = {}
    for name, question in sorted(QUESTIONS["components"].items()):
        if "command" in question and program(question["command"][0]):
            version = re.search(question["pattern"], output(question["command"])[0])
            found[name] = {"version": version.group(1) if version else "", "error": "", "maps": []}
    return found


def owner(name):
    for component, question in sorted(QUESTIONS["components"].items()):
        if any(fnmatchcase(name, pattern) for pattern in question["libraries"]):
            return component
    return ""


def sha256(path):
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        for chunk in iter(lambda: file.read(1 << 20), b""):
            digest.update(chunk)
    return digest.hexdigest()


def libraries(python):
    """Return the files of components on disk, links followed, as /opt/trainwright/libraries.json holds them."""
    names = {}
    for line in output([program("ldconfig") or "/sbin/ldconfig", "-p"])[0].splitlines():
        name, _, path = line.strip().partition(" => ")
        if path and owner(os.path.basename(os.path.realpath(path))):
            names.setdefault(os.path.realpath(path), []).append(name.split()[0])
    found = set()
    for folder, folders, files in os.walk("/"):
        if folder == "/":
            folders[:] = [name for name in folders if name not in NOT_HERE]
        found |= {os.path.realpath(os.path.join(folder, name)) for name in files if owner(name)}
    told = {}
    for path in sorted(found):
        if os.path.isfile(path) and owner(os.path.basename(path)):
            row = {
                "component": owner(os.path.basename(path)),
                "sha256": sha256(path),
                "names": sorted(names.get(path, [])),
            }
            row["version"] = nccl_version(python, path) if NCCL.match(os.path.basename(path)) else ""
            told[path] = row
    return told


def nccl_version(python, path):
    number = output([python, "-I", "-c", VERSION_OF_NCCL, path])[0].strip()
    value = int(number) if number.isdigit() else 0
    return "%d.%d.%d" % (value // 10000, value // 100 % 100, value % 100) if value else ""


def loader():
    """Return the folders that the loader is told to search, and those of them that do not exist."""
    told = []
    for path in ["/etc/ld.so.conf", *sorted(glob.glob("/etc/ld.so.conf.d/*.conf"))]:
        lines = (line.split("#")[0].strip() for line in content(path).splitlines())
        told += [line for line in lines if line and not line.startswith("include")]
    broken = [path for path in sorted(glob.glob("/etc/ld.so.conf.d/*")) if not os.path.exists(path)]
    preload = content("/etc/ld.so.preload").split()
    return {"missing": [path for path in told if not os.path.isdir(path)] + broken, "preload": preload}


def cxx(*patterns):
    """Return the newest version of the symbols of the libstdc++ that these globs find; "" without one."""
    numbers = []
    for path in {path for pattern in patterns for path in glob.glob(pattern)}:
        with open(path, "rb") as file:
            numbers += [tuple(map(int, one.decode().split("."))) for one in CXX.findall(file.read(1 << 26))]
    return ".".join(map(str, max(numbers))) if numbers else ""


def users():
    """Map the names of users to their number and their group's, as passwd has them."""
    rows = (line.split(":") for line in content("/etc/passwd").splitlines())
    return {row[0]: [int(row[2]), int(row[3])] for row in rows if len(row) > 3 and (row[2] + row[3]).isdigit()}


def debs():
    """Map dpkg's packages to their version; {} without dpkg."""
    said, code = output(["dpkg-query", "-W", "-f", "${Package} ${Version} ${db:Status-Abbrev}\n"])
    rows = [line.split() for line in said.splitlines()]
    return {row[0]: row[1] for row in rows if code == 0 and len(row) == 3 and row[2].startswith("ii")}


def rpms():
    """Return rpm's packages, with the epoch in front of the version as in a lock."""
    said, code = output(["rpm", "-qa", "--qf", "%{NAME} %|EPOCH?{%{EPOCH}:}|%{VERSION}-%{RELEASE} %{ARCH}\n"])
    rows = [line.split() for line in said.splitlines()]
    return [
        {"name": row[0], "version": re.sub("^0:", "", row[1]), "architecture": row[2]}
        for row in rows
        if code == 0 and len(row) == 3
    ]


def by_name(rows):
    """Map names to versions; several versions of one name are joined as in an SBOM."""
    versions = {}
    for row in rows:
        versions.setdefault(row["name"], set()).add(row["version"])
    return {name: " and ".join(sorted(held)) for name, held in versions.items()}


def packages():
    """Return the distribution's packages by name, and as rpm lists them, which may have dpkg as a mere tool."""
    of_dpkg = debs()
    of_rpm = [] if of_dpkg else rpms()
    return of_dpkg or by_name(of_rpm), of_rpm


def described(path):
    if os.path.islink(path):
        return "link"
    return "folder" if os.path.isdir(path) else "file" if os.path.exists(path) else ""


def managers():
    return [name for name in ("apt-get", "dnf", "yum", "microdnf", "apk", "zypper", "pacman") if program(name)]


def everything():
    known, (named, of_rpm) = pythons(), packages()
    for one in known:
        one["components"] = answers(one["path"], one["packages"])
        one["cxx"] = cxx(os.path.join(one["prefix"], "lib/libstdc++.so.6")) if one["kind"] == "conda" else ""
    return {
        "os": os_release(),
        "machine": platform.machine(),
        "libc": libc(),
        "managers": managers(),
        "pythons": known,
        "commands": commands(),
        "libraries": libraries(known[0]["path"] if known else sys.executable),
        "loader": loader(),
        "packages": named,
        "rpms": of_rpm,
        "users": users(),
        "cxx": cxx("/usr/lib*/libstdc++.so.6", "/usr/lib/*/libstdc++.so.6"),
        "paths": {path: described(path) for path in QUESTIONS["paths"]},
    }


if __name__ == "__main__":
    QUESTIONS = json.loads(sys.argv[1])
    print(json.dumps(everything()))
