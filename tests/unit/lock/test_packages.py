"""Test the lock of the distribution's packages: its format, and drift when the mirror has newer packages."""

from pathlib import Path

import pytest
from debian.deb822 import PkgRelation
from debian.debian_support import NativeVersion
from hypothesis import given
from hypothesis import strategies as st

from trainwright.core.errors import LockError
from trainwright.image.probe import upstream_version
from trainwright.lock import packages
from trainwright.lock.packages import Stanzas

ROOT = Path(__file__).parents[3]
HEADER = {"Intent": "0" * 64, "Date": "Fri, 20 Nov 2026 02:11:10 GMT"}

SAID: list[dict[str, str]] = [{}, {"Licence": "GPL-1+ or Artistic, GPL-2+ with OpenSSL exception, see: b"}]


def stanza(name: str, version: str = "1") -> dict[str, str]:
    return {
        "Package": name,
        "Version": version,
        "Architecture": "amd64",
        "Archive": "debian",
        "Depends": "libc6 (>= 2.36), other | another",
        "Filename": f"pool/{name}_{version}.deb",
        "Size": "10",
        "SHA256": (name + version).encode().hex().ljust(64, "0")[:64],
    }


def of(*names: str, **versions: str) -> Stanzas:
    return {name: stanza(name, versions.get(name, "1")) for name in [*names, *versions]}


@given(st.dictionaries(st.from_regex(r"[a-z0-9][a-z0-9+.-]{1,20}", fullmatch=True), st.integers(0, 99), max_size=5))
def test_roundtrip(names: dict[str, int]) -> None:
    stanzas = {name: stanza(name, f"1:{number}.0~rc-1+deb12u1") | SAID[number % 2] for name, number in names.items()}
    assert packages.parse(packages.dump(HEADER, stanzas), "lock") == (HEADER, stanzas)


def test_what_is_committed_is_what_would_be_written() -> None:
    for path in (ROOT / "dockerfiles/locks").glob("*.packages"):
        assert packages.dump(*packages.parse(path.read_text(), path.name)) == path.read_text()


def test_relations_are_read_as_the_distribution_reads_them() -> None:
    for path in (ROOT / "dockerfiles/locks").glob("*.packages"):
        for held in packages.parse(path.read_text(), path.name)[1].values():
            fields = [held[field] for field in ("Depends", "Pre-Depends") if field in held]
            known = {
                choice["name"] for text in fields for group in PkgRelation.parse_relations(text) for choice in group
            }
            assert packages.requires(held) == known
            assert upstream_version(held["Version"]) == NativeVersion(held["Version"]).upstream_version


def test_written_in_one_order() -> None:
    assert packages.dump(HEADER, of("b", "a")) == packages.dump(HEADER, of("a", "b"))


def test_reduce_keeps_what_installs_and_drops_what_describes() -> None:
    full = {**stanza("a"), "Description": "long", "Maintainer": "someone", "Essential": "yes"}
    reduced = packages.reduce(full, "debian-security")
    assert "Description" not in reduced
    assert (reduced["Essential"], reduced["Archive"]) == ("yes", "debian-security")
    assert list(reduced) == [field for field in packages.FIELDS if field in reduced]


@pytest.mark.parametrize("field", ["Version", "Filename", "Size", "SHA256", "Archive"])
def test_a_package_without_a_field(field: str) -> None:
    broken = stanza("a")
    del broken[field]
    with pytest.raises(LockError) as raised:
        packages.parse(packages.dump(HEADER, {"a": broken}), "lock")
    assert field in raised.value.why


def test_manifest_digest_knows_the_bytes_and_not_the_place() -> None:
    digest = packages.manifest_digest
    moved = {name: {**held, "Filename": "elsewhere.deb", "Archive": "other"} for name, held in of("a", "b").items()}
    assert digest(of("a", "b")) == digest(of("b", "a")) == digest(moved)
    assert len({digest(of("a", "b")), digest(of("a")), digest(of("a", b="2"))}) == 3


# --- drift -----------------------------------------------------------------------------------------------------


def told(locked: Stanzas, effective: Stanzas) -> list[tuple[str, str, str]]:
    return [(entry.package, entry.locked, entry.used) for entry in packages.drift(locked, effective)]


def test_no_drift() -> None:
    assert told(of("a", "b"), of("b", "a")) == []


def test_drift_names_what_is_replaced_added_and_gone() -> None:
    assert told(of("a", "b", "d"), of("b", "c", a="2")) == [("a", "1", "2"), ("c", "", "1"), ("d", "1", "")]


def test_other_bytes_under_the_same_version_are_drift() -> None:
    other = {"a": {**of("a")["a"], "SHA256": "f" * 64}}
    assert told(of("a"), other) == [("a", "1", "1")]
