"""Emulate Amazon ECR for tests: one TLS port per region, moto for the control plane, a real registry for the bytes.

Requests under /v2/ go to the distribution's docker-registry, after the checks that ECR makes: the token, the
repository, the immutable tags. All others go to moto, in this process, also those to S3. The programs under test do not
know that this is an emulation.

It differs from Amazon: lifecycle rules and replication are stored but not carried out, moto invents sizes, and no
policy is enforced, so that a call that succeeds here says nothing about IAM.
"""

import base64
import json
import re
import secrets
import ssl
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from fnmatch import fnmatchcase
from hashlib import sha256
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import parse_qs

from moto.core.models import DEFAULT_ACCOUNT_ID
from moto.ecr.models import Image, ecr_backends
from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
from moto.s3.models import s3_backends
from moto.sagemaker.models import sagemaker_backends
from moto.secretsmanager.models import secretsmanager_backends
from werkzeug.test import create_environ, run_wsgi_app

ACCOUNT: str = DEFAULT_ACCOUNT_ID
HOURS_12 = 12 * 3600  # how long a token of ECR is good for
CHUNK = 1 << 20
S3 = {"PUT": "Put", "GET": "Get", "HEAD": "Head", "DELETE": "Delete"}  # and whether of a bucket or an object


class Answer(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes


def says(status: int, body: Mapping[str, Any], **headers: str) -> Answer:
    return Answer(status, {"Content-Type": "application/x-amz-json-1.1", **headers}, json.dumps(body).encode())


def error(status: int, code: str, message: str, **headers: str) -> Answer:
    """Return an error in the format of the registry protocol."""
    return says(status, {"errors": [{"code": code, "message": message}]}, **headers)


class Emulator:
    """A stand-in for Amazon ECR in front of a docker-registry at `registry` (host:port), which can delete.

    `certificate` and `key` are those of `host`. Without a certificate it serves plain HTTP, which is enough for
    tests that use no registry.
    """

    def __init__(
        self, registry: str, host: str, certificate: Path | None, key: Path | None, regions: Iterable[str]
    ) -> None:
        self.registry, self.host = registry, host
        self.moto = DomainDispatcherApplication(create_backend_app)
        self.lock, self.accounts = threading.Lock(), 0
        self.calls: list[tuple[str, str]] = []  # service and operation, as they came
        self.requests: list[tuple[str, str]] = []  # of the registry protocol: method and path
        self.tokens: dict[str, float] = {}  # password to the time when it expires
        self.said: dict[str, list[Answer]] = {}  # by operation: answered once instead of asking moto
        self.token_seconds, self.expired_status = HOURS_12, 403
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER) if certificate else None
        if context and certificate:
            context.load_cert_chain(certificate, key)
        self.servers = {region: _serve(self, region, context) for region in regions}

    def close(self) -> None:
        for server in self.servers.values():
            server.shutdown()
            server.server_close()

    def reset(self) -> None:
        """Forget all calls. The registry is not emptied: its data stays, but below the name of an earlier account."""
        self.accounts += 1
        for backends in (ecr_backends, s3_backends, sagemaker_backends, secretsmanager_backends):
            backends[ACCOUNT].reset()
        for record in (self.calls, self.requests, self.tokens, self.said):
            record.clear()
        self.token_seconds, self.expired_status = HOURS_12, 403

    def address(self, region: str) -> str:
        """Return host:port of a region: its registry and the API of every service."""
        return f"{self.host}:{self.servers[region].server_port}"

    def say(self, operation: str, body: Mapping[str, Any], status: int = 200, times: int = 1) -> None:
        """Make an operation return this, without asking moto: an answer of Amazon's that moto never gives."""
        self.said.setdefault(operation, []).extend([says(status, body)] * times)

    def refuse(self, operation: str, code: str, message: str, status: int = 400, times: int = 1) -> None:
        self.say(operation, {"__type": code, "message": message}, status, times)

    def say_text(self, operation: str, text: str, status: int) -> None:
        self.said.setdefault(operation, []).append(Answer(status, {"Content-Type": "text/xml"}, text.encode()))

    def expire_tokens(self) -> None:
        """Make every token that was handed out expire."""
        self.tokens = dict.fromkeys(self.tokens, 0.0)

    # --- the control plane -------------------------------------------------------------------------------------------

    def control(self, request: "Handler") -> Answer:
        content, sent = b"".join(request.content()), dict(request.headers)
        scope = re.search(r"/([\w-]+)/([\w-]+)/aws4_request", sent.get("Authorization", ""))
        region, service = scope.groups() if scope else ("", "")
        action = parse_qs(content.decode(errors="replace")).get("Action", [request.path])[0]
        operation = sent.get("X-Amz-Target", "").rpartition(".")[2] or action
        if service == "s3":
            path = request.path.partition("?")[0].strip("/")
            operation = f"{S3[request.command]}{'Object' if '/' in path else 'Bucket'}"
        with self.lock:
            self.calls.append((service, operation))
            if self.said.get(operation):
                return self.said[operation].pop(0)
        answer = self.asked(request.path, request.command, sent, content)
        if service != "ecr" or answer.status != 200:
            return answer
        amazon = rf"\d{{12}}\.dkr\.ecr\.{region}\.amazonaws\.com".encode()
        body = json.loads(re.sub(amazon, self.address(region).encode(), answer.body))
        asked = json.loads(content)
        if operation == "GetAuthorizationToken":  # moto's is one for all, of 2015
            for data in body["authorizationData"]:
                data |= self._token()
        if operation == "BatchGetImage":  # moto says the newest of an image's tags, Amazon the one that was asked for
            missing = [row["imageId"].get("imageTag") for row in body["failures"]]
            found = [row for row in asked["imageIds"] if row.get("imageTag", "") not in missing]
            for image, wanted in zip(body["images"], found, strict=False):
                image["imageId"] |= wanted
        if operation == "BatchDeleteImage":
            held = {image.image_digest for image in self.images(region, asked["repositoryName"])}
            for digest in {row["imageDigest"] for row in body["imageIds"]} - held:
                self._ask("DELETE", region, f"/v2/{asked['repositoryName']}/manifests/{digest}", {}, None)
        return answer._replace(body=json.dumps(body).encode())

    def asked(self, path: str, method: str, sent: Mapping[str, str], content: bytes) -> Answer:
        """Return moto's answer; moto runs in this process."""
        environ = create_environ(path, f"https://{self.host}", method=method, headers=dict(sent), data=content)
        parts, status, headers = run_wsgi_app(self.moto, environ)
        kept = {name: value for name, value in headers.items() if name not in ("Content-Length", "Connection", "Date")}
        return Answer(int(status.split()[0]), kept, b"".join(parts))

    def images(self, region: str, name: str) -> list[Image]:
        return list(ecr_backends[ACCOUNT][region].repositories[name].images)

    def _token(self) -> dict[str, Any]:
        password, expires = secrets.token_urlsafe(16), time.time() + self.token_seconds
        with self.lock:
            self.tokens[password] = expires
        return {"authorizationToken": base64.b64encode(f"AWS:{password}".encode()).decode(), "expiresAt": expires}

    # --- the data plane ----------------------------------------------------------------------------------------------

    def data(self, request: "Handler", region: str) -> Answer:
        method, (path, _, query) = request.command, request.path.partition("?")
        with self.lock:
            self.requests.append((method, path))
        if refusal := self._unauthorized(region, request.headers.get("Authorization", "")):
            return refusal
        parts = re.fullmatch(r"/v2/(.+?)/(manifests|blobs|tags)/(.*)", path)
        if not parts:
            return says(200 if path == "/v2/" else 404, {})
        name, kind, rest = parts.groups()
        repository = ecr_backends[ACCOUNT][region].repositories.get(name)
        if repository is None:
            what = f"The repository with name '{name}' does not exist in the registry with id '{ACCOUNT}'"
            return error(404, "NAME_UNKNOWN", what)
        tag = rest if (method, kind) == ("PUT", "manifests") and not rest.startswith("sha256:") else ""
        if tag and any(tag in image.image_tags for image in repository.images) and is_fixed(repository, tag):
            what = f"The image tag '{tag}' already exists in the '{name}' repository and cannot be overwritten"
            return error(400, "TAG_INVALID", f"{what} because the tag is immutable.")
        if "mount=" in query:  # off in an account that has not asked for it: the upload begins as any other
            query = ""
        dropped = ("authorization", "connection", "host")
        headers = {name: value for name, value in request.headers.items() if name.lower() not in dropped}
        content = b"".join(request.content()) if kind == "manifests" else None
        answer = self._ask(method, region, f"{path}?{query}", headers, content or request.content())
        if (method, kind, answer.status) == ("PUT", "manifests", 201):
            self._note(repository, content or b"", request.headers["Content-Type"], tag)
        if (method, kind, answer.status) == ("DELETE", "manifests", 202):
            repository.images[:] = [image for image in repository.images if image.image_digest != rest]
        return answer

    def _unauthorized(self, region: str, given: str) -> Answer | None:
        user, _, password = base64.b64decode(given.removeprefix("Basic ")).decode(errors="replace").partition(":")
        if user != "AWS" or password not in self.tokens:
            challenge = f'Basic realm="https://{self.address(region)}/",service="ecr.amazonaws.com"'
            return error(401, "UNAUTHORIZED", "Not Authorized", **{"WWW-Authenticate": challenge})
        if self.tokens[password] < time.time():
            what = "Your authorization token has expired. Reauthenticate and try again."
            return error(self.expired_status, "DENIED", what)
        return None

    def _ask(self, method: str, region: str, path: str, headers: Mapping[str, str], content: Any) -> Answer:
        """Forward a request to the one registry of all accounts and regions, whose names are prefixed with both."""
        own = f"/v2/{self.accounts}/{region}"
        upstream = HTTPConnection(self.registry, timeout=60)
        try:
            chunked = "chunked" in headers.get("Transfer-Encoding", "")
            upstream.request(method, f"{own}{path[3:]}", content, dict(headers), encode_chunked=chunked)
            came = upstream.getresponse()
            kept = {
                name: value.replace(f"http://{self.registry}", "").replace(f"{own}/", "/v2/")
                for name, value in came.getheaders()
                if name not in ("Transfer-Encoding", "Connection", "Date")
            }
            return Answer(came.status, kept, b"" if method == "HEAD" else came.read())
        finally:
            upstream.close()

    def _note(self, repository: Any, manifest: bytes, kind: str, tag: str) -> None:
        """Record a pushed image in the control plane, without moto's put_image, which takes a filter for a regex."""
        digest = "sha256:" + sha256(manifest).hexdigest()
        with self.lock:
            image = next((image for image in repository.images if image.image_digest == digest), None)
            if image is None:
                image = Image(ACCOUNT, None, manifest.decode(), repository.name, kind, digest)  # type: ignore[arg-type]
                repository.images.append(image)
            if tag:
                for other in repository.images:
                    other.remove_tag(tag)
                image.update_tag(tag)


def is_fixed(repository: Any, tag: str) -> bool:
    """Return whether the repository's settings forbid moving a tag."""
    filters = [row["filter"] for row in repository.image_tag_mutability_exclusion_filters or []]
    excluded = any(fnmatchcase(tag, pattern) for pattern in filters)
    return bool({"IMMUTABLE": True, "IMMUTABLE_WITH_EXCLUSION": not excluded}.get(repository.image_tag_mutability))


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"  # a connection serves many requests, as Amazon's do
    disable_nagle_algorithm = True
    emulator: Emulator
    region: str
    left: int  # bytes of the body that were not read yet; -1: it is chunked

    def log_message(self, *_: object) -> None:
        pass

    def content(self) -> Iterator[bytes]:
        """Yield the request's body piece by piece; nothing if it was read before."""
        left, self.left = self.left, 0
        while left > 0 and (piece := self.rfile.read(min(left, CHUNK))):
            left -= len(piece)
            yield piece
        while left < 0 and (size := int(self.rfile.readline(), 16)):
            yield self.rfile.read(size)
            self.rfile.readline()
        if left < 0:
            self.rfile.readline()

    def answer(self) -> None:
        chunked = "chunked" in self.headers.get("Transfer-Encoding", "")
        self.left = -1 if chunked else int(self.headers.get("Content-Length") or 0)
        data = self.path.startswith("/v2/")
        try:
            status, headers, body = self.emulator.data(self, self.region) if data else self.emulator.control(self)
        except Exception as problem:
            status, headers, body = error(500, "EMULATOR", repr(problem))
        for _ in self.content():  # what was not read would be taken for the next request
            pass
        self.send_response(status)
        for name, value in ({"Content-Length": str(len(body))} | headers).items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":  # its body would be read as the answer to the next request
            self.wfile.write(body)

    do_GET = do_HEAD = do_PUT = do_POST = do_PATCH = do_DELETE = answer


def _serve(emulator: Emulator, region: str, context: ssl.SSLContext | None) -> ThreadingHTTPServer:
    server = ThreadingHTTPServer((emulator.host, 0), type("Own", (Handler,), {"emulator": emulator, "region": region}))
    server.handle_error = lambda *_: None  # type: ignore[method-assign]  # a client that hangs up is no news
    # Without a handshake while it accepts: one slow client would keep all others waiting.
    if context:
        server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server
