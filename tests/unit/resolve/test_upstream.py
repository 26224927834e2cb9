"""Test fetching git trees: the exact commit or nothing, from every kind of server, and nothing incomplete."""

import os
import shutil
import signal
import socket
import subprocess
import sys
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from hashlib import sha1, sha256
from pathlib import Path
from typing import Any

import commits
import pytest
from tenacity import stop_after_attempt, wait_none

from trainwright.core import store
from trainwright.core.errors import BuildError, EnvironmentProblem, LockError, TrainwrightError
from trainwright.matrix.model import Source
from trainwright.resolve import upstream as resolve_upstream

pytestmark = pytest.mark.usefixtures("bare_network")
URL = "https://git.example/team/thing"
CONTENT = {
    "README": b"hello $Format:%H$\n",
    "crlf.txt": b"a\r\nb\r\n",
    "src/deep/a file.c": b"int x;\n",
    "src/binary": bytes(range(256)),
    "ignored": b"not exported by git archive\n",
    ".gitattributes": b"* text=auto\nREADME export-subst\nignored export-ignore\ncrlf.txt -text\n",
    "bin/run": b"#!/bin/sh\n",
}
WHEN = 1_755_600_000  # seconds: when its commits were made


@dataclass
class Upstream:
    """A repository with three releases: the tags v1 and v1.1 are annotated, v2 is not."""

    bare: Path
    first: str
    middle: str
    last: str


@pytest.fixture(scope="session")
def upstream(tmp_path_factory: pytest.TempPathFactory) -> Upstream:
    work = tmp_path_factory.mktemp("upstream")
    git(work, "init", "--quiet")
    for name, content in CONTENT.items():
        (work / name).parent.mkdir(parents=True, exist_ok=True)
        (work / name).write_bytes(content)
    (work / "bin/run").chmod(0o755)
    (work / "link").symlink_to("src/deep")
    (work / "broken link").symlink_to("nowhere")
    made = []
    for number in range(3):
        (work / "version").write_text(f"{number}\n")
        git(work, "add", "--all")
        git(work, "commit", "--quiet", "--message", f"change {number}")
        made.append(git(work, "rev-parse", "HEAD"))
    git(work, "tag", "--annotate", "--message", "one", "v1", made[0])
    git(work, "tag", "--annotate", "--message", "between", "v1.1", made[1])
    git(work, "tag", "v2", made[2])
    bare = work / "bare"
    git(work, "clone", "--quiet", "--bare", str(work), str(bare))
    git(bare, "update-server-info")
    return Upstream(bare, *made)


def git(folder: Path, *words: str) -> str:
    own = {"GIT_CONFIG_GLOBAL": "/dev/null", "GIT_AUTHOR_DATE": f"{WHEN} +0200", "GIT_COMMITTER_DATE": f"{WHEN} +0200"}
    return commits.git(folder, *words, **own)


@pytest.fixture(autouse=True)
def _once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Limit fetches to one attempt without waiting."""
    for module in (resolve_upstream, store):
        monkeypatch.setattr(module, "wait_exponential_jitter", lambda **_: wait_none())
        monkeypatch.setattr(module, "stop_after_attempt", lambda _: stop_after_attempt(1))


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Allow all attempts again, for a test of the retries."""
    monkeypatch.setattr(resolve_upstream, "stop_after_attempt", stop_after_attempt)


@pytest.fixture
def mirrored(monkeypatch: pytest.MonkeyPatch) -> Callable[[object], None]:
    return lambda address: monkeypatch.setenv("TRAINWRIGHT_MIRRORS", f"{URL}={address}")


def offered(site: Any, bare: Path, *faults: Any) -> str:
    """Offer the repository on a web server without git's protocol."""
    for path in bare.rglob("*"):
        if path.is_file():
            site.offer(f"thing/{path.relative_to(bare)}", path.read_bytes(), *faults)
    site.offer("thing/info/refs?service=git-upload-pack", (bare / "info/refs").read_bytes(), *faults)
    return f"{site.address}/thing"


def thing(commit: str, tag: str = "") -> Source:
    return Source(name="thing", version="1", url=URL, commit=commit, tag=tag, licence="MIT")


def fetch(commit: str, tag: str = "") -> None:
    resolve_upstream.fetch(thing(commit, tag), lambda _: None, lambda _: None)


def kept() -> list[str]:
    """List what the store holds, also incomplete files."""
    return sorted(str(path.relative_to(store.root())) for path in store.root().glob("*/*")) + sorted(
        path.name for path in store.root().glob(".partial*")
    )


def laid_out(target: Path) -> dict[str, tuple[str, bytes, int]]:
    """Map each path below a folder to its kind and mode, content and time."""
    found = {}
    for path in [target, *target.rglob("*")]:
        status = path.lstat()
        content = str(path.readlink()).encode() if path.is_symlink() else b"" if path.is_dir() else path.read_bytes()
        mode = "link" if path.is_symlink() else oct(status.st_mode)
        found[str(path.relative_to(target))] = (mode, content, int(status.st_mtime))
    return found


# --- what comes out ------------------------------------------------------------------------------------------------


def test_byte_for_byte_the_tree(upstream: Upstream, mirrored: Any, tmp_path: Path) -> None:
    """No line ending, keyword or attribute is acted upon."""
    mirrored(upstream.bare)
    fetch(upstream.first, "v1")
    assert kept() == [f"git/{upstream.first}"]
    target = tmp_path / "out/sources/thing"
    for mask in (0o022, 0o077):  # the second time over the first
        before = os.umask(mask)
        try:
            resolve_upstream.lay_out(thing(upstream.first), target)
        finally:
            os.umask(before)
        found = laid_out(target)
        assert {name: content for name, (_, content, _) in found.items() if name in CONTENT} == CONTENT
        assert not any(".git/" in f"{name}/" for name in found)
        assert found["link"][:2] == ("link", b"src/deep")
        assert found["broken link"][:2] == ("link", b"nowhere")
        assert {name for name, (mode, *_) in found.items() if mode == "0o100755"} == {"bin/run"}
        assert {mode for mode, *_ in found.values()} == {"link", "0o100755", "0o100644", "0o40755"}
        assert {when for *_, when in found.values()} == {WHEN}
    (target / "left over").touch()
    resolve_upstream.lay_out(thing(upstream.first), target)
    assert laid_out(target) == found


def test_what_is_there_is_not_fetched_again(upstream: Upstream, mirrored: Any) -> None:
    mirrored(upstream.bare)
    fetch(upstream.last)
    mirrored("http://127.0.0.1:1")
    fetch(upstream.last)
    assert resolve_upstream.has(thing(upstream.last))


# --- every kind of server ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("commit", ["first", "middle", "last"])
def test_only_what_is_wanted_where_the_server_gives_that(upstream: Upstream, mirrored: Any, commit: str) -> None:
    mirrored(upstream.bare.as_uri())
    fetch(getattr(upstream, commit))
    assert git(resolve_upstream.path_of(getattr(upstream, commit)), "rev-list", "--count", "locked") == "1"


@pytest.mark.parametrize(
    ("commit", "tag", "depth"), [("middle", "v1.1", "1"), ("middle", "", "2"), ("middle", "v9", "2")]
)
def test_old_server_that_gives_only_what_it_advertises(
    upstream: Upstream, mirrored: Any, tmp_path: Path, commit: str, tag: str, depth: str
) -> None:
    """The tag's tree where there is a tag; else everything."""
    (tmp_path / ".gitconfig").write_text("[protocol]\nversion = 0\n")
    mirrored(upstream.bare.as_uri())
    fetch(getattr(upstream, commit), tag)
    assert git(resolve_upstream.path_of(getattr(upstream, commit)), "rev-list", "--count", "locked") == depth


def test_web_server_that_knows_nothing_of_git(upstream: Upstream, mirrored: Any, site: Any) -> None:
    mirrored(offered(site, upstream.bare))
    fetch(upstream.middle)
    assert kept() == [f"git/{upstream.middle}"]


@pytest.mark.usefixtures("patient")
def test_an_outage_is_borne(upstream: Upstream, mirrored: Any, site: Any, faults: Any) -> None:
    mirrored(offered(site, upstream.bare))
    site.faults["/thing/info/refs?service=git-upload-pack"] = [faults.fails(503)]
    fetch(upstream.middle)
    assert kept() == [f"git/{upstream.middle}"]


def test_inside_a_hook_of_another_repository(
    upstream: Upstream, mirrored: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_OBJECT_DIRECTORY"):
        monkeypatch.setenv(name, str(tmp_path / "elsewhere"))
    mirrored(upstream.bare)
    fetch(upstream.first, "v1")
    resolve_upstream.lay_out(thing(upstream.first), tmp_path / "thing")
    assert not (tmp_path / "elsewhere").exists()


def test_tags(upstream: Upstream, mirrored: Any) -> None:
    mirrored(upstream.bare)
    assert resolve_upstream.tags(URL) == {
        "v1": upstream.first,
        "v1.1": upstream.middle,
        "v2": upstream.last,
    }  # an annotated one by its commit
    mirrored("http://127.0.0.1:1")
    with pytest.raises(EnvironmentProblem, match="cannot be queried"):
        resolve_upstream.tags(URL)


# --- what is refused -----------------------------------------------------------------------------------------------


def test_a_mirror_that_holds_other_bytes_names_both_commits(upstream: Upstream, mirrored: Any, tmp_path: Path) -> None:
    forged = tmp_path / "forged"
    forged.mkdir()
    git(forged, "init", "--quiet")
    git(forged, "commit", "--quiet", "--allow-empty", "--message", "another thing")
    git(forged, "tag", "v1")
    mirrored(forged)
    with pytest.raises(BuildError, match=r"the tag v1 .* names another commit") as raised:
        fetch(upstream.first, "v1")
    assert raised.value.exit_code == 5
    assert upstream.first in raised.value.why
    assert git(forged, "rev-parse", "HEAD") in raised.value.why
    assert raised.value.where == forged.as_uri()
    assert kept() == []


@pytest.mark.parametrize("tag", ["", "v9"])
def test_a_commit_that_is_not_there(mirrored: Any, upstream: Upstream, tag: str) -> None:
    mirrored(upstream.bare)
    with pytest.raises(LockError, match=f"no longer has the commit {'1' * 40}"):
        fetch("1" * 40, tag)
    assert kept() == []


@pytest.mark.parametrize("address", ["http://me:s3cret@127.0.0.1:1/x", "/nowhere", "https://s3cret@127.0.0.1:1/x"])
def test_nobody_answers(mirrored: Any, address: str) -> None:
    mirrored(address)
    with pytest.raises(EnvironmentProblem, match="cannot be fetched") as raised:
        fetch("1" * 40)
    assert raised.value.exit_code == 10
    assert raised.value.fix.startswith("trainwright doctor")
    assert "s3cret" not in str(raised.value.as_dict())
    assert raised.value.why
    assert kept() == []


@pytest.mark.usefixtures("patient")
def test_a_server_that_keeps_failing_is_asked_four_times(mirrored: Any, site: Any, faults: Any) -> None:
    site.offer("thing/info/refs?service=git-upload-pack", b"", *[faults.fails(500)] * 9)
    mirrored(f"{site.address}/thing")
    with pytest.raises(EnvironmentProblem, match="cannot be fetched"):
        fetch("1" * 40)
    assert len(site.asked) == 4


def test_submodules(mirrored: Any, tmp_path: Path) -> None:
    work = tmp_path / "work"
    work.mkdir()
    git(work, "init", "--quiet")
    git(work, "update-index", "--add", "--cacheinfo", f"160000,{'2' * 40},third/party")
    git(work, "commit", "--quiet", "--message", "a submodule")
    mirrored(work)
    with pytest.raises(BuildError, match="third/party is a git submodule"):
        fetch(git(work, "rev-parse", "HEAD"))
    assert kept() == []


def test_nothing_vouches_for_it() -> None:
    with pytest.raises(LockError, match="thing 1 is blocked"):
        fetch("")


@pytest.mark.parametrize("damage", ["changed", "missing", "all"])
def test_tampered_store_is_found_and_removed(upstream: Upstream, mirrored: Any, tmp_path: Path, damage: str) -> None:
    """A file swapped for another under its id: git itself hands that out without a word."""
    mirrored(upstream.bare)
    fetch(upstream.first)
    held = resolve_upstream.path_of(upstream.first)
    if damage == "all":
        shutil.rmtree(held / "objects")
    identity = sha1(b"blob 7\0" + CONTENT["src/deep/a file.c"]).hexdigest()
    loose = held / "objects" / identity[:2] / identity[2:]
    if damage == "changed":
        loose.chmod(0o644)
        loose.write_bytes(zlib.compress(b"blob 7\0int y;\n"))
        assert subprocess.check_output(["git", f"--git-dir={held}", "cat-file", "blob", identity]) == b"int y;\n"
    if damage == "missing":
        loose.unlink()
    with pytest.raises(BuildError, match="thing 1 has changed inside the store"):
        resolve_upstream.lay_out(thing(upstream.first), tmp_path / "thing")
    assert kept() == []
    fetch(upstream.first)  # as its remedy says
    resolve_upstream.lay_out(thing(upstream.first), tmp_path / "thing")


def test_ctrl_c_leaves_nothing_half(tmp_path: Path, mirrored: Any) -> None:
    """A real SIGINT, while git waits for a server that says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        mirrored(f"http://127.0.0.1:{server.getsockname()[1]}/thing")
        code = f"from trainwright.resolve import upstream; upstream.fetch_git({URL!r}, {'1' * 40!r})"
        child = subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.PIPE, text=True)
        server.settimeout(20)
        server.accept()
        child.send_signal(signal.SIGINT)
        _, said = child.communicate(timeout=60)
    assert "KeyboardInterrupt" in said
    assert kept() == []


def test_a_store_that_cannot_be_written(
    upstream: Upstream, mirrored: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("TRAINWRIGHT_STORE", str(tmp_path / "file/store"))
    mirrored(upstream.bare)
    with pytest.raises(EnvironmentProblem, match="the store cannot be written"):
        fetch(upstream.first)


# --- files ---------------------------------------------------------------------------------------------------------


def test_a_file_by_its_mirror(site: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    body = b"an installer"
    digest = sha256(body).hexdigest()
    site.offer("efa/installer-1.tar.gz", body)
    monkeypatch.setenv("TRAINWRIGHT_MIRRORS", f"https://efa.invalid={site.address}/efa")
    source = Source(name="efa", version="1", url="https://efa.invalid/installer-1.tar.gz", sha256=digest, licence="MIT")
    assert not resolve_upstream.has(source)
    resolve_upstream.fetch(source, lambda _: None, lambda _: None)
    resolve_upstream.lay_out(source, tmp_path / "out")
    assert (tmp_path / "out/installer-1.tar.gz").read_bytes() == body
    other = source.model_copy(update={"sha256": "0" * 64})
    with pytest.raises(BuildError, match=r"the checksum of installer-1\.tar\.gz does not match"):
        resolve_upstream.fetch(other, lambda _: None, lambda _: None)
    lost = source.model_copy(update={"sha256": "0" * 64, "url": "https://efa.invalid/gone"})
    with pytest.raises(LockError, match="can no longer be fetched"):
        resolve_upstream.fetch(lost, lambda _: None, lambda _: None)


# --- CA, credentials, proxies --------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", ["path", "directory", "text"])
@pytest.mark.parametrize("kind", ["git", "file"])
def test_corporate_ca(
    upstream: Upstream, mirrored: Any, tls_site: Any, authority: Path, tmp_path: Path, form: str, kind: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """A clone and a download over TLS fail without it, and come through with it in each of its forms."""
    monkeypatch.setenv("SSL_CERT_FILE", str(authority / "public.pem"))
    mirrored(offered(tls_site, upstream.bare))
    digest = sha256(CONTENT["README"]).hexdigest()
    url = tls_site.offer("README", CONTENT["README"])
    source = thing(upstream.last) if kind == "git" else thing("").model_copy(update={"sha256": digest, "url": url})

    def bring() -> None:
        resolve_upstream.fetch(source, lambda _: None, lambda _: None)

    with pytest.raises(EnvironmentProblem, match="cannot be fetched") as raised:
        bring()
    assert "certificate" in raised.value.why
    (tmp_path / "anchors").mkdir()
    (tmp_path / "anchors/one.crt").write_text((authority / "ca.pem").read_text())
    text = (authority / "ca.pem").read_text()
    forms = {"path": str(authority / "ca.pem"), "directory": str(tmp_path / "anchors"), "text": text}
    monkeypatch.setenv("TRAINWRIGHT_CA", forms[form])
    bring()
    assert resolve_upstream.has(source)


@pytest.mark.parametrize("by", ["address", "netrc"])
def test_credentials(upstream: Upstream, mirrored: Any, site: Any, tmp_path: Path, by: str) -> None:
    def guarded(handler: Any, body: bytes) -> None:
        right = handler.headers.get("Authorization") == "Basic bWU6czNjcmV0"  # me:s3cret
        handler.send_response(200 if right else 401)
        handler.send_header("Content-Length", str(len(body) if right else 0))
        if not right:
            handler.send_header("WWW-Authenticate", "Basic realm=x")
        handler.end_headers()
        handler.wfile.write(body if right else b"")

    address = offered(site, upstream.bare, *[guarded] * 50)
    mirrored(address)
    with pytest.raises(EnvironmentProblem, match="cannot be fetched") as raised:
        fetch(upstream.last)
    assert "terminal prompts disabled" in raised.value.why  # nobody is asked
    if by == "netrc":
        (tmp_path / ".netrc").write_text("machine 127.0.0.1 login me password s3cret\n")
    else:
        mirrored(address.replace("://", "://me:s3cret@"))
    fetch(upstream.last)
    held = [path.read_bytes() for path in store.root().rglob("*") if path.is_file()]
    assert not any(b"s3cret" in content for content in held)
    with pytest.raises(TrainwrightError) as refused:
        fetch("1" * 40)
    assert "s3cret" not in str(refused.value.as_dict())


@pytest.mark.parametrize("name", ["http_proxy", "HTTP_PROXY", "ALL_PROXY"])
def test_through_a_proxy(
    upstream: Upstream, mirrored: Any, site: Any, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    address = offered(site, upstream.bare)
    for path in list(site.files):
        site.files[f"http://git.invalid{path}"] = site.files.pop(path)
    mirrored(address.replace(site.address, "http://git.invalid"))
    monkeypatch.setenv(name, site.address)
    fetch(upstream.last)
    assert kept() == [f"git/{upstream.last}"]
