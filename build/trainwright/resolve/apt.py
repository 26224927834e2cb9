"""Resolve the distribution's packages with apt, verify signatures, and write the archive that apt installs from."""

import hashlib
import os
import re
import shlex
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime, parsedate_to_datetime
from functools import partial
from pathlib import Path
from urllib.parse import unquote, urlsplit

from trainwright.core.certificates import bundle
from trainwright.core.errors import EnvironmentProblem, LockError
from trainwright.core.mirrors import SETTING, named, proxies, redirect
from trainwright.core.process import run
from trainwright.core.store import Wanted
from trainwright.lock.packages import LICENCE, Stanzas, reduce
from trainwright.matrix.model import Base, Package
from trainwright.resolve import apt_sources


def mirrors(base: Base) -> dict[str, str]:
    """Return each archive's mirror: from TRAINWRIGHT_MIRRORS, else from this host's apt sources.

    An archive without a mirror uses its snapshot archive. Raises EnvironmentProblem if it has neither.
    """
    found = {name: address for name in base.archives if (address := named(name))}
    if len(found) < len(base.archives):
        found = {name: redirect(address) for name, address in apt_sources.mirrors(base).items()} | found
    if unknown := [name for name in base.archives if name not in {*found, *base.snapshots}]:
        raise EnvironmentProblem(
            f"no mirror of the archive {' and '.join(unknown)} is known",
            why=f"neither {SETTING} nor this host's apt sources name it, and bases.toml has no snapshot archive of it",
            fix=f"export {SETTING}='{' '.join(f'{name}=<address of a mirror>' for name in unknown)}'",
        )
    return found


def snapshot(base: Base, archive: str, time: datetime, filename: str = "") -> str:
    """Return the address of a file, or of the whole archive, as it was at a time or shortly before."""
    return base.snapshots[archive].format(time=time.strftime("%Y%m%dT%H%M%SZ"), filename=filename).rstrip("/")


Apt = Callable[[Iterable[Path], Iterable[Path]], AbstractContextManager[Callable[..., str]]]


def keyring(base: Base) -> Path:
    """Return the path of the distribution's keys, which every system with the keyring package has."""
    return Path(f"/usr/share/keyrings/{base.distribution}-archive-keyring.gpg")


def has_apt(base: Base) -> bool:
    """Return whether this host can resolve a base's packages by itself."""
    return bool(shutil.which("apt-get")) and keyring(base).exists()


@contextmanager
def on_this_host(_files: Iterable[Path], _folders: Iterable[Path]) -> Iterator[Callable[..., str]]:
    yield partial(run, env=proxies())


def resolve(base: Base, packages: list[str], status: str = "", where: Apt | None = None) -> tuple[str, Stanzas]:
    """Resolve packages by apt's solver; return the index's date (RFC 1123) and every package of a system with them.

    `status` is dpkg's status file of the image to start from; empty means a new system. `where` enters a
    system other than this host: it takes the files that apt needs (to copy) and the folders (to read in place), and
    yields a function that runs a command there, with the arguments of process.run().

    apt checks the index's signature with the distribution's keyring. Raises EnvironmentProblem if an index cannot be
    fetched, LockError with apt's explanation if the packages cannot be resolved.
    """
    found = mirrors(base)
    now = datetime.now(UTC)
    found |= {name: redirect(snapshot(base, name, now)) for name in base.archives if name not in found}
    sources = [
        f"deb [signed-by={keyring(base)}] {found[archive]} {suite} {' '.join(base.sections)}"
        for archive, suites in base.archives.items()
        for suite in suites
    ]
    with tempfile.TemporaryDirectory() as folder:
        here = Path(folder)
        for name in ("lists/partial", "cache/archives/partial", "etc"):
            (here / name).mkdir(parents=True)
        (here / "status").write_text(status)
        (here / "etc/sources.list").write_text("\n".join(sources) + "\n")
        access, files = _access(where is not None)
        options = {  # each option is set by name, because this host's apt.conf may have set any of them
            "Dir::Etc": here / "etc",
            "Dir::Etc::SourceList": here / "etc/sources.list",
            "Dir::Etc::SourceParts": "/dev/null",
            "Dir::Etc::Preferences": "/dev/null",
            "Dir::Etc::PreferencesParts": "/dev/null",
            "Dir::State": here,
            "Dir::State::Lists": here / "lists",
            "Dir::State::status": here / "status",
            "Dir::Cache": here / "cache",
            "Dir::Cache::Archives": here / "cache/archives",
            "Acquire::Languages": "none",
            "APT::Architecture": base.architecture,
            "APT::Architectures": base.architecture,
            "APT::Install-Recommends": "false",
            "APT::Sandbox::User": "root",
            "APT::Get::Simulate": "true",
            "APT::Update::Error-Mode": "any",  # otherwise an index that cannot be fetched is only a warning
            **access,
        }
        words = [word for key, value in options.items() for word in ("-o", f"{key}={value}")]
        folders = [Path(unquote(urlsplit(place).path)) for place in found.values() if place.startswith("file:")]
        with (where or on_this_host)([here, *files], folders) as apt:
            apt(
                ["apt-get", *words, "-qq", "update"],
                error=EnvironmentProblem,
                what="the package index cannot be fetched",
                fix="trainwright doctor: it shows the mirrors in use",
            )
            plan = apt(
                ["apt-get", *words, "-qq", "install", *([] if status else ["?essential"]), *packages],
                error=LockError,
                what="the distribution's packages cannot be resolved",
                fix="correct `packages` in dockerfiles/layers/*.toml or dockerfiles/bases.toml",
            )
            chosen = re.findall(r"^Inst (\S+) (?:\[\S+\] )?\((\S+)", plan, re.MULTILINE)
            names = [f"{name}={version}" for name, version in chosen]
            # The image that a graft starts from may have all of them already.
            shown = apt(["apt-cache", *words, "show", *names], error=LockError) if names else ""
            signed = apt(["sh", "-c", f"cat {shlex.quote(str(here))}/lists/*InRelease"], error=EnvironmentProblem)
    dates = [parsedate_to_datetime(date) for date in re.findall(r"^Date: (.+)$", signed, re.MULTILINE)]
    from debian.deb822 import Deb822

    stanzas = installed(status)
    for paragraph in Deb822.iter_paragraphs(shown, use_apt_pkg=False):
        stanza = dict(paragraph)
        security = [name for name in base.archives if name.endswith("-security")]
        updates = "pool/updates/" in stanza["Filename"]
        archive = security[0] if updates and security else next(iter(base.archives))
        stanzas[stanza["Package"]] = reduce(stanza, archive)
    return max(dates).strftime("%a, %d %b %Y %H:%M:%S GMT"), stanzas


def _access(elsewhere: bool) -> tuple[dict[str, str | Path], list[Path]]:
    """Return apt's options for CAs and credentials, and the files that they name.

    Credentials come from this user's .netrc if it exists, else from the host's; another system trusts this host's CAs.
    """
    netrc = Path(os.environ.get("NETRC", "~/.netrc")).expanduser()
    trusted = bundle(always=elsewhere)
    found: dict[str, str | Path] = {
        "Dir::Etc::netrc": netrc if netrc.exists() else "/etc/apt/auth.conf",
        "Dir::Etc::netrcparts": "/etc/apt/auth.conf.d",
    }
    found |= {"Acquire::https::CaInfo": trusted} if trusted else {}
    return found, [file for file in (netrc, Path(trusted)) if file.is_file()]


def installed(status: str) -> Stanzas:
    """Return the packages of a base image by name and version; the image's digest stands for their bytes."""
    from debian.deb822 import Deb822

    found = {}
    for paragraph in Deb822.iter_paragraphs(status, use_apt_pkg=False):
        if paragraph["Status"].endswith(" installed"):
            fields = {"Archive": "image", "Filename": "", "Size": "0", "SHA256": ""}
            fields |= {name: paragraph[name] for name in ("Package", "Version", "Architecture")}
            found[paragraph["Package"]] = fields
    return found


def wanted(base: Base, packages: list[Package], epoch: int) -> list[Wanted]:
    """List where the files of locked packages may come from: the mirror, then the snapshots of the day of the lock.

    A snapshot is some hours older than its time: a package that was new on that day is in the next day's snapshot, and
    a package that was replaced by then is in that day's own snapshot.
    """
    found, day = mirrors(base), datetime.fromtimestamp(epoch, UTC)
    files = []
    for package in packages:
        urls = [f"{found[package.archive]}/{package.filename}"] if package.archive in found else []
        if package.archive in base.snapshots:
            times = (day + timedelta(days=1), day)
            urls += [snapshot(base, package.archive, time, package.filename) for time in times]
        name = f"{package.name} {package.version}"
        files.append(Wanted(name=name, sha256=package.sha256, size=package.size, urls=urls))
    return files


def archive(folder: Path, base: Base, stanzas: Stanzas, epoch: int) -> None:
    """Write the index of an apt archive that holds exactly these packages; their files go beside it, by `Filename`."""
    told = ({key: value for key, value in stanza.items() if key != LICENCE} for stanza in stanzas.values())
    rows = ("".join(f"{key}: {value}\n" for key, value in stanza.items()) for stanza in told)
    index = "\n".join(rows).encode()
    (folder / "Packages").write_bytes(index)
    date = format_datetime(datetime.fromtimestamp(epoch, UTC), usegmt=True)
    checksum = f"{hashlib.sha256(index).hexdigest()} {len(index)} Packages"
    release = f"Suite: {base.suite}\nCodename: {base.suite}\nDate: {date}\nSHA256:\n {checksum}\n"
    (folder / "Release").write_text(release)
