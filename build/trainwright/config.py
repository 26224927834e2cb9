"""TOML files into models, with the file and the line in every complaint."""

import re
import tomllib
from functools import lru_cache
from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel, ValidationError

from trainwright.errors import ConfigError, did_you_mean

M = TypeVar("M", bound=BaseModel)


def line_of(text: str, path: tuple[int | str, ...]) -> int:
    """The line (from 1) where a key path of a TOML text is written, as near as a search for its parts gets."""
    lines, line = text.splitlines(), 0
    for part in path:
        if isinstance(part, int):  # the part-th element of an array of tables
            headers = [n for n, row in enumerate(lines) if row.strip().startswith("[[") and n >= line]
            line = headers[part] if part < len(headers) else line
            continue
        name = re.compile(rf"(^|[\s.\[\"'{{,]){re.escape(part)}([\s.\]\"'=]|$)")
        line = next((n for n in range(line, len(lines)) if name.search(lines[n].split("#")[0])), line)
    return line + 1


def parse(text: str, kind: type[M], name: str) -> M:
    """Text into `kind`. Raises ConfigError with file, line and cause; `name` is what the user calls the file."""
    return _parse(text, kind, name)  # type: ignore[return-value]  # of this very kind


# Twins share a lock; reading TOML is what takes long, and what comes out is frozen. More than anybody has images: a
# cache that is one too small for a walk over all of them never finds any.
@lru_cache(maxsize=2048)
def _parse(text: str, kind: type[BaseModel], name: str) -> BaseModel:
    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        at = re.search(r"at line (\d+)", str(error))
        line = int(at.group(1)) if at else len(text.splitlines())
        raise ConfigError(
            f"{name} is not valid TOML", where=f"{name}:{line}", why=str(error), fix=f"$EDITOR +{line} {name}"
        ) from None
    try:
        return kind.model_validate(data)
    except ValidationError as error:
        # A misspelt key is both unknown and missing: the first of the two helps.
        first = next((e for e in error.errors() if e["type"] == "extra_forbidden"), error.errors()[0])
        path = tuple(part for part in first["loc"] if part != "[key]")
        key = ".".join(map(str, path))
        why = f"{key}: {first['msg']}"
        if first["type"] == "extra_forbidden":
            why += f"; {did_you_mean(str(path[-1]), _siblings(kind, path))}"
        line = line_of(text, path)
        raise ConfigError(
            f"{name} does not say what it must",
            where=f"{name}:{line}",
            why=why,
            fix=f"$EDITOR +{line} {name}",
        ) from None


def load(path: Path, kind: type[M]) -> M:
    """Read one file. Raises ConfigError, also when the file is not there."""
    name = from_root(path)
    try:
        return parse(path.read_text(), kind, name)
    except FileNotFoundError:
        raise ConfigError(f"{name} is missing", where=name, fix=f"git checkout -- {name}") from None
    except UnicodeDecodeError as error:
        raise ConfigError(f"{name} is not text", where=name, why=str(error), fix=f"file {name}") from None


def from_root(path: Path) -> str:
    """A file as its user calls it: from the root of the checkout, that is from the last dockerfiles/ of its path."""
    parts = path.parts
    folders = [n for n, part in enumerate(parts[:-1]) if part == "dockerfiles"]
    return "/".join(parts[folders[-1] :]) if folders else str(path)


def _siblings(kind: type[BaseModel], path: tuple[int | str, ...]) -> list[str]:
    """The keys that would be valid where an unknown one stands."""
    model: object = kind
    for part in path[:-1]:
        if isinstance(model, type) and issubclass(model, BaseModel):
            field = model.model_fields.get(str(part))
            model = field.annotation if field else None
        else:  # dict[str, X] or list[X]: step into X
            model = getattr(model, "__args__", [None])[-1]
    return list(model.model_fields) if isinstance(model, type) and issubclass(model, BaseModel) else []
