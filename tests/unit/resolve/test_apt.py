"""Test the resolver for packages with an apt that answers what a test says."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from trainwright.core.errors import LockError
from trainwright.matrix.model import Base
from trainwright.resolve import apt

BASE = Base(
    provider="image",
    distribution="debian",
    suite="bookworm",
    glibc="2.36",
    archives={"debian": ["bookworm"]},
    snapshots={"debian": "https://snapshot.example/{time}/{filename}"},
)
STATUS = "Package: bash\nStatus: install ok installed\nVersion: 5.2\nArchitecture: amd64\n"


@contextmanager
def nothing_to_install(*_: Any) -> Iterator[Callable[..., str]]:
    def said(words: Sequence[str | Path], **_: Any) -> str:
        if words[0] == "apt-cache":
            raise LockError("E: No packages found")
        return "Date: Sat, 21 Nov 2026 08:00:00 UTC\n" if words[0] == "sh" else ""

    yield said


def test_an_image_that_has_all_packages_already(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRAINWRIGHT_MIRRORS", "debian=https://mirror.example/debian")
    date, found = apt.resolve(BASE, ["bash"], STATUS, nothing_to_install)
    assert date == "Sat, 21 Nov 2026 08:00:00 GMT"
    assert found == apt.installed(STATUS)
