"""Resolve Python packages with uv from the indexes of this host's pip configuration, for the image's platform."""

import bz2
import gzip
import lzma
import re
import sys
import tarfile
import tempfile
import tomllib
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from email.message import Message
from email.parser import Parser
from pathlib import Path
from typing import IO, Any, cast
from urllib.parse import SplitResult, unquote, urlsplit

from packaging.markers import UndefinedComparison
from packaging.requirements import InvalidRequirement, Requirement
from packaging.tags import Tag, compatible_tags, cpython_tags
from packaging.utils import canonicalize_name, parse_wheel_filename
from pydantic import Field

from trainwright.core import certificates, mirrors
from trainwright.core.errors import EnvironmentProblem, LockError
from trainwright.core.host_settings import pip_settings
from trainwright.core.process import run
from trainwright.core.toml import Model
from trainwright.lock.wheels import marker_environment
from trainwright.matrix.model import Base

# uv 0.13's text for an unreachable index: refused, unknown host, no proxy, untrusted certificate, time-out.
# It breaks lines at the width of a terminal, of which COLUMNS tells it also where there is none.
UNREACHED = re.compile(
    r"Failed to fetch:\s+\S+\s+cause: error sending request for url\s+\S+\s+"
    r"cause: (client error \(Connect\)|operation timed out)$",
    re.MULTILINE,
)

# A megabyte of a package can unpack to gigabytes. The longest metadata has a long description, 200 kB; the largest
# source distribution of the matrix unpacks to 100 MB.
METADATA_BYTES, UNPACKED_BYTES = 4 << 20, 2 << 30
PORTS = {"https": 443, "http": 80}
UNPACKERS: dict[bytes, Callable[[IO[bytes]], Any]] = {b"\x1f\x8b": gzip.open, b"BZ": bz2.open, b"\xfd7": lzma.open}

_unreached: dict[str, EnvironmentProblem] = {}  # unreachable indexes of frameworks in this run


class Offer(Model):
    """One file that an index offers for a resolved version."""

    name: str
    version: str
    file: str
    url: str
    sha256: str


class Beside(Model):
    """Sources of packages in addition to the indexes."""

    folder: str = ""  # folder with further files, wheels only
    requires: dict[str, list[str]] = Field(default={})  # `name==version` to its requirements: a query would run it
    from_source: tuple[str, ...] = ()  # names that must come from the source distribution
    locked: tuple[str, ...] = ()  # files to take although an index offers one that fits better
    wheels_only: bool = False  # take no source distribution, because nothing can be compiled

    def tables(self) -> list[dict[str, Any]]:
        rows = ((*pinned.split("=="), texts) for pinned, texts in sorted(self.requires.items()))
        return [{"name": name, "version": version, "requires-dist": texts} for name, version, texts in rows]


def trust() -> dict[str, Any]:
    """Return pip's trusted hosts, as arguments of `store.fetch`."""
    return {"insecure": pip_settings().get("trusted-host", "").split()}


def _with_credentials(url: str) -> str:
    """Return a file's URL with the credentials of its index, because uv omits them."""
    settings, file = pip_settings(), urlsplit(url)

    def origin(address: SplitResult) -> tuple[str, str | None, int | None]:
        return address.scheme, address.hostname, address.port or PORTS.get(address.scheme)

    named = " ".join(settings.get(name, "") for name in ("index-url", "extra-index-url", "find-links"))
    for index in map(urlsplit, [*named.split(), *mirrors.table().values()]):
        if "@" in index.netloc and origin(index) == origin(file):
            return file._replace(netloc=index.netloc).geturl()
    return url


def uv_options(index: str = "") -> tuple[list[str], dict[str, str]]:
    """Translate pip's configuration, which uv ignores, into uv's options, and into its environment for CAs and proxies.

    `index` is a framework's own wheel index, used in addition to the others. The mirror `python` replaces pip's
    index-url and `no-index`; every other address is replaced by its own mirror, if there is one.
    """
    settings, mirror = pip_settings(), mirrors.named(mirrors.PYTHON)
    options = ["--no-config", "--index-strategy", "unsafe-best-match"]  # like pip: all indexes are equal
    if not mirror and settings.get("no-index", "").lower() in ("1", "true", "yes", "on"):
        options.append("--no-index")
    if address := mirror or mirrors.redirect(settings.get("index-url", "")):
        options += ["--default-index", address]
    for address in [*settings.get("extra-index-url", "").split(), index]:
        options += ["--index", mirrors.redirect(address)] if address else []
    for folder in settings.get("find-links", "").split():
        options += ["--find-links", mirrors.redirect(folder)]
    for host in settings.get("trusted-host", "").split():
        options += ["--allow-insecure-host", host]
    bundle = certificates.bundle()
    return options, mirrors.proxies() | ({"SSL_CERT_FILE": bundle} if bundle else {})


def resolve(
    requirements: list[str],
    python: str,
    base: Base,
    index: str = "",
    deps: bool = True,
    constraints: Sequence[str] = (),
    beside: Beside | None = None,
) -> list[Offer]:
    """Return the newest versions that satisfy the requirements on the image's platform, with the best file of each.

    `constraints` restrict the versions of all packages that are pulled in; `beside` is knowledge in addition to the
    indexes.

    Because a host with a mirror or a folder of wheels needs no other network, the framework's own index is used only if
    the host's sources cannot satisfy the requirements. Raises LockError with uv's explanation, and EnvironmentProblem
    if an index cannot be reached, because it is then unknown which versions exist.
    """
    try:
        return _resolve(requirements, python, base, "", deps, constraints, beside)
    except LockError as error:
        if not index:
            raise
        refused = error
    try:
        if index in _unreached:  # wait only once: every image of a framework uses the same index
            raise _unreached[index]
        return _resolve(requirements, python, base, index, deps, constraints, beside)
    except EnvironmentProblem as error:  # include the first error: the version may not exist at all
        _unreached[index] = error
        raise EnvironmentProblem(
            "the indexes of this host lack these Python packages, and the framework's own index cannot be reached",
            where=index,
            why=f"without it: {refused.why}\nwith it: {error.why}",
            fix="correct the pin in dockerfiles/matrix.toml if no such version exists; else trainwright doctor",
        ) from None


def _resolve(
    requirements: list[str],
    python: str,
    base: Base,
    index: str,
    deps: bool,
    constraints: Sequence[str],
    beside: Beside | None,
) -> list[Offer]:
    words = ["--format", "pylock.toml", *([] if deps else ["--no-deps"])]
    beside = beside or Beside()
    text = _compiled(requirements, python, base, index, constraints, beside, words, "pylock.toml")
    return [_best(package, python, base, beside.locked) for package in tomllib.loads(text)["packages"]]


def who_wants(
    requirements: list[str], python: str, base: Base, constraints: Sequence[str], beside: Beside
) -> dict[str, tuple[str, list[str]]]:
    """Return the same solution as a graph: map each package to its version and to the packages that require it.

    The list is empty for a package that is itself a requirement.
    """
    words = ["--no-header", "--annotation-style", "line"]
    text = _compiled(requirements, python, base, "", constraints, beside, words, "requirements.txt")
    found: dict[str, tuple[str, list[str]]] = {}
    for line in text.splitlines():
        pinned, _, via = line.partition("#")
        name, _, version = pinned.strip().partition("==")
        wanted = [word.strip() for word in via.replace(" via ", "").split(",")]
        found[canonicalize_name(name)] = (version, [word for word in wanted if word and not word.startswith("-")])
    return found


def _compiled(
    requirements: list[str],
    python: str,
    base: Base,
    index: str,
    constraints: Sequence[str],
    beside: Beside,
    words: list[str],
    name: str,
) -> str:
    """Return the output of `uv pip compile`, written to a file called `name`."""
    machine = base.machine
    options, env = uv_options(index)
    with tempfile.TemporaryDirectory() as folder:
        wanted, written = Path(folder, "requirements.in"), Path(folder, name)
        held, settings = Path(folder, "constraints.txt"), Path(folder, "uv.toml")
        wanted.write_text("\n".join(requirements) + "\n")
        held.write_text("\n".join(constraints) + "\n")
        if beside.requires:
            import tomlkit

            # An explicit file also disables the user's own settings.
            settings.write_text(tomlkit.dumps({"dependency-metadata": beside.tables()}))
            options = ["--config-file", str(settings), *(word for word in options if word != "--no-config")]
        _asked(
            [
                *(Path(sys.executable).with_name("uv"), "pip", "compile", "--quiet"),
                *("--python", sys.executable),  # else uv looks for the image's Python, and downloads one
                *("--python-version", python, "--python-platform", f"{machine}-manylinux_{glibc(base)}"),
                *words,
                *options,
                *(["--find-links", beside.folder] if beside.folder else []),
                *(f"--no-binary={name}" for name in beside.from_source),
                *(["--no-build"] if beside.wheels_only else []),
                *("--constraint", held),
                *("--output-file", written, wanted),
            ],
            env,
        )
        return written.read_text()


def _asked(command: Sequence[str | Path], env: Mapping[str, str]) -> None:
    """Run uv, and classify its failure by its text, because it has one exit code for every error of an index."""
    fix = "trainwright doctor: it shows the indexes in use"
    try:
        run(command, env=env, error=LockError, what="the Python packages cannot be resolved", fix=fix)
    except LockError as error:
        if not UNREACHED.search(error.why):
            raise
        what = "the Python package index cannot be reached"
        raise EnvironmentProblem(what, why=error.why, fix=fix) from None


def glibc(base: Base) -> str:
    return base.glibc.replace(".", "_")


def tags(python: str, base: Base) -> list[Tag]:
    """Return the wheel tags that the image supports, best first."""
    major, minor = (int(part) for part in python.split("."))
    machine, newest = base.machine, int(base.glibc.split(".")[1])
    platforms = [f"manylinux_2_{number}_{machine}" for number in range(newest, 4, -1)]
    platforms += [f"manylinux{year}_{machine}" for year in ("2014", "2010", "1")] + [f"linux_{machine}"]
    interpreter = f"cp{major}{minor}"
    return [
        *cpython_tags((major, minor), platforms=platforms),
        *compatible_tags((major, minor), interpreter=interpreter, platforms=platforms),
    ]


def _best(package: dict[str, Any], python: str, base: Base, locked: Sequence[str] = ()) -> Offer:
    """Return the file of a pylock package that the image installs: a locked one, the best wheel, or the source."""
    rank = {tag: position for position, tag in enumerate(tags(python, base))}
    name, version = str(package["name"]), str(package["version"])
    best: tuple[int, Offer] | None = None
    with readable(f"{name} {version}"):
        for kind in ("wheels", "sdist"):
            found = package.get(kind, [])
            for entry in found if isinstance(found, list) else [found]:
                url = entry.get("url") or Path(entry["path"]).absolute().as_uri()
                file, sha256 = unquote(urlsplit(url).path).rpartition("/")[2], entry["hashes"]["sha256"]
                if file in ("", ".", "..") or not re.fullmatch("[0-9a-f]{64}", sha256):
                    raise ValueError(f"{file!r} is not a file name, or {sha256!r} is not a checksum")
                position = len(rank)  # a source distribution: ranked after every wheel that fits
                if kind == "wheels":
                    fitting = [rank[tag] for tag in parse_wheel_filename(file)[3] if tag in rank]
                    if not fitting:
                        continue
                    position = min(fitting)
                if file in locked:
                    position = -1
                offer = Offer(name=name, version=version, file=file, url=_with_credentials(url), sha256=sha256)
                if best is None or position < best[0]:
                    best = position, offer
    if best is None:
        raise LockError(
            f"{name} {version} has no file for Python {python} on {base.architecture}, glibc {base.glibc}",
            fix=f"pin another version of {name}",
        )
    return best[1]


def metadata(path: Path, file: str) -> Message:
    """Return the core metadata of a wheel or source distribution. Raises LockError if it has none."""
    with readable(file):
        if file.endswith(".whl"):
            with zipfile.ZipFile(path) as wheel:
                name = next(entry for entry in wheel.namelist() if entry.endswith(".dist-info/METADATA"))
                if wheel.getinfo(name).compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
                    # Other methods unpack without a limit.
                    raise ValueError("its metadata is compressed by a method that wheels do not use")
                with wheel.open(name) as member:
                    text = _text(member)
        else:
            text = _member(path, "PKG-INFO")
        if not text:
            raise ValueError("it has no metadata")
        return Parser().parsestr(text, headersonly=True)


@contextmanager
def readable(file: str) -> Iterator[None]:
    """Turn every error of reading an invalid package into a LockError."""
    try:
        yield
    except StopIteration:
        raise LockError(f"{file} is not a Python package", why="it has no metadata") from None
    except (
        *(ValueError, RecursionError, RuntimeError, NotImplementedError, OSError, EOFError, KeyError, AttributeError),
        *(zipfile.BadZipFile, tarfile.TarError, zlib.error, lzma.LZMAError, InvalidRequirement, UndefinedComparison),
    ) as error:
        why = str(error) or type(error).__name__
        raise LockError(f"{file} is not a readable Python package", why=why[:300]) from None


def _text(member: IO[bytes]) -> str:
    """Return the text of a metadata file. Raises ValueError if it exceeds METADATA_BYTES or is not UTF-8."""
    content = member.read(METADATA_BYTES + 1)
    if len(content) > METADATA_BYTES:
        raise ValueError(f"its metadata has more than {METADATA_BYTES} bytes")
    return content.decode()


class _Capped:
    """The unpacked stream of a source distribution, with limits on the bytes read at a time and in total."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream, self.tell = stream, stream.tell

    def read(self, size: int = -1) -> bytes:
        if not 0 <= size <= METADATA_BYTES:
            raise ValueError(f"one of its headers asks for {size} bytes at once; at most {METADATA_BYTES} are read")
        return self._stream.read(size)

    def seek(self, place: int) -> int:
        if place > UNPACKED_BYTES:
            raise ValueError(f"it has more than {UNPACKED_BYTES} bytes")
        return self._stream.seek(place)


def licence(path: Path, file: str) -> str:
    """Return a package's licence: the SPDX expression, else the classifiers, else the first line of its text."""
    said = metadata(path, file)
    if expression := said.get("License-Expression"):
        return str(expression)
    classifiers = [row for row in said.get_all("Classifier") or [] if row.startswith("License :: ")]
    if named := [row.rpartition(" :: ")[2] for row in classifiers if row != "License :: OSI Approved"]:
        return "; ".join(named)
    return next(iter((said.get("License") or "").strip().splitlines()), "")[:80] or "not said"


def requires(path: Path, file: str) -> list[str]:
    """Return the requirements of a wheel or source distribution, for every platform and extra."""
    return [str(line) for line in metadata(path, file).get_all("Requires-Dist") or []]


def needs(path: Path, file: str, python: str, base: Base) -> list[str]:
    """Return the names of the packages that a package requires on the image's platform, from its metadata."""
    environment = marker_environment(python, base)
    found = set()
    with readable(file):
        for line in requires(path, file):
            requirement = Requirement(line)
            if requirement.marker is None or requirement.marker.evaluate(environment):
                found.add(canonicalize_name(requirement.name))
    return sorted(found)


def build_requirements(path: Path) -> list[str] | None:
    """Return a source distribution's build requirements; None if it declares none."""
    with readable(path.name):
        said = tomllib.loads(_member(path, "pyproject.toml")).get("build-system", {}).get("requires")
        if not isinstance(said, list | None):
            # readable() reports ValueError alone, so that every malformed file ends in one kind of error.
            raise ValueError("its build requirements are not a list")  # noqa: TRY004
        return None if said is None else [str(row) for row in said]


def _member(path: Path, file: str) -> str:
    """Return a text file at the top of a source distribution; "" if it has none."""
    with path.open("rb") as raw:
        opened = UNPACKERS.get(raw.peek(2)[:2])
        with opened(raw) if opened else raw as stream:
            capped = cast(IO[bytes], _Capped(stream))  # implements read and seek as far as tarfile needs them
            with tarfile.open(fileobj=capped, mode="r:") as archive:
                for member in archive:
                    found = member.name.count("/") == 1 and member.name.endswith(f"/{file}")
                    if found and (reader := archive.extractfile(member)):
                        return _text(reader)
    return ""
