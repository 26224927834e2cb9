"""Compare two images, each named by id, release, address or engine name, without pulling them."""

import json
import re
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from pydantic import ValidationError

from trainwright.build import state
from trainwright.core import checkout
from trainwright.core.console import human
from trainwright.core.errors import ConfigError, NotRunError, RegistryError, TrainwrightError, did_you_mean
from trainwright.core.progress import Say
from trainwright.core.toml import parse_json, read
from trainwright.docker import engine
from trainwright.image import inputs, probe, tags
from trainwright.image import tags as image_names
from trainwright.image.inputs import Inputs
from trainwright.inspect import diff_model, parent, verify_child
from trainwright.inspect.child_check import OwnFiles
from trainwright.inspect.diff_model import Blob, Comparison, Contents, Side
from trainwright.inspect.verify_child import OWN_FILES, PROBE
from trainwright.lock import diff
from trainwright.matrix.matrix import Intent, Recipe, load_intent
from trainwright.publish import release_records, sbom
from trainwright.registry import client, locations

RELEASE = re.compile(r"(?P<name>\d{4}\.\d{1,2}\.\d+):(?P<id>.+)|(?P<id2>.+)-(?P<name2>\d{4}\.\d{1,2}\.\d+)")
HOST = re.compile(r"(localhost|[^/]*[.:][^/]*)/.")  # start of a reference with a host, not of an engine's name


def compare(intent: Intent, old: str, new: str, given: str, say: Say, regions: str = "") -> Comparison:
    """Compare `old` and `new`: ids, releases, addresses or names in the engine; `given` is the registry.

    Raises ConfigError for an invalid name, NotRunError and RegistryError for an image that does not exist.
    """
    one, other = (_side(intent, said, given, regions) for said in (old, new))
    if (one.digest and one.digest == other.digest) or diff_model.same_image(one, other):
        nothing = Contents(by="the other side", versions={}, distribution={}, python={}, sources={})
        sides = (side.model_copy(update={"contents": nothing}) for side in (one, other))
    else:
        sides = (side.model_copy(update={"contents": _contents(intent, side, say)}) for side in (one, other))
    return diff_model.compare(*sides)


def sentences(found: Comparison) -> list[str]:
    """Return a summary for people: the size of a pull, anything not compared, and whether there are differences."""
    layers, said = found.layers, [f"not compared: {unknown}" for unknown in found.unknown]
    if diff_model.same_image(found.old, found.new):
        sizes = [
            f"{side.compression} {human(sum(one.size for one in side.layers or []))}" for side in (found.old, found.new)
        ]
        return [
            f"same image, other compression: {', '.join(sizes)}; both have the configuration {found.new.configuration}"
        ]
    if layers:
        pull = "the bytes of a pull are only known for images in a registry"
        if layers.new_bytes is not None:
            pull = f"a host with the first image pulls {human(layers.new_bytes)} of {human(layers.new_size)}"
        said.append(f"layers: {layers.shared} shared, {layers.new} new, {layers.gone} gone; {pull}")
    if not found.rows and not (layers and layers.new + layers.gone):
        same = f": both are {found.old.digest}" if found.old.digest == found.new.digest != "" else ""
        said.append(f"no difference{' in what could be compared' if found.unknown else ''}{same}")
    return said


# --- location --------------------------------------------------------------------------------------------------------


def _side(intent: Intent, said: str, given: str, regions: str) -> Side:
    if recipe := intent.find(said):
        return _of_the_matrix(recipe, given, regions)
    if made := state.beyond_the_matrix(intent.root, said):
        if made.uri:
            return _published(intent, said, made.uri)
        name = image_names.name_here(said, made.key)
        if engine.answers() and engine.image_id(name):
            return _in_the_engine(name).model_copy(update={"said": said})
    records = release_records.known(intent.root)
    if (found := RELEASE.fullmatch(said)) and "/" not in said:
        identity, name = found["id"] or found["id2"], found["name"] or found["name2"]
        if name not in records:
            fix = f"ls {release_records.FOLDER}"
            raise ConfigError(f"release {name!r} does not exist", why=did_you_mean(name, records), fix=fix)
        shipped = records[name].images
        if identity not in shipped:
            raise ConfigError(f"{name} has no image {identity!r}", why=did_you_mean(identity, shipped))
        host, image = locations.hosts(intent.root, given, regions)[0], shipped[identity]
        return _published(intent, said, f"{host}/{image.repository}@{image.digest}")
    if HOST.match(said):
        return _published(intent, said, said)
    if engine.answers() and engine.image_id(said):
        return _in_the_engine(said)
    raise ConfigError(
        f"{said!r} is not an image",
        why="it is not an id, a release, a registry address or an image in the engine; "
        + did_you_mean(said, [variant.id for variant in intent.variants]),
        fix="trainwright list",
    )


def _of_the_matrix(recipe: Recipe, given: str, regions: str) -> Side:
    """Return the image with its present inputs: as pushed, else from the engine, else from its locks."""
    if missing := inputs.awaited(recipe):
        raise NotRunError(f"{recipe.id} is blocked", why="; ".join(missing), fix="trainwright plan")
    found = inputs.load(recipe)
    image = state.read_image(state.out_folder(recipe))
    if image and image.key == found.key and image.uri and parent.lies_in(given, image.uri):
        with suppress(RegistryError):  # if the registry does not answer, try the engine
            return _published(recipe.intent, recipe.id, image.uri)
    held, _ = state.published_if_known(recipe.intent, [found], given, regions)
    for place, digest in held.get(recipe.id, {}).items():
        if digest:
            return _published(recipe.intent, recipe.id, f"{place.repository}@{digest}")
    if engine.answers() and engine.image_id(found.name):
        return _in_the_engine(found.name).model_copy(update={"said": recipe.id})
    by = "nothing: it is neither published nor built"
    return Side(said=recipe.id, name="not built", id=recipe.id, key=found.key, contents=Contents(by=by))


def _published(intent: Intent, said: str, uri: str) -> Side:
    """Return the registry's description of an image."""
    repository, at, digest = uri.partition("@")
    if locations.ECR.fullmatch(host := repository.partition("/")[0]):
        locations.hosts(intent.root, host)  # also logs in to ECR
    if not at:
        repository, _, tag = uri.rpartition(":")
        digest = client.resolve(repository, tag) if "/" in repository else ""
    if not digest:
        raise RegistryError(f"{uri} is not in the registry", fix="trainwright push, or name another tag")
    manifest = client.manifest(repository, digest)
    if "layers" not in manifest:
        raise ConfigError(f"{uri} is not an image of one platform", why=f"it is a {manifest.get('mediaType')}")
    config = client.config(repository, digest)
    labels = (config.get("config") or {}).get("Labels") or {}
    return Side(
        said=said,
        name=f"{repository}@{digest}",
        id=labels.get(tags.ID_LABEL, ""),
        key=labels.get(tags.KEY_LABEL, ""),
        digest=digest,
        configuration=manifest["config"]["digest"],
        compression=", ".join(sorted({_compression(layer) for layer in manifest["layers"]})),
        config=config.get("config") or {},
        layers=[Blob(digest=blob["digest"], size=blob["size"]) for blob in manifest["layers"]],
        unpacked=(config.get("rootfs") or {}).get("diff_ids") or [],
        contents=Contents(by="not looked up yet"),
    )


def _compression(layer: Mapping[str, Any]) -> str:
    return str(layer.get("mediaType", "")).rpartition("tar")[2].strip("+.") or "none"


def _in_the_engine(name: str) -> Side:
    labels = engine.labels(name)
    return Side(
        said=name,
        name=name,
        id=labels.get(tags.ID_LABEL, ""),
        key=labels.get(tags.KEY_LABEL, ""),
        config=engine.config(name),
        unpacked=engine.layers(name),
        contents=Contents(by="not looked up yet"),
    )


# --- contents --------------------------------------------------------------------------------------------------------


def _contents(intent: Intent, side: Side, say: Say) -> Contents:
    """Return the contents from the first source that has them; `sources` always come from the locks if there are any.

    The order is: out/, the engine, the locks of this tree, those of a release, the labels. Nothing is pulled.
    """
    locked = _by_locks(intent, side)
    found = _by_out(intent, side) or _by_probe(intent, side, say) or locked or _by_labels(side)
    return found.model_copy(update={"sources": locked.sources}) if locked else found


def _by_out(intent: Intent, side: Side) -> Contents | None:
    """Return the probe's results if exactly this image was built here."""
    out = intent.root / "out" / side.id
    image = state.read_image(out) if side.id else None
    if image is None or image.key != side.key or not image.packages:
        return None
    python = None
    with suppress(TrainwrightError, ValueError):
        python = sbom.packages(parse_json(read(out / "sbom.json"), "sbom.json", ""), "pypi")
    return Contents(by=f"out/{side.id}", versions=image.versions, distribution=image.packages, python=python)


def _by_probe(intent: Intent, side: Side, say: Say) -> Contents | None:
    """Return the answers of the image's own probe, if the engine has the image."""
    names = [side.name, image_names.engine_name(side.id.partition("-")[0], image_names.key_tag(side.id, side.key))]
    name = next((name for name in names if engine.answers() and engine.image_id(name)), None)
    if name is None:
        return None
    say(f"{side.said}: asking {name}")
    own_files, script = ((intent.root / path).read_text() for path in (OWN_FILES, PROBE))
    try:
        start = verify_child.starts((side.config or {}).get("Labels") or {}) or []
        own = OwnFiles.model_validate(engine.ask(name, own_files, entrypoint=start))
        declared = json.loads(own.declared or '{"components": {}}')["components"]
        questions = json.dumps({component: facts["probe"] for component, facts in declared.items()})
        said = probe.Findings.model_validate(engine.ask(name, script, questions, entrypoint=start))
    except (TrainwrightError, ValidationError) as error:
        say(f"{side.said}: the probe failed: {' '.join(str(error).split())}")
        return None
    return Contents(by="the image", versions=said.versions, distribution=said.packages, python=said.python_packages)


def _by_locks(intent: Intent, side: Side) -> Contents | None:
    """Return the locked contents: this tree's locks if the key matches, else those of the release with this digest."""
    with suppress(TrainwrightError):
        found = inputs.load(intent.recipe(side.id), as_locked=True)
        if found.key == side.key:
            return _locked(found, "the locks of this tree")
    for train in release_records.known(intent.root).values():
        shipped = train.images.get(side.id)
        if shipped and side.digest == shipped.digest:
            with suppress(TrainwrightError):
                commit = checkout.commit_of(intent.root, train.commit)
                with checkout.exported(intent.root, commit) as folder:
                    old = load_intent(folder)
                    return _locked(inputs.load(old.recipe(side.id), as_locked=True), f"the locks of {train.name}")
    return None


def _locked(found: Inputs, by: str) -> Contents:
    return Contents(
        by=by,
        versions=found.versions,
        distribution={name: package.version for name, package in found.distribution.packages().items()},
        python={name: entry.version for name, entry in found.recipe.installed(found.lock).items()},
        sources=dict(diff.sources_held(found.lock.sources)),
    )


def _by_labels(side: Side) -> Contents:
    labels = (side.config or {}).get("Labels") or {}
    said = {name: labels[name] for name in labels if name.startswith(tags.VERSION_LABEL)}
    versions = {name.removeprefix(tags.VERSION_LABEL): version for name, version in said.items()}
    return Contents(by="its labels", versions=versions or None)
