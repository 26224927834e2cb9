"""Run git with this host's settings, and read its objects, each verified against its id."""

import hashlib
import os
import re
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from subprocess import DEVNULL, PIPE, Popen
from typing import IO, NamedTuple, Protocol, cast

from trainwright.core import certificates, mirrors
from trainwright.core.errors import BuildError, EnvironmentProblem
from trainwright.core.process import environment, run

SUBMODULE = 0o160000  # git's own type of an entry; the other types are those of stat
# Names that stock git never writes: .git in any spelling that NTFS, or HFS+ (which skips some letters), equates; and
# .gitmodules as a link. In addition to `.`, `..` and names with a slash.
DOT_GIT = re.compile(r"(\.git|git~1)[. ]*([:\\].*)?", re.IGNORECASE | re.DOTALL)
DOT_GITMODULES = re.compile(r"(\.gitmodules|gitmod~[1-4])[. ]*(:.*)?", re.IGNORECASE | re.DOTALL)
SKIPPED_BY_HFS = re.compile("[\u200c-\u200f\u202a-\u202e\u206a-\u206f\ufeff]")
LONGEST_NAME, LONGEST_LINK, DEEPEST = 255, 4095, 200  # bytes, bytes, folders: Linux's limits
# Because a few objects can stand for billions of files. Components have hundreds of files; Linux 90,000, and 1.5 GB.
MOST_FILES, MOST_BYTES, LARGEST = 500_000, 4 << 30, 256 << 20

# The user's and the host's settings apply: proxies, credentials, extra headers, insteadOf. Those that would make the
# same command behave differently on another host are overridden.
SETTINGS = {
    "core.hooksPath": "/dev/null",
    "fetch.fsckObjects": "false",  # because every object is verified here, and old histories have harmless oddities
    "fetch.recurseSubmodules": "false",
    "gc.auto": "0",
    "http.lowSpeedLimit": "1000",  # bytes per second: abort on a silent server
    "http.lowSpeedTime": "60",  # seconds
    "protocol.file.allow": "always",  # a mirror may be a folder
}
# Variables with which a surrounding git (for example a hook) describes its own repository.
FOREIGN = ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_OBJECT_DIRECTORY", "GIT_COMMON_DIR", "GIT_NAMESPACE")


class NoAnswer(EnvironmentProblem):
    """A failed git command; a retry may succeed."""


class Damaged(Exception):
    """An object that is missing, or does not match its id."""


class Read(Protocol):
    """A function that returns the content of an object by its id and kind."""

    def __call__(self, name: str, kind: str) -> bytes: ...


class Entry(NamedTuple):
    """One file of a tree."""

    path: str  # every part is a plain name
    mode: int
    content: bytes  # of a symbolic link: its target


def git(repository: Path, *words: str | Path) -> str:
    """Return git's output. Raises NoAnswer with its last lines, which may contain an address with a password."""
    settings = [word for name, value in SETTINGS.items() for word in ("-c", f"{name}={value}")]
    return run(["git", *settings, f"--git-dir={repository}", *words], env=_environment(), error=NoAnswer)


def _environment() -> dict[str, str | None]:
    found: dict[str, str | None] = dict.fromkeys(FOREIGN)
    bundle = certificates.bundle()
    return found | mirrors.proxies() | {"GIT_TERMINAL_PROMPT": "0"} | ({"GIT_SSL_CAINFO": bundle} if bundle else {})


@contextmanager
def _reader(repository: Path) -> Iterator[Read]:
    """Yield a function that reads objects and verifies each id, because git verified them on arrival only."""
    command = ["git", f"--git-dir={repository}", "cat-file", "--batch"]
    own: dict[str, str | None] = {**dict.fromkeys(FOREIGN), "GIT_NO_REPLACE_OBJECTS": "1"}
    with Popen(command, stdin=PIPE, stdout=PIPE, stderr=DEVNULL, env=environment(own)) as child:
        questions, answers = cast(IO[bytes], child.stdin).fileno(), cast(IO[bytes], child.stdout)

        def read(name: str, kind: str) -> bytes:
            with suppress(BrokenPipeError):  # git has exited because the repository is gone: the answer is empty
                os.write(questions, f"{name}\n".encode())
            header = answers.readline().split()
            if len(header) == 3 and int(header[2]) > LARGEST:
                raise Damaged(f"the {kind} {name} has {int(header[2])} bytes; the limit is {LARGEST}")
            content = answers.read(int(header[2]) + 1)[:-1] if len(header) == 3 else b""
            algorithm = hashlib.sha1 if len(name) == 40 else hashlib.sha256
            if algorithm(f"{kind} {len(content)}\0".encode() + content).hexdigest() != name:
                raise Damaged(f"the {kind} {name} is missing or damaged")
            return content

        yield read


def files(repository: Path, commit: str) -> Iterator[Entry]:
    """Yield every file of a commit's tree, verified from the bytes up to the commit's id.

    Raises Damaged, and BuildError if the tree has a submodule or a name that git would not write.
    """
    with _reader(repository) as read:
        root = read(commit, "commit").split(b"\n", 1)[0].removeprefix(b"tree ")
        if not re.fullmatch(b"[0-9a-f]{%d}" % len(commit), root):
            raise Damaged(f"the commit {commit} does not name a tree")
        size = 0
        for number, entry in enumerate(_walk(read, root.decode(), ""), 1):
            size += len(entry.content)
            if number > MOST_FILES or size > MOST_BYTES:
                raise Damaged(f"the tree of {commit} has more than {MOST_FILES} files, or {MOST_BYTES} bytes")
            yield entry


def _walk(read: Read, tree: str, above: str) -> Iterator[Entry]:
    if above.count("/") > DEEPEST:
        raise Damaged(f"the tree {tree} is nested more than {DEEPEST} folders deep")
    rest, seen = read(tree, "tree"), set[bytes]()
    while rest:
        word, _, rest = rest.partition(b" ")
        name, _, rest = rest.partition(b"\0")
        identity, rest = rest[: len(tree) // 2].hex(), rest[len(tree) // 2 :]
        mode, path = int(word, 8) if re.fullmatch(b"[0-7]{5,6}", word) else 0, above + os.fsdecode(name)
        if name in seen or not _is_plain(os.fsdecode(name), stat.S_ISLNK(mode)):
            raise BuildError(
                f"{path!r} is not a valid path in a git tree",
                where=f"tree {tree}",
                why="the tree lists it twice" if name in seen else "git refuses to check out this name",
                fix="find out who made that commit: git itself does not write such a tree",
            )
        seen.add(name)
        if stat.S_ISDIR(mode):
            yield from _walk(read, identity, f"{path}/")
        elif mode == SUBMODULE:
            raise BuildError(
                f"{path} is a git submodule", why="submodules are not fetched", fix="lock a release without them"
            )
        elif stat.S_ISREG(mode) or stat.S_ISLNK(mode):
            content = read(identity, "blob")
            if stat.S_ISLNK(mode) and (not 0 < len(content) <= LONGEST_LINK or b"\0" in content):
                raise Damaged(f"the symbolic link {path!r} has no valid target")
            yield Entry(path, mode, content)
        else:
            raise Damaged(f"the tree {tree} contains an entry that is not a file, folder or symbolic link")


def _is_plain(name: str, link: bool) -> bool:
    """Return whether stock git would write a file or folder of this name."""
    if name in ("", ".", "..") or "/" in name or len(os.fsencode(name)) > LONGEST_NAME:
        return False
    return not (DOT_GIT.fullmatch(SKIPPED_BY_HFS.sub("", name)) or (link and DOT_GITMODULES.fullmatch(name)))


def committed(repository: Path, commit: str) -> int:
    """Return when a commit was made, in seconds since 1970. Raises Damaged."""
    with _reader(repository) as read:
        head = read(commit, "commit").split(b"\n\n", 1)[0]
    found = re.search(rb"^committer .* (\d{1,10}) [+-]\d+$", head, re.MULTILINE)
    if not found:
        raise Damaged(f"the commit {commit} has no date")
    return int(found[1])
