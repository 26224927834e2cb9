"""Unpack archives of a job's logs (tar, packed or not, and zip) into a folder, safely: nothing is linked or run."""

import shlex
import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import IO

from trainwright.core.errors import ConfigError
from trainwright.diagnose import log_lines
from trainwright.diagnose.job.collect import NOT_LOGS

PIECE = 1 << 20  # bytes
LARGEST = 1 << 32  # bytes of all files of an archive
MOST_FILES, MOST_MEMBERS = 20_000, 200_000  # that are unpacked, that it has
DEEPEST = 50  # folders within each other
DAMAGED = (*log_lines.DAMAGED, tarfile.TarError, zipfile.BadZipFile, RuntimeError, NotImplementedError, ValueError)
USTAR = slice(257, 262)  # where a tar says that it is one
Member = tuple[str, IO[bytes]]


def unpacked(paths: list[str], folder: Path, names: dict[str, str]) -> tuple[list[str], dict[str, str]]:
    """Return the paths, each archive as a folder of its files, and what all files are called in an answer.

    Raises ConfigError for an archive that is damaged or too large.
    """
    found, names = list[str](), dict(names)
    for number, path in enumerate(paths):
        if not (members := _members(path)):
            found.append(path)
            continue
        into, shown = folder / f"archive-{number}" / "files", names.get(path, path)  # no name that says a rank
        try:
            names |= {str(file): f"{shown}/{file.relative_to(into)}" for file in _written(members, into)}
        except ConfigError as error:
            raise _unreadable(shown, error.why or error.what) from None
        except DAMAGED as error:
            raise _unreadable(shown, str(error)) from None
        if not into.is_dir():
            raise ConfigError(
                "no log in this archive", where=shown, why="no file in it may be one", fix="name the logs"
            )
        found.append(str(into))
        names[str(into)] = shown
    return found, names


def _unreadable(shown: str, why: str) -> ConfigError:
    fix = f"unpack what can be had by hand (tar -xf, unzip) of {shlex.quote(shown)}, and name the folder of the logs"
    return ConfigError("the archive cannot be read", where=shown, why=why, fix=fix)


def _members(path: str) -> Iterator[Member] | None:
    if path == log_lines.STANDARD_INPUT or not Path(path).is_file():
        return None
    if zipfile.is_zipfile(path):
        return _of_zip(path)
    with log_lines.opened_unpacked(path) as stream:
        return _of_tar(path) if stream.read(USTAR.stop)[USTAR] == b"ustar" else None


def _of_zip(path: str) -> Iterator[Member]:
    with zipfile.ZipFile(path) as archive:
        for entry in archive.infolist():
            if not entry.is_dir():
                with archive.open(entry) as content:
                    yield entry.filename, content


def _of_tar(path: str) -> Iterator[Member]:
    with log_lines.opened_unpacked(path) as stream:
        with tarfile.open(fileobj=stream, mode="r|") as archive:
            for entry in archive:
                if entry.isreg() and (content := archive.extractfile(entry)):
                    yield entry.name, content
                archive.members.clear()  # type: ignore[attr-defined]  # else tarfile keeps the header of each
        while stream.read(PIECE):  # the checksum at its end is compared
            pass


def _written(members: Iterator[Member], folder: Path) -> Iterator[Path]:
    left, written = LARGEST, 0
    for number, (name, content) in enumerate(members):
        parts = [part for part in PurePosixPath(name.replace("\\", "/")).parts if part not in ("/", "..")]
        if number >= MOST_MEMBERS:
            raise OSError(f"it has more than {MOST_MEMBERS} members")
        if not parts or len(parts) > DEEPEST or NOT_LOGS.search(parts[-1]):
            continue
        written += 1
        if written > MOST_FILES:
            raise OSError(f"it holds more than {MOST_FILES} files")
        file = folder.joinpath(*parts)
        file.parent.mkdir(parents=True, exist_ok=True)
        with file.open("wb") as out:
            while piece := content.read(PIECE):
                left -= out.write(piece)
                if left < 0:
                    raise OSError(f"it holds more than {LARGEST >> 30} GB")
        yield file
