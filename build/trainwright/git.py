"""git as this host is told to use it, and its objects: each compared with its id when it is read."""

import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from subprocess import DEVNULL, PIPE, Popen
from typing import IO, NamedTuple, Protocol, cast

from trainwright import certificates, mirrors
from trainwright.errors import BuildError, EnvironmentProblem
from trainwright.process import environment, run

TREE, LINK, SUBMODULE = "40000", "120000", "160000"  # modes as git writes them

# This user's and this host's own settings stay: proxies, credentials, extra headers, insteadOf. What would make the
# same command do something else elsewhere does not.
SETTINGS = {
    "core.hooksPath": "/dev/null",
    "fetch.fsckObjects": "false",  # every object is verified here; old histories have harmless oddities
    "fetch.recurseSubmodules": "false",
    "gc.auto": "0",
    "http.lowSpeedLimit": "1000",  # bytes a second: a server that has fallen silent
    "http.lowSpeedTime": "60",  # seconds
    "protocol.file.allow": "always",  # a mirror may be a folder
}
# What a surrounding git (a hook, for one) tells about its own repository.
FOREIGN = ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_OBJECT_DIRECTORY", "GIT_COMMON_DIR", "GIT_NAMESPACE")


class NoAnswer(EnvironmentProblem):
    """git failed: worth another try."""


class Damaged(Exception):
    """An object is not there, or not what its id says."""


class Read(Protocol):
    """The content of an object by its id and kind."""

    def __call__(self, name: str, kind: str) -> bytes: ...


class Entry(NamedTuple):
    """One file of a tree."""

    path: str
    mode: str
    content: bytes  # of a symbolic link: where it leads


def git(repository: Path, *words: str | Path) -> str:
    """What git prints. Raises NoAnswer with its last words, which may carry an address and its password."""
    settings = [word for name, value in SETTINGS.items() for word in ("-c", f"{name}={value}")]
    return run(["git", *settings, f"--git-dir={repository}", *words], env=_environment(), error=NoAnswer)


def _environment() -> dict[str, str | None]:
    found: dict[str, str | None] = dict.fromkeys(FOREIGN)
    bundle = certificates.bundle()
    return found | mirrors.proxies() | {"GIT_TERMINAL_PROMPT": "0"} | ({"GIT_SSL_CAINFO": bundle} if bundle else {})


@contextmanager
def _reader(repository: Path) -> Iterator[Read]:
    """A way to read objects, each compared with its id: what git hands out was verified when it came in, not since."""
    command = ["git", f"--git-dir={repository}", "cat-file", "--batch"]
    own: dict[str, str | None] = {**dict.fromkeys(FOREIGN), "GIT_NO_REPLACE_OBJECTS": "1"}
    with Popen(command, stdin=PIPE, stdout=PIPE, stderr=DEVNULL, env=environment(own)) as child:
        questions, answers = cast(IO[bytes], child.stdin).fileno(), cast(IO[bytes], child.stdout)

        def read(name: str, kind: str) -> bytes:
            with suppress(BrokenPipeError):  # git has ended: it is no repository any more, and there is no answer
                os.write(questions, f"{name}\n".encode())
            header = answers.readline().split()
            content = answers.read(int(header[2]) + 1)[:-1] if len(header) == 3 else b""
            algorithm = hashlib.sha1 if len(name) == 40 else hashlib.sha256
            if algorithm(f"{kind} {len(content)}\0".encode() + content).hexdigest() != name:
                raise Damaged(f"the {kind} {name} is missing or damaged")
            return content

        yield read


def files(repository: Path, commit: str) -> Iterator[Entry]:
    """Every file of a commit's tree, verified from the bytes up to the commit's id.

    Raises Damaged, and BuildError for a submodule.
    """
    with _reader(repository) as read:
        root = read(commit, "commit").split(b"\n", 1)[0].removeprefix(b"tree ").decode()
        yield from _walk(read, root, "")


def _walk(read: Read, tree: str, above: str) -> Iterator[Entry]:
    rest = read(tree, "tree")
    while rest:
        mode, _, rest = rest.partition(b" ")
        name, _, rest = rest.partition(b"\0")
        identity, rest = rest[: len(tree) // 2].hex(), rest[len(tree) // 2 :]
        path = above + os.fsdecode(name)
        if mode.decode() == TREE:
            yield from _walk(read, identity, f"{path}/")
        elif mode.decode() == SUBMODULE:
            raise BuildError(
                f"{path} is a git submodule", why="submodules are not fetched", fix="lock a release without them"
            )
        else:
            yield Entry(path, mode.decode(), read(identity, "blob"))


def committed(repository: Path, commit: str) -> int:
    """When a commit was made: seconds since 1970. Raises Damaged."""
    with _reader(repository) as read:
        lines = read(commit, "commit").split(b"\n\n", 1)[0].split(b"\n")
    return int(next(line for line in lines if line.startswith(b"committer ")).split()[-2])
