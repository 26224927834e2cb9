"""`trainwright ci rehearse`: a tiny buildspec in a repository of its own, as CodeBuild would run it; and our own."""

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import yaml

from trainwright import buildspecs, images, inputs, pipelines
from trainwright.errors import ConfigError
from trainwright.matrix import load_intent
from trainwright.outcome import Image

ROOT = Path(__file__).parents[2]
DEFAULT = "pytorch-2.13-cpu-py311-sagemaker"
DIGEST = f"sha256:{'1' * 64}"
OURS = buildspecs.parse((ROOT / "buildspec.yml").read_text(), "buildspec.yml")


def git(folder: Path, *words: str) -> str:
    settings = ["-c", "user.name=A", "-c", "user.email=a@example.com"]
    ended = subprocess.run(["git", *settings, "-C", folder, *words], check=True, capture_output=True, text=True)
    return ended.stdout.strip()


class Project:
    """A repository with a buildspec, and the command in it."""

    def __init__(self, cli: Any, root: Path) -> None:
        self.cli, self.root = cli, root
        (root / "dockerfiles").mkdir(parents=True)
        (root / "dockerfiles/matrix.toml").write_text("")  # what makes it a checkout
        (root / "dockerfiles/ci.toml").write_text((ROOT / "dockerfiles/ci.toml").read_text())
        git(root, "init", "--quiet")

    def commit(self, spec: dict[str, Any]) -> None:
        (self.root / "buildspec.yml").write_text(yaml.safe_dump({"version": 0.2, **spec}, sort_keys=False))
        git(self.root, "add", "--all")
        git(self.root, "commit", "--quiet", "--allow-empty", "--message", "a")

    def rehearse(self, *words: str) -> tuple[int, dict[str, Any], str]:
        ended = self.cli(self.root, "ci", "rehearse", "--json", *words)
        return ended.code, json.loads(ended.out) if ended.out else {}, ended.err

    def run(self, phases: dict[str, Any], *words: str, **also: Any) -> tuple[int, dict[str, Any], str]:
        self.commit({"env": {"shell": "bash"}, "phases": phases, **also})
        return self.rehearse(*words)


@pytest.fixture
def project(cli: Any, tmp_path: Path) -> Project:
    return Project(cli, tmp_path / "checkout")


def states(said: dict[str, Any]) -> dict[str, str]:
    return {row["phase"]: row["state"] for row in said["phases"]}


# --- phases --------------------------------------------------------------------------------------------------------


def test_one_shell_runs_all_phases_in_a_clean_clone(project: Project, tmp_path: Path) -> None:
    """Variables, functions and the folder stay; a file that is not committed is not there."""
    (project.root / "tracked").write_text("x")
    out = tmp_path / "seen"
    project.commit(
        {
            "env": {"shell": "bash", "variables": {"GIVEN": "by buildspec", "OTHER": "own"}},
            "phases": {
                "install": {"commands": ["made=here; f() { echo f; }", "mkdir below && cd below"]},
                "pre_build": {"commands": ['test "$made$(f)" = heref', f"pwd >{out}; ls .. >>{out}"]},
                "build": {"commands": ["cat >text <<X\na b\nX\n", f"cat text >>{out}; echo $GIVEN $OTHER >>{out}"]},
                "post_build": {"commands": [f"echo $CODEBUILD_BUILD_SUCCEEDING >>{out}; cat; unset GIVEN"]},
            },
        }
    )
    (project.root / "untracked").write_text("x")
    code, said, err = project.rehearse("--env", "GIVEN=by the project")
    assert code == 0, err
    folder, *lines = out.read_text().splitlines()
    assert folder.endswith("/src/below")
    assert lines == ["below", "buildspec.yml", "dockerfiles", "tracked", "a b", "by the project own", "1"]
    assert states(said) == dict.fromkeys(("install", "pre_build", "build", "post_build"), "SUCCEEDED")
    assert "not committed, and so not in it: untracked" in err
    assert not Path(folder).exists()


def test_what_codebuild_sets(project: Project, tmp_path: Path) -> None:
    code, said, err = project.run({"build": {"commands": [f"env | grep ^CODEBUILD_ >{tmp_path}/env"]}})
    assert code == 0, err
    env = dict(line.split("=", 1) for line in (tmp_path / "env").read_text().splitlines())
    assert env["CODEBUILD_RESOLVED_SOURCE_VERSION"] == said["commit"] == git(project.root, "rev-parse", "HEAD")
    assert env["CODEBUILD_SRC_DIR"].endswith("/src")
    assert env["CODEBUILD_BUILD_SUCCEEDING"] == "1"


@pytest.mark.parametrize(
    ("failing", "after"),
    [
        ("install", {"pre_build": "not run", "build": "not run", "post_build": "not run"}),
        ("pre_build", {"build": "not run", "post_build": "not run"}),
        ("build", {"post_build": "SUCCEEDED"}),
        ("post_build", {}),
    ],
)
def test_a_phase_that_fails(project: Project, tmp_path: Path, failing: str, after: dict[str, str]) -> None:
    """`finally` runs, commands that follow do not; only post_build comes after a build that failed, and knows of it."""
    log = tmp_path / "log"
    phases = {name: {"commands": [f"echo {name} $CODEBUILD_BUILD_SUCCEEDING >>{log}"]} for name in buildspecs.PHASES}
    phases[failing] = {"commands": ["(exit 3)", f"echo no >>{log}"], "finally": [f"echo finally >>{log}"]}
    code, said, err = project.run(phases)
    assert code == 5
    found = states(said)
    assert found[failing] == "FAILED"
    assert {name: found[name] for name in after} == after
    (row,) = [row for row in said["phases"] if row["state"] == "FAILED"]
    assert (row["code"], row["command"]) == (3, "(exit 3)")
    ran = log.read_text().splitlines()
    assert "finally" in ran
    assert "no" not in ran
    assert ran[-1] == ("post_build 0" if failing == "build" else "finally")
    assert f"the build would fail in {failing}" in err


def test_finally_that_fails_fails_its_phase(project: Project) -> None:
    code, said, _ = project.run(
        {"install": {"commands": ["true"], "finally": ["(exit 4)"]}, "build": {"commands": ["true"]}}
    )
    assert code == 5
    assert states(said) == {"install": "FAILED", "build": "not run"}


@pytest.mark.parametrize(("word", "after"), [("ABORT", "not run"), ("CONTINUE", "SUCCEEDED")])
def test_on_failure(project: Project, word: str, after: str) -> None:
    phase = {"commands": ["false"], "on-failure": word}
    for name, follows in (("install", "build"), ("build", "post_build")):
        code, said, _ = project.run({name: phase, follows: {"commands": ["true"]}})
        assert (code, states(said)) == (5, {name: "FAILED", follows: after})


def test_a_command_that_ends_its_shell(project: Project, tmp_path: Path) -> None:
    phases = {
        "build": {"commands": ["exit 7"]},
        "post_build": {"commands": [f"echo $A$CODEBUILD_BUILD_SUCCEEDING >{tmp_path}/a"]},
    }
    code, said, err = project.run(phases, "--env", "A=a")
    assert (code, said["phases"][0]["code"]) == (5, 7)
    assert states(said) == {"build": "FAILED", "post_build": "SUCCEEDED"}
    assert (tmp_path / "a").read_text() == "a0\n"
    assert "ended its shell" in err


@pytest.mark.waits
def test_a_build_that_hangs_is_ended_with_all_it_started(project: Project, tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    code, said, err = project.run({"build": {"commands": [f"sleep 300 & echo $! >{pid}; wait"]}}, "--minutes", "0.02")
    assert code == 5
    assert states(said) == {"build": "FAILED"}
    assert "longer than a build may" in err
    assert not Path(f"/proc/{pid.read_text().strip()}").exists()


@pytest.mark.waits
def test_a_process_in_the_background_keeps_nobody_waiting(project: Project, tmp_path: Path) -> None:
    beside = f"bash -c 'sleep 30 && touch {tmp_path}/over' >/dev/null 2>&1 &"
    code, _, err = project.run({"build": {"commands": [beside, "true"]}})
    assert code == 0, err
    code, said, _ = project.run({"build": {"commands": [f"{beside} exit 7"]}})
    assert (code, said["phases"][0]["code"]) == (5, 7)
    assert not (tmp_path / "over").exists()


@pytest.mark.waits
def test_ctrl_c_leaves_nothing(project: Project, tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    project.commit({"phases": {"build": {"commands": [f"sleep 300 & echo $! >{pid}; pwd >{tmp_path}/folder; wait"]}}})
    words = [sys.executable, "-m", "trainwright.cli", "ci", "rehearse"]
    env = {**os.environ, "PYTHONPATH": str(ROOT / "build")}
    child = subprocess.Popen(words, cwd=project.root, env=env, stderr=subprocess.PIPE, text=True)
    end = time.monotonic() + 30
    while not (pid.exists() and pid.read_text().strip() and (tmp_path / "folder").exists()):
        assert time.monotonic() < end
        time.sleep(0.05)
    child.send_signal(signal.SIGINT)
    assert child.wait(30) == 130
    assert not Path(f"/proc/{pid.read_text().strip()}").exists()
    assert not Path((tmp_path / "folder").read_text().strip()).parent.exists()


# --- what is handed on ---------------------------------------------------------------------------------------------

JUNIT = '<testsuites><testsuite tests="3" failures="1" errors="0" skipped="1"/></testsuites>'


def test_artifacts_reports_and_cache_are_listed(project: Project, tmp_path: Path) -> None:
    (tmp_path / "cache/below").mkdir(parents=True)
    (tmp_path / "cache/below/file").write_bytes(b"12345")
    code, said, err = project.run(
        {"build": {"commands": ["mkdir -p out/a", f"echo '{JUNIT}' >out/a/tests.xml", "echo hi >out/a/image.json"]}},
        "--artifacts",
        str(tmp_path / "kept"),
        artifacts={"files": ["out/*/image.json", "out/*/none.json"]},
        reports={"tests": {"files": ["out/*/tests.xml"]}},
        cache={"paths": [f"{tmp_path}/cache/**/*"]},
    )
    assert code == 0, err
    rows = {row["path"]: (row["kind"], row["files"], row["note"]) for row in said["collected"]}
    assert rows == {
        "out/*/image.json": ("artifact", 1, ""),
        "out/*/none.json": ("artifact", 0, "nothing is there"),
        "tests: out/*/tests.xml": ("report", 1, "3 tests, 1 failures, 0 errors, 1 skipped"),
        f"{tmp_path}/cache/**/*": ("cache", 1, ""),
    }
    assert next(row["bytes"] for row in said["collected"] if row["kind"] == "cache") == 5
    assert (tmp_path / "kept/out/a/image.json").read_text() == "hi\n"


@pytest.mark.parametrize("files", [["missing.json", "*.yml"], ["out/*/none.json"]])
def test_an_artifact_that_is_missing(project: Project, files: list[str]) -> None:
    code, said, err = project.run({"build": {"commands": ["true"]}}, artifacts={"files": files})
    assert code == 5
    assert states(said) == {"build": "SUCCEEDED"}
    assert ("missing.json is not there" if len(files) > 1 else "no artifact is there at all") in err


def test_artifacts_are_collected_after_a_build_that_failed_and_not_before_it(project: Project) -> None:
    also = {"artifacts": {"files": ["buildspec.yml"]}}
    _, said, _ = project.run({"build": {"commands": ["false"]}}, **also)
    assert [row["files"] for row in said["collected"]] == [1]
    _, said, _ = project.run({"install": {"commands": ["false"]}, "build": {"commands": ["true"]}}, **also)
    assert said["collected"] == []


def test_variables_are_exported_or_it_says_which_is_not(project: Project) -> None:
    names = {"env": {"shell": "bash", "exported-variables": ["ONE", "TWO"]}}
    project.commit({**names, "phases": {"build": {"commands": ["export ONE='a b'", "TWO=x"]}}})
    code, said, err = project.rehearse()
    assert (code, said["exported"]) == (5, {"ONE": "a b"})
    assert "TWO is to be exported, and no phase set it" in err


def test_a_variable_of_this_machine_wins_over_the_same_one_of_the_buildspec(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As one of the project would: so does `make rehearse FRAMEWORK=jax` arrive."""
    monkeypatch.setenv("FRAMEWORK", "jax")
    spec = {"env": {"variables": {"FRAMEWORK": "pytorch"}, "exported-variables": ["FRAMEWORK"]}}
    project.commit({**spec, "phases": {"build": {"commands": ["true"]}}})
    assert project.rehearse()[1]["exported"] == {"FRAMEWORK": "jax"}


def test_it_pushes_to_loopback_unless_somebody_says_otherwise(project: Project) -> None:
    spec = {"env": {"variables": {"REGISTRY": "ecr"}, "exported-variables": ["SAW"]}}
    project.commit({**spec, "phases": {"build": {"commands": ['export SAW="<$REGISTRY>"']}}})
    assert project.rehearse()[1]["exported"] == {"SAW": "<>"}
    assert project.rehearse("--registry", "ecr/team")[1]["exported"] == {"SAW": "<ecr/team>"}


def test_secrets_are_not_asked_for(project: Project) -> None:
    project.commit({"env": {"secrets-manager": {"PASSWORD": "a:b"}}, "phases": {"build": {"commands": ["true"]}}})
    code, _, err = project.rehearse()
    assert code == 7
    assert "PASSWORD come from an account" in err
    assert project.rehearse("--env", "PASSWORD=x")[0] == 0


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("version: 0.2\nphases:\n  build:\n    comands: [a]\n", "phases.build"),
        ("version: 0.2\nphases:\n  build: {commands: [a], finaly: [b]}\n", "finaly"),
        ("version: 0.1\nphases: {}\n", "version"),
        ("version: 0.2\nphases:\n  build: {commands: []}\n", "phases.build.commands"),
        ("version: 0.2\nenv: {exported-variables: [AWS_X]}\nphases: {}\n", "env.exported-variables"),
        ("version: 0.2\nphases: {}\nbatch:\n  build-graph:\n    - identifier: a-b\n", "identifier"),
        ("version: 0.2\nphases: {}\nreports: {a: {files: [x], file-format: PDF}}\n", "file-format"),
        ("version: [\n", "not valid YAML"),
    ],
)
def test_what_is_no_buildspec(text: str, says: str) -> None:
    with pytest.raises(ConfigError) as raised:
        buildspecs.parse(text, "buildspec.yml")
    assert says in raised.value.what + raised.value.why
    assert raised.value.where.startswith("buildspec.yml:")


# --- ours ----------------------------------------------------------------------------------------------------------


def test_our_buildspec_only_calls_make() -> None:
    """And takes into its shell what a make goal printed, in a command of its own."""
    goals = set(re.findall(r"^([a-z][a-z-]*):(?!=)", (ROOT / "Makefile").read_text(), re.MULTILINE))
    phases = [phase for name in buildspecs.PHASES if (phase := getattr(OURS.phases, name))]
    commands = [command for phase in phases for command in [*phase.commands, *phase.finally_]]
    for command in commands:
        if command == 'eval "$exports"':
            continue
        make, *words = shlex.split(command.removeprefix("exports=$(").removesuffix(")"))
        assert make == "make"
        assert {word for word in words if not word.startswith("-")} <= goals
    assert commands.index('eval "$exports"') == commands.index("exports=$(make --silent exports)") + 1


def test_our_buildspec_exports_what_the_goal_prints(cli: Any, tree: Path, tmp_path: Path) -> None:
    intent = load_intent(tree)
    (variant,) = [one for one in intent.variants if one.id == DEFAULT]
    ended = cli(tree, "ci", "exports", "--framework", "pytorch")
    assert (ended.code, ended.out) == (7, "")
    assert "make build push ONLY=" in ended.err
    key, digest = inputs.load(intent, variant).key, f"sha256:{'1' * 64}"
    image = Image(id=DEFAULT, key=key, digest=digest, uri=f"localhost:1/a@{digest}")
    images.write_image(images.out_folder(intent, variant), image)
    ended = cli(tree, "ci", "exports", "--framework", "pytorch")
    assert ended.code == 0, ended.err
    seen = subprocess.run(["bash", "-c", f"{ended.out}env"], capture_output=True, text=True, check=True).stdout
    env = dict(line.split("=", 1) for line in seen.splitlines() if "=" in line)
    assert {name: env[name] for name in OURS.env.exported_variables} == {
        "IMAGE_ID": DEFAULT,
        "IMAGE_KEY": key,
        "IMAGE_DIGEST": digest,
        "IMAGE_URI": f"localhost:1/a@{digest}",
    }
    images.write_image(images.out_folder(intent, variant), image.model_copy(update={"key": "0" * 64}))
    assert cli(tree, "ci", "exports", "--framework", "pytorch").code == 7, "of other inputs"


def test_exports_of_nothing_named(cli: Any, tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As make: ONLY, FRAMEWORK; else what was pushed from here, and no id that nobody asked for."""
    for name in ("ONLY", "FRAMEWORK"):
        monkeypatch.delenv(name, raising=False)
    intent = load_intent(tree)
    ended = cli(tree, "ci", "exports")
    assert ended.code == 7
    assert "nothing was pushed from here with its present inputs" in ended.err
    for variant in intent.variants:
        if variant.id in (DEFAULT, "jax-0.12-cpu-py313-ec2", "base-1.0-cpu-py313-ec2"):
            key = inputs.load(intent, variant).key if variant.framework != "base" else "0" * 64
            image = Image(id=variant.id, key=key, digest=DIGEST, uri=f"localhost:1/{variant.id}@{DIGEST}")
            images.write_image(images.out_folder(intent, variant), image)
    for found, environment in {
        f"{DEFAULT} jax-0.12-cpu-py313-ec2": {},
        DEFAULT: {"FRAMEWORK": "pytorch"},
        "jax-0.12-cpu-py313-ec2": {"FRAMEWORK": "pytorch", "ONLY": "jax-0.12-cpu-py313-ec2"},
    }.items():
        with monkeypatch.context() as patch:
            for name, value in environment.items():
                patch.setenv(name, value)
            ended = cli(tree, "ci", "exports", "--json")
        assert ended.code == 0, ended.err
        assert sorted(json.loads(ended.out)["IMAGE_ID"].split()) == sorted(found.split())
        assert ("not base-1.0-cpu-py313-ec2: it was pushed, and then its inputs changed" in ended.err) == (
            not environment
        )


def test_a_failing_goal_is_not_hidden_by_eval(project: Project) -> None:
    commands = [command.replace("make --silent exports", "false") for command in OURS.phases.build.commands[1:]]  # type: ignore[union-attr]
    code, said, _ = project.run({"build": {"commands": commands}})
    assert (code, said["phases"][0]["command"]) == (5, "exports=$(false)")


def test_the_batch_that_we_write_is_one(cli: Any, tree: Path) -> None:
    for words in (["--only", "*"], ["--only", "*-ubuntu-*"]):
        ended = cli(tree, "ci", "codebuild", *words, "--cache", "registry.example.com/cache")
        found = buildspecs.parse(ended.out, "batch.yml")
        assert found.batch
        assert buildspecs.missing(found.batch) == []
    assert found.batch
    assert [task.identifier for task in found.batch.build_graph] == [pipelines.settings(ROOT).codebuild.idle.identifier]
