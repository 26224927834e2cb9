"""Test that a layer's packed bytes depend on its files alone, not on the engine, and that they contain all files."""

import gzip
import hashlib
import io
import random
import tarfile
import tracemalloc
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from trainwright.docker import layers
from trainwright.docker.layers import ALL_GONE, DIRECTORY, FILE, GONE, HARD_LINK, Row, Tree

EPOCH = 1_700_000_000
CAPABLE = "0100000200200000ff00000000000000fe000000"  # of setcap, with bytes that are no UTF-8
# Bytes of one layer that holds every kind of path, as gzip. They change with plan.PACKING and with deflate alone: then
# every image has another digest, and so another key.
KNOWN = "a6fa527b248079c9b3c07655c0fd98314e4c438ebcc7b798af754d3d2b8182a9"
YY = hashlib.sha256(b"yy").hexdigest()
NAMES = ("a", "b", "c", "ü", "n" * 120)
Files = dict[str, Row]


def file(path: str, content: str = "", mode: int = 0o644, **also: object) -> Row:
    digest = hashlib.sha256(content.encode()).hexdigest()
    return Row(path, FILE, mode, 0, 0, EPOCH - 5, len(content), digest, "")._replace(**also)  # type: ignore[arg-type]


def folder(path: str, mode: int = 0o755, mtime: int = EPOCH) -> Row:
    return Row(path, DIRECTORY, mode, 0, 0, mtime, 0, "", "")


def link(path: str, target: str, kind: str = "2") -> Row:
    return Row(path, kind, 0o777, 0, 0, EPOCH - 5, 0, target, "")


def gone(path: str) -> Row:
    """Return a deletion as one store writes it; other stores write another mode and time."""
    return file(path, mtime=EPOCH + 9, mode=0o600)


@st.composite
def trees(draw: st.DrawFn) -> Files:
    """Draw files of an image; folders come before what they contain."""
    wanted = draw(st.lists(st.tuples(st.lists(st.sampled_from(NAMES), min_size=1, max_size=3), st.integers(0, 9))))
    found: Files = {}
    for parts, number in wanted:
        path = "/".join(parts)
        above = ["/".join(parts[:end]) for end in range(1, len(parts))]
        if path in found or any(found.get(step, folder(step)).kind != DIRECTORY for step in above):
            continue
        found |= {step: folder(step) for step in above if step not in found}
        plain = [row.path for row in found.values() if row.kind == FILE]
        if number == 0:
            found[path] = folder(path, draw(st.sampled_from((0o755, 0o1777))))
        elif number == 1:
            found[path] = link(path, draw(st.sampled_from(("a", "/b/c", "../" + "x" * 120))))
        elif number == 2 and plain:
            found[path] = link(path, draw(st.sampled_from(plain)), HARD_LINK)
        elif number == 3:
            found[path] = Row(path, "3", 0o600, 0, 5, EPOCH, 0, "1:3", "")
        elif number == 4:
            found[path] = Row(path, "6", 0o600, 3_000_000, 0, EPOCH, 0, "", "")
        else:
            capable = CAPABLE if number == 5 else ""
            found[path] = file(path, draw(st.sampled_from(("", "x", "yy"))), capability=capable)
    return found


def resolved(files: Files) -> tuple[Files, dict[str, frozenset[str]]]:
    """Resolve each path to its file, and to all names of that file."""
    tree = Tree()
    tree.apply(files.values(), EPOCH)
    return (
        {path: node.row for path, node in tree.nodes.items()},
        {path: frozenset(tree.inodes[node.inode]) for path, node in tree.nodes.items()},
    )


def written(before: Files, after: Files, chance: random.Random) -> list[Row]:
    """Return a layer that leads from one state to the other, as some engine might write it, with a random order."""
    (was, were), (now, are) = resolved(before), resolved(after)
    rows, listed = [], {path for path in after if now[path] != was.get(path) or not are[path] <= were[path]}
    removed = [path for path in before if path not in after and now.get(above(path), folder("")).kind == DIRECTORY]
    for place in {above(path) for path in removed}:
        if place and chance.random() < 0.5:
            rows.append(gone(f"{place}/{ALL_GONE}"))
            listed |= {path for path in after if path.startswith(f"{place}/")}
        else:
            inner = [path for path in removed if above(path) == place]
            rows += [gone("/".join(filter(None, (place, GONE + path.rpartition("/")[2])))) for path in inner]
    listed |= {path for path in after if chance.random() < 0.3}
    for path in [*listed]:
        listed |= are[path]
        while path := above(path):
            listed.add(path)
    later = {path: row for path, row in after.items() if path in listed}
    rows += [
        row._replace(mtime=chance.randrange(EPOCH * 2)) if row.kind == DIRECTORY else row for row in later.values()
    ]
    return rows


def above(path: str) -> str:
    return path.rpartition("/")[0]


@given(trees(), trees(), st.randoms(use_true_random=False))
@settings(max_examples=60, deadline=None)
def test_however_it_is_written_it_comes_to_one_layer(before: Files, after: Files, chance: random.Random) -> None:
    found = []
    for _ in range(3):
        tree = Tree()
        tree.apply(before.values(), EPOCH)
        found.append(tree.apply(written(before, after, chance), EPOCH))
        assert {path: node.row for path, node in tree.nodes.items()} == resolved(after)[0]
    assert found[0] == found[1] == found[2]
    tree = Tree()
    tree.apply(before.values(), EPOCH)
    assert tree.apply(found[0], EPOCH) == found[0]  # and is what it was
    assert {path: node.row for path, node in tree.nodes.items()} == resolved(after)[0]


def test_a_file_with_two_names_that_is_written_as_it_was_is_no_change() -> None:
    """The second name is noted when the first one has left it already."""
    rows = [folder("a"), file("a/a", "x"), folder("c"), link("c/c", "a/a", HARD_LINK)]
    tree = Tree()
    tree.apply(rows, EPOCH)
    assert tree.apply(rows, EPOCH) == []


@given(trees())
@settings(max_examples=60, deadline=None)
def test_what_is_written_is_read(tmp_path_factory: pytest.TempPathFactory, files: Files) -> None:
    place = tmp_path_factory.mktemp("layer")
    tar, offsets = source(place / "source", ["", "x", "yy"])
    rows = Tree().apply(files.values(), EPOCH)
    made = layers.write(rows, tar, offsets, place / "packed", 2)
    content = gzip.decompress((place / "packed").read_bytes())
    (place / "tar").write_bytes(content)
    assert [row for row, _ in layers.rows_of(place / "tar")] == rows
    assert made == (
        hashlib.sha256(content).hexdigest(),
        hashlib.sha256((place / "packed").read_bytes()).hexdigest(),
        (place / "packed").stat().st_size,
    )


def source(place: Path, contents: Iterable[str]) -> tuple[Path, dict[str, int]]:
    """Write the contents of files one after the other; return the path and the offset of each."""
    offsets = {}
    with place.open("wb") as out:
        for content in contents:
            offsets[hashlib.sha256(content.encode()).hexdigest()] = out.tell()
            out.write(content.encode())
    return place, offsets


def every_kind() -> list[Row]:
    return [
        folder("d", 0o1777),
        file("d/capable", "x", 0o4755, capability=CAPABLE),
        link("d/hard", "d/capable", HARD_LINK),
        file("d/ünï", "yy", uid=3_000_000),
        file("d/\udcff"),
        file("n" * 150),
        link("link", "../" + "x" * 120),
        Row("null", "3", 0o666, 0, 0, EPOCH, 0, "1:3", ""),
        gone("d/.wh.away"),
    ]


def packed(place: Path, rows: list[Row], threads: int = 1) -> layers.Written:
    tar, offsets = source(place / "source", ["", "x", "yy"])
    tree = Tree()
    tree.apply([folder("d"), file("d/away")], EPOCH)
    return layers.write(tree.apply(rows, EPOCH), tar, offsets, place / "packed", threads)


def test_the_same_bytes_as_ever(tmp_path: Path) -> None:
    assert packed(tmp_path, every_kind()).blob == KNOWN
    assert packed(tmp_path, [gone("d/.wh.away"), *every_kind()[:-1]], 3).blob == KNOWN


def test_other_tools_read_it(tmp_path: Path) -> None:
    packed(tmp_path, every_kind())
    with tarfile.open(tmp_path / "packed") as archive:
        members = {member.name: member for member in archive}
    assert members["d/hard"].linkname == "d/capable"
    assert members["d/ünï"].uid == 3_000_000
    assert members["link"].linkname == "../" + "x" * 120
    assert (members["null"].devmajor, members["null"].devminor) == (1, 3)
    assert [member.uname + member.gname for member in members.values()] == [""] * len(members)
    assert "d/.wh.away" in members


@pytest.mark.parametrize(
    "change",
    [{"mode": 0o600}, {"uid": 7}, {"gid": 7}, {"mtime": 5}, {"capability": ""}, {"content": YY, "size": 2}],
    ids=lambda change: next(iter(change)),
)
def test_what_differs_makes_another_layer(tmp_path: Path, change: dict[str, Any]) -> None:
    rows = [row._replace(**change) if row.path == "d/capable" else row for row in every_kind()]
    assert packed(tmp_path, rows).blob != KNOWN


@pytest.mark.parametrize("mtime", [EPOCH, EPOCH + 1, EPOCH * 2])
def test_nothing_is_newer_than_the_layer(mtime: int) -> None:
    rows = Tree().apply([folder("d", mtime=mtime), file("d/f", mtime=mtime)], EPOCH)
    assert [row.mtime for row in rows] == [EPOCH, EPOCH]


def test_a_directory_that_did_not_change_is_left_out() -> None:
    tree = Tree()
    tree.apply([folder("etc"), folder("opt"), file("opt/f")], EPOCH)
    assert tree.apply([folder("etc", mtime=EPOCH + 7), folder("opt"), file("opt/f")], EPOCH) == []
    assert tree.apply([folder("etc", 0o700)], EPOCH) == [folder("etc", 0o700)]


def test_more_names_of_a_file_below_are_one_file() -> None:
    tree = Tree()
    tree.apply([file("a", "x")], EPOCH)
    rows = tree.apply([link("b", "a", HARD_LINK)], EPOCH)
    assert rows == [file("a", "x"), link("b", "a", HARD_LINK)._replace(mode=0o644)]


def test_a_path_through_a_link_below_lies_where_that_leads() -> None:
    tree = Tree()
    tree.apply([folder("usr"), folder("usr/lib"), link("lib", "usr/lib")], EPOCH)
    assert [row.path for row in tree.apply([file("lib/new")], EPOCH)] == ["usr", "usr/lib", "usr/lib/new"]


@pytest.fixture(scope="module")
def of_three_members(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, layers.Written]:
    """Make the content of a file, and pack it with three threads."""
    content, place = random.Random(1).randbytes(layers.MEMBER + 12345).hex(), tmp_path_factory.mktemp("members")
    tar, offsets = source(place / "source", [content])
    return content, layers.write([file("f", content)], tar, offsets, place / "packed", 3)


@pytest.mark.parametrize("threads", [1, 2, 7])
def test_as_many_threads_as_you_like(
    tmp_path: Path, of_three_members: tuple[str, layers.Written], threads: int
) -> None:
    content, made = of_three_members
    tar, offsets = source(tmp_path / "source", [content])
    assert layers.write([file("f", content)], tar, offsets, tmp_path / "packed", threads) == made
    with tarfile.open(tmp_path / "packed") as archive:
        first = archive.next()  # to ask for it by its name unpacks everything twice
        assert first is not None
        assert first.name == "f"
        held = archive.extractfile(first)
        assert held is not None
        assert held.read() == content.encode()


def test_a_large_file_never_lies_in_memory(tmp_path: Path) -> None:
    size = 192 << 20
    with (tmp_path / "source").open("wb") as out:
        out.truncate(size)
    zeros = hashlib.sha256()
    for _ in range(size >> 20):
        zeros.update(bytes(1 << 20))
    row = file("big")._replace(size=size, content=zeros.hexdigest())
    tracemalloc.start()
    try:
        layers.write([row], tmp_path / "source", {row.content: 0}, tmp_path / "packed", 2)
        assert tracemalloc.get_traced_memory()[1] < size / 4
    finally:
        tracemalloc.stop()


def test_a_file_that_changed_meanwhile_is_refused(tmp_path: Path) -> None:
    row = file("f", "x")
    (tmp_path / "source").write_bytes(b"y")
    with pytest.raises(EOFError, match="f changed while it was packed"):
        layers.write([row], tmp_path / "source", {row.content: 0}, tmp_path / "packed", 1)
    with pytest.raises(EOFError, match="is not available"):
        layers.write([row], None, {}, tmp_path / "packed", 1)


def test_a_link_to_nothing_is_refused() -> None:
    with pytest.raises(tarfile.TarError, match="which does not exist"):
        Tree().apply([link("b", "a", HARD_LINK)], EPOCH)


def test_compressed_or_not(tmp_path: Path) -> None:
    packing = io.BytesIO()
    with tarfile.open(fileobj=packing, mode="w") as archive:
        archive.addfile(tarfile.TarInfo("./f"))
        archive.addfile(tarfile.TarInfo("."))
    (tmp_path / "plain").write_bytes(packing.getvalue())
    (tmp_path / "gzip").write_bytes(gzip.compress(packing.getvalue()))
    frames = [packing.getvalue()[:700], packing.getvalue()[700:]]
    (tmp_path / "zstd").write_bytes(b"".join(map(zstandard.compress, frames)))
    for name in ("plain", "gzip", "zstd"):
        tar = layers.unpacked(tmp_path / name, tmp_path / f"{name}.tar")
        assert [row.path for row, _ in layers.rows_of(tar)] == ["f"]


@pytest.mark.parametrize("kept", [4, 30, -1])
def test_what_is_compressed_must_be_whole(tmp_path: Path, kept: int) -> None:
    whole = zstandard.compress(random.Random(1).randbytes(2000))
    (tmp_path / "zstd").write_bytes(whole[:kept])
    with pytest.raises(EOFError):
        layers.unpacked(tmp_path / "zstd", tmp_path / "tar")
    (tmp_path / "zstd").write_bytes(whole[:4] + b"\xff" + whole[5:])
    with pytest.raises(OSError, match="zstd"):
        layers.unpacked(tmp_path / "zstd", tmp_path / "tar")
