"""Read what the grafts of this checkout became, from out/<id>/graft.json. It imports little, because `list` asks it."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TypeVar

from pydantic import Field, ValidationError

from trainwright.core.errors import TrainwrightError
from trainwright.core.progress import few
from trainwright.core.toml import Model, parse_json, read
from trainwright.matrix.records import GRAFT

M = TypeVar("M", bound=Model)

SHOWN = 12  # packages in a cell

_told = set[Path]()  # the damaged files that this process named


class Result(Model):
    """What a graft became: the content of out/<id>/graft.json."""

    id: str
    key: str
    image: str  # its name in the engine
    base: str
    digest: str = ""  # in the registry
    uri: str = ""
    lower_layers: int
    added_layers: int
    added_bytes: int = 0  # compressed, once it was saved
    signature: str = ""  # of image, SBOM and provenance, after a push
    twin: str = ""  # the address of its zstd twin, or why it has none
    nccl_before: list[str]
    nccl_after: list[str]
    requirements: str = ""  # path of the file whose packages were added
    added: list[str] = Field(default=[])  # these packages, as "name version"
    checked: str  # the last line of trainwright-check
    seconds: float = 0

    def shown(self) -> list[tuple[str, str]]:
        """Return the rows of a table: each field that says something."""
        rows = self.model_dump().items()
        return [(name, _short(value) if isinstance(value, list) else str(value)) for name, value in rows if value]


def _short(values: list[str]) -> str:
    return few(values, SHOWN, ", ")


def read_result(out: Path) -> Result | None:
    """Return graft.json; None if there is none, or another version wrote it. Raises ConfigError for a damaged file."""
    return read_record(out / GRAFT, Result)


def read_record(path: Path, kind: type[M]) -> M | None:
    """Return a record of a graft; None if there is none, or another version wrote it. Raises ConfigError."""
    if not path.exists():
        return None
    name = f"out/{path.parent.name}/{path.name}"
    said = parse_json(read(path, name), name, f"rm {name}, and graft again")
    try:
        return kind.model_validate(said)
    except ValidationError:
        return None


def is_graft(root: Path, identity: str) -> bool:
    """Return whether this checkout grafted an image with this id."""
    return Path(identity).name == identity and (root / "out" / identity / GRAFT).is_file()


def paths(root: Path) -> list[Path]:
    """Return the graft.json of every graft that was built in this checkout, by id."""
    return sorted(root.glob(f"out/*/{GRAFT}"))


def results(root: Path) -> Iterator[Result]:
    """Yield every graft that was built in this checkout, by id; say on standard error which file is damaged."""
    for path in paths(root):
        try:
            result = read_result(path.parent)
        except TrainwrightError as error:
            if path not in _told:
                _told.add(path)
                print(f"left out: {error.what}; fix: {error.fix}", file=sys.stderr)
            continue
        if result:
            yield result


def table(root: Path) -> list[dict[str, str]]:
    """Return a row for each graft of this checkout, for people."""
    found = list(results(root))
    extra = [{"with": one.requirements} if any(each.requirements for each in found) else {} for one in found]
    return [
        {"graft": one.id, "upon": one.base, **more, "published": one.uri or "no"}
        for one, more in zip(found, extra, strict=True)
    ]
