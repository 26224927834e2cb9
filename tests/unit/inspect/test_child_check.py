"""Test the check of a derived image: each kind of change to its parent is named, with the instruction that made it."""

import json
import subprocess
import sys
from typing import Any

import pytest

from trainwright.core.errors import BuildError
from trainwright.image import inputs, tags
from trainwright.inspect import child_check, verify_child
from trainwright.inspect.child_check import CONSTRAINTS, Look, Row
from trainwright.inspect.verify_child import Verdict
from trainwright.matrix.matrix import Intent, Recipe

NCCL, FABRIC, PLUGIN = (
    "/opt/venv/nccl/libnccl.so.2",
    "/usr/lib/libfabric.so.1.20.0",
    "/opt/aws-ofi-nccl/lib/libnccl-net-ofi.so",
)
PERF = "/opt/nccl-tests/bin/all_reduce_perf"
A, B = "a" * 64, "b" * 64


@pytest.fixture(scope="module")
def declared(intent: Intent) -> dict[str, Any]:
    variant = next(v for v in intent.variants if {"nccl", "nccl-tests", "libfabric"} <= v.pins.keys())
    content: dict[str, Any] = json.loads(inputs.load(Recipe(intent, variant)).text["requirements/declared.json"])
    return content


@pytest.fixture
def answered(declared: dict[str, Any]) -> dict[str, Any]:
    """Return the JSON that parent and child answer; tests change the child's."""

    def library(component: str) -> dict[str, Any]:
        return {"component": component, "sha256": A, "names": []}

    return {
        "own": {
            "declared": json.dumps(declared),
            "constraints": ["torch==1", "numpy==2"],
            "files": {CONSTRAINTS: A, "/opt/trainwright/declared.json": A, "/etc/pip.conf": A},
        },
        "findings": {
            "versions": {name: facts["says"] for name, facts in declared["components"].items()},
            "libnccl": {NCCL: "2.30.7"},
            "mapped": {"torch": [NCCL]},
            "files": {"nccl-tests": {PERF: (A, A)}},
            "python_packages": dict(declared["python"]),
            "packages": dict(declared["packages"]),
        },
        "libraries": {NCCL: library("nccl"), FABRIC: library("libfabric"), PLUGIN: library("aws-ofi-nccl")},
    }


@pytest.fixture
def parent(answered: dict[str, Any]) -> Look:
    return Look.model_validate(answered)


def rows(declared: dict[str, Any], parent: Look, child: dict[str, Any]) -> list[Row]:
    return [
        row for row in child_check.compare(declared, parent, Look.model_validate(child)) if row.state != "unchanged"
    ]


def test_unchanged(declared: dict[str, Any], parent: Look, answered: dict[str, Any]) -> None:
    found = child_check.compare(declared, parent, Look.model_validate(answered))
    assert {row.what for row in found} == declared["components"].keys()
    assert {(row.state, row.refused) for row in found} == {("unchanged", False)}


def test_a_link_that_is_gone_while_its_file_is_there(declared: dict[str, Any], answered: dict[str, Any]) -> None:
    """A process that wants libfabric.so.1 finds none, though the file itself has not changed."""
    answered["libraries"][FABRIC]["names"] = ["libfabric.so.1"]
    before = Look.model_validate(answered)
    answered["libraries"][FABRIC]["names"] = []
    (row,) = rows(declared, before, answered)
    assert (row.what, row.state, row.refused) == ("libfabric", "changed", True)
    assert row.where == "/usr/lib/libfabric.so.1 is gone"
    assert row.traces == ("/usr/lib/libfabric.so.1",)


def test_what_is_added_is_told_and_not_refused(
    declared: dict[str, Any], parent: Look, answered: dict[str, Any]
) -> None:
    answered["findings"]["python_packages"]["einops"] = "0.8"
    answered["findings"]["packages"]["vim"] = "9"
    answered["own"]["constraints"] += ["einops==0.8"]
    answered["own"]["files"][CONSTRAINTS] = B
    answered["own"]["files"]["/opt/trainwright/bin/more"] = B
    assert [(row.state, row.now, row.refused) for row in rows(declared, parent, answered)] == [
        ("added", "einops 0.8", False),
        ("added", "vim 9", False),
    ]


@pytest.mark.parametrize(
    ("path", "value", "what", "state", "where", "refused"),
    [
        (("findings", "versions", "torch"), "0.1", "torch", "changed", "", True),
        (("findings", "versions", "openmpi"), None, "openmpi", "removed", "", True),
        (("findings", "versions", "openssh"), "1", "openssh", "changed", "", False),
        (("findings", "versions", "openssh"), None, "openssh", "removed", "", True),
        (("findings", "versions", "compiler"), None, "compiler", "removed", "", True),
        (("findings", "versions", "python"), None, "python", "removed", "", True),
        (("libraries", NCCL, "sha256"), B, "nccl", "changed", NCCL, True),
        (("libraries", FABRIC), None, "libfabric", "changed", f"{FABRIC} is gone", True),
        (("findings", "mapped", "torch"), [NCCL, "/tmp/libnccl.so"], "nccl", "second copy", "/tmp/libnccl.so", True),
        (("findings", "files", "nccl-tests", PERF), (A, B), "nccl-tests", "changed", PERF, True),
        (("findings", "files", "nccl-tests", PERF), (A, ""), "nccl-tests", "changed", f"{PERF} is gone", True),
        (("findings", "files", "nccl-tests"), None, "nccl-tests", "changed", f"{PERF} is gone", True),
        (("findings", "python_packages", "numpy"), "1", "Python package numpy", "changed", "", True),
        (("findings", "python_packages", "numpy"), None, "Python package numpy", "removed", "", True),
        (("findings", "python_packages", "pip"), "99", "Python package pip", "changed", "", False),
        (("findings", "packages", "libc6"), "9", "package libc6", "changed", "", False),
        (("own", "files", "/etc/pip.conf"), None, "file of trainwright", "removed", "/etc/pip.conf", True),
        (("own", "files", "/opt/trainwright/declared.json"), B, "declaration", "changed", None, True),
    ],
)
def test_one_change(
    declared: dict[str, Any],
    parent: Look,
    answered: dict[str, Any],
    path: tuple[str, ...],
    value: Any,
    what: str,
    state: str,
    where: str | None,
    refused: bool,
) -> None:
    held = answered
    for key in path[:-1]:
        held = held[key]
    if value is None:
        del held[path[-1]]
    else:
        held[path[-1]] = value
    (row,) = rows(declared, parent, answered)
    assert (row.what, row.state, row.refused) == (what, state, refused)
    assert where is None or row.where == where


def test_a_second_copy_on_disk(declared: dict[str, Any], parent: Look, answered: dict[str, Any]) -> None:
    answered["libraries"]["/opt/other/libfabric.so.1"] = {"component": "libfabric", "sha256": A, "names": []}
    (row,) = rows(declared, parent, answered)
    assert (row.what, row.state, row.where, row.refused) == (
        "libfabric",
        "second copy",
        "/opt/other/libfabric.so.1",
        True,
    )


def test_constraints_that_hold_less(declared: dict[str, Any], parent: Look, answered: dict[str, Any]) -> None:
    answered["own"]["constraints"] = ["torch==1"]
    answered["own"]["files"][CONSTRAINTS] = B
    (row,) = rows(declared, parent, answered)
    assert (row.what, row.state, row.refused) == ("constraints", "changed", True)


@pytest.mark.parametrize(
    ("child", "refused", "told"),
    [
        (["1", "2", "3"], False, "all of them, and 1 more"),
        (["1", "2"], False, "all of them, and 0 more"),
        (["1"], True, "1 of them: squashed, or rebased"),
        (["0", "2", "3"], True, "0 of them: squashed, or rebased"),
        (["9"], True, "0 of them: squashed, or rebased"),
    ],
)
def test_layers(child: list[str], refused: bool, told: str) -> None:
    row = child_check.layers(["1", "2"], child)
    assert (row.refused, row.now) == (refused, told)


def test_the_last_instruction_is_to_blame() -> None:
    steps = [("RUN one", ["/opt/x", FABRIC]), ("RUN two", [FABRIC]), ("RUN three", ["/etc/motd"])]
    changed = Row(what="libfabric", state="changed", traces=(FABRIC,))
    package = Row(what="x", state="removed", traces=("*/site-packages/x-*.dist-info*",))
    same = Row(what="nccl", state="unchanged", traces=(FABRIC,))
    assert [row.by for row in child_check.blame([changed, package, same], steps)] == ["RUN two", "", ""]


def test_a_verdict_names_what_is_refused() -> None:
    row = Row(what="openmpi", state="second copy", was="4", now="4", where="/opt/x", by="RUN cp", refused=True)
    facts = {"image": "child", "parent": "p@sha256:0", "id": "own", "key": "k", "checkout": "", "unchanged": False}
    with pytest.raises(BuildError) as raised:
        verify_child.judge(Verdict.model_validate({**facts, "rows": [row]}))
    assert raised.value.what == "child does not carry own unchanged: openmpi has a second copy: /opt/x"
    assert raised.value.where == "RUN cp"
    assert raised.value.fix.startswith("remove that step")
    told = [row, row, row.model_copy(update={"fix": "leave ENTRYPOINT out"})]
    with pytest.raises(BuildError, match="openmpi") as raised:
        verify_child.judge(Verdict.model_validate({**facts, "rows": told}))
    assert raised.value.fix == f"{verify_child.TAKE_OUT}; leave ENTRYPOINT out"
    verify_child.judge(Verdict.model_validate({**facts, "rows": [row.model_copy(update={"refused": False})]}))


def test_a_graft_is_asked_with_the_python_that_holds_its_framework() -> None:
    """Whatever its PATH and its own entrypoint are. The words are those of engine.ask()."""
    start = verify_child.starts({tags.PYTHON_LABEL: sys.executable})
    assert start
    words = [*start, "python", "-c", "import sys; print(sys.executable, *sys.argv[1:])", "a b"]
    said = subprocess.run(words, capture_output=True, text=True, check=True, env={"PATH": "/none"}).stdout
    assert said == f"{sys.executable} a b\n"
    assert verify_child.starts({tags.ID_LABEL: "pytorch-2.13-cpu-py311-ec2"}) is None
