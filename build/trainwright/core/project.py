"""Find the data that a command reads, and the folder that it writes to: a checkout, a team's project, or neither.

In a checkout both are the checkout. Elsewhere the installed data and the files of a project are laid out as one tree in
the store, which has the form of a checkout; `home` names the folder that its written files belong to.
"""

import json
import os
import re
import shutil
import stat
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from functools import lru_cache
from hashlib import sha256
from importlib import metadata
from pathlib import Path
from typing import Any

from trainwright.core import project_files, store
from trainwright.core.errors import ConfigError, EnvironmentProblem, Refusals, TrainwrightError
from trainwright.core.files import write
from trainwright.core.overlay import by_key, path_at
from trainwright.core.project_files import FILE, WRITTEN, Overlays
from trainwright.core.toml import line_of, line_setting

PACKAGE = Path(__file__).parents[1]
MATRIX = "dockerfiles/matrix.toml"
# What commands read outside of the package; pyproject.toml puts the same into the wheel.
PARTS = (
    *("dockerfiles", "scripts", "docs/examples", "docs/iam-policy.json", "docs/iam-launch-policy.json"),
    *("docs/iam-pull-policy.json", "tests/image", "tests/train", "tests/cluster", "tests/hostile/words.py"),
    *("tests/conftest.py", "tests/inside.py", "tests/saved.py", "tests/state.py", "tests/tls_index.py"),
    *("tests/wheel.py", "pyproject.toml"),
)
FACTS = ".project.json"  # in a tree of the store: what it was made of
CITED_FILE = r"dockerfiles/[\w./*-]*\w"  # a file, as messages name it
CITED = rf"(?<![\w/]){CITED_FILE}:\d+"
UNUSED = 7 * 86400  # seconds after which a tree that no command used is removed
PROVERS = ("pytest", "pytest-testinfra", "pytest-xdist")  # their versions decide what a kept test result is worth


def installed() -> Path:
    """Return the folder of the data that came with this program: of its wheel, or of the checkout that it is of."""
    data = PACKAGE / "data"
    return data if (data / MATRIX).is_file() else PACKAGE.parents[1]


def find(here: Path) -> Path:
    """Return the root that commands in a folder read: its checkout, or a tree of the store.

    Raises ConfigError for a project that is not valid, and EnvironmentProblem if the store cannot be written.
    """
    for folder in (here, *here.parents):
        if (folder / FILE).is_file():
            return tree(folder, declared=True)
        if (folder / MATRIX).is_file():
            return folder
    return tree(here)


def home(root: Path) -> Path:
    """Return the folder that the files written below a root belong to."""
    return Path(facts["home"]) if (facts := _facts(root)) else root


def is_project(root: Path) -> bool:
    """Return whether a root is the tree of a project."""
    return bool(_facts(root).get("declared"))


def make_out(root: Path) -> None:
    """Make out/ for a command that writes there without the lock of console.alone(), which makes it too."""
    (home(root) / "out").mkdir(parents=True, exist_ok=True)


def place(path: Path) -> Path:
    """Return the path at which a file of dockerfiles/ is written, which is another one in a tree of the store.

    The tree then shows the file by a link. Raises ConfigError outside a checkout and a project.
    """
    root = path.parents[2]
    if not (facts := _facts(root)):
        return path
    name = path.relative_to(root)
    if not facts["declared"]:
        raise ConfigError(
            f"{name} cannot be written here",
            where=facts["home"],
            why="this folder is neither a project nor a checkout, and the installed data is not changed",
            fix="trainwright init DIR, and the same command in DIR",
        )
    target = Path(facts["home"]) / name
    target.parent.mkdir(parents=True, exist_ok=True)
    _link(path, target)
    return target


@lru_cache(maxsize=64)
def _facts(root: Path) -> dict[str, Any]:
    """Return what a tree of the store was made of; {} for a checkout."""
    with suppress(OSError, ValueError):
        found: dict[str, Any] = json.loads((root / FACTS).read_text())
        return found
    return {}


def overlay(root: Path) -> dict[str, Any]:
    """Return what a project lays over the installed data, as Overlays.facts() has it; {} if there is nothing."""
    found: dict[str, Any] = _facts(root).get("overlay", {})
    return found


def overrides(root: Path) -> list[dict[str, str]]:
    """Return what of the installed data a project overrides: what, what it was, and where it is said."""
    rows: list[dict[str, str]] = list(overlay(root).get("overrides", []))
    if facts := _facts(root):
        locks, source = Path(facts["home"]) / "dockerfiles/locks", installed() / "dockerfiles/locks"
        names = sorted(path.name for path in locks.glob("[!.]*")) if facts["declared"] else []
        rows += [
            {"what": f"the lock {name}", "was": "the installed one", "where": f"dockerfiles/locks/{name}"}
            for name in names
            if (source / name).is_file()
        ]
    return rows


def original(error: TrainwrightError, here: Path) -> TrainwrightError:
    """Let an error name the files and lines that people have, as cite() does; `here` is the current folder."""
    try:
        return cite(error, find(here))
    except (TrainwrightError, OSError):
        return error


def cite(error: TrainwrightError, root: Path) -> TrainwrightError:
    """Let an error name the lines of a project's own files, and say which file is the installed one."""
    if not _facts(root) or error.cited:
        return error
    error.cited = True
    for row in error.rows if isinstance(error, Refusals) else ():
        cite(row, root)
    for name in ("where", "why"):
        found = re.sub(CITED, lambda found: cited(root, found[0]), getattr(error, name))
        setattr(error, name, found)
    if edited := re.fullmatch(rf"\$EDITOR \+(?P<line>\d+) (?P<file>{CITED_FILE})(?P<rest>.*)", error.fix):
        error.fix = _edit(root, edited["file"], int(edited["line"]), edited["rest"])
    return error


def cited(root: Path, where: str, key: str = "") -> str:
    """Return file:line as people have it: of a project's own file, or of the installed one, which it says.

    A value of several lines is one line in a merged file; `key` is what is meant of it.
    """
    name, _, number = where.rpartition(":")
    if not (facts := _facts(root)) or not number.isdigit():
        return where
    overlay = facts.get("overlay", {})
    if name not in overlay.get("origins", {}):
        written = name.removeprefix("dockerfiles/").partition("/")[0] in WRITTEN
        return where if name in overlay.get("files", {}) or written else f"{where} (installed)"
    if own := overlay["origins"][name].get(number):
        file, line = str(own[0]), int(own[1])
        return f"{file}:{_at_key(Path(facts['home'], file).read_text(), line, key)}"
    path = path_at((root / name).read_text(), int(number))
    if not (installed() / name).is_file():
        return where
    text = (installed() / name).read_text()
    return f"{name}:{_at_key(text, line_of(text, path), key)} (installed)"


def _at_key(text: str, line: int, key: str) -> int:
    return line_setting(text, key, line) if key else line


def _edit(root: Path, name: str, line: int, rest: str) -> str:
    """Return the command that edits a line of a project; the installed data is overridden in one, and not edited."""
    where = cited(root, f"{name}:{line}")
    if not _facts(root)["declared"]:
        return f"trainwright init DIR, and override {name}:{line} there"
    file, _, number = where.partition(":")
    if not where.endswith("(installed)"):
        return f"$EDITOR +{number} {file}{rest}"
    if by_key(name.removeprefix("dockerfiles/")):
        return f"$EDITOR {name}{rest or '   # override it there'}"
    return f"install -D -m 644 {installed() / name} {name} && $EDITOR +{line} {name}{rest}"


# --- a tree in the store ---------------------------------------------------------------------------------------------


@lru_cache(maxsize=8)
def tree(folder: Path, declared: bool = False) -> Path:
    """Return the tree for a folder outside a checkout. Lay it out again if an input changed.

    `declared`: the folder is a project. Raises ConfigError if that one is not valid.
    """
    source = installed()
    said = project_files.read(folder, source) if declared else None
    made_of = [str(folder), _state(source), said.state if said else None]
    address = sha256(json.dumps(made_of).encode()).hexdigest()
    trees = store.root() / "trees"
    whose = sha256(os.fsencode(folder)).hexdigest()[:12]
    made = trees / f"{whose}-{address[:16]}"
    with store.told():
        if why := store.own(trees):
            raise EnvironmentProblem(
                "the store cannot be used", where=str(trees), why=why, fix="TRAINWRIGHT_STORE=/some/folder"
            )
        if not (made / FACTS).is_file():
            with tempfile.TemporaryDirectory(dir=trees, prefix=".") as scratch:
                _lay_out(source, Path(scratch), folder, said)
                Path(scratch).chmod(0o755)
                with suppress(OSError):  # another process was quicker
                    Path(scratch).rename(made)
            _sweep(trees, made)
        os.utime(made)
        if said:
            _link_written(made, folder, source)
    return made


def _lay_out(source: Path, made: Path, folder: Path, said: Overlays | None) -> None:
    for name, path in files_of(source):
        copy(path, made / name)
    for name in WRITTEN:
        (made / "dockerfiles" / name).mkdir(exist_ok=True)
    (made / "out").symlink_to(folder / "out")
    (made / "requirements.lock").write_text("".join(f"{line}\n" for line in _provers()))
    facts: dict[str, Any] = {"home": str(folder), "declared": said is not None}
    if said:
        facts["overlay"] = said.facts()
        for name, path in said.files.items():
            copy(path, made / name)
        for name, merged in said.merged.items():
            write(made / name, merged.text)
    write(made / FACTS, json.dumps(facts, default=str))  # last: without it the tree is not used


def copy(path: Path, target: Path) -> None:
    """Copy a file and whether it can be executed, with fewer system calls than shutil: a tree has hundreds of files."""
    content, mode = path.read_bytes(), path.stat().st_mode
    try:
        target.write_bytes(content)
    except FileNotFoundError:  # one call more for a new folder instead of two more for each file
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content)
    target.chmod(0o755 if mode & stat.S_IXUSR else 0o644)


def _link_written(made: Path, folder: Path, source: Path) -> None:
    """Let the tree show the locks, proofs and other written files that the project has now."""
    for name in WRITTEN:
        shown, own = made / "dockerfiles" / name, folder / "dockerfiles" / name
        for link in shown.iterdir():
            if link.is_symlink() and not link.exists():  # the project's file is gone, so the installed one counts
                link.unlink(missing_ok=True)
                if (before := source / "dockerfiles" / name / link.name).is_file():
                    copy(before, link)
        for path in own.glob("[!.]*"):
            _link(shown / path.name, path)


def files_of(source: Path, parts: Iterable[str] = PARTS) -> Iterator[tuple[str, Path]]:
    """Yield the files of folders, by default those that commands read, by their path below the root."""
    for part in parts:
        if (source / part).is_dir():
            below = _below(source / part, "" if part == "." else f"{part}/")
            for name in sorted(below, key=lambda name: name.split("/")):
                yield name, source / name
        elif (source / part).is_file():
            yield part, source / part


def _below(folder: str | Path, prefix: str) -> Iterator[str]:
    """Yield the files below a folder, named with a prefix; quick, because every command in a project asks for them."""
    for entry in os.scandir(folder):
        if entry.is_dir(follow_symlinks=False):
            if entry.name != "__pycache__":
                yield from _below(entry.path, f"{prefix}{entry.name}/")
        elif entry.is_file():
            yield f"{prefix}{entry.name}"


def _state(source: Path) -> list[object]:
    """Return what tells one state of the installed data and of the code here from another one, without reading it."""
    found: list[object] = [str(source), *_provers()]
    code = [(name, PACKAGE / "core" / name) for name in ("overlay.py", "project.py", "project_files.py")]
    for name, path in (*code, *files_of(source)):
        about = path.stat()
        found.append([name, about.st_size, about.st_mtime_ns, about.st_mode & stat.S_IXUSR])
    return found


def _provers() -> list[str]:
    found = []
    for name in PROVERS:
        with suppress(metadata.PackageNotFoundError):
            found.append(f"{name}=={metadata.version(name)}")
    return found


def _link(link: Path, target: Path) -> None:
    """Make a link, or replace what is there, atomically."""
    if link.is_symlink() and link.readlink() == target:
        return
    new = link.with_name(f".{link.name}.{os.getpid()}")
    new.unlink(missing_ok=True)
    new.symlink_to(target)
    new.replace(link)


def _sweep(trees: Path, kept: Path) -> None:
    """Remove the trees that no command used for long."""
    for old in trees.iterdir():
        with suppress(OSError):
            if old != kept and time.time() - old.stat().st_mtime > UNUSED:
                shutil.rmtree(old)
