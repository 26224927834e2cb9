"""Test hostile git servers and mirrors, whose commit has the locked id but a tree that git would never write."""

import os
import subprocess
import zlib
from collections.abc import Callable
from hashlib import sha1
from pathlib import Path

import pytest

from trainwright.core import git
from trainwright.core.errors import TrainwrightError
from trainwright.matrix.model import Source
from trainwright.resolve import upstream

pytestmark = pytest.mark.usefixtures("bare_network")
URL = "https://git.example/team/thing"
FILE, RUN, LINK, TREE = "100644", "100755", "120000", "40000"
OWN, NEW = b"ssh-ed25519 mine\n", b"ssh-ed25519 theirs\n"


class Server:
    """A bare git repository on disk, written object by object."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        subprocess.run(["git", "init", "--quiet", "--bare", "--initial-branch=main", str(folder)], check=True)

    def keep(self, kind: str, content: bytes) -> str:
        data = f"{kind} {len(content)}\0".encode() + content
        name = sha1(data).hexdigest()
        path = self.folder / "objects" / name[:2] / name[2:]
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(zlib.compress(data))
        return name

    def blob(self, content: bytes = NEW) -> str:
        return self.keep("blob", content)

    def tree(self, *entries: tuple[str, bytes, str]) -> str:
        return self.keep("tree", b"".join(b"%b %b\0%b" % (m.encode(), n, bytes.fromhex(i)) for m, n, i in entries))

    def commit(self, tree: str, *, author: bytes = b"A <a@example.com> 1755600000 +0000") -> str:
        return self.offer(b"tree %b\nauthor %b\ncommitter %b\n\nx\n" % (tree.encode(), author, author))

    def offer(self, commit: bytes) -> str:
        name = self.keep("commit", commit)
        (self.folder / "refs/heads/main").write_text(f"{name}\n")
        return name


Attack = Callable[[Server, Path], str]  # the tree, given the folder that an attack is after


def named(name: bytes, mode: str = FILE) -> Attack:
    return lambda server, _: server.tree((mode, name, server.blob()))


def below(*names: bytes) -> Attack:
    """Return an attack: a file inside folders of these names."""

    def make(server: Server, _: Path) -> str:
        tree = server.tree((FILE, names[-1], server.blob()))
        for name in reversed(names[:-1]):
            tree = server.tree((TREE, name, tree))
        return tree

    return make


def absolute(server: Server, aim: Path) -> str:
    return server.tree((FILE, os.fsencode(aim / "authorized_keys"), server.blob()))


def through_a_link(server: Server, aim: Path) -> str:
    inner = server.tree((FILE, b"authorized_keys", server.blob()))
    return server.tree((LINK, b"a", server.blob(os.fsencode(aim))), (TREE, b"a", inner))


def file_over_a_link(server: Server, aim: Path) -> str:
    link = server.blob(os.fsencode(aim / "authorized_keys"))
    return server.tree((LINK, b"a", link), (FILE, b"a", server.blob()))


def twice(server: Server, _: Path) -> str:
    return server.tree((FILE, b"a", server.blob()), (FILE, b"a", server.blob(b"other")))


def file_and_folder(server: Server, _: Path) -> str:
    return server.tree((FILE, b"a", server.blob()), (TREE, b"a", server.tree((FILE, b"b", server.blob()))))


def submodule_file(server: Server, aim: Path) -> str:
    return server.tree((LINK, b".gitmodules", server.blob(os.fsencode(aim / "authorized_keys"))))


WRITES: dict[str, Attack] = {
    "a folder up": below(b"..", b"authorized_keys"),
    "two folders up": below(b"..", b"..", b"aim", b"authorized_keys"),
    "a folder up in one name": named(b"../aim/authorized_keys"),
    "an absolute path": absolute,
    "through a link of the same name": through_a_link,
    "over a link of the same name": file_over_a_link,
    "the same name twice": twice,
    "a file and a folder of one name": file_and_folder,
    "a slash in a name": named(b"a/b"),
    "no name": named(b""),
    "a dot": named(b"."),
    "a link of two dots": named(b"..", LINK),
    "a repository's hook": below(b".git", b"hooks", b"post-checkout"),
    "a repository in capitals": below(b".GIT", b"config"),
    "a repository as NTFS shortens it": below(b"git~1", b"config"),
    "a repository as NTFS ends it": below(b".git. . ", b"config"),
    "a repository as NTFS streams it": below(b".git::$INDEX_ALLOCATION", b"config"),
    "a repository before a backslash": named(b".git\\config"),
    "a repository as HFS+ reads it": below(".g\u200cit".encode(), b"config"),
    "submodules by a link": submodule_file,
    "submodules by a link, as NTFS ends it": named(b".GITmodules ", LINK),
    "a name that is too long": named(b"a" * 256),
    "a device": named(b"a", "20666"),
    "no mode": named(b"a", ""),
    "a mode that is no number": named(b"a", "10x644"),
    "a link to nothing": lambda server, _: server.tree((LINK, b"a", server.blob(b""))),
    "a link with a NUL": lambda server, _: server.tree((LINK, b"a", server.blob(b"a\0b"))),
    "a link that is too long": lambda server, _: server.tree((LINK, b"a", server.blob(b"a" * 5000))),
    "a tree cut off": lambda server, _: server.keep("tree", b"100644 a\0short"),
    "a tree of one word": lambda server, _: server.keep("tree", b"100644"),
}
# What stock git itself does not write with its defaults. It makes do with a tree that names one thing twice.
STOCK = {
    *list(WRITES)[:4],
    "a dot",
    "a link of two dots",
    *(name for name in WRITES if name.startswith(("a repo", "submod"))),
}
STOCK -= {"a repository as HFS+ reads it"}  # on macOS alone, and by fsck anywhere


@pytest.fixture
def aim(tmp_path: Path) -> Path:
    """Make a folder beside the target, with a file that must not change."""
    (tmp_path / "aim").mkdir()
    (tmp_path / "aim/authorized_keys").write_bytes(OWN)
    return tmp_path / "aim"


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Server:
    monkeypatch.setenv("TRAINWRIGHT_MIRRORS", f"{URL}={tmp_path / 'server'}")
    monkeypatch.setenv("TRAINWRIGHT_STORE", str(tmp_path / "store"))
    return Server(tmp_path / "server")


def everything(tmp_path: Path) -> dict[str, bytes]:
    """Return the contents of all files outside the store, the server and the target folder."""
    own = {"store", "server", "out"}
    found = [path for path in tmp_path.rglob("*") if path.relative_to(tmp_path).parts[0] not in own]
    return {str(path.relative_to(tmp_path)): path.read_bytes() for path in found if path.is_file()}


def obtain(server: Server, commit: str, target: Path) -> None:
    """Lay out a commit from the store, as if it had been fetched before such trees were refused."""
    upstream.path_of(commit).parent.mkdir(parents=True, exist_ok=True)
    upstream.path_of(commit).symlink_to(server.folder)
    upstream.lay_out(source(commit), target)


def source(commit: str) -> Source:
    return Source(name="thing", version="1", url=URL, commit=commit, tag="", licence="MIT")


@pytest.mark.parametrize("attack", WRITES)
def test_a_tree_that_no_git_writes_is_refused_and_writes_nothing(
    attack: str, server: Server, aim: Path, tmp_path: Path
) -> None:
    commit = server.commit(WRITES[attack](server, aim))
    before = everything(tmp_path)
    with pytest.raises(TrainwrightError) as refused:
        obtain(server, commit, tmp_path / "out/deep")
    assert everything(tmp_path) == before
    assert str(refused.value).isprintable()
    if attack in STOCK:  # the measure of what is refused
        words = ["git", f"--git-dir={server.folder}", f"--work-tree={aim}", "checkout", "--force", commit]
        assert subprocess.run(words, capture_output=True, cwd=aim).returncode
        assert everything(tmp_path) == before


def test_nothing_of_such_a_tree_is_kept(server: Server, aim: Path, tmp_path: Path) -> None:
    commit = server.commit(WRITES["a folder up"](server, aim))
    with pytest.raises(TrainwrightError, match="is not a valid path in a git tree"):
        upstream.fetch(source(commit), lambda _: None, lambda _: None)
    assert not list((tmp_path / "store").glob("*/*"))


def deep(server: Server) -> str:
    tree = server.tree((FILE, b"a", server.blob()))
    for _ in range(3000):
        tree = server.tree((TREE, b"a", tree))
    return tree


def many(server: Server) -> str:
    """Make a git bomb: 10 objects that describe 10 billion files."""
    tree, mode = server.blob(), FILE
    for _ in range(10):
        tree, mode = server.tree(*((mode, b"%d" % number, tree) for number in range(10))), TREE
    return tree


def large(server: Server) -> str:
    return server.tree((FILE, b"a", server.blob(bytes(git.LARGEST + 1))))


@pytest.mark.parametrize("attack", [deep, many, large])
def test_a_tree_without_end_is_one_error(
    attack: Callable[[Server], str], server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(git, "LARGEST", 1_000_000)
    monkeypatch.setattr(git, "MOST_FILES", 2_000)
    commit = server.commit(attack(server))
    with pytest.raises(TrainwrightError):
        obtain(server, commit, tmp_path / "out")


COMMITS = {
    "no tree": b"author A <a@b> 1 +0000\n\nx\n",
    "a tree that is no text": b"tree \xff\xfe\n\nx\n",
    "a tree of words": b"tree main^{tree}\n\nx\n",
    "empty": b"",
    "nobody committed it": b"tree %(tree)b\nauthor A <a@b> 1 +0000\n\nx\n",
    "a time that is none": b"tree %(tree)b\ncommitter A <a@b> soon +0000\n\nx\n",
    "a time without a number": b"tree %(tree)b\ncommitter \n\nx\n",
    "a time after the last": b"tree %(tree)b\ncommitter A <a@b> 99999999999999999999999 +0000\n\nx\n",
    "a time of 5,000 digits": b"tree %(tree)b\ncommitter A <a@b> " + b"9" * 5000 + b" +0000\n\nx\n",
}


@pytest.mark.parametrize("attack", COMMITS)
def test_a_commit_that_is_none_is_one_error(attack: str, server: Server, tmp_path: Path) -> None:
    tree = server.tree((FILE, b"a", server.blob()))
    commit = server.offer(COMMITS[attack].replace(b"%(tree)b", tree.encode()))
    with pytest.raises(TrainwrightError):
        obtain(server, commit, tmp_path / "out")


def test_a_file_is_written_through_no_link_that_was_put_there_meanwhile(aim: Path, tmp_path: Path) -> None:
    """Somebody else on this host, between two files."""
    (tmp_path / "out").mkdir()
    (tmp_path / "out/a").symlink_to(aim)
    (tmp_path / "out/b").symlink_to(aim / "authorized_keys")
    top = os.open(tmp_path / "out", os.O_RDONLY)
    for path in ("a/authorized_keys", "a/another", "b"):
        with pytest.raises(OSError, match=r"File exists|Not a directory"):
            upstream._write(top, git.Entry(path, 0o100644, NEW))
    os.close(top)
    assert (aim / "authorized_keys").read_bytes() == OWN
    assert not (aim / "another").exists()
