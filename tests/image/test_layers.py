"""The layers themselves: what a registry stores, and what a later layer only hides."""

from fnmatch import fnmatchcase
from pathlib import PurePosixPath
from typing import Any

import pytest
from saved import Entry

from trainwright.image.inputs import Inputs
from trainwright.matrix.matrix import Intent

SHARE = 0.15  # of an image's bytes, in one layer


def parents(path: str) -> list[str]:
    words = path.split("/")
    return ["/".join(words[:count]) for count in range(len(words) - 1, 0, -1)]


def test_no_path_crosses_a_symlink(saved: Any) -> None:
    """With /lib a symlink to /usr/lib, a layer that brings lib/x would replace the link: no program starts."""
    links: dict[str, str] = {}
    crossed = []
    for number, layer in enumerate(saved.layers):
        for entry in layer:
            over = [path for path in parents(entry.name) if path in links]
            if entry.type == "folder" and entry.name in links:
                over.append(entry.name)
            crossed += [f"layer {number}: {entry.name} crosses {path} -> {links[path]}" for path in over]
        for entry in layer:
            links.pop(entry.name, None)
            if entry.type == "link":
                links[entry.name] = entry.link
    assert "lib" in links, "the base has no merged /usr: this test has lost its object"
    assert crossed == []


@pytest.mark.exact("it may replace files; verify names those that matter")
def test_nothing_is_deleted_or_replaced_unseen(saved: Any, expected: dict[str, Any], declared: Inputs) -> None:
    """Such bytes are shipped twice, and package records stop being true."""
    parts = {*declared.pins, *(["--with"] if declared.parent else []), *(["devel"] if declared.variant.devel else [])}
    installers = [expected["replaced_by"][name] for name in expected["replaced_by"].keys() & parts]
    known = [f"{glob}: replaces" for globs in installers for glob in globs]
    below: dict[str, Entry] = {}
    surprises = set()
    for layer in saved.layers:
        for entry in layer:
            lower = below.get(entry.name)
            if PurePosixPath(entry.name).name.startswith(".wh."):
                surprises.add(f"{entry.name}: deletes")
            elif lower and not (lower.type == "folder" and entry.type == "folder"):
                surprises.add(f"{entry.name}: replaces")
            elif lower and (lower.mode, lower.uid, lower.gid) != (entry.mode, entry.uid, entry.gid):
                surprises.add(f"{entry.name}: changes from {lower.mode:o} {lower.uid}:{lower.gid}")
        below |= {entry.name: entry for entry in layer}
    unknown = {line for line in surprises if line.split(":")[0] not in expected["replaced"]}
    assert {line for line in unknown if not any(fnmatchcase(line, glob) for glob in known)} == set()


@pytest.mark.exact("it may have layers of its own")
def test_no_layer_holds_up_the_others(saved: Any, declared: Inputs, intent: Intent) -> None:
    """Hosts pull layers in parallel: the largest has at most 15% of the bytes, or the limit's, or is one file."""
    layers = saved.manifest["layers"]
    if not all(layer["mediaType"].endswith("gzip") for layer in layers):
        return  # the engine's classic store keeps layers unpacked; where it is containerd's, the same bytes are judged
    limit = max(intent.components.tools.layers.most, SHARE * sum(layer["size"] for layer in layers))
    files = [[entry for entry in held if entry.type == "file"] for held in saved.layers]
    large = [
        f"layer {number}: {layer['size']}"
        for number, layer in enumerate(layers)
        if layer["size"] > limit and len(files[number]) > 1
    ]
    assert declared.recipe.made_by_others or large == []


@pytest.mark.exact("it may have packages of its own")
def test_setuid_files_are_the_expected_ones(
    saved: Any, host: Any, expected: dict[str, Any], declared: Inputs, intent: Intent
) -> None:
    def names(path: str) -> dict[int, str]:
        rows = [line.split(":") for line in host.file(path).content_string.splitlines()]
        return {int(row[2]): row[0] for row in rows}

    users, groups = names("/etc/passwd"), names("/etc/group")
    found = {
        entry.name: f"{entry.mode:o} {users[entry.uid]}:{groups[entry.gid]}"
        for layer in saved.layers
        for entry in layer
        if entry.type == "file" and entry.mode & 0o6000
    }
    parts = {intent.components.bases[declared.variant.base].suite, *declared.pins}
    assert found == {
        path: mode for part, files in expected["setuid"].items() if part in parts for path, mode in files.items()
    }


@pytest.mark.exact("it may have packages of its own")
def test_no_file_capabilities(saved: Any) -> None:
    """The other way to run as somebody else."""
    capable = [entry.name for layer in saved.layers for entry in layer if entry.capable]
    assert capable == []


@pytest.mark.exact("it has files of its own")
def test_nobody_else_can_write(saved: Any) -> None:
    """A file that everybody may write; folders only with the sticky bit, as /tmp."""
    writable = [
        f"{entry.name} {entry.mode:o}"
        for layer in saved.layers
        for entry in layer
        if entry.mode & 0o002 and (entry.type == "file" or (entry.type == "folder" and not entry.mode & 0o1000))
    ]
    assert writable == []
