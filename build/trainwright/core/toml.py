"""Parse files of people and of earlier steps into text and models; every error names file and line."""

import json
import re
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeVar

import tomli
from pydantic import BaseModel, ConfigDict, ValidationError

from trainwright.core.errors import ConfigError, TrainwrightError, did_you_mean

NUMBER = re.compile(r"[0-9]{100,}")  # longer than any declared number, and int() refuses such numbers
LARGEST = 10_000_000  # characters: hundreds of times what people write, and parsed within seconds
BARE = re.compile(r"[A-Za-z0-9_-]+")  # a key that needs no quotes
HEADER = re.compile(r"""\s*\[\[?\s*[\w."' -]+\s*\]\]?\s*(#.*)?$""")  # of a table, and not a line of an array
M = TypeVar("M", bound=BaseModel)


class Model(BaseModel):
    """Base of all models: frozen, and an unknown key is an error rather than a silent no-op."""

    # Because a command uses few of the models that it imports, each is built at first use.
    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)


def line_of(text: str, path: tuple[int | str, ...]) -> int:
    """Return the line (from 1) of a key path in a TOML text, as exactly as a text search for its parts can find it."""
    lines = text.splitlines()
    line, path, end = _section(lines, path)
    for part in path:
        if isinstance(part, int):  # the part-th element of an array of tables
            headers = [n for n, row in enumerate(lines) if row.strip().startswith("[[") and n >= line]
            line = headers[part] if part < len(headers) else line
            continue
        name = re.compile(rf"(^|[\s.\[\"'{{,]){re.escape(part)}([\s.\]\"'=]|$)")
        line = next((n for n in range(line, end) if name.search(lines[n].split("#")[0])), line)
    return line + 1


def line_setting(text: str, key: str, line: int) -> int:
    """Return the first line, from `line` on (from 1), that sets a key, also in an inline table; else `line` itself."""
    word = re.compile(rf"""(^|[\s,{{.]|["']){re.escape(key)}["']?\s*=""")
    lines = text.splitlines()
    return next((n + 1 for n in range(line - 1, len(lines)) if word.search(lines[n].split("#")[0])), line)


def _section(lines: list[str], path: tuple[int | str, ...]) -> tuple[int, tuple[int | str, ...], int]:
    """Return the line (from 0) of the header of a path's element of an array of tables, the rest of the path, the end.

    The end is that of the element, so that the line of a key that it lacks is not that of a later element's key.
    """
    end = next((n for n, part in enumerate(path) if isinstance(part, int)), 0)
    dotted = ".".join(part if BARE.fullmatch(part) else json.dumps(part) for part in map(str, path[:end]))
    headers = [n for n, row in enumerate(lines) if row.split("#")[0].strip() == f"[[{dotted}]]"]
    number = path[end] if end else 0
    if isinstance(number, int) and end and number < len(headers):
        others = (n for n in range(headers[number] + 1, len(lines)) if HEADER.match(lines[n]))
        after = next((n for n in others if not re.match(rf"\s*\[\[?{re.escape(dotted)}\.", lines[n])), len(lines))
        return headers[number], path[end + 1 :], after
    return 0, path, len(lines)


def read(path: Path, given: str = "", error: type[TrainwrightError] = ConfigError, fix: str = "") -> str:
    """Read a text file. Raises `error` if it is missing, not a file, unreadable, or not UTF-8 (with the byte's line).

    `given` is the user's name for the file. `fix` is the error's command; by default it restores or edits the file.
    """
    name = given or from_root(path)
    try:
        return path.read_text(encoding="utf-8")
    except OSError as problem:
        if isinstance(problem, FileNotFoundError) and not given:  # a file of the checkout
            raise error(f"{name} is missing", where=name, fix=fix or f"git checkout -- {name}") from None
        why = problem.strerror or str(problem)
        raise error(f"{name} cannot be read", where=name, why=why, fix=fix or f"ls -ld {name}") from None
    except UnicodeDecodeError as problem:
        line = problem.object.count(b"\n", 0, problem.start) + 1
        raise error(
            f"{name} is not text",
            where=f"{name}:{line}",
            why=f"the byte 0x{problem.object[problem.start]:02x} in this line is not UTF-8",
            fix=fix or f"$EDITOR +{line} {name}",
        ) from None


def parse(text: str, kind: type[M], name: str) -> M:
    """Parse text into `kind`. Raises ConfigError with file, line and cause; `name` is the user's name for the file."""
    return _parse(text, kind, name)  # type: ignore[return-value]  # of this very kind


# Because devel twins share a lock, TOML parses slowly and the models are frozen, results are cached. The size exceeds
# any number of images: an LRU cache one entry smaller than a repeated walk over all of them never hits.
@lru_cache(maxsize=2048)
def _parse(text: str, kind: type[BaseModel], name: str) -> BaseModel:
    if len(text) > LARGEST:  # ten times as much takes minutes, and more memory than most hosts have
        why = f"it has {len(text)} characters; the limit is {LARGEST}"
        raise ConfigError(f"{name} is too large", where=name, why=why, fix=f"$EDITOR {name}")
    if long := NUMBER.search(text):
        line = text.count("\n", 0, long.start()) + 1
        why = f"this line contains a number of {len(long[0])} digits"
        raise ConfigError(f"{name} is not valid", where=f"{name}:{line}", why=why, fix=f"$EDITOR +{line} {name}")
    try:
        data = tomli.loads(text)
    except (ValueError, RecursionError) as error:  # ValueError: also an integer of thousands of digits
        at = re.search(r"at line (\d+)", str(error))
        lines = text.splitlines()
        if at:
            line = int(at.group(1))
        elif isinstance(error, tomli.TOMLDecodeError):
            line = len(lines)  # the text ends too early
        else:  # the parser gives no line for deep nesting or a huge integer: take the longest line
            line = max(range(len(lines)), key=lambda n: len(lines[n])) + 1
        why = "its tables or arrays are nested too deeply" if isinstance(error, RecursionError) else str(error)
        raise ConfigError(
            f"{name} is not valid TOML", where=f"{name}:{line}", why=why, fix=f"$EDITOR +{line} {name}"
        ) from None
    try:
        return kind.model_validate(data)
    except ValidationError as error:
        # A misspelt key causes two errors, unknown and missing; the first one is more helpful.
        first = next((e for e in error.errors() if e["type"] == "extra_forbidden"), error.errors()[0])
        path = tuple(part for part in first["loc"] if part != "[key]")
        why = f"{_key(data, path)}: {first['msg']}"
        if first["type"] == "extra_forbidden":
            why += f"; {did_you_mean(str(path[-1]), _siblings(kind, path))}"
        line = line_of(text, path)
        raise ConfigError(
            f"{name} is not valid",
            where=f"{name}:{line}",
            why=why,
            fix=f"$EDITOR +{line} {name}",
        ) from None


def _key(data: Any, path: tuple[int | str, ...]) -> str:
    """Name a key for people. A row of a list has no number, because the file of a person may have it elsewhere."""
    for end, part in enumerate(path):
        if isinstance(part, str):
            data = data.get(part) if isinstance(data, dict) else None
        elif isinstance(data := data[part] if isinstance(data, list) else None, dict):
            key, rows = (".".join(map(str, one)) for one in (path[end + 1 :], path[:end]))
            return f"{key} of this row of [[{rows}]]" if key else f"this row of [[{rows}]]"
    return ".".join(map(str, path))


def parse_json(text: str, name: str, fix: str) -> Any:
    """Return the value of a JSON text. Raises ConfigError with file and line; `fix` is the command that rewrites it."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:  # ValueError: also an integer of thousands of digits
        where = f"{name}:{error.lineno}" if isinstance(error, json.JSONDecodeError) else name
        why = "it is nested too deeply" if isinstance(error, RecursionError) else str(error)
        raise ConfigError(f"{name} is not valid JSON", where=where, why=why, fix=fix) from None


def load(path: Path, kind: type[M]) -> M:
    """Read and parse one file. Raises ConfigError, also if the file is missing."""
    return parse(read(path), kind, from_root(path))


def from_root(path: Path) -> str:
    """Return a path relative to the checkout's root, which is the folder that holds the path's last dockerfiles/."""
    parts = path.parts
    folders = [n for n, part in enumerate(parts[:-1]) if part == "dockerfiles"]
    return "/".join(parts[folders[-1] :]) if folders else str(path)


def _siblings(kind: type[BaseModel], path: tuple[int | str, ...]) -> list[str]:
    """Return the valid keys at the place of an unknown one."""
    model: object = kind
    for part in path[:-1]:
        if isinstance(model, type) and issubclass(model, BaseModel):
            field = model.model_fields.get(str(part))
            model = field.annotation if field else None
        else:  # dict[str, X] or list[X]: step into X
            model = getattr(model, "__args__", [None])[-1]
    return list(model.model_fields) if isinstance(model, type) and issubclass(model, BaseModel) else []
