"""Write pip's settings and the CAs of this host as two files, for pip in a job's containers and in a build's steps.

They are passed to a container or to one step of a build, so that no layer and no `docker inspect` shows them.
"""

from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urlsplit

from trainwright.core import certificates, mirrors
from trainwright.core.errors import without_password
from trainwright.core.host_settings import pip_settings
from trainwright.registry.http import is_loopback

CONF, CA = "pip.conf", "ca.pem"
SETTINGS = ("index-url", "extra-index-url", "trusted-host", "proxy")  # pip's settings that are valid on other hosts
VARIABLES = {  # of pip and of other download programs
    CONF: ("PIP_CONFIG_FILE",),
    CA: ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"),
}


def contents(ca: str) -> dict[str, bytes]:
    """Map file names to contents, without empty files; the CAs will be at the path `ca`.

    Raises ConfigError and EnvironmentProblem as certificates.bundle() does.
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
    """Return a note for each loopback address in pip's settings: in a container it means the container.

    Raises ConfigError.
    """
    return [
        f"note: pip's {name} is {without_password(word)}, which means the container itself inside a container"
        for name, words in _settings().items()
        for word in words
        if is_loopback(urlsplit(word if "://" in word else f"//{word}").netloc.rpartition("@")[2])
    ]


def environment(paths: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that tell a container's programs the files' paths; `paths` maps file names to paths."""
    return {variable: path for name, path in paths.items() for variable in VARIABLES[name]}


def _settings() -> dict[str, list[str]]:
    """Return the settings of pip that are passed on, without folders of this host."""
    found, here = dict[str, list[str]](), pip_settings()
    for name in SETTINGS:
        words = here.get(name, "").split()
        if name == "index-url" and (mirror := mirrors.named(mirrors.PYTHON)):
            words = [mirror]
        words = [mirrors.redirect(word) for word in words]
        if words := [word for word in words if not word.startswith(("file:", "/"))]:
            found[name] = words
    return found
