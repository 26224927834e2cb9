"""Test pushes to a real registry: by digest, verified, tagged last, and never half-tagged."""

import hashlib
import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from faults import Flaky, shorten
from registries import image

from trainwright.core.errors import RegistryError
from trainwright.registry import client as registries

pytestmark = [pytest.mark.engine, pytest.mark.registry]


@pytest.fixture(autouse=True)
def impatient(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Work in a checkout with short waits, and with an empty store: a push sweeps all of it, however large it is."""
    shorten(tmp_path / "here")
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.setenv("TRAINWRIGHT_STORE", str(tmp_path / "store"))


@pytest.fixture
def layout(tmp_path: Path) -> Path:
    """Make a small image as an OCI layout with Docker media types, as the engine saves one."""
    return image(tmp_path / "layout")


def test_push_verify_tag(layout: Path, registry: str) -> None:
    repository = f"{registry}/trainwright/one"
    digest, manifest = registries.manifest_of(layout)
    assert registries.resolve(repository, "v1") == ""
    registries.push(layout, repository, digest)
    assert registries.resolve(repository, "v1") == ""  # pushed by digest: no tag points at it yet
    registries.verify(repository, digest, manifest)
    registries.tag(repository, digest, "v1")
    assert registries.resolve(repository, "v1") == digest
    assert registries.manifest(repository, digest)["mediaType"].startswith("application/vnd.docker")


def another(layout: Path) -> str:
    """Rewrite the image's manifest with other white space, and return its new digest."""
    digest, _ = registries.manifest_of(layout)
    file = layout / "blobs" / digest.replace(":", "/")
    changed = json.dumps(json.loads(file.read_text()), indent=1).encode()
    other = hashlib.sha256(changed).hexdigest()
    (file.parent / other).write_bytes(changed)
    index = json.loads((layout / "index.json").read_text())
    index["manifests"][0] |= {"digest": f"sha256:{other}", "size": len(changed)}
    (layout / "index.json").write_text(json.dumps(index))
    return f"sha256:{other}"


def test_a_tag_never_moves(layout: Path, registry: str) -> None:
    repository = f"{registry}/trainwright/moves"
    digest, _ = registries.manifest_of(layout)
    registries.push(layout, repository, digest)
    registries.tag(repository, digest, "v1")
    registries.tag(repository, digest, "v1")  # the same image: nothing to do
    other = another(layout)
    registries.push(layout, repository, other)
    with pytest.raises(RegistryError, match="never moves"):
        registries.tag(repository, other, "v1")
    assert registries.resolve(repository, "v1") == digest


def test_an_alias_moves_and_the_tags_of_keys_and_releases_do_not(layout: Path, registry: str) -> None:
    repository, alias = f"{registry}/trainwright/alias", "tiny-1.0-cpu-py311-ec2"
    fixed = [f"{alias}-0123456789ab", f"{alias}-2026.11.0"]
    digest, _ = registries.manifest_of(layout)
    registries.push(layout, repository, digest)
    for name in fixed:
        registries.tag(repository, digest, name)
    registries.move(repository, digest, alias)
    other = another(layout)
    registries.push(layout, repository, other)
    registries.move(repository, other, alias)
    assert registries.resolve(repository, alias) == other
    for name in fixed:
        with pytest.raises(RegistryError, match="never moves"):
            registries.move(repository, other, name)
        assert registries.resolve(repository, name) == digest


@pytest.mark.parametrize(
    "request_", ["POST /blobs/uploads", "PUT /blobs/uploads", "PUT /manifests", "HEAD /blobs", "GET /v2/"]
)
def test_500_twice_and_then_it_works(request_: str, layout: Path, flaky: Flaky) -> None:
    address, faults = flaky
    faults.left[request_] = 2
    repository = f"{address}/trainwright/flaky-{abs(hash(request_))}"
    digest, manifest = registries.manifest_of(layout)
    registries.push(layout, repository, digest)
    registries.verify(repository, digest, manifest)
    registries.tag(repository, digest, "v1")
    assert registries.resolve(repository, "v1") == digest


def test_500_for_ever_ends_with_one_clear_error_and_no_tag(layout: Path, flaky: Flaky) -> None:
    address, faults = flaky
    faults.left["PUT /manifests"] = 10_000
    repository = f"{address}/trainwright/broken"
    digest, _ = registries.manifest_of(layout)
    with pytest.raises(RegistryError, match=r"push to .* failed") as error:
        registries.push(layout, repository, digest)
    assert len(error.value.why.splitlines()) < 5
    assert error.value.fix
    faults.left.clear()
    assert registries.resolve(repository, "v1") == ""


def test_a_lost_layer_is_noticed_before_the_tag(layout: Path, registry: str) -> None:
    repository = f"{registry}/trainwright/lost"
    digest, manifest = registries.manifest_of(layout)
    registries.push(layout, repository, digest)
    layer = manifest["layers"][0]["digest"]
    gone = subprocess.run(
        ["curl", "-sf", "-X", "DELETE", f"http://{registry}/v2/trainwright/lost/blobs/{layer}"], capture_output=True
    )
    assert gone.returncode == 0
    with pytest.raises(RegistryError, match="lost a layer"):
        registries.verify(repository, digest, manifest)


def test_nothing_listens(layout: Path) -> None:
    digest, _ = registries.manifest_of(layout)
    with pytest.raises(RegistryError) as error:
        registries.push(layout, "127.0.0.1:1/trainwright/none", digest)
    assert "refused" in error.value.why


PUSH = """
import sys
from pathlib import Path
from trainwright.registry import client as registry
registry.push(Path(sys.argv[1]), sys.argv[2], registry.manifest_of(Path(sys.argv[1]))[0])
"""


def test_ctrl_c_in_the_middle_of_a_push(layout: Path, flaky: Flaky) -> None:
    address, faults = flaky
    faults.hang = "PUT"
    repository = f"{address}/trainwright/interrupted"
    child = subprocess.Popen([sys.executable, "-c", PUSH, layout, repository], stderr=subprocess.PIPE)
    assert faults.hanging.wait(20)
    child.send_signal(signal.SIGINT)
    assert b"KeyboardInterrupt" in child.communicate(timeout=20)[1]
    faults.hang = ""
    faults.over.set()
    digest, manifest = registries.manifest_of(layout)
    assert registries.resolve(repository, "v1") == ""
    registries.push(layout, repository, digest)  # what was lost was only time
    registries.verify(repository, digest, manifest)


FULL = """
mount -t tmpfs -o size=256k none "$1" || exit 77
head -c 1M /dev/zero >"$1/filler" 2>/dev/null
TRAINWRIGHT_STORE=$1/store exec "$2" -c "$3" "$4" "$5"
"""


def test_a_full_disk_is_one_error_and_nothing_is_half_done(layout: Path, registry: str, tmp_path: Path) -> None:
    (tmp_path / "full").mkdir()
    repository = f"{registry}/trainwright/full"
    words = ["unshare", "--mount", "sh", "-c", FULL, "sh", str(tmp_path / "full"), sys.executable, PUSH]
    done = subprocess.run([*words, str(layout), repository], capture_output=True, text=True)
    if done.returncode == 77 or "unshare failed" in done.stderr:
        pytest.skip("not run: this user may not mount")
    assert done.stderr.splitlines()[-1] == "trainwright.core.errors.EnvironmentProblem: no space left for the store"
    assert registries.tags(repository) == []
    with pytest.raises(RegistryError, match="cannot be read back"):
        registries.manifest(repository, registries.manifest_of(layout)[0])
