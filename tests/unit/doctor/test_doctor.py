"""Test that each check of doctor can fail: break its subject, and compare the finding and its fix."""

import json
import os
import re
import shutil
import socket
import socketserver
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from trainwright import doctor
from trainwright.core import host_settings
from trainwright.core.errors import NotRunError
from trainwright.docker import engine
from trainwright.doctor.context import Context, Finding
from trainwright.resolve import apt_sources

ROOT = Path(__file__).parents[3]
INFO = {
    "ServerVersion": "26.1.5+dfsg1",
    "Driver": "overlayfs",
    "DriverStatus": [["driver-type", "io.containerd.snapshotter.v1"]],
    "DockerRootDir": "/",
    "Architecture": "x86_64",
}
Look = Callable[..., Finding]


@pytest.fixture(autouse=True)
def _bare_host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Remove engine, registry, AWS account and store from the environment, and forget what earlier tests cached."""
    for name in list(os.environ):
        if name.startswith(("AWS_", "TRAINWRIGHT_")) or name in (
            "SSL_CERT_FILE",
            "PIP_CERT",
            "GIT_SSL_CAINFO",
            "DOCKER_CONFIG",
        ):
            monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "no-credentials"))
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/no.sock")
    monkeypatch.setenv("TRAINWRIGHT_STORE", str(tmp_path / "store"))
    monkeypatch.setenv("TRAINWRIGHT_REGISTRY_PORT", "1")


@pytest.fixture
def tree(whole: Path) -> Path:
    """Return a checkout that a test may change."""
    return whole


@pytest.fixture
def look(request: pytest.FixtureRequest) -> Look:
    """Return a function that runs one check and returns its finding, for the test's own checkout if it has one."""
    root = request.getfixturevalue("tree") if "tree" in request.fixturenames else ROOT

    def one(name: str, registry: str = "", ids: set[str] | None = None) -> Finding:
        return doctor._masked(doctor._judge(name, doctor.CHECKS[name], Context(root, registry, ids)))

    return one


@pytest.fixture
def daemon(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, Any]]:
    """Serve as much of the engine's protocol as doctor needs; tests change its info."""
    info = dict(INFO)
    answers = {"/_ping": "OK", "/version": {"ApiVersion": "1.45"}, "/info": info}
    address = str(tmp_path / "engine.sock")
    with _serving(partial(socketserver.UnixStreamServer, address), answers):
        monkeypatch.setenv("DOCKER_HOST", f"unix://{address}")
        yield info


@contextmanager
def _serving(server: Callable[..., Any], answers: dict[str, Any]) -> Iterator[Any]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            found = answers.get(re.sub(r"^/v1\.\d+", "", self.path))
            body = json.dumps(found or {"message": "No such image"}).encode()
            self.send_response(200 if found else 404)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None: ...

    with server(Handler) as running:
        Thread(target=running.serve_forever, args=(0.01,), daemon=True).start()
        yield running
        running.shutdown()


def script(path: Path, body: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)
    return path


def edit(path: Path, pattern: str, new: str) -> None:
    text, count = re.subn(pattern, new, path.read_text(), count=1, flags=re.MULTILINE)
    assert count == 1, f"{pattern} is not in {path}"
    path.write_text(text)


def plugin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str) -> None:
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path / "config"))
    script(tmp_path / "config/cli-plugins/docker-buildx", f"echo github.com/docker/buildx {version} 0000")


def client(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, body: str) -> Path:
    found = script(tmp_path / "bin/docker", body)
    monkeypatch.setenv("PATH", f"{found.parent}:/usr/bin:/bin")
    return found


# --- the engine ----------------------------------------------------------------------------------------------


def test_engine_that_answers(daemon: dict[str, Any], look: Look) -> None:
    assert look("engine").state == "ok"
    assert "26.1.5" in look("engine").found


def test_no_engine(look: Look) -> None:
    found = look("engine")
    assert (found.state, found.fix) == ("failed", "unset DOCKER_HOST")  # it is what leads nowhere
    assert "no.sock" in found.found
    assert look("image store").state == "unknown"


def test_old_engine(daemon: dict[str, Any], look: Look) -> None:
    daemon["ServerVersion"] = "9.5.1"  # as a string it would be newer than 25
    found = look("engine")
    assert found.state == "failed"
    assert "9.5.1" in found.found
    assert "upgrade" in found.fix


def test_engine_minimum_is_read_from_host_toml(daemon: dict[str, Any], tree: Path, look: Look) -> None:
    edit(tree / "dockerfiles/host.toml", r'^minimum = "\d+"', 'minimum = "999"')
    assert look("engine").state == "failed"


def test_development_engine_is_unknown(daemon: dict[str, Any], look: Look) -> None:
    daemon["ServerVersion"] = "dev"
    assert look("engine").state == "unknown"


def test_buildx_of_client_and_plugin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, look: Look) -> None:
    plugin(tmp_path, monkeypatch, "v0.13.1")
    client(tmp_path, monkeypatch, "exit 0")
    assert look("buildx").state == "ok"


def test_bare_client_in_front_of_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, look: Look) -> None:
    plugin(tmp_path, monkeypatch, "0.13.1+ds1")
    bare = client(tmp_path, monkeypatch, """echo "docker: 'buildx' is not a docker command." >&2; exit 1""")
    found = look("buildx")
    assert found.state == "warning"
    assert str(bare) in found.found
    assert str(bare) in found.fix


def test_old_buildx(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, look: Look) -> None:
    plugin(tmp_path, monkeypatch, "v0.9.1")  # as a string it would be newer than 0.13
    found = look("buildx")
    assert found.state == "failed"
    assert "make engine" in found.fix


def test_no_buildx(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, look: Look) -> None:
    monkeypatch.setattr(engine, "PLUGINS", (str(tmp_path / "nowhere"),))
    assert (look("buildx").state, look("buildx").fix) == ("failed", "make engine")


def test_image_store(daemon: dict[str, Any], look: Look) -> None:
    assert look("image store").state == "ok"
    daemon.update(Driver="overlay2", DriverStatus=[["Backing Filesystem", "extfs"]])
    assert (look("image store").state, look("image store").found[:10]) == ("ok", "overlay2, ")


# --- tools, locks, disk --------------------------------------------------------------------------------------


def test_missing_system_tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, look: Look) -> None:
    monkeypatch.setenv("PATH", str(script(tmp_path / "bin/other", "").parent))
    found = look("tools")
    assert (found.state, found.found, found.fix) == ("failed", "missing: git", "install git")


def test_missing_tools_of_ours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, look: Look) -> None:
    for name in ("git", "python", "uv"):
        script(tmp_path / "bin" / name, "")
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setattr(sys, "executable", str(tmp_path / "bin/python"))
    found = look("tools")
    assert (found.state, found.found) == ("failed", "missing: syft")
    assert "pip install" in found.fix
    script(tmp_path / "bin/syft", "")
    assert look("tools").state == "ok"


def test_locks(tree: Path, few: Path, look: Look) -> None:
    assert look("locks").state == "ok"
    locks = sorted((tree / "dockerfiles/locks").glob("*.toml"))
    edit(locks[0], r"^intent = .*$", f'intent = "{"0" * 64}"')
    found = look("locks")
    assert (found.state, found.found) == ("failed", f"the lock of {locks[0].stem} is stale")
    assert found.fix == f"trainwright lock {locks[0].stem}"
    locks[1].unlink()
    assert f"the lock {locks[1].name} does not exist" in look("locks").found


def test_broken_matrix_names_the_line(tree: Path, look: Look) -> None:
    (tree / "dockerfiles/matrix.toml").write_text("[common\n")
    found = look("locks")
    assert found.state == "failed"
    assert "matrix.toml:1" in found.found
    assert found.fix


@pytest.fixture
def modest(tree: Path) -> None:
    """Make a build need almost no disk space, so that the free space of this machine does not matter."""
    for factor in ("store", "listing", "engine"):
        edit(tree / "dockerfiles/host.toml", rf"^{factor} = \d.*$", f"{factor} = 0.01")


@pytest.mark.usefixtures("modest")
def test_disk(daemon: dict[str, Any], look: Look) -> None:
    found = look("disk")
    assert found.state == "ok"
    assert re.search(r"[1-9]\d* default image.* \d+\.\d\d GB needed, \d+\.\d\d GB free", found.found)


@pytest.mark.usefixtures("modest")
def test_disk_for_the_named_images_alone(daemon: dict[str, Any], look: Look) -> None:
    gigabytes = [
        float(re.search(r"([\d.]+) GB of sources", look("disk", ids=ids).found)[1])  # type: ignore[index]
        for ids in (None, {"base-1.0-cpu-py313-sagemaker"})
    ]
    assert gigabytes[1] < gigabytes[0] / 2
    assert look("disk", ids={"base-1.0-cpu-py313-sagemaker"}).found.startswith("1 image to build")
    blocked = "pytorch-2.8-cu129-py312-sagemaker-dlc"
    assert look("disk", ids={blocked}).found.startswith("0 images to build")


@pytest.mark.parametrize("factor", ["store", "listing", "engine"])
def test_short_of_disk(factor: str, daemon: dict[str, Any], tree: Path, look: Look) -> None:
    edit(tree / "dockerfiles/host.toml", rf"^{factor} = \d.*$", f"{factor} = 1e9")
    found = look("disk")
    assert found.state == "failed"
    assert "TRAINWRIGHT_STORE" in found.fix


def test_store_and_engine_on_one_disk_share_its_room(
    daemon: dict[str, Any], tree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, look: Look
) -> None:
    daemon["DockerRootDir"] = str(tmp_path)
    for factor in ("store", "listing", "engine"):
        edit(tree / "dockerfiles/host.toml", rf"^{factor} = \d.*$", f"{factor} = {0 if factor == 'listing' else 2}.0")
    sources = float(re.search(r"([\d.]+) GB of sources", look("disk").found)[1])  # type: ignore[index]
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage._replace(free=int(sources * 3e9)))  # enough for either
    assert look("disk").state == "failed"


@pytest.mark.usefixtures("modest")
def test_disk_without_engine_is_unknown_but_the_store_is_judged(tree: Path, look: Look) -> None:
    found = look("disk")
    assert (found.state, found.fix) == ("unknown", "unset DOCKER_HOST")
    assert "GB free" in found.found
    edit(tree / "dockerfiles/host.toml", r"^store = \d.*$", "store = 1e9")
    assert look("disk").state == "failed"


def test_disk_with_stale_lock_is_unknown(tree: Path, look: Look) -> None:
    for path in (tree / "dockerfiles/locks").glob("*.toml"):
        path.unlink()
    found = look("disk")
    assert found.state == "unknown"
    assert found.fix.startswith("trainwright lock")


@pytest.mark.usefixtures("modest")
def test_disk_without_oras_is_unknown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, look: Look) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with _serving(partial(HTTPServer, ("127.0.0.1", 0)), {"/v2/": {"a": "registry"}}) as server:
        found = look("disk", f"127.0.0.1:{server.server_address[1]}")
    assert (found.state, found.fix) == ("unknown", "unset DOCKER_HOST")


# --- where things come from ----------------------------------------------------------------------------------


@pytest.mark.parametrize("setting", ["SSL_CERT_FILE", "PIP_CERT"])
@pytest.mark.parametrize("text", ["not PEM", None])
def test_ca_bundle(setting: str, text: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, look: Look) -> None:
    bundle = tmp_path / "bundle.pem"
    if text:
        bundle.write_text(text)
    monkeypatch.setattr(host_settings, "pip_settings", dict)
    monkeypatch.setenv(setting, str(bundle))
    found = look("ca")
    assert found.state == "failed"
    assert f"{bundle} ({setting})" in found.found
    assert setting in found.fix


def test_ca_bundle_in_pips_configuration(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, look: Look) -> None:
    (tmp_path / "pip.conf").write_text(f"[global]\ncert = {tmp_path}/lost.pem\n")
    monkeypatch.setenv("PIP_CONFIG_FILE", str(tmp_path / "pip.conf"))
    found = look("ca")
    assert found.state == "failed"
    assert "lost.pem (pip's setting `cert`)" in found.found


def test_ca_of_the_setting(authority: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, look: Look) -> None:
    monkeypatch.setattr(host_settings, "pip_settings", dict)
    monkeypatch.setenv("TRAINWRIGHT_CA", str(authority / "ca.pem"))
    assert "TRAINWRIGHT_CA: 1 certificates" in look("ca").found
    monkeypatch.setenv("TRAINWRIGHT_CA", str(tmp_path / "lost"))
    found = look("ca")
    assert found.state == "failed"
    assert f"read as the path {tmp_path}/lost" in found.found


def test_indexes_with_mirrors(monkeypatch: pytest.MonkeyPatch, look: Look) -> None:
    given = {"index-url": "https://one.example/simple", "extra-index-url": "https://two.example/simple"}
    monkeypatch.setattr(host_settings, "pip_settings", lambda: given)
    monkeypatch.setenv("TRAINWRIGHT_MIRRORS", "https://two.example=https://me:s3cret@mirror.example/two")
    assert look("indexes").found == (
        "index https://one.example/simple, extra-index-url https://***@mirror.example/two/simple"
    )
    monkeypatch.setenv("TRAINWRIGHT_MIRRORS", "python=https://me:s3cret@mirror.example/simple")
    assert look("indexes").found.startswith("index https://***@mirror.example/simple (TRAINWRIGHT_MIRRORS), ")


def test_indexes_without_credentials(monkeypatch: pytest.MonkeyPatch, look: Look) -> None:
    given = {
        "index-url": "https://me:s3cret@one.example/simple",
        "extra-index-url": "https://s3cret@two.example/simple https://three.example/simple?token=s3cret",
    }
    monkeypatch.setattr(host_settings, "pip_settings", lambda: given)
    found = look("indexes")
    assert found.state == "ok"
    assert "s3cret" not in found.found
    assert all(host in found.found for host in ("one.example", "two.example", "three.example"))


def test_lost_find_links(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, look: Look) -> None:
    given = {"find-links": f"{tmp_path} https://wheels.example {tmp_path}/lost file://{tmp_path}/gone"}
    monkeypatch.setattr(host_settings, "pip_settings", lambda: given)
    found = look("indexes")
    assert found.state == "warning"
    assert f"missing: {tmp_path}/lost, file://{tmp_path}/gone;" in found.found
    assert found.fix


def test_mirrors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, look: Look) -> None:
    monkeypatch.setattr(apt_sources, "mirrors", lambda _: {"debian": "http://me:s3cret@own.example/debian"})
    found = look("mirrors")
    assert (found.state, "s3cret" in found.found) == ("ok", False)
    assert "debian http://***@own.example/debian, debian-security the snapshot archive" in found.found
    archives = [f"{name}=https://me:s3cret@mirror.example/debian" for name in ("debian", "debian-security")]
    monkeypatch.setenv("TRAINWRIGHT_MIRRORS", " ".join([*archives, f"https://git.example/a={tmp_path}"]))
    monkeypatch.setenv("HTTPS_PROXY", "http://me:s3cret@proxy.example:3128")
    found = look("mirrors")
    assert found.state == "ok"
    assert "debian https://***@mirror.example/debian" in found.found
    assert f"https://git.example/a file://{tmp_path}" in found.found
    assert "https proxy http://***@proxy.example:3128" in found.found
    assert "s3cret" not in found.found


@pytest.mark.parametrize(
    ("word", "said"),
    [
        ("debain=http://a.example", "did you mean 'debian'?"),
        ("https://git.example/a=/dev/null/nowhere", "missing: https://git.example/a;"),
        ("https://git.example/a=nowhere", "the mirror of https://git.example/a is not a valid address"),
    ],
)
def test_mirrors_that_lead_nowhere(word: str, said: str, monkeypatch: pytest.MonkeyPatch, look: Look) -> None:
    archives = [f"{name}=http://mirror.example/{name}" for name in ("debian", "debian-security")]
    monkeypatch.setenv("TRAINWRIGHT_MIRRORS", " ".join([*archives, word]))
    found = look("mirrors")
    assert found.state == "failed"
    assert said in found.found
    assert "TRAINWRIGHT_MIRRORS" in found.fix


# --- the registry --------------------------------------------------------------------------------------------


def test_registry_that_answers(monkeypatch: pytest.MonkeyPatch, look: Look) -> None:
    with _serving(partial(HTTPServer, ("127.0.0.1", 0)), {"/v2/": {"a": "registry"}}) as server:
        port = server.server_address[1]
        assert look("registry", f"localhost:{port}/team").state == "ok"
        monkeypatch.setenv("TRAINWRIGHT_REGISTRY_PORT", str(port))
        assert look("registry").state == "ok"
        monkeypatch.setenv("AWS_PROFILE", "somebody")
        found = look("registry")
        assert found.state == "warning"
        assert "REGISTRY=" in found.fix


def test_missing_loopback_registry_is_a_warning(look: Look) -> None:
    assert (look("registry").state, look("registry").fix) == ("warning", "make registry")


@pytest.mark.parametrize(
    ("given", "state"),
    [("127.0.0.1:1", "failed"), ("http://127.0.0.1:1", "failed"), ("registry.example/team", "unknown")],
)
def test_given_registry(given: str, state: str, look: Look) -> None:
    found = look("registry", given)
    assert found.state == state
    assert found.fix


def test_signing_is_no_precondition_unless_somebody_says_so(
    monkeypatch: pytest.MonkeyPatch, look: Look, tree: Path, tmp_path: Path
) -> None:
    assert (look("signing").state, look("signing").fix) == ("ok", "")
    edit(tree / "dockerfiles/publish.toml", '^required = "release"', 'required = "always"')
    found = look("signing")
    assert (found.state, "TRAINWRIGHT_SIGNING_KEY" in found.fix) == ("failed", True)
    monkeypatch.setenv("TRAINWRIGHT_SIGNING_KEY", "awskms:///alias/images")
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    assert (look("signing").state, "downloaded" in look("signing").found) == ("unknown", True)  # no network is asked
    script(tmp_path / "bin/cosign", "exit 1")  # not in the tree, which may lie where nothing may be executed
    assert look("signing").state == "unknown"  # no network is asked
    monkeypatch.setenv("TRAINWRIGHT_SIGNING_KEY", str(tree / "no.key"))
    found = look("signing")
    assert (found.state, "cannot be found" in found.found) == ("failed", True)


def test_port_that_is_none(monkeypatch: pytest.MonkeyPatch, look: Look) -> None:
    monkeypatch.setenv("TRAINWRIGHT_REGISTRY_PORT", "many")
    found = look("registry")
    assert found.state == "failed"
    assert "TRAINWRIGHT_REGISTRY_PORT" in found.fix


# --- all together --------------------------------------------------------------------------------------------


def test_every_check_in_its_order_even_if_one_breaks(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def breaks(_: Context) -> Finding:
        raise KeyError("https://me:s3cret@host.example")

    def open_question(_: Context) -> Finding:
        raise NotRunError("not\nestablished", fix="try again")

    monkeypatch.setitem(doctor.CHECKS, "tools", breaks)
    monkeypatch.setitem(doctor.CHECKS, "mirrors", open_question)
    asked, resolve = list[str](), socket.getaddrinfo

    def noted(host: Any, *words: Any, **named: Any) -> Any:
        asked.append(str(host))
        return resolve(host, *words, **named)

    monkeypatch.setattr(socket, "getaddrinfo", noted)
    findings = {finding.check: finding for finding in doctor.examine(tree, "")}
    assert {*asked} <= {"127.0.0.1", "localhost"}  # nobody waited for a network
    assert list(findings) == list(doctor.CHECKS)
    assert findings["tools"].state == "failed"
    assert "s3cret" not in findings["tools"].found
    assert findings["mirrors"] == Finding(check="mirrors", state="unknown", found="not established", fix="try again")
    assert all(finding.fix for finding in findings.values() if finding.state != "ok")
