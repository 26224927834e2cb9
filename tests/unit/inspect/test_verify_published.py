"""Test `verify` on a published image, without an engine: the engine's answers are stand-ins."""

import hashlib
import json
from collections.abc import Callable, Iterator
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from registries import MANIFEST, Registry, digest_of, serving

from trainwright.build import build
from trainwright.core.errors import BuildError, RegistryError
from trainwright.docker import engine, oci_layout
from trainwright.image import inputs
from trainwright.image.inputs import Inputs
from trainwright.image.probe import Findings
from trainwright.inspect import verify_published
from trainwright.inspect.verify_published import Report
from trainwright.matrix.matrix import Intent, Recipe
from trainwright.publish import sign

REPOSITORY = "trainwright/pytorch"
Verify = Callable[[dict[str, Any]], Report]


@pytest.fixture(scope="module")
def found(intent: Intent) -> Inputs:
    return inputs.load(
        Recipe(intent, next(v for v in intent.variants if v.accelerator == "cpu" and v.target == "sagemaker"))
    )


@pytest.fixture
def held(found: Inputs) -> Iterator[Registry]:
    """Serve a registry with an image of this key, without layers and without a signature."""
    labels = {"io.trainwright.id": found.variant.id, "io.trainwright.key": found.key}
    config = json.dumps({"architecture": "amd64", "os": "linux", "config": {"Labels": labels}}).encode()
    part = {
        "mediaType": oci_layout.CONFIG,
        "size": len(config),
        "digest": f"sha256:{hashlib.sha256(config).hexdigest()}",
    }
    manifest = json.dumps({"schemaVersion": 2, "mediaType": MANIFEST, "config": part, "layers": []}).encode()
    with serving() as one:
        one.blobs[REPOSITORY, str(part["digest"])] = config
        one.manifests[REPOSITORY, digest_of(manifest)] = manifest, MANIFEST
        one.tags[REPOSITORY, found.tag] = digest_of(manifest)
        yield one


@pytest.fixture
def verify(intent: Intent, found: Inputs, held: Registry, monkeypatch: pytest.MonkeyPatch) -> Verify:
    monkeypatch.setattr(verify_published, "_may_not_start", lambda *_: "")
    monkeypatch.setattr(engine, "image_id", lambda name: name.partition("@")[2] or None)

    def ask(said: dict[str, Any]) -> Report:
        monkeypatch.setattr(build, "findings", lambda *_: (Findings.model_validate(said), ""))
        return verify_published.inspect(intent, f"{held.address}/{REPOSITORY}:{found.tag}", "", True, lambda _: None)

    return ask


def truthful(found: Inputs) -> dict[str, Any]:
    """Return what the probe prints of an image that matches its lock."""
    return {
        "versions": dict(found.versions),
        "libnccl": {},
        "mapped": {},
        "files": {},
        "python_packages": {
            entry.name: entry.version for entry in found.lock.python if entry.group in found.variant.groups
        },
        "packages": {name: package.version for name, package in found.distribution.packages().items()},
    }


def test_contents_as_locked(verify: Verify, found: Inputs) -> None:
    report = verify(truthful(found))
    rows = {row.check: row for row in report.rows}
    assert [rows[check].state for check in ("tags", "media types", "contents")] == ["passed"] * 3, report.rows
    assert [rows[check].state for check in ("signature", "provenance", "sbom")] == ["not run"] * 3


@pytest.mark.parametrize(
    ("part", "name", "says"),
    [("python_packages", "numpy", "Python package numpy"), ("packages", "libc6", "distribution package libc6")],
)
def test_contents_that_the_lock_does_not_say(verify: Verify, found: Inputs, part: str, name: str, says: str) -> None:
    said = truthful(found)
    said[part][name] = "0.0.1"
    report = verify(said)
    row = report.rows[-1]
    assert (row.check, row.state) == ("contents", "failed")
    assert says in row.detail
    assert "the image holds 0.0.1" in row.detail
    with pytest.raises(BuildError, match="contents failed") as raised:
        verify_published.judge(report)
    assert raised.value.exit_code == 5


def test_a_tag_that_is_not_there_is_the_registrys_to_say(
    held: Registry, found: Inputs, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Unless the engine has an image of that name: one that was built here, and not pushed."""
    name = f"{held.address}/trainwright/{found.variant.framework}:{found.tag}x"
    monkeypatch.setattr(engine, "answers", lambda: True)
    monkeypatch.setattr(engine, "image_id", lambda _: None)
    with pytest.raises(RegistryError, match="is not in the registry") as error:
        verify_published.is_published(name)
    assert f"did you mean '{found.tag}'" in error.value.why
    monkeypatch.setattr(engine, "image_id", lambda _: "sha256:1")
    assert not verify_published.is_published(name)


def test_known_vulnerabilities_of_the_signed_sbom(
    intent: Intent, found: Inputs, held: Registry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only the SBOM that is signed and about this very digest counts."""
    event = {"type": "ECOSYSTEM", "events": [{"introduced": "0"}, {"fixed": "99"}]}
    part = {"package": {"ecosystem": "PyPI", "name": "torch"}, "ranges": [event]}
    day = f"{date.today()}T00:00:00Z"
    (tmp_path / "A.json").write_text(json.dumps({"id": "CVE-2026-1", "modified": day, "affected": [part]}))
    key = tmp_path / "cosign.pub"
    key.write_text("")
    digest = held.tags[REPOSITORY, found.tag]
    bill: dict[str, Any] = {"components": [{"purl": "pkg:pypi/torch@2.13.0"}]}
    monkeypatch.setattr(sign, "lacking", lambda: "")
    monkeypatch.setattr(sign, "unsigned", lambda *_: "")

    def ask(about: str) -> Report:
        said = {"predicate": bill | {"metadata": {"component": {"version": about}}}}
        monkeypatch.setattr(sign, "attested", lambda _, __, kind: ([said], "") if kind == "sbom" else ([], "none"))
        name = f"{held.address}/{REPOSITORY}:{found.tag}"
        return verify_published.inspect(intent, name, str(key), False, lambda _: None, [tmp_path])

    report = ask(digest)
    row = next(row for row in report.rows if row.check == "vulnerabilities")
    assert row.state == "failed"
    assert "CVE-2026-1 in torch 2.13.0, fixed in 99" in row.detail
    assert report.vulnerabilities
    assert report.vulnerabilities.images[0].source == "SBOM"
    row = next(row for row in ask(f"sha256:{'1' * 64}").rows if row.check == "vulnerabilities")
    assert (row.state, "no SBOM of this image is signed" in row.detail) == ("not run", True)
    assert all(
        row.check != "vulnerabilities"
        for row in verify_published.inspect(
            intent, f"{held.address}/{REPOSITORY}:{found.tag}", "", False, lambda _: None
        ).rows
    )
