"""Test how a project's TOML files are merged over installed ones: by key, by row, and with their own lines."""

import tomllib
from pathlib import Path

import pytest

from trainwright.core.errors import ConfigError
from trainwright.core.overlay import Said, by_key, merge
from trainwright.core.toml import line_of

ROOT = Path(__file__).parents[3]
FILES = sorted(
    path for path in (ROOT / "dockerfiles").rglob("*.toml") if by_key(str(path.relative_to(path.parents[1])))
)
RULES = """
[[rules]]
kind = "ban"
a = "nccl"
rule = "one"
severity = "refuse"

[[rules]]
kind = "ban"
a = "cuda"
rule = "two"
severity = "warn"
"""


@pytest.mark.parametrize("path", sorted((ROOT / "dockerfiles").glob("*.toml")), ids=lambda path: path.name)
def test_without_an_overlay_the_values_are_the_same(path: Path) -> None:
    assert tomllib.loads(merge(path.name, path.read_text(), []).text) == tomllib.loads(path.read_text())


def test_which_files_are_merged_by_key() -> None:
    assert by_key("matrix.toml")
    assert by_key("causes/team.toml")
    assert not by_key("layers/numpy.toml")
    assert not by_key("locks/some.toml")


def test_a_key_is_replaced_and_said() -> None:
    made = merge(
        "publish.toml", '[transfer]\nworkers = 4\nchunk = "a"\n', [Said("p.toml", "[transfer]\nworkers = 8\n")]
    )
    assert tomllib.loads(made.text) == {"transfer": {"workers": 8, "chunk": "a"}}
    (entry,) = made.entries
    assert (entry.path, entry.before, entry.where) == (("transfer", "workers"), 4, "p.toml:2")


def test_the_same_value_overrides_nothing() -> None:
    assert merge("publish.toml", "a = 1\n", [Said("p.toml", "a = 1\n")]).entries == []


def test_a_row_is_known_by_its_keys() -> None:
    own = (
        '[[rules]]\nkind = "ban"\na = "cuda"\nrule = "two"\nseverity = "refuse"\n\n[[rules]]\na = "x"\nrule = "three"\n'
    )
    made = merge("compat.toml", RULES, [Said("p.toml", own)])
    rows = tomllib.loads(made.text)["rules"]
    assert [(row["rule"], row.get("severity")) for row in rows] == [
        ("one", "refuse"),
        ("two", "refuse"),
        ("three", None),
    ]
    assert [entry.where for entry in made.entries] == ["p.toml:1", "p.toml:7"]


def test_a_row_can_replace_a_rule_by_its_sentence() -> None:
    own = '[[rules]]\nreplaces = "one"\nkind = "ban"\na = "nccl"\nrule = "only one"\nseverity = "warn"\n'
    rows = tomllib.loads(merge("compat.toml", RULES, [Said("p.toml", own)]).text)["rules"]
    assert [row["rule"] for row in rows] == ["only one", "two"]
    assert "replaces" not in rows[0]


def test_a_rule_that_is_not_there() -> None:
    own = '# mine\n[[rules]]\nreplaces = "onw"\nrule = "only one"\n'
    with pytest.raises(ConfigError, match="replaces a rule that is not there") as raised:
        merge("compat.toml", RULES, [Said("p.toml", own)])
    assert raised.value.where == "p.toml:3"
    assert "one" in raised.value.why


def test_two_overlays_that_disagree() -> None:
    both = [Said("a.toml", "[x]\ny = 1\n"), Said("b.toml", "\n[x]\ny = 2\n")]
    with pytest.raises(ConfigError, match=r"two overlays disagree about x\.y") as raised:
        merge("publish.toml", "", both)
    assert raised.value.where == "b.toml:3 and a.toml:2"
    assert merge("publish.toml", "", [both[0], Said("b.toml", "[x]\ny = 1\nz = 2\n")]).text.count("y = 1") == 1


def test_another_form() -> None:
    with pytest.raises(ConfigError, match="another form") as raised:
        merge("publish.toml", "[transfer]\nworkers = 4\n", [Said("p.toml", "transfer = 4\n")])
    assert "it is a number, and a table there" in raised.value.why


def test_the_lines_of_a_merged_file_name_the_project() -> None:
    """An error about the merged text is shown with the line that the team wrote."""
    installed = (ROOT / "dockerfiles/matrix.toml").read_text()
    own = (ROOT / "docs/examples/project/dockerfiles/matrix.toml").read_text()
    made = merge("matrix.toml", installed, [Said("dockerfiles/matrix.toml", own)])
    rows = tomllib.loads(made.text)["frameworks"]["base"]["rows"]
    line = line_of(made.text, ("frameworks", "base", "rows", len(rows) - 1, "flavour"))
    assert made.text.splitlines()[line - 1] == 'flavour = "team"'
    assert made.origins[line] == ("dockerfiles/matrix.toml", own.splitlines().index('flavour = "team"') + 1)


def test_text_that_is_not_toml() -> None:
    with pytest.raises(ConfigError, match="not valid TOML") as raised:
        merge("publish.toml", "", [Said("p.toml", "a = 1\nb = =\n")])
    assert raised.value.where == "p.toml:2"
