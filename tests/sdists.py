"""A source distribution as setuptools would write it, small enough to be written in a test."""

import io
import tarfile
from hashlib import sha256
from pathlib import Path

BUILD_SYSTEM = '[build-system]\nrequires = ["setuptools"]\nbuild-backend = "setuptools.build_meta"\n'


def sdist(folder: Path, name: str, version: str, files: dict[str, str], requires: tuple[str, ...] = ()) -> str:
    """Write one into a folder; its sha256. `files` are path to text, `requires` what its metadata names."""
    path = folder / f"{name}-{version}.tar.gz"
    needs = "".join(f"Requires-Dist: {row}\n" for row in requires)
    texts = {"PKG-INFO": f"Metadata-Version: 2.2\nName: {name}\nVersion: {version}\n{needs}"}
    texts |= {"pyproject.toml": BUILD_SYSTEM} | files
    with tarfile.open(path, "w:gz") as archive:
        for file, text in texts.items():
            member = tarfile.TarInfo(f"{name}-{version}/{file}")
            member.size = len(text.encode())
            archive.addfile(member, io.BytesIO(text.encode()))
    return sha256(path.read_bytes()).hexdigest()
