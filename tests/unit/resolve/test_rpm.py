"""Test which signatures of rpm files are accepted, by what `rpmkeys --checksig --verbose` prints."""

from pathlib import Path

import pytest

from trainwright.core.errors import LockError
from trainwright.lock.packages import Stanzas
from trainwright.matrix.model import Package
from trainwright.resolve import rpm

FILE = Path("/store/ab")
FOUND: Stanzas = {"tool": {"Filename": "tool-1.rpm", "Archive": "mini", "Address": "http://mini.invalid/tool-1.rpm"}}
DIGESTS = "    Header SHA256 digest: OK\n    Payload SHA256 digest: OK\n"
GOOD = "    Header V4 RSA/SHA512 Signature, key ID a20d1fb0: OK\n"


def test_the_key_of_a_good_signature_is_returned() -> None:
    assert rpm._judged(f"{FILE}:\n{GOOD}{DIGESTS}", {FILE: "tool"}, FOUND) == {"tool": "a20d1fb0"}


@pytest.mark.parametrize(
    ("said", "why"),
    [
        (f"{FILE}:\n{DIGESTS}", "rpm finds no signature in it"),
        (f"{FILE}:\n{GOOD.replace('OK', 'NOKEY')}{DIGESTS}", "NOKEY"),
        (f"{FILE}:\n{GOOD.replace('OK', 'BAD')}{DIGESTS}", "BAD"),
        (f"{FILE}:\n{GOOD}{DIGESTS.replace('Payload SHA256 digest: OK', 'Payload SHA256 digest: BAD')}", "BAD"),
        (f"/store/cd:\n{GOOD}{DIGESTS}", "rpm says nothing of it"),
        ("error: cannot open Packages database", "rpm says nothing of it: error: cannot open"),
    ],
)
def test_all_else_is_refused(said: str, why: str) -> None:
    with pytest.raises(LockError, match=r"tool-1.rpm of mini has no valid signature") as raised:
        rpm._judged(said, {FILE: "tool"}, FOUND)
    assert why in raised.value.why
    assert raised.value.where == "http://mini.invalid/tool-1.rpm"


def test_files_come_from_the_named_mirror_first(monkeypatch: pytest.MonkeyPatch) -> None:
    said = {"name": "tool", "version": "1", "architecture": "noarch", "archive": "mini", "filename": "tool-1.rpm"}
    facts = {"size": 1, "sha256": "0" * 64, "location": "../blobs/ab/tool.rpm", "address": "https://cdn.example/b/tool"}
    package = Package.model_validate({**said, **facts})
    monkeypatch.setenv("TRAINWRIGHT_MIRRORS", "mini=http://127.0.0.1:1/core/x")
    assert rpm.wanted([package])[0].urls == ["http://127.0.0.1:1/core/blobs/ab/tool.rpm", "https://cdn.example/b/tool"]
    monkeypatch.delenv("TRAINWRIGHT_MIRRORS")
    assert rpm.wanted([package])[0].urls == ["https://cdn.example/b/tool"]
