"""Render what a graft adds: launcher and preflight for the image's own Python, a declaration of what was found."""

import io
import json
import re
import tarfile
from datetime import UTC, datetime
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

from trainwright.core.errors import BuildError
from trainwright.graft.found import Found
from trainwright.graft.plan import CONSTRAINTS, Plan, constraints
from trainwright.image import declared, preflight_settings, tags, templates
from trainwright.image import key as image_key
from trainwright.matrix.matrix import Intent

COMMON = "dockerfiles/rootfs/common"
OURS = "/opt/venv/bin/python"  # the interpreter that launcher and preflight name in images of the matrix
PLAIN = re.compile(r"[\w.+:@/-]*")  # what a Dockerfile and a shell take without quotes
OUTPUT = "type=image,oci-mediatypes=false,compression=gzip"  # of the added layer; those below stay as they are


class Graft(NamedTuple):
    """A graft on paper: its names, and the files of out/<id>/ with their modes."""

    id: str
    key: str
    tag: str
    name: str  # in the engine
    epoch: int
    files: dict[str, tuple[str, int]]  # those below rootfs/ are packed into graft.tar


def graft(intent: Intent, found: Found, made: Plan) -> Graft:
    """Render a graft. Raises BuildError for names in the image that a script cannot hold."""
    python = found.python
    assert python is not None  # because the plan refuses an image without Python
    versions = {name: one.version for name, one in _components(found).items() if one.version}
    for text in (python.path, found.pinned, *versions.values()):
        if not PLAIN.fullmatch(text):
            why = "only letters, digits and . _ + : @ / - are possible there"
            raise BuildError(f"{text!r} cannot be written into a graft", where=found.pinned, why=why)
    files = _rootfs(intent.root, python.path, bool(found.inside and found.inside.paths.get("/etc/pip.conf")))
    own = {
        CONSTRAINTS: constraints(python.packages),
        declared.PLACE: _json(declaration(intent, found, made.id)),
        declared.LIBRARIES: _json(_libraries(intent, found)),
        "/opt/trainwright/preflight.json": preflight_settings.text(intent, _cuda(found)),
    }
    files |= {f"rootfs{path}": (text, 0o644) for path, text in own.items()}
    context: dict[str, object] = {
        "id": made.id,
        "pinned": found.pinned,
        "versions": versions,
        "environment": made.environment,
    }
    files["Dockerfile"] = (templates.fill(intent, "graft/image.j2", context), 0o644)
    unnamed = _bake(found.model_copy(update={"source": found.pinned}), "", "")  # the same wherever the image is held
    said = {path: f"{mode:o} {text}" for path, (text, mode) in files.items()}
    key = image_key.input_key({**said, "docker-bake.json": unnamed}, {}, "", found.pinned)
    tag = tags.key_tag(made.id, key)
    name = tags.engine_name(made.framework, tag)
    files["docker-bake.json"] = (_bake(found, name, key), 0o644)
    return Graft(id=made.id, key=key, tag=tag, name=name, epoch=epoch(found.config.created), files=files)


def archive(one: Graft) -> bytes:
    """Return the files of the layer as a tar whose bytes depend on them and the image's time only."""
    files = {name.removeprefix("rootfs/"): row for name, row in one.files.items() if name.startswith("rootfs/")}
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


def _rootfs(root: Path, python: str, own_pip: bool) -> dict[str, tuple[str, int]]:
    """Return the files of every image of ours, for another interpreter; without pip's settings if it has its own."""
    found, top = dict[str, tuple[str, int]](), root / COMMON
    for path in sorted(top.rglob("*")):
        name = path.relative_to(top).as_posix()
        if not path.is_file() or "__pycache__" in name or (own_pip and name == "etc/pip.conf"):
            continue
        mode = 0o755 if path.stat().st_mode & 0o100 else 0o644
        found[f"rootfs/{name}"] = (path.read_text().replace(OURS, python), mode)
    return found


def _components(found: Found) -> dict[str, Any]:
    python, inside = found.python, found.inside
    return {**(python.components if python else {}), **(inside.commands if inside else {})}


def declaration(intent: Intent, found: Found, identity: str) -> dict[str, Any]:
    """Return declared.json: what was found, in the form in which an image of ours declares what it was locked with."""
    python, known = found.python, intent.components.components
    rows = {}
    for name, version in {**{n: one.version for n, one in _components(found).items()}, "nccl": found.nccl}.items():
        if not version or name not in known:
            continue
        one, told = known[name], name != "nccl"  # a NCCL that only the framework finds has no name for the loader
        rows[name] = {
            "version": version,
            "says": version,
            "position": one.position,
            "compiled": False,
            "probe": one.probe.model_dump(include={"command", "code", "pattern"}, exclude_defaults=True),
            "at_start": one.probe.at_start and told,
            "libraries": one.libraries,
            "symbol": one.symbol,
            "variables": one.variables if told else {},
        }
    order = sorted(rows, key=lambda name: (rows[name]["position"] != "framework", bool(rows[name]["libraries"]), name))
    return {
        "schema": 1,
        "id": identity,
        "accelerator": found.accelerator,
        "components": {name: rows[name] for name in order},
        "python": {name: version for name, version in sorted(python.packages.items()) if name} if python else {},
        "may_move": intent.components.tools.may_move,
        "packages": found.inside.packages if found.inside else {},
    }


def _libraries(intent: Intent, found: Found) -> dict[str, Any]:
    """Return libraries.json: the files of the components that the declaration holds."""
    held = declaration(intent, found, "")["components"]
    rows = found.inside.libraries if found.inside else {}
    return {path: one.model_dump(exclude={"version"}) for path, one in sorted(rows.items()) if one.component in held}


def _cuda(found: Found) -> dict[str, str]:
    digits = found.accelerator.removeprefix("cu")
    return {"cuda": f"{digits[:-1]}.{digits[-1]}"} if digits.isdigit() and len(digits) > 1 else {}


def epoch(created: str) -> int:
    """Return the time of an image in seconds, which the graft's files get; 0 if it cannot be read."""
    try:
        return max(0, int(datetime.fromisoformat(created[:19]).replace(tzinfo=UTC).timestamp()))
    except ValueError:
        return 0


def _bake(found: Found, name: str, key: str) -> str:
    target: dict[str, Any] = {
        "context": ".",
        "dockerfile": "Dockerfile",
        "contexts": {"parent": f"docker-image://{found.source}"},
        "args": {"SOURCE_DATE_EPOCH": str(epoch(found.config.created))},
        "platforms": [f"linux/{found.config.architecture}"],
        "attest": ["type=provenance,disabled=true", "type=sbom,disabled=true"],
        "output": [OUTPUT],
    }
    if name:
        target |= {"tags": [name], "labels": {tags.KEY_LABEL: key}}
    return _json({"group": {"default": {"targets": ["image"]}}, "target": {"image": target}})


def _json(value: object) -> str:
    return json.dumps(value, indent=1, sort_keys=False) + "\n"
