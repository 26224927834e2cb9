"""Define the foreign images of images.toml, and make them into a registry."""

import json
import subprocess
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from uuid import uuid4

from foreign.bases import BASES, CLEAN, UNPACKED

from trainwright.docker import engine

HERE = Path(__file__).parent
REPOSITORY = "foreign"
OURS = "bookworm-ours"  # the base before everything of trainwright was removed from it


@dataclass(frozen=True)
class Image:
    """A row of images.toml."""

    name: str
    anatomy: str
    steps: str
    start: str  # a base, or another image
    real: bool = False
    stand_in: bool = False
    exit_code: int = 0
    refused: list[str] = field(default_factory=list)
    handled: list[str] = field(default_factory=list)
    sagemaker: list[str] = field(default_factory=list)  # refused there in addition
    compression: str = "gzip"
    platform: str = ""
    arguments: dict[str, str] = field(
        default_factory=dict
    )  # of the build: a value with a newline, which no ENV can spell
    layers: int = 0  # at least so many, by copies of an empty file
    wheels: str = ""  # the lock whose framework it installs from own/<lock>; for its gigabytes it is made only by name


def images() -> dict[str, Image]:
    rows = tomllib.loads((HERE / "images.toml").read_text())["images"]
    return {name: Image(name=name, start=row.pop("from"), **row) for name, row in rows.items()}


def base(known: Mapping[str, Image], name: str) -> str:
    """Return the base that an image stands on at last."""
    while name in known and known[name].start != name:  # an image can have the name of the base that it stands on
        name = known[name].start
    return "bookworm" if name == OURS else name


def is_real(known: Mapping[str, Image], name: str) -> bool:
    """Return whether an image, or one below it, installs a framework from its wheel."""
    return known[name].real


def dockerfile(known: Mapping[str, Image], label: str) -> str:
    """Return one Dockerfile with a stage for each image, so that BuildKit makes shared layers once."""
    parts = [CLEAN.format(name=name, label=label) for name in BASES] + [UNPACKED.format(label=label)]
    parts += [f"FROM bookworm AS {OURS}-base\nLABEL io.trainwright.test={label}\n"]
    for name, one in known.items():
        other = one.start in known and one.start != name  # an image can have the name of the base that it stands on
        start = one.start if other or one.start == "scratch" else f"{one.start}-base"
        more = "".join(f"COPY --from=own relocate.sh /layers/{number}\n" for number in range(one.layers))
        parts.append(f"FROM {start} AS {name}\n{one.steps.rstrip()}\n{more}")
    return "\n".join(parts)


def make(
    wanted: Iterable[str], bases: Mapping[str, str], own: Path, registry: str, label: str = ""
) -> Iterator[tuple[str, str]]:
    """Build images and push each into a registry; yield its name and repository@digest.

    `bases` maps a base to its name in the engine, `own` is the folder of context.make. Raises RuntimeError with what
    the build said.
    """
    known, label = images(), label or uuid4().hex
    text = own / f"Dockerfile-{label}"
    text.write_text(dockerfile(known, label))
    for name in wanted:
        one, reference = known[name], f"{registry}/{REPOSITORY}:{name}"
        kind = f"compression={one.compression},force-compression=true,oci-mediatypes=true"
        said = own / f"{name}.json"
        words = [str(engine.buildx()), "build", "--file", str(text), "--target", name, "--provenance=false"]
        words += ["--build-context", f"own={own}", "--metadata-file", str(said)]
        words += [f"--build-context={base}=docker-image://{held}" for base, held in bases.items()]
        words += [f"--build-arg={argument}={value}" for argument, value in one.arguments.items()]
        words += [f"--output=type=image,name={reference},push=true,{kind}", *_platform(one), str(own / "wheels")]
        done = subprocess.run(words, capture_output=True, text=True)
        if done.returncode:
            raise RuntimeError(f"{name}: {done.stderr[-3000:]}")
        subprocess.run(["docker", "rmi", reference], capture_output=True)
        yield name, f"{registry}/{REPOSITORY}@{json.loads(said.read_text())['containerimage.digest']}"


def _platform(one: Image) -> list[str]:
    return [f"--platform={one.platform}"] if one.platform else []
