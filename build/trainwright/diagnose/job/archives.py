"""Unpack archives of a job's logs (tar, packed or not, and zip) into a folder, safely: nothing is linked or run."""

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
MOST_FILES = 20_000
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
        into, shown = folder / str(number), names.get(path, path)
        try:
            names |= {str(file): f"{shown}/{file.relative_to(into)}" for file in _written(members, into)}
        except (OSError, EOFError, tarfile.TarError, zipfile.BadZipFile, RuntimeError, NotImplementedError) as error:
            fix = f"unpack it by hand (tar -xf {shown}, unzip {shown}), and name the folder of the logs"
            raise ConfigError("the archive cannot be read", where=shown, why=str(error), fix=fix) from None
        if not into.is_dir():
            raise ConfigError(
                "no log in this archive", where=shown, why="no file in it may be one", fix="name the logs"
            )
        found.append(str(into))
        names[str(into)] = shown
    return found, names


def _members(path: str) -> Iterator[Member] | None:
    if path == log_lines.STANDARD_INPUT or not Path(path).is_file():
        return None
    if zipfile.is_zipfile(path):
        return _of_zip(path)
    with log_lines.opened(path) as stream:
        return _of_tar(path) if stream.read(USTAR.stop)[USTAR] == b"ustar" else None


def _of_zip(path: str) -> Iterator[Member]:
    with zipfile.ZipFile(path) as archive:
        for entry in archive.infolist():
            if not entry.is_dir():
                with archive.open(entry) as content:
                    yield entry.filename, content


def _of_tar(path: str) -> Iterator[Member]:
    with log_lines.opened(path) as stream, tarfile.open(fileobj=stream, mode="r|") as archive:
        for entry in archive:
            if entry.isreg() and (content := archive.extractfile(entry)):
                yield entry.name, content


def _written(members: Iterator[Member], folder: Path) -> Iterator[Path]:
    left = LARGEST
    for number, (name, content) in enumerate(members):
        parts = [part for part in PurePosixPath(name.replace("\\", "/")).parts if part not in ("/", "..")]
        if not parts or NOT_LOGS.search(parts[-1]):
            continue
        file = folder.joinpath(*parts)
        file.parent.mkdir(parents=True, exist_ok=True)
        with file.open("wb") as out:
            while piece := content.read(PIECE):
                left -= out.write(piece)
                if left < 0 or number >= MOST_FILES:
                    raise OSError(f"it holds more than {LARGEST >> 30} GB, or {MOST_FILES} files")
        yield file
