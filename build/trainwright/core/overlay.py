"""Lay the files of a team's project over the installed data: TOML files by key, all others by file. Pure: text to text.

A table is merged key by key, and a list of plain values is replaced. A list of tables is merged by the keys that
identify a row (`ROWS`): a row that is there already is replaced in its place, a new one is appended.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any, NamedTuple

import tomli

from trainwright.core.errors import ConfigError, did_you_mean
from trainwright.core.toml import BARE, line_of

# Which keys of a row say that it is the same row, by file and path of the list of tables; without such keys, rows are
# appended.
ROWS: dict[tuple[str, str], tuple[str, ...]] = {
    ("matrix.toml", "frameworks.*.rows"): ("release", "accelerators", "pythons", "targets", "flavour"),
    ("compat.toml", "rules"): ("rule", "a", "b"),
    ("compat.toml", "interfaces"): ("component", "range"),
    ("compat.toml", "winners"): ("winner", "loser"),
    ("causes/*.toml", "causes"): ("id",),
    ("diagnose.toml", "places"): ("id",),
    ("stragglers.toml", "times"): ("id",),
    ("licences.toml", "licences"): ("name",),
    ("floors.toml", "floors"): ("instances", "nodes", "collectives", "size"),
    ("instances.toml", "refused"): ("families",),
}
REPLACES = "replaces"  # in a row of compat.toml: the sentence of the rule that this one stands for
BY_KEY = ("*.toml", "causes/*.toml")  # files below dockerfiles/ that are merged by key; all others replace a whole file

Path_ = tuple[str | int, ...]


class Entry(NamedTuple):
    """One thing that a project says in a file that is merged by key."""

    path: Path_  # in the merged file
    value: Any
    before: Any  # what the installed data says there; None: nothing
    file: str  # of the project
    line: int
    keys: Mapping[str, int] = {}  # of a row: each key to its line

    @property
    def where(self) -> str:
        return f"{self.file}:{self.line}"

    def override(self) -> dict[str, str]:
        """Return what it overrides as a row for people."""
        return {"what": _named(self.path, self.value), "was": _title(self.before), "where": self.where}


@dataclass
class Merged:
    """A merged file: its text, what a project says in it, and where each line of the text that it says comes from."""

    text: str
    entries: list[Entry]
    origins: dict[int, tuple[str, int]] = field(default_factory=dict)


class Said(NamedTuple):
    """One file of one overlay."""

    file: str  # its name for people
    text: str


def by_key(name: str) -> bool:
    """Return whether a file, named below dockerfiles/, is merged by key."""
    return any(fnmatchcase(name, glob) and name.count("/") == glob.count("/") for glob in BY_KEY)


def merge(name: str, installed: str, said: Sequence[Said]) -> Merged:
    """Merge what overlays say over an installed file; `name` is the file below dockerfiles/.

    Raises ConfigError for a file that is not TOML, has another form, names a rule that is not there, or disagrees with
    another overlay.
    """
    whole = tomli.loads(installed) if installed else {}
    found: dict[Path_, Entry] = {}
    for one in said:
        into = _Into(name, whole, one, found)
        into.table((), whole, _parsed(one), ())
    entries = list(found.values())
    writer = _Writer({entry.path: entry for entry in entries})
    writer.table((), whole)
    return Merged("\n".join(writer.lines) + "\n", entries, writer.origins)


def path_at(text: str, line: int) -> Path_:
    """Return the path of what a line (from 1) of a merged text says; () for its blank and first lines."""
    path, rows = Path_(), dict[str, int]()
    for row in text.splitlines()[:line]:
        if row.startswith("["):
            path = _only_keys(row)
            if row.startswith("[["):
                rows[row] = rows.get(row, -1) + 1
                path += (rows[row],)
    last = text.splitlines()[line - 1 : line]
    return path + _only_keys(last[0])[:1] if last and last[0] and last[0][0] not in "[#" else path


def _only_keys(line: str) -> Path_:
    """Return the keys of a header, or of an assignment, of a merged text."""
    path, value = list[str](), tomli.loads(line)
    while isinstance(value, dict) and value:
        path.append(next(iter(value)))
        value = value[path[-1]]
        value = value[0] if isinstance(value, list) and value else value
    return tuple(path)


def _parsed(said: Said) -> dict[str, Any]:
    try:
        return tomli.loads(said.text)
    except (ValueError, RecursionError) as error:
        at = re.search(r"at line (\d+)", str(error))
        line = int(at[1]) if at else len(said.text.splitlines())
        where = f"{said.file}:{line}"
        raise ConfigError(
            f"{said.file} is not valid TOML", where=where, why=str(error), fix=f"$EDITOR +{line} {said.file}"
        ) from None


class _Into:
    """The merge of one file of one overlay into the whole."""

    def __init__(self, name: str, whole: dict[str, Any], said: Said, found: dict[Path_, Entry]) -> None:
        self.name, self.whole, self.said, self.found = name, whole, said, found

    def table(self, path: Path_, into: dict[str, Any], own: Mapping[str, Any], at: Path_) -> None:
        """Merge a table; `at` is its path in the overlay's own file, where a row may have another number."""
        for key, value in own.items():
            here, there = (*path, key), (*at, key)
            before = into.get(key)
            if key in into and _kind(before) != _kind(value) and [] not in (before, value):
                raise self.error(
                    f"{_named(here, value)} has another form than in the installed data",
                    there,
                    f"it is {_kind(value)}, and {_kind(before)} there",
                )
            if isinstance(value, dict) and isinstance(before, dict):
                self.table(here, before, value, there)
            elif isinstance(value, dict) and value:
                into[key] = {}
                self.table(here, into[key], value, there)
            elif _kind(value) == "a list of tables":
                self.rows(here, into.setdefault(key, []), value, there)
            else:
                self.say(here, value, before, there)
                into[key] = value

    def rows(self, path: Path_, into: list[dict[str, Any]], own: Sequence[dict[str, Any]], at: Path_) -> None:
        place = ".".join(map(str, path))
        keys = next((keys for (file, glob), keys in ROWS.items() if self._is(file) and fnmatchcase(place, glob)), ())
        for number, row in enumerate(own):
            there, index = (*at, number), None
            if self.name == "compat.toml" and REPLACES in row:
                index, row = self._replaced(into, row, there)
            elif keys:
                index = next((n for n, one in enumerate(into) if _same(one, row, keys)), None)
            if index is None:
                into.append(row)
                self.say((*path, len(into) - 1), row, None, there)
            else:
                self.say((*path, index), row, into[index], there)
                into[index] = row

    def _is(self, file: str) -> bool:
        return fnmatchcase(self.name, file)

    def _replaced(self, into: Sequence[dict[str, Any]], row: dict[str, Any], at: Path_) -> tuple[int, dict[str, Any]]:
        said = row[REPLACES]
        rules = [one.get("rule") for one in into]
        if said not in rules:
            raise self.error(
                "a row replaces a rule that is not there",
                (*at, REPLACES),
                did_you_mean(str(said), [str(rule) for rule in rules]),
            )
        return rules.index(said), {key: value for key, value in row.items() if key != REPLACES}

    def say(self, path: Path_, value: Any, before: Any, at: Path_) -> None:
        """Note one thing. Raises ConfigError if another overlay, or another part of this one, says another thing."""
        text = self.said.text
        keys = {key: line_of(text, (*at, key)) for key in value} if isinstance(value, dict) else {}
        entry = Entry(path, value, before, self.said.file, line_of(text, at), keys)
        other = self.found.get(path)
        if other and other.value != value:
            both = f"{entry.file} says twice what" if entry.file == other.file else "two overlays disagree about"
            raise ConfigError(
                f"{both} {_named(path, value)}{' is' * (entry.file == other.file)}",
                where=f"{entry.where} and {other.where}",
                why=f"one says {_short(value)}, the other one {_short(other.value)}",
                fix=f"$EDITOR +{entry.line} {entry.file}   # take it out of one of them",
            )
        if other:
            return
        if before != value:
            self.found[path] = entry

    def error(self, what: str, at: Path_, why: str) -> ConfigError:
        line = line_of(self.said.text, at)
        where = f"{self.said.file}:{line}"
        return ConfigError(what, where=where, why=why, fix=f"$EDITOR +{line} {self.said.file}")


def _kind(value: Any) -> str:
    if isinstance(value, dict):
        return "a table"
    if isinstance(value, list):
        return "a list of tables" if value and all(isinstance(one, dict) for one in value) else "a list"
    return "a number" if isinstance(value, int | float) and not isinstance(value, bool) else f"a {type(value).__name__}"


def _same(one: Mapping[str, Any], other: Mapping[str, Any], keys: Sequence[str]) -> bool:
    return all(one.get(key) == other.get(key) for key in keys)


def _named(path: Path_, value: Any) -> str:
    """Name a place for people; a row by what identifies it."""
    words = [str(part) for part in path if not isinstance(part, int)]
    if isinstance(value, dict) and isinstance(path[-1], int):
        return f"{'.'.join(words)}: {_title(value)}"
    return ".".join(words)


def _title(value: Any) -> str:
    """Name a value for people: a row by its sentence, id or name."""
    named = [str(value[key]) for key in ("rule", "id", "name") if value.get(key)] if isinstance(value, dict) else []
    return named[0] if named else _short(value)


def _short(value: Any) -> str:
    if value is None:
        return ""
    text = value if isinstance(value, str) else json.dumps(value, default=str)
    return text if len(text) <= 80 else f"{text[:77]}..."


class _Writer:
    """A writer of TOML that remembers which line comes from which file of a project."""

    def __init__(self, entries: Mapping[Path_, Entry]) -> None:
        self.entries = entries
        self.lines = ["# Generated from the installed data and a project's files. Do not edit."]
        self.origins: dict[int, tuple[str, int]] = {}

    def table(self, path: Path_, value: Mapping[str, Any]) -> None:
        below: list[tuple[Path_, Any]] = []
        for key, one in value.items():
            here = (*path, key)
            if (isinstance(one, dict) and here not in self.entries) or _kind(one) == "a list of tables":
                below.append((here, one))
            else:
                self.line(f"{_key(key)} = {_value(one)}", here)
        for here, one in below:
            if isinstance(one, dict):
                if not one or any(not isinstance(held, dict) for held in one.values()):
                    self.header(f"[{_dotted(here)}]", here)
                self.table(here, one)
            else:
                for number, row in enumerate(one):
                    self.header(f"[[{_dotted(here)}]]", (*here, number))
                    for key, held in row.items():
                        self.line(f"{_key(key)} = {_value(held)}", (*here, number, key))

    def header(self, text: str, path: Path_) -> None:
        self.lines.append("")
        self.line(text, path)

    def line(self, text: str, path: Path_) -> None:
        self.lines.append(text)
        for end in range(len(path), 0, -1):
            if entry := self.entries.get(path[:end]):
                line = entry.keys.get(str(path[end]), entry.line) if end < len(path) else entry.line
                self.origins[len(self.lines)] = (entry.file, line)
                return


def _key(key: str) -> str:
    return key if BARE.fullmatch(key) else json.dumps(key)


def _dotted(path: Path_) -> str:
    return ".".join(_key(str(part)) for part in path if not isinstance(part, int))


def _value(value: Any) -> str:
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{_key(key)} = {_value(one)}" for key, one in value.items()) + " }" if value else "{}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_value, value)) + "]"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    return str(value)  # numbers, dates
