"""Test the documentation site without MkDocs: its navigation, and the pages that `make docs` lays out for it."""

import re
import shlex
from pathlib import Path
from types import ModuleType
from typing import Annotated, Any

import pytest
import typer
import yaml
from programs import imported

ROOT = Path(__file__).parents[2]
GENERATED = {"reference.md"}  # besides what lies in docs/ and the root


# Without the tags of Python objects, which only MkDocs makes.
SETTINGS = yaml.safe_load(re.sub(r"!!python\S+", "", (ROOT / "mkdocs.yml").read_text()))


@pytest.fixture(scope="module")
def script() -> ModuleType:
    return imported(ROOT / "scripts/docs_site.py")


@pytest.fixture(scope="module")
def site(script: ModuleType) -> Any:
    site = script.Site(ROOT)
    site.lay_out()
    return site


def pages_of(nav: Any) -> list[str]:
    if isinstance(nav, str):
        return [nav]
    below = nav.values() if isinstance(nav, dict) else nav
    return [page for one in below for page in pages_of(one)]


def missing(named: list[str], held: set[str]) -> list[str]:
    """Return what is wrong with the navigation, as a person who wrote a page has to read it."""
    rows = [
        f"docs/{page} has no line in `nav` of mkdocs.yml: add `- A title: {page}` there, under the tab where a reader "
        "would look for it"
        for page in sorted(held - set(named))
    ]
    rows += [
        f"mkdocs.yml, `nav`: {page} does not exist (any more): remove its line" for page in sorted(set(named) - held)
    ]
    return rows + [f"mkdocs.yml, `nav`: {page} is named twice" for page in sorted(set(named)) if named.count(page) > 1]


def test_the_navigation_names_every_page_and_no_other(site: Any) -> None:
    held = {name for name in (*site.files, *site.copies) if name.endswith((".md", ".html"))} | GENERATED
    named = pages_of(SETTINGS["nav"])
    extra = {name for name in named if name.startswith("files/")}  # a linked file may be a page of its own there
    assert missing(named, {name for name in held if not name.startswith("files/")} | (extra & held)) == []
    docs = {f"docs/{path.name}" for path in (ROOT / "docs").glob("*.md")}
    assert {site.place(ROOT / name) for name in docs} <= set(named)


def test_what_is_wrong_with_the_navigation_is_said() -> None:
    (one,) = missing(["a.md"], {"a.md", "new.md"})
    assert one.startswith("docs/new.md has no line in `nav` of mkdocs.yml: add `- A title: new.md`")
    assert "gone.md does not exist" in missing(["a.md", "gone.md"], {"a.md"})[0]
    assert "a.md is named twice" in missing(["a.md", "a.md"], {"a.md"})[0]


def tree(root: Path, files: dict[str, str]) -> None:
    for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md", "docs/matrix.md", "docs/matrix.html"):
        files.setdefault(name, f"# {name}\n")
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)


def test_links_lead_to_where_the_site_has_the_page(script: ModuleType, tmp_path: Path) -> None:
    page = """# A
[the start](../README.md), [CONTRIBUTING.md](../CONTRIBUTING.md#add), [b.md](b.md#x), [code](../dockerfiles/x.toml),
[folder](../lib), [here](#a), [far](https://example.invalid/a.md), [gone](gone.md), ![picture](p.png),
[table](matrix.md)

```sh
echo [kept](../README.md)
```
| `a \\| b` | [last](b.md) |
"""
    files = {"README.md": "# Start\n[a](docs/a.md)\n", "docs/a.md": page, "docs/b.md": "# The other\n## x\n"}
    tree(tmp_path, files | {"docs/p.png": "", "dockerfiles/x.toml": "a = 1\n", "lib/y.py": "```\n", "lib/z.gz": ""})
    site = script.Site(tmp_path)
    site.lay_out()
    assert site.files["index.md"] == "# Start\n[a](a.md)\n"
    said = site.files["a.md"]
    for link in (
        "[the start](index.md)",
        "[CONTRIBUTING.md](CONTRIBUTING.md#add)",  # the title of that page, which is its name in this tree
        "[The other](b.md#x)",
        "[code](files/dockerfiles/x.toml.md)",
        "[folder](files/lib/index.md)",
        "[here](#a)",
        "[far](https://example.invalid/a.md)",
        "[gone](gone.md)",
        "![picture](p.png)",
        "[table](matrix-table.md)",
        "echo [kept](../README.md)",
        "| `a | b` | [last](b.md) |",
    ):
        assert link in said
    assert "```toml\na = 1\n```\n" in site.files["files/dockerfiles/x.toml.md"]
    assert "\n````python\n```\n````\n" in site.files["files/lib/y.py.md"]  # which a fence in the file does not end
    assert "- [y.py](y.py.md)\n- z.gz\n" in site.files["files/lib/index.md"]
    assert site.copies == {"p.png": tmp_path / "docs/p.png"}


def test_every_link_of_the_checkout_is_found(site: Any) -> None:
    """MkDocs checks them, too; this says it within milliseconds."""
    for name, text in site.files.items():
        if name.endswith(".md"):
            prose = re.sub(r"^ *(`{3,}).*?^ *\1 *$", "", text, flags=re.MULTILINE | re.DOTALL)
            for link in re.findall(r"\]\((?![a-z]+:|#)([^)\s#]+)", prose):
                target = (Path("/") / name).parent.joinpath(link).resolve().relative_to("/").as_posix()
                assert target in {*site.files, *site.copies}, f"{name}: {link}"


def test_every_row_of_a_table_is_in_one(site: Any, script: ModuleType) -> None:
    assert {name: rows for name, text in site.files.items() if (rows := script.raw_rows(text))} == {}


def test_rows_apart_from_their_table_are_found(script: ModuleType) -> None:
    whole = "# A\n\n| a | b |\n|---|:-:|\n| 1 | 2 |\n\n```\n\n| in a block |\n\n```\n\nText | of a sentence.\n"
    assert script.raw_rows(whole) == []
    assert script.raw_rows(whole.replace("| 1 |", "\n| 1 |")) == ["| 1 | 2 |"]
    assert script.raw_rows("| a | b |") == ["| a | b |"]
    assert script.raw_rows("| a | b |\n| 1 | 2 |\n") == ["| a | b |"]


def test_a_site_with_rows_apart_is_not_built(
    script: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tree(tmp_path, {"out/docs/a.md": "# A\n\n| 1 | 2 |\n"})
    monkeypatch.setattr(script, "ROOT", tmp_path)
    monkeypatch.setattr(script, "install", lambda: None)
    monkeypatch.setattr(script, "lay_out", lambda _: None)
    monkeypatch.setattr(script.subprocess, "run", lambda *_, **__: pytest.fail("it was built"))
    with pytest.raises(SystemExit, match=r"out/docs/a\.md: \| 1 \| 2 \|"):
        script.main()


def test_the_matrix_page_leads_back(site: Any, script: ModuleType) -> None:
    assert site.files["matrix.html"].count(script.HOME) == 1


def test_the_reference_has_every_command_and_option(script: ModuleType, registered: dict[str, Any]) -> None:
    text = script.reference(registered)
    for words, command in registered.items():
        part = text.split(f"\n## {words}\n")[1].split("\n## ")[0]
        for one in command.params:
            if one.param_type_name == "option" and not one.hidden and one.name != "help":
                assert max(one.opts, key=len) in part, words


def test_help_is_text_in_the_reference(script: ModuleType) -> None:
    app = typer.Typer()

    @app.command(help="One <two> *three*.")
    def only(name: Annotated[str, typer.Option(help="This|that <b>, `a|b`, [c].", metavar="X|Y")]) -> None: ...

    text = script.reference({"only": typer.main.get_command(app)})
    assert "\nOne \\<two> \\*three\\*.\n" in text
    assert "| `--name X|Y` | This&#124;that \\<b>, `a|b`, \\[c]. \\[required] |" in text


def test_the_build_is_strict(script: ModuleType) -> None:
    """With --quiet MkDocs counts no warnings, and so --strict passed with a broken link."""
    assert "--strict" in script.BUILD
    assert not {"--quiet", "-q"} & set(script.BUILD)
    assert set(SETTINGS["validation"]["nav"].values()) == set(SETTINGS["validation"]["links"].values()) == {"warn"}
    assert {"not_found", "anchors", "unrecognized_links"} <= SETTINGS["validation"]["links"].keys()


def test_nothing_is_loaded_from_elsewhere(script: ModuleType) -> None:
    assert SETTINGS["theme"]["font"] is False
    assert [name for name in SETTINGS["extra"]["polyfills"] if (ROOT / "scripts" / name).exists()] == [
        "iframe-worker.js"
    ]
    for html in (
        '<script src="https://a.invalid/b">',
        "<img alt=x src=//a.invalid>",
        "<link rel=a href='http://a.invalid'>",
    ):
        assert script.ELSEWHERE.search(html), html
    for html in ('<a href="https://a.invalid">', '<script src="a/b.js">', "<link href=a//b.css>"):
        assert not script.ELSEWHERE.search(html), html


def test_every_picture_is_shown_small_and_complete(site: Any) -> None:
    pages = "".join(text for name, text in site.files.items() if name.endswith(".md"))
    for picture in (ROOT / "docs/pictures").iterdir():
        assert f"pictures/{picture.name})" in pages, picture.name
        assert picture.stat().st_size < 200_000, picture.name
        if picture.suffix == ".svg":  # addresses are names of formats, or text
            assert not re.search(r"url\(['\"]?http|href=|@font-face|<script", picture.read_text()), picture.name


def test_pictures_of_terminals_are_of_commands(registered: dict[str, Any]) -> None:
    pictures = imported(ROOT / "scripts/pictures.py")
    for name, command in pictures.TERMINALS.items():
        program, words, *rest = shlex.split(command)
        assert program == "trainwright"
        registered[words].make_context(words, rest)
        assert (ROOT / f"docs/pictures/{name}.svg").exists()
    assert (ROOT / pictures.LOG).exists()
    svg = pictures.terminal("trainwright list", "\x1b[1mid\x1b[0m <state>\n")
    assert "&lt;state&gt;" in svg
    assert not re.search("@font-face|Fira", svg)
    with pytest.raises(ValueError, match="names"):
        pictures.terminal("trainwright list", f"in {ROOT}")


def test_the_lock_of_the_site_agrees_with_that_of_the_checkout() -> None:
    def held(name: str) -> dict[str, str]:
        return dict(re.findall(r"^([\w.-]+)==([^ ;\\]+) \\$", (ROOT / name).read_text(), re.MULTILINE))

    ours, theirs = held("requirements.lock"), held("requirements-docs.lock")
    assert {"mkdocs", "mkdocs-material"} <= theirs.keys()
    assert {name: version for name, version in theirs.items() if ours.get(name, version) != version} == {}
