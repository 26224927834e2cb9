"""Test the matrix page: it hides nothing, its totals are right, and docs/ shows the present intent."""

import json
import re
from collections import Counter
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from trainwright.build import proofs
from trainwright.inspect import matrix_page
from trainwright.matrix.matrix import Intent, Recipe
from trainwright.matrix.model import Pin
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
    """The content of a page's table, and everything that the page would load from elsewhere."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.ids: list[str] = []
        self.elsewhere: list[str] = []
        self.scripts = 0
        self._header = False
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        self._header = self._header or (tag == "th" and given.get("scope") == "row")
        self.scripts += tag == "script"
        if tag in ("link", "img", "iframe") or "src" in given or not (given.get("href") or "#").startswith("#"):
            self.elsewhere.append(tag)

    def handle_data(self, data: str) -> None:
        if self._header and data.strip():
            self.ids.append(data)
            self._header = False


def test_the_page_needs_nothing_else_and_no_script(rows: Rows) -> None:
    text = matrix_page.html(rows)
    page = Page(text)
    assert page.ids == [row["id"] for row in rows]  # in the text itself: nothing is filled in by a script
    assert page.elsewhere == []
    assert not re.search(r"@import|url\(|fetch\(", text)  # an address may stand in a reason, as text
    assert page.scripts == 1
    assert "<form hidden>" in text  # which only the script shows: without it, no filter that does nothing
    body = text.partition("<tbody>")[2]
    for name in matrix_page.FILTERS:
        assert {str(row[name]) for row in rows} - {""} == set(re.findall(rf'data-{name}="([^"]+)"', body))


def test_the_page_can_fail() -> None:
    assert Page('<link href="a.css">').elsewhere
    assert Page('<a href="https://example.invalid">').elsewhere
    assert Page('<script src="x.js"></script>').elsewhere


def test_what_a_person_wrote_is_text(rows: Rows) -> None:
    reason = "<script>alert(1)</script> & more"
    text = matrix_page.html([{**rows[0], "state": "blocked", "reason": reason}])
    assert Page(text).scripts == 1
    assert "&lt;script&gt;alert(1)&lt;/script&gt; &amp; more" in text


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
