"""The distribution: apt resolves and verifies signatures, mmdebstrap makes a base out of the locked packages."""

import hashlib
import os
import re
import tempfile
from datetime import UTC, datetime
from email.utils import format_datetime, parsedate_to_datetime
from pathlib import Path

from debian.deb822 import Deb822

from trainwright.certificates import bundle
from trainwright.errors import BuildError, EnvironmentProblem, LockError
from trainwright.mirrors import SETTING, named, proxies, redirect
from trainwright.model import Base, Package
from trainwright.packages import LICENCE, Stanzas, reduce
from trainwright.process import run
from trainwright.store import Wanted, path_of, scratch


def mirrors(base: Base) -> dict[str, str]:
    """Archive name to address: its mirror by TRAINWRIGHT_MIRRORS, else what this host's own apt uses.

    Raises EnvironmentProblem where neither says.
    """
    found = {name: address for name in base.archives if (address := named(name))}
    missing = [name for name in base.archives if name not in found]
    if not missing:
        return found
    rows = run(
        ["apt-get", "indextargets", "--format", "$(ORIGIN) $(REPO_URI)", "Created-By: Packages"],
        error=EnvironmentProblem,
        what="apt cannot be asked for this host's sources",
    )
    # A third party's archive may end alike. apt knows whose one is as soon as it has its index, else it says $(ORIGIN).
    origins = (base.distribution.title(), "$(ORIGIN)")
    addresses = [row.split()[-1] for row in rows.splitlines() if row.startswith(origins)]
    for archive in missing:
        for address in addresses:
            if address.rstrip("/").endswith(f"/{archive}"):
                found.setdefault(archive, redirect(address.rstrip("/")))
    if unknown := [name for name in missing if name not in found]:
        raise EnvironmentProblem(
            f"no mirror of the archive {' and '.join(unknown)} is known",
            why=f"{SETTING} does not name it, and this host's apt sources hold no index of it",
            fix=f"export {SETTING}='{' '.join(f'{name}=<address of a mirror>' for name in unknown)}'",
        )
    return found


def resolve(base: Base, packages: list[str], status: str = "") -> tuple[str, Stanzas]:
    """Date of the index (RFC 1123) and every package of a system with these in it, by apt's own solver.

    `status` is dpkg's status file of the image to start from; empty means a new system.

    apt checks the index's signature against the distribution's keyring. Raises EnvironmentProblem where an index
    cannot be had, LockError with apt's explanation where the packages cannot be.
    """
    addresses = mirrors(base)
    keyring = f"/usr/share/keyrings/{base.distribution}-archive-keyring.gpg"
    sources = [
        f"deb [signed-by={keyring}] {addresses[archive]} {suite} {' '.join(base.sections)}"
        for archive, suites in base.archives.items()
        for suite in suites
    ]
    with tempfile.TemporaryDirectory() as folder:
        here = Path(folder)
        for name in ("lists/partial", "cache/archives/partial", "etc"):
            (here / name).mkdir(parents=True)
        (here / "status").write_text(status)
        (here / "etc/sources.list").write_text("\n".join(sources) + "\n")
        options = {
            "Dir::Etc": here / "etc",
            "Dir::Etc::SourceParts": "/dev/null",
            "Dir::State": here,
            "Dir::State::status": here / "status",
            "Dir::Cache": here / "cache",
            "Acquire::Languages": "none",
            "APT::Architecture": base.architecture,
            "APT::Architectures": base.architecture,
            "APT::Install-Recommends": "false",
            "APT::Sandbox::User": "root",
            "APT::Get::Simulate": "true",
            "APT::Update::Error-Mode": "any",  # else an index that cannot be had is but a warning
            **_access(),
        }
        words = [word for key, value in options.items() for word in ("-o", f"{key}={value}")]
        fix = "trainwright doctor: it shows the mirrors in use"
        run(
            ["apt-get", *words, "-qq", "update"],
            env=proxies(),
            error=EnvironmentProblem,
            what="the package index cannot be had",
            fix=fix,
        )
        plan = run(
            ["apt-get", *words, "-qq", "install", *([] if status else ["?essential"]), *packages],
            error=LockError,
            what="the distribution's packages cannot be resolved",
            fix="correct `packages` in dockerfiles/layers/*.toml or dockerfiles/bases.toml",
        )
        chosen = re.findall(r"^Inst (\S+) (?:\[\S+\] )?\((\S+)", plan, re.MULTILINE)
        shown = run(["apt-cache", *words, "show", *(f"{name}={version}" for name, version in chosen)], error=LockError)
        dates = [
            parsedate_to_datetime(match)
            for file in (here / "lists").glob("*InRelease")
            for match in re.findall(r"^Date: (.+)$", file.read_text(), re.MULTILINE)
        ]
    stanzas = installed(status)
    for paragraph in Deb822.iter_paragraphs(shown, use_apt_pkg=False):
        stanza = dict(paragraph)
        security = [name for name in base.archives if name.endswith("-security")]
        updates = "pool/updates/" in stanza["Filename"]
        archive = security[0] if updates and security else next(iter(base.archives))
        stanzas[stanza["Package"]] = reduce(stanza, archive)
    return max(dates).strftime("%a, %d %b %Y %H:%M:%S GMT"), stanzas


def _access() -> dict[str, str | Path]:
    """apt's words for whom to trust and for credentials: this user's .netrc where there is one, else the host's own."""
    netrc = Path(os.environ.get("NETRC", "~/.netrc")).expanduser()
    found: dict[str, str | Path] = {
        "Dir::Etc::netrc": netrc if netrc.exists() else "/etc/apt/auth.conf",
        "Dir::Etc::netrcparts": "/etc/apt/auth.conf.d",
    }
    return found | ({"Acquire::https::CaInfo": bundle()} if bundle() else {})


def installed(status: str) -> Stanzas:
    """What a base image brings: name and version; its digest stands for the bytes."""
    found = {}
    for paragraph in Deb822.iter_paragraphs(status, use_apt_pkg=False):
        if paragraph["Status"].endswith(" installed"):
            fields = {"Archive": "image", "Filename": "", "Size": "0", "SHA256": ""}
            fields |= {name: paragraph[name] for name in ("Package", "Version", "Architecture")}
            found[paragraph["Package"]] = fields
    return found


def wanted(base: Base, packages: list[Package], epoch: int) -> list[Wanted]:
    """Where the files of locked packages may come from: the mirror, then the snapshot of the day of the lock."""
    addresses = mirrors(base)
    time = datetime.fromtimestamp(epoch, UTC).strftime("%Y%m%dT%H%M%SZ")
    files = []
    for package in packages:
        urls = [f"{addresses[package.archive]}/{package.filename}"]
        if package.archive in base.snapshots:
            urls.append(base.snapshots[package.archive].format(time=time, filename=package.filename))
        name = f"{package.name} {package.version}"
        files.append(Wanted(name=name, sha256=package.sha256, size=package.size, urls=urls))
    return files


def archive(folder: Path, base: Base, stanzas: Stanzas, epoch: int) -> None:
    """The index of an apt archive that holds exactly these packages; their files go beside it, by `Filename`.

    mmdebstrap looks for essential packages in the suite that it was asked for, so the index says it is that one.
    """
    told = ({key: value for key, value in stanza.items() if key != LICENCE} for stanza in stanzas.values())
    rows = ("".join(f"{key}: {value}\n" for key, value in stanza.items()) for stanza in told)
    index = "\n".join(rows).encode()
    (folder / "Packages").write_bytes(index)
    date = format_datetime(datetime.fromtimestamp(epoch, UTC), usegmt=True)
    checksum = f"{hashlib.sha256(index).hexdigest()} {len(index)} Packages"
    release = f"Suite: {base.suite}\nCodename: {base.suite}\nDate: {date}\nSHA256:\n {checksum}\n"
    (folder / "Release").write_text(release)


def bootstrap(root: Path, base: Base, include: list[str], stanzas: Stanzas, epoch: int, target: Path) -> None:
    """A root file system as a tar at `target`, out of exactly these packages, which the store holds already.

    Bit-identical for the same packages: SOURCE_DATE_EPOCH is `epoch`. Raises BuildError with mmdebstrap's words.
    """
    with scratch() as folder:
        archive(folder, base, stanzas, epoch)
        for stanza in stanzas.values():
            file = folder / stanza["Filename"]
            file.parent.mkdir(parents=True, exist_ok=True)
            file.symlink_to(path_of(stanza["SHA256"]))
        made = folder / "base.tar"
        run(
            [root / "scripts/bootstrap-base.sh", base.suite, base.architecture, folder, made, *include],
            env={"SOURCE_DATE_EPOCH": str(epoch)},
            error=BuildError,
            what="the base cannot be bootstrapped",
            fix="trainwright doctor",
        )
        made.replace(target)
