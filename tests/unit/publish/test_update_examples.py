"""Test docs/examples/update and scripts/pull-request.sh: schemas, permissions, and their steps against stand-ins."""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import botocore.session
import botocore.validate
import buildspecs
import jsonschema
import pytest
import typer
from check_jsonschema.builtin_schemas import get_builtin_schema
from commits import begin, git
from ruamel.yaml import YAML

from trainwright.commands import options, update
from trainwright.resolve import remote_branch

ROOT = Path(__file__).parents[3]
FOLDER = ROOT / "docs/examples/update"
WORKFLOW = YAML(typ="safe", pure=True).load((FOLDER / "github.yml").read_text())
BUILDSPEC = buildspecs.parse((FOLDER / "buildspec.yml").read_text())
(JOB,) = WORKFLOW["jobs"].values()
PAGE = '# Move numpy\n\n## What moved\n\n| pin | to |\n|---|---|\n| numpy | "2" \\ é |\n'


def shellcheck(text: str) -> None:
    words = [str(Path(sys.executable).parent / "shellcheck"), "--shell=bash", "-"]
    done = subprocess.run(words, input=text, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


def test_the_workflow_is_one_for_github_with_the_least_permissions() -> None:
    jsonschema.validate(WORKFLOW, get_builtin_schema("vendor.github-workflows"))
    assert WORKFLOW["permissions"] == {}
    assert JOB["permissions"] == {"contents": "write", "pull-requests": "write"}
    assert [row["cron"].split()[0] for row in WORKFLOW["on"]["schedule"]] == ["17"]
    for step in JOB["steps"]:
        assert re.fullmatch(r"[^@]+@[0-9a-f]{40}", step.get("uses", f"none@{'0' * 40}")), (
            "an action is pinned by commit"
        )
        assert "${{" not in step.get("run", ""), "what GitHub puts into a script can be a script"
        shellcheck(step.get("run", ""))


def test_the_buildspec_is_one_for_codebuild() -> None:
    for command in BUILDSPEC.commands:
        shellcheck(command)
    assert BUILDSPEC.env.secrets_manager.keys() == {"GH_TOKEN"}
    assert BUILDSPEC.env.git_credential_helper in (True, "yes")


def test_both_use_options_that_exist() -> None:
    command: Any = typer.main.get_command(options.app)
    assert update.update.__name__ in command.commands
    known = {option for one in command.commands["update"].params for option in one.opts}
    texts = [step.get("run", "") for step in JOB["steps"]] + BUILDSPEC.commands
    lines = [line for text in texts for line in text.splitlines() if "trainwright update" in line]
    assert len(lines) == 2
    for line in lines:
        assert set(re.findall(r"--[a-z-]+", line)) <= known


def test_the_schedule_is_what_eventbridge_and_codebuild_take() -> None:
    schedule = json.loads((FOLDER / "schedule.json").read_text())
    session = botocore.session.get_session()

    def problems(service: str, operation: str, said: Any) -> str:
        shape: Any = session.get_service_model(service).operation_model(operation).input_shape
        return str(botocore.validate.ParamValidator().validate(said, shape).generate_report())

    assert problems("scheduler", "CreateSchedule", schedule) == ""
    start = json.loads(schedule["Target"]["Input"])
    # EventBridge writes names with a capital; the API of CodeBuild begins with a small one.
    assert (
        problems("codebuild", "StartBuild", {name[0].lower() + name[1:]: value for name, value in start.items()}) == ""
    )
    assert schedule["Target"]["Arn"] == "arn:aws:scheduler:::aws-sdk:codebuild:startBuild"
    (row,) = json.loads((FOLDER / "schedule-role.json").read_text())["Statement"]
    assert row["Action"] == "codebuild:StartBuild"
    assert row["Resource"].endswith(f":project/{start['ProjectName']}")
    (trust,) = json.loads((FOLDER / "schedule-trust.json").read_text())["Statement"]
    assert (trust["Principal"], "Condition" in trust) == ({"Service": "scheduler.amazonaws.com"}, True)


# --- scripts/pull-request.sh -----------------------------------------------------------------------------------------


class GitHub:
    """A stand-in for GitHub's API of pull requests."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, str, str, Any]] = []
        self.open: list[dict[str, Any]] = []
        self.status = 200
        self.address = ""


@pytest.fixture
def github() -> Iterator[GitHub]:
    held = GitHub()

    class Handler(BaseHTTPRequestHandler):
        def _answer(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            held.asked.append((self.command, self.path, self.headers["Authorization"], json.loads(body or b"null")))
            said = held.open if self.command == "GET" else {"html_url": "https://github.com/you/it/pull/7"}
            content = json.dumps(said if held.status == 200 else {"message": "Resource not accessible"}).encode()
            self.send_response(held.status)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        do_GET = do_POST = do_PATCH = _answer

        def log_message(self, *_: Any) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        held.address = f"http://127.0.0.1:{server.server_port}"
        yield held
        server.shutdown()


def environment(github: GitHub, **more: str) -> dict[str, str]:
    env = {key: value for key, value in os.environ.items() if not key.lower().endswith("_proxy")}
    return {**env, "GITHUB_API_URL": github.address, "GITHUB_REPOSITORY": "you/it", "GH_TOKEN": "token-1", **more}


def request(github: GitHub, *words: str, **more: str) -> subprocess.CompletedProcess[str]:
    if not shutil.which("curl"):
        pytest.skip("not run: no curl")
    command = [str(ROOT / "scripts/pull-request.sh"), *words]
    return subprocess.run(command, env=environment(github, **more), capture_output=True, text=True)


def test_a_pull_request_is_opened_once_and_then_updated(github: GitHub, tmp_path: Path) -> None:
    page = tmp_path / "summary.md"
    page.write_text(PAGE)
    ended = request(github, "trainwright/update", "main", str(page))
    assert (ended.returncode, ended.stdout) == (0, "https://github.com/you/it/pull/7\n"), ended.stderr
    (look, made) = github.asked
    assert look[:3] == ("GET", "/repos/you/it/pulls?state=open&head=you:trainwright/update&base=main", "Bearer token-1")
    text = PAGE.partition("\n")[2].strip()
    assert made[:2] == ("POST", "/repos/you/it/pulls")
    assert made[3] == {"title": "Move numpy", "body": text, "head": "trainwright/update", "base": "main"}
    github.open = [{"number": 7}]
    assert request(github, "trainwright/update", "main", str(page)).returncode == 0
    assert github.asked[-1][:2] == ("PATCH", "/repos/you/it/pulls/7")


def test_a_pull_request_that_github_refuses(github: GitHub, tmp_path: Path) -> None:
    page = tmp_path / "summary.md"
    page.write_text(PAGE)
    github.status = 403
    ended = request(github, "b", "main", str(page))
    assert (ended.returncode, ended.stdout) == (10, "")
    assert "pull-requests: write" in ended.stderr
    assert [line for line in ended.stderr.splitlines() if line.startswith("error:")] == [
        "error: GitHub refused to GET a pull request of you/it"
    ]
    for words, more in (
        (("b", "main"), {}),
        (("b", "main", "nowhere.md"), {}),
        (("b", "main", str(page)), {"GH_TOKEN": ""}),
    ):
        assert request(github, *words, **more).returncode == 2


# --- the steps -------------------------------------------------------------------------------------------------------


def test_the_steps_of_the_workflow(github: GitHub, tmp_path: Path) -> None:
    """With a stand-in for trainwright, whose own part is in tests/unit/resolve/test_remote_branch.py."""
    if not shutil.which("curl"):
        pytest.skip("not run: no curl")
    source = tmp_path / "you/it"
    shutil.copytree(ROOT / "scripts", source / "scripts", ignore=shutil.ignore_patterns("__pycache__"))
    (source / ".venv/bin").mkdir(parents=True)
    stand_in = source / ".venv/bin/trainwright"
    stand_in.write_text(
        '#!/bin/sh\necho "$@" >>../asked\nwhile [ "$1" != --summary ]; do shift; done\ncp ../page "$2"\n'
    )
    stand_in.chmod(0o755)
    (source / "Makefile").write_text("setup:\n\t@true\n")
    commit = begin(source)
    (tmp_path / "page").write_text(PAGE)
    work = tmp_path / "work"
    work.mkdir()
    given = {
        "GITHUB_SERVER_URL": f"file://{tmp_path}",
        "GITHUB_SHA": commit,
        "GITHUB_STEP_SUMMARY": str(tmp_path / "step.md"),
        "RUNNER_TEMP": str(tmp_path),
        "TOKEN": "token-1",
        "BASE": "main",
        **{name: str(value) for name, value in JOB["env"].items()},
    }
    for step in JOB["steps"]:
        command = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"]]
        done = subprocess.run(command, cwd=work, env=environment(github, **given), capture_output=True, text=True)
        assert done.returncode == 0, (step["name"], done.stderr)
    assert "--branch trainwright/update --push origin" in (tmp_path / "asked").read_text()
    assert (tmp_path / "step.md").read_text() == PAGE
    assert [row[0] for row in github.asked] == ["GET", "POST"]
    assert "token-1" not in (work / ".git/config").read_text()


def test_a_shallow_checkout_pushes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As a workflow has it: one commit, without its history."""
    for name in ("GIT_AUTHOR", "GIT_COMMITTER"):
        monkeypatch.setenv(f"{name}_NAME", "A")
        monkeypatch.setenv(f"{name}_EMAIL", "a@example.com")
    (tmp_path / "one").mkdir()
    (tmp_path / "one/a").write_text("1")
    begin(tmp_path / "one")
    (tmp_path / "one/a").write_text("2")
    git(tmp_path / "one", "commit", "--quiet", "--all", "--message", "second")
    git(tmp_path, "clone", "--quiet", "--bare", str(tmp_path / "one"), "remote.git")
    git(tmp_path, "clone", "--quiet", "--depth=1", f"file://{tmp_path}/remote.git", "shallow")
    shallow = tmp_path / "shallow"
    held = remote_branch.tip(shallow, "origin", "new")
    for text, says in (("3", "pushed"), ("4", "pushed"), ("4", "there already")):
        (shallow / "a").write_text(text)
        git(shallow, "commit", "--quiet", "--all", "--message", f"moved\n\n{remote_branch.MARK}")
        commit = git(shallow, "rev-parse", "HEAD")
        git(shallow, "reset", "--quiet", "--hard", "HEAD^")
        assert remote_branch.push(shallow, "origin", "new", commit, held) == says
        held = remote_branch.tip(shallow, "origin", "new")
