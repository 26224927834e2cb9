"""Test the entries of rpm packages in a lock, and what is a difference between a lock and rpm's own list."""

from trainwright.lock import packages, rpms
from trainwright.lock.rpms import Offer, Rpm, Solution

KEYS = [
    Rpm(name="gpg-pubkey", version="1-a", architecture="(none)"),
    Rpm(name="gpg-pubkey", version="2-b", architecture="(none)"),
]
TOOL = Offer(
    name="g++",
    version="1:11^2026-1",
    architecture="x86_64",
    repository="mini",
    address="https://me:secret@mirror.example/core/g++.rpm",
    location="g++.rpm",
    size=7,
    sha256="0" * 64,
    licence="GPL-3.0 and\n MIT",
)


def test_an_entry_has_upstreams_address_and_can_be_written_and_read() -> None:
    found = Solution(signed=["mini"], held=KEYS, fetch=[TOOL])
    entries = rpms.stanzas(found, {"https://me:secret@mirror.example": "https://cdn.example"})
    assert entries.keys() == {"gpg-pubkey-1-a.(none)", "gpg-pubkey-2-b.(none)", "g++"}
    one = entries["g++"]
    assert one["Address"] == "https://cdn.example/core/g++.rpm"
    assert one["Filename"] == "g++-11%5E2026-1.x86_64.rpm"
    assert (one["Index"], one["Licence"]) == ("signed", "GPL-3.0 and MIT")
    header = {"Intent": "0", "Date": "Sun, 22 Nov 2026 02:09:05 GMT", "Image": "mini@sha256:0"}
    again = packages.parse(packages.dump(header, entries), "base")[1]
    assert again == entries
    assert packages.to_packages(again)["g++"].address == one["Address"]


def test_without_a_mirror_the_address_keeps_no_password() -> None:
    entries = rpms.stanzas(Solution(fetch=[TOOL]), {})
    assert entries["g++"]["Address"] == "https://mirror.example/core/g++.rpm"
    assert entries["g++"]["Index"] == "without a signature"


def test_every_difference_is_one_sentence() -> None:
    entries = rpms.stanzas(Solution(held=KEYS, fetch=[TOOL]), {})
    same = [*KEYS, TOOL]
    assert rpms.differences(entries, same) == []
    assert rpms.differences(entries, [Rpm(name="g++", version="1:12-1", architecture="x86_64"), *KEYS]) == [
        "rpm package g++: the lock says 1:11^2026-1 x86_64, the image holds 1:12-1 x86_64"
    ]
    assert rpms.differences(entries, KEYS) == [
        "rpm package g++: the lock says 1:11^2026-1 x86_64, the image holds nothing"
    ]
    more = Rpm(name="new", version="0:1-1", architecture="noarch")
    assert rpms.differences(entries, [*same, more]) == [
        "rpm package new: the lock says nothing, the image holds 1-1 noarch"
    ]
