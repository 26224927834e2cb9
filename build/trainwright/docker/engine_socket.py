"""Ask the Docker engine one thing over its socket.

Because importing Docker's SDK takes a quarter of a second, it is too slow for "does it answer?" and "is this image
there?".
"""

import json
import os
import socket
from contextlib import closing, suppress
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from urllib.parse import urlsplit

from trainwright.core.errors import EnvironmentProblem

SOCKET = "/var/run/docker.sock"  # docker's default


def silent(error: Exception) -> EnvironmentProblem:
    """Return the error for an engine that does not answer, with the reason."""
    return EnvironmentProblem(
        "no Docker engine answers",
        where=os.environ.get("DOCKER_HOST", "the default socket"),
        why=(str(error) or type(error).__name__).splitlines()[0],
        fix="unset DOCKER_HOST" if "DOCKER_HOST" in os.environ else "make engine",
    )


class _Local(HTTPConnection):
    """HTTP to an engine that listens on a socket of this machine."""

    def __init__(self, path: str, seconds: float) -> None:
        super().__init__("localhost", timeout=seconds)
        self.path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self.path)


def _connection(seconds: float) -> HTTPConnection | None:
    """Connect to the engine; return None if only docker's SDK can: a context, TLS, ssh, a named pipe."""
    if not os.environ.get("DOCKER_HOST") and _context() not in ("", "default"):
        return None
    place = urlsplit(os.environ.get("DOCKER_HOST") or f"unix://{SOCKET}")
    if place.scheme == "unix":
        return _Local(place.netloc + place.path, seconds)
    if place.scheme == "tcp" and place.netloc and not os.environ.get("DOCKER_TLS_VERIFY"):
        return HTTPConnection(place.netloc, timeout=seconds)
    return None


def _context() -> str:
    """Return the context that docker's own client uses here, or "" for none.

    See https://docs.docker.com/engine/manage-resources/contexts/.
    """
    if named := os.environ.get("DOCKER_CONTEXT"):
        return named
    with suppress(OSError, ValueError, AttributeError):
        folder = Path(os.environ.get("DOCKER_CONFIG") or Path.home() / ".docker")
        return str(json.loads((folder / "config.json").read_bytes()).get("currentContext", ""))
    return ""


def get(path: str, seconds: float) -> tuple[int, bytes] | None:
    """Send a GET and return status and content, or None if only docker's SDK can ask.

    `seconds` is the longest silence. Raises EnvironmentProblem if no engine answers.
    """
    try:
        if not (connection := _connection(seconds)):
            return None
        with closing(connection):
            connection.request("GET", path)
            answer = connection.getresponse()
            return answer.status, answer.read()
    except (OSError, HTTPException, ValueError) as error:
        raise silent(error) from None
