"""Check that wheels would replace no file of this Python: refuse_overlaps.py FOLDER.

It runs in the build of a graft, with the Python of the image, before the wheels of a requirements file are installed.
An installer overwrites files of other packages without a warning: opencv-python and opencv-python-headless both have
cv2/. Files with the same bytes, such as an empty __init__.py, may share a path.
"""

import sys
import sysconfig
import zipfile
from collections.abc import Iterator
from configparser import ConfigParser
from pathlib import Path

SHOWN = 3
BLOCK = 1 << 20


def places(wheel: zipfile.ZipFile) -> Iterator[tuple[str, Path]]:
    """Yield each file of a wheel, and where it goes; for a script that an installer makes, "" and where it goes."""
    paths = {kind: Path(path) for kind, path in sysconfig.get_paths().items()}
    about = next((name for name in wheel.namelist() if name.endswith(".dist-info/WHEEL")), "")
    pure = not about or b"Root-Is-Purelib: false" not in wheel.read(about)  # else lib64 on a distribution with rpm
    for name in wheel.namelist():
        folder, _, rest = name.partition("/")
        if name.endswith("/"):
            continue
        if folder.endswith(".data"):
            kind, _, inner = rest.partition("/")
            if kind in paths:
                yield name, paths[kind] / inner
        else:
            yield name, paths["purelib" if pure else "platlib"] / name
        if rest == "entry_points.txt" and folder.endswith(".dist-info"):
            parser = ConfigParser(delimiters=("=",), strict=False, interpolation=None)
            parser.optionxform = str  # type: ignore[assignment, method-assign]
            parser.read_string(wheel.read(name).decode())
            for section in ("console_scripts", "gui_scripts"):
                if parser.has_section(section):
                    yield from (("", paths["scripts"] / script) for script in parser.options(section))


def differs(wheel: zipfile.ZipFile, name: str, path: Path) -> bool:
    """Return whether there is something else at a path than this file of a wheel."""
    if not path.is_symlink() and not path.exists():
        return False
    if not name or not path.is_file():
        return True
    with wheel.open(name) as ours, path.open("rb") as theirs:
        while block := ours.read(BLOCK):
            if theirs.read(len(block)) != block:
                return True
        return bool(theirs.read(1))


def main() -> str:
    """Return why the wheels cannot be installed; "" if they can."""
    told = []
    for file in sorted(Path(sys.argv[1]).iterdir()):
        with zipfile.ZipFile(file) as wheel:
            found = [str(path) for name, path in places(wheel) if differs(wheel, name, path)]
        if found:
            more = f" and {len(found) - SHOWN} more" if len(found) > SHOWN else ""
            told.append(f"{file.name} would replace {', '.join(found[:SHOWN])}{more}")
    return "; ".join(told)


if __name__ == "__main__":
    if why := main():
        sys.exit(f"refuse_overlaps: {why}")  # graft/with_file.py reads it
