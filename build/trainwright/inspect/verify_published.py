"""Verify a published image from outside: its signature, its attestations, and whether it matches the lock.

Nothing here trusts the builder: only the registry, a public key and this checkout's locks are consulted.
"""

import functools
import os
import re
import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

from trainwright.build import build
from trainwright.core import store
from trainwright.core.errors import (
    BuildError,
    ConfigError,
    EnvironmentProblem,
    NotRunError,
    RegistryError,
    TrainwrightError,
    did_you_mean,
)
from trainwright.core.progress import Say, counted, few
from trainwright.core.toml import Model
from trainwright.docker import engine, oci_layout, zstd_twin
from trainwright.docker.oci_layout import Kinds
from trainwright.image import inputs, probe, tags
from trainwright.image.inputs import Inputs
from trainwright.image.tags import PARENT_LABEL
from trainwright.inspect.vulnerabilities import report as known
from trainwright.matrix.matrix import Intent, Recipe
from trainwright.publish import attest, provenance, sign, twins
from trainwright.publish import sbom as sboms
from trainwright.publish.sign import Place
from trainwright.registry import auth, client, documents, settings
from trainwright.registry.retry import side_by_side
from trainwright.registry.settings import Signature

# host[:port]/path, then a tag, a digest or both; a name without a host is an image of the engine.
ADDRESS = re.compile(
    r"(?P<repository>(?:localhost|[^/@]*[.:][^/@]*)/[^@:]+)(?::(?P<tag>[\w][\w.-]*))?(?:@(?P<digest>sha256:[0-9a-f]{64}))?"
)
NO_KEY = f"no public key: --key, or {sign.VERIFY_KEY}"


class Row(Model):
    """One check of a published image."""

    check: Literal["tags", "media types", "twin", "signature", "provenance", "sbom", "vulnerabilities", "contents"]
    state: Literal["passed", "failed", "not run"]
    detail: str


class Known(NamedTuple):
    """What this checkout knows of an image, and how its SBOM and its contents are judged."""

    inputs: Inputs | None  # None: `unknown` says why
    unknown: str
    kinds: tuple[Kinds, ...]  # media types that it may have
    sbom: Callable[[Mapping[str, Any], str], list[str]]  # differences of an SBOM of the image with this digest
    contents: Callable[[str, Say], str]  # of the image at this address: what passed; raises BuildError


Beyond = Callable[[Mapping[str, str]], Known | None]  # of an image with these labels that the matrix does not have


class Report(Model):
    """The result of `verify` for a published image."""

    uri: str
    id: str
    key: str
    rows: list[Row]
    vulnerabilities: known.Report | None = None


def is_published(target: str) -> bool:
    """Return whether a name is a trainwright image in a registry, by its labels, and not an image built on top of one.

    Raises RegistryError if the registry does not answer or has no such tag, and the engine holds no such image.
    """
    if not (found := ADDRESS.fullmatch(target)):
        return False
    repository, tag = found["repository"], found["tag"] or "latest"
    try:
        digest = found["digest"] or client.resolve(repository, tag)
        if not digest:
            raise RegistryError(
                f"{target} is not in the registry",
                where=repository,
                why=did_you_mean(tag, client.tags(repository)),
                fix=f"trainwright verify {repository}:TAG",
            )
        labels = _labels(repository, digest)
    except RegistryError:
        if engine.answers() and engine.image_id(target):
            return False
        raise
    return bool(labels.get(tags.ID_LABEL)) and PARENT_LABEL not in labels


def inspect(
    intent: Intent,
    target: str,
    public: str,
    contents: bool,
    say: Say,
    snapshots: Sequence[Path] = (),
    beyond: Beyond = lambda _: None,
) -> Report:
    """Run every check of a published image. `public` is a public key, "" for none; without `contents`, pull nothing.

    Known vulnerabilities are looked up in `snapshots`, if there are any, for what the signed SBOM lists. `beyond` knows
    images that the matrix does not have.

    Raises ConfigError if it is not a trainwright image or the key is missing, RegistryError if the registry does not
    answer.

    Of a zstd twin, media types, layers and signature are its own; provenance, SBOM and contents are those of the image
    that its configuration is of, because that image was proved.
    """
    repository, tag, digest = _asked(target)
    labels = _labels(repository, digest)
    identity, key = labels.get(tags.ID_LABEL, ""), labels.get(tags.KEY_LABEL, "")
    if not (identity and key):
        raise ConfigError(
            f"{target} was not built by trainwright",
            where=f"{repository}@{digest}",
            why=f"it lacks the labels {tags.ID_LABEL} and .key",
        )
    say(f"{identity}: reading what {repository} holds beside {digest}")
    known_here = beyond(labels) or _of_the_matrix(intent, identity, key)
    found, unknown = known_here.inputs, known_here.unknown
    policy = settings.publication(intent.root).signature
    place = itself = attest.place_of(repository, digest, policy)
    why = _without(public)
    own, manifest = tags.key_tag(identity, key), client.manifest(repository, digest)
    image = client.resolve(repository, own) if zstd_twin.is_twin(manifest) else ""
    if image != digest and zstd_twin.is_twin(manifest):  # a graft with layers of zstd is not a twin
        rows = [_tags(repository, digest, tag, tags.twin_tag(own)), _twin_media_types(repository, digest)]
        rows.append(_row("twin", "", lambda: _twin(repository, digest, own, image, contents, say)))
        place = attest.place_of(repository, image or digest, policy)
    else:
        rows = [_tags(repository, digest, tag, own), _media_types(manifest, known_here.kinds)]
    signature = _row("signature", why, lambda: _signatures(dict.fromkeys((itself, place)), public))
    rows.append(signature)
    rows.append(_row("provenance", why, lambda: _provenance(found, unknown, place, public, policy, labels)))
    rows.append(_row("sbom", why, lambda: _sbom(known_here, place, public)))
    looked_up = list[known.Report]()
    if snapshots:
        recipe = intent.find(identity)
        ask = functools.partial(_vulnerabilities, recipe, place, public, intent.root, snapshots, looked_up)
        rows.append(_row("vulnerabilities", why, ask))
    why = unknown or ("" if contents else "--no-contents") or _may_not_start(found, signature)
    rows.append(_row("contents", why, lambda: known_here.contents(place.uri, say)))
    vulnerabilities = looked_up[0] if looked_up else None
    return Report(uri=itself.uri, id=identity, key=key, rows=rows, vulnerabilities=vulnerabilities)


def judge(report: Report) -> None:
    """Raise BuildError with the names of failed checks, or NotRunError if a check could not be established."""
    for state, error in (("failed", BuildError), ("not run", NotRunError)):
        rows = [row for row in report.rows if row.state == state]
        if rows:
            raise error(
                f"{report.id}: {', '.join(row.check for row in rows)} {state}",
                where=report.uri,
                why="; ".join(f"{row.check}: {row.detail}" for row in rows),
                fix="" if state == "failed" else "trainwright verify --help: a check that did not run proves nothing",
            )


def _asked(target: str) -> tuple[str, str, str]:
    """Return repository, tag ("" for none) and digest of a name."""
    found = ADDRESS.fullmatch(target)
    if not found:
        raise ConfigError(
            f"{target!r} is not an image in a registry",
            fix="trainwright verify <host[:port]/repository:tag or @sha256:...>",
        )
    tag = found["tag"] or ("" if found["digest"] else "latest")
    digest = found["digest"] or client.resolve(found["repository"], tag)
    if not digest:
        raise RegistryError(f"{target} does not exist", where=found["repository"], why=f"it has no tag {tag}")
    return found["repository"], tag, digest


def _labels(repository: str, digest: str) -> dict[str, str]:
    config = client.config(repository, digest).get("config") or {}
    return {str(name): str(value) for name, value in (config.get("Labels") or {}).items()}


def _of_the_matrix(intent: Intent, identity: str, key: str) -> Known:
    found, unknown = _inputs(intent, identity, key)

    def sbom(bill: Mapping[str, Any], digest: str) -> list[str]:
        return sboms.differences(found, bill, digest) if found else []

    def contents(uri: str, say: Say) -> str:
        return _contents(found, uri, say)

    return Known(found, unknown, (oci_layout.DOCKERS,), sbom, contents)


def _inputs(intent: Intent, identity: str, key: str) -> tuple[Inputs | None, str]:
    """Return this checkout's inputs of that image, or None and the reason if it does not know this key."""
    recipe = intent.find(identity)
    if recipe is None:
        return None, f"this checkout does not know {identity}"
    try:
        for as_locked in (True, False):  # the second pass includes the drift that this host's store recorded
            if (found := inputs.load(recipe, as_locked)).key == key:
                return found, ""
    except TrainwrightError as error:
        return None, f"this checkout cannot compute the key of {identity}: {error.what}"
    return (
        None,
        f"this checkout builds {identity} with key {found.key[: tags.SHORT]}, the image has {key[: tags.SHORT]}",
    )


def _without(public: str) -> str:
    """Return why no signature can be verified, or "" if it can. Raises ConfigError if the key file cannot be read."""
    if not public:
        return NO_KEY
    if "://" not in public and not os.access(public, os.R_OK):
        raise ConfigError("the public key cannot be read", where=public, fix=f"ls -l {shlex.quote(public)}")
    return sign.lacking()


def _row(check: Any, why: str, ask: Callable[[], str]) -> Row:
    """Run one check; `why` is the reason that it cannot run, and `ask` returns the detail of a pass."""
    if why:
        return Row(check=check, state="not run", detail=why)
    try:
        return Row(check=check, state="passed", detail=ask())
    except BuildError as error:
        return Row(check=check, state="failed", detail=error.what)
    except (EnvironmentProblem, NotRunError) as error:
        return Row(check=check, state="not run", detail=": ".join(filter(None, (error.what, error.why))))


def _tags(repository: str, digest: str, tag: str, own: str) -> Row:
    """Check `own`, the immutable tag of the key, which only a proved image or its twin gets, and the requested tag."""
    held = client.resolve_all(repository, list(filter(None, dict.fromkeys((own, tag)))))
    wrong = [f"{name} points to {found or 'nothing'}, not {digest}" for name, found in held.items() if found != digest]
    if wrong:
        hint = "; to verify an image built on top of this one, use --parent" if held[own] != digest else ""
        return Row(check="tags", state="failed", detail="; ".join(wrong) + hint)
    return Row(check="tags", state="passed", detail=f"{' and '.join(held)}: {digest}")


def _media_types(manifest: dict[str, Any], kinds: Sequence[Kinds]) -> Row:
    """Check that the manifest is of a single-platform image with allowed media types; SageMaker requires Docker's."""
    wrong = [documents.other_kinds(manifest, one) for one in kinds]
    if all(wrong):
        return Row(check="media types", state="failed", detail=few(wrong[0]))
    form = kinds[wrong.index([])]
    which = "Docker media types" if form == oci_layout.DOCKERS else "OCI media types, which SageMaker does not pull"
    said = f"one image with {len(manifest['layers'])} layers, {client.size_of(manifest)} bytes, {which}"
    return Row(check="media types", state="passed", detail=said)


def _twin_media_types(repository: str, digest: str) -> Row:
    manifest = client.manifest(repository, digest)
    if wrong := documents.other_kinds(manifest, zstd_twin.KINDS):
        return Row(check="media types", state="failed", detail=few(wrong))
    said = f"a zstd twin with {len(manifest['layers'])} layers, {client.size_of(manifest)} bytes; SageMaker pulls none"
    return Row(check="media types", state="passed", detail=said)


def _twin(repository: str, digest: str, own: str, image: str, contents: bool, say: Say) -> str:
    """Prove that a twin is the image with the tag `own`: the same configuration, layers that unpack to its diff_ids.

    Without `contents`, no layer is pulled: NotRunError.
    """
    if not image:
        raise BuildError(f"the image that it is of is not there: no tag {own}")
    try:
        manifest = twins.refuse_other(repository, digest, image)
    except RegistryError as error:
        raise BuildError(f"it is not the zstd twin of {own}: {error.why}") from None
    if not contents:
        raise NotRunError("it has the image's configuration, but its layers were not unpacked", why="--no-contents")
    diff_ids = client.config(repository, digest)["rootfs"]["diff_ids"]
    say(f"unpacking the {len(diff_ids)} layers of {digest}")

    def check(pair: tuple[dict[str, Any], str]) -> None:
        with store.scratch() as folder:
            (folder / "blobs/sha256").mkdir(parents=True)
            client.bring(repository, pair[0], folder)
            with client.blob_of(folder, pair[0]["digest"]).open("rb") as packed:
                zstd_twin.refuse_other_layer(packed, pair[1], f"{repository}@{pair[0]['digest']}")

    side_by_side(check, list(zip(manifest["layers"], diff_ids, strict=True)))
    config = manifest["config"]["digest"]
    return f"the image {own}: both have the configuration {config}, and {len(diff_ids)} layers unpack to its diff_ids"


def _signatures(places: Iterable[Place], public: str) -> str:
    """Check the signature of an image; of a zstd twin, its own and that of its image."""
    checked = list(places)
    for place in checked:
        if why := sign.unsigned(place, public):
            raise BuildError(f"{place.digest}: {why}" if len(checked) > 1 else why)
    return "signed by this key" + ", and so is its image" * (len(checked) > 1)


def _provenance(
    found: Inputs | None, unknown: str, place: Place, public: str, policy: Signature, labels: dict[str, str]
) -> str:
    statements, why = sign.attested(place, public, "provenance")
    if not statements:
        raise BuildError(f"no provenance is signed with this cosign key: {why}")
    label = {"id": labels[tags.ID_LABEL], "key": labels[tags.KEY_LABEL]}
    ours = [said for said in statements if provenance.parameters(said) == label]
    if not ours:
        raise BuildError(f"it is about {provenance.parameters(statements[0])}, but the image's labels say {label}")
    commit = provenance.commit(ours[0])
    if found is None:
        raise NotRunError(
            "it is signed, but was not compared with a lock",
            why=unknown + (f"; git checkout {commit}" if commit else "; it names no commit"),
        )
    problems = [provenance.differences(found, policy.builder, said, place.digest) for said in ours]
    _refuse(min(problems, key=len))
    count = len(provenance.dependencies(found))
    return f"the {counted(count, 'source')} of this checkout's lock" + (
        f", commit {commit[: tags.SHORT]}" if commit else ""
    )


def _sbom(known_here: Known, place: Place, public: str) -> str:
    statements, why = sign.attested(place, public, "sbom")
    if not statements:
        raise BuildError(f"no SBOM is signed with this cosign key: {why}")
    if known_here.inputs is None:
        raise NotRunError("it is signed, but was not compared with a lock", why=known_here.unknown)
    _refuse(min((known_here.sbom(said["predicate"], place.digest) for said in statements), key=len))
    kinds = (sboms.kind_of(known_here.inputs.recipe.base), "pypi")
    lists = [len(sboms.packages(statements[0]["predicate"], kind)) for kind in kinds]
    return f"{lists[0]} distribution and {lists[1]} Python packages, as locked"


def _vulnerabilities(
    recipe: Recipe | None, place: Place, public: str, root: Path, snapshots: Sequence[Path], into: list[known.Report]
) -> str:
    statements, why = sign.attested(place, public, "sbom")
    bills = [said["predicate"] for said in statements if sboms.image(said["predicate"]) == place.digest]
    if not bills:
        raise NotRunError("no SBOM of this image is signed with this cosign key", why=why)
    into.append(known.known_of(recipe.id if recipe else place.uri, bills[0], recipe, root, snapshots))
    return known.judged(into[0], root)


def _may_not_start(found: Inputs | None, signature: Row) -> str:
    """Return why programs of an image must not be started here, or "" if they may be."""
    if signature.state == "failed":
        return "it is not signed by this key, so it is not started"
    if not engine.answers():
        return "no Docker engine answers: make engine"
    wanted = found.recipe.base.machine if found else ""
    if (here := engine.client().info()["Architecture"]) != wanted:  # emulation is not considered
        return f"the engine runs on {here}, but the image requires {wanted}"
    return ""


def _contents(found: Inputs | None, uri: str, say: Say) -> str:
    assert found is not None  # inspect() ensures it
    if engine.image_id(uri) is None:
        say(f"pulling {uri}")
        engine.pull_only(uri, auth.credentials(uri))
    say(f"{found.variant.id}: probing")
    findings, when = build.findings(found, uri)
    _refuse(probe.compare(found.recipe, found.pins, found.lock, found.distribution.packages(), findings))
    how = f" (asked {when})" if when else ""
    return f"{len(findings.packages)} distribution and {len(findings.python_packages)} Python packages, as locked{how}"


def _refuse(problems: list[str]) -> None:
    if problems:
        raise BuildError(few(problems))
