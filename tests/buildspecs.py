"""Parse a buildspec as CodeBuild does: AWS, "Build specification reference" and "Batch build buildspec reference".

AWS publishes no schema. The models accept more than we write; an unknown key is an error, because a build on CodeBuild
would fail at once.
"""

import re
from typing import Annotated, Literal

import yaml
from pydantic import AfterValidator, ConfigDict, Field

from trainwright.core.toml import Model

Yes = Literal["yes", "no"] | bool
Format = Literal["JUNITXML", "CUCUMBERJSON", "NUNITXML", "NUNIT3XML", "TESTNGXML", "VISUALSTUDIOTRX"]


def _unlike(*prefixes: str) -> AfterValidator:
    def check(name: str) -> str:
        if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name) or name.startswith(prefixes):
            raise ValueError(f"{name!r} is no name for a variable here")
        return name

    return AfterValidator(check)


Variable = Annotated[str, _unlike("CODEBUILD_")]  # that prefix is CodeBuild's own
Exported = Annotated[str, _unlike("CODEBUILD_", "AWS_")]  # those of AWS are not exported
Identifier = Annotated[str, Field(pattern=r"^[A-Za-z0-9_]{1,128}$")]
Commands = Annotated[list[str], Field(min_length=1)]
PHASES = ("install", "pre_build", "build", "post_build")


class Spelt(Model):
    """A model whose keys are spelt with hyphens in YAML and with underscores in Python."""

    model_config = ConfigDict(alias_generator=lambda name: name.rstrip("_").replace("_", "-"), frozen=True)


class Env(Spelt):
    shell: Literal["bash", "/bin/sh"] = "/bin/sh"
    variables: dict[Variable, str] = Field(default={})
    parameter_store: dict[Variable, str] = Field(default={})
    secrets_manager: dict[Variable, str] = Field(default={})
    exported_variables: list[Exported] = Field(default=[])
    git_credential_helper: Yes = False


class Phase(Spelt):
    run_as: str = ""
    on_failure: Literal["ABORT", "CONTINUE", ""] = ""
    runtime_versions: dict[str, str | float] = Field(default={})
    commands: Commands
    finally_: list[str] = Field(default=[])


class Phases(Model):
    install: Phase | None = None
    pre_build: Phase | None = None
    build: Phase | None = None
    post_build: Phase | None = None


class Files(Spelt):
    """Paths and globs, from the root of the checkout or from `base-directory`."""

    files: Annotated[list[str], Field(min_length=1)]
    name: str = ""
    base_directory: str = ""
    discard_paths: Yes = False


class Report(Files):
    file_format: Format = "JUNITXML"


class Cache(Model):
    paths: Annotated[list[str], Field(min_length=1)]


class TaskEnv(Spelt):
    type: str = ""
    image: str = ""
    compute_type: str = ""
    privileged_mode: bool = False
    variables: dict[Variable, str] = Field(default={})


class Task(Spelt):
    identifier: Identifier
    buildspec: str = ""
    debug_session: bool = False
    depend_on: list[Identifier] = Field(default=[])
    env: TaskEnv = Field(default=TaskEnv())
    ignore_failure: bool = False


class Batch(Spelt):
    fast_fail: bool = False
    build_graph: Annotated[list[Task], Field(min_length=1)]


class BuildSpec(Model):
    version: Annotated[float, Field(ge=0.2, le=0.2)]
    env: Env = Env()
    batch: Batch | None = None
    phases: Phases
    reports: Annotated[dict[str, Report], Field(max_length=5)] = Field(default={})  # of one project
    artifacts: Files | None = None
    cache: Cache | None = None

    @property
    def commands(self) -> list[str]:
        """List the commands of all phases in their order."""
        phases = [phase for name in PHASES if (phase := getattr(self.phases, name))]
        return [command for phase in phases for command in [*phase.commands, *phase.finally_]]


def parse(text: str) -> BuildSpec:
    """Parse a buildspec. Raises yaml.YAMLError, and ValidationError for what CodeBuild would refuse."""
    return BuildSpec.model_validate(yaml.safe_load(text))


def missing(batch: Batch) -> list[str]:
    """List the identifiers that tasks of a batch depend on but that do not exist: CodeBuild refuses such a batch."""
    held = {task.identifier for task in batch.build_graph}
    return sorted({name for task in batch.build_graph for name in task.depend_on} - held)
