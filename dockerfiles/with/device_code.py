"""Check that a compiled wheel holds GPU code for each architecture of the image: device_code.py WHEEL 90 100.

It runs in the build, after the compilers. A package that finds no GPU there may compile something else without an
error: DeepSpeed compiles its operators for the CPU.
"""

import struct
import sys
import zipfile
from collections.abc import Iterator

SECTION = ".nv_fatbin"  # of an ELF file; fatbinary_section.h and fatBinaryCtl.h of the CUDA toolkit
MAGIC, HEADER = 0xBA55ED50, 16  # of a container: magic u32, version u16, header's size u16, size of its entries u64
MACHINE_CODE = 2  # kind of an entry; 1 is PTX
ARCHITECTURE = 28  # offset in an entry's header, u32


def section(elf: bytes) -> bytes:
    """Return the bytes of the section of a 64-bit little-endian ELF file; b"" without one."""
    if elf[:6] != b"\x7fELF\x02\x01":
        return b""
    (table,) = struct.unpack_from("<Q", elf, 40)
    size, count, names = struct.unpack_from("<HHH", elf, 58)
    headers = [struct.unpack_from("<IIQQQQ", elf, table + size * index) for index in range(count)]
    for name, _, _, _, offset, length in headers:
        start = headers[names][4] + name
        if elf[start : elf.index(b"\0", start)].decode() == SECTION:
            return elf[offset : offset + length]
    return b""


def architectures(code: bytes) -> Iterator[int]:
    """Return the architecture of each piece of machine code: 90 for sm_90."""
    at = 0
    while at + HEADER <= len(code):
        magic, _, header, length = struct.unpack_from("<IHHQ", code, at)
        if magic != MAGIC:
            at += 8  # containers are aligned
            continue
        entry, end = at + header, at + header + length
        while entry < end:
            kind, _, own, size = struct.unpack_from("<HHIQ", code, entry)
            if kind == MACHINE_CODE:
                yield struct.unpack_from("<I", code, entry + ARCHITECTURE)[0]
            entry += own + size
        at = end


def found(wheel: str) -> set[int]:
    with zipfile.ZipFile(wheel) as archive:
        libraries = [name for name in archive.namelist() if name.endswith(".so") or ".so." in name]
        return {number for name in libraries for number in architectures(section(archive.read(name)))}


def main(wheel: str, *wanted: str) -> None:
    held = found(wheel)
    missing = sorted({int(word) for word in wanted} - held)
    if missing:
        numbers = " ".join(f"sm_{number}" for number in missing)
        holds = " ".join(f"sm_{number}" for number in sorted(held)) or "none at all"
        sys.exit(
            f"{wheel.rsplit('/', 1)[-1]} holds no GPU code for {numbers}, but {holds}: set what its setup.py asks for "
            "in `environment` of its row in dockerfiles/additions.toml"
        )


if __name__ == "__main__":
    main(*sys.argv[1:])
