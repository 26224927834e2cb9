"""Apply mirrors and proxies: the setting TRAINWRIGHT_MIRRORS and the proxy variables, which do not enter any key."""

import os
from collections.abc import Iterable
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import getproxies_environment

from pydantic import RootModel

from trainwright.core.errors import ConfigError, did_you_mean
from trainwright.core.toml import parse, read

SETTING = "TRAINWRIGHT_MIRRORS"
PYTHON = "python"  # the name of the default Python index
SCHEMES = ("https", "http", "file", "ssh", "git")


class Table(RootModel[dict[str, str]]):
    """The setting as a file, which maps keys to addresses."""


def table() -> dict[str, str]:
    """Map each key (an address prefix, or the name of an archive or index) to its address; {} for an empty setting.

    Raises ConfigError if the file is missing or not TOML, or a word is not `key=address`.
    """
    given = os.environ.get(SETTING, "").strip()
    if not given:
        return {}
    file = Path(given).expanduser()
    if "=" not in given or _is_file(file):
        return {key: _address(key, value, str(file)) for key, value in _read(file).items()}
    found = {}
    for word in given.split():
        key, equals, value = word.partition("=")
        if not (key and equals):
            raise ConfigError(
                f"a word in {SETTING} is not key=address",
                where=f"{SETTING}={given}",
                why=f"{word!r} is neither a file nor a key=address pair",
                fix=f"export {SETTING}='debian=https://mirror.example/debian https://github.com=https://git.example'",
            )
        found[key] = _address(key, value, SETTING)
    return found


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except OSError:  # too long for a file name: it is a list
        return False


def _read(file: Path) -> dict[str, str]:
    try:
        text = read(file, str(file))
    except ConfigError as error:
        why = error.why or error.what
        raise ConfigError(
            f"{SETTING} names a file that cannot be read",
            where=error.where,
            why=why,
            fix=f"correct it, or `unset {SETTING}`",
        ) from None
    return parse(text, Table, str(file)).root


def _address(key: str, value: str, where: str) -> str:
    """Validate and normalise an address: with a scheme, without a trailing slash.

    A path of this host becomes file://.
    """
    try:
        parts = urlsplit(value)
        usable = parts.scheme in SCHEMES and (parts.scheme == "file" or parts.hostname) and parts.port != 0
    except ValueError:  # an invalid port, for example from a password with a slash
        usable = False
    if value.startswith("/"):
        value, usable = Path(value).as_uri(), True
    if not usable:  # the value is not shown, because a malformed one may contain a password anywhere
        raise ConfigError(
            f"the mirror of {key} is not a valid address",
            where=where,
            why=f"valid: an absolute path, or an address that begins with one of {', '.join(SCHEMES)}",
            fix=f"correct {key} in {SETTING}; in a user or password write %40 for @, %2F for /",
        )
    return value.rstrip("/")


def named(name: str) -> str:
    """Return the mirror of an archive or index by its name; "" if it has none."""
    return table().get(name, "")


def redirect(url: str) -> str:
    """Redirect `url` to its mirror, by the longest prefix that ends at the end of a path component.

    The mirror gets its own user and password, never those of the original address.
    """
    parts = urlsplit(url)
    bare = parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl() if "@" in parts.netloc else url
    best, found = "", url
    for key, address in table().items():
        prefix = key.rstrip("/")
        rest = bare[len(prefix) :]
        if "://" not in key or len(prefix) <= len(best) or not bare.startswith(prefix):
            continue
        if rest in ("", ".git"):  # a repository may be written with or without .git
            best, found = prefix, address
        elif rest[0] in "/?#":
            best, found = prefix, address + rest
    return found


def check_names(archives: Iterable[str]) -> None:
    """Validate the names of archives and indexes in TRAINWRIGHT_MIRRORS.

    Raises ConfigError if one is unknown, because a misspelt name would have no effect.
    """
    valid = {PYTHON, *archives}
    for key in table():
        if "://" not in key and key not in valid:
            raise ConfigError(
                f"{SETTING} names {key!r}, which is not an archive or index",
                where=SETTING,
                why=did_you_mean(key, valid),
                fix=f"correct {key} in {SETTING}; an address prefix begins with a scheme such as https://",
            )


def proxies() -> dict[str, str]:
    """Return the proxy variables in lower case, because apt and git read some of them only in that form."""
    found = getproxies_environment()
    for scheme in ("http", "https"):
        found.setdefault(scheme, found.get("all", ""))
    return {f"{name}_proxy": found[name] for name in ("http", "https", "all", "no") if found.get(name)}
