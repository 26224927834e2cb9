"""Test hostile registries, redirect targets and token services: the secrets that they get, and the cost of answers."""

import gzip
import json
import re
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import httpx
import pytest
from registries import MANIFEST, Handler, Registry, digest_of, serving
from unit.registry.conftest import big, held, layout, place, settings

from trainwright.core.errors import RegistryError, without_password
from trainwright.docker import oci_layout
from trainwright.registry import auth, client, http

__all__ = ["big", "held", "layout", "place", "settings"]
WHO = ("me", "a-secret-password")


@pytest.fixture
def thief() -> Iterator[Registry]:
    """Serve another host, which records all that it receives."""
    with serving() as found:
        found.heard = []  # type: ignore[attr-defined]
        yield found


@pytest.fixture
def told(thief: Registry) -> Callable[[], str]:
    """Return a function that lists secrets which the other host received in headers and bodies."""
    heard: list[str] = []

    def listens(handler: Handler) -> None:
        heard.append(f"{handler.said()} {handler.headers.get('Cookie', '')} {handler.body[:300]!r} {handler.path}")
        realm = f"http://{thief.address}/token"
        challenge = f'Bearer realm="{realm}",service="tests"' if len(heard) % 2 else 'Basic realm="tests"'
        handler.answer(401, headers={"WWW-Authenticate": challenge})

    thief.act("", listens, times=99)
    return lambda: "\n".join(heard)


def moved(thief: Registry, status: int = 307) -> Callable[[Handler], None]:
    return lambda handler: handler.answer(status, headers={"Location": f"http://{thief.address}{handler.path}"})


def upload_elsewhere(thief: Registry) -> Callable[[Handler], None]:
    place = f"http://{thief.address}/v2/a/blobs/uploads/x"
    return lambda handler: handler.answer(202, headers={"Location": place, "Range": "0-0"})


def page_elsewhere(thief: Registry) -> Callable[[Handler], None]:
    more = f'<http://{thief.address}/v2/a/tags/list?last=v1>; rel="next"'
    return lambda handler: handler.answer(200, b'{"tags": ["v1"]}', {"Link": more})


def another_scheme(thief: Registry) -> Callable[[Handler], None]:
    return lambda handler: handler.answer(307, headers={"Location": f"https://{handler.held.address}{handler.path}"})


LEADS: dict[str, tuple[str, Callable[[Registry], Callable[[Handler], None]], Callable[[str, Path], object]]] = {
    "a redirect of a tag": ("GET .*/manifests/", moved, lambda at, _: client.resolve(at, "v1")),
    "a permanent redirect": ("GET .*/manifests/", lambda t: moved(t, 301), lambda at, _: client.resolve(at, "v1")),
    "a redirect of a blob": ("HEAD .*/blobs/", moved, lambda at, folder: push(folder, at)),
    "a redirect of the list of tags": ("GET .*/tags/", moved, lambda at, _: client.tags(at)),
    "the next page of tags": ("GET .*/tags/", page_elsewhere, lambda at, _: client.tags(at)),
    "the place of an upload": ("POST .*/uploads/", upload_elsewhere, lambda at, folder: push(folder, at)),
    "another scheme on the same port": ("GET .*/manifests/", another_scheme, lambda at, _: client.resolve(at, "v1")),
}


def push(layout: Path, place: str) -> None:
    client.push(layout, place, client.manifest_of(layout)[0])


@pytest.mark.parametrize("bearer", [True, False], ids=["token", "password"])
@pytest.mark.parametrize("attack", LEADS)
def test_another_host_gets_neither_password_nor_token(
    attack: str, bearer: bool, held: Registry, place: str, layout: Path, thief: Registry, told: Any
) -> None:
    held.password, held.bearer = WHO[1], bearer
    auth.authenticate(held.address, lambda: WHO)
    assert client.resolve(place, "no") == ""  # signed in: what may be sent on is there
    pattern, lead, ask = LEADS[attack]
    held.act(pattern, lead(thief), times=99)
    with pytest.raises(RegistryError) as refused:
        ask(place, layout)
    secrets = [WHO[1], *held.tokens, auth.basic(*WHO).removeprefix("Basic ")]
    assert not [secret for secret in secrets if secret in told()]
    assert all(said.strip().startswith(("b'", 'b"')) for said in told().splitlines())
    assert WHO[1] not in str(refused.value.as_dict())


def test_a_token_service_that_redirects_gets_followed_nowhere(
    held: Registry, place: str, thief: Registry, told: Any
) -> None:
    held.password, held.bearer = WHO[1], True
    auth.authenticate(held.address, lambda: WHO)
    held.act("GET /token", moved(thief), times=9)
    with pytest.raises(RegistryError):
        client.resolve(place, "v1")
    assert told() == ""


def test_a_redirect_back_gets_it_again(held: Registry, place: str, layout: Path, thief: Registry) -> None:
    """The registry's own host is the registry's own host, however it is spelled."""
    held.password = WHO[1]
    auth.authenticate(held.address, lambda: WHO)
    push(layout, place)
    thief.act("GET", lambda handler: handler.answer(307, headers={"Location": f"http://{held.address}{handler.path}"}))
    held.act("GET .*/manifests/", moved(thief))
    digest = client.manifest_of(layout)[0]
    assert client.manifest(place, digest)["config"]


# --- what an answer costs --------------------------------------------------------------------------------------------


@cache
def bomb() -> bytes:
    """Return 100 MB of blanks, compressed to 100 kB; a client that tries again gets the same ones."""
    return gzip.compress(b" " * 100_000_000)


def packed(handler: Handler, status: int = 200) -> None:
    handler.answer(status, bomb(), {"Content-Encoding": "gzip"})


def endless(handler: Handler) -> None:
    handler.send_response(200)
    handler.end_headers()
    for _ in range(2000):
        handler.wfile.write(b" " * (1 << 20))
    handler.close_connection = True


def refusal(text: bytes, status: int = 400, **headers: str) -> Callable[[Handler], None]:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return lambda handler: handler.answer(status, text, named)


def tags_without_end(tag: str, link: str) -> Callable[[Handler], None]:
    """Answer with pages of tags that always name a next page; {} is replaced by a new number."""
    count = iter(range(10**9))

    def page(handler: Handler) -> None:
        number = next(count)
        content = json.dumps({"tags": [tag.format(number)]}).encode()
        handler.answer(200, content, {"Link": f'</v2/a/tags/list?last={link.format(number)}>; rel="next"'})

    return page


def latin(name: str, value: str) -> dict[str, str]:
    return {name: value.encode().decode("latin-1")}


ANSWERS: dict[str, Callable[[Handler], None]] = {
    "a gzip bomb": packed,
    "without end": endless,
    "a gzip bomb as a refusal": lambda handler: packed(handler, 400),
    "60 kB of ://": refusal(b"://" * 20_000),
    "60 kB of :// as an error": refusal(json.dumps({"errors": [{"code": "X", "message": "://" * 20_000}]}).encode()),
    "errors that are none": refusal(b'{"errors": {"a": 1}}'),
    "errors of numbers": refusal(b'{"errors": [1, null, [[]]]}'),
    "a deep refusal": refusal(b"[" * 60_000),
    "a deep detail": refusal(b'{"errors": [{"detail": ' + b"[" * 20_000 + b"]" * 20_000 + b"}]}"),
    "a pause of ²": lambda handler: handler.answer(503, headers=latin("Retry-After", "²")),
    "a pause of 5,000 digits": lambda handler: handler.answer(503, headers={"Retry-After": "9" * 5000}),
    "a pause after all time": lambda handler: handler.answer(
        503, headers={"Retry-After": "Mon, 01 Jan 2024 00:00:00 +99999999999999"}
    ),
    "deep JSON": refusal(b"[" * 200_000, 200),
    "a number of 100,000 digits": refusal(b"1" * 100_000, 200),
    "a list": refusal(b"[]", 200),
    "pairs": refusal(b'[["config", 1]]', 200),
    "no text": refusal(b"\xff\xfe\x00", 200),
    "nothing": refusal(b"", 200),
    "a redirect to nowhere": lambda handler: handler.answer(307, headers={"Location": "http://[::1"}),
    "a redirect to itself": lambda handler: handler.answer(307, headers={"Location": handler.path}),
    "a redirect to a file": lambda handler: handler.answer(307, headers={"Location": "file:///etc/passwd"}),
    "a challenge without a realm": refusal(b"", 401, WWW_Authenticate="Bearer"),
    "a challenge of nonsense": refusal(b"", 401, WWW_Authenticate='Bearer realm="http://[",service="\\"'),
}


@pytest.mark.parametrize("attack", ANSWERS)
@pytest.mark.parametrize(
    "ask", [lambda place: client.manifest(place, "sha256:" + "0" * 64), client.tags], ids=["manifest", "tags"]
)
def test_an_answer_that_is_none_is_one_error(
    attack: str, ask: Callable[[str], object], held: Registry, place: str
) -> None:
    """Never a traceback; what it costs is in the test after this."""
    auth.authenticate(held.address, lambda: WHO)
    held.act("", ANSWERS[attack], times=99)
    with pytest.raises(RegistryError) as refused:
        ask(place)
    assert len(str(refused.value.as_dict())) < 6000


@pytest.mark.parametrize("attack", ["a gzip bomb", "without end", "a gzip bomb as a refusal"])
def test_no_more_is_read_than_a_manifest_may_have(
    attack: str, held: Registry, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[int] = []
    whole = httpx.Response.iter_raw

    def counts(answer: httpx.Response, chunk_size: int | None = None) -> Iterator[bytes]:
        for piece in whole(answer, chunk_size):
            read.append(len(piece))
            yield piece

    def refuses(answer: httpx.Response, chunk_size: int | None = None) -> Iterator[bytes]:
        raise AssertionError("what is read unpacked may be without end")

    monkeypatch.setattr(httpx.Response, "iter_raw", counts)
    monkeypatch.setattr(httpx.Response, "iter_bytes", refuses)
    held.act("", ANSWERS[attack], times=99)
    with pytest.raises(RegistryError):
        client.resolve(place, "v1")
    assert sum(read) <= http.ANSWER_BYTES + (1 << 20)


@pytest.mark.parametrize(("tag", "link", "asked"), [("{}", "{}", 20), ("a", "{}", 2), ("{}", "a", 2)])
def test_pages_of_tags_without_end(
    held: Registry, place: str, monkeypatch: pytest.MonkeyPatch, tag: str, link: str, asked: int
) -> None:
    """New ones for ever, the same one again and again, and a page that leads to itself."""
    monkeypatch.setattr(client, "MOST_PAGES", 20)
    held.act("GET .*/tags/", tags_without_end(tag, link), times=10**9)
    with pytest.raises(RegistryError, match="cannot be listed") as error:
        client.tags(place)
    assert held.count("GET .*/tags/") == asked
    assert ("loop" in error.value.why) == (asked == 2)


@pytest.mark.parametrize("link", ["http://[", "\x7f", "http://h:99999999/"])
def test_a_page_that_is_no_address(link: str, held: Registry, place: str) -> None:
    held.act("GET .*/tags/", lambda handler: handler.answer(200, b"{}", {"Link": f'<{link}>; rel="next"'}), times=9)
    with pytest.raises(RegistryError):
        client.tags(place)


DIGEST = "sha256:" + "1" * 64
PART = {"digest": DIGEST, "size": 5, "mediaType": oci_layout.CONFIG}
MANIFESTS: dict[str, Any] = {
    "an empty configuration": {"config": {}},
    "an empty configuration, and layers": {"config": {}, "layers": []},
    "a configuration that is a word": {"config": "x", "layers": []},
    "a digest that is a number": {"config": {**PART, "digest": 1}, "layers": []},
    "a digest that leads elsewhere": {"config": {**PART, "digest": "../../../v2/b/manifests/x"}, "layers": []},
    "no size": {"config": {"digest": DIGEST}, "layers": []},
    "a size that is a word": {"config": {**PART, "size": "5"}, "layers": []},
    "a size below nothing": {"config": {**PART, "size": -1}, "layers": []},
    "a size beyond all": {"config": {**PART, "size": 10**15}, "layers": []},
    "no layers": {"config": PART},
    "layers that are a number": {"config": PART, "layers": 1},
    "a layer that is none": {"config": PART, "layers": [None]},
    "manifests that are a word": {"manifests": "x"},
}


@pytest.mark.parametrize("attack", MANIFESTS)
@pytest.mark.parametrize("ask", [client.manifest, client.config])
def test_a_manifest_that_is_none(attack: str, ask: Callable[[str, str], Any], held: Registry, place: str) -> None:
    content = json.dumps({"schemaVersion": 2, "mediaType": MANIFEST, **MANIFESTS[attack]}).encode()
    held.manifests["a", digest_of(content)] = content, MANIFEST
    held.blobs["a", DIGEST] = b"x" * 100
    if ask is client.manifest and attack == "a size beyond all":
        assert ask(place, digest_of(content))  # of a layer it would be true
        return
    with pytest.raises(RegistryError):
        ask(place, digest_of(content))


CONFIGS: dict[str, bytes] = {
    "deep": b"[" * 100_000,
    "a list": b"[]",
    "settings that are a list": b'{"config": [1]}',
    "labels that are a list": b'{"config": {"Labels": ["a"]}}',
    "a label that is a number": b'{"config": {"Labels": {"io.trainwright.id": 5}}}',
    "layers that are a word": b'{"rootfs": "x"}',
}


@pytest.mark.parametrize("attack", CONFIGS)
def test_a_configuration_that_is_none(attack: str, held: Registry, place: str) -> None:
    part = {"digest": digest_of(CONFIGS[attack]), "size": len(CONFIGS[attack]), "mediaType": oci_layout.CONFIG}
    content = json.dumps({"schemaVersion": 2, "mediaType": MANIFEST, "config": part, "layers": []}).encode()
    held.manifests["a", digest_of(content)] = content, MANIFEST
    held.blobs["a", str(part["digest"])] = CONFIGS[attack]
    with pytest.raises(RegistryError):
        client.config(place, digest_of(content))


NAMED: dict[str, list[str]] = {
    "a path": ["/tmp/x"],
    "a path upwards": ["sha256:../../../x"],
    "fewer than there are": [],
    "more than there are": [DIGEST, DIGEST],
}


@pytest.mark.parametrize("attack", NAMED)
def test_a_configuration_that_names_other_layers(attack: str, held: Registry, place: str, tmp_path: Path) -> None:
    """The names of layers become names of files when an SBOM is made of the image."""
    said = json.dumps({"rootfs": {"diff_ids": NAMED[attack]}}).encode()
    layer = {"digest": digest_of(b"layer"), "size": 5, "mediaType": oci_layout.LAYER}
    part = {"digest": digest_of(said), "size": len(said), "mediaType": oci_layout.CONFIG}
    content = json.dumps({"schemaVersion": 2, "mediaType": MANIFEST, "config": part, "layers": [layer]}).encode()
    held.manifests["a", digest_of(content)] = content, MANIFEST
    held.blobs["a", str(part["digest"])], held.blobs["a", str(layer["digest"])] = said, b"layer"
    with pytest.raises(RegistryError, match="is not an image"):
        client.pull(place, digest_of(content), tmp_path / "layout")
    assert not (tmp_path / "layout").exists()


def test_a_configuration_that_is_longer_than_it_said(
    held: Registry, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    part = {"digest": DIGEST, "size": 100, "mediaType": oci_layout.CONFIG}
    content = json.dumps({"schemaVersion": 2, "mediaType": MANIFEST, "config": part, "layers": []}).encode()
    held.manifests["a", digest_of(content)] = content, MANIFEST
    held.act("GET .*/blobs/", endless, times=99)
    with pytest.raises(RegistryError, match="holds a corrupt") as raised:
        client.config(place, digest_of(content))
    read = re.search(r", found (\d+) bytes of", raised.value.why)
    assert read
    assert int(read[1]) < 4 << 20  # of the 2 GB that were sent


TOKENS: dict[str, bytes] = {
    "a gzip bomb": b"",
    "a number": b"5",
    "a list": b"[1]",
    "deep": b"[" * 100_000,
    "a token of letters that no header has": '{"token": "\u2603"}'.encode(),
    "a token of two lines": b'{"token": "a\\r\\nX-Evil: 1"}',
    "a token that is a list": b'{"token": ["a"]}',
    "no text": b"\xff\xfe",
    "an empty token": b'{"token": ""}',
    "a token of a megabyte": b'{"token": "' + b"a" * (1 << 20) + b'"}',
}


@pytest.mark.parametrize("attack", TOKENS)
def test_a_token_that_is_none(attack: str, held: Registry, place: str) -> None:
    held.password, held.bearer = WHO[1], True
    auth.authenticate(held.address, lambda: WHO)
    held.act("GET /token", packed if attack == "a gzip bomb" else refusal(TOKENS[attack], 200), times=99)
    with pytest.raises(RegistryError) as refused:
        client.resolve(place, "v1")
    assert WHO[1] not in str(refused.value.as_dict())


PLACES: dict[str, dict[str, str]] = {
    "a range of 5,000 digits": {"Range": f"0-{'9' * 5000}"},
    "a range beyond the blob": {"Range": "0-999999999999"},
    "a least piece of ²": latin("OCI-Chunk-Min-Length", "²"),
    "a least piece of 5,000 digits": {"OCI-Chunk-Min-Length": "9" * 5000},
    "a place that is none": {"Location": "http://["},
}


@pytest.mark.parametrize("attack", PLACES)
def test_an_upload_that_stands_nowhere(attack: str, held: Registry, place: str, big: Path) -> None:
    said = {"Location": "/v2/a/blobs/uploads/x", "Range": "0-0"} | PLACES[attack]
    held.act("POST", lambda handler: handler.answer(202, headers=said), times=99)
    with pytest.raises(RegistryError):
        push(big, place)


def test_passwords_are_masked_in_one_pass() -> None:
    """Twice the text takes about twice the steps: counted, not timed, by the lengths that one run consumes."""
    assert without_password("a://u:p@h/x?sig=1 b") == "a://***@h/x?*** b"
    assert without_password("://" * 100_000) == "://" * 100_000
    assert without_password("a://u@h/?x,b://w@h/?y 'c://h?z'") == "a://***@h/?***,b://***@h/?*** 'c://h?***'"
