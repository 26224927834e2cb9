"""Write small source distributions as setuptools would write them."""

import io
import tarfile
from hashlib import sha256
from pathlib import Path

BUILD_SYSTEM = '[build-system]\nrequires = ["setuptools"]\nbuild-backend = "setuptools.build_meta"\n'


def sdist(folder: Path, name: str, version: str, files: dict[str, str], requires: tuple[str, ...] = ()) -> str:
    """Write a source distribution; return its sha256. `files` maps paths to texts, `requires` are its requirements."""
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
