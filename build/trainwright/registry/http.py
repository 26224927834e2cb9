"""Send HTTP requests to registries: addresses, credentials, time limits, and the meaning of error answers."""

import json
import re
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from functools import cache
from ipaddress import ip_address
from typing import Any

import httpx

from trainwright.core import certificates
from trainwright.core.errors import ConfigError, RegistryError
from trainwright.registry import auth
from trainwright.registry.documents import parsed
from trainwright.registry.retry import AGAIN, Broken, Refused, end_if_stopped, transfer, tried, watch
from trainwright.registry.settings import FILE

Body = bytes | Callable[[], Iterator[bytes]]  # a callable makes the body anew for every attempt

MANIFESTS = (  # every kind that a registry may hold
    "application/vnd.docker.distribution.manifest.v2+json",
    "application/vnd.docker.distribution.manifest.list.v2+json",
    "application/vnd.oci.image.manifest.v1+json",
    "application/vnd.oci.image.index.v1+json",
)
TRANSIENT = {408, 425, 429, 500, 502, 503, 504}
FULL = re.compile(r"quota|no space left|insufficient.storage|limit.?exceeded", re.IGNORECASE)
EXPIRED = re.compile(r"token (has|is) expired", re.IGNORECASE)  # ECR says so with a 403
REDIRECTS = 5
CHUNK = 1 << 20  # bytes of a file or an answer that are in memory at a time
RENEWALS = 2  # of credentials, for one request
ANSWER_BYTES = 4 << 20  # of a manifest, a page of tags, a token: the distribution specification requires no more
SAID_BYTES, SAID = 1 << 16, 1000  # of a refusal's text: bytes that are read, characters that are shown

_heard: set[str] = set()  # hosts that have answered


def is_loopback(registry: str) -> bool:
    """Return whether `host[:port][/...]` is this machine, where plain http is safe and docker accepts it."""
    host = registry.split("/")[0].rpartition(":")[0] or registry.split("/")[0]
    try:
        return ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost"


def split(repository: str) -> tuple[str, str]:
    """Split a repository into host[:port] and the path below it. Raises ConfigError if either is missing."""
    host, _, name = repository.partition("/")
    if not host or not name or "://" in repository:
        raise ConfigError(f"{repository!r} is not a repository of a registry", fix="REGISTRY=host[:port][/prefix]")
    return host, name


def url_of(repository: str, path: str) -> httpx.URL:
    """Return the address of a part of a repository; only loopback uses plain http."""
    host, name = split(repository)
    try:
        return httpx.URL(f"{'http' if is_loopback(host) else 'https'}://{host}/v2/{name}/{path}")
    except httpx.InvalidURL as error:
        raise ConfigError(
            f"{repository!r} is not a repository of a registry", why=str(error), fix="REGISTRY=host[:port][/prefix]"
        ) from None


# --- requests --------------------------------------------------------------------------------------------------------


def ask(
    method: str,
    repository: str,
    place: str | httpx.URL,
    *,
    what: str,
    headers: Mapping[str, str] | None = None,
    body: Body = b"",
    accept: Collection[int] = (200,),
    again: bool = True,
    grace: float = 0,
) -> httpx.Response:
    """Send one request and read its whole answer. `place` is below the repository, or a whole address.

    `again`: retry what a retry may fix. `grace`: seconds for which the registry may be silent beyond the limit of
    [transfer]. Raises RegistryError: Refused for an answer that is not among `accept`, Broken if no attempt worked.
    """

    def attempt() -> httpx.Response:
        with opened(
            method, repository, place, what=what, headers=headers, body=body, accept=accept, grace=grace
        ) as answer:
            return whole(answer, what)

    return tried(attempt) if again else attempt()


@contextmanager
def opened(
    method: str,
    repository: str,
    place: str | httpx.URL,
    *,
    what: str,
    headers: Mapping[str, str] | None = None,
    body: Body = b"",
    accept: Collection[int] = (200,),
    grace: float = 0,
) -> Iterator[httpx.Response]:
    """Make one attempt; the body of the answer is not read yet. Raises Refused, Broken, or another RegistryError."""
    url = place if isinstance(place, httpx.URL) else url_of(repository, place)
    with _told(what, method, url, grace):
        answer = _authorized(method, repository, url, dict(headers or {}), body, grace)
        try:
            _heard.add(split(repository)[0])
            if answer.status_code not in accept:
                raise _refusal(answer, what, method, url, split(repository))
            yield answer
        finally:
            answer.close()


def whole(answer: httpx.Response, what: str) -> httpx.Response:
    """Read all of an answer's body, as sent. Raises Refused if it is compressed or too long, Broken if too slow."""
    content, where = bytearray(), str(answer.url.copy_with(query=None))
    ends = time.monotonic() + transfer().patience_seconds
    try:
        if answer.headers.get("Content-Encoding", "identity") != "identity":
            raise Refused(what, where=where, why="its answer is compressed, although this was not requested", fix=AGAIN)
        for piece in answer.iter_raw():
            content += piece
            if len(content) > ANSWER_BYTES:
                raise Refused(what, where=where, why=f"its answer has more than {ANSWER_BYTES} bytes", fix=AGAIN)
            if time.monotonic() > ends:
                raise Broken(what, where=where, why="its answer came too slowly", fix=AGAIN)
    finally:
        answer.close()
    return httpx.Response(answer.status_code, headers=answer.headers, content=bytes(content), request=answer.request)


def joined(url: httpx.URL, place: str) -> httpx.URL:
    """Resolve the address that an answer names; on the registry's own host, keep our scheme.

    A registry behind a proxy may know another scheme than ours. Raises RegistryError if the address is invalid.
    """
    try:
        found = url.join(place)
    except (httpx.InvalidURL, ValueError) as error:
        raise RegistryError(
            "the registry's answer names an invalid address", where=str(url), why=str(error), fix=AGAIN
        ) from None
    return found.copy_with(scheme=url.scheme) if found.netloc == url.netloc else found


def _authorized(
    method: str, repository: str, url: httpx.URL, headers: dict[str, str], body: Body, grace: float
) -> httpx.Response:
    """Send a request with the credentials that the registry asks for; renew an expired token."""
    (host, name), write = split(repository), method not in ("GET", "HEAD")
    for renewal in range(RENEWALS + 1):
        said = auth.header(host, name, write)
        answer = _followed(method, repository, url, headers, said, body, grace)
        if answer.status_code not in (httpx.codes.UNAUTHORIZED, httpx.codes.FORBIDDEN) or renewal == RENEWALS:
            break
        if not _is_own(answer.url, repository):  # another host would choose who gets the password
            break
        answer = whole(answer, "the registry asks for credentials")
        if answer.status_code == httpx.codes.FORBIDDEN and method != "HEAD" and not EXPIRED.search(_said(answer)):
            break  # the answer to a HEAD has no text to give a reason
        challenges = answer.headers.get_list("WWW-Authenticate")
        if not auth.renew(host, name, write, challenges, said, _fetch):
            break
    return answer


def _followed(
    method: str, repository: str, url: httpx.URL, headers: dict[str, str], authorization: str, body: Body, grace: float
) -> httpx.Response:
    """Send a request and follow redirects of reads; credentials go to the registry alone."""
    for _ in range(REDIRECTS):
        own = {"Authorization": authorization} if authorization and _is_own(url, repository) else {}
        answer = _send(method, url, headers | own, body, grace)
        if method not in ("GET", "HEAD") or not answer.has_redirect_location:
            return answer
        answer.close()
        url = url.join(answer.headers["Location"])
    raise httpx.TooManyRedirects(f"{REDIRECTS} redirects")


def _is_own(url: httpx.URL, repository: str) -> bool:
    """Return whether an address is the registry's own: the same scheme, host and port."""
    own = url_of(repository, "")
    return (url.scheme, url.netloc) == (own.scheme, own.netloc)


def _netloc(url: httpx.URL) -> str:
    return url.netloc.decode()


def _send(method: str, url: httpx.URL, headers: Mapping[str, str], body: Body, grace: float = 0) -> httpx.Response:
    end_if_stopped()
    plain = url.scheme != "https"
    if plain and not is_loopback(_netloc(url)):
        raise RegistryError(
            "plain http is only allowed on loopback",
            where=str(url),
            why="the registry refers us to an unencrypted address",
            fix="serve that address with TLS; if it should be https, configure the registry's own address",
        )
    limits, client = transfer(), _client("" if plain else certificates.bundle(), plain)
    request = client.build_request(
        method,
        url,
        headers={"Accept-Encoding": "identity", "User-Agent": "trainwright"} | dict(headers),
        content=body() if callable(body) else body or None,
        timeout=httpx.Timeout(
            limits.silence_seconds, connect=limits.connect_seconds, read=limits.silence_seconds + grace, pool=None
        ),
        extensions={"trace": watch},
    )
    return client.send(request, stream=True)


@cache
def _client(bundle: str, plain: bool) -> httpx.Client:
    """Return a client; a plain one is for loopback, which needs no proxy."""
    return httpx.Client(verify=False, trust_env=False) if plain else httpx.Client(verify=certificates.context(bundle))


def _fetch(
    realm: str, asked: Mapping[str, str], who: tuple[str, str] | None, form: Mapping[str, str] | None
) -> dict[str, object]:
    """Fetch a token from the service that a registry named."""
    from urllib.parse import urlencode

    url, headers, body = httpx.URL(realm), {}, b""
    url = url.copy_merge_params({key: value for key, value in asked.items() if value})
    if form:
        headers, body = {"Content-Type": "application/x-www-form-urlencoded"}, urlencode(form).encode()
    if who:
        headers["Authorization"] = auth.basic(*who)
    answer = _send("POST" if form else "GET", url, headers, body)
    try:
        if answer.status_code != httpx.codes.OK:
            where = (_netloc(url), "")
            raise _refusal(
                answer, "the registry's token service refused the request", "GET", url.copy_with(query=None), where
            )
        return parsed(whole(answer, "the registry's token service returned no token").content)
    except ValueError:
        raise Broken(
            "the registry's token service returned no token", where=realm, why="its answer is not JSON"
        ) from None
    finally:
        answer.close()


# --- what went wrong --------------------------------------------------------------------------------------------------


@contextmanager
def _told(what: str, method: str, url: httpx.URL, grace: float) -> Iterator[None]:
    """Raise the errors of a connection as RegistryError."""
    where = f"{method} {url.copy_with(query=None)}"
    try:
        yield
    except httpx.TransportError as error:
        why, host = str(error) or type(error).__name__, _netloc(url)
        if isinstance(error, httpx.ReadTimeout | httpx.WriteTimeout):
            why = f"the registry did not answer for {transfer().silence_seconds + grace:.3g} s"
        if "CERTIFICATE_VERIFY_FAILED" in why:
            fix = "export TRAINWRIGHT_CA=<the PEM file of the CA that vouches for it>"
            raise RegistryError(what, where=where, why=why, fix=fix) from None
        if "SSL" in why and host not in _heard:
            why += "; does it support TLS? Plain http is only allowed on loopback"
            raise RegistryError(what, where=where, why=why, fix="trainwright doctor") from None
        if isinstance(error, httpx.ConnectError | httpx.ConnectTimeout) and host not in _heard:
            fix = f"check that {host} is the registry and is running; then run the same command again"
            raise RegistryError(what, where=where, why=why, fix=fix) from None
        raise Broken(what, where=where, why=why, fix=AGAIN) from None
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        raise RegistryError(what, where=where, why=str(error), fix=AGAIN) from None


def _refusal(answer: httpx.Response, what: str, method: str, url: httpx.URL, at: tuple[str, str]) -> RegistryError:
    """Return the error for an answer: its text, and how to fix it."""
    status, (host, name) = answer.status_code, at
    said = _said(answer)
    where, why = f"{method} {url.copy_with(query=None)}", f"registry answered {status}" + (f": {said}" if said else "")
    if (answering := _netloc(answer.url)) != _netloc(url):
        why = f"it redirects to {answering}, to which no password is sent: {why}"
    if status != httpx.codes.TOO_MANY_REQUESTS and (FULL.search(said) or status == 507):
        fix = "free space in the registry, or raise its quota; then run the same command again"
        return _refused(status, said, what, where, why, fix)
    if status in TRANSIENT:
        pause = _pause(answer.headers.get("Retry-After", ""))
        if pause > (patience := transfer().patience_seconds):
            why += f"; it asks for a pause of {pause:.0f} s, and the limit is {patience:g} s"
            return _refused(status, said, what, where, why, f"in {pause / 60:.0f} minutes {AGAIN}")
        broken = Broken(what, where=where, why=why, fix=AGAIN)
        broken.pause = pause
        return broken
    fix = {
        401: f"docker login {host}",
        403: f"docker login {host} as a user with access to {name}, or grant that access",
        404: f"create the repository {name} on {host}, or use another REGISTRY",
        405: "the registry does not allow this: see its configuration",
        413: f"a proxy in front of the registry limits requests: raise its limit, or lower chunk_bytes in {FILE}",
    }.get(status, AGAIN)
    return _refused(status, said, what, where, why, fix)


def _refused(status: int, said: str, what: str, where: str, why: str, fix: str) -> Refused:
    refused = Refused(what, where=where, why=why, fix=fix)
    refused.status, refused.codes = status, said
    return refused


def _said(answer: httpx.Response) -> str:
    """Return `CODE: message` of each error that a registry names, or the first words of another answer."""
    content = b""
    with suppress(httpx.HTTPError):
        if answer.is_stream_consumed:
            content = answer.content
        elif answer.headers.get("Content-Encoding", "identity") == "identity":
            for piece in answer.iter_raw():
                content += piece
                if len(content) > SAID_BYTES:
                    break
    try:
        errors = parsed(content)["errors"]
        return "; ".join(
            ": ".join(filter(None, (str(row.get("code", "")), str(row.get("message", "")), _detail(row.get("detail")))))
            for row in errors
        )[:SAID]
    except (ValueError, KeyError, TypeError, AttributeError):
        return " ".join(re.sub(r"<[^>]*>", " ", content.decode(errors="replace")).split())[:200]


def _detail(detail: Any) -> str:
    return (detail if isinstance(detail, str) else json.dumps(detail))[:300] if detail else ""


def _pause(text: str) -> float:
    """Return the seconds of a Retry-After, which is a number or a date; 0 for none."""
    if re.fullmatch(r"\s*[0-9]+\s*", text):
        return float(text)
    try:
        return max(0.0, (parsedate_to_datetime(text) - datetime.now(UTC)).total_seconds())
    except (ValueError, TypeError, OverflowError):
        return 0.0
