"""Test TRAINWRIGHT_CA as a path, a directory or PEM text, beside the CAs that the system and pip trust."""

import os
import ssl
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from trainwright.core import certificates
from trainwright.core.errors import ConfigError, EnvironmentProblem

pytestmark = pytest.mark.usefixtures("bare_network")
FORMS = ("path", "directory", "text", "text on one line")


@pytest.fixture(params=FORMS)
def trusted(request: pytest.FixtureRequest, authority: Path, tmp_path: Path) -> str:
    """Return the test's CA in one of the forms of the setting."""
    text = (authority / "ca.pem").read_text()
    folder = tmp_path / "anchors"
    folder.mkdir()
    (folder / "corporate.crt").write_text(f"a comment\n{text}")
    (folder / "README").write_text("not a certificate")
    forms = (str(authority / "ca.pem"), str(folder), text, text.replace("\n", "\\n"))
    return dict(zip(FORMS, forms, strict=True))[request.param]


def held(path: str) -> int:
    """Return the number of certificates in a bundle, as OpenSSL counts them."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(path)
    return context.cert_store_stats()["x509"]


def test_nobody_names_one() -> None:
    assert certificates.bundle() == ""


def test_every_form_goes_beside_the_systems(trusted: str, monkeypatch: pytest.MonkeyPatch) -> None:
    system = held(ssl.get_default_verify_paths().cafile or ssl.get_default_verify_paths().capath or "")
    monkeypatch.setenv("TRAINWRIGHT_CA", trusted)
    path = Path(certificates.bundle())
    assert held(str(path)) == system + 1
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o777 == 0o700
    assert certificates.bundle() == str(path)  # made once


def test_what_pip_git_and_openssl_are_told_is_in_it(
    authority: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, another: Callable[[str], str]
) -> None:
    files = {name: another(name) for name in ("SSL_CERT_FILE", "GIT_SSL_CAINFO", "pip")}
    monkeypatch.setattr(certificates, "pip_settings", lambda: {"cert": files["pip"]})
    assert held(certificates.bundle()) > 1  # pip's alone is reason enough
    for name in ("SSL_CERT_FILE", "GIT_SSL_CAINFO"):
        monkeypatch.setenv(name, files[name])
    monkeypatch.setenv("TRAINWRIGHT_CA", str(authority / "ca.pem"))
    said = Path(certificates.bundle()).read_text()
    for file in [*files.values(), str(authority / "ca.pem")]:
        assert Path(file).read_text().strip() in said
    assert held(certificates.bundle()) == 4  # SSL_CERT_FILE stands in for the system's


@pytest.fixture
def another(tmp_path: Path) -> Callable[[str], str]:
    def make(name: str) -> str:
        new = f"openssl req -x509 -days 2 -nodes -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -subj /CN={name}"
        subprocess.run([*new.split(), "-keyout", "key", "-out", f"{name}.pem"], cwd=tmp_path, check=True, stderr=-3)
        return str(tmp_path / f"{name}.pem")

    return make


@pytest.mark.parametrize(
    ("given", "understood", "why"),
    [
        ("/nowhere/ca.pem", "the path /nowhere/ca.pem", "No such file"),
        ("corporate", "the path corporate", "No such file"),
        ("EMPTY", "the directory ", "it contains no certificate"),
        ("DER", "the file ", "openssl x509 -inform DER"),
        ("-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----", "PEM text", ""),
        ("-----BEGIN PRIVATE KEY-----\nMIIB\n-----END PRIVATE KEY-----", "PEM text", "it contains no certificate"),
        ("MIIB" * 2000, "the path MIIBMIIB", "too long"),
    ],
)
def test_what_is_none_of_the_three(
    given: str, understood: str, why: str, tmp_path: Path, authority: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "empty").mkdir()
    der = ssl.PEM_cert_to_DER_cert((authority / "ca.pem").read_text())
    (tmp_path / "ca.der").write_bytes(der)
    named = {"EMPTY": str(tmp_path / "empty"), "DER": str(tmp_path / "ca.der")}
    monkeypatch.setenv("TRAINWRIGHT_CA", named.get(given, given))
    with pytest.raises(ConfigError, match="TRAINWRIGHT_CA is not a valid CA") as raised:
        certificates.bundle()
    assert understood in raised.value.where
    assert why in raised.value.why
    assert "a PEM file, a directory of PEM files, or PEM text" in raised.value.fix
    assert len(raised.value.where) < 300


@pytest.mark.parametrize("name", ["SSL_CERT_FILE", "GIT_SSL_CAINFO", "pip"])
def test_another_bundle_that_is_none(
    name: str, authority: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "broken.pem").write_text("no PEM")
    monkeypatch.setenv("TRAINWRIGHT_CA", str(authority / "ca.pem"))
    for path in (tmp_path / "broken.pem", tmp_path / "lost.pem"):
        if name == "pip":
            monkeypatch.setattr(certificates, "pip_settings", lambda path=path: {"cert": str(path)})
        else:
            monkeypatch.setenv(name, str(path))
        with pytest.raises(EnvironmentProblem, match="the CA bundle cannot be used") as raised:
            certificates.bundle()
        assert raised.value.where == str(path)


def test_it_is_gone_when_the_process_ends(authority: Path) -> None:
    code = "from trainwright.core import certificates as c; c.pip_settings = dict; print(c.bundle())"
    own = {**os.environ, "TRAINWRIGHT_CA": str(authority / "ca.pem")}
    path = subprocess.run([sys.executable, "-c", code], env=own, capture_output=True, text=True, check=True).stdout
    assert path.startswith("/")
    assert not Path(path.strip()).parent.exists()
