"""Test `trainwright ci` with real keys and a real registry: a pipeline builds the images that `plan` would build."""

import gzip
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import botocore
import buildspecs
import jsonschema
import pytest
import yaml
from check_jsonschema.builtin_schemas import get_builtin_schema
from commits import begin, git
from registries import MANIFEST, Registry, digest_of, serving
from ruamel.yaml import YAML

from trainwright.core.errors import ConfigError
from trainwright.core.toml import parse
from trainwright.docker import engine
from trainwright.image import changes
from trainwright.lock import lockfile
from trainwright.matrix.matrix import Intent, Recipe, load_intent
from trainwright.matrix.model import Lock, Variant
from trainwright.matrix.records import PlanEntry
from trainwright.publish import pipelines

ROOT = Path(__file__).parents[3]
DEFAULT = "pytorch-2.13-cpu-py311-sagemaker"
SETTINGS = pipelines.settings(ROOT)
FIELD = re.compile(r"\$\{\{ [\w.]+ \}\}")  # of GitHub, where it stands for a value


@pytest.fixture
def committed(few: Path) -> Path:
    begin(few)
    return few


@pytest.fixture
def registry() -> Iterator[Registry]:
    with serving() as held:
        yield held


def publish(registry: Registry, rows: list[dict[str, Any]]) -> None:
    """Put a manifest under the tag of each key."""
    content = json.dumps({"mediaType": MANIFEST}).encode()
    for row in rows:
        name = f"trainwright/{row['id'].partition('-')[0]}"
        registry.manifests[name, digest_of(content)] = (content, MANIFEST)
        registry.tags[name, f"{row['id']}-{row['key'][:12]}"] = digest_of(content)


Ask = Callable[..., Any]
KINDS = ("codebuild", "github")  # in one test where each would make the same plans


@pytest.fixture
def ask(cli: Any, registry: Registry) -> Ask:
    def call(root: Path, *words: str) -> Any:
        ended = cli(root, *words, "--registry", registry.address, "--json")
        assert ended.code == 0, ended.err
        return json.loads(ended.out)

    return call


def built(document: dict[str, Any]) -> list[str]:
    """List the images that a plan builds: a batch, or the matrices of a workflow."""
    if "batch" in document:
        tasks = document["batch"]["build-graph"]
        return [task["env"]["variables"]["ONLY"] for task in tasks if "variables" in task["env"]]
    return [row["image"] for level in document.values() for row in level]


def to_build(rows: list[dict[str, Any]]) -> set[str]:
    """Return the images to build, also those that only an engine here holds, because CI does not have them."""
    return {row["id"] for row in rows if row["action"] in ("build", "reuse")}


def move_mpi4py(tree: Path, edit: Any, settle: Any) -> None:
    edit(tree / "dockerfiles/matrix.toml", r'^mpi4py = "4\.1\.2"', 'mpi4py = "4.1.1"')
    for path in (tree / "dockerfiles/locks").glob("*.toml"):
        locked = parse(path.read_text(), Lock, path.name)
        moved = [row.model_copy(update={"version": "4.1.1"} if row.name == "mpi4py" else {}) for row in locked.python]
        entries = lockfile.entries_digest(moved)
        path.write_text(lockfile.dump(locked.model_copy(update={"python": moved, "entries": entries})))
    settle(tree)


# --- the images of a pipeline --------------------------------------------------------------------------------------


def test_a_change_of_one_pin_builds_what_plan_builds(
    ask: Ask, registry: Registry, committed: Path, edit: Any, settle: Any
) -> None:
    """All is published; then a pin that only some images have moves."""
    before = ask(committed, "plan")
    publish(registry, [row for row in before if row["key"]])
    assert to_build(ask(committed, "plan")) == set()
    for kind in KINDS:
        assert built(ask(committed, "ci", "plan", "--of", kind)["document"]) == [], kind

    edit(committed / "dockerfiles/layers/gdrcopy.j2", "RUN ", "RUN true; ")
    planned = to_build(ask(committed, "plan"))
    assert 0 < len(planned) < len(before)
    for kind in KINDS:
        said = ask(committed, "ci", "plan", "--of", kind)
        assert sorted(built(said["document"])) == sorted(planned), kind
        assert {row["id"] for row in said["builds"]} == planned, kind
        assert {row["id"] for row in said["left"]} == {row["id"] for row in before} - planned, kind


def test_a_moved_pin_and_what_was_never_published(
    ask: Ask, registry: Registry, committed: Path, edit: Any, settle: Any
) -> None:
    """Every image has the pin that moves. One is published with the new key already, another one never was."""
    before = ask(committed, "plan", "*-cpu-*")
    publish(registry, [row for row in before if row["id"] != DEFAULT])
    move_mpi4py(committed, edit, settle)
    now = ask(committed, "plan", "*-cpu-*")
    publish(registry, [row for row in now if row["id"] == "base-1.0-cpu-py313-ec2"])
    planned = to_build(ask(committed, "plan", "*-cpu-*"))
    assert DEFAULT in planned
    assert "base-1.0-cpu-py313-ec2" not in planned
    said = ask(committed, "ci", "plan", "--of", "codebuild", "*-cpu-*")
    assert sorted(built(said["document"])) == sorted(planned)


@pytest.mark.parametrize("kind", ["codebuild", "github"])
def test_what_only_this_engine_holds_is_built(
    ask: Ask, committed: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pipeline's builders do not have it, and nobody else would publish it."""
    monkeypatch.setattr(engine, "answers", lambda: True)
    monkeypatch.setattr(engine, "image_id", lambda _: f"sha256:{'1' * 64}")
    (row,) = ask(committed, "plan", DEFAULT)
    assert row["action"] == "reuse"
    said = ask(committed, "ci", "plan", "--of", kind, DEFAULT)
    assert built(said["document"]) == [DEFAULT]
    assert said["left"] == []


def test_since_keeps_what_changed(ask: Ask, registry: Registry, committed: Path, edit: Any) -> None:
    """Nothing is published: the plan builds all, and of these a pipeline since HEAD those that are other ones now."""
    edit(committed / "dockerfiles/layers/gdrcopy.j2", "RUN ", "RUN true; ")
    planned = to_build(ask(committed, "plan"))
    said = ask(committed, "ci", "plan", "--of", "codebuild", "--since", "HEAD")
    changed = {row.id for row in changes.since(load_intent(committed), "HEAD")}
    assert set(built(said["document"])) == planned & changed
    assert 0 < len(planned & changed) < len(planned)
    assert {row["id"] for row in said["left"] if row["action"] == "unchanged"} == planned - changed


def test_blocked_images_are_named_and_not_built(cli: Any, few: Path) -> None:
    said = json.loads(cli(few, "ci", "plan", "--of", "codebuild", "--json").out)
    ended = cli(few, "ci", "plan", "--of", "codebuild")
    blocked = [row["id"] for row in said["left"] if row["action"] == "blocked"]
    assert blocked
    assert not {*blocked} & {*built(said["document"])}
    for name in blocked:
        assert f"#   {name}: " in ended.out
    assert yaml.safe_load(ended.out) == said["document"]
    assert "what is published is unknown" in ended.err


def test_who_names_a_registry_gets_its_error(cli: Any, tree: Path) -> None:
    """All would be built again otherwise, for hours, because of a token that ran out."""
    for words, code in ((("--registry", "ecr"), 9), (("--registry", "127.0.0.1:1"), 8)):
        for kind in ("codebuild", "github"):
            ended = cli(tree, "ci", "plan", "--of", kind, DEFAULT, *words)
            assert (ended.code, ended.out) == (code, "")


def test_without_one_the_registry_is_asked_that_the_builds_push_to(cli: Any, tree: Path) -> None:
    ended = cli(tree, "ci", "plan", "--of", "codebuild", DEFAULT)
    assert ended.code == 0
    (note,) = [line for line in ended.out.splitlines() if line.startswith("# what is published is unknown: ")]
    assert "region" in note  # of ECR, which nobody named here; the registry on loopback was not asked
    assert "all is built that is not blocked, and pushed to ecr" in note
    (task,) = yaml.safe_load(ended.out)["batch"]["build-graph"]
    assert task["env"]["variables"]["REGISTRY"] == "ecr"
    assert "The commit is unknown" in ended.out


def test_the_head_says_which_commit_and_keys_it_is_of(ask: Ask, cli: Any, registry: Registry, committed: Path) -> None:
    words = ("ci", "plan", "--of", "codebuild", DEFAULT)
    (build,) = ask(committed, *words)["builds"]
    head = git(committed, "rev-parse", "HEAD")
    out = cli(committed, *words, "--registry", registry.address).out.splitlines()
    assert f"# The keys are computed from commit {head}." in out
    assert f"#   {DEFAULT}: {build['key'][:12]}" in out
    assert any("on loopback" in line for line in out if line.startswith("#"))
    (committed / "dockerfiles/other.toml").touch()
    out = cli(committed, *words, "--registry", registry.address).out.splitlines()
    rest = "uncommitted changes, which the builds will not have: dockerfiles/other.toml."
    assert f"# The keys are computed from commit {head} and from {rest}" in out


def test_a_file_that_cannot_be_written(cli: Any, tree: Path, tmp_path: Path) -> None:
    ended = cli(tree, "ci", "plan", "--of", "codebuild", DEFAULT, "--output", str(tmp_path))
    assert (ended.code, ended.out) == (10, "")
    assert "cannot be written" in ended.err


def test_a_commit_that_is_not_there(cli: Any, committed: Path) -> None:
    ended = cli(committed, "ci", "plan", "--of", "github", "--since", "nowhere")
    assert (ended.code, ended.out) == (2, "")
    assert "does not exist in this checkout" in ended.err


def test_the_file_is_written_whole_and_read_back(cli: Any, tree: Path, tmp_path: Path) -> None:
    file = tmp_path / "batch.yml"
    ended = cli(tree, "ci", "plan", "--of", "codebuild", DEFAULT, "--output", str(file))
    assert (ended.code, ended.out) == (0, "")
    assert built(yaml.safe_load(file.read_text())) == [DEFAULT]
    assert [path.name for path in tmp_path.iterdir() if "batch" in path.name] == ["batch.yml"]


# --- levels --------------------------------------------------------------------------------------------------------


def rows(*names: str) -> list[PlanEntry]:
    return [PlanEntry(id=name, action="build", reason="", key="k") for name in names]


def test_only_what_plan_calls_build_is_built(intent: Intent) -> None:
    """Also of what an engine here holds: it is pushed from here."""
    actions = ("skip", "reuse", "build", "blocked")
    four = intent.recipes[:4]
    plan = [
        row.model_copy(update={"action": action})
        for row, action in zip(rows(*(one.id for one in four)), actions, strict=True)
    ]
    found = pipelines.graph(plan, four)
    assert [build.id for build in found.builds] == [four[2].id]
    assert [row.action for row in found.left] == ["skip", "reuse", "blocked"]


def variant(intent: Intent, name: str, **also: Any) -> Variant:
    (found,) = [one for one in intent.variants if one.id == name]
    return found.model_copy(update=also)


def test_images_of_the_matrix_are_of_one_level(intent: Intent) -> None:
    """None starts from another one: what `parent` would say."""
    assert {one.parent for one in intent.variants} == {""}
    plan = rows(*(one.id for one in intent.variants))
    found = pipelines.graph(plan, intent.recipes)
    assert {build.level for build in found.builds} == {1}


def test_twins_follow_their_image_where_they_share_a_cache(intent: Intent) -> None:
    twin = "pytorch-2.15-cu132-py313-ec2-distro-devel"
    own = twin.removesuffix("-devel")
    both = [intent.recipe(twin), intent.recipe(own)]
    found = pipelines.graph(rows(twin, own), both, shared_cache=True)
    assert [(build.id, build.level, build.needs) for build in found.builds] == [(own, 1, ()), (twin, 2, (own,))]
    alone = pipelines.graph(rows(twin), both, shared_cache=True)
    assert [build.needs for build in alone.builds] == [()], "what is not built cannot be waited for"


def test_what_is_put_on_top_comes_after(intent: Intent) -> None:
    base, names = variant(intent, DEFAULT), [DEFAULT, f"{DEFAULT}-with-a", f"{DEFAULT}-with-b"]
    several = [base, *(base.model_copy(update={"id": name, "parent": DEFAULT}) for name in names[1:])]
    several[2] = several[2].model_copy(update={"parent": names[1]})
    found = pipelines.graph(rows(*reversed(names)), [Recipe(intent, one) for one in several])
    assert [(build.id, build.level) for build in found.builds] == list(zip(names, (1, 2, 3), strict=True))
    batch = pipelines.codebuild(found, SETTINGS.codebuild, {})["batch"]["build-graph"]
    held = {task["identifier"] for task in batch}
    assert all(set(task.get("depend-on", [])) <= held for task in batch)
    assert [len(task.get("depend-on", [])) for task in batch] == [0, 1, 1]
    with pytest.raises(ConfigError, match="is of level 3") as raised:  # no job of the workflow would build it
        pipelines.outputs(found, SETTINGS.github)
    assert raised.value.fix == "levels = 3"


# --- CodeBuild -----------------------------------------------------------------------------------------------------


def graph(count: int = 0, names: tuple[str, ...] = ()) -> pipelines.Graph:
    several = names or tuple(f"x-{number}-cpu-y" for number in range(count))
    return pipelines.Graph([pipelines.Build(name, "k", "amd64", (), 1) for name in several], [])


def test_what_codebuild_knows_as_types() -> None:
    """botocore's model of the service has the words."""
    (path,) = Path(botocore.__file__).parent.glob("data/codebuild/*/service-2.json*")
    shapes = json.loads(gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes())["shapes"]
    said = SETTINGS.codebuild
    assert {machine.type for machine in said.architecture.values()} <= set(shapes["EnvironmentType"]["enum"])
    used = {row.compute_type for row in said.compute} | {said.idle.compute_type}
    assert used <= set(shapes["ComputeType"]["enum"])


def test_each_image_is_built_on_its_architecture(intent: Intent) -> None:
    plan = rows(*(one.id for one in intent.variants))
    found = pipelines.graph(plan, intent.recipes)
    tasks = pipelines.codebuild(found, SETTINGS.codebuild, {"REGISTRY": "ecr"})["batch"]["build-graph"]
    arm = {task["env"]["variables"]["ONLY"] for task in tasks if task["env"]["type"] == "ARM_CONTAINER"}
    assert arm == {one.id for one in intent.variants if "arm64" in one.id}
    assert arm
    assert all(task["env"]["privileged-mode"] is True and task["debug-session"] is False for task in tasks)
    assert all((ROOT / task["buildspec"]).is_file() for task in tasks)
    names = [task["identifier"] for task in tasks]
    assert len(set(names)) == len(names) == len(intent.variants)
    assert all(re.fullmatch(r"[A-Za-z0-9_]{1,128}", name) for name in names)
    runners = pipelines.outputs(found, SETTINGS.github)["level_1"]
    assert {row["image"] for row in runners if "arm" in row["runner"]} == arm


def test_compiling_gets_more_cores() -> None:
    names = ("a-cpu-b", "a-cu132-ec2", "a-cu132-ec2-single-node", "a-cu132-ec2-devel")
    tasks = pipelines.codebuild(graph(names=names), SETTINGS.codebuild, {})["batch"]["build-graph"]
    sizes = [task["env"]["compute-type"].rpartition("_")[2] for task in tasks]
    assert sizes == ["MEDIUM", "LARGE", "MEDIUM", "LARGE"]


def test_a_batch_has_a_limit() -> None:
    most = SETTINGS.codebuild.most_builds
    assert len(pipelines.codebuild(graph(most), SETTINGS.codebuild, {})["batch"]["build-graph"]) == most
    with pytest.raises(ConfigError, match=f"{most + 1} images are to be built, but a batch"):
        pipelines.codebuild(graph(most + 1), SETTINGS.codebuild, {})


def test_ids_that_would_be_one_identifier_and_one_that_is_too_long() -> None:
    with pytest.raises(ConfigError, match="would both have the identifier"):
        pipelines.codebuild(graph(names=("a-1.2-cpu-b", "a-1-2-cpu-b")), SETTINGS.codebuild, {})
    with pytest.raises(ConfigError, match="does not give a valid CodeBuild identifier"):
        pipelines.codebuild(graph(names=("a-cpu-" + "b" * 128,)), SETTINGS.codebuild, {})


def test_nothing_to_build_is_one_build_that_says_so() -> None:
    """CodeBuild starts no batch without a build; this one does not run our buildspec."""
    document = pipelines.codebuild(graph(), SETTINGS.codebuild, {"REGISTRY": "ecr"})
    (task,) = document["batch"]["build-graph"]
    assert task["identifier"] == "nothing_to_build"
    assert "buildspec" not in task
    (command,) = document["phases"]["build"]["commands"]
    ended = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=True)
    assert ended.stdout == "trainwright: no image is to be built\n"
    assert pipelines.outputs(graph(), SETTINGS.github) == {"level_1": [], "level_2": []}


# --- GitHub Actions ------------------------------------------------------------------------------------------------


def test_goals_of_a_workflow_are_there() -> None:
    """And it asks for a token right before each of those that speak with Amazon."""
    goals = re.findall(r"^([a-z][a-z-]*):(?!=)", (ROOT / "Makefile").read_text(), re.MULTILINE)
    job = workflow()["jobs"]["level_1"]
    lines = [line for step in job["steps"] for line in step["run"].splitlines()]
    used = [word for line in lines if line.startswith("make ") for word in line.split("|")[0].split()[1:]]
    assert {word for word in used if not word.startswith("-")} <= set(goals)
    for goal in ("make doctor", "make build", "make push"):
        assert lines[lines.index(goal) - 1] == '[ -z "$REGISTRY" ] || scripts/github-token.sh'


def workflow(*words: str, cache: str = "") -> dict[str, Any]:
    variables = {"REGISTRY": "ecr", **({"TRAINWRIGHT_CACHE": cache} if cache else {})}
    return pipelines.workflow(SETTINGS.github, words, variables)


def test_a_workflow_uses_no_action_and_has_no_more_rights_than_it_needs() -> None:
    document = workflow("--registry=ecr", "--", "*-cpu-*", cache="registry.example.com/cache")
    assert document["permissions"] == {}
    for job in document["jobs"].values():
        assert job["permissions"] == {"contents": "read", "id-token": "write"}
        for step in job["steps"]:
            assert "uses" not in step
            assert "${{" not in step["run"], "what GitHub puts into a script can be a script"
            shellcheck(step["run"])
            values = [*step.get("env", {}).values(), *job["env"].values()]
            assert all(FIELD.search(value) or "{{" not in value for value in values)
    written = pipelines.static(document, "x")
    for reader in (yaml.safe_load, YAML(typ="safe", pure=True).load):
        read = reader(written)
        assert read == document  # "on" is quoted: YAML 1.1 takes a bare one for yes
        jsonschema.validate(read, get_builtin_schema("vendor.github-workflows"))


@cache
def shellcheck(text: str) -> None:
    words = [str(Path(sys.executable).parent / "shellcheck"), "--shell=bash", "-"]
    done = subprocess.run(words, input=text, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


def test_pushes_and_pull_requests_start_it() -> None:
    assert workflow()["on"] == {"push": {"branches": ["main"]}, "pull_request": {}, "workflow_dispatch": {}}


def test_a_level_that_is_longer_than_a_matrix() -> None:
    most = SETTINGS.github.most_jobs
    assert len(pipelines.outputs(graph(most), SETTINGS.github)["level_1"]) == most
    with pytest.raises(ConfigError, match=f"{most + 1} images are to be built, but a matrix has at most {most} jobs"):
        pipelines.outputs(graph(most + 1), SETTINGS.github)


def test_each_level_takes_its_matrix_from_the_plan_and_waits_for_those_before() -> None:
    jobs = workflow(cache="registry.example.com/cache")["jobs"]
    assert [*jobs] == ["plan", "level_1", "level_2"]
    assert jobs["level_2"]["needs"] == ["plan", "level_1"]
    for level in ("level_1", "level_2"):
        job = jobs[level]
        assert jobs["plan"]["outputs"][level] == f"${{{{ steps.plan.outputs.{level} }}}}"
        assert job["strategy"]["matrix"] == {"include": f"${{{{ fromJSON(needs.plan.outputs.{level}) }}}}"}
        assert job["if"] == f"needs.plan.outputs.{level} != '[]'"
        assert job["env"]["REGISTRY"] == "${{ needs.plan.outputs.registry }}"
        assert job["env"]["TRAINWRIGHT_CACHE"] == "${{ needs.plan.outputs.cache }}"
    assert "TRAINWRIGHT_CACHE" not in workflow()["jobs"]["level_1"]["env"]


# --- a run plans at its own commit ---------------------------------------------------------------------------------

PROGRAM = f"""\
#!{sys.executable}
import os, sys
from trainwright import cli
sys.argv = ["trainwright", *sys.argv[1:]]
cli.main()
"""


def checkout_of(tree: Path, folder: Path, *programs: tuple[str, str]) -> dict[str, str]:
    """Give a checkout its program, and PATH stand-ins; return the environment of a step.

    The checkout links to its programs: it may lie in shared memory, from which a container runs none.
    """
    token = ("github-token.sh", f"#!/bin/sh\necho token >>{folder}/asked\n")
    for name, text in [("trainwright", PROGRAM), token, ("make", "#!/bin/sh\n"), *programs]:
        (folder / name).write_text(text)
        (folder / name).chmod(0o755)
    for link in (tree / ".venv/bin/trainwright", tree / "scripts/github-token.sh"):
        link.parent.mkdir(parents=True, exist_ok=True)
        link.unlink(missing_ok=True)
        link.symlink_to(folder / link.name)
    given = {name: value for name, value in os.environ.items() if not name.startswith(("AWS", "CODEBUILD", "GITHUB"))}
    return {**given, "PATH": f"{folder}:{os.environ['PATH']}"}


def test_a_workflow_builds_what_its_commit_needs(
    registry: Registry, committed: Path, tmp_path: Path, ask: Ask, edit: Any
) -> None:
    """The file was written before the change; the plan of the run has it. A pull request asks for no token."""
    base = git(committed, "rev-parse", "HEAD")
    publish(registry, [row for row in ask(committed, "plan", "*-cpu-*") if row["key"]])
    step = workflow(f"--registry={registry.address}", "--", "*-cpu-*")["jobs"]["plan"]["steps"][1]
    edit(committed / "dockerfiles/layers/sagemaker-training.j2", "RUN ", "RUN true; ")
    git(committed, "commit", "--quiet", "--all", "--message", "b")
    rows = ask(committed, "plan", "*-cpu-*")
    planned = to_build(rows)
    assert 0 < len(planned) < len(rows)
    environment = checkout_of(committed, tmp_path)
    words = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"]]
    for name, of, pushed in (("push", "", "ecr"), ("pull-request", base, "")):
        said = {"GITHUB_OUTPUT": f"{tmp_path}/{name}", "BASE": of, "REGISTRY": registry.address}
        (tmp_path / "asked").unlink(missing_ok=True)
        done = subprocess.run(words, cwd=committed, env={**environment, **said}, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        outputs = dict(line.split("=", 1) for line in (tmp_path / name).read_text().splitlines())
        assert {row["image"] for row in json.loads(outputs["level_1"])} == planned, name
        assert (outputs["level_2"], outputs["registry"]) == ("[]", pushed)
        assert (tmp_path / "asked").exists() is (name == "push")


def test_codebuild_s_first_build_starts_a_batch_of_its_commit(
    registry: Registry, committed: Path, tmp_path: Path, ask: Ask, edit: Any
) -> None:
    aws = ("aws", f'#!/bin/sh\nfor word; do echo "$word" >>{tmp_path}/asked; done\n')
    publish(registry, [row for row in ask(committed, "plan", "*-cpu-*") if row["key"]])
    git(committed, "branch", "target")
    edit(committed / "dockerfiles/layers/sagemaker-training.j2", "RUN ", "RUN true; ")
    git(committed, "commit", "--quiet", "--all", "--message", "b")
    git(committed, "remote", "add", "origin", str(committed))
    document = pipelines.first_build(SETTINGS.codebuild, [f"--registry={registry.address}", "--", "*-cpu-*"])
    spec = buildspecs.parse(pipelines.static(document, "x"))
    assert spec.commands[0] == "make setup"
    for command in spec.commands:
        shellcheck(command)
    said = {"CODEBUILD_BUILD_ID": "images:17", "CODEBUILD_RESOLVED_SOURCE_VERSION": "a" * 40}
    environment = {**checkout_of(committed, tmp_path, aws), **said, "CODEBUILD_WEBHOOK_BASE_REF": "refs/heads/target"}
    planned = to_build(ask(committed, "plan", "*-cpu-*"))
    words = ["bash", "-ec", "\n".join(spec.commands)]
    for event in ("", "PUSH", "PULL_REQUEST_UPDATED"):
        (tmp_path / "asked").unlink(missing_ok=True)
        env = {**environment, "CODEBUILD_WEBHOOK_EVENT": event}
        done = subprocess.run(words, cwd=committed, env=env, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        asked = (tmp_path / "asked").read_text()
        assert asked.startswith(f"codebuild\nstart-build-batch\n--project-name\nimages\n--source-version\n{'a' * 40}\n")
        batch = yaml.safe_load(asked.partition("--buildspec-override\n")[2])
        assert set(built(batch)) == planned, event
        registries = {task["env"]["variables"]["REGISTRY"] for task in batch["batch"]["build-graph"]}
        assert registries == {"" if event.startswith("PULL_REQUEST") else registry.address}


def test_the_files_hold_no_snapshot(cli: Any, committed: Path, edit: Any) -> None:
    """The same command writes the same file at another commit."""
    for kind in ("codebuild", "github"):
        before = cli(committed, "ci", kind, "*-cpu-*", "--registry", "ecr", "--region", "us-east-1")
        assert before.code == 0, before.err
        edit(committed / "dockerfiles/layers/sagemaker-training.j2", "RUN ", "RUN true; ")
        assert cli(committed, "ci", kind, "*-cpu-*", "--registry", "ecr", "--region", "us-east-1").out == before.out
        assert "--registry=ecr --region=us-east-1 -- '*-cpu-*'" in before.out
    ended = cli(committed, "ci", "github", "nope")
    assert (ended.code, ended.out) == (2, "")
    assert "unknown pipeline 'gitlab'" in cli(committed, "ci", "plan", "--of", "gitlab").err


def test_the_commit_is_fetched_with_a_token_that_no_argument_shows(tmp_path: Path) -> None:
    """The step, run against a repository on this disk: what git was called with is written down by a git in front."""
    (tmp_path / "them/it").mkdir(parents=True)
    git(tmp_path / "them/it", "init", "--quiet")
    git(tmp_path / "them/it", "commit", "--quiet", "--allow-empty", "--message", "a")
    head = git(tmp_path / "them/it", "rev-parse", "HEAD")
    (tmp_path / "bin").mkdir()
    own = tmp_path / "bin/git"
    own.write_text(f'#!/bin/sh\necho "$@" >>{tmp_path}/words\nexec {shutil.which("git")} "$@"\n')
    own.chmod(0o755)
    (tmp_path / "work").mkdir()
    env = {
        **os.environ,
        "PATH": f"{tmp_path}/bin:{os.environ['PATH']}",
        "TOKEN": "ghs_secret",
        "GITHUB_SERVER_URL": f"file://{tmp_path}",
        "GITHUB_REPOSITORY": "them/it",
        "GITHUB_SHA": head,
    }
    run = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", pipelines.CHECKOUT]
    subprocess.run(run, cwd=tmp_path / "work", env=env, check=True)
    assert git(tmp_path / "work", "rev-parse", "HEAD") == head
    assert "Basic" not in (tmp_path / "words").read_text()
