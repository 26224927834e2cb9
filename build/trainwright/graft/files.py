"""Render what a graft adds: the layers of its pins, launcher, preflight and declaration, for the image's own Python."""

import io
import json
import re
import tarfile
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple, get_args

from trainwright.core.errors import BuildError
from trainwright.docker.oci_layout import DOCKERS, OCIS, Kinds
from trainwright.graft.found import Found
from trainwright.graft.lock import Locked
from trainwright.graft.plan import CONSTRAINTS, Plan, constraints
from trainwright.image import declared, notices, preflight_settings, probe, render, tags, templates
from trainwright.image import key as image_key
from trainwright.image.inputs import Inputs
from trainwright.inspect.image_config import DEFAULT_SHELL
from trainwright.lock import lockfile
from trainwright.lock.wheels import is_wheel
from trainwright.matrix.matrix import Recipe
from trainwright.matrix.model import IN_BASE, Position, PythonFile
from trainwright.matrix.providers import is_compiled

ROOTFS = "dockerfiles/rootfs"
OURS = re.compile(r"/opt/venv/bin/python3?")  # the interpreter that launcher and preflight name in images of the matrix
PLAIN = re.compile(r"[\w.+:@/-]*")  # what a Dockerfile and a shell take without quotes
OUTPUT = "type=image,compression=gzip"  # of the added layers; those below stay as they are
# Where the files of rootfs/sagemaker go; the launcher's module goes to the site-packages of the image's Python.
SAGEMAKER = {"train": "opt/trainwright/bin", "sdk": "opt/trainwright"}
MODULE = "trainwright_launch.py"
OVERLAPS = "refuse_overlaps.py"  # which runs in the image before the packages of a requirements file are installed


class Graft(NamedTuple):
    """A graft on paper: its names and inputs, and the files that are packed into graft.tar, with their modes."""

    inputs: Inputs
    epoch: int
    python: str  # path of the interpreter that the graft uses
    files: dict[str, tuple[str, int]]

    @property
    def id(self) -> str:
        return self.inputs.variant.id

    @property
    def key(self) -> str:
        return self.inputs.key

    @property
    def tag(self) -> str:
        return self.inputs.tag

    @property
    def name(self) -> str:
        """Return its name in the engine."""
        return self.inputs.name


def graft(recipe: Recipe, found: Found, made: Plan, locked: Locked) -> Graft:
    """Render a graft. Raises BuildError for names in the image that a script cannot hold."""
    python, intent = found.python, recipe.intent
    assert python is not None  # because the plan refuses an image without Python
    pins = lockfile.pin_versions(recipe, locked.lock, locked.packages.packages())
    for word in (python.path, python.site, found.pinned, *pins.values()):
        if not PLAIN.fullmatch(word):
            why = "only letters, digits and . _ + : @ / - are possible there"
            raise BuildError(f"{word!r} cannot be written into a graft", where=found.pinned, why=why)
    own_pip = bool(found.inside and found.inside.paths.get("/etc/pip.conf"))
    packed = _rootfs(intent.root, python.path, own_pip, recipe.variant.target)
    installed = {**python.packages, **{entry.name: entry.version for entry in added(recipe, locked)}}
    packed |= {
        CONSTRAINTS.lstrip("/"): (constraints(installed), 0o644),
        declared.PLACE.lstrip("/"): (_json(declaration(recipe, found, pins, installed, locked)), 0o644),
        "opt/trainwright/preflight.json": (preflight_settings.text(intent, pins), 0o644),
        "opt/trainwright/notices.txt": (_notices(recipe, locked), 0o644),
    }
    if not runs(recipe):  # nothing of the image runs, so the record is what was found
        packed[declared.LIBRARIES.lstrip("/")] = (_json(_libraries(recipe, found)), 0o644)
    wheels = folders(locked)
    text = {f"requirements/{name}.txt": _lines(entries) for name, entries in wheels.items()}
    if "toolkit" in wheels:
        text[f"requirements/{MODULE}"] = OURS.sub(
            python.path, (intent.root / ROOTFS / "sagemaker" / MODULE).read_text()
        )
    if "added" in wheels:
        text[f"requirements/{OVERLAPS}"] = (intent.root / "dockerfiles/graft" / OVERLAPS).read_text()
    text["Dockerfile"] = templates.fill(intent, "graft/image.j2", _context(recipe, found, made, locked, pins, wheels))
    contexts = [f"wheels/{name}" for name in wheels] + ["requirements"] * bool(wheels)
    contexts += ["packages"] if runs(recipe) else []
    contexts += ["sources"] if locked.lock.sources else []
    contexts += ["build-packages"] if locked.tools else []
    same = found.model_copy(update={"source": found.pinned})  # the key is the same wherever the image is held
    said = {path: f"{mode:o} {content}" for path, (content, mode) in packed.items()}
    sums = {f"wheels/{name}/{one.file}": one.sha256 for name, entries in wheels.items() for one in entries}
    sums |= {f"sources/{source.name}": source.commit or source.sha256 for source in locked.lock.sources}
    sums |= {"build-packages": locked.tools.manifest} if locked.tools else {}
    own = {**said, **text, "docker-bake.json": _bake(same, contexts, "", "")}
    key = image_key.input_key(own, sums, locked.packages.manifest, found.pinned)
    tag = tags.key_tag(recipe.id, key)
    name = tags.engine_name(recipe.variant.framework, tag)
    text["docker-bake.json"] = _bake(found, contexts, name, key)
    inputs = Inputs(
        recipe=recipe,
        lock=locked.lock,
        distribution=locked.packages,
        tools=locked.tools,
        wheels=wheels,
        pins=pins,
        versions=probe.expected_versions(recipe, pins),
        text=text,
        rootfs={},
        base_key="",
        warnings=[],
        blocked=[],
        key=key,
        tag=tag,
        name=name,
    )
    return Graft(inputs=inputs, epoch=epoch(found.config.created), python=python.path, files=packed)


def runs(recipe: Recipe) -> bool:
    """Return whether the build runs steps in the image; without any, one archive is unpacked on top of it."""
    return any(pin.provider != IN_BASE for pin in recipe.pins.values()) or bool(recipe.variant.requirements)


def set_by(dockerfile: str) -> set[str]:
    """Return the variables that the ENV steps of a Dockerfile set."""
    steps = re.findall(r"^ENV ((?:.*\\\n)*.*)$", dockerfile, re.MULTILINE)
    return {name for step in steps for name in re.findall(r"^\s*([A-Za-z_]\w*)=", step, re.MULTILINE)}


def replaced(recipe: Recipe) -> set[str]:
    """Return the components of the image whose place an added one takes."""
    return {name for name, pin in recipe.pins.items() if pin.provider != IN_BASE}


def added(recipe: Recipe, locked: Locked) -> list[PythonFile]:
    """Return the Python packages that the graft installs."""
    return list(recipe.installed(locked.lock).values())


def folders(locked: Locked) -> dict[str, list[PythonFile]]:
    """Return the files of each folder below out/<id>/wheels/; a folder without files is left out."""
    names = ("tools", "sdist-build", "toolkit", "added")
    made = {name: [one for one in locked.lock.python if one.group == name] for name in names}
    made["compile"] = [one for one in locked.lock.python if one.compile]
    if not made["toolkit"]:
        del made["sdist-build"]
    return {name: entries for name, entries in made.items() if entries}


def _lines(entries: list[PythonFile]) -> str:
    return render.requirement_lines([entry for entry in entries if is_wheel(entry)])


def _notices(recipe: Recipe, locked: Locked) -> str:
    """Return the notices of what the graft adds; the image's own apply to the rest."""
    own = {name: row for name, row in locked.packages.locked.items() if row["SHA256"]}
    state = locked.packages.model_copy(update={"locked": own, "effective": own})
    return notices.text(recipe, locked.lock, state)


def _context(
    recipe: Recipe,
    found: Found,
    made: Plan,
    locked: Locked,
    pins: dict[str, str],
    wheels: dict[str, list[PythonFile]],
) -> dict[str, object]:
    """Return the variables of the templates: those of an image of the matrix, and the image's own facts."""
    python = found.python
    assert python is not None
    layers = [(name, _template(recipe, name)) for name in _order(recipe)]
    return {
        "variant": recipe.variant,
        "base": recipe.base.model_copy(update={"reference": "parent"}),
        "pins": pins,
        "providers": {name: pin.provider for name, pin in recipe.pins.items()},
        "components": {name: recipe.component(name) for name in recipe.pins},
        "architectures": recipe.capabilities,
        "toolkit": None,
        "site": python.site,
        "compiles": recipe.compiles,
        "left_out": {},
        "cut": {},
        "sdists": {name: [one for one in entries if not is_wheel(one)] for name, entries in wheels.items()},
        "packages": render.beyond(recipe.base, locked.packages.packages()),
        "build_packages": render.beyond(recipe.base, locked.tools.packages()) if locked.tools else [],
        "epoch": epoch(found.config.created),
        "layers": layers,
        "stages": sorted(layers, key=lambda row: is_compiled(recipe.provider(row[0]))),
        "runs": runs(recipe),
        "id": recipe.id,
        "pinned": found.pinned,
        "python": python.path,
        "user": found.config.user,
        "shell": json.dumps(found.config.shell or DEFAULT_SHELL),
        "own_path": "LD_LIBRARY_PATH" in found.config.environment,
        "environment": made.environment,
        "wheels": list(wheels),
        "cuda": _cuda_of(recipe, found),
    }


def _cuda_of(recipe: Recipe, found: Found) -> dict[str, object]:
    """Return where CUDA and NCCL are: of the wheels of the image's Python, or of the image's own toolkit."""
    mapped = next(iter(found.mapped or found.nccls), "")
    return {
        "fabric": recipe.compiles,
        "nvcc": found.has_nvcc,
        "nccl": str(PurePosixPath(mapped).parent) if mapped else "",
        "wheel": bool(found.python and mapped.startswith(f"{found.python.site}/nvidia/nccl/")),
    }


def _template(recipe: Recipe, name: str) -> str:
    own = f"graft/{name}.j2"
    return own if (recipe.root / "dockerfiles" / own).exists() else f"layers/{name}.j2"


def _order(recipe: Recipe) -> list[str]:
    """Return what the graft adds in the order of an image's layers; a component that bundles others comes first."""
    installers = {recipe.provider(pin).bundled_by for pin in recipe.pins}
    places = list(get_args(Position))
    names = [name for name, pin in recipe.pins.items() if pin.provider != IN_BASE]
    return sorted(names, key=lambda name: (places.index(recipe.component(name).position), name not in installers, name))


def archive(one: Graft) -> bytes:
    """Return the files of the layer as a tar whose bytes depend on them and the image's time only."""
    files = one.files
    folders = {str(folder) for name in files for folder in PurePosixPath(name).parents} - {"."}
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        for name in sorted(folders | files.keys()):
            member = tarfile.TarInfo(name)
            member.mtime, member.mode = one.epoch, 0o755
            content = b""
            if name in files:
                content, member.mode = files[name][0].encode(), files[name][1]
                member.size = len(content)
            else:
                member.type = tarfile.DIRTYPE
            tar.addfile(member, io.BytesIO(content))
    return packed.getvalue()


def _rootfs(root: Path, python: str, own_pip: bool, target: str) -> dict[str, tuple[str, int]]:
    """Return the files of images of ours, for another interpreter; without pip's settings if the image has its own."""
    found = dict[str, tuple[str, int]]()
    for path, name in _sources(root / ROOTFS, target):
        if "__pycache__" in name or (own_pip and name == "etc/pip.conf"):
            continue
        mode = 0o755 if path.stat().st_mode & 0o100 else 0o644
        found[name] = (OURS.sub(python, path.read_text()), mode)
    return found


def _sources(top: Path, target: str) -> Iterator[tuple[Path, str]]:
    """Yield each file of rootfs/ and its path in the image."""
    for path in sorted(path for path in (top / "common").rglob("*") if path.is_file()):
        yield path, path.relative_to(top / "common").as_posix()
    for path in sorted(path for path in (top / target).rglob("*") if path.is_file()):
        name = path.relative_to(top / target).as_posix()
        if folder := SAGEMAKER.get(name.partition("/")[0]):
            yield path, f"{folder}/{name}"


def declaration(
    recipe: Recipe, found: Found, pins: dict[str, str], installed: dict[str, str], locked: Locked
) -> dict[str, Any]:
    """Return declared.json as an image of ours has it: what was found, and what is added."""
    said = declared.declaration(recipe, pins, [], locked.packages.packages())
    said["python"] = {name: version for name, version in sorted(installed.items()) if name}
    for name, row in said["components"].items():
        if recipe.pins[name].provider == IN_BASE:
            row["says"] = row["version"]  # it was asked, not resolved
    if not said["packages"]:  # nothing of the distribution is added, so its packages were not locked
        said["packages"] = found.inside.packages if found.inside else {}
    if not recipe.compiles and "nccl" in said["components"]:
        # A NCCL that only the framework finds has no name for the loader.
        said["components"]["nccl"] |= {"at_start": False, "variables": {}}
    if "cuda" in said["components"]:
        said["components"]["cuda"]["at_start"] = recipe.compiles
    return said


def _libraries(recipe: Recipe, found: Found) -> dict[str, Any]:
    """Return libraries.json: the files of the components that the declaration holds."""
    rows = found.inside.libraries if found.inside else {}
    return {
        path: one.model_dump(exclude={"version"}) for path, one in sorted(rows.items()) if one.component in recipe.pins
    }


def epoch(created: str) -> int:
    """Return the time of an image in seconds, which the graft's files get; 0 if it cannot be read."""
    try:
        return max(0, int(datetime.fromisoformat(created[:19]).replace(tzinfo=UTC).timestamp()))
    except ValueError:
        return 0


def kinds(found: Found) -> Kinds:
    """Return the media types of a graft: Docker's, which SageMaker requires, unless layers below are of zstd."""
    return OCIS if any(kind.endswith("zstd") for kind in found.config.media_types) else DOCKERS


def _bake(found: Found, folders: list[str], name: str, key: str) -> str:
    contexts = {one.rpartition("/")[2]: one for one in folders}
    target: dict[str, Any] = {
        "context": ".",
        "dockerfile": "Dockerfile",
        "contexts": {"parent": f"docker-image://{found.source}", **contexts},
        "args": {"SOURCE_DATE_EPOCH": str(epoch(found.config.created))},
        "platforms": [f"linux/{found.config.architecture}"],
        "attest": ["type=provenance,disabled=true", "type=sbom,disabled=true"],
        "output": [f"{OUTPUT},oci-mediatypes={str(kinds(found) is OCIS).lower()}"],
    }
    if name:
        target |= {"tags": [name], "labels": {tags.KEY_LABEL: key}}
    return _json({"group": {"default": {"targets": ["image"]}}, "target": {"image": target}})


def _json(value: object) -> str:
    return json.dumps(value, indent=1, sort_keys=False) + "\n"
