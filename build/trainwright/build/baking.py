"""Build out/<id>/ with `docker-buildx bake`, pack the result, and load the packed image into the engine."""

import json
import re
import secrets
import shlex
from collections.abc import Sequence
from contextlib import suppress
from itertools import takewhile
from pathlib import Path

from trainwright.core import files, store
from trainwright.core.errors import BuildError, EnvironmentProblem
from trainwright.core.files import packed
from trainwright.core.process import pass_on
from trainwright.docker import buildx, canonical, engine
from trainwright.docker.canonical import Packed
from trainwright.image.bake import IMAGE_OUTPUT

# Because a layer passes through three processes, fast compression costs less than copying all of its bytes.
COMPRESSION = "compression=zstd,compression-level=1"


def bake(folder: Path, name: str = "", words: Sequence[str] = ()) -> None:
    """Build out/<id>/ as it is on disk; `name` replaces the image's own name.

    A built image is packed and loaded packed, so that the engine holds the same bytes that a registry will. Raises
    BuildError; BuildKit's progress goes to standard error. `words` are passed to bake.
    """
    engine.client()
    target = json.loads((folder / "docker-bake.json").read_text())["target"]["image"]
    here = engine.builds_itself()
    if not here:
        scheme = "docker-image://"
        held = (place.removeprefix(scheme) for place in target["contexts"].values() if place.startswith(scheme))
        buildx.must_hold(engine.builder(), held)
    if target["output"] != [IMAGE_OUTPUT]:
        _bake(folder, words)
    elif here and engine.facts()["image_store"] != "containerd":  # such an engine cannot export a layout
        unpacked = f"trainwright/unpacked:{secrets.token_hex(6)}"
        try:
            _bake(folder, [*words, "--set", f"image.tags={unpacked}"])
            load(engine.packed(unpacked), name or target["tags"][0])
        finally:
            engine.remove(unpacked)
    else:
        load(_bake_layout(folder, words), name or target["tags"][0])


def _bake_layout(folder: Path, words: Sequence[str]) -> Packed:
    """Build and pack the result; layers whose content the store holds are not exported."""
    for spared in (canonical.spared(), []):
        with files.scratch(folder, ".built-") as made:
            blobs = made / "blobs/sha256"
            blobs.mkdir(parents=True)
            for digest in spared:  # an exporter does not overwrite existing blobs
                (blobs / digest).touch()
            output = f"type=oci,tar=false,{COMPRESSION},dest={made.relative_to(folder)}"
            _bake(folder, [*words, "--set", f"image.output={output}"])
            with suppress(canonical.Lacking):  # known, but with other bytes on top of these layers: build again
                return canonical.pack(made)
        words = [word for word in words if word != "--no-cache"]  # the cache holds what was just built
    raise AssertionError(f"{folder}: a layer is missing from the build, though none was left out")


def _bake(folder: Path, words: Sequence[str]) -> None:
    pass_on(
        [engine.buildx(), "bake", "--file", "docker-bake.json", *words],
        cwd=folder,
        error=BuildError,
        what=f"the build of {folder.name} failed",
        fix=f"cd {shlex.quote(str(folder))} && docker buildx bake",
        reason=failed_step,
    )


def failed_step(said: str) -> str:
    """Return BuildKit's summary of the failed step: its name and last lines, between two rules of dashes."""
    blocks = re.findall(r"^-{4,}\n( > .*?)^-{4,}$", said, re.DOTALL | re.MULTILINE)
    return blocks[-1].rstrip() if blocks else "\n".join(said.splitlines()[-15:])


def settle(name: str) -> None:
    """Pack an image of the engine and load the packed one. Raises EnvironmentProblem, BuildError."""
    made = engine.packed(name)
    if engine.image_id(name) != made.digest:
        load(made, name)


def load(made: Packed, name: str) -> None:
    """Load a packed image into the engine under a name. Raises EnvironmentProblem."""
    rest = _held(made)
    for leave_out in dict.fromkeys([rest, ()]):  # an engine may have lost layers that it lists
        problem = _load(made, name, leave_out)
        if not problem and engine.image_id(name) == made.digest:
            return
        engine.remove(name)
    raise EnvironmentProblem(
        f"{name} cannot be loaded", why=problem or "the engine gave it another digest", fix="df -h"
    )


def _held(made: Packed) -> tuple[str, ...]:
    """Return the digests of the leading layers that the engine already holds in one of our images."""
    own, most = [f"sha256:{layer}" for layer in made.layers()], 0
    for theirs in engine.layers_of_images("trainwright/*"):
        same = takewhile(lambda pair: pair[0] == pair[1], zip(own, theirs, strict=False))
        most = max(most, len(list(same)))
    return tuple(str(layer["digest"]) for layer in made.manifest["layers"][:most])


def _load(made: Packed, name: str, leave_out: Sequence[str]) -> str:
    """Load the image without the layers in `leave_out`; return the error's text, or "" on success."""
    with store.scratch() as folder, engine.told(f"{name} cannot be loaded"):
        canonical.lay_out(made, folder / "layout", name, leave_out)
        answer = engine.client().api.load_image(packed(folder / "layout"))
        lines = [row.get("error") or str(row.get("stream", "")) for row in answer if "progress" not in row]
    return "\n".join(line for line in lines if line and not line.startswith("Loaded image"))
