"""Pack the folder of a script for sagemaker-training: a .tar.gz that is identical for identical files."""

import gzip
import io
import os
import sys
import tarfile
from collections.abc import Collection, Iterable
from fnmatch import fnmatchcase
from pathlib import Path

from trainwright.core.errors import ConfigError

MODES = {True: 0o755, False: 0o644}  # modes of executable and of other files


def pack(folder: Path, skip: Collection[str], most: int) -> tuple[bytes, list[str]]:
    """Return the packed folder and the paths in it. It contains no time, owner or order of this machine.

    Files and folders whose name matches one of `skip` are left out, and so is anything that is neither file nor folder.
    A link to a file inside the folder is followed; one to anything else is refused, as is one that leads outside, which
    the toolkit would refuse on each host. At most `most` packed and 10 * `most` unpacked bytes are allowed. Raises
    ConfigError.
    """
    names, packed, total = list[str](), io.BytesIO(), 0
    with (
        gzip.GzipFile(fileobj=packed, mode="wb", mtime=0, filename="") as zipped,
        tarfile.open(fileobj=zipped, mode="w", format=tarfile.GNU_FORMAT) as archive,
    ):
        for path in _files(folder, skip):
            try:
                content = path.read_bytes()
            except OSError as error:
                raise ConfigError("the source cannot be read", where=str(path), why=str(error.strerror)) from None
            total += len(content)
            if total > 10 * most or packed.tell() > most:
                raise _too_much(folder, most, names)
            entry = tarfile.TarInfo(str(path.relative_to(folder)))
            entry.size, entry.mode = len(content), MODES[os.access(path, os.X_OK)]
            archive.addfile(entry, io.BytesIO(content))
            names.append(entry.name)
    if len(packed.getvalue()) > most:
        raise _too_much(folder, most, names)
    refuse_hiding(names, folder)
    return packed.getvalue(), names


def modules(folder: Path) -> list[str]:
    """Return what Python can import from a folder as a module or a package: net.py, model/__init__.py."""
    return [str(path.relative_to(folder)) for form in ("*.py", "*/__init__.py") for path in folder.glob(form)]


def refuse_hiding(names: Iterable[str], where: Path) -> None:
    """Refuse a module with the name of a standard module; `names` are relative to the source. Raises ConfigError.

    Because Python searches the script's folder first, cProfile, and so torch, would import a profile.py there.
    """
    for name in sorted(names):
        module = name.removesuffix("/__init__.py").removesuffix(".py")
        if module != name and module in sys.stdlib_module_names:
            raise ConfigError(
                f"{name} has the name of a standard module of Python",
                where=str(where),
                why=f"`import {module}` in PyTorch or any library would import this file beside the script",
                fix=f"give it another name: my_{module}.py",
            )


def _too_much(folder: Path, most: int, names: list[str]) -> ConfigError:
    largest = max((folder / name for name in names), key=lambda path: path.stat().st_size, default=folder)
    return ConfigError(
        f"the folder of the script is larger than {most / 1e6:g} MB",
        where=str(folder),
        why=f"the whole folder becomes /opt/ml/code; its largest file so far is {largest.name}",
        fix="put the script into a separate folder, and data into a channel: --channel training=s3://...",
    )


def _files(folder: Path, skip: Collection[str]) -> list[Path]:
    inside, found = folder.resolve(), list[Path]()

    def unreadable(error: OSError) -> None:
        raise ConfigError("the source cannot be read", where=str(error.filename), why=str(error.strerror))

    for place, folders, files in os.walk(folder, onerror=unreadable):
        folders[:] = sorted(name for name in folders if not _like(name, skip))
        files = [name for name in files if not _like(name, skip)]
        for name in [*files, *folders]:
            path = Path(place, name)
            if path.is_symlink() and not path.resolve().is_relative_to(inside):
                raise _link(folder, path, "is a link out of the source", "which the hosts of the job do not have")
            if path.is_symlink() and not path.is_file():
                raise _link(folder, path, "is a link, but not to a file", "and would be left out silently")
        found += [Path(place, name) for name in files if Path(place, name).is_file()]
    return sorted(found)


def _like(name: str, patterns: Collection[str]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def _link(folder: Path, path: Path, what: str, why: str) -> ConfigError:
    return ConfigError(
        f"{path.relative_to(folder)} {what}",
        where=str(folder),
        why=f"it points to {path.resolve()}, {why}",
        fix="replace the link with a copy, or remove it from the folder",
    )
