"""The registry client against a registry in this process: what it sends, what it believes, and what it says."""

import base64
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Barrier, Event

import pytest
from registries import MANIFEST, Handler, Registry, digest_of, image, serving

from trainwright import registry, registry_auth, registry_http, registry_work
from trainwright.errors import ConfigError, EnvironmentProblem, RegistryError

PUBLISH = """\
[transfer]
attempts = {attempts}
wait_seconds = 0.001
wait_most_seconds = 0.01
patience_seconds = 2
chunk_bytes = 1000
workers = 4
connect_seconds = 2
silence_seconds = {silence}
stored_bytes_per_second = {rate}
remember_days = 30
"""
ROOT = Path(__file__).parents[2]
BIG = bytes(range(256)) * 20  # six pieces
HELD, OTHER = "sha256:" + "1" * 64, "sha256:" + "2" * 64


@pytest.fixture(autouse=True)
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """A folder whose publish.toml makes short work of everything, a store of its own, and no docker client."""

    ours = (ROOT / "dockerfiles/publish.toml").read_text()
    others = re.sub(r"^\[transfer\]$.*?(?=^\[)", "", ours, flags=re.MULTILINE | re.DOTALL)

    def write(attempts: int = 4, silence: float = 5, rate: int = 1_000_000) -> None:
        own = PUBLISH.format(attempts=attempts, silence=silence, rate=rate)
        (tmp_path / "dockerfiles/publish.toml").write_text(own + others)

    (tmp_path / "dockerfiles").mkdir()
    write()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TRAINWRIGHT_STORE", str(tmp_path / "store"))
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path / "docker"))
    return write


@pytest.fixture
def held() -> Iterator[Registry]:
    with serving() as found:
        yield found
    registry_auth._providers.clear()


@pytest.fixture
def place(held: Registry) -> str:
    return f"{held.address}/a"


@pytest.fixture
def layout(tmp_path: Path) -> Path:
    return image(tmp_path / "layout")


@pytest.fixture
def big(tmp_path: Path) -> Path:
    return image(tmp_path / "big", BIG)


def push(layout: Path, place: str) -> str:
    digest, manifest = registry.manifest_of(layout)
    registry.push(layout, place, digest)
    registry.verify(place, digest, manifest)
    return digest


def notes(tmp_path: Path) -> list[str]:
    """What is remembered of uploads; the lock of a process that was killed says nothing, and is swept one day."""
    return sorted(path.name for path in (tmp_path / "store/uploads").glob("*.json"))


# --- push, verify, tag -----------------------------------------------------------------------------------------------


def test_push_verify_tag(held: Registry, place: str, layout: Path, tmp_path: Path) -> None:
    digest = push(layout, place)
    assert held.tags == {}  # pushed by digest: no tag points at it yet
    registry.tag(place, digest, "v1")
    assert registry.resolve(place, "v1") == digest
    assert registry.config(place, digest)["os"] == "linux"
    assert notes(tmp_path) == []


def test_what_is_there_is_neither_sent_nor_read(held: Registry, place: str, layout: Path) -> None:
    push(layout, place)
    held.asked.clear()
    push(layout, place)
    assert held.count("(POST|PATCH|PUT) .*/blobs/") == 0
    assert held.count("GET .*/blobs/") == 0


def test_a_big_blob_goes_in_pieces(held: Registry, place: str, big: Path) -> None:
    push(big, place)
    assert held.sent.count(1000) == 5
    assert max(held.sent) == 1000


def test_a_registry_that_takes_no_pieces(held: Registry, place: str, big: Path) -> None:
    held.chunked = False
    push(big, place)
    assert len(BIG) in held.sent


def test_a_blob_of_another_repository_is_mounted(held: Registry, place: str, big: Path) -> None:
    digest = push(big, place)
    held.sent.clear()
    push(big, f"{held.address}/b")
    assert held.sent == []
    held.mounts = False
    push(big, f"{held.address}/c")
    assert sum(held.sent) > len(BIG)
    assert registry.manifest(f"{held.address}/c", digest)


def test_a_tag_never_moves(held: Registry, place: str, layout: Path, big: Path) -> None:
    digest, other = push(layout, place), push(big, place)
    registry.tag(place, digest, "v1")
    held.asked.clear()
    registry.tag(place, digest, "v1")
    with pytest.raises(RegistryError, match="a released tag never moves") as raised:
        registry.tag(place, other, "v1")
    assert raised.value.exit_code == 8
    assert digest in raised.value.why
    assert held.count("PUT") == 0


@pytest.mark.parametrize("immutable", [True, False])
def test_two_publishers_of_one_tag(held: Registry, place: str, layout: Path, big: Path, immutable: bool) -> None:
    """Both find the name free; the registry decides, and whoever lost is told who won."""
    held.immutable = immutable
    mine, theirs = push(layout, place), push(big, place)

    def overtaken(handler: Handler) -> None:
        held.tags["a", "v1"] = theirs
        handler.route()
        if not immutable:
            held.tags["a", "v1"] = theirs

    held.act("PUT .*/manifests/v1", overtaken)
    with pytest.raises(RegistryError, match="already names another image") as raised:
        registry.tag(place, mine, "v1")
    assert theirs in raised.value.why
    assert held.tags["a", "v1"] == theirs


def test_two_publishers_of_the_same_image(held: Registry, place: str, layout: Path) -> None:
    """A registry that refuses what is there already, as ECR does, even where it is the same."""
    digest = push(layout, place)

    def overtaken(handler: Handler) -> None:
        held.tags["a", "v1"] = digest
        handler.refuse(400, "ImageTagAlreadyExists")

    held.act("PUT .*/manifests/v1", overtaken)
    registry.tag(place, digest, "v1")
    held.fail("PUT .*/manifests/v2", 409, text="TAG_INVALID: immutable")
    with pytest.raises(RegistryError, match="v2 could not be tagged"):
        registry.tag(place, digest, "v2")


def test_a_tag_that_the_registry_loses(held: Registry, place: str, layout: Path) -> None:
    digest = push(layout, place)
    held.fail("PUT .*/manifests/v1", 201)
    with pytest.raises(RegistryError, match="could not be tagged") as raised:
        registry.tag(place, digest, "v1")
    assert "nothing is there" in raised.value.why


def test_aliases_move_and_names_of_keys_do_not(held: Registry, place: str, layout: Path, big: Path) -> None:
    first, second = push(layout, place), push(big, place)
    alias = "tiny-1.0-cpu-py311-ec2"
    for digest in (first, second):
        registry.move(place, digest, alias)
        assert registry.resolve(place, alias) == digest
    with pytest.raises(RegistryError, match="never moves"):
        registry.move(place, first, f"{alias}-2026.11.0")
    held.fail(f"PUT .*/manifests/{alias}", 201)
    with pytest.raises(RegistryError, match="was moved and names another image"):
        registry.move(place, first, alias)


# --- what the registry does wrong ------------------------------------------------------------------------------------


def test_a_lost_layer(held: Registry, place: str, layout: Path) -> None:
    digest, manifest = registry.manifest_of(layout)
    registry.push(layout, place, digest)
    for sent in (True, False):
        kept = dict(held.blobs)
        del held.blobs["a", manifest["layers"][0]["digest"]]
        with pytest.raises(RegistryError, match="has lost a layer"):
            registry.verify(place, digest, manifest)
        held.blobs = kept
        if sent:
            registry.verify(place, digest, manifest)


def test_a_corrupt_layer_is_found_also_by_the_next_push(held: Registry, place: str, big: Path, tmp_path: Path) -> None:
    digest, manifest = registry.manifest_of(big)
    registry.push(big, place, digest)
    layer = manifest["layers"][0]["digest"]
    held.blobs["a", layer] = BIG[:-1] + b"x"  # of the right size
    for _ in range(2):
        with pytest.raises(RegistryError, match="corrupt layer"):
            registry.verify(place, digest, manifest)
        registry.push(big, place, digest)  # it is there: nothing is sent
    assert len(notes(tmp_path)) == 1
    held.blobs["a", layer] = BIG
    registry.verify(place, digest, manifest)
    assert notes(tmp_path) == []


def test_a_truncated_layer(held: Registry, place: str, big: Path) -> None:
    digest = push(big, place)
    manifest = registry.manifest_of(big)[1]
    held.blobs["a", manifest["layers"][0]["digest"]] = BIG[:-1]
    with pytest.raises(RegistryError, match="truncated layer"):
        registry.verify(place, digest, manifest)


def test_another_manifest_than_the_digest_says(held: Registry, place: str, layout: Path) -> None:
    digest, manifest = registry.manifest_of(layout)
    registry.push(layout, place, digest)
    content, kind = held.manifests["a", digest]
    held.manifests["a", digest] = content.replace(b"schemaVersion", b"schemaversion"), kind
    with pytest.raises(RegistryError, match="holds another manifest") as raised:
        registry.verify(place, digest, manifest)
    assert digest in raised.value.why


def test_a_lie_about_what_a_tag_names(held: Registry, place: str, layout: Path) -> None:
    digest = push(layout, place)
    registry.tag(place, digest, "v1")
    content, kind = held.manifests["a", digest]

    def lies(handler: Handler) -> None:
        handler.answer(200, content, {"Content-Type": kind, "Docker-Content-Digest": OTHER})

    held.act("GET .*/manifests/v1", lies)
    assert registry.resolve(place, "v1") == digest  # one lie is a fault of the line
    held.act("GET .*/manifests/v1", lies, times=99)
    with pytest.raises(RegistryError, match="holds another manifest"):
        registry.resolve(place, "v1")


def test_a_blob_that_is_lost_before_the_manifest_comes_is_sent_again(held: Registry, place: str, layout: Path) -> None:
    layer = registry.manifest_of(layout)[1]["layers"][0]["digest"]

    def loses(handler: Handler) -> None:
        del held.blobs["a", layer]
        handler.route()

    held.act("PUT .*/manifests/sha256", loses)
    push(layout, place)
    assert ("a", layer) in held.blobs


@pytest.mark.parametrize(
    ("change", "part"),
    [
        (lambda m: m | {"mediaType": "application/vnd.oci.image.manifest.v1+json"}, "manifest"),
        (lambda m: m | {"config": m["config"] | {"mediaType": "application/vnd.oci.image.config.v1+json"}}, "config"),
        (lambda m: m | {"layers": [m["layers"][0] | {"mediaType": "application/vnd.oci.image.layer.v1.tar"}]}, "layer"),
    ],
)
def test_only_a_plain_image_is_verified(
    held: Registry, place: str, layout: Path, change: Callable[[dict[str, object]], dict[str, object]], part: str
) -> None:
    push(layout, place)
    content = json.dumps(change(registry.manifest_of(layout)[1])).encode()
    digest = registry.put_manifest(place, content, MANIFEST, digest_of(content))
    with pytest.raises(RegistryError, match="not a plain image of one platform") as raised:
        registry.verify(place, digest, json.loads(content))
    assert part in raised.value.why


def test_an_index_is_no_image(held: Registry, place: str, layout: Path) -> None:
    push(layout, place)
    kind = "application/vnd.oci.image.index.v1+json"
    content = json.dumps({"schemaVersion": 2, "mediaType": kind, "manifests": []}).encode()
    digest = registry.put_manifest(place, content, kind, "v1")
    with pytest.raises(RegistryError, match="not a plain image"):
        registry.verify(place, digest, json.loads(content))
    with pytest.raises(RegistryError, match="is no image"):
        registry.config(place, digest)


def test_an_image_that_is_not_whole_here(held: Registry, place: str, big: Path, layout: Path) -> None:
    digest, manifest = registry.manifest_of(big)
    layer = big / "blobs" / manifest["layers"][0]["digest"].replace(":", "/")
    for content in (BIG[:-1], BIG[:-1] + b"x"):
        layer.write_bytes(content)
        with pytest.raises(EnvironmentProblem, match="not whole") as raised:
            registry.push(big, place, digest)
        assert raised.value.exit_code == 10
    layer.unlink()
    with pytest.raises(EnvironmentProblem, match="not whole"):
        registry.push(big, place, digest)
    assert not held.manifests


# --- again -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("status", [500, 502, 503, 504, 429, 408])
@pytest.mark.parametrize("request_", ["HEAD", "POST", "PATCH", "PUT .*/uploads", "PUT .*/manifests", "GET"])
def test_twice_and_then_it_works(held: Registry, place: str, big: Path, request_: str, status: int) -> None:
    held.fail(request_, status, times=2)
    digest = push(big, place)
    registry.tag(place, digest, "v1")
    assert registry.resolve(place, "v1") == digest


@pytest.mark.parametrize("request_", ["HEAD", "POST", "PATCH", "PUT .*/uploads", "PUT .*/manifests", "GET"])
def test_a_connection_that_breaks_off(held: Registry, place: str, big: Path, request_: str) -> None:
    held.act(request_, Handler.hang_up, times=2)
    push(big, place)
    assert held.blobs["a", digest_of(BIG)] == BIG


def test_500_for_good(held: Registry, place: str) -> None:
    held.fail("GET", 500, times=99, text="UNKNOWN: the disk is on fire")
    with pytest.raises(RegistryError) as raised:
        registry.resolve(place, "v1")
    assert held.count("GET") == 4
    assert "500" in raised.value.why
    assert "the disk is on fire" in raised.value.why
    assert "same command again" in raised.value.fix


def test_retry_after_is_honoured(held: Registry, place: str) -> None:
    held.fail("GET", 429, Retry_After="1")
    began = time.monotonic()
    assert registry.resolve(place, "v1") == ""
    assert time.monotonic() - began >= 1
    held.fail("GET", 503, Retry_After="Fri, 31 Dec 2100 23:59:59 GMT")
    with pytest.raises(RegistryError, match="cannot be read") as raised:
        registry.resolve(place, "v1")
    assert "asks to be left alone" in raised.value.why


def test_a_registry_that_hangs(held: Registry, place: str, settings: Callable[..., None]) -> None:
    settings(attempts=2, silence=0.2)
    over = Event()
    held.act("GET", lambda _: (over.wait(9), None)[1], times=99)
    with pytest.raises(RegistryError) as raised:
        registry.resolve(place, "v1")
    over.set()
    assert "said nothing for 0.2 s" in raised.value.why


def test_a_registry_that_is_not_there_is_asked_once() -> None:
    began = time.monotonic()
    with pytest.raises(RegistryError) as raised:
        registry.resolve("127.0.0.1:1/a", "v1")
    assert "refused" in raised.value.why
    assert not isinstance(raised.value, registry_work.Broken)
    assert time.monotonic() - began < 1


def test_one_that_was_there_is_asked_again(place: str, held: Registry) -> None:
    registry_http._heard.add("127.0.0.1:1")
    with pytest.raises(registry_work.Broken):
        registry.resolve("127.0.0.1:1/a", "v1")
    registry_http._heard.clear()


@pytest.mark.parametrize(
    ("status", "text", "fix"),
    [
        (401, "UNAUTHORIZED: who are you", "docker login 127.0.0.1"),
        (403, "DENIED: requested access is denied", "the right to a"),
        (404, "NAME_UNKNOWN: repository name not known to registry", "create it"),
        (405, "UNSUPPORTED: no", "does not allow"),
        (413, "", "chunk_bytes"),
        (403, "DENIED: quota exceeded", "make room"),
        (507, "", "make room"),
        (500, "UNKNOWN: write: no space left on device", "make room"),
    ],
)
def test_a_refusal_says_what_to_do_and_is_not_tried_again(
    held: Registry, place: str, layout: Path, status: int, text: str, fix: str
) -> None:
    held.fail("POST", status, times=99, text=text)
    with pytest.raises(RegistryError, match=f"the push to {place} failed") as raised:
        registry.push(layout, place, registry.manifest_of(layout)[0])
    assert f"registry answered {status}" in raised.value.why
    assert text.partition(": ")[2] in raised.value.why
    assert fix in raised.value.fix
    assert held.count("POST") <= 2  # two blobs at the same time


def test_what_no_registry_says_is_shown_as_text(held: Registry, place: str) -> None:
    held.act("GET", lambda handler: handler.answer(418, b"<html><h1>I am a\n teapot</h1>" + b"x" * 9999))
    with pytest.raises(RegistryError) as raised:
        registry.resolve(place, "v1")
    assert "registry answered 418: I am a teapot" in raised.value.why
    assert len(raised.value.why) < 300


# --- an upload that goes on ------------------------------------------------------------------------------------------


def test_goes_on_in_the_middle_of_a_piece(held: Registry, place: str, big: Path) -> None:
    held.act("PATCH .*state=2000", Handler.half)
    push(big, place)
    assert sum(held.sent) + 500 == len(BIG) + len(
        json.dumps(registry.config(place, registry.manifest_of(big)[0]), separators=(",", ":"))
    )


def unheard(handler: Handler) -> None:
    """Do it, and hang up before a word of it is said."""
    handler.answer = lambda *_, **__: handler.hang_up()  # type: ignore[method-assign]
    handler.route()


@pytest.mark.parametrize("like_ecr", [False, True])
def test_an_answer_that_is_lost(held: Registry, place: str, big: Path, like_ecr: bool) -> None:
    """The registry has the piece, or all of the blob, and we do not know."""
    held.like_ecr = like_ecr
    held.act("PATCH .*state=(1|2)000", unheard)
    held.act("PATCH .*state=5000", unheard)
    held.act("PUT .*uploads", unheard, times=2)
    push(big, place)
    assert held.sent.count(1000) == 5
    assert 0 not in held.sent


def test_a_registry_that_says_nothing_of_use_about_uploads(held: Registry, place: str, big: Path) -> None:
    held.like_ecr = True
    held.act("PATCH .*state=1000", lambda handler: handler.hang_up())
    push(big, place)
    assert held.sent.count(1000) == 5
    assert held.count("POST") == 2  # an upload of each blob, and none began anew


def test_a_large_blob_may_take_a_registry_its_time(
    held: Registry, place: str, big: Path, settings: Callable[..., None]
) -> None:
    settings(attempts=1, silence=0.3, rate=5000)  # and so a second longer for 5 kB

    def thinks(handler: Handler) -> None:
        time.sleep(0.6)
        handler.route()

    held.act(f"PUT .*{digest_of(BIG)[7:]}", thinks)
    push(big, place)


def test_a_registry_that_forgets_an_upload(held: Registry, place: str, big: Path) -> None:
    def forgets(handler: Handler) -> None:
        held.uploads.clear()
        handler.route()

    held.act("PATCH .*state=2000", forgets)
    held.act("PUT .*uploads", forgets)
    push(big, place)
    assert held.blobs["a", digest_of(BIG)] == BIG


def test_bytes_that_change_on_the_way_are_sent_again(held: Registry, place: str, big: Path) -> None:
    def corrupts(handler: Handler) -> None:
        handler.body = handler.body[:-1] + b"?"
        handler.route()

    held.act("PATCH .*state=2000", corrupts)
    push(big, place)
    assert held.blobs["a", digest_of(BIG)] == BIG
    held.act("PATCH .*/b/", corrupts, times=999)
    held.mounts = False
    with pytest.raises(RegistryError) as raised:
        push(big, f"{held.address}/b")
    assert "DIGEST_INVALID" in raised.value.why


PUSH = """
import sys
from pathlib import Path
from trainwright import registry
registry.push(Path(sys.argv[1]), sys.argv[2], registry.manifest_of(Path(sys.argv[1]))[0])
"""


@pytest.mark.parametrize(
    ("number", "like_ecr"), [(signal.SIGKILL, False), (signal.SIGKILL, True), (signal.SIGINT, False)]
)
def test_killed_in_the_middle_of_a_blob(
    held: Registry, place: str, big: Path, tmp_path: Path, number: signal.Signals, like_ecr: bool
) -> None:
    """The same command again goes on where the registry stands, and what the first one sent is read back."""
    held.like_ecr = like_ecr
    reached, over = Event(), Event()

    def hangs(handler: Handler) -> None:
        reached.set()
        over.wait(20)

    held.act(f"PATCH .*state={1000 if like_ecr else 3000}", hangs)
    child = subprocess.Popen([sys.executable, "-c", PUSH, big, place], stderr=subprocess.PIPE)
    assert reached.wait(20)
    began = time.monotonic()
    child.send_signal(number)
    said = child.communicate(timeout=20)[1]
    assert time.monotonic() - began < 2
    assert child.returncode != 0
    assert said.count(b"Traceback") == (number == signal.SIGINT)
    over.set()
    held.sent.clear()
    held.asked.clear()
    push(big, place)
    assert held.count("PATCH") == (5 if like_ecr else 3)  # the rest of 5120 bytes
    assert held.count(f"GET .*/blobs/{digest_of(BIG)}") == 1
    assert notes(tmp_path) == []


def test_ctrl_c_with_many_blobs_at_once(held: Registry, place: str, tmp_path: Path) -> None:
    many = image(tmp_path / "many", *(os.urandom(1500) for _ in range(9)))
    reached, over = Barrier(5), Event()

    def hangs(handler: Handler) -> None:
        reached.wait(20)
        over.wait(20)

    held.act("PATCH", hangs, times=4)
    child = subprocess.Popen([sys.executable, "-c", PUSH, many, place], stderr=subprocess.PIPE)
    reached.wait(20)
    began = time.monotonic()
    child.send_signal(signal.SIGINT)
    said = child.communicate(timeout=20)[1].decode()
    assert time.monotonic() - began < 2
    assert said.rstrip().endswith("KeyboardInterrupt")
    over.set()
    push(many, place)
    assert notes(tmp_path) == []


def test_one_process_at_a_time_goes_on_with_an_upload(held: Registry, place: str, big: Path, tmp_path: Path) -> None:
    reached, over = Event(), Event()

    def hangs(handler: Handler) -> None:
        reached.set()
        over.wait(20)
        handler.hang_up()

    held.act("PATCH .*state=2000", hangs)
    child = subprocess.Popen([sys.executable, "-c", PUSH, big, place], stderr=subprocess.PIPE)
    assert reached.wait(20)
    push(big, place)  # from its beginning: the other one is at it
    over.set()
    assert child.wait(20) == 0
    assert held.blobs["a", digest_of(BIG)] == BIG


def test_what_was_never_ended_is_forgotten_some_day(held: Registry, place: str, big: Path, tmp_path: Path) -> None:
    held.fail("PATCH .*state=2000", 403)
    with pytest.raises(RegistryError):
        push(big, place)
    [note] = [path for path in (tmp_path / "store/uploads").iterdir() if digest_of(BIG)[7:] in path.name]
    os.utime(note, (time.time() - 31 * 86400,) * 2)
    push(image(tmp_path / "another"), place)
    assert not note.exists()


def test_a_store_that_cannot_be_written(place: str, big: Path, tmp_path: Path) -> None:
    (tmp_path / "store").write_text("a file")
    with pytest.raises(EnvironmentProblem, match="store cannot be written") as raised:
        registry.push(big, place, registry.manifest_of(big)[0])
    assert raised.value.exit_code == 10


# --- who asks --------------------------------------------------------------------------------------------------------


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
        registry.resolve(place, "v1")
    assert "registry answered 401" in raised.value.why
    assert raised.value.fix == f"docker login {held.address}"
    login(tmp_path, held, "secret")
    assert push(layout, place)
    login(tmp_path, held, "wrong")
    registry_auth._headers.clear()
    with pytest.raises(RegistryError) as raised:
        registry.resolve(place, "v1")
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
    assert registry.resolve(place, "v1") == ""
    registry_auth._headers.clear()
    helper.write_text("#!/bin/sh\necho the vault is shut; exit 1\n")
    with pytest.raises(RegistryError, match="cannot be read") as raised:
        registry.resolve(place, "v1")
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

    registry.authenticate(held.address, provider)
    held.act("PATCH .*state=2000", expires)
    digest = push(big, place)
    registry.tag(place, digest, "v1")
    assert set(given) == {"first", "second"}
    assert held.sent.count(1000) == 5


def test_credentials_go_to_nobody_else(held: Registry, place: str, layout: Path) -> None:
    """A blob that the registry keeps somewhere else: it is fetched there, without our password."""
    with serving() as elsewhere:
        held.password = "secret"
        registry.authenticate(held.address, lambda: ("me", "secret"))
        digest, manifest = registry.manifest_of(layout)
        registry.push(layout, place, digest)
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
        registry.verify(place, digest, manifest)
        assert seen == ["", ""]


@pytest.mark.parametrize("header", ["Location", "WWW-Authenticate"])
def test_plain_http_is_never_spoken_beyond_loopback(held: Registry, place: str, header: str) -> None:
    registry.authenticate(held.address, lambda: ("me", "secret"))
    beyond = "http://192.0.2.1/token"
    said = {"Location": beyond, "WWW-Authenticate": f'Bearer realm="{beyond}"'}[header]
    held.act("GET", lambda handler: handler.answer(307 if header == "Location" else 401, headers={header: said}))
    with pytest.raises(RegistryError, match="plain http is for loopback alone"):
        registry.resolve(place, "v1")


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
    assert registry_http.url_of(repository, "x").scheme == scheme


@pytest.mark.parametrize("repository", ["", "host", "host/", "http://host/a", "host:port/a"])
def test_what_is_no_repository(repository: str) -> None:
    with pytest.raises(ConfigError, match="is no repository") as raised:
        registry.resolve(repository, "v1")
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
            registry.resolve(f"{held.address}/a", "v1")
        assert "CERTIFICATE_VERIFY_FAILED" in raised.value.why
        assert "TRAINWRIGHT_CA" in raised.value.fix
        monkeypatch.setenv("TRAINWRIGHT_CA", str(Path("ca.pem").absolute()))
        assert push(layout, f"{held.address}/a")  # although it calls itself http://
    with serving("0.0.0.0") as held, pytest.raises(RegistryError) as raised:
        registry.resolve(f"{held.address}/a", "v1")
    assert "does it speak TLS" in raised.value.why


# --- the rest --------------------------------------------------------------------------------------------------------


def test_blobs_and_manifests_of_other_kinds(held: Registry, place: str, tmp_path: Path) -> None:
    digest = registry.put_blob(place, b"an attestation")
    assert digest == digest_of(b"an attestation")
    assert registry.blob(place, digest) == b"an attestation"
    assert notes(tmp_path) == []
    with pytest.raises(RegistryError, match="has lost"):
        registry.blob(place, OTHER)


def test_tags_and_delete(held: Registry, place: str, layout: Path) -> None:
    assert registry.tags(place) == []
    digest = push(layout, place)
    names = [f"v{number}" for number in range(9)]
    for name in names:
        registry.tag(place, digest, name)
    held.page = 4
    assert registry.tags(place) == names
    assert registry.resolve_all(place, [*names, "gone"]) == dict.fromkeys(names, digest) | {"gone": ""}
    registry.delete(place, digest)
    registry.delete(place, digest)
    assert registry.tags(place) == []
    held.fail("DELETE", 405, text="UNSUPPORTED: deletion is disabled")
    with pytest.raises(RegistryError, match="could not be deleted"):
        registry.delete(place, digest)


def test_reading_goes_on_where_the_line_broke(held: Registry, place: str, big: Path) -> None:
    digest, manifest = registry.manifest_of(big)
    registry.push(big, place, digest)

    def breaks(handler: Handler) -> None:
        handler.send_response(200)
        handler.send_header("Content-Length", str(len(BIG)))
        handler.end_headers()
        handler.wfile.write(BIG[:3000])
        handler.hang_up()

    held.act(f"GET .*{digest_of(BIG)}", breaks, times=2)
    registry.verify(place, digest, manifest)
    assert sorted(held.ranges) == ["", "", "bytes=3000-", "bytes=3000-"]  # the second answer was all of it again


def test_memory_does_not_grow_with_the_blob(held: Registry, place: str, tmp_path: Path) -> None:
    """Of 64 MB, sent and read back, a process holds a few."""
    settings = tmp_path / "dockerfiles/publish.toml"
    settings.write_text(re.sub(r"chunk_bytes = \d+", "chunk_bytes = 16_000_000", settings.read_text()))
    large = image(tmp_path / "large", bytes(64_000_000))
    program = """
import resource, sys
from pathlib import Path
from trainwright import registry
layout, place = Path(sys.argv[1]), sys.argv[2]
registry.resolve(place, "v1")
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
digest, manifest = registry.manifest_of(layout)
registry.push(layout, place, digest)
registry.verify(place, digest, manifest)
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""
    done = subprocess.run([sys.executable, "-c", program, large, place], capture_output=True, text=True, check=True)
    assert int(done.stdout) < 12_000  # kB


def test_size_is_config_and_layers() -> None:
    assert registry.size_of({"config": {"size": 1}, "layers": [{"size": 10}, {"size": 100}]}) == 111


def test_manifest_of_a_layout(layout: Path) -> None:
    digest, manifest = registry.manifest_of(layout)
    assert digest == digest_of((layout / "blobs" / digest.replace(":", "/")).read_bytes())
    assert manifest["mediaType"] == MANIFEST


def test_answers(held: Registry) -> None:
    assert registry.answers(held.address) is True
    assert registry.answers("127.0.0.1:1") is False


def test_one_failure_ends_the_others(held: Registry, place: str) -> None:
    """Also those that wait for their next attempt, as the registry has asked."""

    def refuses(handler: Handler) -> None:
        time.sleep(0.3)
        handler.refuse(403, "DENIED")

    held.act("GET .*/manifests/bad", refuses)
    held.fail("GET .*/manifests/v", 503, times=99, Retry_After="2")
    began = time.monotonic()
    with pytest.raises(RegistryError) as raised:
        registry.resolve_all(place, ["bad", *(f"v{number}" for number in range(50))])
    assert "DENIED" in raised.value.why
    assert time.monotonic() - began < 4  # four attempts take six
    assert held.count("GET") < 9  # and not 51


@pytest.mark.parametrize("kept", [False, True])
def test_what_has_ended_asks_nothing_more(held: Registry, place: str, kept: bool) -> None:
    """Neither on a new connection nor on one that is open."""
    asking, over = Event(), Event()

    def work(number: int) -> None:
        if number:
            asking.wait(9)
            raise KeyboardInterrupt
        if kept:
            registry.resolve(place, "v1")
        asking.set()
        ends = time.monotonic() + 5
        while not registry_work.stopped() and time.monotonic() < ends:
            time.sleep(0.01)
        if kept:
            time.sleep(0.1)
        try:
            registry.resolve(place, "v2")
        finally:
            over.set()

    with pytest.raises(KeyboardInterrupt):
        registry_work.side_by_side(work, [0, 1])
    assert over.is_set()
    assert held.count("GET .*/v2$") == 0
