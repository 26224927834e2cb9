"""Test the first tar of a base: which packages are unpacked into it."""

import io
import tarfile
from hashlib import sha256
from pathlib import Path

import pytest
from debs import deb

from trainwright.core import store
from trainwright.core.errors import BuildError
from trainwright.image import bootstrap
from trainwright.image.inputs import read_distribution
from trainwright.lock.packages import Stanzas
from trainwright.matrix.matrix import Intent

EPOCH = 1_000_000_000


Entry = tuple[tarfile.TarInfo, bytes]


def entry(path: str, kind: bytes = tarfile.REGTYPE, text: str = "", to: str = "", mode: int = 0o644) -> Entry:
    made, content = tarfile.TarInfo(path), text.encode()
    made.type, made.linkname, made.mode, made.mtime, made.size = kind, to, mode, EPOCH + 5, len(content)
    return made, content


def package(folder: Path, name: str, *entries: Entry, **fields: str) -> Stanzas:
    """Put a .deb into the store; return its stanza."""
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w:xz") as tar:
        for one, content in entries:
            tar.addfile(one, io.BytesIO(content))
    made = deb(data.getvalue())
    file = folder / f"{name}.deb"
    file.write_bytes(made)
    digest = sha256(made).hexdigest()
    store.add(file, digest)
    return {name: {"Package": name, "Version": "1", "SHA256": digest, **fields}}


def unpacked(stanzas: Stanzas, folder: Path) -> dict[str, tarfile.TarInfo]:
    bootstrap.first_tar(stanzas, EPOCH, folder / "first.tar")
    with tarfile.open(folder / "first.tar") as tar:
        names = tar.getnames()
        assert len(names) == len(set(names))
        return {member.name: member for member in tar}


def test_essential_packages_and_apt_with_what_they_depend_on(intent: Intent) -> None:
    names = bootstrap.first(read_distribution(intent, "debian-12").locked)
    assert {"apt", "dpkg", "libc6", "mawk", "libapt-pkg6.0"} <= set(names)  # mawk: base-files wants an awk
    assert not {"git", "openssh-server", "g++"} & set(names)


def test_folders_above_usr_are_links_into_it(tmp_path: Path) -> None:
    """Also where an old package names /bin itself, and a hard link's aim lies there."""
    held = package(
        tmp_path,
        "a",
        entry("./", tarfile.DIRTYPE, mode=0o755),
        entry("./bin/", tarfile.DIRTYPE, mode=0o755),
        entry("./bin/sh", text="sh", mode=0o755),
        entry("./bin/hard", tarfile.LNKTYPE, to="./bin/sh"),
        entry("./lib64/ld.so", tarfile.SYMTYPE, to="/lib/ld.so"),
        entry("./usr/bin/x", text="x"),
        Essential="yes",
    )
    found = unpacked(held, tmp_path)
    assert {name: found[name].linkname for name in ("bin", "lib64")} == {"bin": "usr/bin", "lib64": "usr/lib64"}
    assert (found["usr/bin/sh"].mode, found["usr/bin/sh"].mtime) == (0o755, EPOCH)
    assert found["usr/bin/hard"].linkname == "usr/bin/sh"
    assert found["usr/lib64/ld.so"].linkname == "/lib/ld.so"
    assert found["usr/bin/x"].size == 1
    assert found[bootstrap.STATUS].size == 0


def test_the_same_packages_give_the_same_bytes(tmp_path: Path) -> None:
    held = package(tmp_path, "a", entry("./etc/a", text="a"), Essential="yes", Depends="b | c")
    held |= package(tmp_path, "b", entry("./etc/a", text="another"), entry("./etc/b", text="b"))
    held |= package(tmp_path, "d", entry("./etc/d", text="d"))
    bootstrap.first_tar(held, EPOCH, tmp_path / "one.tar")
    bootstrap.first_tar(dict(reversed(held.items())), EPOCH, tmp_path / "two.tar")
    assert (tmp_path / "one.tar").read_bytes() == (tmp_path / "two.tar").read_bytes()
    assert {"etc/a", "etc/b"} <= unpacked(held, tmp_path).keys()
    assert "etc/d" not in unpacked(held, tmp_path)


def test_what_is_no_package_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"nothing")
    digest = sha256(b"nothing").hexdigest()
    store.add(tmp_path / "x", digest)
    with pytest.raises(BuildError, match="package a cannot be unpacked"):
        bootstrap.first_tar({"a": {"Essential": "yes", "SHA256": digest}}, EPOCH, tmp_path / "first.tar")
