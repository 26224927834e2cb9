"""Test projects: what is laid over the installed data, what each image is made of, and one error for each bad input."""

import json
import os
import re
import shutil
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from check_jsonschema.builtin_schemas import get_builtin_schema
from ruamel.yaml import YAML

from trainwright import __version__
from trainwright.core import overlay, project, project_files
from trainwright.core.errors import ConfigError, EnvironmentProblem, TrainwrightError
from trainwright.core.toml import line_of
from trainwright.image import inputs
from trainwright.image import key as image_key
from trainwright.lock import lockfile
from trainwright.matrix import overlaid
from trainwright.matrix.matrix import Intent, load_intent

ROOT = Path(__file__).parents[3]
EXAMPLE = ROOT / "docs/examples/project"
TEAM, STOCK = "base-1.0-cpu-py313-ec2-team", "base-1.0-cpu-py313-ec2"
CAUSES, SETTINGS = "dockerfiles/causes/more.toml", "trainwright.toml"
Cli = Callable[..., Any]


@pytest.fixture
def team(tmp_path: Path) -> Path:
    """A project as `init` writes it, without its lock."""
    return Path(shutil.copytree(EXAMPLE, tmp_path / "team"))


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("made")


@pytest.fixture
def locked(cli: Cli, made: Path, tmp_path: Path) -> Path:
    """A project as `init` writes it: made once, and copied, because it has no path of its own in any file."""
    if not (made / "whole").exists():
        ended = cli(made, "init", "whole")
        assert ended.code == 0, ended.err
        assert not [path for path in (made / "whole").rglob("*") if path.is_file() and str(made) in path.read_text()]
        project.tree.cache_clear()
    return Path(shutil.copytree(made / "whole", tmp_path / "whole", symlinks=True))


def add(folder: Path, name: str, text: str) -> None:
    (folder / name).parent.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(text)


def of(folder: Path) -> Intent:
    """The intent of a project now, as a new process reads it."""
    project.tree.cache_clear()
    project._facts.cache_clear()
    return load_intent(project.find(folder))


def refused(folder: Path) -> TrainwrightError:
    with pytest.raises(TrainwrightError) as raised:
        of(folder)
    return project.original(raised.value, folder)


# --- which root ------------------------------------------------------------------------------------------------------


def test_a_checkout_is_its_own_root(tree: Path) -> None:
    (tree / "some").mkdir()
    assert project.find(tree / "some") == tree
    assert project.home(tree) == tree
    assert project.place(tree / "dockerfiles/locks/x.toml") == tree / "dockerfiles/locks/x.toml"


def test_without_a_project_nothing_of_the_installed_data_is_written(tmp_path: Path) -> None:
    root = project.find(tmp_path)
    assert project.home(root) == tmp_path
    assert (root / "out").readlink() == tmp_path / "out"
    with pytest.raises(ConfigError, match="cannot be written here"):
        project.place(root / "dockerfiles/locks/x.toml")
    assert [path.name for path in tmp_path.iterdir() if path.name != "store"] == []


def test_every_part_is_in_the_wheel() -> None:
    import tomllib

    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]["wheel"]
    assert settings["force-include"] == {part: f"trainwright/data/{part}" for part in project.PARTS}
    assert [part for part in project.PARTS if not (ROOT / part).exists()] == []


def test_the_files_of_a_folder_are_listed_in_the_order_of_paths(tmp_path: Path) -> None:
    for name in ("a/z", "a/b/c", "a/b/__pycache__/d", "a-b/e", "f"):
        add(tmp_path, name, "")
    (tmp_path / "a/nothing").symlink_to("nowhere")
    (tmp_path / "a/link").symlink_to("z")
    (tmp_path / "a/folder").symlink_to("../a-b")
    found = ["a/b/c", "a/link", "a/z", "a-b/e", "f"]
    assert list(project.files_of(tmp_path, ["."])) == [(name, tmp_path / name) for name in found]
    assert [name for name, _ in project.files_of(tmp_path, ["f", "a/b", "nowhere"])] == ["f", "a/b/c"]


def test_what_is_written_lies_in_the_project_and_shows_in_the_tree(team: Path) -> None:
    root = project.find(team)
    place = project.place(root / "dockerfiles/locks/new.toml")
    assert place == team / "dockerfiles/locks/new.toml"
    place.write_text("a = 1\n")
    assert (root / "dockerfiles/locks/new.toml").read_text() == "a = 1\n"
    place.unlink()
    before = (ROOT / f"dockerfiles/locks/{STOCK}.toml").read_text()
    add(team, f"dockerfiles/locks/{STOCK}.toml", "mine")
    project.tree.cache_clear()
    assert project.find(team) == root  # written files do not make another tree
    assert (root / f"dockerfiles/locks/{STOCK}.toml").read_text() == "mine"
    assert [row["what"] for row in project.overrides(root)] == [f"the lock {STOCK}.toml"]
    (team / f"dockerfiles/locks/{STOCK}.toml").unlink()
    project.tree.cache_clear()
    assert (project.find(team) / f"dockerfiles/locks/{STOCK}.toml").read_text() == before


# --- keys ------------------------------------------------------------------------------------------------------------


def test_an_image_that_the_project_leaves_alone_keeps_its_key(locked: Path, intent: Intent) -> None:
    """Although all templates are rendered in the sandbox there."""
    found = of(locked)
    for recipe in intent.recipes:
        if not inputs.awaited(recipe) and not recipe.variant.devel:
            assert inputs.load(found.recipe(recipe.id)).key == inputs.load(recipe).key, recipe.id
    assert inputs.load(found.recipe(STOCK)).overlay == ""
    assert inputs.load(found.recipe(TEAM)).overlay != ""


@pytest.mark.parametrize(
    ("name", "text", "moves"),
    [
        ("dockerfiles/rootfs/hello/more", "x", {TEAM}),
        ("dockerfiles/frameworks/jax.j2", '{% extends "frameworks/base.j2" %}', set[str]()),
        (
            "dockerfiles/layers/boto3.j2",
            "{% macro runtime() %}\nRUN true # {{ pins.boto3 }}\n{% endmacro %}\n",
            {TEAM, STOCK},
        ),
        ("dockerfiles/causes/more.toml", "causes = []\n", set[str]()),
        ("tests/image/test_more.py", "", set[str]()),
    ],
)
def test_what_a_file_of_the_project_changes(locked: Path, name: str, text: str, moves: set[str]) -> None:
    before = {one: inputs.load(of(locked).recipe(one)) for one in (TEAM, STOCK)}
    add(locked, name, text)
    after = {one: inputs.load(of(locked).recipe(one)) for one in (TEAM, STOCK)}
    assert {one for one in before if before[one].key != after[one].key} == moves
    assert {one for one in before if before[one].overlay != after[one].overlay} == moves


def test_another_image_of_a_row_leaves_the_first_alone(locked: Path) -> None:
    before, table = inputs.load(of(locked).recipe(TEAM)).key, locked / "dockerfiles/matrix.toml"
    table.write_text(table.read_text().replace('targets = ["ec2"]', 'targets = ["ec2", "sagemaker"]'))
    assert inputs.load(of(locked).recipe(TEAM)).key == before
    assert of(locked).find("base-1.0-cpu-py313-sagemaker-team")


def test_a_checkout_has_no_overlay(intent: Intent, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its keys are those from before there were projects."""
    counted, real = list[str](), image_key.input_key

    def input_key(text: Mapping[str, str], files: Mapping[str, str], *rest: str) -> str:
        counted.extend(files)
        return real(text, files, *rest)

    monkeypatch.setattr(image_key, "input_key", input_key)
    found = inputs.load(intent.recipe(STOCK))
    assert "base" in counted
    assert "overlay" not in counted
    assert (found.overlay, found.overridden) == ("", [])
    assert overlaid.used_by(intent.recipe(STOCK), ()) == {}


RULE = """
[[rules]]
kind = "requires"
a = "python"
a_range = ">=3"
b = "numpy"
b_range = ">=99"
severity = "{}"
rule = "numpy must be of another century"
evidence = "none"
checked_on = 2026-11-26
"""


def test_a_rule_that_is_overridden(cli: Cli, locked: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The installed rule refuses; the project lifts it, and that is said with each image that it would refuse."""
    data = tmp_path / "data"
    for name, path in project.files_of(ROOT):
        project.copy(path, data / name)
    table = data / "dockerfiles/compat.toml"
    table.write_text(table.read_text() + RULE.format("refuse"))
    monkeypatch.setattr(project, "installed", lambda: data)
    with pytest.raises(TrainwrightError, match="requires numpy >=99") as raised:
        inputs.load(of(locked).recipe(TEAM))
    assert raised.value.exit_code == 3
    lifted = (
        RULE.format("warn")
        .replace(">=99", ">=2")
        .replace("kind", 'replaces = "numpy must be of another century"\nkind')
    )
    add(locked, "dockerfiles/compat.toml", lifted)
    (said,) = inputs.load(of(locked).recipe(TEAM)).overridden
    assert said.endswith("numpy must be of another century")
    assert inputs.load(of(locked).recipe(STOCK)).overlay != ""  # made under the override, too
    found = inputs.load(of(locked).recipe(TEAM))
    record = f'''key = "{found.key}"
digest = "sha256:{"0" * 64}"
day = 2026-11-26
overlay = "{found.overlay}"
overridden = [{said!r}]
tests = {{ image = 1 }}
where = {{ architecture = "x86_64", cpus = 1, engine = "28" }}
'''
    add(locked, f"dockerfiles/proofs/{TEAM}.toml", record)
    project.tree.cache_clear()
    ended = cli(locked, "list", "*-team")
    assert " proved with override " in ended.out
    assert "another century" in ended.out
    assert "note: this project overrides rules: numpy must be of another century" in ended.err
    shown = json.loads(cli(locked, "list", "*-team", "--json").out)
    assert shown["images"][0]["overridden"] == [said]
    assert shown["counts"]["proved"] == 1
    assert [row["file"] for row in shown["overrides"]] == ["dockerfiles/compat.toml"]


# --- bad input -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "text", "what", "where"),
    [
        ("dockerfiles/compatt.toml", "", "nothing reads dockerfiles/compatt.toml", "dockerfiles/compatt.toml"),
        ("dockerfiles/layer/x.toml", "", "nothing reads dockerfiles/layer/x.toml", "dockerfiles/layer/x.toml"),
        ("dockerfiles/rootfs/helo/x", "", "nothing reads dockerfiles/rootfs/helo/x", "dockerfiles/rootfs/helo/x"),
        ("dockerfiles/with/x.j2", "", "nothing reads dockerfiles/with/x.j2", "dockerfiles/with/x.j2"),
        ("dockerfiles/layers/boto3.toml", 'licence = "x"\n', "dockerfiles/layers/boto3.toml is not valid", ":1"),
        (CAUSES, '[[causes]]\nid = "driver"\n', "the cause 'driver' is in two files", "more.toml:1 and"),
        ("trainwright.toml", 'trainwright = "soon"\n', "trainwright.toml is not valid", "trainwright.toml:1"),
        (SETTINGS, 'trainwright = ">=0"\noverlays = ["../x"]\n', "the overlay '../x' has '..'", "trainwright.toml:2"),
        (SETTINGS, 'trainwright = ">=0"\noverlays = ["x"]\n', "the overlay 'x' is not there", "trainwright.toml:2"),
        ("trainwright.toml", 'version = "1"\n', "trainwright.toml is not valid", "trainwright.toml:1"),
    ],
)  # fmt: skip
def test_one_error(team: Path, name: str, text: str, what: str, where: str) -> None:
    add(team, name, text)
    error = refused(team)
    assert what in error.what
    assert where in error.where
    assert error.why
    assert error.fix
    assert error.exit_code == 2


def test_another_schema(team: Path) -> None:
    text = (ROOT / "dockerfiles/layers/boto3.toml").read_text()
    add(team, "dockerfiles/layers/boto3.toml", text.replace('position = "toolkit"', 'position = "system"'))
    assert "another schema" in (error := refused(team)).what
    assert error.where.startswith("dockerfiles/layers/boto3.toml:")
    add(team, "dockerfiles/layers/boto3.toml", text.replace("[providers.wheel]", "[providers.other]"))
    assert "lacks the provider 'wheel'" in refused(team).why
    add(team, "dockerfiles/layers/boto3.toml", text + "own = true\n" if text.rstrip().endswith('"') else text)
    add(team, "dockerfiles/layers/boto3.toml", text)
    of(team)


def test_an_error_in_a_merged_file_names_the_teams_line(team: Path) -> None:
    table = team / "dockerfiles/matrix.toml"
    table.write_text(table.read_text().replace('"debian-13"', '"debian-99"'))
    error = refused(team)
    assert "unknown base 'debian-99'" in error.what
    line = table.read_text().splitlines().index('bases = ["debian-99"]') + 1
    assert error.where == f"dockerfiles/matrix.toml:{line}"
    table.write_text(table.read_text().replace('"debian-99"', '"debian-13"').replace('hello = "1.0"', 'helo = "1.0"'))
    assert "names an unknown component" in (error := refused(team)).what
    assert error.where.startswith("dockerfiles/matrix.toml:")
    assert int(error.where.rpartition(":")[2]) <= len(table.read_text().splitlines())


def test_a_row_without_a_key_is_the_teams(team: Path) -> None:
    table = team / "dockerfiles/matrix.toml"
    before = table.read_text()
    lines = before.splitlines()
    table.write_text(
        before + "\n" + before[before.index("[[") :].replace('bases = ["debian-13"]\n', "").replace('"team"', '"more"')
    )
    error = refused(team)
    line = len(lines) + 2
    assert (error.where, error.fix) == (f"dockerfiles/matrix.toml:{line}", f"$EDITOR +{line} dockerfiles/matrix.toml")
    assert error.why == "bases of this row of [[frameworks.base.rows]]: Field required"


def test_each_line_of_a_merged_file_is_found_in_the_installed_one() -> None:
    """The merged file has no comments and other line breaks; what it does not have of a project is cited there."""
    text = (ROOT / "dockerfiles/matrix.toml").read_text()
    merged = overlay.merge("matrix.toml", text, []).text
    lines, found = text.splitlines(), list[int]()
    for number, row in enumerate(merged.splitlines(), 1):
        if row and not row.startswith("#"):
            found.append(line_of(text, overlay.path_at(merged, number)))
            said = row if row.startswith("[") else row.partition(" = ")[0]
            assert said.strip("[]").rpartition(".")[2] in lines[found[-1] - 1], row
    assert len(set(found)) > len(found) / 2
    assert overlay.path_at(merged, 1) == ()


def test_explain_cites_lines_that_people_have(cli: Cli, locked: Path) -> None:
    ended = cli(locked, "explain", TEAM, "--json")
    where = {row["component"]: row["where"] for row in json.loads(ended.out)}
    for name, cited in where.items():
        file, number, installed = re.fullmatch(r"([^:]+):(\d+)( \(installed\))?", cited).groups()  # type: ignore[union-attr]
        assert bool(installed) == (name != "hello")
        line = ((ROOT if installed else locked) / file).read_text().splitlines()[int(number) - 1]
        assert re.search(rf"\b{name} = ", line), (name, cited)
        if name == "libfabric":  # which several stacks pin
            above = (ROOT / file).read_text().splitlines()[: int(number)]
            assert [row for row in above if row.startswith("[")][-1].startswith("[stacks.distro")
    said = cli(locked, "explain", TEAM)
    assert "row of base, matrix.toml:" in said.out
    assert f"(installed): a file below {ROOT}" in said.err


def test_list_names_the_teams_line_of_an_image_in_error(cli: Cli, locked: Path) -> None:
    rules = locked / "dockerfiles/compat.toml"
    rules.write_text(rules.read_text().replace(">=3.11", ">=3.14"))
    project.tree.cache_clear()
    ended = cli(locked, "list", TEAM, "--json")
    assert ended.code == 3
    lines = (locked / "dockerfiles/matrix.toml").read_text().splitlines()
    where = f"dockerfiles/matrix.toml:{next(n for n, line in enumerate(lines, 1) if line.startswith('pins'))}"
    (row,) = json.loads(ended.out)["images"]
    assert (row["state"], row["error"], row["error"]["where"]) == ("error", json.loads(ended.err), where)
    assert f"({where})" in row["reason"]
    number = rules.read_text().splitlines().index("[[rules]]") + 1
    assert f"hello runs on Python 3.11 and newer (dockerfiles/compat.toml:{number})\n" in row["error"]["why"]


def test_a_refusal_by_an_installed_rule_says_that_it_is_installed(cli: Cli, locked: Path) -> None:
    add(
        locked,
        "dockerfiles/matrix.toml",
        (locked / "dockerfiles/matrix.toml")
        .read_text()
        .replace('hello = "1.0"', 'hello = "1.0", tensorflow = "wheel 2.18.0"'),
    )
    project.tree.cache_clear()
    error = json.loads(cli(locked, "plan", TEAM, "--json").err)
    said = re.search(r"\(dockerfiles/compat\.toml:(\d+) \(installed\)\)", error["why"])
    assert error["exit_code"] == 3
    assert said
    rule = "\n".join((ROOT / "dockerfiles/compat.toml").read_text().splitlines()[int(said[1]) - 1 :]).split(
        "[[rules]]"
    )[1]
    assert error["why"].split(" (dockerfiles/")[0] in rule


def test_an_error_about_installed_data_is_mended_in_the_project(team: Path) -> None:
    root = project.find(team)
    for where, fix in (
        ("dockerfiles/matrix.toml:4", "$EDITOR dockerfiles/matrix.toml   # override it there"),
        ("dockerfiles/layers/pip.toml:3", f"install -D -m 644 {ROOT}/dockerfiles/layers/pip.toml dockerfiles/layers/"),
        ("dockerfiles/layers/hello.toml:3", "$EDITOR +3 dockerfiles/layers/hello.toml"),
    ):
        file, _, line = where.partition(":")
        error = ConfigError("x", where=where, why=f"see {where}", fix=f"$EDITOR +{line} {file}")
        assert project.cite(error, root).fix.startswith(fix)
        once = error.where, error.why
        assert (once[0].endswith(" (installed)"), once[1]) == ("hello" not in where, f"see {once[0]}")
        assert project.cite(error, root) is error
        assert (error.where, error.why) == once


def test_an_error_about_installed_data_outside_a_project_names_init(team: Path) -> None:
    """A dockerfiles/matrix.toml that is made by hand would turn the folder into a checkout with one file."""
    where = "dockerfiles/matrix.toml:4"
    error = ConfigError("x", where=where, fix=f"$EDITOR +4 {where.partition(':')[0]}")
    assert project.cite(error, project.find(team.parent)).fix == f"trainwright init DIR, and override {where} there"


def test_two_overlays_that_disagree(team: Path) -> None:
    add(team, SETTINGS, 'trainwright = ">=0"\noverlays = ["company"]\n')
    add(team, "company/dockerfiles/publish.toml", "[transfer]\nworkers = 3\n")
    of(team)
    add(team, "dockerfiles/publish.toml", "[transfer]\nworkers = 5\n")
    error = refused(team)
    assert "two overlays disagree about transfer.workers" in error.what
    assert error.where == "dockerfiles/publish.toml:2 and company/dockerfiles/publish.toml:2"
    add(team, "dockerfiles/publish.toml", "[transfer]\nworkers = 3\n")
    add(team, "company/dockerfiles/layers/hello.j2", "another")
    assert "two overlays disagree about dockerfiles/layers/hello.j2" in refused(team).what


@pytest.mark.parametrize(
    "name", ["dockerfiles/layers/x.j2", "dockerfiles/rootfs/hello/x", "dockerfiles/extra", "tests/image/x.py"]
)
def test_a_link(team: Path, name: str) -> None:
    (team / name).symlink_to("/etc")
    error = refused(team)
    assert error.what == f"{name} is a symbolic link"
    assert error.where == name


def test_a_link_as_the_folder_itself(team: Path) -> None:
    (team / "dockerfiles").rename(team / "real")
    (team / "dockerfiles").symlink_to("real")
    assert refused(team).what == "dockerfiles is a symbolic link"


def test_a_version_that_is_too_old(team: Path) -> None:
    add(team, "trainwright.toml", '# ours\ntrainwright = ">=99"\n')
    error = refused(team)
    assert isinstance(error, EnvironmentProblem)
    assert error.what == f"this project requires trainwright >=99, and {__version__} is installed"
    assert error.where.endswith("trainwright.toml:2")
    assert "pip install --upgrade 'trainwright>=99'" in error.fix


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ('{% include "../../../../etc/passwd" %}', "../../../../etc/passwd"),
        ("{{ ''.__class__.__mro__ }}", "SecurityError"),
        ("{{ [1].append(2) }}", "SecurityError"),
        ("{% for one in range(10000000) %}{% endfor %}", "Range too big"),
    ],
)
def test_a_template_stays_in_its_sandbox(locked: Path, text: str, why: str) -> None:
    layer = locked / "dockerfiles/layers/hello.j2"
    layer.write_text(layer.read_text().replace("LABEL", f"{text}\nLABEL"))
    with pytest.raises(ConfigError) as raised:
        inputs.load(of(locked).recipe(TEAM))
    assert why in f"{raised.value.what} {raised.value.why}"
    assert raised.value.where == "dockerfiles/layers/hello.j2:6"


@pytest.mark.parametrize("folder", [True, False])
def test_an_own_component_without_files(cli: Cli, locked: Path, folder: bool) -> None:
    """Its template would fail in the build, after minutes, at a bind mount."""
    lines = (locked / "dockerfiles/layers/hello.toml").read_text().splitlines()
    number = next(n for n, line in enumerate(lines, 1) if line.startswith("own = true"))
    (locked / "dockerfiles/rootfs/hello/hello").unlink()
    if not folder:
        shutil.rmtree(locked / "dockerfiles/rootfs")
    for words in (("list", TEAM), ("render", TEAM), ("plan", TEAM)):
        project.tree.cache_clear()
        ended = cli(locked, *words, "--json")
        error = json.loads(ended.err)
        assert (ended.code, error["error"]) == (2, f"component 'hello' of {TEAM} has no files")
        assert error["where"] == f"dockerfiles/layers/hello.toml:{number}"
        assert "dockerfiles/rootfs/hello/" in error["fix"]


# --- commands --------------------------------------------------------------------------------------------------------


def test_init_list_plan_render(cli: Cli, locked: Path) -> None:
    rows = json.loads(cli(locked, "list", "*-team", "--json").out)["images"]
    assert [row["id"] for row in rows] == [TEAM]
    assert cli(locked, "lock", "--check", "*-team").code == 0
    ended = cli(locked, "render", "*-team", "--json")
    assert ended.code == 0, ended.err
    assert "/opt/team/bin" in (locked / f"out/{TEAM}/Dockerfile").read_text()
    assert "numpy" in (locked / f"out/{TEAM}/requirements/libraries.txt").read_text()


@pytest.mark.parametrize("ci", ["codebuild", "github", "none"])
def test_init_writes_the_ci_that_was_asked_for(cli: Cli, tmp_path: Path, ci: str) -> None:
    assert cli(tmp_path, "init", "p", "--ci", ci).code == 0
    names = {"codebuild": "buildspec.yml", "github": ".github/workflows/images.yml"}
    assert [kind for kind, name in names.items() if (tmp_path / "p" / name).exists()] == [ci] * (ci != "none")
    assert not (tmp_path / "p/ci").exists()
    assert [path.name for path in tmp_path.glob(".*")] == []


def test_the_pipelines_of_a_project() -> None:
    """GitHub's schema, and goals that the project's Makefile has."""
    phony = re.search(r"^\.PHONY: (.*)$", (EXAMPLE / "Makefile").read_text(), re.MULTILINE)
    assert phony
    workflow = (EXAMPLE / "ci/github/.github/workflows/images.yml").read_text()
    jsonschema.validate(YAML(typ="safe").load(workflow), get_builtin_schema("vendor.github-workflows"))
    assert "uses:" not in workflow  # an action would have to be pinned
    for text in (workflow, (EXAMPLE / "ci/codebuild/buildspec.yml").read_text()):
        lines = re.findall(r"\bmake ((?:[a-z -])+)", re.sub(r"#.*", "", text))
        goals = {word for line in lines for word in line.split() if not word.startswith("-")}
        assert goals
        assert goals <= set(phony[1].split())


def test_a_second_row_is_built_and_checked_without_editing_another_file(cli: Cli, locked: Path) -> None:
    table = locked / "dockerfiles/matrix.toml"
    table.write_text(table.read_text() + "\n" + table.read_text().split("\n\n")[-1].replace('"team"', '"other"'))
    project.tree.cache_clear()
    ids = [row["id"] for row in json.loads(cli(locked, "list", "own", "--json").out)["images"]]
    assert ids == [TEAM, TEAM.replace("-team", "-other")]
    both = cli(locked, "list", "own", "jax-0.12-cpu-py313-ec2", "--json").out
    assert [row["id"] for row in json.loads(both)["images"]] == ["jax-0.12-cpu-py313-ec2", *ids]
    ended = cli(locked, "lock", "--check", "own")
    assert ended.code == 4
    assert all(name in ended.out for name in ids)


@pytest.mark.skipif(shutil.which("make") is None, reason="not run: make is missing")
def test_the_goals_of_a_project_take_its_own_images(locked: Path) -> None:
    def said(*words: str, **environment: str) -> list[str]:
        command = ["make", "-n", "-o", "setup", "-o", ".venv/.complete", *words]
        bare = {"PATH": os.environ["PATH"], **environment}
        done = subprocess.run(command, cwd=locked, check=True, capture_output=True, text=True, env=bare)
        return [line for line in done.stdout.splitlines() if line.startswith(".venv/bin/trainwright")]

    assert said("build", "push") == [".venv/bin/trainwright build --set-up 'own' --push"]
    assert said("test") == [".venv/bin/trainwright test 'own'"]
    (check,) = said("check")
    assert "lock --check 'own' && .venv/bin/trainwright render 'own' && " in check
    assert said("build", ONLY="jax-*") == [".venv/bin/trainwright build --set-up 'jax-*' "]
    assert said("build", "OWN=own jax-*") == [".venv/bin/trainwright build --set-up 'own jax-*' "]
    for path in EXAMPLE.rglob("*"):
        assert not path.is_file() or "*-team" not in path.read_text(), f"{path}: one flavour is fixed"


def test_own_needs_a_row_of_a_project(cli: Cli, tree: Path, locked: Path) -> None:
    ended = cli(tree, "list", "own")
    assert ended.code == 2
    assert "this folder is in no project" in ended.err
    (locked / "dockerfiles/matrix.toml").write_text("")
    (locked / "dockerfiles/compat.toml").unlink()
    shutil.rmtree(locked / "dockerfiles/locks")
    project.tree.cache_clear()
    ended = cli(locked, "list", "own")
    assert ended.code == 2
    assert "the project declares no row" in ended.err


def test_init_into_a_folder_with_something_in_it(cli: Cli, tmp_path: Path) -> None:
    add(tmp_path, "p/mine", "mine")
    ended = cli(tmp_path, "init", "p")
    assert ended.code == 2
    assert "p is not empty" in ended.err
    assert [path.name for path in (tmp_path / "p").iterdir()] == ["mine"]
    assert cli(tmp_path, "init", "p/mine").code == 2


def test_init_here(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "p").mkdir()
    assert cli(tmp_path / "p", "init", ".").code == 0
    assert (tmp_path / "p/trainwright.toml").exists()


def test_what_is_overridden_is_said(cli: Cli, locked: Path) -> None:
    assert "overrides" not in json.loads(cli(locked, "list", "*-team", "--json").out)
    add(locked, "dockerfiles/publish.toml", "[transfer]\nworkers = 3\n")
    project.tree.cache_clear()
    (row,) = json.loads(cli(locked, "list", "*-team", "--json").out)["overrides"]
    assert (row["what"], row["where"]) == ("transfer.workers", "dockerfiles/publish.toml:2")
    project.tree.cache_clear()
    assert "note: this project overrides transfer.workers (was: " in cli(locked, "plan", "*-team").err


def test_a_cause_of_the_team(cli: Cli, locked: Path) -> None:
    add(locked, "job.log", "Traceback (most recent call last):\nFeatureStoreError: no answer from 10.0.0.1\n")
    (row,) = json.loads(cli(locked, "diagnose", "job.log", "--json").out)
    assert row["cause"] == "team-no-features"


def test_git_and_pipelines_in_a_project(cli: Cli, locked: Path) -> None:
    for words in (("changes", "--since", "HEAD"), ("ci", "proofs")):
        ended = cli(locked, *words)
        assert ended.code == 10, ended.err
        assert "is not in a git checkout" in ended.err
    assert cli(locked, "ci", "plan", "--of", "github", "--registry", "127.0.0.1:9", "*-team").code != 1
    assert "trainwright init --ci github DIR" in cli(locked, "ci", "github").err
    commit = ["-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "one"]
    for command in (["init", "-q"], ["add", "."], commit):
        subprocess.run(["git", "-C", locked, *command], check=True, capture_output=True)
    assert json.loads(cli(locked, "changes", "--since", "HEAD", "--json").out) == []
    add(locked, "dockerfiles/rootfs/hello/more", "x")
    project.tree.cache_clear()
    (row,) = json.loads(cli(locked, "changes", "--since", "HEAD", "--json").out)
    assert row["id"] == TEAM
    ended = cli(locked, "update", "--branch", "x")
    assert ended.code == 2
    assert "this command changes a checkout" in ended.err


# --- upgrade ---------------------------------------------------------------------------------------------------------


def test_upgrade(cli: Cli, locked: Path) -> None:
    assert cli(locked, "upgrade").code == 0
    rows = json.loads(cli(locked, "upgrade", "--json").out)
    assert (rows["recorded"], rows["installed"]) == (__version__, __version__)
    assert [(row["id"], row["change"]) for row in rows["images"]] == [(TEAM, "none")]


def test_upgrade_to_a_trainwright_that_changes_keys(
    cli: Cli, locked: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    data = tmp_path / "newer"
    for name, path in project.files_of(ROOT):
        project.copy(path, data / name)
    layer = data / "dockerfiles/layers/openssh.j2"
    layer.write_text(layer.read_text().replace("LABEL", "RUN true\nLABEL"))
    monkeypatch.setattr(project, "installed", lambda: data)
    project.tree.cache_clear()
    ended = cli(locked, "upgrade", "--json")
    assert ended.code == 4
    (row,) = json.loads(ended.out)["images"]
    assert (row["change"], row["why"]) == ("key", "differs: Dockerfile")
    matrix = data / "dockerfiles/matrix.toml"
    matrix.write_text(matrix.read_text().replace('py-spy = "0.4.3"', 'py-spy = "0.4.2"'))
    project.tree.cache_clear()
    ended = cli(locked, "upgrade", "--json")
    assert ended.code == 4
    (row,) = json.loads(ended.out)["images"]
    assert row["change"] == "unknown"
    assert "the lock of" in row["why"]
    assert cli(locked, "upgrade", "--write").code == 4
    matrix.write_text(matrix.read_text().replace('py-spy = "0.4.2"', 'py-spy = "0.4.3"'))
    project.tree.cache_clear()
    assert cli(locked, "upgrade", "--write").code == 0
    assert cli(locked, "upgrade").code == 0


def test_upgrade_without_anything_to_compare_with(cli: Cli, locked: Path, tree: Path) -> None:
    (locked / "trainwright.lock").unlink()
    assert cli(locked, "upgrade").code == 7
    assert cli(tree, "upgrade").code == 2


def test_a_file_of_keys_that_is_damaged(cli: Cli, locked: Path) -> None:
    (locked / "trainwright.lock").write_text("trainwright = 1\n")
    ended = cli(locked, "upgrade")
    assert ended.code == 2
    assert "trainwright.lock:1" in ended.err


def test_settings_are_read(team: Path) -> None:
    assert project_files.settings(team).overlays == []
    assert lockfile.digest({}) != ""
