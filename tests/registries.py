"""Serve a registry in this process, over real HTTP, which does what a test tells it."""

import base64
import hashlib
import io
import json
import re
import ssl
import tarfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Lock, Thread
from typing import cast
from urllib.parse import parse_qs, urlencode, urlsplit
from uuid import uuid4

DOCKER = "application/vnd.docker"
MANIFEST = f"{DOCKER}.distribution.manifest.v2+json"


def digest_of(content: bytes) -> str:
    return "sha256:" + hashlib.sha256(content).hexdigest()


@dataclass
class Registry:
    """A registry: its content, the faults that a test asked for, and the requests that it got."""

    address: str = ""
    blobs: dict[tuple[str, str], bytes] = field(default_factory=dict)  # repository and digest
    manifests: dict[tuple[str, str], tuple[bytes, str]] = field(default_factory=dict)
    tags: dict[tuple[str, str], str] = field(default_factory=dict)
    uploads: dict[str, bytearray] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)  # `METHOD path`
    ranges: list[str] = field(default_factory=list)  # of which blobs were asked for, "" for all of one
    sent: list[int] = field(default_factory=list)  # bytes of each PATCH and PUT of a blob that arrived
    # What it does instead of an answer: the first row whose pattern fits `METHOD path`, as often as the row says.
    faults: list[tuple[str, int, Callable[["Handler"], None]]] = field(default_factory=list)
    password: str = ""  # user "me"; "": anybody may do everything
    bearer: bool = False  # a token is to be fetched with it
    tokens: set[str] = field(default_factory=set)
    immutable: bool = False
    chunked: bool = True  # whether PATCH is known
    mounts: bool = True
    like_ecr: bool = False  # 201 for a piece, a Range that stays that of the first one, and no word on where it stands
    page: int = 1000  # tags of one answer
    lock: Lock = field(default_factory=Lock)

    def fail(self, pattern: str, status: int, times: int = 1, text: str = "", **headers: str) -> None:
        """Answer requests that match with an error status."""
        content = json.dumps({"errors": [{"code": text.partition(":")[0], "message": text}]}).encode() if text else b""
        named = {key.replace("_", "-"): value for key, value in headers.items()}
        self.act(pattern, lambda handler: handler.answer(status, content, named), times)

    def act(self, pattern: str, what: Callable[["Handler"], None], times: int = 1) -> None:
        self.faults.append((pattern, times, what))

    def count(self, pattern: str) -> int:
        return sum(bool(re.match(pattern, request)) for request in self.asked)


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    held: Registry
    body = b""

    def log_message(self, *_: object) -> None: ...

    def handle_one_request(self) -> None:
        with suppress(OSError):  # whoever asked is gone
            if (
                cast(io.BufferedReader, self.rfile).peek(1)[:1] == b"\x16"
            ):  # an engine tries TLS first; this answer has it try plain http
                self.wfile.write(b"HTTP/1.0 400 Bad Request\r\n\r\n")
                self.close_connection = True
                return
            super().handle_one_request()

    def answer(self, status: int, content: bytes = b"", headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        for key, value in ({"Content-Length": str(len(content))} | (headers or {})).items():
            self.send_header(key, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def refuse(self, status: int, code: str) -> None:
        self.answer(status, json.dumps({"errors": [{"code": code, "message": code.lower()}]}).encode())

    def hang_up(self) -> None:
        self.close_connection = True
        self.connection.close()

    def read_body(self) -> bytes:
        return self.rfile.read(int(self.headers.get("Content-Length") or 0))

    def serve(self) -> None:
        held, request = self.held, f"{self.command} {self.path}"
        with held.lock:
            held.asked.append(request)
            if re.match("GET .*/blobs/sha256", request):
                held.ranges.append(self.headers.get("Range", ""))
            fault = next((row for row in held.faults if re.match(row[0], request) and row[1]), None)
            if fault:
                held.faults[held.faults.index(fault)] = (fault[0], fault[1] - 1, fault[2])
        if fault:
            if fault[2] is not Handler.half:
                self.body = self.read_body()
            fault[2](self)
            return
        self.body = self.read_body()
        if self.path.startswith("/token"):
            self.give_token()
        elif self.admitted():
            self.route()

    do_GET = do_HEAD = do_PUT = do_POST = do_PATCH = do_DELETE = serve

    def half(self) -> None:
        """Take half of an upload's body, then close the connection."""
        place = re.search(r"uploads/(\w+)", self.path)
        assert place
        half = self.rfile.read(int(self.headers["Content-Length"]) // 2)
        with self.held.lock:
            self.held.uploads[place[1]] += half
        self.hang_up()

    # --- who asks ---

    def said(self) -> str:
        return self.headers.get("Authorization", "")

    def basic(self) -> bool:
        return self.said() == "Basic " + base64.b64encode(f"me:{self.held.password}".encode()).decode()

    def admitted(self) -> bool:
        held = self.held
        if not held.password or (self.said().removeprefix("Bearer ") in held.tokens if held.bearer else self.basic()):
            return True
        realm = f"http://{held.address}/token"
        scheme = f'Bearer realm="{realm}",service="tests",scope="repository:a:pull,push"'
        content = b'{"errors":[{"code":"UNAUTHORIZED","message":"authentication required"}]}'
        self.answer(401, content, {"WWW-Authenticate": scheme if held.bearer else 'Basic realm="tests"'})
        return False

    def give_token(self) -> None:
        form = parse_qs(self.body.decode())
        if not self.basic() and form.get("refresh_token") != [self.held.password]:
            return self.refuse(401, "UNAUTHORIZED")
        token = uuid4().hex
        self.held.tokens.add(token)
        return self.answer(200, json.dumps({"token": token}).encode())

    # --- what it holds ---

    def route(self) -> None:
        parts = urlsplit(self.path)
        query = {key: values[0] for key, values in parse_qs(parts.query).items()}
        found = re.fullmatch(r"/v2/(.+)/(blobs/uploads|blobs|manifests|tags)/(.*)", parts.path)
        if not found:
            return self.answer(200 if parts.path == "/v2/" else 404)
        name, kind, last = found.groups()
        with self.held.lock:
            getattr(self, f"{kind.rpartition('/')[2]}_{self.command.lower()}")(name, last, query)
        return None

    def blobs_get(self, name: str, digest: str, _query: dict[str, str]) -> None:
        content = self.held.blobs.get((name, digest))
        if content is None:
            return self.refuse(404, "BLOB_UNKNOWN")
        start = int(self.headers.get("Range", "bytes=0-").removeprefix("bytes=").rstrip("-"))
        return self.answer(206 if start else 200, content[start:])

    def manifests_get(self, name: str, reference: str, _query: dict[str, str]) -> None:
        digest = self.held.tags.get((name, reference), reference)
        if (name, digest) not in self.held.manifests:
            return self.refuse(404, "MANIFEST_UNKNOWN")
        content, kind = self.held.manifests[name, digest]
        return self.answer(200, content, {"Content-Type": kind, "Docker-Content-Digest": digest})

    blobs_head, manifests_head = blobs_get, manifests_get

    def manifests_put(self, name: str, reference: str, _query: dict[str, str]) -> None:
        held, digest = self.held, digest_of(self.body)
        said = json.loads(self.body)
        for row in [*([said["config"]] if "config" in said else []), *said.get("layers", [])]:
            if (name, row["digest"]) not in held.blobs:
                return self.refuse(400, "MANIFEST_BLOB_UNKNOWN")
        if not reference.startswith("sha256:"):
            if held.immutable and held.tags.get((name, reference), digest) != digest:
                return self.refuse(400, "TAG_INVALID")
            held.tags[name, reference] = digest
        held.manifests[name, digest] = self.body, self.headers["Content-Type"]
        return self.answer(201, headers={"Docker-Content-Digest": digest})

    def manifests_delete(self, name: str, reference: str, _query: dict[str, str]) -> None:
        gone = self.held.manifests.pop((name, reference), None)
        self.held.tags = {
            key: digest for key, digest in self.held.tags.items() if key[0] != name or digest != reference
        }
        self.answer(202 if gone else 404)

    def tags_get(self, name: str, _: str, query: dict[str, str]) -> None:
        every = sorted(tag for where, tag in self.held.tags if where == name)
        if not every:
            return self.refuse(404, "NAME_UNKNOWN")
        later = [tag for tag in every if tag > query.get("last", "")]
        shown = later[: self.held.page]
        more = f'</v2/{name}/tags/list?{urlencode({"last": shown[-1]})}>; rel="next"'
        content = json.dumps({"name": name, "tags": shown}).encode()
        return self.answer(200, content, {"Link": more} if len(later) > len(shown) else {})

    # --- uploads ---

    def stands(self, status: int, name: str, upload: str) -> None:
        have = len(self.held.uploads[upload])
        location = f"http://{self.held.address}/v2/{name}/blobs/uploads/{upload}?state={have}"
        if self.held.like_ecr and self.command == "PATCH":
            status, have = 201, min(have, 1000)
        self.answer(status, headers={"Location": location, "Range": f"0-{max(0, have - 1)}"})

    def uploads_post(self, name: str, _: str, query: dict[str, str]) -> None:
        held = self.held
        source = (query.get("from", ""), query.get("mount", ""))
        if held.mounts and source in held.blobs:
            held.blobs[name, source[1]] = held.blobs[source]
            return self.answer(201)
        upload = uuid4().hex
        held.uploads[upload] = bytearray()
        return self.stands(202, name, upload)

    def uploads_get(self, name: str, upload: str, _query: dict[str, str]) -> None:
        if upload not in self.held.uploads or self.held.like_ecr:
            return self.refuse(404, "BLOB_UPLOAD_UNKNOWN")
        return self.stands(204, name, upload)

    def uploads_patch(self, name: str, upload: str, _query: dict[str, str]) -> None:
        held = self.held
        if not held.chunked:
            return self.refuse(405, "UNSUPPORTED")
        if upload not in held.uploads:
            return self.refuse(404, "BLOB_UPLOAD_UNKNOWN")
        if not self.headers["Content-Range"].startswith(f"{len(held.uploads[upload])}-"):
            return self.refuse(416, "RANGE_INVALID")
        held.uploads[upload] += self.body
        held.sent.append(len(self.body))
        return self.stands(202, name, upload)

    def uploads_put(self, name: str, upload: str, query: dict[str, str]) -> None:
        held = self.held
        if upload not in held.uploads:
            return self.refuse(404, "BLOB_UPLOAD_UNKNOWN")
        content = bytes(held.uploads.pop(upload)) + self.body
        if self.body:
            held.sent.append(len(self.body))
        if digest_of(content) != query["digest"]:
            return self.refuse(400, "DIGEST_INVALID")
        held.blobs[name, query["digest"]] = content
        return self.answer(201, headers={"Docker-Content-Digest": query["digest"]})


class Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, *_: object) -> None: ...  # a client that hangs up is what some tests are about


@contextmanager
def serving(host: str = "127.0.0.1", certificate: Path | None = None) -> Iterator[Registry]:
    """Serve a registry; over TLS if `certificate` is given, a PEM file with its key."""
    held = Registry()
    with Server((host, 0), cast(type[Handler], type("Bound", (Handler,), {"held": held}))) as server:
        if certificate:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(certificate)
            server.socket = context.wrap_socket(server.socket, server_side=True)
        held.address = f"{host}:{server.server_port}"
        Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        yield held
        server.shutdown()


def image(folder: Path, *layers: bytes) -> Path:
    """Make a small image as an OCI layout with Docker media types, as the engine saves one.

    `layers` replace the default.
    """
    blobs = folder / "blobs/sha256"
    blobs.mkdir(parents=True)

    def blob(content: bytes, kind: str) -> dict[str, object]:
        digest = digest_of(content)
        (blobs / digest.removeprefix("sha256:")).write_bytes(content)
        return {"mediaType": f"{DOCKER}.{kind}", "digest": digest, "size": len(content)}

    if not layers:
        packed = io.BytesIO()
        with tarfile.open(fileobj=packed, mode="w:gz") as archive:
            archive.addfile(tarfile.TarInfo("hello"), io.BytesIO())
        layers = (packed.getvalue(),)
    config = b'{"architecture":"amd64","os":"linux","rootfs":{"type":"layers"}}'
    manifest = {
        "schemaVersion": 2,
        "mediaType": MANIFEST,
        "config": blob(config, "container.image.v1+json"),
        "layers": [blob(layer, "image.rootfs.diff.tar.gzip") for layer in layers],
    }
    index = {
        "schemaVersion": 2,
        "manifests": [blob(json.dumps(manifest).encode(), MANIFEST.removeprefix(f"{DOCKER}."))],
    }
    (folder / "index.json").write_text(json.dumps(index))
    (folder / "oci-layout").write_text('{"imageLayoutVersion":"1.0.0"}')
    return folder
