"""Test licences of distribution packages: read from real packages, written to the lock, and in no key."""

import io
import random
import tarfile
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path

import debs
import pytest

from trainwright.core.errors import LockError
from trainwright.image import inputs
from trainwright.lock import packages
from trainwright.matrix.matrix import Recipe, load_intent
from trainwright.resolve import apt, licences, resolve
from trainwright.resolve.licences import licence

HEADER = {"Intent": "0" * 64, "Date": "Fri, 20 Nov 2026 02:11:10 GMT"}
FORMAT = "Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/\nUpstream-Name: a\n"
DEP5 = f"""{FORMAT}
Files: *
Copyright: 2001 Someone
License: LGPL-2.1+
 The text.

Files: b/*
Copyright: 2002 Someone
License: GPL-2 or Expat

Files: c/*
Copyright: 2003 Someone
License: LGPL-2.1+

License: GPL-2 or Expat
 Only a text, of no file.

License: Unused
 Only a text, of no file.
"""
PROSE = "This package was debianized by someone.\n\nIt is free: see /usr/share/common-licenses/GPL-2.\n"
Deb = Callable[..., Path]


@pytest.fixture
def deb(tmp_path: Path) -> Deb:
    """Return a function that makes a package; `files` maps paths below usr/share/doc to texts.

    A text "-> aim" makes a symbolic link to `aim`.
    """

    def make(name: str, **files: str) -> Path:
        root, packed = tmp_path / "trees" / name, io.BytesIO()
        root.mkdir(parents=True)
        for place, text in {path.replace("__", "/"): text for path, text in files.items()}.items():
            path = root / "usr/share/doc" / place
            path.parent.mkdir(parents=True, exist_ok=True)
            if text.startswith("-> "):
                path.symlink_to(text.removeprefix("-> "))
            else:
                path.write_text(text, encoding="latin-1")  # as files from before UTF-8 are
        with tarfile.open(fileobj=packed, mode="w:xz") as tar:
            tar.add(root, ".")
        made = tmp_path / f"{name}_1_amd64.deb"
        made.write_bytes(debs.deb(packed.getvalue()))
        return made

    return make


def said(name: str, *debs: Path) -> str:
    return licence(name, {deb.name.partition("_")[0]: deb for deb in debs}.get)


def test_machine_readable(deb: Deb) -> None:
    assert said("a", deb("a", a__copyright=DEP5)) == "GPL-2 or Expat, LGPL-2.1+"


def test_old_spellings_are_read_in_silence(deb: Deb, caplog: pytest.LogCaptureFixture) -> None:
    old = DEP5.replace("https:", "http:").replace("Copyright: 2001 Someone\n", "")
    assert said("a", deb("a", a__copyright=old)) == "GPL-2 or Expat, LGPL-2.1+"
    assert caplog.records == []


def test_indented_lines_of_no_field() -> None:
    """Texts behind the names are left out before python-debian reads; what is malformed stays malformed."""
    assert licences.short_names(DEP5) == "GPL-2 or Expat, LGPL-2.1+"
    for lines in ("\n of no field\n nor this\n", "\n# a comment\n of no field\n nor this\n"):
        assert licences.short_names(DEP5 + lines) == "", lines


def test_what_stands_behind_it_is_not_unpacked(tmp_path: Path) -> None:
    """A package may have a gigabyte of it. Here it ends too early, which whoever reads it would notice."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:xz") as tar:
        for name, content in (("usr/share/doc/a/copyright", DEP5.encode()), ("usr/bin/a", random.randbytes(2_000_000))):
            entry = tarfile.TarInfo(f"./{name}")
            entry.size = len(content)
            tar.addfile(entry, io.BytesIO(content))
    made = tmp_path / "a_1_amd64.deb"
    made.write_bytes(debs.deb(packed.getvalue()[:1_000_000]))
    assert said("a", made) == "GPL-2 or Expat, LGPL-2.1+"
    with pytest.raises(LockError, match="cannot be read"):
        said("b", made.rename(tmp_path / "b_1_amd64.deb"))


def test_prose(deb: Deb) -> None:
    assert said("a", deb("a", a__copyright=PROSE)) == "see usr/share/doc/a/copyright"


@pytest.mark.parametrize("text", [FORMAT, f"{FORMAT}\nFiles: *\n", f"{FORMAT}\nlines of no field\n", "", "\0\xff"])
def test_machine_readable_in_name_only(deb: Deb, text: str) -> None:
    assert said("a", deb("a", a__copyright=text)) == "see usr/share/doc/a/copyright"


def test_missing(deb: Deb) -> None:
    assert said("a", deb("a")) == said("b", deb("b", other__copyright=DEP5)) == licences.NOT_SAID


def test_the_folder_is_that_of_another_package(deb: Deb) -> None:
    """And that one's is another's: libctf0, libbinutils, binutils-common."""
    debs = [deb("a", a="-> b"), deb("b", b="-> ../doc/c"), deb("c", c__copyright=DEP5)]
    assert said("a", *debs) == "GPL-2 or Expat, LGPL-2.1+"
    assert said("a", *debs[:2]) == "see usr/share/doc/c/copyright"  # nobody has that one: it came with a base image


def test_the_file_is_a_link(deb: Deb) -> None:
    prose = deb("b", b__copyright=PROSE)
    assert said("a", deb("a", a__copyright="-> ../b/copyright"), prose) == "see usr/share/doc/b/copyright"
    assert said("d", deb("d", d__copyright="-> /usr/share/doc/b/copyright"), prose) == "see usr/share/doc/b/copyright"
    assert said("e", deb("e", e__copyright="-> terms", e__terms=DEP5)) == "GPL-2 or Expat, LGPL-2.1+"
    common = deb("f", f__copyright="-> ../../common-licenses/GPL-2")
    assert said("f", common) == "see usr/share/common-licenses/GPL-2"


def test_links_that_go_nowhere_end(deb: Deb) -> None:
    assert said("a", deb("a", a="-> b"), deb("b", b="-> a")) == licences.NOT_SAID
    assert said("c", deb("c", c__copyright="-> copyright")) == licences.NOT_SAID
    assert said("d", deb("d", d="-> e"), deb("e")) == licences.NOT_SAID


def test_many_names_stay_one_line() -> None:
    names = [f"Licence-{number:03}" for number in range(200)]
    text = FORMAT + "".join(f"\nFiles: {name}\nCopyright: someone\nLicense: {name}\n" for name in names)
    short = licences.short_names(text)
    kept = short.split(", ")
    assert len(short) < licences.LONGEST + 20
    assert (kept[:-1], kept[-1]) == (names[: len(kept) - 1], f"and {200 - len(kept) + 1} more")


def test_what_is_no_package(tmp_path: Path) -> None:
    (tmp_path / "a_1.deb").write_bytes(b"nothing")
    with pytest.raises(LockError) as raised:
        said("a", tmp_path / "a_1.deb")
    assert "cannot be read" in raised.value.what
    assert raised.value.fix.startswith("rm ")


def test_debian_packages_need_no_program_of_the_host_and_others_name_theirs(
    deb: Deb, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = deb("a", a__copyright=DEP5)
    other = tmp_path / "b_1_all.deb"
    other.write_bytes(made.read_bytes().replace(b"data.tar.xz ", b"data.tar.zst"))
    monkeypatch.setenv("PATH", "")
    assert said("a", made) == "GPL-2 or Expat, LGPL-2.1+"
    with pytest.raises(LockError, match="cannot be read") as raised:
        said("b", other)
    assert raised.value.fix == "install zstd: this host has no unzstd"


# --- in the lock ---------------------------------------------------------------------------------------------------


def stanza(made: Path) -> dict[str, str]:
    """Return the index's stanza for a package in the mirror's folder."""
    content = made.read_bytes()
    return {
        **{"Package": made.name.partition("_")[0], "Version": "1", "Architecture": "amd64", "Archive": "debian"},
        **{"Filename": made.name, "Size": str(len(content)), "SHA256": sha256(content).hexdigest()},
    }


def by_name(*stanzas: dict[str, str]) -> packages.Stanzas:
    return {held["Package"]: held for held in stanzas}


def test_written_into_the_lock(deb: Deb, tree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From a mirror; `tool` leaves its documentation to a package of the base."""
    monkeypatch.setenv("TRAINWRIGHT_MIRRORS", f"debian={tmp_path} debian-security={tmp_path}")
    below = by_name(stanza(deb("common", common__copyright=DEP5)))
    image = {**stanza(deb("brought")), "Archive": "image", "Filename": "", "Size": "0", "SHA256": ""}
    own = by_name(stanza(deb("tool", tool="-> common")), stanza(deb("prose", prose__copyright=PROSE)), image)
    fetched: list[int] = []
    words: list[str] = []
    text = resolve.with_licences(
        load_intent(tree), "debian-12", packages.dump(HEADER, own), below, words.append, fetched.append
    )
    header, found = packages.parse(text, "lock")
    assert (header, packages.dump(header, found)) == (HEADER, text)
    assert {name: held.get("Licence") for name, held in found.items()} == {
        "tool": "GPL-2 or Expat, LGPL-2.1+",
        "prose": "see usr/share/doc/prose/copyright",
        "brought": None,  # with the base image: its bytes are not ours to read
    }
    assert {name: list(held)[:7] for name, held in found.items()} == {name: list(own[name]) for name in own}
    assert sum(fetched) == sum(int(held["Size"]) for held in [*own.values(), *below.values()])
    assert words == ["debian-12: reading the licences of 2 packages"]


def test_a_package_that_is_lost(deb: Deb, tree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the lock itself: an error. Of the base below, which was locked earlier: its place is said."""
    monkeypatch.setenv("TRAINWRIGHT_MIRRORS", f"debian={tmp_path} debian-security={tmp_path} https://={tmp_path}/none")
    gone = deb("common", common__copyright=DEP5)
    below, own = by_name(stanza(gone)), by_name(stanza(deb("tool", tool="-> common")))
    gone.unlink()

    def locked(stanzas: packages.Stanzas) -> packages.Stanzas:
        text = packages.dump(HEADER, stanzas)
        intent = load_intent(tree)
        return packages.parse(resolve.with_licences(intent, "debian-12", text, below, print, lambda _: None), "")[1]

    assert locked(own)["tool"]["Licence"] == "see usr/share/doc/common/copyright"
    with pytest.raises(LockError) as raised:
        locked(below)
    assert "cannot be fetched" in raised.value.what


def test_every_locked_package_has_one() -> None:
    for path in (Path(__file__).parents[3] / "dockerfiles/locks").glob("*.packages"):
        _, stanzas = packages.parse(path.read_text(), path.name)
        assert [name for name, held in stanzas.items() if held["SHA256"] and not held.get("Licence")] == [], path.name


def test_nothing_but_the_notices_knows_it(tree: Path, tmp_path: Path) -> None:
    """Neither the base's key nor drift nor apt; the notices do, and so the key of an image counts what they say."""
    intent = load_intent(tree)
    compiled = next(variant for variant in intent.variants if variant.id.endswith("ec2-distro"))
    before = inputs.load(Recipe(intent, compiled))
    for path in (tree / "dockerfiles/locks").glob("*.packages"):
        header, stanzas = packages.parse(path.read_text(), path.name)
        other = {name: {**held, "Licence": f"of {name}"} for name, held in stanzas.items()}
        path.write_text(packages.dump(header, other))
    after = inputs.load(Recipe(intent, compiled))
    held, now = before.distribution.locked, after.distribution.locked
    assert (now["libc6"]["Licence"], held["libc6"]["Licence"]) == ("of libc6", held["libc6"]["Licence"])
    assert held["libc6"]["Licence"] != "of libc6"
    assert after.base_key == before.base_key
    # The bake file names the image by its key, which counts the notices.
    changed = {name for name, text in after.text.items() if text != before.text[name]}
    assert changed == {"requirements/notices.txt", "docker-bake.json"}
    assert "of libc6\t" in after.text["requirements/notices.txt"]

    assert packages.manifest_digest(held) == packages.manifest_digest(now)
    assert packages.drift(held, now) == []
    assert packages.status(held) == packages.status(now)
    assert "Licence" not in packages.status(now)
    indexes = []
    for name, found in (("one", held), ("other", now)):
        (tmp_path / name).mkdir()
        apt.archive(tmp_path / name, intent.components.bases["debian-13"], found, 0)
        indexes.append((tmp_path / name / "Packages").read_text())
    assert indexes[0] == indexes[1]
    assert "Licence" not in indexes[0]
