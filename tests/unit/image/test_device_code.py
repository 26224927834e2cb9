"""The check of a compiled wheel for GPU code, against libraries that are put together here after CUDA's headers."""

import struct
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[3] / "dockerfiles/with/device_code.py"
PTX, CUBIN = 1, 2


def container(*entries: tuple[int, int]) -> bytes:
    """Return a container of GPU code: (kind, architecture) of each entry."""
    body = b"".join(
        struct.pack("<HHIQ", kind, 0x101, 64, 16) + struct.pack("<12xI", architecture).ljust(48, b"\0") + b"\x7f" * 16
        for kind, architecture in entries
    )
    return struct.pack("<IHHQ", 0xBA55ED50, 1, 16, len(body)) + body


def library(code: bytes, section: bytes = b".nv_fatbin") -> bytes:
    """Return an ELF file with that section."""
    names = b"\0.shstrtab\0" + section + b"\0"
    table = 64 + len(names) + len(code)
    rows = [(0, 0, 0), (1, 64, len(names)), (11, 64 + len(names), len(code))]
    header = (
        b"\x7fELF\x02\x01\x01".ljust(40, b"\0")
        + struct.pack("<Q", table)
        + struct.pack("<IHHHHHH", 0, 64, 0, 0, 64, 3, 1)
    )
    assert len(header) == 64
    headers = b"".join(struct.pack("<IIQQQQ", name, 1, 0, 0, at, size).ljust(64, b"\0") for name, at, size in rows)
    return header + names + code + headers


def checked(folder: Path, files: dict[str, bytes], *wanted: int) -> subprocess.CompletedProcess[str]:
    wheel = folder / "ops-1.0-cp313-cp313-linux_x86_64.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    command = [sys.executable, str(SCRIPT), str(wheel), *map(str, wanted)]
    return subprocess.run(command, capture_output=True, text=True)


def test_all_there(tmp_path: Path) -> None:
    """Two containers in one library, padding between them, and a second library."""
    files = {
        "a.so": library(container((CUBIN, 80), (PTX, 80)) + bytes(8) + container((CUBIN, 90))),
        "b.cpython-313.so": library(container((CUBIN, 100))),
        "ops/__init__.py": b"",
    }
    said = checked(tmp_path, files, 80, 90, 100)
    assert (said.returncode, said.stderr) == (0, "")


@pytest.mark.parametrize(
    ("files", "holds"),
    [
        ({"a.so": library(container((CUBIN, 80)))}, "but sm_80"),
        ({"a.so": library(container((CUBIN, 80), (PTX, 90)))}, "but sm_80"),
        ({"a.so": library(b"", b".text")}, "but none at all"),
        ({"a.so": b"no ELF file"}, "but none at all"),
        ({"ops.py": container((CUBIN, 90))}, "but none at all"),
    ],
    ids=["another architecture", "PTX alone", "for CPUs", "no library", "not in a library"],
)
def test_missing(files: dict[str, bytes], holds: str, tmp_path: Path) -> None:
    said = checked(tmp_path, files, 90)
    assert said.returncode == 1
    assert "no GPU code for sm_90" in said.stderr
    assert holds in said.stderr
    assert "additions.toml" in said.stderr
