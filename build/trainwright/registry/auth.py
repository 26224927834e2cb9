"""Authenticate to a registry: Basic or Bearer, with credentials of a registered provider or of docker."""

import re
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from threading import Lock

from trainwright.core.errors import RegistryError

Provider = Callable[[], tuple[str, str]]  # user and password
# address, query, user and password or None, form or None; returns the token service's JSON answer
Fetch = Callable[[str, Mapping[str, str], tuple[str, str] | None, Mapping[str, str] | None], dict[str, object]]

CHALLENGE = re.compile(r"(?:^|,)\s*(Basic|Bearer)\b", re.IGNORECASE)
PARAMETER = re.compile(r'(\w+)="([^"]*)"')
TOKEN = re.compile(r"[!-~]{1,65536}")  # characters allowed in a header; Amazon's tokens have 2,000
IDENTITY = "<token>"  # user name with which docker's helpers mark a refresh token

_providers: dict[str, Provider] = {}
_recognised: list[tuple[re.Pattern[str], Callable[[re.Match[str]], Provider]]] = []
_headers: dict[tuple[str, str, bool], str] = {}  # host, repository, whether to write
_locks: defaultdict[str, Lock] = defaultdict(Lock)


def authenticate(host: str, provider: Provider) -> None:
    """Register the provider of a registry's credentials (host[:port]), called again after each 401.

    Without one, the docker client's configuration is used: `docker login`, credential helpers. An exception of the
    provider ends the request that needed it.
    """
    with _locks[host]:
        _providers[host] = provider
        for known in [known for known in _headers if known[0] == host]:
            del _headers[known]


def recognise(hosts: re.Pattern[str], provider: Callable[[re.Match[str]], Provider]) -> None:
    """Register a credential provider for all matching hosts, used if authenticate() and docker have none for a host."""
    _recognised.append((hosts, provider))


def header(host: str, name: str, write: bool) -> str:
    """Return the Authorization header of a request; "" before the registry has asked for one."""
    return _headers.get((host, name, write), "")


def renew(host: str, name: str, write: bool, challenges: Sequence[str], refused: str, fetch: Fetch) -> bool:
    """Renew the Authorization header after a 401. Returns False without suitable credentials.

    `refused` is the header that was rejected: if another thread has already replaced it, nothing is requested.
    """
    with _locks[host]:
        if header(host, name, write) != refused:
            return True
        wanted = _parsed(challenges)
        who = credentials(host)
        if bearer := wanted.get("bearer"):
            token = _token(bearer, name, write, who, fetch)
            _headers[host, name, write] = f"Bearer {token}"
            return True
        if who is None or ("basic" not in wanted and not refused.startswith("Basic ")):
            return False
        _headers[host, name, write] = basic(*who)
        return True


def basic(user: str, password: str) -> str:
    from base64 import b64encode

    return "Basic " + b64encode(f"{user}:{password}".encode()).decode()


def _parsed(challenges: Sequence[str]) -> dict[str, dict[str, str]]:
    """Parse challenges to parameters by lower-case scheme: `Bearer realm="...",service="...",scope="..."`."""
    found = {}
    for text in challenges:
        schemes = list(CHALLENGE.finditer(text))
        for this, following in zip(schemes, [*schemes[1:], None], strict=True):
            rest = text[this.end() : following.start() if following else None]
            found[this[1].lower()] = dict(PARAMETER.findall(rest))
    return found


def _token(bearer: dict[str, str], name: str, write: bool, who: tuple[str, str] | None, fetch: Fetch) -> str:
    scope = bearer.get("scope") or f"repository:{name}:{'pull,push' if write else 'pull'}"
    asked = {"service": bearer.get("service", ""), "scope": scope}
    realm = bearer.get("realm", "")
    if who and who[0] == IDENTITY:
        form = {"grant_type": "refresh_token", "refresh_token": who[1], "client_id": "trainwright"} | asked
        said = fetch(realm, {}, None, form)
    else:
        said = fetch(realm, asked, who, None)
    token = said.get("token") or said.get("access_token")
    if not isinstance(token, str) or not TOKEN.fullmatch(token):
        raise RegistryError(
            "the registry's token service returned no token", where=realm, why="its answer contains none"
        )
    return token


def credentials(reference: str) -> tuple[str, str] | None:
    """Return user and password for the registry of an image's address, or for host[:port]; None without credentials.

    Raises RegistryError for a helper that fails, and any exception of a provider.
    """
    host = reference.partition("/")[0]
    if provider := _providers.get(host):
        return provider()
    import docker.auth  # imported late: it takes a quarter of a second
    from docker.errors import DockerException

    try:
        found = docker.auth.resolve_authconfig(docker.auth.load_config(), registry=host) or {}
    except DockerException as error:
        raise RegistryError(
            f"the credentials for {host} cannot be read",
            where="the docker client's configuration",
            why=str(error),
            fix=f"docker login {host}",
        ) from None
    known = {str(key).lower(): str(value) for key, value in found.items() if value}
    if token := known.get("identitytoken"):
        return IDENTITY, token
    if {"username", "password"} <= known.keys():
        return known["username"], known["password"]
    for hosts, make in _recognised:
        if named := hosts.fullmatch(host):
            _providers[host] = make(named)
            return _providers[host]()
    return None
