"""Describe an image's inputs as a SLSA v1 provenance, a function of those inputs, so that anyone can reproduce it."""

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from packaging.utils import canonicalize_name

from trainwright import __version__
from trainwright.matrix.model import Package, PythonFile, Source

if TYPE_CHECKING:
    from trainwright.image.inputs import Inputs

TYPE = "https://slsa.dev/provenance/v1"
BUILD_TYPE = "urn:trainwright:image:1"  # docs/how-to.md documents its parameters
CHECKOUT = "checkout"  # name of the dependency that is this source tree


def predicate(found: "Inputs", builder: str, commit: str = "") -> dict[str, Any]:
    """Return the predicate; its subject, the image by its digest, is added on signing.

    It has no time and no host: the same inputs give the same text. `commit` is the checkout's if its tree is clean; it
    says where the inputs can be read, and is not one of them.
    """
    checkout = [{"name": CHECKOUT, "digest": {"gitCommit": commit}}] if commit else []
    return {
        "buildDefinition": {
            "buildType": BUILD_TYPE,
            "externalParameters": {"id": found.variant.id, "key": found.key},
            "resolvedDependencies": [*checkout, *dependencies(found)],
        },
        "runDetails": {"builder": {"id": builder, "version": {"trainwright": __version__}}},
    }


def dependencies(found: "Inputs") -> list[dict[str, Any]]:
    """Return every source of the image and of its stages, once: in-toto's resource descriptors, sorted."""
    rows = {(row["name"], row["uri"]): row for row in _dependencies(found)}
    return [rows[name] for name in sorted(rows)]


def _dependencies(found: "Inputs") -> Iterator[dict[str, Any]]:
    if found.parent:  # `found` repeats the parent's base packages
        yield from _dependencies(found.parent)
    base = found.recipe.base
    if base.provider == "image":
        yield _image(base.reference)
    if toolkit := found.recipe.toolkit:
        yield _image(toolkit.reference)
    for state in filter(None, (found.distribution, found.tools)):
        yield from (_package(package, base.distribution) for package in state.packages().values())
    for files in found.wheels.values():
        yield from (_file(entry) for entry in files)
    for job in found.compile:
        yield from (_file(entry) for files in job.wheels.values() for entry in files)
    yield from (_source(source) for source in found.lock.sources)


def _image(reference: str) -> dict[str, Any]:
    name, _, digest = reference.partition("@sha256:")
    return {"name": name, "uri": f"docker://{reference}"} | ({"digest": {"sha256": digest}} if digest else {})


def _package(package: Package, distribution: str) -> dict[str, Any]:
    """Describe a distribution package; one from the base image has no digest."""
    version, name = quote(package.version, safe=""), quote(package.name, safe="")
    row = {"name": package.name, "uri": f"pkg:deb/{distribution}/{name}@{version}?arch={package.architecture}"}
    return row | ({"digest": {"sha256": package.sha256}} if package.sha256 else {})


def _file(entry: PythonFile) -> dict[str, Any]:
    name, version = canonicalize_name(entry.name), quote(entry.version, safe="")
    return {"name": entry.file, "uri": f"pkg:pypi/{name}@{version}", "digest": {"sha256": entry.sha256}}


def _source(source: Source) -> dict[str, Any]:
    if source.commit:
        uri = f"git+{source.url}" + (f"@{source.tag}" if source.tag else "")
        return {"name": source.name, "uri": uri, "digest": {"gitCommit": source.commit}}
    return {"name": source.name, "uri": source.url, "digest": {"sha256": source.sha256}}


# --- the provenance of others ----------------------------------------------------------------------------------------


def parameters(statement: Mapping[str, Any]) -> dict[str, Any]:
    """Return the image id and key that a statement is about, or {} if it has another build type."""
    definition = _definition(statement)
    said = definition.get("externalParameters")
    return dict(said) if definition.get("buildType") == BUILD_TYPE and isinstance(said, dict) else {}


def commit(statement: Mapping[str, Any]) -> str:
    """Return the checkout's commit that a statement names, or "" if it names none."""
    for row in _rows(_definition(statement).get("resolvedDependencies")):
        if row.get("name") == CHECKOUT:
            return str((row.get("digest") or {}).get("gitCommit", ""))
    return ""


def differences(found: "Inputs", builder: str, statement: Mapping[str, Any], digest: str) -> list[str]:
    """Return the differences between a statement and the provenance of these inputs and this digest, one sentence each.

    The commit and the version of the builder are not compared, because they are not inputs of the image.
    """
    wanted, said = predicate(found, builder), statement.get("predicate") or {}
    problems = [f"it is about {subject or 'nothing'}, not about {digest}" for subject in _others(statement, digest)]
    if statement.get("predicateType") != TYPE:
        problems.append(f"it is a {statement.get('predicateType')}, not a {TYPE}")
    definition = _definition(statement)
    for field in ("buildType", "externalParameters"):
        if (own := wanted["buildDefinition"][field]) != definition.get(field):
            problems.append(f"{field} is {definition.get(field)}, not {own}")
    who = ((said.get("runDetails") or {}).get("builder") or {}).get("id")
    if who != builder:
        problems.append(f"the builder is {who}, not {builder}")
    rows = [row for row in _rows(definition.get("resolvedDependencies")) if row.get("name") != CHECKOUT]
    return problems + _missing(wanted["buildDefinition"]["resolvedDependencies"][:], rows)


def _definition(statement: Mapping[str, Any]) -> dict[str, Any]:
    said = (statement.get("predicate") or {}).get("buildDefinition")
    return said if isinstance(said, dict) else {}


def _rows(value: object) -> list[dict[str, Any]]:
    return [row for row in value if isinstance(row, dict)] if isinstance(value, list) else []


def _others(statement: Mapping[str, Any], digest: str) -> list[str]:
    """Return the subjects of a statement other than this image; [""] if it has no subject."""
    subjects = [f"sha256:{(row.get('digest') or {}).get('sha256', '')}" for row in _rows(statement.get("subject"))]
    return [subject for subject in subjects or [""] if subject != digest]


def _missing(wanted: Iterable[dict[str, Any]], said: Iterable[dict[str, Any]]) -> list[str]:
    own = {(str(row["name"]), str(row["uri"])): row.get("digest") for row in wanted}
    other = {(str(row.get("name")), str(row.get("uri"))): row.get("digest") for row in said}
    rows = [f"{name} ({uri}) is in the lock, but not in the provenance" for name, uri in own.keys() - other.keys()]
    rows += [f"{name} ({uri}) is in the provenance, but not in the lock" for name, uri in other.keys() - own.keys()]
    rows += [
        f"{name} ({uri}) is {other[name, uri]} in the provenance, but {own[name, uri]} in the lock"
        for name, uri in own.keys() & other.keys()
        if own[name, uri] != other[name, uri]
    ]
    return sorted(rows)
