"""Test authentication: which credentials are used over which connection, and who must never get a password."""

import base64
import json
import subprocess
from pathlib import Path

import pytest
from registries import Handler, Registry, serving
from unit.registry.conftest import push

from trainwright.core.errors import ConfigError, RegistryError
from trainwright.registry import auth, client, http


def login(tmp_path: Path, held: Registry, password: str) -> None:
    token = base64.b64encode(f"me:{password}".encode()).decode()
    (tmp_path / "docker").mkdir(exist_ok=True)
    (tmp_path / "docker/config.json").write_text(json.dumps({"auths": {held.address: {"auth": token}}}))


@pytest.mark.parametrize("bearer", [True, False])
def test_credentials_of_the_docker_client(
    held: Registry, place: str, layout: Path, tmp_path: Path, bearer: bool
) -> None:
    held.password, held.bearer = "secret", bearer
    with pytest.raises(RegistryError) as raised:
        client.resolve(place, "v1")
    assert "registry answered 401" in raised.value.why
    assert raised.value.fix == f"docker login {held.address}"
    login(tmp_path, held, "secret")
    assert push(layout, place)
    login(tmp_path, held, "wrong")
    auth._headers.clear()
    with pytest.raises(RegistryError) as raised:
        client.resolve(place, "v1")
    assert "wrong" not in str(raised.value.as_dict())


def test_a_credential_helper(held: Registry, place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With an identity token, which is exchanged for one of the registry."""
    held.password, held.bearer = "identity", True
    (tmp_path / "docker").mkdir()
    (tmp_path / "docker/config.json").write_text('{"credsStore": "tests"}')
    helper = tmp_path / "bin/docker-credential-tests"
    helper.parent.mkdir()
    helper.write_text("""#!/bin/sh\necho '{"Username": "<token>", "Secret": "identity"}'\n""")
    helper.chmod(0o755)
    monkeypatch.setenv("PATH", f"{helper.parent}:/usr/bin:/bin")
    assert client.resolve(place, "v1") == ""
    auth._headers.clear()
    helper.write_text("#!/bin/sh\necho the vault is shut; exit 1\n")
    with pytest.raises(RegistryError, match="cannot be read") as raised:
        client.resolve(place, "v1")
    assert "the vault is shut" in raised.value.why


@pytest.mark.parametrize("bearer", [True, False])
def test_credentials_that_expire_in_the_middle_of_a_blob(held: Registry, place: str, big: Path, bearer: bool) -> None:
    held.password, held.bearer = "first", bearer
    given: list[str] = []

    def provider() -> tuple[str, str]:
        given.append(held.password)
        return "me", held.password

    def expires(handler: Handler) -> None:
        held.password = "second"
        held.tokens.clear()
        assert not handler.admitted()

    auth.authenticate(held.address, provider)
    held.act("PATCH .*state=2000", expires)
    digest = push(big, place)
    client.tag(place, digest, "v1")
    assert set(given) == {"first", "second"}
    assert held.sent.count(1000) == 5


def test_credentials_go_to_nobody_else(held: Registry, place: str, layout: Path) -> None:
    """A blob that the registry keeps somewhere else: it is fetched there, without our password."""
    with serving() as elsewhere:
        held.password = "secret"
        auth.authenticate(held.address, lambda: ("me", "secret"))
        digest, manifest = client.manifest_of(layout)
        client.push(layout, place, digest)
        seen: list[str] = []
        elsewhere.blobs = held.blobs

        def serves(handler: Handler) -> None:
            seen.append(handler.said())
            handler.route()

        elsewhere.act("GET", serves, times=99)
        held.act(
            "GET .*/blobs/",
            lambda handler: handler.answer(307, headers={"Location": f"http://{elsewhere.address}{handler.path}"}),
            times=99,
        )
        client.verify(place, digest, manifest)
        assert seen == ["", ""]


@pytest.mark.parametrize("header", ["Location", "WWW-Authenticate"])
def test_plain_http_is_never_spoken_beyond_loopback(held: Registry, place: str, header: str) -> None:
    auth.authenticate(held.address, lambda: ("me", "secret"))
    beyond = "http://192.0.2.1/token"
    said = {"Location": beyond, "WWW-Authenticate": f'Bearer realm="{beyond}"'}[header]
    held.act("GET", lambda handler: handler.answer(307 if header == "Location" else 401, headers={header: said}))
    with pytest.raises(RegistryError, match="plain http is only allowed on loopback"):
        client.resolve(place, "v1")


@pytest.mark.parametrize(
    ("repository", "scheme"),
    [
        ("127.0.0.1:5000/a", "http"),
        ("localhost:5000/a", "http"),
        ("localhost/a", "http"),
        ("[::1]:5000/a", "http"),
        ("registry.example.com/a", "https"),
        ("127.example.com/a", "https"),
        ("10.0.0.1:5000/a", "https"),
    ],
)
def test_plain_http_on_loopback(repository: str, scheme: str) -> None:
    assert http.url_of(repository, "x").scheme == scheme


@pytest.mark.parametrize("repository", ["", "host", "host/", "http://host/a", "host:port/a"])
def test_what_is_no_repository(repository: str) -> None:
    with pytest.raises(ConfigError, match="is not a repository") as raised:
        client.resolve(repository, "v1")
    assert "REGISTRY=" in raised.value.fix


def test_tls_by_a_ca_of_our_own(
    layout: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bare_network: None
) -> None:
    """0.0.0.0 is this host, and no loopback address."""
    words = (
        "openssl req -x509 -days 2 -nodes -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -subj /CN=registry "
        "-addext subjectAltName=IP:0.0.0.0 -keyout key.pem -out ca.pem"
    )
    subprocess.run(words.split(), check=True, capture_output=True)
    Path("both.pem").write_text(Path("ca.pem").read_text() + Path("key.pem").read_text())
    with serving("0.0.0.0", Path("both.pem")) as held:
        with pytest.raises(RegistryError) as raised:
            client.resolve(f"{held.address}/a", "v1")
        assert "CERTIFICATE_VERIFY_FAILED" in raised.value.why
        assert "TRAINWRIGHT_CA" in raised.value.fix
        monkeypatch.setenv("TRAINWRIGHT_CA", str(Path("ca.pem").absolute()))
        assert push(layout, f"{held.address}/a")  # although it calls itself http://
    with serving("0.0.0.0") as held, pytest.raises(RegistryError) as raised:
        client.resolve(f"{held.address}/a", "v1")
    assert "does it support TLS" in raised.value.why
