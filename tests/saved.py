"""An image as a registry would get it, and the secrets in it: in every file of every layer, and in every word of its
configuration, the history included. What a later layer deletes or replaces is still in the image.

What one layer holds depends on that layer alone, so it is kept in the store by the layer's diff_id (its digest as
unpacked) and by the digest of this file and of the secrets that are searched for.
"""

import hashlib
import json
import re
import sys
import tarfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import IO, Any, NamedTuple, cast

from ahocorasick_rs import BytesAhoCorasick, MatchKind
from isal import igzip, isal_zlib

from trainwright.build import kept
from trainwright.lock.lockfile import digest

CHUNK = 1 << 16  # bytes; tarfile copies what is left of a chunk for each file
BEFORE, AFTER = 100, 500  # bytes around a literal in which its expression must match


class Secret(NamedTuple):
    kind: str
    literal: bytes  # searched first, for all secrets at once: a regular expression over 2 GB takes minutes
    pattern: re.Pattern[bytes]
    limit: int  # only in files of at most so many bytes


class Search:
    """Secrets in one pass over each file, for their literals are looked for all at once."""

    def __init__(self, secrets: Sequence[Secret]) -> None:
        self.secrets = secrets
        literals = sorted({secret.literal for secret in secrets})
        # Of two that overlap in a file only the first one is told: where it stands, the other one is looked for, too.
        self.meant = [
            [secret for secret in secrets if secret.literal == literal or _overlap(literal, secret.literal)]
            for literal in literals
        ]
        self.automaton = BytesAhoCorasick(literals, matchkind=MatchKind.LeftmostFirst)

    def kinds(self, content: bytes) -> set[str]:
        """The kinds of secret in a file."""
        found = set[str]()
        for number, start, _ in self.automaton.find_matches_as_indexes(content):
            for secret in self.meant[number]:
                wanted = secret.kind not in found and len(content) <= secret.limit
                if wanted and secret.pattern.search(content, max(0, start - BEFORE), start + AFTER):
                    found.add(secret.kind)
        return found


def _overlap(first: bytes, other: bytes) -> bool:
    """Whether `other` may begin within `first`, before its end."""
    return any(other.startswith(first[at : at + len(other)]) for at in range(1, len(first)))


class Entry(NamedTuple):
    """One path of a layer."""

    name: str
    type: str  # file, folder, link, or other: a hard link, a device
    mode: int
    uid: int
    gid: int
    link: str  # where a symlink points to
    capable: bool  # it has file capabilities


class Layer(NamedTuple):
    entries: list[Entry]
    secrets: list[str]  # `path: kind`


@dataclass
class Saved:
    index: dict[str, Any]
    manifest: dict[str, Any]
    config: dict[str, Any]
    layers: list[list[Entry]]  # lowest first
    secrets: set[str]  # `path: kind`, of every file in every layer; `configuration: kind` of what is said of the image


def kinds(rows: Mapping[str, Mapping[str, Any]]) -> list[Secret]:
    """The rows of expected.toml, ready to be searched for."""
    return [
        Secret(
            kind, row.get("literal", "").encode(), re.compile(row["pattern"].encode()), row.get("limit", sys.maxsize)
        )
        for kind, row in rows.items()
    ]


def read(layout: Path, in_files: Sequence[Secret], in_words: Sequence[Secret]) -> Saved:
    """What lies in an OCI layout. `in_words`: what is searched for in the configuration beside `in_files`.

    Raises ValueError for a layer that is not the one that the configuration names.
    """

    def blob(digest: str) -> Path:
        return layout / "blobs" / digest.replace(":", "/")

    index = json.loads((layout / "index.json").read_text())
    manifest = json.loads(blob(index["manifests"][0]["digest"]).read_bytes())
    if "manifests" in manifest:  # an attestation made an index of it: a test of its own says so
        manifest = json.loads(blob(manifest["manifests"][0]["digest"]).read_bytes())
    config = json.loads(blob(manifest["config"]["digest"]).read_bytes())
    found = Saved(index, manifest, config, [], set())
    search = Search(in_files)
    for word in words([index, manifest, config]):
        secrets = [*search.kinds(word.encode()), *(s.kind for s in in_words if s.pattern.search(word.encode()))]
        found.secrets |= {f"configuration: {kind}" for kind in secrets}
    check = {
        "code": kept.code(Path(__file__)),
        "tools": [[name, version(name)] for name in ("ahocorasick-rs", "isal")],
        "secrets": digest([[*s[:1], str(s.literal), s.pattern.pattern.decode(), s.limit] for s in in_files]),
    }
    for layer, diff_id in zip(manifest["layers"], config["rootfs"]["diff_ids"], strict=True):
        look = partial(scan, blob(layer["digest"]), diff_id, search)
        entries, secrets = kept.outcome("layer", {**check, "diff_id": diff_id}, look).outcome
        held = Layer([Entry(*row) for row in entries], secrets)
        found.layers.append(held.entries)
        found.secrets |= {*held.secrets}
    return found


def scan(path: Path, diff_id: str, search: Search) -> Layer:
    """The paths of one layer, and the secrets in its files. Raises ValueError where its digest is not `diff_id`."""
    held = Layer([], [])
    with path.open("rb") as file:
        unpacked_layer = Hashed(file)
        with tarfile.open(fileobj=cast(IO[bytes], unpacked_layer), mode="r|", bufsize=CHUNK) as archive:
            for entry in archive:
                name = entry.name.removeprefix("./").strip("/")
                capable = any("security.capability" in header for header in entry.pax_headers)
                about = (entry.mode, entry.uid, entry.gid, entry.linkname if entry.issym() else "", capable)
                held.entries.append(Entry(name, _type(entry), *about))
                if content := archive.extractfile(entry) if entry.isreg() else None:
                    whole = content.read()
                    found = search.kinds(whole) | search.kinds(unpacked(whole))
                    held.secrets.extend(f"{name}: {kind}" for kind in sorted(found))
        said = unpacked_layer.digest()
    if said != diff_id:
        raise ValueError(f"{path} holds the layer {said}, and the configuration names {diff_id}")
    return held


def _type(entry: tarfile.TarInfo) -> str:
    named = {"file": entry.isreg(), "folder": entry.isdir(), "link": entry.issym()}
    return next((name for name, it_is in named.items() if it_is), "other")


class Hashed:
    """A layer as unpacked, and the digest of all that it holds."""

    def __init__(self, file: IO[bytes]) -> None:
        packed = file.read(2) == b"\x1f\x8b"
        file.seek(0)
        unpacking: Any = igzip.IGzipFile
        self.file: IO[bytes] = unpacking(fileobj=file) if packed else file
        self.hash = hashlib.sha256()

    def read(self, size: int) -> bytes:
        chunk = self.file.read(size)
        self.hash.update(chunk)
        return chunk

    def digest(self) -> str:
        """Of the whole: what follows the archive's last entry counts, too."""
        while self.read(CHUNK):
            pass
        return f"sha256:{self.hash.hexdigest()}"


def words(said: object) -> Iterator[str]:
    """Every text in a JSON value, names of keys included: in JSON itself the lines of a key would be joined by \\n."""
    if isinstance(said, dict):
        for name, value in said.items():
            yield from words([f"{name}={value}" if isinstance(value, str) else name, value])
    elif isinstance(said, list):
        for value in said:
            yield from words(value)
    elif isinstance(said, str):
        yield said


def unpacked(content: bytes) -> bytes:
    """What a file that gzip made holds, an archive of files too; nothing for any other."""
    if content[:3] != b"\x1f\x8b\x08":
        return b""
    whole: Any = igzip.decompress  # it has no types
    try:
        return bytes(whole(content))
    except (OSError, EOFError, isal_zlib.error):  # type: ignore[misc] # its types call the class an exception
        return b""
