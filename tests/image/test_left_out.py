"""What an image leaves out of its packages is not in it, and their records say so."""

import json
from fnmatch import fnmatchcase
from typing import Any

import pytest

from trainwright.image.inputs import Inputs
from trainwright.image.render import left_out


@pytest.fixture(scope="module")
def rules(declared: Inputs) -> list[dict[str, Any]]:
    image = declared.parent or declared
    return [rule for folder in left_out(image.recipe, image.wheels).values() for rule in folder]


@pytest.mark.exact("its requirements may have put files back")
def test_files_that_are_left_out(host: Any, programs: str, rules: list[dict[str, Any]], declared: Inputs) -> None:
    """The devel twin has those of them that compilers read."""
    found = json.loads(host.check_output("python %s/left_out.py %s", programs, json.dumps(rules)))
    has = {number for number, rule in enumerate(rules) if rule["devel"] and declared.variant.devel}
    assert {int(number) for number, files in found["found"].items() if files} == has, found["found"]
    assert found["untrue"] == []


def test_dpkg_misses_what_is_left_out_and_nothing_else(host: Any, declared: Inputs) -> None:
    """dpkg compares every file of every package with the signed package's checksums."""
    base = declared.recipe.base
    lines = [line.split(maxsplit=1) for line in host.run("dpkg --verify").stdout.splitlines()]
    missing = {path for what, path in lines if what == "missing"}
    assert [line for line in lines if line[0] != "missing"] == []
    assert [path for path in missing if not any(fnmatchcase(path, glob) for glob in base.left_out)] == []
    assert [path for path in missing if any(fnmatchcase(path, glob) for glob in base.kept)] == []
    assert missing or not base.left_out or declared.parent, "the base leaves nothing out"


def test_a_package_can_link_its_man_page(host: Any, declared: Inputs) -> None:
    """update-alternatives fails without the folder, and openjdk's installation with it."""
    words = "--install /tmp/tool tool /usr/bin/env 1 --slave /usr/share/man/man1/tool.1.gz tool.1.gz /usr/bin/env"
    own = "--altdir /tmp/links --admindir /tmp/states"
    if declared.recipe.base.left_out:
        host.check_output(f"mkdir -p /tmp/links /tmp/states && update-alternatives {own} {words}")
