"""Build one CA bundle for every program: the system's CAs, pip's, and those of TRAINWRIGHT_CA."""

import os
import re
import ssl
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

from trainwright.core.errors import ConfigError, EnvironmentProblem
from trainwright.core.host_settings import pip_settings

SETTING = "TRAINWRIGHT_CA"
CERTIFICATE = re.compile(r"-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----", re.DOTALL)
_folders: list[TemporaryDirectory[str]] = []  # removed when the process ends


def bundle(always: bool = False) -> str:
    """Return the path of a PEM bundle, or "" if no CA is configured: every program then trusts its own default CAs.

    `always` is for programs on other machines, which do not have this host's system CAs.

    Raises ConfigError if TRAINWRIGHT_CA holds no valid certificates, EnvironmentProblem if another bundle holds none.
    """
    given, pip = os.environ.get(SETTING, "").strip(), pip_settings().get("cert", "")
    system = os.environ.get("SSL_CERT_FILE") or _system()
    if not given and not pip and not (always and system):
        return ""
    return _bundle(given, pip, system, os.environ.get("GIT_SSL_CAINFO", ""))


def context(path: str) -> ssl.SSLContext:
    """Return a TLS context for connections: it trusts the system's CAs, and those of a bundle if there is one."""
    found = ssl.create_default_context()
    if path:
        found.load_verify_locations(path)
    return found


@cache
def _bundle(given: str, *others: str) -> str:
    found = own(given) if given else []
    for path in filter(None, others):
        found += _of_host(path)
    folder = TemporaryDirectory(prefix="trainwright-ca-")  # mode 700
    _folders.append(folder)
    file = Path(folder.name, "bundle.pem")
    with os.fdopen(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as writer:
        writer.write("\n".join(dict.fromkeys(found)) + "\n")
    return str(file)


def own(given: str) -> list[str]:
    """Return the certificates that TRAINWRIGHT_CA names, each as PEM text. Raises ConfigError if it names none."""
    if "-----BEGIN" in given:
        understood, text = "PEM text", given if "\n" in given else given.replace("\\n", "\n")
    else:
        path = Path(given).expanduser()
        shown = given if len(given) < 200 else f"{given[:40]}..."
        try:
            understood, text = f"the {'directory' if path.is_dir() else 'file'} {shown}", _read(path)
        except OSError as error:
            raise _no_ca(f"the path {shown}", str(error.strerror)) from None
    if not (found := CERTIFICATE.findall(text)):
        raise _no_ca(understood, "it contains no certificate; convert a DER file with `openssl x509 -inform DER`")
    try:
        _load(found)
    except OSError as error:
        raise _no_ca(understood, str(error)) from None
    return [str(certificate) for certificate in found]


def _no_ca(understood: str, why: str) -> ConfigError:
    return ConfigError(
        f"{SETTING} is not a valid CA",
        where=f"{SETTING}, read as {understood}",
        why=why,
        fix=f"export {SETTING}=<a PEM file, a directory of PEM files, or PEM text>, or `unset {SETTING}`",
    )


def _of_host(path: str) -> list[str]:
    """Return the certificates of a bundle that this host's settings name. Raises EnvironmentProblem if it has none."""
    try:
        found: list[str] = CERTIFICATE.findall(_read(Path(path)))
        _load(found)
    except OSError as error:
        raise EnvironmentProblem(
            "the CA bundle cannot be used",
            where=path,
            why=str(error),
            fix="trainwright doctor   # shows which setting names it",
        ) from None
    return found


def _read(path: Path) -> str:
    """Read a file, or all files of a directory, as one text."""
    files = sorted(file for file in path.iterdir() if file.is_file()) if path.is_dir() else [path]
    return "\n".join(file.read_bytes().decode(errors="replace") for file in files)


def _load(certificates: list[str]) -> None:
    """Load the certificates. Raises OSError (ssl.SSLError is one) if one is invalid or there are none."""
    if not certificates:
        raise OSError("it contains no certificate")
    ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(cadata="\n".join(certificates))


def _system() -> str:
    paths = ssl.get_default_verify_paths()
    return paths.cafile or paths.capath or ""
