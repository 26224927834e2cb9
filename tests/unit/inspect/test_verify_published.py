"""Test `verify` on a published image, without an engine: the engine's answers are stand-ins."""

import gzip
import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from datetime import date
from pathlib import Path
from typing import Any, NamedTuple

import layouts
import pytest
import zstandard
from registries import MANIFEST, Registry, digest_of, serving

from trainwright.build import build
from trainwright.core.errors import BuildError, RegistryError
from trainwright.docker import engine, oci_layout, zstd_twin
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


LAYERS = [b"one" * 1000, b"two" * 1000]


class Twinned(NamedTuple):
    """An image with layers and its zstd twin in the registry, and what `verify` says of the twin."""

    held: Registry
    image: str
    twin: str
    tag: str
    rows: Callable[..., dict[str, Any]]

    def manifest(self) -> dict[str, Any]:
        return dict(json.loads(self.held.manifests[REPOSITORY, self.twin][0]))

    def replace(self, manifest: dict[str, Any]) -> None:
        """Put another manifest behind the twin's tag."""
        content = json.dumps(manifest).encode()
        self.held.manifests[REPOSITORY, digest_of(content)] = content, zstd_twin.KINDS.manifest
        self.held.tags[REPOSITORY, f"{self.tag}-zstd"] = digest_of(content)


@pytest.fixture
def twinned(
    intent: Intent, found: Inputs, held: Registry, tmp_path: Path, verify: Verify, monkeypatch: pytest.MonkeyPatch
) -> Twinned:
    monkeypatch.setenv("TRAINWRIGHT_STORE", str(tmp_path / "store"))
    labels = {"io.trainwright.id": found.variant.id, "io.trainwright.key": found.key}
    image = layouts.make(tmp_path / "image", [gzip.compress(layer) for layer in LAYERS], {"Labels": labels})
    blobs = image.folder / "blobs"

    def layer(row: Mapping[str, Any]) -> Path:
        return blobs / str(row["digest"]).replace(":", "/")

    config = layer(image.manifest["config"]).read_bytes()
    made = zstd_twin.make(image.manifest, config, layer, tmp_path / "twin", 3, 1)
    for folder, digest, kind, tag in (
        (image.folder, image.digest, MANIFEST, found.tag),
        (tmp_path / "twin", made.digest, zstd_twin.KINDS.manifest, f"{found.tag}-zstd"),
    ):
        for blob in (folder / "blobs/sha256").iterdir():
            held.blobs[REPOSITORY, f"sha256:{blob.name}"] = blob.read_bytes()
        held.manifests[REPOSITORY, digest] = held.blobs[REPOSITORY, digest], kind
        held.tags[REPOSITORY, tag] = digest

    def rows(public: str = "", contents: bool = True) -> dict[str, Any]:
        monkeypatch.setattr(build, "findings", lambda *_: (Findings.model_validate(truthful(found)), ""))
        name = f"{held.address}/{REPOSITORY}:{found.tag}-zstd"
        report = verify_published.inspect(intent, name, public, contents, lambda _: None)
        assert report.uri.endswith(held.tags[REPOSITORY, f"{found.tag}-zstd"])
        return {row.check: row for row in report.rows}

    return Twinned(held, image.digest, made.digest, found.tag, rows)


def test_a_twin_is_the_image_that_was_proved(twinned: Twinned) -> None:
    rows = twinned.rows()
    assert [rows[check].state for check in ("tags", "media types", "twin", "contents")] == ["passed"] * 4, rows
    assert f"{twinned.tag}-zstd: {twinned.twin}" in rows["tags"].detail
    assert "2 layers unpack to its diff_ids" in rows["twin"].detail


def test_without_contents_only_its_configuration_is_compared(twinned: Twinned) -> None:
    twinned.held.asked.clear()
    row = twinned.rows(contents=False)["twin"]
    assert (row.state, "has the image's configuration" in row.detail) == ("not run", True)
    layers = [layer["digest"] for layer in twinned.manifest()["layers"]]
    assert not any(layer in request for layer in layers for request in twinned.held.asked)


@pytest.mark.parametrize("contents", [True, False])
def test_a_twin_with_another_configuration(twinned: Twinned, contents: bool) -> None:
    """Even with the labels of the image."""
    manifest = twinned.manifest()
    config = json.loads(twinned.held.blobs[REPOSITORY, manifest["config"]["digest"]])
    config["config"]["Env"] = ["LD_PRELOAD=/tmp/x.so"]
    content = json.dumps(config).encode()
    twinned.held.blobs[REPOSITORY, digest_of(content)] = content
    twinned.replace({**manifest, "config": {**manifest["config"], "digest": digest_of(content), "size": len(content)}})
    row = twinned.rows(contents=contents)["twin"]
    assert row.state == "failed"
    assert f"its configuration is {digest_of(content)}, that of the image is" in row.detail


@pytest.mark.parametrize("bytes_", [zstandard.compress(b"other"), b"no zstd at all"], ids=["other files", "no zstd"])
def test_a_twin_with_another_layer(twinned: Twinned, bytes_: bytes) -> None:
    manifest = twinned.manifest()
    twinned.held.blobs[REPOSITORY, digest_of(bytes_)] = bytes_
    manifest["layers"][1] |= {"digest": digest_of(bytes_), "size": len(bytes_)}
    twinned.replace(manifest)
    row = twinned.rows()["twin"]
    assert (row.state, "does not match the configuration of its image" in row.detail) == ("failed", True)


def test_a_twin_without_its_image(twinned: Twinned) -> None:
    del twinned.held.tags[REPOSITORY, twinned.tag]
    row = twinned.rows()["twin"]
    assert (row.state, row.detail) == ("failed", f"the image that it is of is not there: no tag {twinned.tag}")


def test_a_twin_is_signed_by_itself(twinned: Twinned, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both manifests are: a host pulls the one, and the other was proved."""
    (tmp_path / "key.pub").write_text("a key")
    monkeypatch.setattr(sign, "lacking", lambda: "")
    monkeypatch.setattr(sign, "attested", lambda *_: ([], "none here"))
    signed = {twinned.twin, twinned.image}
    monkeypatch.setattr(sign, "unsigned", lambda place, _: "" if place.digest in signed else "it has no signature")
    assert twinned.rows(str(tmp_path / "key.pub"))["signature"].state == "passed"
    for digest in (twinned.twin, twinned.image):
        signed ^= {digest}
        row = twinned.rows(str(tmp_path / "key.pub"))["signature"]
        assert (row.state, row.detail) == ("failed", f"{digest}: it has no signature")
        signed ^= {digest}


def test_an_oci_image_with_gzip_layers_is_neither(twinned: Twinned) -> None:
    manifest = twinned.manifest()
    manifest["layers"][0]["mediaType"] = oci_layout.OCIS.layers[0]
    twinned.replace(manifest)
    assert twinned.rows()["media types"].state == "failed"
