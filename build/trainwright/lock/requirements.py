"""Parse a requirements file: keep each line's place, and refuse a line that cannot be locked."""

import re
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import NoReturn

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name
from pydantic import Field

from trainwright.core.errors import ConfigError
from trainwright.core.toml import Model
from trainwright.core.toml import read as read_text

HASH = re.compile(r"--hash[= ](\S+)")
COMPILE = re.compile(r"#\s*trainwright:\s*compile\b(.*)")  # after a line: build it against torch, in the devel twin
MOST, LONGEST = 10_000, 1000  # the most requirements of a file, and the most characters of one without its hashes
FROM_ELSEWHERE = re.compile(r"^(-e\b|--editable\b|[\w.+-]+://|git\+|\.{0,2}/|.+\.(whl|tar\.gz|zip)$)")


class Line(Model):
    """One requirement."""

    text: str  # without hashes and comment
    where: str  # file:line
    hashes: tuple[str, ...] = ()  # sha256 (hex) that its file may have; empty: any
    compile: bool = False
    environment: dict[str, str] = Field(default={})  # of its compilation

    @property
    def name(self) -> str:
        return str(canonicalize_name(Requirement(self.text).name))


class Asked(Model):
    """The requirements of a file and of the files that it includes."""

    lines: list[Line]
    constraints: list[Line]  # of -c files: they request nothing, but hold versions


def read(path: Path) -> Asked:
    """Read a requirements file with what it includes. Raises ConfigError with file and line."""
    found = _read(path, [])
    if not found.lines:
        raise ConfigError("the requirements file contains no requirement", where=str(path), fix=f"$EDITOR {path}")
    return found


def _read(path: Path, within: list[Path]) -> Asked:
    text = read_text(path, str(path))
    lines: list[Line] = []
    constraints: list[Line] = []
    rows = list(islice(_rows(text, path), MOST + 1))
    if len(rows) > MOST:  # said before thousands of lines are parsed
        raise _too_long(rows[MOST][0])
    for where, row in rows:
        if len(lines) + len(constraints) >= MOST:
            raise _too_long(where)
        included = re.match(r"(-r|--requirement|-c|--constraint)[ =]?\s*(\S+)", row)
        if not included:
            lines.append(_line(row, where))
            continue
        other = path.parent / included[2]
        if other in (path, *within):
            raise ConfigError("a requirements file includes itself", where=where, why=row, fix=_edit(where))
        below = _read(other, [path, *within])
        if included[1] in ("-r", "--requirement"):
            lines += below.lines
            constraints += below.constraints
        else:
            constraints += below.lines
    return Asked(lines=lines, constraints=constraints)


def _too_long(where: str) -> ConfigError:
    """Return the error for so many requirements that the resolver would take hours."""
    why = f"the limit is {MOST} requirement lines, including those of included files"
    return ConfigError("the requirements file is too long", where=where, why=why, fix=_edit(where))


def _rows(text: str, path: Path) -> Iterator[tuple[str, str]]:
    """Yield file:line and text of every non-empty line, with continued lines joined; keep `# trainwright:` comments."""
    begun, whole = 0, ""
    for number, row in enumerate(text.splitlines(), 1):
        begun = begun if whole else number
        if row.rstrip().endswith("\\"):
            whole += row.rstrip()[:-1] + " "
            continue
        whole += row
        ours = COMPILE.search(whole)
        plain = re.sub(r"(^|\s)#.*", "", whole).strip()
        if plain:
            yield f"{path}:{begun}", f"{plain} {ours[0]}" if ours else plain
        whole = ""
    if whole:
        yield f"{path}:{begun}", whole.strip()


def _line(row: str, where: str) -> Line:
    def refuse(what: str, why: str) -> NoReturn:
        raise ConfigError(what, where=where, why=why, fix=_edit(where))

    def refuse_address() -> NoReturn:
        refuse(
            f"{text} does not come from a package index",
            "its content has no checksum and may change or disappear: build a wheel or a source distribution from it, "
            "publish that in an index or a find-links folder of pip, and name it with its version",
        )

    plain = re.sub(r"\s*#.*", "", row)
    ours, hashes = COMPILE.search(row), HASH.findall(plain)
    text = HASH.sub("", plain).strip()
    if len(text) > LONGEST:
        refuse("this is not a requirement", f"{text[:40]}... has {len(text)} characters; the limit is {LONGEST}")
    if FROM_ELSEWHERE.match(text):
        refuse_address()
    if text.startswith("-"):
        refuse(
            f"{text.split()[0]} is not allowed in this file",
            "indexes come from this host's pip configuration and TRAINWRIGHT_MIRRORS; see `trainwright doctor`",
        )
    if wrong := next((given for given in hashes if not re.fullmatch(r"sha256:[0-9a-f]{64}", given)), ""):
        refuse("the hash is not a sha256", f"--hash={wrong}")
    try:
        if Requirement(text).url:
            refuse_address()
    except InvalidRequirement as error:
        refuse("this is not a requirement", f"{text}: {str(error).splitlines()[0]}")
    words = ours[1].split() if ours else []
    if wrong := next((word for word in words if not re.fullmatch(r"[A-Z][A-Z0-9_]*=[\w.;,:+/-]*", word)), ""):
        refuse("`# trainwright: compile` takes NAME=value", wrong)
    environment = dict(word.split("=", 1) for word in words)
    sums = tuple(given.removeprefix("sha256:") for given in hashes)
    return Line(text=text, where=where, hashes=sums, compile=bool(ours), environment=environment)


def _edit(where: str) -> str:
    path, _, line = where.rpartition(":")
    return f"$EDITOR +{line} {path}"
