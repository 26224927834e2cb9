"""Test the sources of Python packages: pip's settings translated for uv, and the file that fits the image."""

import functools
import io
import os
import socket
import subprocess
import sys
import tarfile
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from trainwright.core import certificates, host_settings, store
from trainwright.core.errors import EnvironmentProblem, LockError
from trainwright.core.process import run
from trainwright.matrix.matrix import Intent
from trainwright.matrix.model import Base, PythonFile
from trainwright.resolve import fetch, pypi

UV = Path(sys.executable).with_name("uv")
Wheel = Callable[..., str]


@pytest.fixture
def base(intent: Intent) -> Base:
    return intent.components.bases["debian-12"]


@pytest.fixture
def configured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Return a function that sets the host's only pip.conf and environment."""

    def write(text: str, **environment: str) -> None:
        (tmp_path / "pip.conf").write_text(text)
        monkeypatch.setenv("HOME", str(tmp_path))
        monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
        monkeypatch.setenv("PIP_CONFIG_FILE", str(tmp_path / "pip.conf"))
        for name, value in environment.items():
            monkeypatch.setenv(name, value)

    return write


def pairs(options: list[str]) -> list[tuple[str, str]]:
    return [(word, options[at + 1]) for at, word in enumerate(options[:-1]) if word.startswith("--")]


# --- settings ------------------------------------------------------------------------------------------------------


def test_a_file_in_uvs_words(configured: Callable[..., None]) -> None:
    configured(
        "[global]\nindex-url = http://main.invalid/simple\n"
        "extra-index-url =\n  http://one.invalid/simple\n  http://two.invalid/simple\n"
        "find-links = /wheels http://three.invalid/links.html\ntrusted-host = main.invalid one.invalid:8080\n"
        "[install]\nno-index = false\n[list]\nformat = columns\n"
    )
    options = pypi.uv_options("http://framework.invalid/whl")[0]
    said = pairs(options)
    assert ("--default-index", "http://main.invalid/simple") in said
    assert [value for word, value in said if word == "--index"] == [
        "http://one.invalid/simple",
        "http://two.invalid/simple",
        "http://framework.invalid/whl",
    ]
    assert [value for word, value in said if word == "--find-links"] == ["/wheels", "http://three.invalid/links.html"]
    assert ("--allow-insecure-host", "one.invalid:8080") in said
    assert "--no-index" not in options
    assert "--no-config" in options  # uv's own settings would be a second truth


def test_the_environment_wins_over_files_and_the_commands_own_section_over_the_global_one(
    configured: Callable[..., None],
) -> None:
    configured(
        "[install]\ntrusted-host = install\n[global]\nindex-url = http://file.invalid/simple\ntrusted-host = global\n"
        "[download]\nfind-links = /file\n",
        PIP_INDEX_URL="http://environment.invalid/simple",
        PIP_FIND_LINKS="/environment",
    )
    settings = host_settings.pip_settings()
    assert settings["index-url"] == "http://environment.invalid/simple"
    assert settings["find-links"] == "/environment"
    assert settings["trusted-host"] == "install"


@pytest.mark.parametrize(("value", "said"), [("1", True), ("true", True), ("no", False), ("0", False)])
def test_no_index(monkeypatch: pytest.MonkeyPatch, value: str, said: bool) -> None:
    monkeypatch.setattr(pypi, "pip_settings", functools.cache(lambda: {"no-index": value}))
    assert ("--no-index" in pypi.uv_options()[0]) is said


@pytest.mark.usefixtures("bare_network")
def test_ca_bundle_and_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    assert pypi.uv_options()[1] == {}
    monkeypatch.setattr(certificates, "bundle", lambda: "/bundle.pem")
    monkeypatch.setenv("ALL_PROXY", "http://proxy.invalid")
    said = pypi.uv_options()[1]
    assert said["SSL_CERT_FILE"] == "/bundle.pem"
    assert said["https_proxy"] == "http://proxy.invalid"


@pytest.mark.usefixtures("bare_network")
def test_mirrors_in_uvs_words(monkeypatch: pytest.MonkeyPatch) -> None:
    """The mirror `python` is the one default index, whatever pip is told of its own; other indexes have their own."""
    given = {"index-url": "https://public.invalid/simple", "extra-index-url": "https://team.invalid/simple"}
    given |= {"find-links": "https://team.invalid/links /wheels", "no-index": "true"}
    monkeypatch.setattr(pypi, "pip_settings", lambda: given)
    monkeypatch.setenv("TRAINWRIGHT_MIRRORS", "https://team.invalid=https://me:s3cret@mirror.invalid/team")
    said = pypi.uv_options("https://team.invalid/cpu")[0]
    assert ("--default-index", "https://public.invalid/simple") in pairs(said)
    assert "--no-index" in said
    monkeypatch.setenv(
        "TRAINWRIGHT_MIRRORS",
        "python=https://mirror.invalid/simple https://team.invalid=https://me:s3cret@mirror.invalid/team",
    )
    said = pypi.uv_options("https://team.invalid/cpu")[0]
    assert [value for word, value in pairs(said) if word.endswith("index")] == [
        "https://mirror.invalid/simple",
        "https://me:s3cret@mirror.invalid/team/simple",
        "https://me:s3cret@mirror.invalid/team/cpu",
    ]
    assert "--no-index" not in said
    assert "https://me:s3cret@mirror.invalid/team/links" in said
    assert pypi._with_credentials("https://mirror.invalid/a.whl") == "https://me:s3cret@mirror.invalid/a.whl"


# --- the file that fits ----------------------------------------------------------------------------------------------


def package(*files: str, sdist: str = "") -> dict[str, Any]:
    def entry(file: str) -> dict[str, Any]:
        return {"url": f"http://index.invalid/{file}", "hashes": {"sha256": sha256(file.encode()).hexdigest()}}

    found: dict[str, Any] = {"name": "a", "version": "1", "wheels": [entry(file) for file in files]}
    return found | ({"sdist": entry(sdist)} if sdist else {})


@pytest.fixture
def nothing_set(monkeypatch: pytest.MonkeyPatch) -> None:
    """Set no pip options, without asking pip, which takes a third of a second."""
    monkeypatch.setattr(pypi, "pip_settings", functools.cache(lambda: {}))


@pytest.mark.parametrize(
    ("files", "best"),
    [
        (["a-1-py3-none-any.whl", "a-1-cp311-cp311-manylinux_2_28_x86_64.whl"], 1),
        (["a-1-cp311-cp311-manylinux_2_17_x86_64.whl", "a-1-cp311-cp311-manylinux_2_28_x86_64.whl"], 1),
        (["a-1-cp311-cp311-manylinux_2_39_x86_64.whl", "a-1-cp311-cp311-manylinux2014_x86_64.whl"], 1),  # libc too old
        (["a-1-cp312-cp312-manylinux_2_28_x86_64.whl", "a-1-cp38-abi3-manylinux_2_17_x86_64.whl"], 1),
        (["a-1-cp311-cp311-musllinux_1_2_x86_64.whl", "a-1-py2.py3-none-any.whl"], 1),
        (["a-1-cp311-cp311-manylinux_2_28_aarch64.whl", "a-1-cp311-cp311-win_amd64.whl", "a-1-py3-none-any.whl"], 2),
        (["a-1-cp311-cp311-manylinux_2_17_x86_64.manylinux2014_x86_64.whl", "a-1-py3-none-any.whl"], 0),
    ],
)
@pytest.mark.usefixtures("nothing_set")
def test_best_wheel(base: Base, files: list[str], best: int) -> None:
    for listed in (files, files[::-1]):
        assert pypi._best(package(*listed, sdist="a-1.tar.gz"), "3.11", base).file == files[best]


@pytest.mark.usefixtures("nothing_set")
def test_source_distribution_where_no_wheel_fits(base: Base) -> None:
    found = pypi._best(package("a-1-cp312-cp312-win_amd64.whl", sdist="a-1.tar.gz"), "3.11", base)
    assert (found.file, found.sha256) == ("a-1.tar.gz", sha256(b"a-1.tar.gz").hexdigest())


def test_no_file_that_fits(base: Base) -> None:
    with pytest.raises(LockError, match=r"a 1 has no file for Python 3\.11"):
        pypi._best(package("a-1-cp312-cp312-win_amd64.whl"), "3.11", base)


@pytest.mark.usefixtures("nothing_set")
def test_name_of_a_local_version_in_an_address(base: Base) -> None:
    assert pypi._best(package("a-1%2Bcpu-py3-none-any.whl"), "3.11", base).file == "a-1+cpu-py3-none-any.whl"


def test_tags_follow_the_machine(base: Base) -> None:
    arm = {str(tag) for tag in pypi.tags("3.11", base.model_copy(update={"architecture": "arm64"}))}
    assert "cp311-cp311-manylinux_2_36_aarch64" in arm
    assert not any("x86_64" in tag for tag in arm)


# --- what a file needs -----------------------------------------------------------------------------------------------

REQUIRES = (
    "Beta_Package>=2",
    "windows-only; sys_platform == 'win32'",
    "old-python; python_version < '3.8'",
    "on-linux; platform_system == 'Linux' and platform_machine == 'x86_64'",
    "optional; extra == 'all'",
)


def test_needs_of_a_wheel(tmp_path: Path, wheel: Wheel, base: Base) -> None:
    wheel(tmp_path, "alpha", "1.0", REQUIRES)
    file = "alpha-1.0-py3-none-any.whl"
    assert pypi.needs(tmp_path / file, file, "3.11", base) == ["beta-package", "on-linux"]


def test_needs_of_a_source_distribution(tmp_path: Path, base: Base) -> None:
    text = "Metadata-Version: 2.1\nName: alpha\nVersion: 1.0\n" + "".join(f"Requires-Dist: {row}\n" for row in REQUIRES)
    path = tmp_path / "alpha-1.0.tar.gz"
    with tarfile.open(path, "w:gz") as archive:
        for name, body in (("alpha-1.0/sub/PKG-INFO", "Requires-Dist: wrong\n"), ("alpha-1.0/PKG-INFO", text)):
            member = tarfile.TarInfo(name)
            member.size = len(body)
            archive.addfile(member, io.BytesIO(body.encode()))
    assert pypi.needs(path, path.name, "3.11", base) == ["beta-package", "on-linux"]


# --- uv itself -------------------------------------------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path: Path, wheel: Wheel, configured: Callable[..., None]) -> Path:
    """Make a folder with alpha and beta the host's only source of packages."""
    wheels = tmp_path / "wheels"
    wheels.mkdir()
    wheel(wheels, "alpha", "1.0", ("beta",))
    wheel(wheels, "beta", "1.0")
    wheel(wheels, "beta", "2.0", tag="cp311-cp311-manylinux_2_28_x86_64")
    wheel(wheels, "beta", "3.0", tag="cp311-cp311-manylinux_2_39_x86_64")  # for a newer libc than the image has
    configured(f"[global]\nfind-links = {wheels}\nno-index = true\n")
    return wheels


def test_resolve_in_a_folder_with_no_network(folder: Path, base: Base) -> None:
    found = pypi.resolve(["alpha"], "3.11", base)
    assert [(offer.name, offer.version) for offer in found] == [("alpha", "1.0"), ("beta", "2.0")]
    for offer in found:
        assert offer.url == (folder / offer.file).as_uri()
        assert offer.sha256 == store.sha256_of(folder / offer.file)
    with pytest.raises(LockError, match="cannot be resolved") as raised:
        pypi.resolve(["alpha==9"], "3.11", base)
    assert "alpha==9" in raised.value.why
    assert raised.value.exit_code == 4


def test_a_locked_file_is_found_although_its_index_has_a_better_one(folder: Path, wheel: Wheel, intent: Intent) -> None:
    """As when a project adds a wheel for a newer libc to a version that was locked before."""
    tag = "cp38-abi3-manylinux_2_17_x86_64"
    digest, locked = wheel(folder, "beta", "2.0", tag=tag), f"beta-2.0-{tag}.whl"
    recipe = next(one for one in intent.recipes if one.variant.python == "3.11")
    entry = PythonFile(name="beta", version="2.0", file=locked, sha256=digest, size=1, group="toolkit")
    assert [*fetch.offers_of(recipe, [entry])] == [locked]


@pytest.fixture
def closed(monkeypatch: pytest.MonkeyPatch) -> str:
    """Return an address of this host at which no program listens; uv asks only once."""
    monkeypatch.setenv("UV_HTTP_RETRIES", "0")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{free.getsockname()[1]}/simple"


@pytest.mark.usefixtures("bare_network")
@pytest.mark.parametrize("way", ["index", "find-links", "retries", "proxy", "narrow"])
def test_an_index_that_nobody_answers_for(way: str, closed: str, base: Base, monkeypatch: pytest.MonkeyPatch) -> None:
    """The environment's fault (exit code 10): the pins may be right, and no new lock would mend it."""
    settings = {"find-links": closed, "no-index": "true"} if way == "find-links" else {"index-url": closed}
    if way == "proxy":
        monkeypatch.setenv("HTTPS_PROXY", closed)
        settings = {"index-url": "https://index.invalid/simple"}
    monkeypatch.setattr(pypi, "pip_settings", functools.cache(lambda: settings))
    monkeypatch.setenv("UV_HTTP_RETRIES", str(int(way == "retries")))
    monkeypatch.setenv("COLUMNS", "60" if way == "narrow" else "200")  # uv breaks lines at that width
    with pytest.raises(EnvironmentProblem, match="cannot be reached") as raised:
        pypi.resolve(["alpha"], "3.11", base)
    assert "127.0.0.1" in raised.value.why or "index.invalid" in raised.value.why
    assert "trainwright doctor" in raised.value.fix
    assert raised.value.exit_code == 10


def test_an_index_that_never_answers(base: Base, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UV_HTTP_RETRIES", "0")
    monkeypatch.setenv("UV_HTTP_TIMEOUT", "1")
    with socket.create_server(("127.0.0.1", 0)) as mute:
        address = f"http://127.0.0.1:{mute.getsockname()[1]}/simple"
        monkeypatch.setattr(pypi, "pip_settings", functools.cache(lambda: {"index-url": address}))
        with pytest.raises(EnvironmentProblem, match="cannot be reached"):
            pypi.resolve(["alpha"], "3.11", base)


@pytest.mark.usefixtures("bare_network")
@pytest.mark.parametrize("status", [404, 401, 503])
def test_an_index_that_answers_was_reached(site: Any, base: Base, monkeypatch: pytest.MonkeyPatch, status: int) -> None:
    def act(handler: Any, body: bytes) -> None:
        handler.send_error(status)

    monkeypatch.setenv("UV_HTTP_RETRIES", "0")
    site.offer("simple/alpha/", b"", *[act] * 9)
    monkeypatch.setattr(pypi, "pip_settings", functools.cache(lambda: {"index-url": f"{site.address}/simple"}))
    with pytest.raises(LockError, match="cannot be resolved"):
        pypi.resolve(["alpha"], "3.11", base)


@pytest.mark.usefixtures("bare_network")
def test_a_frameworks_own_index_that_cannot_be_reached(
    site: Any, closed: str, base: Base, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Asked second: what this host's own sources said is not lost, as the pin may be what is wrong."""
    monkeypatch.setattr(pypi, "pip_settings", functools.cache(lambda: {"index-url": f"{site.address}/simple"}))
    with pytest.raises(EnvironmentProblem, match="cannot be reached") as raised:
        pypi.resolve(["gamma==9"], "3.11", base, index=closed)
    assert "gamma" in raised.value.why.partition("with it:")[0]
    assert "pin" in raised.value.fix
    monkeypatch.setattr(pypi, "_resolve", refuse_index)
    with pytest.raises(EnvironmentProblem, match="cannot be reached"):
        pypi.resolve(["gamma==9"], "3.11", base, index=closed)  # not asked a second time


def refuse_index(*given: Any) -> None:
    assert not given[3], "the index that did not answer is asked again"
    raise LockError("no such version")


def test_no_python_is_downloaded(folder: Path, base: Base, monkeypatch: pytest.MonkeyPatch) -> None:
    """For an image whose Python this host does not have, uv would fetch one from wherever it likes."""
    said: list[str] = []

    def noted(words: list[object], **given: Any) -> str:
        said.extend(map(str, words))
        return run(said, **given)

    monkeypatch.setattr(pypi, "run", noted)
    assert pypi.resolve(["alpha"], "3.99", base)
    assert said[said.index("--python") + 1] == sys.executable


@pytest.mark.usefixtures("bare_network")
def test_a_mirror_over_tls_with_a_password(
    tls_site: Any, authority: Path, tmp_path: Path, base: Base, wheel: Wheel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An index whose pages link elsewhere: the resolution, and the file by another mirror, both with the CA."""

    def guarded(handler: Any, body: bytes) -> None:
        right = handler.headers.get("Authorization") == "Basic bWU6czNjcmV0"  # me:s3cret
        handler.send_response(200 if right else 401)
        handler.send_header("Content-Length", str(len(body) if right else 0))
        handler.send_header("Content-Type", "text/html")
        handler.send_header("WWW-Authenticate", "Basic realm=x")
        handler.end_headers()
        handler.wfile.write(body if right else b"")

    digest = wheel(tmp_path, "alpha", "1.0")
    name = "alpha-1.0-py3-none-any.whl"
    metadata = b"Metadata-Version: 2.1\nName: alpha\nVersion: 1.0\n"
    link = f'<a href="{tls_site.address}/files/{name}#sha256={digest}" data-core-metadata="true">{name}</a>'
    tls_site.offer("simple/alpha/", link.encode(), *[guarded] * 9)
    tls_site.offer(f"files/{name}.metadata", metadata, *[guarded] * 9)
    tls_site.offer(f"moved/{name}", (tmp_path / name).read_bytes(), *[guarded] * 9)
    monkeypatch.setenv("SSL_CERT_FILE", str(authority / "public.pem"))
    monkeypatch.setenv("UV_HTTP_RETRIES", "0")
    own = tls_site.address.replace("://", "://me:s3cret@")
    monkeypatch.setenv("TRAINWRIGHT_MIRRORS", f"python={own}/simple {tls_site.address}/files={own}/moved")
    with pytest.raises(EnvironmentProblem, match="cannot be reached") as raised:
        pypi.resolve(["alpha"], "3.11", base)
    assert "UnknownIssuer" in raised.value.why
    assert "s3cret" not in str(raised.value.as_dict())
    monkeypatch.setenv("TRAINWRIGHT_CA", str(authority / "ca.pem"))
    (offer,) = pypi.resolve(["alpha"], "3.11", base)
    wanted = store.Wanted(name=name, sha256=offer.sha256, size=0, urls=[offer.url])
    assert store.fetch([wanted], **pypi.trust()) == {}
    assert store.has(digest)


@pytest.mark.parametrize("flipped", [False, True])
def test_a_wheel_with_the_wrong_hash_is_refused_in_a_real_install(
    tmp_path: Path, wheel: Wheel, flipped: bool, intent: Intent
) -> None:
    """The very options of the rendered Dockerfile, on a real file, by the real uv."""
    digest = wheel(tmp_path, "alpha", "1.0")
    if flipped:
        digest = ("1" if digest[0] == "0" else "0") + digest[1:]
    (tmp_path / "requirements.txt").write_text(f"alpha==1.0 --hash=sha256:{digest}\n")
    command = f"{UV} pip install --offline --no-config --target {tmp_path}/site --python {sys.executable}"
    command += f" --no-deps --require-hashes --no-index --find-links {tmp_path} -r {tmp_path}/requirements.txt"
    ended = subprocess.run(command.split(), capture_output=True, text=True, env={**os.environ, "HOME": str(tmp_path)})
    assert (ended.returncode != 0) is flipped, ended.stderr
    assert (tmp_path / "site/alpha.py").exists() is not flipped
    assert ("Hash mismatch" in ended.stderr) is flipped


@pytest.mark.parametrize(
    ("url", "asked"),
    [
        ("https://own.invalid:8080/a.whl", "https://me:s3cret@own.invalid:8080/a.whl"),
        ("https://own.invalid/a.whl", "https://own.invalid/a.whl"),  # another port is another server
        ("https://public.invalid/a.whl", "https://public.invalid/a.whl"),
    ],
)
def test_a_file_is_asked_for_with_the_credentials_of_its_index(
    monkeypatch: pytest.MonkeyPatch, url: str, asked: str
) -> None:
    given = {
        "index-url": "https://public.invalid/simple",
        "extra-index-url": "https://me:s3cret@own.invalid:8080/simple",
    }
    monkeypatch.setattr(pypi, "pip_settings", functools.cache(lambda: given))
    assert pypi._with_credentials(url) == asked
