"""Test which settings a derived image must share with its parent: environment, entrypoint, user."""

import json
from pathlib import Path
from typing import Any

import pytest

from trainwright.inspect import child_check, image_config, verify_child
from trainwright.inspect.child_check import Look, Row

OFI = "/opt/aws-ofi-nccl/lib/libnccl-net-ofi.so"
PATH = "/opt/venv/bin:/usr/bin"
PARENT: dict[str, Any] = {
    "Env": [f"PATH={PATH}", "UV_CONSTRAINT=/opt/trainwright/constraints.txt", "LANG=C.UTF-8"],
    "Entrypoint": ["/opt/trainwright/bin/with-cuda"],
    "User": "",
}
VARIABLES = {"NCCL_NET_PLUGIN": ["{value}", "libnccl-net-{value}.so"]}
DECLARED = {"components": {"aws-ofi-nccl": {"variables": VARIABLES}, "nccl": {"variables": {}}}}
LOOK = Look.model_validate(
    {
        "own": {"declared": "", "constraints": [], "files": {}},
        "findings": {
            **{key: {} for key in ("versions", "libnccl", "mapped", "files", "python_packages", "packages")},
        },
        "libraries": {OFI: {"component": "aws-ofi-nccl", "sha256": "a" * 64, "names": ["libnccl-net.so"]}},
    }
)


def child(*added: str, without: str = "", **other: Any) -> dict[str, Any]:
    """Return the parent's configuration with variables added, changed or removed."""
    names = {line.partition("=")[0] for line in added} | {without}
    return {
        **PARENT,
        "Env": [line for line in PARENT["Env"] if line.partition("=")[0] not in names] + [*added],
        **other,
    }


def rows(config: dict[str, Any], parent: dict[str, Any] | None = None) -> list[Row]:
    return list(image_config.compare(DECLARED, LOOK, parent or PARENT, config))


@pytest.mark.parametrize(
    "config",
    [
        PARENT,
        child("OWN=1", "PYTHONPATH=/app", "NCCL_DEBUG=INFO", Cmd=["mine"], Labels={"a": "b"}),
        child(f"PATH={PATH}:/opt/own/bin"),
        child("NCCL_NET_PLUGIN=ofi"),
        child(f"NCCL_NET_PLUGIN={OFI}"),
        child("NCCL_NET_PLUGIN=libnccl-net.so"),
        child(User="0"),
        child(Entrypoint=["/opt/trainwright/bin/with-cuda", "python"]),
    ],
)
def test_what_is_a_childs_own(config: dict[str, Any]) -> None:
    assert rows(config) == []


@pytest.mark.parametrize(
    ("config", "what", "state", "fix"),
    [
        (child("UV_CONSTRAINT="), "variable UV_CONSTRAINT", "changed", "the parent sets it"),
        (child(without="UV_CONSTRAINT"), "variable UV_CONSTRAINT", "removed", "the parent sets it"),
        (child("LANG=de_DE"), "variable LANG", "changed", "the parent sets it"),
        (child("LANG=C.UTF-8:x"), "variable LANG", "changed", "the parent sets it"),
        (child(f"PATH=/opt/own/bin:{PATH}"), "variable PATH", "changed", "ENV PATH=$PATH:..."),
        (child("PATH=/usr/bin:/opt/venv/bin"), "variable PATH", "changed", "ENV PATH=$PATH:..."),
        (child(f"PATH={PATH}x"), "variable PATH", "changed", "ENV PATH=$PATH:..."),
        (child("PIP_CONFIG_FILE=/dev/null"), "variable PIP_CONFIG_FILE", "changed", "do not set PIP_CONFIG_FILE"),
        (child("PIP_CONSTRAINT="), "variable PIP_CONSTRAINT", "changed", "do not set PIP_CONSTRAINT"),
        (child("LD_PRELOAD=/opt/x.so"), "variable LD_PRELOAD", "changed", "do not set LD_PRELOAD"),
        (child("LD_LIBRARY_PATH=/opt/x"), "variable LD_LIBRARY_PATH", "changed", "do not set LD_LIBRARY_PATH"),
        (
            child("NCCL_NET_PLUGIN=/opt/x.so"),
            "variable NCCL_NET_PLUGIN",
            "changed",
            "aws-ofi-nccl would load another library",
        ),
        (
            child("NCCL_NET_PLUGIN=none"),
            "variable NCCL_NET_PLUGIN",
            "changed",
            "aws-ofi-nccl would load another library",
        ),
        (child(Entrypoint=[]), "entrypoint", "removed", "let it start with /opt/trainwright/bin/with-cuda"),
        (child(Entrypoint=None), "entrypoint", "removed", "leave ENTRYPOINT out"),
        (child(Entrypoint=["sh", "-c", "train"]), "entrypoint", "changed", "leave ENTRYPOINT out"),
        (child(User="1000"), "user", "changed", "end with USER root"),
    ],
)
def test_what_is_refused(config: dict[str, Any], what: str, state: str, fix: str) -> None:
    (row,) = rows(config)
    assert (row.what, row.state, row.refused) == (what, state, True)
    assert fix in row.fix


def test_a_path_that_the_parent_does_not_set_is_set_by_a_child_alone() -> None:
    empty = {**PARENT, "Env": ["CPATH="], "Entrypoint": None}
    assert [row.what for row in rows({**empty, "Env": ["CPATH=:/x"]}, empty)] == ["variable CPATH"]
    assert rows({**empty, "Entrypoint": ["mine"]}, empty) == []


@pytest.mark.parametrize(
    ("steps", "by"),
    [
        (["ENV UV_CONSTRAINT=", "ENV LANG=UV_CONSTRAINT=x", "RUN UV_CONSTRAINT="], "ENV UV_CONSTRAINT="),
        (["ENV A=1 UV_CONSTRAINT=", "ENV MY_UV_CONSTRAINT=1"], "ENV A=1 UV_CONSTRAINT="),
    ],
)
def test_the_instruction_that_did_it(steps: list[str], by: str) -> None:
    found = child_check.blame(rows(child("UV_CONSTRAINT=")), [(step, [step]) for step in steps])
    assert [row.by for row in found] == [by]


@pytest.mark.parametrize("attested", [False, True])
def test_a_saved_image_with_and_without_an_attestation(tmp_path: Path, attested: bool) -> None:
    """A plain `docker build` puts an index around an image; other platforms of it need not be there."""

    def blob(name: str, content: dict[str, Any]) -> str:
        (tmp_path / "blobs/sha256").mkdir(parents=True, exist_ok=True)
        (tmp_path / "blobs/sha256" / name).write_text(json.dumps(content))
        return f"sha256:{name}"

    image = {"config": {"digest": "sha256:c"}, "layers": []}
    own = {"digest": blob("a", image), "platform": {"os": "linux"}}
    proof = {"digest": blob("b", {"layers": []}), "platform": {"os": "unknown"}}
    absent = {"digest": "sha256:none", "platform": {"os": "linux"}}
    index = {"digest": blob("i", {"manifests": [proof, absent, own]})}
    (tmp_path / "index.json").write_text(json.dumps({"manifests": [index if attested else own]}))
    assert verify_child._manifest(tmp_path) == image
