"""Make what foreign images are built from: packages that stand in for a framework with CUDA, libraries, wheels, uv."""

import shutil
import subprocess
import tomllib
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
REAL = "pytorch-2.13-cpu-py311-ec2"  # whose lock has the wheels of a real framework
TORCH = '''\
"""Stand in for PyTorch with CUDA: load a libnccl through a library of its own, as the real one does."""

import ctypes
import os

__version__ = "{says}"
library = ctypes.CDLL(os.path.join(os.path.dirname(__file__), "lib", "libtorch_cuda.so"))
'''
NCCL = """\
int ncclGetVersion(int *version) { *version = NUMBER; return 0; }
int ncclAllReduce(void) { return 1; }
"""
FINDS = {
    "rpath": ["-Wl,-rpath,$ORIGIN/../../nvidia/nccl/lib", "-Wl,--disable-new-dtags"],
    "runpath": ["-Wl,-rpath,$ORIGIN/../../nvidia/nccl/lib", "-Wl,--enable-new-dtags"],
    "loader": [],
}


class NotHere(Exception):
    """Something that this machine lacks, and without which an image is not made."""


def make(folder: Path) -> None:
    """Write the stand-ins, uv and relocate.sh into a folder. Raises NotHere without a C compiler."""
    if not shutil.which("cc"):
        raise NotHere("no C compiler makes the stand-ins for NCCL")
    said = tomllib.loads((HERE / "stand_ins.toml").read_text())
    for version in said["nccl"]:
        nccl(folder / "nccl" / version, version)
    for name, row in said["packages"].items():
        package(folder / name, row)
    for place, names in said["libraries"].items():
        for name in names:
            shared(folder / place / name, "int trainwright_stand_in;", [])
    for source in (HERE / "relocate.sh", ROOT / ".venv/bin/uv"):
        shutil.copy(source, folder / source.name)
    (folder / "wheels").mkdir()


def wheels(folder: Path, name: str = REAL) -> None:
    """Copy the wheels of the framework of a lock from the store into a folder. Raises NotHere if one is not there."""
    from trainwright.core import store

    lock = tomllib.loads((ROOT / f"dockerfiles/locks/{name}.toml").read_text())
    rows = [row for row in lock["python"] if row["group"] == "framework"]
    for row in rows:
        if not store.has(row["sha256"]):
            raise NotHere(f"the store lacks {row['file']}: trainwright fetch {name}")
    folder.mkdir(exist_ok=True)
    for row in rows:
        shutil.copy(store.path_of(row["sha256"]), folder / row["file"])


def package(folder: Path, row: dict[str, Any]) -> None:
    """Write a stand-in for torch, and the wheel with NCCL that it requires, as a folder for site-packages."""
    own = folder / "torch"
    (own / "lib").mkdir(parents=True)
    (own / "__init__.py").write_text(TORCH.format(says=row["says"]))
    place = folder / "nvidia/nccl/lib"
    nccl(place, row["nccl"])
    link = [f"-L{place}", "-Wl,--no-as-needed", "-l:libnccl.so.2", *FINDS[row["finds"]]]
    shared(own / "lib/libtorch_cuda.so", "int trainwright_stand_in;", link)
    described(folder, "torch", row["version"])
    if row["finds"] == "loader":
        shutil.rmtree(folder / "nvidia")
    else:
        described(folder, "nvidia-nccl-cu13", row["nccl"])


def described(folder: Path, name: str, version: str) -> None:
    place = folder / f"{name.replace('-', '_')}-{version}.dist-info"
    place.mkdir()
    (place / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")


def nccl(folder: Path, version: str) -> None:
    major, minor, patch = map(int, version.split("."))
    source = NCCL.replace("NUMBER", str(major * 10000 + minor * 100 + patch))
    shared(folder / "libnccl.so.2", source, ["-Wl,-soname,libnccl.so.2"])


def shared(path: Path, source: str, options: list[str]) -> None:
    """Compile a shared library that requires no C library, so that every distribution loads it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    words = ["cc", "-shared", "-fPIC", "-nostdlib", "-x", "c", "-", "-x", "none", *options, "-o", str(path)]
    subprocess.run(words, input=source, text=True, check=True, capture_output=True)
