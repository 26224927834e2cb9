"""Leave out of an image what training never reads, and put a large wheel's largest file into a layer of its own.

Run by the steps that install wheels, with the image's Python; itself not shipped. Commands:

    leave-out RULES               delete the files of RULES, or their debug sections, and correct the packages' RECORD
    put-back RULES WHEELS         write what RULES leave out everywhere but in the devel twin, from the folder WHEELS
    move-out WHEEL...             delete each wheel's largest file; its RECORD keeps it, as the next layer brings it
    bring-back WHEEL...           write that file

RULES is requirements/<folder>.left-out.json: what `left_out` of dockerfiles/layers/<component>.toml means for the
packages of one folder. A rule that matches no file ends the build: a newer release may ship its files elsewhere.
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
from zipfile import ZipFile

SITE = Path(sysconfig.get_path("purelib"))


def record_of(package):
    """Return the path of a package's RECORD and its rows: path below site-packages, sha256, bytes."""
    name = next(file for file in distribution(package).files if file.match("*.dist-info/RECORD"))
    with (SITE / name).open(newline="") as lines:
        return SITE / name, list(csv.reader(lines))


def write_record(path, rows):
    with path.open("w", newline="") as target:
        csv.writer(target, lineterminator="\n").writerows(rows)


def matching(rule, paths):
    """Return the paths that a rule names. Ends the build if there is none."""
    found = [path for path in paths if any(fnmatchcase(path, glob) for glob in rule["files"])]
    if not found:
        sys.exit(
            f"left_out of {rule['component']}: {', '.join(rule['files'])} matches no file of {rule['package']} "
            f"{distribution(rule['package']).version}; fix: correct it in dockerfiles/layers/{rule['component']}.toml"
        )
    return found


def without_debug(path):
    """Strip a library's debug sections. Return what its RECORD says of it then."""
    subprocess.run(["strip", "--strip-debug", path], check=True)
    digest = hashlib.sha256(path.read_bytes()).digest()
    return "sha256=" + urlsafe_b64encode(digest).decode().rstrip("="), str(path.stat().st_size)


def remove(path):
    """Delete a file, and the folders that are empty then."""
    path.unlink()
    for folder in path.parents:
        if folder == SITE or any(folder.iterdir()):
            break
        folder.rmdir()


def leave_out(rules):
    for rule in rules:
        record, rows = record_of(rule["package"])
        found = set(matching(rule, [row[0] for row in rows]))
        kept = []
        for row in rows:
            if row[0] not in found:
                kept.append(row)
            elif rule["debug"]:
                kept.append([row[0], *without_debug(SITE / row[0])])
            else:
                remove(SITE / row[0])
        write_record(record, kept)


def put_back(rules, folder):
    wheels = {}
    for rule in rules:
        if rule["devel"]:
            wheel = next(path for path in sorted(Path(folder).iterdir()) if path.name == rule["wheel"])
            wheels.setdefault((rule["package"], wheel), []).append(rule)
    for (package, wheel), own in wheels.items():
        with ZipFile(wheel) as archive:
            names = [name for rule in own for name in matching(rule, archive.namelist())]
            place = next(name for name in archive.namelist() if name.endswith(".dist-info/RECORD"))
            original = list(csv.reader(archive.read(place).decode().splitlines()))
            for name in names:
                extract(archive, name)
        record, rows = record_of(package)
        write_record(record, rows + [row for row in original if row[0] in set(names)])


def largest(archive):
    return max(archive.infolist(), key=lambda entry: (entry.compress_size, entry.filename)).filename


def extract(archive, name):
    """Write a file of a wheel as an installer does: read by all, executable if the wheel says so."""
    target = SITE / name
    target.parent.mkdir(parents=True, exist_ok=True)
    with archive.open(name) as source, target.open("wb") as file:
        while block := source.read(1 << 20):
            file.write(block)
    target.chmod(0o755 if archive.getinfo(name).external_attr >> 16 & 0o111 else 0o644)


if __name__ == "__main__":
    command, *words = sys.argv[1:]
    if command in ("leave-out", "put-back"):
        rules = json.loads(Path(words[0]).read_text())
        leave_out(rules) if command == "leave-out" else put_back(rules, words[1])
    else:
        for wheel in words:
            with ZipFile(wheel) as archive:
                if command == "move-out":
                    (SITE / largest(archive)).unlink()
                else:
                    extract(archive, largest(archive))
