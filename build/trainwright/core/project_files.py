"""Read the files of a team's project: trainwright.toml, and what it lays over the installed data."""

import os
import re
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any

import tomli
from packaging.specifiers import InvalidSpecifier, SpecifierSet
from pydantic import Field

from trainwright import __version__
from trainwright.core.errors import ConfigError, EnvironmentProblem, did_you_mean
from trainwright.core.overlay import Merged, Said, by_key, merge
from trainwright.core.toml import Model, line_of, parse
from trainwright.core.toml import read as read_text

FILE = "trainwright.toml"
DATA, TESTS = "dockerfiles", "tests/image"  # folders of a project that are laid over the installed ones
WRITTEN = ("baselines", "gates", "locks", "proofs", "releases")  # folders of dockerfiles/ that commands write to
# Folders of dockerfiles/ that a project may add files to, and which ones; elsewhere it can only replace a file.
ADDS = {"layers": r"[\w.-]+\.(toml|j2)", "frameworks": r"[\w.-]+\.j2", "causes": r"[\w.-]+\.(toml|md)"}
ADDS |= {"recipes": r"[\w.-]+", "rootfs": r".+"}


class Settings(Model):
    """The whole of trainwright.toml."""

    trainwright: str  # which versions of this program the project is written for
    overlays: list[str] = Field(default=[])  # further folders with dockerfiles/, absolute or below the project


@dataclass
class Overlays:
    """What a project and its further overlays lay over the installed data."""

    settings: Settings
    state: list[Any]  # what tells it from another one
    files: dict[str, Path]  # whole files, by their path in the tree
    merged: dict[str, Merged]  # files that are merged by key
    replaced: list[str] = field(default_factory=list)  # those of `files` that the installed data has, too

    def facts(self) -> dict[str, Any]:
        """Return what later steps need of it, as values of JSON."""
        entries = [
            {"file": name, "path": list(entry.path), "value": entry.value, "before": entry.before, "where": entry.where}
            for name, merged in self.merged.items()
            for entry in merged.entries
        ]
        overrides = [
            {"file": name, **entry.override()}
            for name, merged in self.merged.items()
            for entry in merged.entries
            if entry.before is not None
        ]
        overrides += [
            {"file": name, "what": f"the file {name}", "was": "the installed one", "where": name}
            for name in self.replaced
        ]
        return {
            "files": {name: _fingerprint(path) for name, path in self.files.items()},
            "replaced": self.replaced,
            "entries": entries,
            "overrides": overrides,
            "origins": {name: merged.origins for name, merged in self.merged.items()},
        }


def settings(folder: Path) -> Settings:
    """Read trainwright.toml. Raises ConfigError; EnvironmentProblem if the project asks for another trainwright."""
    path = folder / FILE
    text = read_text(path, FILE)
    found = parse(text, Settings, FILE)
    line = line_of(text, ("trainwright",))
    try:
        wanted = SpecifierSet(found.trainwright)
    except InvalidSpecifier:
        raise ConfigError(
            f"{FILE} is not valid",
            where=f"{FILE}:{line}",
            why=f"trainwright = {found.trainwright!r} is not a range of versions, such as '>={__version__}'",
            fix=f"$EDITOR +{line} {FILE}",
        ) from None
    if not wanted.contains(__version__, prereleases=True):
        raise EnvironmentProblem(
            f"this project requires trainwright {found.trainwright}, and {__version__} is installed",
            where=f"{path}:{line}",
            why="its files were written for that version",
            fix=f"pip install --upgrade 'trainwright{found.trainwright}', then trainwright upgrade; "
            f"or, for {__version__}: $EDITOR +{line} {FILE}",
        )
    return found


def read(folder: Path, source: Path) -> Overlays:
    """Read all overlays of a project, and merge them over the installed data. Raises ConfigError for any that is wrong.

    No link, no `..`, no file that nothing reads, nothing that two overlays say differently.
    """
    said = settings(folder)
    held: dict[str, list[tuple[str, Path]]] = {}
    for root in [*_further(folder, said), folder]:
        for name, path in _files(root, folder):
            shown = str(path.relative_to(folder)) if path.is_relative_to(folder) else str(path)
            held.setdefault(name, []).append((shown, path))
    found = Overlays(said, [said.model_dump()], {}, {})
    for name, files in sorted(held.items()):
        found.state += [[shown, _fingerprint(path)] for shown, path in files]
        below = name.removeprefix(f"{DATA}/")
        if below != name and by_key(below):
            before = source / name
            texts = [Said(shown, read_text(path, shown)) for shown, path in files]
            found.merged[name] = merge(below, before.read_text() if before.is_file() else "", texts)
        else:
            _refuse_two(name, files)
            found.files[name] = files[0][1]
            if (source / name).is_file():
                found.replaced.append(name)
    _refuse_unread(found, source, held)
    _refuse_causes_twice(found, source)
    return found


def _further(folder: Path, said: Settings) -> Iterator[Path]:
    text = (folder / FILE).read_text()
    for name in said.overlays:
        line = line_of(text, ("overlays", name))
        where, fix = f"{FILE}:{line}", f"$EDITOR +{line} {FILE}"
        if ".." in Path(name).parts:
            why = "an overlay is named by an absolute path, or one below the project"
            raise ConfigError(f"the overlay {name!r} has '..' in its path", where=where, why=why, fix=fix)
        root = folder / name
        if not (root / DATA).is_dir():
            why = f"{root / DATA} is not a folder"
            raise ConfigError(f"the overlay {name!r} is not there", where=where, why=why, fix=fix)
        yield root


def _files(root: Path, folder: Path) -> Iterator[tuple[str, Path]]:
    """Yield the files of an overlay by their path in the tree. Raises ConfigError for a link."""
    for place in (DATA, "tests", TESTS):
        _refuse_link(root / place, folder)
    for part in (DATA, TESTS):
        for place, folders, files in os.walk(root / part):
            folders[:] = sorted(name for name in folders if name != "__pycache__" and not name.startswith("."))
            for name in sorted([*folders, *files]):
                path = Path(place, name)
                _refuse_link(path, folder)
                inside = path.relative_to(root)
                written = len(inside.parts) > 1 and inside.parts[0] == DATA and inside.parts[1] in WRITTEN
                if path.is_file() and not written and not name.startswith(".") and not name.endswith("~"):
                    yield str(inside), path


def _refuse_link(path: Path, folder: Path) -> None:
    if path.is_symlink():
        shown = path.relative_to(folder) if path.is_relative_to(folder) else path
        raise ConfigError(
            f"{shown} is a symbolic link",
            where=str(shown),
            why="a link can lead out of the overlay, and the overlay's digest does not cover its target",
            fix=f"rm {shown}, and put the file or folder itself there",
        )


def _refuse_two(name: str, files: list[tuple[str, Path]]) -> None:
    (first, path), *others = files
    for shown, other in others:
        if other.read_bytes() != path.read_bytes():
            raise ConfigError(
                f"two overlays disagree about {name}",
                where=f"{first} and {shown}",
                why="each has the whole file, with another content",
                fix=f"diff {first} {shown}   # remove it from one of them",
            )


def _refuse_unread(found: Overlays, source: Path, held: Mapping[str, list[tuple[str, Path]]]) -> None:
    """Raise ConfigError for a file that nothing reads: it would be in the overlay, and mean nothing."""
    components = {Path(name).stem for name in found.files if name.startswith(f"{DATA}/layers/")}
    components |= {path.stem for path in (source / DATA / "layers").glob("*.toml")}
    matrix = found.merged.get(f"{DATA}/matrix.toml")
    text = matrix.text if matrix else (source / DATA / "matrix.toml").read_text()
    parts = components | set(tomli.loads(text)["targets"]) | {"common"}
    for name, files in held.items():
        if not name.startswith(f"{DATA}/") or (source / name).is_file():
            continue
        folder, _, rest = name.removeprefix(f"{DATA}/").partition("/")
        shown = files[0][0]
        if not rest:
            known = [path.name for path in (source / DATA).glob("*") if path.is_file()]
            raise _unread(shown, did_you_mean(folder, known))
        if folder not in ADDS:
            known = sorted({path.name for path in (source / DATA).iterdir() if path.is_dir()})
            why = f"{folder}/ has no file of this name" if folder in known else did_you_mean(folder, known)
            raise _unread(shown, why)
        if not re.fullmatch(ADDS[folder], rest):
            raise _unread(shown, f"{DATA}/{folder}/ holds files of the form {ADDS[folder]}")
        if folder == "rootfs" and (part := rest.partition("/")[0]) not in parts:
            raise _unread(shown, f"{part!r} is neither a component nor a target; {did_you_mean(part, parts)}")


def _unread(shown: str, why: str) -> ConfigError:
    return ConfigError(f"nothing reads {shown}", where=shown, why=why, fix=f"mv {shown} <its right name>")


def _refuse_causes_twice(found: Overlays, source: Path) -> None:
    """Raise ConfigError for a cause whose id another file has: ids are of all files together."""
    whose: dict[str, str] = {}
    for path in sorted((source / DATA / "causes").glob("*.toml")):
        whose |= {row["id"]: f"{DATA}/causes/{path.name}" for row in tomli.loads(path.read_text())["causes"]}
    for name, merged in found.merged.items():
        for entry in merged.entries if name.startswith(f"{DATA}/causes/") else ():
            identity = entry.value.get("id", "") if isinstance(entry.value, dict) else ""
            if (other := whose.setdefault(identity, name)) != name:
                raise ConfigError(
                    f"the cause {identity!r} is in two files",
                    where=f"{entry.where} and {other}",
                    why=f"a row overrides another one of the same file: causes/{Path(other).name}",
                    fix=f"$EDITOR +{entry.line} {entry.file}   # move the row to {other}, or give it another id",
                )


def _fingerprint(path: Path) -> str:
    executable = "x" if path.stat().st_mode & stat.S_IXUSR else "-"
    return sha256(path.read_bytes()).hexdigest() + executable
