"""Test provenance and SBOM against the lock: each missing, additional or changed item is named."""

import copy
import re
from collections.abc import Callable
from typing import Any

import pytest

from trainwright.image import inputs
from trainwright.image.inputs import Inputs
from trainwright.matrix.matrix import Intent
from trainwright.publish import provenance, sbom

DIGEST = "sha256:" + "d" * 64
BUILDER = "urn:example:builder"
COMMIT = "c" * 40
Change = Callable[[dict[str, Any]], object]


@pytest.fixture(scope="module")
def found(intent: Intent) -> Inputs:
    """Return an image with wheels, packages, compiled components and what their stages need."""
    return of(intent, "jax-0.12-cu132-py313-sagemaker")


def of(intent: Intent, identity: str) -> Inputs:
    return inputs.load(intent.recipe(identity), as_locked=True)


def statement(found: Inputs) -> dict[str, Any]:
    """Return the statement that cosign makes from the predicate."""
    return {
        "_type": "https://in-toto.io/Statement/v0.1",
        "subject": [{"name": "registry/image", "digest": {"sha256": DIGEST.removeprefix("sha256:")}}],
        "predicateType": provenance.TYPE,
        "predicate": copy.deepcopy(provenance.predicate(found, BUILDER, COMMIT)),
    }


def test_it_has_what_slsa_asks_for(found: Inputs) -> None:
    made = provenance.predicate(found, BUILDER, COMMIT)
    assert made.keys() == {"buildDefinition", "runDetails"}
    definition, details = made["buildDefinition"], made["runDetails"]
    assert {"buildType", "externalParameters"} <= definition.keys()
    assert definition.keys() <= {"buildType", "externalParameters", "internalParameters", "resolvedDependencies"}
    assert re.match(r"[a-z]+:", definition["buildType"])
    assert details["builder"]["id"] == BUILDER
    assert all(isinstance(value, str) for value in details["builder"]["version"].values())
    fields = {"name", "uri", "digest", "content", "downloadLocation", "mediaType", "annotations"}
    for row in definition["resolvedDependencies"]:
        assert row.keys() <= fields
        assert row.keys() & {"uri", "digest", "content"}
        for algorithm, value in row.get("digest", {}).items():
            assert re.fullmatch({"sha256": "[0-9a-f]{64}", "gitCommit": "[0-9a-f]{40}"}[algorithm], value)


def test_every_source_of_the_lock_is_in_it_and_nothing_twice(found: Inputs) -> None:
    rows = provenance.dependencies(found)
    held = {str(value) for row in rows for value in row.get("digest", {}).values()}
    assert found.lock.sources
    assert found.tools
    assert {source.commit or source.sha256 for source in found.lock.sources} <= held
    assert {entry.sha256 for files in found.wheels.values() for entry in files} <= held
    for state in (found.distribution, found.tools):
        assert {package.sha256 for package in state.packages().values()} - {""} <= held
    assert len({(row["name"], row["uri"]) for row in rows}) == len(rows)
    assert rows == provenance.dependencies(found)


@pytest.mark.parametrize("identity", ["pytorch-2.13-cpu-py311-sagemaker", "horovod-0.28-cpu-py311-sagemaker"])
def test_what_is_built_from_the_same_lock_says_the_same(intent: Intent, identity: str) -> None:
    found = of(intent, identity)
    assert provenance.differences(found, BUILDER, statement(found), DIGEST) == []


def dependency(said: dict[str, Any], place: int = 7) -> dict[str, Any]:
    row: dict[str, Any] = said["predicate"]["buildDefinition"]["resolvedDependencies"][place]
    return row


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda s: s["subject"][0]["digest"].update(sha256="e" * 64), r"it is about sha256:e+, not about"),
        (lambda s: s["subject"].clear(), r"it is about nothing"),
        (lambda s: s.update(predicateType="https://example.com/v1"), r"it is a https://example.com/v1"),
        (lambda s: s["predicate"]["buildDefinition"].update(buildType="urn:other"), r"buildType is urn:other"),
        (
            lambda s: s["predicate"]["buildDefinition"]["externalParameters"].update(key="0"),
            r"externalParameters is .*'key': '0'",
        ),
        (
            lambda s: s["predicate"]["buildDefinition"]["externalParameters"].update(more="0"),
            r"externalParameters is .*'more': '0'",
        ),
        (lambda s: s["predicate"]["runDetails"]["builder"].update(id="urn:x"), r"the builder is urn:x"),
        (lambda s: dependency(s)["digest"].update(sha256="0" * 64), r"'0{64}'} in the provenance, but .* in the lock"),
        (lambda s: dependency(s).update(name="other"), r"^other \(.*\) is in the provenance, but not in the lock"),
        (
            lambda s: dependency(s).update(uri="pkg:pypi/other@1"),
            r"pkg:pypi/other@1\) is in the provenance, but not in the lock",
        ),
        (
            lambda s: s["predicate"]["buildDefinition"]["resolvedDependencies"].pop(7),
            r"is in the lock, but not in the provenance",
        ),
        (lambda s: s.update(predicate={}), r"^buildType is None"),
        (lambda s: s.update(predicate={"buildDefinition": []}), r"externalParameters is None"),
    ],
)
def test_what_is_not_so_is_said(found: Inputs, change: Change, sentence: str) -> None:
    said = statement(found)
    change(said)
    problems = provenance.differences(found, BUILDER, said, DIGEST)
    assert any(re.search(sentence, problem) for problem in problems), problems


def test_commit_and_version_of_the_builder_are_none_of_the_inputs(found: Inputs) -> None:
    said = statement(found)
    assert provenance.commit(said) == COMMIT
    assert provenance.parameters(said) == {"id": found.variant.id, "key": found.key}
    said["predicate"]["runDetails"]["builder"]["version"] = {"trainwright": "0"}
    said["predicate"]["buildDefinition"]["resolvedDependencies"].pop(0)
    assert provenance.commit(said) == ""
    assert provenance.differences(found, BUILDER, said, DIGEST) == []


# --- SBOM ------------------------------------------------------------------------------------------------------------


def component(kind: str, name: str, version: str, path: str = "") -> dict[str, Any]:
    row: dict[str, Any] = {"name": name, "version": version, "purl": f"pkg:{kind}/{name}@{version}"}
    return row | ({"properties": [{"name": "syft:location:0:path", "value": path}]} if path else {})


def bill(found: Inputs) -> dict[str, Any]:
    rows = [component("deb/debian", name, p.version) for name, p in found.distribution.packages().items()]
    rows += [component("pypi", e.name, e.version) for e in found.lock.python if e.group in found.variant.groups]
    return {"metadata": {"component": {"version": DIGEST}}, "components": rows}


def test_an_sbom_that_lists_the_lock(intent: Intent, found: Inputs) -> None:
    said = bill(found)
    said["components"].append(component("pypi", "zipp", "0", "/x/setuptools/_vendor/zipp-0.dist-info/METADATA"))
    said["components"].append(component("nuget", "launcher", "1"))
    assert sbom.differences(found, said, DIGEST) == []


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda s: s["components"].pop(0), r"^distribution package .*: the lock says .*, the SBOM nothing$"),
        (lambda s: s["components"].pop(), r"^Python package .*: the lock says .*, the SBOM nothing$"),
        (lambda s: s["components"][0].update(version="0"), r"^distribution package .*, the SBOM 0$"),
        (lambda s: s["components"][-1].update(version="0"), r"^Python package .*, the SBOM 0$"),
        (lambda s: s["components"].append(component("pypi", "more", "1")), r"more: the lock says nothing, the SBOM 1"),
        (lambda s: s["components"].append(component("pypi", "pip", "1")), r"pip: the lock says .*, the SBOM 1 and "),
        (lambda s: s["metadata"]["component"].update(version=""), r"it is about no image, not about sha256:d+"),
        (lambda s: s.pop("metadata"), r"it is about no image"),
        (lambda s: s.pop("components"), r"the SBOM nothing"),
    ],
)
def test_what_an_sbom_has_otherwise_is_said(intent: Intent, found: Inputs, change: Change, sentence: str) -> None:
    said = bill(found)
    change(said)
    problems = sbom.differences(found, said, DIGEST)
    assert any(re.search(sentence, problem) for problem in problems), problems
