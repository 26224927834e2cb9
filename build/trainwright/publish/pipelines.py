"""Compute which images a pipeline builds, in which order, as input for CodeBuild and GitHub Actions. Pure."""

import re
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
    most_builds: int
    identifier: re.Pattern[str]
    architecture: dict[str, Machine]
    compute: list[Compute]
    idle: Idle


class GitHub(Model):
    most_jobs: int
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
git fetch --quiet --depth=1 "$GITHUB_SERVER_URL/$GITHUB_REPOSITORY" "$GITHUB_SHA"
git checkout --quiet --detach FETCH_HEAD
"""
ROLE = "scripts/github-token.sh\n"  # run before each step, because a token is valid for minutes


def github(found: Graph, said: GitHub, variables: Mapping[str, str]) -> dict[str, Any]:
    """Return a workflow: a job with a matrix for each level, which waits for the level before it.

    A level with more images than a matrix may have is split into several jobs.
    """
    jobs: dict[str, Any] = {}
    before: list[str] = []
    for level in sorted({build.level for build in found.builds}):
        own = []
        rows = [{"image": build.id, "runner": _runner(said, build)} for build in found.builds if build.level == level]
        for start in range(0, len(rows), said.most_jobs):
            name = f"level-{level}" if len(rows) <= said.most_jobs else f"level-{level}-from-{start + 1}"
            jobs[name] = _job(rows[start : start + said.most_jobs], before, said, variables)
            own.append(name)
        before = own
    idle = {"runs-on": next(iter(said.runners.values())), "steps": [{"run": "echo 'no image is to be built'"}]}
    return {
        "name": "images",
        "on": {"workflow_dispatch": {}},
        "permissions": {},
        "defaults": {"run": {"shell": "bash"}},
        "jobs": jobs or {"nothing-to-build": idle},
    }


def _job(rows: list[dict[str, str]], before: list[str], said: GitHub, variables: Mapping[str, str]) -> dict[str, Any]:
    token = {"AWS_WEB_IDENTITY_TOKEN_FILE": "${{ runner.temp }}/aws-token", "AWS_TOKEN_AUDIENCE": said.audience}
    return {
        "name": "${{ matrix.image }}",
        **({"needs": before} if before else {}),
        "runs-on": "${{ matrix.runner }}",
        "timeout-minutes": said.timeout_minutes,
        "permissions": {"contents": "read", "id-token": "write"},
        "strategy": {"fail-fast": False, "matrix": {"include": rows}},
        "env": {
            "ONLY": "${{ matrix.image }}",
            "AWS_REGION": "${{ vars.AWS_REGION }}",
            "AWS_ROLE_ARN": "${{ vars.TRAINWRIGHT_ROLE_ARN }}",
            **variables,
        },
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
