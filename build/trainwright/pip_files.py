"""pip's settings and the CAs of this host as two files, for pip elsewhere: in a job's containers, in a build's steps.

They are given to a container or to one step of a build, and are in no layer, nor in what `docker inspect` shows.
"""

from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urlsplit

from trainwright import certificates, mirrors
from trainwright.errors import without_password
from trainwright.host_settings import pip_settings
from trainwright.registry_http import is_loopback

CONF, CA = "pip.conf", "ca.pem"
SETTINGS = ("index-url", "extra-index-url", "trusted-host", "proxy")  # which of pip's mean the same elsewhere
VARIABLES = {  # of pip, and of what a script fetches with
    CONF: ("PIP_CONFIG_FILE",),
    CA: ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"),
}


def contents(ca: str) -> dict[str, bytes]:
    """File name to content, of those that have one; the CAs will lie at the path `ca`.

    Raises ConfigError, EnvironmentProblem as certificates.bundle().
    """
    found, rows = dict[str, bytes](), list[str]()
    for name, words in _settings().items():
        rows.append(f"{name} =" + "".join(f"\n    {word}" for word in words))
    if bundle := certificates.bundle():
        found[CA] = Path(bundle).read_bytes()
        rows.append(f"cert = {ca}")
    if rows:
        found[CONF] = "\n".join(["[global]", *rows, ""]).encode()
    return found


def notes() -> list[str]:
    """Which addresses of this host's settings mean another place in a container than here. Raises ConfigError."""
    return [
        f"note: pip's {name} here is {without_password(word)}: in a container that is the container itself"
        for name, words in _settings().items()
        for word in words
        if is_loopback(urlsplit(word if "://" in word else f"//{word}").netloc.rpartition("@")[2])
    ]


def environment(paths: Mapping[str, str]) -> dict[str, str]:
    """What tells the programs of a container where the files lie, of name to path."""
    return {variable: path for name, path in paths.items() for variable in VARIABLES[name]}


def _settings() -> dict[str, list[str]]:
    """Those of pip's settings that are handed on, without folders of this host alone."""
    found, here = dict[str, list[str]](), pip_settings()
    for name in SETTINGS:
        words = here.get(name, "").split()
        if name == "index-url" and (mirror := mirrors.named(mirrors.PYTHON)):
            words = [mirror]
        words = [mirrors.redirect(word) for word in words]
        if words := [word for word in words if not word.startswith(("file:", "/"))]:
            found[name] = words
    return found
