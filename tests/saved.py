"""An image as a registry would get it, and the secrets in it: in every file of every layer, and in every word of its
configuration, the history included. What a later layer deletes or replaces is still in the image.
"""

import gzip
import json
import re
import sys
import tarfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple


class Secret(NamedTuple):
    kind: str
    literal: bytes  # searched first: a regular expression over 2 GB takes minutes
    pattern: re.Pattern[bytes]
    limit: int  # only in files of at most so many bytes


@dataclass
class Saved:
    index: dict[str, Any]
    manifest: dict[str, Any]
    config: dict[str, Any]
    layers: list[list[tarfile.TarInfo]]  # lowest first
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
    """What lies in an OCI layout. `in_words`: what is searched for in the configuration beside `in_files`."""

    def blob(digest: str) -> bytes:
        return (layout / "blobs" / digest.replace(":", "/")).read_bytes()

    index = json.loads((layout / "index.json").read_text())
    manifest = json.loads(blob(index["manifests"][0]["digest"]))
    if "manifests" in manifest:  # an attestation made an index of it: a test of its own says so
        manifest = json.loads(blob(manifest["manifests"][0]["digest"]))
    config = json.loads(blob(manifest["config"]["digest"]))
    found = Saved(index, manifest, config, [], set())
    for word in words([index, manifest, config]):
        secrets = [*secrets_in(word.encode(), in_files), *(s.kind for s in in_words if s.pattern.search(word.encode()))]
        found.secrets |= {f"configuration: {kind}" for kind in secrets}
    for layer in manifest["layers"]:
        entries = []
        with tarfile.open(layout / "blobs" / layer["digest"].replace(":", "/"), "r|*") as archive:
            for entry in archive:
                content = archive.extractfile(entry) if entry.isreg() else None
                entry.name = entry.name.removeprefix("./").strip("/")
                entries.append(entry)
                if content:
                    kept = content.read()
                    found.secrets |= {f"{entry.name}: {kind}" for kind in secrets_in(kept, in_files)}
                    found.secrets |= {f"{entry.name}: {kind}" for kind in secrets_in(unpacked(kept), in_files)}
        found.layers.append(entries)
    return found


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
    try:
        return gzip.decompress(content)
    except (OSError, EOFError, zlib.error):
        return b""


def secrets_in(content: bytes, secrets: Sequence[Secret]) -> Iterator[str]:
    """The kinds of secret in a file."""
    for secret in secrets:
        at = content.find(secret.literal) if len(content) <= secret.limit else -1
        while at >= 0:
            if secret.pattern.search(content, max(0, at - 100), at + 400):
                yield secret.kind
                break
            at = content.find(secret.literal, at + 1)
