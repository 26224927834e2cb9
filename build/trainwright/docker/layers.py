"""Write a layer in one canonical form for every engine: its changes to the layers below, as a gzip-compressed tar.

Engines write the same layer in different ways: one lists unchanged directories, one marks a directory as opaque where
another lists each removed file, and each records its own times. So a layer is applied to the files below it, and
written anew from the resulting changes.
"""

import gzip
import hashlib
import tarfile
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import IO, NamedTuple

import deflate
import zstandard

LEVEL, MEMBER = 5, 4 << 20  # gzip level, as small as zlib's 6; bytes per gzip member, compressed in parallel
BLOCK = 512
GONE, ALL_GONE = ".wh.", ".wh..wh..opq"
CAPABILITY = "SCHILY.xattr.security.capability"
FILE, HARD_LINK, DIRECTORY = "0", "1", "5"
OCTAL = {8: 0o7777777, 12: 0o77777777777}  # the greatest number that a header field can hold


class Row(NamedTuple):
    """One path of a layer."""

    path: str  # without leading and trailing slashes
    kind: str  # type flag of tar's headers; FILE also for contiguous files
    mode: int
    uid: int
    gid: int
    mtime: int  # seconds
    size: int
    content: str  # sha256 (hex) of a file, target of a link, major:minor of a device
    capability: str  # the bytes of the extended attribute, hex; "" for none


class Node(NamedTuple):
    """The entry at a path; paths with the same `inode` are hard links to one file."""

    row: Row
    inode: int


def unpacked(blob: Path, target: Path) -> Path:
    """Return the path of a layer's tar: the blob, or its decompressed content in `target`. Raises OSError, EOFError."""
    with blob.open("rb") as file:
        head = file.read(4)
    if head[:2] == b"\x1f\x8b":
        with gzip.open(blob) as reader, target.open("wb") as writer:
            while chunk := reader.read(MEMBER):
                writer.write(chunk)
        return target
    if head == b"\x28\xb5\x2f\xfd":
        with blob.open("rb") as reader, target.open("wb") as writer:
            try:
                _unzstd(reader, writer)
            except zstandard.ZstdError as error:
                raise OSError(f"{blob}: {error}") from None
        return target
    return blob


def _unzstd(reader: IO[bytes], writer: IO[bytes]) -> None:
    """Decompress every frame. Raises EOFError if the last one is truncated, which the tar alone may not show."""
    frame = zstandard.ZstdDecompressor().decompressobj()
    while chunk := reader.read(MEMBER):
        while chunk:
            if frame.eof:
                frame = zstandard.ZstdDecompressor().decompressobj()
            writer.write(frame.decompress(chunk))
            chunk = frame.unused_data
    if not frame.eof:
        raise EOFError("the compressed data is truncated")


def rows_of(tar: Path) -> Iterator[tuple[Row, int]]:
    """Yield the tar's entries in order, each with the offset of its bytes. Raises tarfile.TarError."""
    with tar.open("rb") as data, tarfile.open(tar, "r:", bufsize=MEMBER) as archive:
        for member in archive:
            path = clean(member.name)
            if not path:  # engines leave out the entry for /
                continue
            kind, content = member.type.decode(), ""
            if member.isreg():
                if member.sparse is not None:
                    raise tarfile.TarError(f"{member.name} is a sparse file, which is not supported")
                kind, content = FILE, _sha256(data, member.offset_data, member.size)
            elif member.islnk():
                content = clean(member.linkname)
            elif member.issym():
                content = member.linkname
            elif member.isdev() and not member.isfifo():
                content = f"{member.devmajor}:{member.devminor}"
            size = member.size if kind == FILE else 0
            capability = member.pax_headers.get(CAPABILITY, "").encode("utf-8", "surrogateescape").hex()
            row = Row(
                path, kind, member.mode & 0o7777, member.uid, member.gid, int(member.mtime), size, content, capability
            )
            yield row, member.offset_data


def clean(path: str) -> str:
    return "/".join(part for part in path.split("/") if part not in ("", "."))


def _sha256(data: IO[bytes], offset: int, size: int) -> str:
    digest = hashlib.sha256()
    for chunk in _chunks(data, offset, size):
        digest.update(chunk)
    return digest.hexdigest()


def _chunks(data: IO[bytes], offset: int, size: int) -> Iterator[bytes]:
    data.seek(offset)
    while size > 0:
        chunk = data.read(min(size, MEMBER))
        if not chunk:
            raise EOFError(f"the tar ends {size} bytes too early")
        size -= len(chunk)
        yield chunk


class Tree:
    """The files of an image up to some layer."""

    def __init__(self) -> None:
        self.nodes: dict[str, Node] = {}
        self.names: dict[str, set[str]] = {"": set()}  # directory to the names in it
        self.inodes: dict[int, set[str]] = {}
        self._before: dict[str, Node | None] = {}  # paths that the present layer touched
        self._together: dict[str, frozenset[str]] = {}  # the hard links of each at that time
        self._number = 0

    def apply(self, rows: Iterable[Row], epoch: int) -> list[Row]:
        """Apply one layer and return its changes, sorted. `epoch` (seconds) is the upper limit of all times in it."""
        self._before, self._together = {}, {}
        rows = list(rows)
        added = [row for row in rows if not _name(row.path).startswith(GONE)]
        for row in rows:
            folder, name = _parent(row.path), _name(row.path)
            if name == ALL_GONE:
                for inner in list(self.names.get(folder, ())):
                    self._remove(_join(folder, inner))
            elif name.startswith(GONE):
                self._remove(_join(folder, name.removeprefix(GONE)))
        for row in added:
            self._put(row._replace(path=self._place(row.path), mtime=max(0, min(row.mtime, epoch))))
        return self._changes(epoch)

    def _place(self, path: str) -> str:
        """Resolve links among a path's directories and return the resulting path; create missing directories."""
        folder, seen = "", 0
        parts = deque(path.split("/"))
        while len(parts) > 1:
            step = _join(folder, parts.popleft())
            node = self.nodes.get(step)
            if node and node.row.kind == "2" and (seen := seen + 1) < 40:
                target = node.row.content
                base = [] if target.startswith("/") else folder.split("/")
                parts = deque([*_resolved(base, target), *parts])
                folder = ""
                continue
            if node is None or node.row.kind != DIRECTORY:
                self._put(Row(step, DIRECTORY, 0o755, 0, 0, 0, 0, "", ""))
            folder = step
        return _join(folder, parts[0])

    def _put(self, row: Row) -> None:
        path, inode = row.path, 0
        if row.kind == HARD_LINK:
            target = self._place(row.content)
            other = self.nodes.get(target)
            if other is None:
                raise tarfile.TarError(f"{path} is a hard link to {row.content}, which does not exist")
            if target == path:
                return
            for name in self.inodes[other.inode]:
                self._note(name)
            row, inode = other.row._replace(path=path), other.inode
        if row.kind == DIRECTORY:
            row = row._replace(mtime=0)  # times of directories are dropped, because overlays change them on copying
        known = self.nodes.get(path)
        self._note(path)
        if known and not (known.row.kind == DIRECTORY == row.kind):
            self._remove(path)
        elif known:
            self.inodes[known.inode].discard(path)
        if not inode:
            self._number += 1
            inode = self._number
        self.nodes[path] = Node(row, inode)
        self.inodes.setdefault(inode, set()).add(path)
        self.names.setdefault(_parent(path), set()).add(_name(path))
        if row.kind == DIRECTORY:
            self.names.setdefault(path, set())

    def _remove(self, path: str) -> None:
        node = self.nodes.get(path)
        if node is None:
            return
        self._note(path)
        for name in list(self.names.get(path, ())):
            self._remove(_join(path, name))
        self.names.pop(path, None)
        self.names[_parent(path)].discard(_name(path))
        self.inodes[node.inode].discard(path)
        del self.nodes[path]

    def _note(self, path: str) -> None:
        """Record a path's state, and that of all its hard links, because the first change separates them."""
        if path in self._before:
            return
        node = self.nodes.get(path)
        names = frozenset(self.inodes[node.inode]) if node else frozenset({path})
        for name in names:
            if name not in self._before:  # one by one: a set difference would scan all of _before each time
                self._before[name] = self.nodes.get(name)
                self._together[name] = names if node else frozenset()

    def _changes(self, epoch: int) -> list[Row]:
        changed, gone = set[str](), list[Row]()
        for path, before in self._before.items():
            now = self.nodes.get(path)
            if now is None:
                above = self.nodes.get(_parent(path))
                if before and (above is None or above.row.kind == DIRECTORY) and self._is_there(_parent(path)):
                    name = _join(_parent(path), GONE + _name(path))
                    gone.append(Row(name, FILE, 0, 0, 0, 0, 0, hashlib.sha256().hexdigest(), ""))
            elif before is None or before.row != now.row or not self.inodes[now.inode] <= self._together[path]:
                changed.add(path)
        for path in [*changed, *(row.path for row in gone)]:
            while (path := _parent(path)) and path not in changed:
                changed.add(path)
        first: dict[int, str] = {}
        found = gone
        for path in sorted(changed):
            row, inode = self.nodes[path]
            known = first.setdefault(inode, path)
            if known != path:
                row = row._replace(kind=HARD_LINK, size=0, content=known, capability="")
            found.append(row._replace(mtime=epoch) if row.kind == DIRECTORY else row)
        return sorted(found)

    def _is_there(self, folder: str) -> bool:
        return not folder or folder in self.nodes


def _parent(path: str) -> str:
    return path.rpartition("/")[0]


def _name(path: str) -> str:
    return path.rpartition("/")[2]


def _join(folder: str, name: str) -> str:
    return f"{folder}/{name}" if folder else name


def _resolved(base: Sequence[str], target: str) -> list[str]:
    found = [part for part in base if part]
    for part in clean(target).split("/"):
        if part == "..":
            del found[-1:]
        elif part:
            found.append(part)
    return found


class Written(NamedTuple):
    """A packed layer: sha256 (hex) of its tar and of the gzip, and the gzip's size in bytes."""

    tar: str
    blob: str
    size: int


def write(rows: Sequence[Row], tar: Path | None, offsets: dict[str, int], target: Path, threads: int) -> Written:
    """Write the rows as gzip to `target`. File contents come from `tar`, at the `offsets` of each content.

    Raises EOFError if the bytes do not match their row.
    """
    with ExitStack() as stack:
        data = stack.enter_context(tar.open("rb")) if tar else None
        pool = stack.enter_context(ThreadPoolExecutor(threads))
        out = stack.enter_context(target.open("wb"))
        whole, packed, size = hashlib.sha256(), hashlib.sha256(), 0
        waiting = deque[Future[bytearray]]()

        def drain(left: int) -> None:
            nonlocal size
            while len(waiting) > left:
                member = waiting.popleft().result()
                packed.update(member)
                size += out.write(member)

        for member in _members(_bytes_of(rows, data, offsets)):
            whole.update(member)
            waiting.append(pool.submit(deflate.gzip_compress, member, LEVEL))
            drain(2 * threads)  # limits memory use, whatever the size of the layer
        drain(0)
    return Written(whole.hexdigest(), packed.hexdigest(), size)


def _members(parts: Iterator[bytes]) -> Iterator[bytes]:
    """Split the bytes into pieces of one size."""
    held = bytearray()
    for part in parts:
        held += part
        while len(held) >= MEMBER:
            yield bytes(held[:MEMBER])
            del held[:MEMBER]
    if held:
        yield bytes(held)


def _bytes_of(rows: Sequence[Row], data: IO[bytes] | None, offsets: dict[str, int]) -> Iterator[bytes]:
    for row in rows:
        yield header(row)
        if row.kind == FILE and row.size:
            if data is None:
                raise EOFError(f"the content of {row.path} is not available")
            digest = hashlib.sha256()
            for chunk in _chunks(data, offsets[row.content], row.size):
                digest.update(chunk)
                yield chunk
            if digest.hexdigest() != row.content:
                raise EOFError(f"{row.path} changed while it was packed")
            yield bytes(-row.size % BLOCK)
    yield bytes(2 * BLOCK)


def header(row: Row) -> bytes:
    """Return a ustar header, preceded by a pax header for values that do not fit.

    It is written here because tarfile's bytes differ between versions of Python.
    """
    path = row.path + "/" * (row.kind == DIRECTORY)
    link = row.content if row.kind in (HARD_LINK, "2") else ""
    devices = row.content.split(":") if row.kind in ("3", "4") else ["0", "0"]
    more: dict[str, bytes] = {}
    for name, text in (("path", path), ("linkpath", link)):
        encoded = text.encode("utf-8", "surrogateescape")
        if len(encoded) > 100 or not text.isascii():
            more[name] = encoded
    for name, number, room in (("uid", row.uid, 8), ("gid", row.gid, 8), ("size", row.size, 12)):
        if number > OCTAL[room]:
            more[name] = str(number).encode()
    if row.capability:
        more[CAPABILITY] = bytes.fromhex(row.capability)
    found = b""
    if more:
        records = b"".join(_record(name.encode(), value) for name, value in sorted(more.items()))
        found = _block("PaxHeaders/next", "x", size=len(records)) + records + bytes(-len(records) % BLOCK)
    numbers = {"mode": row.mode, "uid": row.uid, "gid": row.gid, "mtime": row.mtime}
    return found + _block(path, row.kind, row.size, link, (int(devices[0]), int(devices[1])), **numbers)


def _record(name: bytes, value: bytes) -> bytes:
    rest = b" " + name + b"=" + value + b"\n"
    length = len(rest)
    while length != len(rest) + len(str(length)):
        length = len(rest) + len(str(length))
    return str(length).encode() + rest


def _block(
    path: str, kind: str, size: int = 0, link: str = "", device: tuple[int, int] = (0, 0), **numbers: int
) -> bytes:
    def text(value: str, room: int) -> bytes:
        return value.encode("ascii", "replace")[:room].ljust(room, b"\0")

    def number(value: int, room: int) -> bytes:
        return b"%0*o\0" % (room - 1, value if value <= OCTAL[room] else 0)

    fields = [
        text(path, 100),
        *(number(numbers.get(name, 0), 8) for name in ("mode", "uid", "gid")),
        number(size, 12),
        number(numbers.get("mtime", 0), 12),
        b" " * 8,
        kind.encode(),
        text(link, 100),
        b"ustar\x0000",
        bytes(64),  # no user and group names: they differ between images
        number(device[0], 8),
        number(device[1], 8),
        bytes(155 + 12),
    ]
    block = b"".join(fields)
    return block[:148] + b"%06o\0 " % sum(block) + block[156:]
