"""The content-addressed store: each file once, by its sha256, verified when it is added and when it is used."""

import errno
import hashlib
import os
import shutil
import stat
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit
from urllib.request import proxy_bypass

import platformdirs
from tenacity import Retrying, retry_if_exception, sleep_using_event, stop_after_attempt, wait_exponential_jitter

from trainwright.core import certificates, files, mirrors
from trainwright.core.errors import BuildError, EnvironmentProblem, without_password
from trainwright.core.toml import Model

if TYPE_CHECKING:
    import httpx  # imported late: it takes a tenth of a second, which most commands save

CHUNK = 1 << 20  # bytes


class Wanted(Model):
    """One file to fetch: its checksum, and the addresses of its bytes, best first.

    Only the first address decides whether a file is gone; the others are fallbacks. A mirror (TRAINWRIGHT_MIRRORS)
    replaces any address that it matches.
    """

    name: str
    sha256: str
    size: int | None  # bytes; 0 or None if unknown
    urls: list[str]


class Unobtainable(Exception):
    """Raised if a file is gone from its source, and no other address has it. The caller decides what that means."""


def root() -> Path:
    """Return TRAINWRIGHT_STORE, or a folder in the user's cache."""
    return Path(os.environ.get("TRAINWRIGHT_STORE") or platformdirs.user_cache_path("trainwright") / "store")


def path_of(sha256: str) -> Path:
    return root() / "sha256" / sha256[:2] / sha256


def has(sha256: str) -> bool:
    return path_of(sha256).is_file()


def sha256_of(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@contextmanager
def scratch() -> Iterator[Path]:
    """Yield a folder on the store's own disk, which is always removed afterwards. Raises EnvironmentProblem."""
    with ExitStack() as stack:
        with told():
            root().mkdir(parents=True, exist_ok=True)
            folder = stack.enter_context(files.scratch(root(), ".partial-"))
        yield folder


def own(folder: Path) -> str:
    """Make a folder for executables; return why it must not be used, or "" if only this user and root can write there.

    A folder of ours that others can write to is emptied, so that its contents are created anew. Raises OSError.
    """
    root().mkdir(parents=True, exist_ok=True)
    for place in [place for place in reversed(folder.parents) if root() in place.parents] + [folder]:
        place.mkdir(mode=0o755, exist_ok=True)
        about = place.stat()
        if about.st_uid not in (0, os.geteuid()):
            return f"{place} belongs to user {about.st_uid}"
        if about.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            shutil.rmtree(place)
            place.mkdir(mode=0o755)
    return ""


@contextmanager
def told() -> Iterator[None]:
    """Turn a failure to write the store into an EnvironmentProblem."""
    try:
        yield
    except OSError as error:
        if error.errno == errno.ENOSPC:
            raise _disk_full(str(error)) from None
        raise EnvironmentProblem(
            "the store cannot be written", where=str(root()), why=str(error), fix="TRAINWRIGHT_STORE=/some/folder"
        ) from None


def add(file: Path, sha256: str) -> Path:
    """Move a finished file into the store, under its hash."""
    place = path_of(sha256)
    place.parent.mkdir(parents=True, exist_ok=True)
    file.chmod(0o444)
    file.replace(place)
    return place


def place(sha256: str, target: Path, name: str) -> None:
    """Hard-link a verified file to `target`, or copy it if the disks differ. Raises BuildError if its hash is wrong."""
    source = path_of(sha256)
    found = sha256_of(source)
    if found != sha256:
        source.unlink()
        raise BuildError(
            f"{name} has changed inside the store",
            where=str(source),
            why=f"expected sha256 {sha256}, found {found}; it was removed",
            fix="run the same command again: the file is fetched anew",
        )
    target.parent.mkdir(parents=True, exist_ok=True)
    target.unlink(missing_ok=True)
    try:
        target.hardlink_to(source)
    except OSError:
        shutil.copyfile(source, target)


def client(insecure: Sequence[str] = ()) -> "httpx.Client":
    """Return an HTTP client with the host's proxy variables, .netrc and CAs (see `certificates`).

    `insecure` are hosts whose certificate is not checked. Raises ConfigError, EnvironmentProblem for an invalid CA.
    """
    import httpx

    netrc = Path(os.environ.get("NETRC", "~/.netrc")).expanduser()
    return httpx.Client(
        auth=httpx.NetRCAuth(str(netrc)) if netrc.exists() else None,
        verify=certificates.context(certificates.bundle()),
        mounts={f"https://{host}": httpx.HTTPTransport(verify=False, proxy=_proxy(host)) for host in insecure},
        follow_redirects=True,
        timeout=httpx.Timeout(60, connect=15),
    )


def _proxy(host: str) -> str | None:
    """Return the proxy of an HTTPS host; None without one."""
    return None if proxy_bypass(host) else mirrors.proxies().get("https_proxy")


def _worth_retrying(error: BaseException) -> bool:
    import httpx

    if isinstance(error, httpx.HTTPStatusError):
        return error.response.status_code >= 500 or error.response.status_code in (408, 425, 429)
    return isinstance(error, httpx.TransportError) and not isinstance(error, httpx.UnsupportedProtocol)


def _copy(
    url: str, target: Path, wanted: Wanted, http: "httpx.Client", progress: Callable[[int], None], stop: Event
) -> str:
    """Download one address into `target`, and return the sha256. A broken download is resumed.

    Reading stops once the server has sent more bytes than the file has.
    """
    import httpx

    hasher, done = hashlib.sha256(), 0
    if target.exists():
        done = target.stat().st_size
        with target.open("rb") as part:
            hasher = hashlib.file_digest(part, "sha256")
    if hasher.hexdigest() == wanted.sha256:  # the broken download was already complete
        return wanted.sha256
    if url.startswith("file:"):
        source = Path(unquote(urlsplit(url).path))
        if not source.is_file():
            raise FileNotFoundError(url)
        with source.open("rb") as reader, target.open("wb") as writer:
            while chunk := reader.read(CHUNK):
                writer.write(chunk)
                hasher.update(chunk)
                progress(len(chunk))
        return hasher.hexdigest()
    headers = {"Accept-Encoding": "identity"} | ({"Range": f"bytes={done}-"} if done else {})
    own = "@" in urlsplit(url).netloc  # credentials in an address take precedence over .netrc
    with http.stream("GET", url, headers=headers, auth=None if own else httpx.USE_CLIENT_DEFAULT) as answer:
        answer.raise_for_status()
        if done and answer.status_code != httpx.codes.PARTIAL_CONTENT:  # a server without ranges starts over
            target.unlink()
            hasher = hashlib.sha256()
        with target.open("ab") as writer:
            for chunk in answer.iter_raw():  # unbuffered: a broken line loses nothing, and Ctrl-C does not wait
                if stop.is_set():
                    raise KeyboardInterrupt
                writer.write(chunk)
                hasher.update(chunk)
                progress(len(chunk))
                if wanted.size and writer.tell() > wanted.size:
                    break
    return hasher.hexdigest()


def _fetch_one(
    wanted: Wanted, folder: Path, http: "httpx.Client", progress: Callable[[int], None], stop: Event
) -> None:
    """Fetch one file from the first address that has it.

    Raises Unobtainable; EnvironmentProblem if it is unknown whether the file is gone; BuildError for a wrong checksum.
    """
    import httpx

    target = folder / wanted.sha256
    failures: list[str] = []
    gone = True
    for url in map(mirrors.redirect, wanted.urls):
        target.unlink(missing_ok=True)
        try:
            for attempt in Retrying(
                retry=retry_if_exception(_worth_retrying),
                stop=stop_after_attempt(4),
                wait=wait_exponential_jitter(multiplier=0.5, max=8),
                sleep=sleep_using_event(stop),
                reraise=True,
            ):
                with attempt:
                    found = _copy(url, target, wanted, http, progress, stop)
        except (httpx.HTTPError, httpx.InvalidURL, FileNotFoundError) as error:
            gone = gone and (bool(failures) or _says_gone(error))
            failures.append(without_password(f"{url}: {(str(error) or type(error).__name__).splitlines()[0]}"))
            continue
        if found != wanted.sha256:
            raise BuildError(
                f"the checksum of {wanted.name} does not match",
                where=without_password(url),
                why=f"the lock says sha256 {wanted.sha256}, the download has {found}; it was discarded",
                fix="find the cause before you lock again: the lock was edited, or the file was replaced at its source",
            )
        add(target, found)
        return
    if not gone:
        raise EnvironmentProblem(f"{wanted.name} cannot be fetched", why="\n".join(failures), fix="trainwright doctor")
    raise Unobtainable("; ".join(failures) or f"no address is known for {wanted.name}")


def _says_gone(error: Exception) -> bool:
    """Return whether an error means that the file is gone; an outage does not."""
    import httpx

    if isinstance(error, httpx.HTTPStatusError):
        return error.response.status_code in (httpx.codes.NOT_FOUND, httpx.codes.GONE)
    return isinstance(error, FileNotFoundError)


def fetch(
    wanted: Sequence[Wanted],
    progress: Callable[[int], None] = lambda _: None,
    insecure: Sequence[str] = (),
    workers: int = 6,
) -> dict[str, str]:
    """Fetch files into the store in parallel. Returns the reason for each sha256 that is gone everywhere.

    Raises BuildError for a wrong checksum, EnvironmentProblem for a full disk or a server that does not answer.
    """
    missing = list({file.sha256: file for file in wanted if not has(file.sha256)}.values())
    if not missing:
        return {}
    need, free = sum(file.size or 0 for file in missing), shutil.disk_usage(_existing(root())).free
    if need > free:
        raise _disk_full(f"{need / 1e9:.2f} GB to fetch, {free / 1e9:.2f} GB free")
    lost: dict[str, str] = {}
    stop = Event()
    with told(), scratch() as folder, client(insecure) as http, ThreadPoolExecutor(workers) as pool:
        jobs = {file.sha256: pool.submit(_fetch_one, file, folder, http, progress, stop) for file in missing}
        try:
            for sha256, job in jobs.items():
                try:
                    job.result()
                except Unobtainable as reason:
                    lost[sha256] = str(reason)
        except BaseException:
            stop.set()
            pool.shutdown(cancel_futures=True)
            raise
    return lost


def _existing(path: Path) -> Path:
    return path if path.exists() else _existing(path.parent)


def _disk_full(why: str) -> EnvironmentProblem:
    return EnvironmentProblem(
        "no space left for the store",
        where=str(root()),
        why=f"{why}; complete files were kept",
        fix="free some space, or point TRAINWRIGHT_STORE to another disk",
    )
