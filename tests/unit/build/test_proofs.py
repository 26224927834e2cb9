"""Test that a proof counts only for the inputs that it was made with, and is recorded only if everything passed."""

import functools
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from commits import git

from trainwright.build import proof_code, proofs, recording
from trainwright.core.errors import NotRunError
from trainwright.image import inputs
from trainwright.image.tags import SHORT
from trainwright.inspect import matrix_page
from trainwright.matrix.matrix import load_intent, select
from trainwright.matrix.records import Check, Drift, Image, Proof, Record, Standing, Where

Edit = Callable[[Path, str, str], None]
Settle = Callable[[Path], None]
Cli = Callable[..., Any]
ID = "pytorch-2.13-cpu-py311-sagemaker"
DIGEST = "sha256:" + "d" * 64
IMAGE = DIGEST  # what was proved is what was pushed

REPORT = """<?xml version="1.0" encoding="utf-8"?><testsuites><testsuite name="pytest" errors="{errors}"
 failures="{failures}" skipped="{skipped}" tests="{tests}" timestamp="{timestamp}"><properties>
<property name="name" value="{name}" /><property name="image" value="{image}" />
<property name="architecture" value="x86_64" /><property name="cpus" value="2" />
<property name="engine" value="28.5.2" />{code}</properties></testsuite></testsuites>"""


@functools.cache  # no test of this module changes what proves
def codes(root: Path) -> dict[str, str]:
    """Return the digests of the code of tests, as the reports name them."""
    recipe = load_intent(root).recipe(ID)
    return {kind: proof_code.digest_of(recipe, kind) for kind in proof_code.kinds(recipe)}


def passed(root: Path, **said: Any) -> Proof:
    probe, tests = (Check(state="passed", code=codes(root)[kind]) for kind in ("probe", "image"))
    return Proof(**{"image": IMAGE, "probe": probe, "tests": tests, **said})


def report(path: Path, **said: Any) -> None:
    usual: dict[str, Any] = {"errors": 0, "failures": 0, "skipped": 0, "tests": 79, "name": "x", "image": IMAGE}
    usual["code"] = "".join(
        f'<property name="code-{kind}" value="{of}" />' for kind, of in codes(path.parents[2]).items()
    )
    path.write_text(REPORT.format(**{**usual, "timestamp": "2026-11-22T01:30:00+02:00", **said}))


def present_key(root: Path) -> str:
    intent = load_intent(root)
    return inputs.load(select(intent, None, ID)[0]).key


@pytest.fixture
def out(tree: Path) -> Path:
    """Make a checkout whose files say that the image is built, probed, tested, pushed and trained with."""
    folder = tree / "out" / ID
    folder.mkdir(parents=True)
    image = Image(id=ID, key=present_key(tree), digest=DIGEST, uri=f"registry/x@{DIGEST}", size=7, proof=passed(tree))
    (folder / "image.json").write_text(image.model_dump_json(by_alias=True))
    report(folder / "tests.xml")
    report(folder / "training.xml", tests=18, name=f"registry/x@{DIGEST}")
    report(folder / "cluster.xml", tests=9, name=f"registry/x@{DIGEST}")
    return folder


def standing(root: Path, identity: str = ID) -> Standing:
    intent = load_intent(root)
    return proofs.standing(select(intent, None, identity)[0])


def test_what_is_recorded_is_proved(tree: Path, out: Path, cli: Cli) -> None:
    assert standing(tree).state == "unproved"
    ended = cli(tree, "record", "--json")
    assert ended.code == 0, ended.err
    (row,) = json.loads(ended.out)
    assert (row["id"], row["state"]) == (ID, "recorded")
    found = standing(tree)
    assert found.state == "proved"
    assert found.record == Record.model_validate(
        {
            "key": present_key(tree),
            "proof": proof_code.digest(load_intent(tree).recipe(ID)),
            "digest": DIGEST,
            "day": "2026-11-21",  # of the tests, in UTC
            "size": 7,
            "tests": {"image": 79, "training": 18, "cluster": 9},
            "where": Where(architecture="x86_64", cpus=2, engine="28.5.2", gpu="no GPU").model_dump(),
        }
    )
    text = (tree / f"dockerfiles/proofs/{ID}.toml").read_text()
    assert str(tree) not in text
    said = json.loads(cli(tree, "list", ID, "--json").out)
    assert said["counts"] == {"proved": 1, "unproved": 0, "blocked": 0, "error": 0, "all": 1}
    assert (said["images"][0]["digest"], said["images"][0]["state"]) == (DIGEST, "proved")


def test_a_proof_is_as_old_as_the_oldest_outcome_that_was_kept(tree: Path, out: Path) -> None:
    """Not of the day on which kept outcomes were written into one more report."""
    path = out / "tests.xml"
    old = ("2026-11-20T09:00:00+00:00", "2026-11-19T23:30:00-02:00", "2026-11-21T00:00:00+00:00")
    rows = "".join(
        f'<testcase><properties><property name="kept" value="{when}" /></properties></testcase>' for when in old
    )
    path.write_text(path.read_text().replace("</testsuite>", f"{rows}</testsuite>"))
    recording.record(select(load_intent(tree), None, ID))
    found = standing(tree).record
    assert found is not None
    assert str(found.day) == "2026-11-20"


@pytest.mark.parametrize(
    ("file", "pattern", "new"),
    [
        ("layers/pip.j2", r"\{% macro runtime\(\) %\}", "{% macro runtime() %}\n# changed"),
        ("frameworks/image.j2", r"^LABEL", "# changed\nLABEL"),
        ("rootfs/common/etc/pip.conf", r"\A", "# changed\n"),
        ("rootfs/sagemaker/train", r"\n\Z", "\n# changed\n"),
    ],
)
def test_another_input_is_another_proof(tree: Path, out: Path, edit: Edit, file: str, pattern: str, new: str) -> None:
    recording.record(select(load_intent(tree), None, ID))
    assert standing(tree).state == "proved"
    edit(tree / "dockerfiles" / file, pattern, new)
    found = standing(tree)
    assert found.state == "unproved"
    assert "was proved on 2026-11-21 with other inputs" in found.reason
    row = matrix_page.row(load_intent(tree).recipe(ID), found)
    assert (row["day"], row["digest"]) == ("", "")
    assert found.record is not None  # when it last was proved is still said


def test_what_changes_no_input_changes_no_proof(tree: Path, out: Path, edit: Edit) -> None:
    recording.record(select(load_intent(tree), None, ID))
    edit(tree / "dockerfiles/layers/openmpi.j2", r"\A", "{# renders to nothing #}\n")
    edit(tree / "dockerfiles/matrix.toml", r"^\[common.pins\]", "# a remark\n[common.pins]")
    assert standing(tree).state == "proved"


def test_one_proof_says_nothing_of_another_image(tree: Path, out: Path) -> None:
    intent = load_intent(tree)
    recording.record(select(intent, None, ID))
    other = ID.replace("sagemaker", "ec2")
    shutil.copy(tree / f"dockerfiles/proofs/{ID}.toml", tree / f"dockerfiles/proofs/{other}.toml")
    assert standing(tree, other).state == "unproved"


def test_stale_and_missing_locks_and_edited_proofs_are_shown(tree: Path, out: Path, edit: Edit, cli: Cli) -> None:
    assert cli(tree, "record", ID).code == 0
    edit(tree / f"dockerfiles/proofs/{ID}.toml", r"^digest = .*", 'digest = "sha256:1"')
    (tree / "dockerfiles/locks/pytorch-2.13-cpu-py311-ec2.toml").unlink()
    ended = cli(tree, "list", "--json")
    assert ended.code == 4  # of the record that is damaged; a lock that is missing is a step of the work
    said = {row["id"]: row for row in json.loads(ended.out)["images"]}
    assert len(said) == len(load_intent(tree).variants)
    assert said[ID]["state"] == "error"
    assert f"proofs/{ID}.toml" in said[ID]["reason"]
    assert (said["pytorch-2.13-cpu-py311-ec2"]["state"], said["pytorch-2.13-cpu-py311-ec2"]["reason"]) == (
        "unproved",
        "the lock pytorch-2.13-cpu-py311-ec2.toml does not exist; trainwright lock pytorch-2.13-cpu-py311-ec2",
    )
    edit(tree / f"dockerfiles/proofs/{ID}.toml", r"^digest = .*", f'digest = "{DIGEST}"')
    edit(tree / "dockerfiles/matrix.toml", r"2\.13\.0", "2.13.1")
    found = standing(tree)
    assert found.record
    assert (found.state, found.reason) == (
        "unproved",
        f"the lock of {ID} is stale; was proved on 2026-11-21 with other inputs (key {found.record.key[:SHORT]}); "
        f"trainwright lock {ID}",
    )
    (row,) = json.loads(cli(tree, "matrix", ID, "--json").out)["images"]
    assert (row["state"], row["day"], row["digest"], row["where"]) == ("unproved", "", "", None)
    assert row["tested"] == "make test"


def test_a_broken_rule_is_an_error_with_its_remedy(tree: Path, edit: Edit, cli: Cli) -> None:
    """Beside the other images: the whole table is printed, and then the error, whose exit code the command has."""
    broken = "pytorch-2.15-cu132-py313-ec2-single-node"
    edit(tree / "dockerfiles/matrix.toml", r'cuda = "13.2.2" \}', 'cuda = "13.2.2", nccl = "wheel 2.29.7" }')
    found = standing(tree, broken)
    assert found.state == "error"
    assert "requires nccl ==2.30.7" in found.reason
    assert "$EDITOR +" in found.reason
    count = len(load_intent(tree).variants)
    ended = cli(tree, "list")
    assert ended.code == 3
    lines = ended.out.splitlines()
    assert len(lines[: lines.index("")] if "" in lines else lines) == count + 1
    assert {line.split()[1] for line in lines if line.startswith(broken)} == {"error"}
    assert f"{count} images: " in ended.err
    assert ", 4 error\n" in ended.err
    assert ended.err.index(", 4 error") < ended.err.index(f"error: {broken}: ")
    ended = cli(tree, "list", "--json")
    errors = [row["error"] for row in json.loads(ended.out)["images"] if row["state"] == "error"]
    assert (ended.code, errors) == (3, json.loads(ended.err)["refusals"])
    assert cli(tree, "list", ID).code == 0
    intent = load_intent(tree)
    rows = [matrix_page.row(recipe, proofs.standing(recipe)) for recipe in intent.recipes]
    assert "- **error**: " in matrix_page.markdown(rows)
    assert 'class="chip error"' in matrix_page.html(rows)


def image_json(out: Path, **changed: Any) -> None:
    held = Image.model_validate_json((out / "image.json").read_text())
    (out / "image.json").write_text(held.model_copy(update=changed).model_dump_json(by_alias=True))


def respell(path: Path, old: str, new: str) -> None:
    assert old in path.read_text()
    path.write_text(path.read_text().replace(old, new))


NOT_TESTED = Proof(image=IMAGE, probe=Check(state="passed"), tests=Check(state="not run"))


Spoil = Callable[[Path], object]
SPOILT: dict[str, tuple[Spoil, str]] = {
    "another key": (lambda out: image_json(out, key="0" * 64), "is not built with its present inputs"),
    "never built": (lambda out: (out / "image.json").unlink(), "is not built with its present inputs"),
    "not tested": (lambda out: image_json(out, proof=NOT_TESTED), "is not probed and tested here"),
    "not probed": (lambda out: image_json(out, proof=None), "is not probed and tested here"),
    "not pushed": (lambda out: image_json(out, digest=None), "is proved, but not pushed"),
    "another probe": (
        lambda out: image_json(out, proof=passed(out.parents[1], probe=Check(state="passed", code="0"))),
        "the code of the probe changed",
    ),
    "other image tests": (
        lambda out: respell(out / "tests.xml", 'code-image" value="', 'code-image" value="0'),
        "the image tests of",
    ),
    "other jobs": (
        lambda out: respell(out / "cluster.xml", 'code-cluster" value="', 'code-cluster" value="0'),
        "the cluster tests of",
    ),
    "drift": (lambda out: image_json(out, drift=[Drift(package="a", locked="1", used="2")]), "other than in the lock"),
    "tests of another": (
        lambda out: report(out / "tests.xml", image="sha256:1"),
        "is about another image",
    ),
    "other bytes": (
        lambda out: image_json(out, proof=passed(out.parents[1], image="sha256:1")),
        "is not the proved one",
    ),
    "no report": (lambda out: (out / "tests.xml").unlink(), "cannot be read"),
    "half a report": (lambda out: (out / "tests.xml").write_text("<"), "cannot be read"),
    "skipped": (lambda out: report(out / "tests.xml", skipped=1), "not every test passed"),
    "failed": (lambda out: report(out / "tests.xml", failures=1), "not every test passed"),
    "no test": (lambda out: report(out / "tests.xml", tests=0), "not every test passed"),
    "another trained": (
        lambda out: report(out / "training.xml", name="registry/x@sha256:1"),
        "not about the pushed image",
    ),
    "training failed": (
        lambda out: report(out / "training.xml", name=f"x@{DIGEST}", errors=1),
        "not every test passed",
    ),
}


@pytest.mark.parametrize("why", SPOILT)
def test_what_is_not_proved_is_not_recorded(tree: Path, out: Path, cli: Cli, why: str) -> None:
    spoil, what = SPOILT[why]
    spoil(out)
    ended = cli(tree, "record", ID, "--json")
    assert ended.code == NotRunError.exit_code, ended.err
    assert what in json.loads(ended.err)["why"]
    assert json.loads(ended.err)["fix"]
    assert json.loads(ended.out)[0]["state"] == "not recorded"
    assert not (tree / f"dockerfiles/proofs/{ID}.toml").exists()


def test_what_is_proved_beside_it_is_recorded(tree: Path, out: Path, cli: Cli) -> None:
    ended = cli(tree, "record", "pytorch-2.13-*-py311-*", "--json")
    assert ended.code == NotRunError.exit_code
    states = {row["id"]: row["state"] for row in json.loads(ended.out)}
    assert states == {ID: "recorded", "pytorch-2.13-cpu-py311-ec2": "not recorded"}


def test_the_drift_of_a_store_does_not_count(
    tree: Path, out: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Another host's store must not make an image unproved here, nor proved."""
    intent = load_intent(tree)
    recording.record(select(intent, None, ID))
    monkeypatch.setenv("TRAINWRIGHT_STORE", str(tmp_path / "drifted"))
    held = inputs.read_distribution(intent, "debian-12")
    newer = {name: {**stanza, "Version": stanza["Version"] + "+x"} for name, stanza in held.locked.items()}
    newer = {name: {**stanza, "SHA256": "a" * 64} for name, stanza in newer.items()}
    inputs.record_drift({"Intent": held.intent, "Date": "Sat, 21 Nov 2026 00:00:00 UTC"}, held.locked, newer)
    recipe = select(intent, None, ID)[0]
    assert inputs.load(recipe).drift
    assert inputs.load(recipe).key != proofs.standing(recipe).key
    assert proofs.standing(recipe).state == "proved"


def test_tests_may_differ_in_what_they_measured(tree: Path, out: Path, cli: Cli) -> None:
    """Jobs of several hosts write their case and seconds into the report of one image."""
    respell(
        out / "cluster.xml",
        "</properties>",
        '<property name="case" value="a" /><property name="case" value="b" /></properties>',
    )
    assert cli(tree, "record", ID).code == 0


def test_a_report_of_training_is_about_one_image(tree: Path, out: Path, cli: Cli) -> None:
    mine = out / "mine.xml"
    report(mine, tests=3, name=f"registry/x@{DIGEST}")
    assert cli(tree, "record", "*", "--training", str(mine)).code == 2
    assert cli(tree, "record", ID, "--training", str(mine)).code == 0
    found = standing(tree).record
    assert found
    assert found.tests == {"image": 79, "training": 3, "cluster": 9}


# --- what CI proves again --------------------------------------------------------------------------------------------

FIELDS: dict[str, tuple[dict[str, Any], str]] = {
    "present": ({}, ""),
    "of before": ({"proof": None}, "does not say which tests and which code proved it"),
    "another proof": (
        {"proof": "0" * 64},
        "its tests or the code that proves it changed since 2026-11-21",
    ),
    "no jobs": ({"tests": {"image": 1, "training": 1}}, "has no cluster tests"),
    "another key": ({"key": "0" * 64}, "was proved on 2026-11-21 with other inputs"),
}


@pytest.mark.parametrize("case", FIELDS)
def test_a_record_counts_for_its_key_and_its_proof(tree: Path, out: Path, cli: Cli, case: str) -> None:
    change, why = FIELDS[case]
    intent = load_intent(tree)
    (recipe,) = select(intent, None, ID)
    recording.record([recipe])
    held = standing(tree).record
    assert held
    proofs.record_path(recipe).write_text(proofs.dump(held.model_copy(update=change)))
    said = proofs.due(recipe, standing(tree))
    assert why in said if why else said == ""
    (row,) = json.loads(cli(tree, "list", ID, "--json").out)["images"]
    assert row["state"] == ("unproved" if case == "another key" else "proved")
    assert why in row["reason"]


def test_one_more_image_in_turn() -> None:
    rows = ["a", "b", "c"]
    assert {proofs.in_turn(rows, f"{number:040x}"[::-1]) for number in range(64)} == set(rows)
    assert proofs.in_turn(rows, "ab" * 20) == proofs.in_turn(rows, "ab" * 20)
    assert proofs.in_turn([], "ab" * 20) == ""


def test_ci_says_what_it_proves_and_what_it_leaves_out(tree: Path, out: Path, cli: Cli, edit: Edit) -> None:
    edit(tree / "dockerfiles/matrix.toml", r"^ci = \[", f'ci = [\n    "{ID}",')
    recording.record(select(load_intent(tree), None, ID))
    git(tree, "init", "--quiet")
    git(tree, "commit", "--quiet", "--allow-empty", "--message=a")
    rows = json.loads(cli(tree, "ci", "proofs", "--json").out)
    assert (rows[-1]["id"], rows[-1]["action"]) == (ID, "prove")  # of one, it is always its turn
    assert rows[-1]["reason"].startswith("chosen in turn by the commit ")
    assert {(row["action"], row["reason"]) for row in rows[:-1]} == {("prove", "no proof of it is recorded")}


def test_an_image_that_is_named_is_the_only_one(tree: Path, cli: Cli) -> None:
    """Named as an argument it is not one of many, of which those without results are left out."""
    assert cli(tree, "record", ID).code == 7
    assert cli(tree, "record").code == 0
    assert "excludes ids" in cli(tree, "test", ID, "--image", "x").err
