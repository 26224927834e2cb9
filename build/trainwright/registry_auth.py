"""Who we are to a registry: Basic or Bearer, as it asks for it; credentials from who registered, or from docker."""

import re
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from threading import Lock

from trainwright.errors import RegistryError

Provider = Callable[[], tuple[str, str]]  # user and password
# address, user and password or None, form or None: what the token service answers, as JSON
Fetch = Callable[[str, Mapping[str, str], tuple[str, str] | None, Mapping[str, str] | None], dict[str, object]]

CHALLENGE = re.compile(r"(?:^|,)\s*(Basic|Bearer)\b", re.IGNORECASE)
PARAMETER = re.compile(r'(\w+)="([^"]*)"')
TOKEN = re.compile(r"[!-~]{1,65536}")  # what a header may hold; Amazon's have 2,000 characters
IDENTITY = "<token>"  # the user name by which docker's helpers mean: this is a refresh token

_providers: dict[str, Provider] = {}
_recognised: list[tuple[re.Pattern[str], Callable[[re.Match[str]], Provider]]] = []
_headers: dict[tuple[str, str, bool], str] = {}  # host, repository, whether to write
_locks: defaultdict[str, Lock] = defaultdict(Lock)


def authenticate(host: str, provider: Provider) -> None:
    """Whom to ask for user and password of a registry (host[:port]), again whenever it answers 401.

    Without it the docker client's configuration is asked: `docker login`, credential helpers. What the provider
    raises ends the request that needed it.
    """
    with _locks[host]:
        _providers[host] = provider
        for known in [known for known in _headers if known[0] == host]:
            del _headers[known]


def recognise(hosts: re.Pattern[str], provider: Callable[[re.Match[str]], Provider]) -> None:
    """Whom to ask for the credentials of a registry that nobody registered, and that docker knows none for."""
    _recognised.append((hosts, provider))


def header(host: str, name: str, write: bool) -> str:
    """The Authorization of a request; "" before the registry has asked for one."""
    return _headers.get((host, name, write), "")


def renew(host: str, name: str, write: bool, challenges: Sequence[str], refused: str, fetch: Fetch) -> bool:
    """After a 401: make header() say something new. False where nobody knows credentials that the registry wants.

    `refused` is what was said: where another thread was quicker, nothing is asked twice.
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
    """Scheme in lower case to its parameters: `Bearer realm="...",service="...",scope="..."`."""
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
        raise RegistryError("the registry's token service gave no token", where=realm, why="its answer has none in it")
    return token


def credentials(reference: str) -> tuple[str, str] | None:
    """User and password for the registry of an image's address, or for host[:port]; None where nobody has any.

    Raises RegistryError for a helper that fails, and what a provider raises.
    """
    host = reference.partition("/")[0]
    if provider := _providers.get(host):
        return provider()
    import docker.auth  # a quarter of a second: only where a registry asks for it
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
