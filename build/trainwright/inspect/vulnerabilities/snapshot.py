"""Read a snapshot of advisories: OSV's all.zip, a folder of OSV's JSON files, or the JSON of Debian's security tracker.

Entries are read one after the other, and only what concerns a wanted package is kept.
"""

import json
import re
import zipfile
import zlib
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn

from pydantic import TypeAdapter, ValidationError

from trainwright.core.errors import ConfigError
from trainwright.inspect.vulnerabilities import debian_tracker, osv
from trainwright.inspect.vulnerabilities.model import Hit, Package, Seen
from trainwright.inspect.vulnerabilities.settings import Limits, Settings

OSV_URL = "https://storage.googleapis.com/osv-vulnerabilities/PyPI/all.zip"
TRACKER_URL = "https://security-tracker.debian.org/tracker/data/json"
FIX = f"curl --fail --remote-name {OSV_URL}"
TRACKER_FIX = f"curl --fail --output debian.json {TRACKER_URL}"
SPACE = re.compile(r"[ \t\r\n]*")
DAY = re.compile(r"\d{4}-\d\d-\d\d")

Hits = dict[Package, list[Hit]]
PROBLEMS = TypeAdapter(dict[str, debian_tracker.Problem])


def read(path: Path, wanted: Collection[Package], said: Settings) -> tuple[Seen, Hits]:
    """Return what a snapshot holds, and every advisory in it that applies to a wanted package.

    Raises ConfigError, with the entry's name, if the file is not a snapshot, is damaged, or exceeds the limits.
    """
    if path.is_dir():
        return _osv(path, _folder(path, said.limits), wanted)
    try:
        with path.open("rb") as file:
            start = file.read(4)
    except OSError as error:
        raise ConfigError(f"{path} cannot be read", where=str(path), why=error.strerror or "", fix=FIX) from None
    if start.startswith(b"PK"):
        return _osv(path, _zip(path, said.limits), wanted)
    if start.lstrip()[:1] != b"{":
        _refuse(path, "it is neither a zip file, nor a folder, nor JSON", "is not a snapshot of advisories")
    return _json(path, wanted, said)


def _refuse(path: Path, why: str, what: str = "is a damaged snapshot", fix: str = FIX, where: str = "") -> NoReturn:
    raise ConfigError(f"{path} {what}", where=where or str(path), why=why, fix=fix) from None


# --- OSV -------------------------------------------------------------------------------------------------------------


def _osv(path: Path, entries: Iterator[tuple[str, bytes]], wanted: Collection[Package]) -> tuple[Seen, Hits]:
    index = _index(wanted)
    read, withdrawn, newest, ecosystems, hits = 0, 0, "", set[str](), Hits()
    for name, content in entries:
        raw = _advisory(path, name, content)
        newest = max(newest, str(raw.get("modified") or ""))
        if raw.get("withdrawn"):
            withdrawn += 1
            continue
        read += 1
        try:
            about = dict.fromkeys(osv.names(raw))
        except (AttributeError, TypeError):
            _refuse(path, "its `affected` is not what OSV's schema describes", where=f"{path}: {name}")
        ecosystems |= {ecosystem for ecosystem, _ in about}
        for package in _concerned(index, about):
            with _valid(path, name):
                found = osv.hit(osv.Record.model_validate(raw), package)
            if found:
                hits.setdefault(package, []).append(found)
    if not read and not withdrawn:
        _refuse(path, "it holds no .json file", "is not a snapshot of advisories")
    day = DAY.match(newest)
    return Seen(
        path=str(path),
        format="OSV",
        advisories=read,
        withdrawn=withdrawn,
        newest=day[0] if day else "",
        ecosystems=sorted(ecosystems),
    ), hits


def _index(wanted: Collection[Package]) -> Mapping[str, list[Package]]:
    found = dict[str, list[Package]]()
    for package in wanted:
        found.setdefault(package.name, []).append(package)
    return found


def _concerned(index: Mapping[str, list[Package]], about: Collection[tuple[str, str]]) -> list[Package]:
    rows = (
        package
        for ecosystem, name in about
        for package in index.get(name, [])
        if osv.fits(package.ecosystem, ecosystem)
    )
    return list(dict.fromkeys(rows))


def _advisory(path: Path, name: str, content: bytes) -> dict[str, Any]:
    where = f"{path}: {name}"
    try:
        raw = json.loads(content)
    except (ValueError, RecursionError) as error:
        why = "it is nested too deeply" if isinstance(error, RecursionError) else f"it is not JSON: {error}"
        _refuse(path, why, where=where)
    if not isinstance(raw, dict) or not isinstance(raw.get("id"), str) or not isinstance(raw.get("modified"), str):
        _refuse(path, "it is no advisory in OSV's format: no `id` or no `modified`", where=where)
    return raw


@contextmanager
def _valid(path: Path, name: str, fix: str = FIX) -> Iterator[None]:
    """Turn pydantic's error into one sentence."""
    try:
        yield
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(map(str, first["loc"]))
        _refuse(path, f"{key}: {first['msg']}", fix=fix, where=f"{path}: {name}")


def _zip(path: Path, limits: Limits) -> Iterator[tuple[str, bytes]]:
    """Yield each .json of a zip. The sizes that it states are checked before it is read, and never exceeded."""
    try:
        with zipfile.ZipFile(path) as archive:
            rows = [row for row in archive.infolist() if row.filename.endswith(".json")]
            _within(path, [(row.filename, row.file_size) for row in rows], limits)
            for row in rows:
                with archive.open(row) as file:
                    content = file.read(limits.entry_bytes + 1)
                if len(content) != row.file_size:
                    _refuse(path, "it does not have the size that the zip states", where=f"{path}: {row.filename}")
                yield row.filename, content
    except (zipfile.BadZipFile, zlib.error, EOFError, RuntimeError, NotImplementedError, OSError) as error:
        _refuse(path, f"it is not a whole zip file: {error}")


def _folder(path: Path, limits: Limits) -> Iterator[tuple[str, bytes]]:
    """Yield each .json below a folder, and those of each .zip, as osv-scanner lays them out: PyPI/all.zip."""
    files = sorted(file for file in path.rglob("*.json") if file.is_file())
    try:
        _within(path, [(str(file.relative_to(path)), file.stat().st_size) for file in files], limits)
        for file in files:
            yield str(file.relative_to(path)), file.read_bytes()
    except OSError as error:
        _refuse(path, f"{error.filename}: {error.strerror}", "cannot be read")
    for archive in sorted(path.rglob("*.zip")):
        yield from _zip(archive, limits)


def _within(path: Path, rows: list[tuple[str, int]], limits: Limits) -> None:
    if len(rows) > limits.entries:
        _refuse(path, f"it has {len(rows)} entries; the limit is {limits.entries}", "is too large")
    for name, size in rows:
        if size > limits.entry_bytes:
            why = f"it unpacks to {size} bytes; the limit for one advisory is {limits.entry_bytes}"
            _refuse(path, why, "is too large", where=f"{path}: {name}")
    if (whole := sum(size for _, size in rows)) > limits.bytes:
        _refuse(path, f"it unpacks to {whole} bytes; the limit is {limits.bytes}", "is too large")


# --- one file of JSON ------------------------------------------------------------------------------------------------


def _json(path: Path, wanted: Collection[Package], said: Settings) -> tuple[Seen, Hits]:
    size = path.stat().st_size
    if size > said.limits.tracker_bytes:
        why = f"it has {size} bytes; the limit is {said.limits.tracker_bytes}"
        _refuse(path, why, "is too large", TRACKER_FIX)
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        _refuse(path, "it is not UTF-8", fix=TRACKER_FIX)
    members = _members(path, text)
    if (first := next(members, None)) is None:
        _refuse(path, "it is empty", "is not a snapshot of advisories")
    if not debian_tracker.looks_like_it(first[1]):
        return _osv(path, iter([(path.name, text.encode())]), wanted)
    return _tracker(path, [first], members, wanted, said)


def _tracker(
    path: Path,
    first: list[tuple[str, Any]],
    rest: Iterator[tuple[str, Any]],
    wanted: Collection[Package],
    said: Settings,
) -> tuple[Seen, Hits]:
    index = _index([package for package in wanted if package.ecosystem.startswith("Debian:")])
    names = said.suites.get("debian", {})
    count, suites, hits = 0, set[str](), Hits()
    for members in (first, rest):
        for source, value in members:
            if not debian_tracker.looks_like_it(value):
                why = f"{source} does not have what Debian's security tracker says of a package"
                _refuse(path, why, fix=TRACKER_FIX)
            count += len(value)
            suites.update(debian_tracker.suites(value))
            for package in index.get(source, []):
                with _valid(path, source, TRACKER_FIX):
                    problems = PROBLEMS.validate_python(value)
                suite = said.suite(package.ecosystem)
                if found := list(debian_tracker.hits(problems, suite, package)):
                    hits[package] = found
    ecosystems = sorted(names[suite] for suite in suites if suite in names)
    return Seen(
        path=str(path),
        format="Debian security tracker",
        advisories=count,
        withdrawn=0,
        newest="",
        ecosystems=ecosystems,
    ), hits


def _members(path: Path, text: str) -> Iterator[tuple[str, Any]]:
    """Yield the members of a JSON object one by one, so that only one of them is held as objects."""
    decoder = json.JSONDecoder()

    def skip(at: int) -> int:
        return SPACE.match(text, at).end()  # type: ignore[union-attr]  # it matches everywhere

    def expect(mark: str, at: int) -> int:
        if text[at : at + 1] not in mark or at >= len(text):
            raise json.JSONDecodeError(f"expected {' or '.join(mark)}", text, at)
        return at + 1

    try:
        at = skip(expect("{", skip(0)))
        while text[at : at + 1] != "}":
            name, at = decoder.raw_decode(text, at)
            if not isinstance(name, str):
                raise json.JSONDecodeError("expected a name", text, at)
            value, at = decoder.raw_decode(text, skip(expect(":", skip(at))))
            yield name, value
            at = skip(at)
            if text[at : at + 1] != "}":
                at = skip(expect(",", at))
                expect('"', at)
        if skip(at + 1) != len(text):
            raise json.JSONDecodeError("more text after the object", text, at)
    except (ValueError, RecursionError) as error:
        why = "it is nested too deeply" if isinstance(error, RecursionError) else f"it is not whole JSON: {error}"
        _refuse(path, why, fix=TRACKER_FIX)
