"""Write pipelines of CodeBuild and GitHub Actions, and the plan with which a run of each begins. Pure."""

import json
import re
import shlex
from collections.abc import Collection, Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, NamedTuple

from trainwright.core import yaml_text
from trainwright.core.errors import ConfigError, printable
from trainwright.core.toml import Model, load
from trainwright.image.tags import SHORT
from trainwright.matrix.matrix import Recipe
from trainwright.matrix.records import PlanEntry

FILE = "dockerfiles/ci.toml"


class Machine(Model):
    type: str
    image: str


class Compute(Model):
    only: str
    compute_type: str


class Idle(Model):
    identifier: str
    compute_type: str


class CodeBuild(Model):
    buildspec: str
    batch: str  # the file that the first build writes its plan to
    most_builds: int
    identifier: re.Pattern[str]
    architecture: dict[str, Machine]
    compute: list[Compute]
    idle: Idle


class GitHub(Model):
    most_jobs: int
    levels: int  # that a workflow has jobs for
    branches: list[str]
    audience: str
    timeout_minutes: int
    runners: dict[str, str]


class Settings(Model):
    """The whole of ci.toml."""

    codebuild: CodeBuild
    github: GitHub


class Build(NamedTuple):
    """One image to build; `needs` are images of the same graph that come first, `level` is 1 without any."""

    id: str
    key: str
    architecture: str
    needs: tuple[str, ...]
    level: int


class Left(NamedTuple):
    """One image that is not built, and the reason."""

    id: str
    action: str
    reason: str


class Graph(NamedTuple):
    builds: list[Build]
    left: list[Left]


def settings(root: Path) -> Settings:
    return load(root / FILE, Settings)


def graph(
    rows: Iterable[PlanEntry],
    recipes: Iterable[Recipe],
    changed: Collection[str] | None = None,
    since: str = "",
    shared_cache: bool = False,
) -> Graph:
    """Return exactly what the plan marks `build`; if `changed` is given, only what changed since that commit.

    Because no image of the matrix starts from another one, all are of level 1, with two exceptions: an image on top of
    another one, and, if builds share a cache, a devel twin, which reuses the stages that its image compiled.
    """
    held = {recipe.id: recipe for recipe in recipes}
    building, left = dict[str, PlanEntry](), list[Left]()
    for row in rows:
        if row.action != "build":
            left.append(Left(row.id, row.action, row.reason))
        elif changed is not None and row.id not in changed:
            left.append(Left(row.id, "unchanged", f"its inputs are those of {since}"))
        else:
            building[row.id] = row
    needs = {one: tuple(x for x in _before(held[one], shared_cache) if x in building) for one in building}
    levels = _levels(needs)
    builds = [
        Build(one, row.key, held[one].base.architecture, needs[one], levels[one]) for one, row in building.items()
    ]
    return Graph(sorted(builds, key=lambda build: build.level), left)


def _before(recipe: Recipe, shared_cache: bool) -> list[str]:
    twin = [recipe.id.removesuffix("-devel")] if shared_cache and recipe.variant.devel else []
    return twin + ([recipe.variant.parent] if recipe.variant.parent else [])


def _levels(needs: Mapping[str, Sequence[str]]) -> dict[str, int]:
    """Return level 1 for an id without needs, else one more than its highest need; no id needs itself."""
    levels: dict[str, int] = {}

    def level(one: str) -> int:
        if one not in levels:
            levels[one] = 1 + max((level(other) for other in needs[one]), default=0)
        return levels[one]

    for one in needs:
        level(one)
    return levels


# --- CodeBuild -------------------------------------------------------------------------------------------------------


def codebuild(found: Graph, said: CodeBuild, variables: Mapping[str, str]) -> dict[str, Any]:
    """Return a buildspec of version 0.2 whose batch builds each image once; `variables` are passed to every build.

    Raises ConfigError if there are more builds than a batch may have, or two ids have the same identifier.
    """
    if len(found.builds) > said.most_builds:
        raise ConfigError(
            f"{len(found.builds)} images are to be built, but a batch has at most {said.most_builds} builds",
            where=f"{FILE}: most_builds",
            fix="trainwright ci codebuild '<glob>', once for each part: 'pytorch-*', 'jax-*', ...",
        )
    names = {build.id: identifier(build.id, said) for build in found.builds}
    if len(set(names.values())) < len(names):
        one, other = next((a, b) for a in names for b in names if a < b and names[a] == names[b])
        raise ConfigError(f"{one} and {other} would both have the identifier {names[one]}", where=f"{FILE}: identifier")
    tasks = [
        {
            "identifier": names[build.id],
            "buildspec": said.buildspec,
            "debug-session": False,
            **({"depend-on": [names[one] for one in build.needs]} if build.needs else {}),
            "env": {
                **_machine(said, build.architecture, _compute(said, build.id)),
                "variables": {"ONLY": build.id, **variables},
            },
        }
        for build in found.builds
    ]
    idle = {
        "identifier": said.idle.identifier,
        "debug-session": False,
        "env": _machine(said, next(iter(said.architecture)), said.idle.compute_type),
    }
    words = "each image is a build of its own" if tasks else "no image is to be built"
    return {
        "version": 0.2,
        "batch": {"fast-fail": False, "build-graph": tasks or [idle]},
        "phases": {"build": {"commands": [f"echo 'trainwright: {words}'"]}},
    }


CODEBUILD_PLAN = """\
request=()
case "${{CODEBUILD_WEBHOOK_EVENT:-}}" in
  PULL_REQUEST*)
    git fetch --quiet origin "$CODEBUILD_WEBHOOK_BASE_REF" || exit
    request=(--pull-request "$(git rev-parse FETCH_HEAD)") ;;
esac
.venv/bin/trainwright ci plan --of codebuild "${{request[@]}}" --output {batch} {words}"""
CODEBUILD_START = """\
aws codebuild start-build-batch --project-name "${{CODEBUILD_BUILD_ID%%:*}}" \\
  --source-version "$CODEBUILD_RESOLVED_SOURCE_VERSION" --buildspec-override "$(cat {batch})"
"""


def first_build(said: CodeBuild, plan: Sequence[str]) -> dict[str, Any]:
    """Return the buildspec of a build that plans at its commit and then starts the batch; `plan` are options of that.

    A batch cannot add builds to itself, and a buildspec with a fixed list would build what another commit needs.
    """
    words, batch = shlex.join(plan), shlex.quote(said.batch)
    return {
        "version": 0.2,
        "env": {"shell": "bash", "git-credential-helper": "yes"},
        "phases": {
            "install": {"commands": ["make setup"]},
            "build": {
                "commands": [
                    CODEBUILD_PLAN.format(words=words, batch=batch).rstrip(),
                    CODEBUILD_START.format(batch=batch).rstrip(),
                ]
            },
        },
    }


def identifier(name: str, said: CodeBuild) -> str:
    """Convert an id to a valid CodeBuild identifier. Raises ConfigError if it is too long."""
    found = re.sub(r"[^A-Za-z0-9_]", "_", name)
    if not re.search(said.identifier, found):
        where = f"{FILE}: identifier {said.identifier.pattern}"
        raise ConfigError(f"{name} does not give a valid CodeBuild identifier", where=where)
    return found


def _machine(said: CodeBuild, architecture: str, compute_type: str) -> dict[str, Any]:
    machine = said.architecture.get(architecture)
    if machine is None:
        raise ConfigError(f"no machine is configured for {architecture}", where=f"{FILE}: [codebuild.architecture]")
    return {"type": machine.type, "image": machine.image, "compute-type": compute_type, "privileged-mode": True}


def _compute(said: CodeBuild, name: str) -> str:
    for row in said.compute:
        if fnmatchcase(name, row.only):
            return row.compute_type
    raise ConfigError(f"no row sets the compute type of {name}", where=f"{FILE}: [[codebuild.compute]]")


# --- GitHub Actions --------------------------------------------------------------------------------------------------

# Because a third-party action would have to be pinned, this is plain shell. git gets the token by its environment.
CHECKOUT = """\
git init --quiet .
export GIT_CONFIG_COUNT=1 GIT_CONFIG_KEY_0=http.extraHeader
GIT_CONFIG_VALUE_0="Authorization: Basic $(printf 'x-access-token:%s' "$TOKEN" | base64 --wrap=0)"
export GIT_CONFIG_VALUE_0
git fetch --quiet --depth=1 "$GITHUB_SERVER_URL/$GITHUB_REPOSITORY" "$GITHUB_SHA" ${BASE:+"$BASE"}
git checkout --quiet --detach "$GITHUB_SHA"
"""
# Run before each step, because a token is valid for minutes. A pull request has no registry and needs none.
ROLE = '[ -z "$REGISTRY" ] || scripts/github-token.sh\n'
PASSED = ("REGISTRY", "TRAINWRIGHT_CACHE")  # variables that the first job decides: a pull request has neither
GITHUB_PLAN = """\
make setup
if [ -n "$BASE" ]; then
  set -- --pull-request "$BASE"
  printf '%s\\n' {nothing} | tee --append "$GITHUB_OUTPUT"
else
  [ -z "$REGISTRY" ] || scripts/github-token.sh
  printf '%s\\n' {values} | tee --append "$GITHUB_OUTPUT"
fi
.venv/bin/trainwright ci plan --of github "$@" {words} | tee --append "$GITHUB_OUTPUT"
"""


def workflow(said: GitHub, plan: Sequence[str], variables: Mapping[str, str]) -> dict[str, Any]:
    """Return a workflow whose first job plans at its commit; a job with a matrix for each level builds what it says.

    `plan` are the options of the plan. A pull request builds what changed since its base, and pushes it to the registry
    on loopback of each runner: only reviewed commits get credentials.
    """
    token = {"AWS_WEB_IDENTITY_TOKEN_FILE": "${{ runner.temp }}/aws-token", "AWS_TOKEN_AUDIENCE": said.audience}
    role = {"AWS_REGION": "${{ vars.AWS_REGION }}", "AWS_ROLE_ARN": "${{ vars.TRAINWRIGHT_ROLE_ARN }}"}
    levels = [f"level_{number}" for number in range(1, said.levels + 1)]
    passed = {key: name.lower().removeprefix("trainwright_") for name in PASSED if (key := name) in variables}
    values = [shlex.quote(f"{name}={variables[key]}") for key, name in passed.items()]
    nothing = [f"{name}=" for name in passed.values()]
    first = {
        "runs-on": next(iter(said.runners.values())),
        "permissions": {"contents": "read", "id-token": "write"},
        "outputs": {name: f"${{{{ steps.plan.outputs.{name} }}}}" for name in (*passed.values(), *levels)},
        "env": {**role, **variables},
        "steps": [
            {
                "name": "the commit",
                "env": {"TOKEN": "${{ github.token }}", "BASE": "${{ github.event.pull_request.base.sha }}"},
                "run": CHECKOUT,
            },
            {
                "name": "plan",
                "id": "plan",
                "env": {**token, "BASE": "${{ github.event.pull_request.base.sha }}"},
                "run": GITHUB_PLAN.format(words=shlex.join(plan), values=" ".join(values), nothing=" ".join(nothing)),
            },
        ],
    }
    jobs: dict[str, Any] = {"plan": first}
    for name in levels:
        own = {key: f"${{{{ needs.plan.outputs.{name} }}}}" for key, name in passed.items()}
        jobs[name] = _job(name, list(jobs), said, {**role, **variables, **own}, token)
    return {
        "name": "images",
        "on": {"push": {"branches": said.branches}, "pull_request": {}, "workflow_dispatch": {}},
        "permissions": {},
        "defaults": {"run": {"shell": "bash"}},
        "jobs": jobs,
    }


def outputs(found: Graph, said: GitHub) -> dict[str, list[dict[str, str]]]:
    """Return what the first job hands on: the rows of each level's matrix, [] for none.

    Raises ConfigError for more images than a matrix may have, or more levels than a workflow has jobs for.
    """
    rows: dict[str, list[dict[str, str]]] = {f"level_{number}": [] for number in range(1, said.levels + 1)}
    for build in found.builds:
        if build.level > said.levels:
            raise ConfigError(
                f"{build.id} is of level {build.level}", where=f"{FILE}: levels", fix=f"levels = {build.level}"
            )
        rows[f"level_{build.level}"].append({"image": build.id, "runner": _runner(said, build)})
    if most := [name for name, level in rows.items() if len(level) > said.most_jobs]:
        raise ConfigError(
            f"{len(rows[most[0]])} images are to be built, but a matrix has at most {said.most_jobs} jobs",
            where=f"{FILE}: most_jobs",
            fix="trainwright ci github '<glob>' --output FILE, once for each part: 'pytorch-*', 'jax-*', ...",
        )
    return rows


def _job(
    level: str, before: list[str], said: GitHub, variables: Mapping[str, str], token: Mapping[str, str]
) -> dict[str, Any]:
    return {
        "name": "${{ matrix.image }}",
        "needs": before,
        "if": f"needs.plan.outputs.{level} != '[]'",
        "runs-on": "${{ matrix.runner }}",
        "timeout-minutes": said.timeout_minutes,
        "permissions": {"contents": "read", "id-token": "write"},
        "strategy": {
            "fail-fast": False,
            "matrix": {"include": f"${{{{ fromJSON(needs.plan.outputs.{level}) }}}}"},
        },
        "env": {**variables, "ONLY": "${{ matrix.image }}"},
        "steps": [
            {"name": "the commit", "env": {"TOKEN": "${{ github.token }}"}, "run": CHECKOUT},
            {"name": "set up", "env": token, "run": f"make setup engine\n{ROLE}make doctor\n"},
            {"name": "build", "env": token, "run": f"{ROLE}make build\n"},
            {"name": "push", "env": token, "run": f"{ROLE}make push\n"},
            {"name": "what was pushed", "run": 'make --silent exports | tee --append "$GITHUB_STEP_SUMMARY"\n'},
        ],
    }


def _runner(said: GitHub, build: Build) -> str:
    if build.architecture not in said.runners:
        raise ConfigError(f"no runner is configured for {build.architecture}", where=f"{FILE}: [github.runners]")
    return said.runners[build.architecture]


# --- as text ---------------------------------------------------------------------------------------------------------


def static(document: Mapping[str, Any], command: str) -> str:
    """Return a pipeline as YAML, below the command that wrote it."""
    return f"# {_comment(f'Written by `{command}`; it plans at the commit that it builds.')}\n" + yaml_text.dump(
        document
    )


def lines(rows: Mapping[str, Any]) -> str:
    """Return the outputs of a job of GitHub Actions: NAME=JSON."""
    return "".join(f"{name}={json.dumps(value, separators=(',', ':'))}\n" for name, value in rows.items())


def text(document: Mapping[str, Any], found: Graph, command: str, notes: Iterable[str] = ()) -> str:
    """Return the document as YAML, below comments: command, `notes`, keys, and the omitted images with reasons."""
    lines = [f"Written by `{command}`: {len(found.builds)} to build.", *notes]
    lines += [f"  {build.id}: {build.key[:SHORT]}" for build in found.builds]
    for action in dict.fromkeys(row.action for row in found.left):
        rows = [row for row in found.left if row.action == action]
        lines.append(f"{action}: {len(rows)}")
        lines += [f"  {row.id}: {' '.join(row.reason.split())}" for row in rows]
    return "".join(f"# {_comment(line)}\n" for line in lines) + yaml_text.dump(document)


def _comment(text: str) -> str:
    """Put text on one line, across every line end of YAML; replace unprintable characters, which YAML forbids."""
    return printable(" ".join(text.splitlines()))
