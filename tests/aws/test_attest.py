"""Test cosign with ECR: it uses the account's token, and TLS with a private CA."""

import json
import subprocess
import tempfile
from pathlib import Path

import layouts
import pytest
from aws.conftest import REGIONS
from aws.emulator import Emulator

from trainwright.core.errors import RegistryError
from trainwright.publish import sign
from trainwright.publish.sign import Place
from trainwright.registry import auth, ecr, ecr_repositories, http, settings
from trainwright.registry import client as registries

ROOT = Path(__file__).parents[2]
HERE, NAME = REGIONS[0], "trainwright/pytorch"


@pytest.fixture
def place(amazon: Emulator, tmp_path: Path) -> Place:
    """Push an image by digest, without a tag."""
    ecr_repositories.ensure(HERE, [NAME], settings.publication(ROOT).repository, create=True, change=False)
    auth.authenticate(ecr.host(HERE), ecr.credentials(HERE))
    repository = f"{ecr.host(HERE)}/{NAME}"
    made = layouts.make(tmp_path / "layout", [b"layer"], {})
    registries.push(made.folder, repository, made.digest)
    return Place(repository=repository, digest=made.digest, loopback=http.is_loopback(repository))


@pytest.fixture
def key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(sign.PASSWORD, "secret")
    subprocess.run([*sign.program(), "generate-key-pair"], cwd=tmp_path, check=True, capture_output=True)
    return tmp_path / "cosign.key"


def test_signed_and_attested_with_a_token_that_expires(
    amazon: Emulator, place: Place, key: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    (tmp_path / "temporary").mkdir()
    assert not place.loopback
    public = key.with_suffix(".pub")
    assert sign.unsigned(place, public) == "it has no signature"
    sign.sign(place, str(key))
    (tmp_path / "said.json").write_text(json.dumps({"bomFormat": "CycloneDX", "specVersion": "1.6", "components": []}))
    sign.attest(place, str(key), "sbom", tmp_path / "said.json")
    amazon.expire_tokens()
    (tmp_path / "said.json").write_text(json.dumps({"buildDefinition": {"buildType": "urn:x"}, "runDetails": {}}))
    sign.attest(place, str(key), "provenance", tmp_path / "said.json")
    assert sign.unsigned(place, public) == ""
    for kind in sign.KINDS:
        [statement], why = sign.attested(place, public, kind)
        assert (statement["subject"][0]["digest"]["sha256"], why) == (place.digest.removeprefix("sha256:"), "")
    assert list((tmp_path / "temporary").glob("*login*")) == []  # no password stays behind
    hexadecimal = place.digest.replace(":", "-")
    assert sorted(registries.tags(place.repository)) == [f"{hexadecimal}.att", f"{hexadecimal}.sig"]


def test_whom_the_registry_does_not_let_in(place: Place, key: Path) -> None:
    auth.authenticate(place.repository.split("/")[0], lambda: ("AWS", "wrong"))
    with pytest.raises(RegistryError) as raised:
        sign.sign(place, str(key))
    assert "docker login" in raised.value.fix
    assert "wrong" not in f"{raised.value.where}{raised.value.why}"
    with pytest.raises(RegistryError):  # and nobody takes that for "not signed"
        sign.unsigned(place, key.with_suffix(".pub"))


def test_a_registry_of_a_ca_that_nobody_trusts(place: Place, key: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TRAINWRIGHT_CA")
    monkeypatch.delenv("SSL_CERT_FILE")
    with pytest.raises(RegistryError, match="could not be signed") as raised:
        sign.sign(place, str(key))
    assert "certificate" in raised.value.why
