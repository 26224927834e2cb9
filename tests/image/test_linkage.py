"""Every program and library finds every library that it asks for."""

import json
from fnmatch import fnmatchcase
from typing import Any

import pytest


@pytest.mark.exact("it has libraries of its own")
@pytest.mark.long(seconds=3)
def test_nothing_is_missing(host: Any, programs: str, expected: dict[str, Any]) -> None:
    found = json.loads(host.check_output(f"python {programs}/missing_libraries.py"))
    assert found["files"] > 500, "the search has lost its object"
    known = expected["missing_libraries"]
    assert [line for line in found["missing"] if not any(fnmatchcase(line, glob) for glob in known)] == []
