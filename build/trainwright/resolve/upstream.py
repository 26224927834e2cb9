"""Fetch sources of components (git trees at a commit, and files) once, verify every object, and lay them out."""

import os
import shutil
import stat
from contextlib import ExitStack, suppress
from pathlib import Path

from tenacity import Retrying, retry_if_exception_type, stop_after_attempt, wait_exponential_jitter

from trainwright.core import mirrors, store
from trainwright.core.errors import BuildError, EnvironmentProblem, LockError
from trainwright.core.git import Damaged, Entry, NoAnswer, committed, files, git
from trainwright.core.progress import Progress, Say
from trainwright.matrix.model import Source

EXECUTABLE = 0o100
DOCTOR = "trainwright doctor: it shows the mirrors in use"


def path_of(commit: str) -> Path:
    """Return the path of the bare repository that holds the tree of one commit."""
    return store.root() / "git" / commit


def has(source: Source) -> bool:
    return path_of(source.commit).is_dir() if source.commit else store.has(source.sha256)


def fetch(source: Source, say: Say, progress: Progress) -> None:
    """Fetch a source into the store and verify it.

    Raises LockError if the source has neither commit nor sha256 or is gone, BuildError if its bytes differ from the
    lock's, EnvironmentProblem if no server answers.
    """
    if not source.commit and not source.sha256:
        raise LockError(f"{source.name} {source.version} is blocked", why="neither commit nor sha256 is established")
    if has(source):
        return
    say(f"{source.name} {source.version}: fetching")
    if source.commit:
        fetch_git(source.url, source.commit, source.tag)
    elif lost := store.fetch([wanted_file(source)], progress):
        raise LockError(
            f"{source.name} {source.version} can no longer be fetched",
            why=lost[source.sha256],
            fix="trainwright doctor",
        )


def wanted_file(source: Source) -> store.Wanted:
    """Return a file source in the form that the store fetches: from its mirror if there is one."""
    return store.Wanted(name=source.file, sha256=source.sha256, size=source.size, urls=[source.url])


def fetch_git(url: str, commit: str, tag: str = "") -> Path:
    """Fetch the commit into a bare repository of the store, shallow if the server allows that."""
    place = path_of(commit)
    if place.is_dir():
        return place
    address = mirrors.redirect(url)
    try:
        with store.scratch() as folder:
            repository = folder / "git"
            for attempt in Retrying(
                retry=retry_if_exception_type(NoAnswer),
                stop=stop_after_attempt(4),
                wait=wait_exponential_jitter(multiplier=0.5, max=8),
                reraise=True,
            ):
                with attempt:
                    shutil.rmtree(repository, ignore_errors=True)
                    git(folder, "init", "--quiet", "--bare", "--template=", "--initial-branch=locked", repository)
                    _bring(repository, url, address, commit, tag)
            for _ in files(repository, commit):
                pass
            committed(repository, commit)
            place.parent.mkdir(parents=True, exist_ok=True)
            if not place.is_dir():  # another process may have been faster
                repository.rename(place)
    except NoAnswer as error:
        raise EnvironmentProblem(f"{url} cannot be fetched", where=address, why=error.why, fix=DOCTOR) from None
    except Damaged as error:
        raise BuildError(
            f"{url} at {commit} is not complete", where=address, why=f"{error}; nothing was kept", fix=DOCTOR
        ) from None
    except OSError as error:
        raise EnvironmentProblem(
            "the store cannot be written", where=str(store.root()), why=str(error), fix="TRAINWRIGHT_STORE=/some/folder"
        ) from None
    return place


def tags(url: str) -> dict[str, str]:
    """Return the commit of each tag, as the server (or its mirror) has them now. Raises EnvironmentProblem."""
    address = mirrors.redirect(url)
    try:
        return _tags(address)
    except NoAnswer as error:
        raise EnvironmentProblem(f"{url} cannot be queried", where=address, why=error.why, fix=DOCTOR) from None


def _tags(address: str) -> dict[str, str]:
    listed = git(Path("/"), "ls-remote", "--quiet", address, "refs/tags/*")
    found = {}
    for line in listed.splitlines():  # an annotated tag is listed twice; `^{}`, the second, is its commit
        identity, _, name = line.partition("\t")
        found[name.removeprefix("refs/tags/").removesuffix("^{}")] = identity
    return found


def _bring(repository: Path, url: str, address: str, commit: str, tag: str) -> None:
    """Fetch the least that the server gives: this commit, else this tag, else everything."""
    found = _tags(address)
    for name in [commit, f"refs/tags/{tag}"] if found.get(tag) == commit else [commit]:
        with suppress(NoAnswer):  # a server may refuse what is not advertised, or any shallow fetch
            _pull(repository, "--depth=1", address, name)
            return _keep(repository, commit)
    _pull(repository, address, "+refs/heads/*:refs/upstream/*", "+refs/tags/*:refs/tags/*")
    try:
        return _keep(repository, commit)
    except NoAnswer:
        if tag in found:
            raise BuildError(
                f"the tag {tag} of {url} names another commit than the lock",
                where=address,
                why=f"the lock has {commit}, the server has {found[tag]}; nothing was kept",
                fix="before you lock again, find out whether the tag was moved or the mirror has other content",
            ) from None
        raise LockError(
            f"{url} no longer has the commit {commit}", where=address, why=f"it has no tag {tag!r} either", fix=DOCTOR
        ) from None


def _pull(repository: Path, *words: str) -> None:
    git(repository, "fetch", "--quiet", "--no-tags", "--no-write-fetch-head", *words)


def _keep(repository: Path, commit: str) -> None:
    git(repository, "update-ref", "refs/heads/locked", commit)


# --- out of the store ------------------------------------------------------------------------------------------------


def lay_out(source: Source, target: Path) -> None:
    """Write a stored source below `target`: one file, or a git tree without .git, with reproducible modes and times.

    Raises BuildError if the source has changed inside the store, and removes it there.
    """
    if not source.commit:
        store.place(source.sha256, target / source.file, source.file)
        return
    repository = path_of(source.commit)
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    try:
        top = os.open(target, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        try:
            for entry in files(repository, source.commit):
                _write(top, entry)
        finally:
            os.close(top)
        epoch = committed(repository, source.commit)
    except Damaged as error:
        shutil.rmtree(repository, ignore_errors=True)
        raise BuildError(
            f"{source.name} {source.version} has changed inside the store",
            where=str(repository),
            why=f"{error}; it was removed",
            fix="run the same command again: it fetches the source again",
        ) from None
    for path in [target, *target.rglob("*")]:
        if not path.is_symlink():
            path.chmod(0o755 if path.is_dir() or path.stat().st_mode & EXECUTABLE else 0o644)
    for path in [*target.rglob("*"), target]:
        os.utime(path, (epoch, epoch), follow_symlinks=False)  # make compares times: no file is older than another


def _write(top: int, entry: Entry) -> None:
    """Write a file below an open folder; follow no links, and overwrite nothing."""
    *above, name = entry.path.split("/")
    folder = top
    with ExitStack() as opened:
        for part in above:
            with suppress(FileExistsError):
                os.mkdir(part, dir_fd=folder)
            folder = os.open(part, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=folder)
            opened.callback(os.close, folder)
        if stat.S_ISLNK(entry.mode):
            os.symlink(os.fsdecode(entry.content), name, dir_fd=folder)
            return
        mode = 0o755 if entry.mode & EXECUTABLE else 0o644
        with os.fdopen(
            os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, mode, dir_fd=folder), "wb"
        ) as file:
            file.write(entry.content)
