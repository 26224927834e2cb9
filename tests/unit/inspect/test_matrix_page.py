"""Test the matrix page: it hides nothing, its totals are right, and docs/ shows the present intent."""

import json
import re
import shlex
from collections import Counter
from collections.abc import Callable
from html.parser import HTMLParser
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest
from markupsafe import escape

from trainwright.build import proofs
from trainwright.inspect import matrix_page
from trainwright.matrix.matrix import Intent, Recipe
from trainwright.matrix.model import Pin, Row
from trainwright.matrix.records import Standing

Cli = Callable[..., Any]
Edit = Callable[[Path, str, str], None]
ROOT = Path(__file__).parents[3]
Rows = list[dict[str, Any]]


@pytest.fixture(scope="module")
def rows(intent: Intent) -> Rows:
    return [
        matrix_page.row(Recipe(intent, variant), proofs.standing(Recipe(intent, variant)))
        for variant in intent.variants
    ]


@pytest.mark.parametrize(("name", "write"), [("matrix.md", matrix_page.markdown), ("matrix.html", matrix_page.html)])
def test_the_pages_of_docs_are_current(rows: Rows, name: str, write: Callable[[Rows], str]) -> None:
    assert (ROOT / "docs" / name).read_text() == write(rows), f"docs/{name} is stale: make matrix"


def test_states_add_up(rows: Rows, intent: Intent) -> None:
    counts = matrix_page.summary(rows)["counts"]
    assert counts == {
        **dict.fromkeys(matrix_page.STATES, 0),
        **Counter(row["state"] for row in rows),
        "all": len(rows),
    }
    assert [row["id"] for row in rows] == [variant.id for variant in intent.variants]
    assert all(row["reason"] for row in rows)
    reasons = matrix_page.summary(rows)["reasons"]
    assert {state: sum(held.values()) for state, held in reasons.items()} | {"all": len(rows)} == counts


class Page(HTMLParser):
    """The families, chips and panels of a page, its fragments, and everything that it would load from elsewhere."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.chips: list[dict[str, str]] = []
        self.panels: list[str] = []
        self.families = 0
        self.elsewhere: list[str] = []
        self.scripts = 0
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        self.families += (tag, given.get("scope")) == ("th", "row")
        self.scripts += tag == "script"
        if given.get("class", "").startswith("chip "):
            self.chips.append(given)
        if given.get("class") == "panel":
            self.panels.append(given["id"])
        if tag in ("link", "img", "iframe") or "src" in given or not given.get("href", "#").startswith("#"):
            self.elsewhere.append(tag)


def test_the_page_has_a_row_per_family_and_a_chip_and_a_panel_per_image(rows: Rows) -> None:
    text = matrix_page.html(rows)
    page, ids = Page(text), [row["id"] for row in rows]
    assert page.panels == ids  # in the text itself: nothing is filled in by a script
    assert Counter(chip["href"] for chip in page.chips) == Counter(f"#{name}" for name in ids)  # which a link opens
    assert page.families == len({row["id"].rpartition(f"-{row['target']}")[0] for row in rows})
    for row, panel in zip(rows, text.split('<section class="panel"')[1:], strict=True):
        (chip,) = (one for one in page.chips if one["href"] == f"#{row['id']}")
        assert chip["class"] == f"chip {row['state']}"
        assert f"</span> {row['state']}</span>" in panel
        assert row["digest"] in panel
        assert str(escape(row["reason"])) in panel


def test_a_state_is_not_told_by_its_colour_alone(rows: Rows) -> None:
    assert matrix_page.SIGNS.keys() == matrix_page.STATES.keys()
    assert len(set(matrix_page.SIGNS.values())) == len(matrix_page.STATES)
    chips = matrix_page.html(rows).partition("<tbody>")[2].partition("</tbody>")[0]
    for state, sign in matrix_page.SIGNS.items():
        assert chips.count(f'aria-hidden="true">{sign}</span>') == len([row for row in rows if row["state"] == state])
        assert chips.count(f'<span class="unseen">, {state}') == chips.count(f'class="chip {state}"')


def test_the_page_needs_nothing_else_and_no_script(rows: Rows) -> None:
    text = matrix_page.html(rows)
    page = Page(text)
    assert page.elsewhere == []
    assert not re.search(r"@import|url\(|fetch\(", text)  # an address may stand in a reason, as text
    assert page.scripts == 1
    assert "<form hidden>" in text  # which only the script shows: without it, no filter that does nothing
    assert not re.search(r"<button(?![^>]*(hidden|reset))", text)  # nor a button
    for name in matrix_page.FILTERS:
        assert {str(row[name]) for row in rows} - {""} == {chip[f"data-{name}"] for chip in page.chips}


def test_the_page_can_fail() -> None:
    assert Page('<link href="a.css">').elsewhere
    assert Page('<a href="https://example.invalid">').elsewhere
    assert Page('<script src="x.js"></script>').elsewhere


def test_what_a_person_wrote_is_text(rows: Rows) -> None:
    reason = "<script>alert(1)</script> & more"
    text = matrix_page.html([{**rows[0], "state": "blocked", "reason": reason}])
    assert Page(text).scripts == 1
    assert "&lt;script&gt;alert(1)&lt;/script&gt; &amp; more" in text


def test_the_commands_of_a_panel_are_commands(rows: Rows, registered: dict[str, Any]) -> None:
    """Each is parsed as the command line would, with its options and their values."""
    goals = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    used = set[str]()
    for row in rows:
        found = matrix_page.commands(row)
        assert len({text for _, text in found}) == len({purpose for purpose, _ in found}) == len(found)
        for _, text in found:
            assert row["id"] in text
            words = shlex.split(text)
            if words[0] == "make":
                assert set(words[1:-1]) <= set(goals)
                assert words[-1] == f"ONLY={row['id']}"
                continue
            if words[0] == "docker":
                words = shlex.split(text.partition("$(")[2].partition(" |")[0])
            assert words[0] == ".venv/bin/trainwright"
            registered[words[1]].make_context(words[1], words[2:])  # raises for what it does not know
            used.add(words[1])
    assert used == {"uri", "run", "gate", "launch", "emit", "explain", "plan"}


def test_a_blocked_image_is_locked_first_and_only_a_proved_one_is_pulled(rows: Rows) -> None:
    for row in rows:
        texts = [text for _, text in matrix_page.commands(row)]
        assert ("make lock build" in texts[0]) == (row["state"] == "blocked")
        assert any("docker pull" in text for text in texts) == (row["state"] == "proved")


def test_families_keep_frameworks_together_and_the_plain_image_first(rows: Rows) -> None:
    found = matrix_page.families(rows)
    frameworks = [family.framework for family in found]
    assert [one for one, _ in groupby(frameworks)] == list(dict.fromkeys(frameworks))
    (flagship,) = (family for family in found if family.id == "pytorch-2.15-cu132-py313")
    assert (flagship.title, flagship.detail) == ("PyTorch 2.15", "CUDA 13.2 · Python 3.13")
    chips = [matrix_page.label(row) for row in flagship.images if row["target"] == "ec2"]
    assert chips[:4] == ["standard", "devel", "single-node", "single-node-devel"]
    assert "arm64-single-node" in chips


def test_facts_are_those_of_the_record_and_nothing_empty_is_shown(rows: Rows) -> None:
    proved = next(row for row in rows if row["state"] == "proved")
    said = dict(matrix_page.facts(proved)["Proof"])
    assert said["digest"] == proved["digest"]
    assert said["tests passed"].startswith(f"{proved['tests']['image']} image")
    assert said["size"] == f"{proved['size'] / 1e6:,.0f} MB compressed"
    assert {"day", "machine", "key of the inputs"} <= said.keys()
    for row in rows:
        assert all(value for values in matrix_page.facts(row).values() for _, value in values)
        if row["state"] != "proved":
            assert not {"digest", "day", "size"} & dict(matrix_page.facts(row)["Proof"]).keys()


def test_a_table_of_markdown_has_a_row_an_image(rows: Rows) -> None:
    text = matrix_page.markdown(rows)
    lines = [line for line in text.splitlines() if line.startswith("| `")]
    assert [line.split("`")[1] for line in lines] == [row["id"] for row in rows]
    assert {line.count("|") for line in lines} == {len(matrix_page.COLUMNS) + 1}
    for row in rows:
        assert row["state"] == "proved" or f"`{row['id']}`" in text.split(row["reason"], 1)[1]


def test_what_is_not_documented_is_written_beside_the_image(intent: Intent) -> None:
    recipe = intent.recipe("pytorch-2.10-cu128-py311-sagemaker")
    row = matrix_page.row(recipe, Standing(id=recipe.id, state="unproved", reason="never", versions={}))
    (note,) = row["notes"]
    assert note.startswith("not documented: aws-ofi-nccl")
    assert f"## Not documented\n\n- {note}: `{recipe.id}`\n" in matrix_page.markdown([row])
    assert "not documented: aws-ofi-nccl" in matrix_page.html([row])


def test_transport_is_what_the_pins_say(intent: Intent) -> None:
    said = {recipe.id: matrix_page.transport(recipe) for recipe in intent.recipes}
    assert said["pytorch-2.13-cpu-py311-ec2"] == "tcp"
    assert said["pytorch-2.15-cu132-py313-sagemaker"] == "efa"
    assert said["pytorch-2.10-cu128-py311-sagemaker"] == "efa, not documented"
    assert said["pytorch-2.15-cu132-py313-ec2-distro-devel"] == "efa, unsupported"
    assert said["pytorch-2.15-cu132-py313-ec2-single-node"] == "single-node"
    variant = intent.recipe("pytorch-2.13-cpu-py311-ec2").variant
    pins = variant.pins | {"libfabric": Pin(provider="efa-installer", version="")}
    assert matrix_page.transport(Recipe(intent, variant.model_copy(update={"pins": pins}))) == "efa"


# --- the commands ----------------------------------------------------------------------------------------------------


def test_list_by_state_and_instance(cli: Cli, few: Path) -> None:
    everything = json.loads(cli(few, "list", "--json").out)
    for state in matrix_page.STATES:
        found = json.loads(cli(few, "list", "--state", state, "--json").out)
        assert found["counts"]["all"] == found["counts"][state] == everything["counts"][state] == len(found["images"])
    found = json.loads(cli(few, "list", "--instance", "p5.48xlarge", "--json").out)["images"]
    assert found
    assert not [row["id"] for row in found if row["accelerator"] == "cpu"]
    ended = cli(few, "list", "--state", "prooved")
    assert (ended.code, "did you mean 'proved'" in ended.err) == (2, True)
    ended = cli(few, "list", "--instance", "p5.48xlrage")
    assert (ended.code, "p5.48xlarge" in ended.err) == (2, True)


def test_what_a_row_can_say_is_printed_and_in_the_docs(cli: Cli, few: Path) -> None:
    said = json.loads(cli(few, "matrix", "--keys", "--json").out)
    assert [row["key"] for row in said] == list(Row.model_fields)
    assert [row["key"] for row in said if not row["says"]] == []
    assert [row["key"] for row in said if row["required"]] == ["release", "accelerators", "pythons", "targets", "bases"]
    lines = [f"| `{row['key']}` | {'yes' if row['required'] else ''} | {row['says']} |" for row in said]
    assert "\n".join(lines) in (ROOT / "docs/projects.md").read_text()
    assert str(ROOT / "dockerfiles") in cli(few, "matrix", "--keys").err
    scaffold = (ROOT / "docs/examples/project/dockerfiles/matrix.toml").read_text()
    assert "`trainwright matrix --keys`" in scaffold
    assert "docs/" not in scaffold  # which no project has


def test_matrix_writes_pages_and_says_everything(cli: Cli, few: Path) -> None:
    ended = cli(few, "matrix", "--markdown", "a.md", "--html", "b.html")
    assert (ended.code, ended.out) == (0, "")
    assert (few / "a.md").read_text().startswith("# The matrix\n")
    assert (few / "b.html").read_text().startswith("<!doctype html>\n")
    said = json.loads(cli(few, "matrix", "--json").out)
    assert set(matrix_page.COLUMNS) <= set(said["images"][0])
    shown = cli(few, "matrix", "pytorch-2.13-*")
    assert len(shown.out.splitlines()) == 1 + len([row for row in said["images"] if row["release"] == "2.13"])
    assert "unproved" in shown.err


def test_who_tests_what_must_be_in_the_matrix(cli: Cli, tree: Path, edit: Edit) -> None:
    edit(tree / "dockerfiles/matrix.toml", r'^make-test = \["pytorch-2.13', 'make-test = ["pytorch-2.14')
    ended = cli(tree, "list")
    assert (ended.code, ended.out) == (2, "")
    assert "listed in [tested], is not in the matrix" in ended.err
