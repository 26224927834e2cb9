"""Prints as JSON, for each file named, which GPU code it holds: {"sass": ["80", "90"], "ptx": ["120"]}.

cuobjdump is a tool of the toolkit, so this reads the headers of the fat binaries itself: 16 bytes that begin with a
magic number and say how much follows, then per entry what it is (1: PTX, 2: machine code), its length and its
architecture; only the code behind these headers is compressed.
"""

import json
import mmap
import struct
import sys
from pathlib import Path

MAGIC = b"\x50\xed\x55\xba"
FAT = struct.Struct("<4sHHQ")  # magic, version, size of this header, size of all entries
ENTRY = struct.Struct(
    "<HHIQIIHHI"
)  # kind, version, size of this header, size, packed size, -, minor, major, architecture
KINDS = {1: "ptx", 2: "sass"}


def entries(content):
    at = content.find(MAGIC)
    while at >= 0:
        _, version, header, size = FAT.unpack_from(content, at)
        if (version, header) == (1, FAT.size):
            place, end = at + header, min(at + header + size, len(content) - ENTRY.size)
            while place < end:
                kind, _, length, payload, _, _, _, _, architecture = ENTRY.unpack_from(content, place)
                if kind not in KINDS or length < ENTRY.size:
                    break
                yield KINDS[kind], architecture
                place += length + payload
        at = content.find(MAGIC, at + len(MAGIC))


def architectures(path):
    found = {"sass": set(), "ptx": set()}
    with Path(path).open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        for kind, architecture in entries(content):
            found[kind].add(architecture)
    return {kind: [str(number) for number in sorted(numbers)] for kind, numbers in found.items()}


print(json.dumps({path: architectures(path) for path in sys.argv[1:]}))
