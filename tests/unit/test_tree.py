"""Test the rules of the source tree: which module may import which, and the traps of a source root called build/."""

import ast
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from trainwright.core.progress import counted
from trainwright.image import inputs
from trainwright.matrix.matrix import Intent

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "build/trainwright"
BIN = Path(sys.executable).parent

# A package imports only from those before it; `doctor` and `commands` from all.
ORDER = [
    "core",
    "matrix",
    "lock",
    "image",
    "docker",
    "registry",
    "resolve",
    "build",
    "diagnose",
    "schedulers",
    "gate",
    "publish",
    "inspect",
    "graft",
    "jobs",
    "doctor",
    "commands",
    "cli",
]
LARGEST = 20  # modules of a package; `commands` has a file for each command
# Modules that compute alone: without programs, sockets, clocks, random, environment and current folder.
PURE = {
    "core.errors",
    "core.overlay",
    "core.pairs",
    "core.yaml_text",
    "core.progress",
    "schedulers.dra",
    "schedulers.clusters",
    "schedulers.kubernetes",
    "schedulers.placement",
    "schedulers.slurm",
    "core.toml",
    "core.versions",
    "matrix.compat",
    "matrix.instances",
    "matrix.matrix",
    "matrix.model",
    "matrix.providers",
    "matrix.records",
    "matrix.remedy",
    "matrix.validate",
    "lock.additions",
    "lock.diff",
    "lock.facts",
    "lock.lockfile",
    "lock.overlaps",
    "lock.packages",
    "lock.requirements",
    "lock.rpms",
    "lock.wheels",
    "image.bake",
    "image.declared",
    "image.key",
    "image.notices",
    "image.tags",
    "image.preflight_settings",
    "image.probe",
    "image.render",
    "image.training_compiler",
    "docker.buildx",
    "docker.layers",
    "registry.aws_errors",
    "registry.ecr_settings",
    "registry.scanning",
    "registry.settings",
    "build.rebuilt",
    "diagnose.anchors",
    "diagnose.answer",
    "diagnose.causes",
    "diagnose.job.collectives",
    "diagnose.job.diagnosis",
    "diagnose.job.html",
    "diagnose.job.ranks",
    "diagnose.job.ras",
    "diagnose.job.recorder",
    "diagnose.job.said",
    "diagnose.job.streams",
    "diagnose.job.unpickle",
    "diagnose.job.verdict",
    "diagnose.reader",
    "diagnose.statements",
    "diagnose.survival",
    "diagnose.tracebacks",
    "diagnose.watch",
    "gate.reports.charts",
    "gate.checks",
    "diagnose.nccl_debug",
    "gate.case",
    "gate.find.answer",
    "gate.find.belief",
    "gate.find.forecast",
    "gate.find.launch",
    "gate.find.likelihood",
    "gate.find.model",
    "gate.find.plan",
    "gate.find.scores",
    "gate.floors",
    "gate.reports.html",
    "gate.judge",
    "gate.reports.junit",
    "gate.launchers",
    "gate.nccl_tests",
    "gate.reports.png",
    "gate.regression",
    "gate.spec",
    "graft.found",
    "graft.plan",
    "graft.wanted",
    "publish.pipelines",
    "publish.provenance",
    "publish.retention",
    "publish.sbom",
    "publish.release_records",
    "inspect.child_check",
    "inspect.derived",
    "inspect.diff_model",
    "inspect.explain",
    "inspect.find",
    "inspect.image_config",
    "inspect.matrix_page",
    "jobs.log_merge",
    "jobs.pods",
    "jobs.schedulers.hyperpod_eks",
    "jobs.schedulers.hyperpod_slurm",
    "jobs.schedulers.mpijob",
    "jobs.schedulers.pytorchjob",
    "jobs.schedulers.slurm",
    "jobs.contract",
    "jobs.estimate",
    "jobs.fit",
    "jobs.request",
    "jobs.spec",
}
# Modules that change what lies outside this process: each does one thing, so none imports another one.
EFFECTS = {
    "docker.engine",
    "registry.client",
    "registry.ecr",
    "registry.ecr_repositories",
    "resolve.apt",
    "resolve.licences",
    "resolve.pypi",
    "resolve.upstream",
    "jobs.follow",
    "jobs.submit",
}
IMPURE = {"subprocess", "socket", "time", "random", "secrets", "uuid", "httpx", "docker", "urllib.request", "tempfile"}
IMPURE_NAMES = {"environ", "getenv", "now", "today", "utcnow", "getcwd", "cwd", "home", "expanduser"}


def modules() -> Iterator[tuple[str, Path]]:
    """Yield each module below trainwright as package.module ("cli" for cli.py), and its file."""
    for path in sorted(PACKAGE.rglob("*.py")):
        names = path.relative_to(PACKAGE).with_suffix("").parts
        if names != ("__init__",):
            yield ".".join(name for name in names if name != "__init__"), path


MODULES = {name for name, _ in modules()}


@cache
def parsed(text: str) -> ast.Module:
    return ast.parse(text)


@cache
def statements(tree: ast.AST) -> tuple[ast.AST, ...]:
    """Return every node that is no expression: imports are statements, and most nodes are in expressions."""
    found, left = list[ast.AST](), [tree]
    while left:
        node = left.pop()
        found.append(node)
        left += (child for child in ast.iter_child_nodes(node) if not isinstance(child, ast.expr))
    return tuple(found)


@cache
def imports(tree: ast.AST) -> tuple[str, ...]:
    """Return every module that a source imports anywhere; imports only for types do not count."""
    every, found = statements(tree), list[str]()
    typing = {
        id(node)
        for block in every
        if isinstance(block, ast.If) and isinstance(block.test, ast.Name) and block.test.id == "TYPE_CHECKING"
        for node in statements(block)
    }
    for node in every:
        if id(node) in typing:
            continue
        if isinstance(node, ast.Import):
            found += (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            found += [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
    return tuple(found)


def own(name: str) -> str:
    """Return the module of ours that an import names: `trainwright.lock.lockfile.digest` is in lock.lockfile."""
    parts = name.split(".")
    found = (".".join(parts[1:end]) for end in (4, 3, 2)) if parts[0] == "trainwright" else ()
    return next((module for module in found if module in MODULES), "")


def level(module: str) -> int:
    return ORDER.index(module.split(".")[0])


def broken(name: str, text: str) -> list[str]:
    """Return the rules that a module's source breaks."""
    tree, found = parsed(text), []
    for imported in imports(tree):
        other = own(imported)
        if other and level(other) > level(name):
            found.append(f"{name} imports upwards: {other}")
        if other and other != name and {name, other} <= EFFECTS:
            found.append(f"the effect {name} imports the effect {other}")
        if name in PURE and (imported in IMPURE or imported.split(".")[0] in IMPURE):
            found.append(f"{name} is pure and imports {imported}")
    if name in PURE:
        names = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
        found += [f"{name} is pure and uses {used}" for used in sorted(names & IMPURE_NAMES)]
    return found


def test_every_package_has_its_place_in_the_order() -> None:
    assert {name.split(".")[0] for name in MODULES} == set(ORDER)
    assert PURE | EFFECTS <= MODULES


def test_no_package_is_large() -> None:
    """`commands` and `jobs/schedulers` have a file for each thing; a folder in a package counts by itself."""
    folders = {name.rpartition(".")[0] for name in MODULES} - {"", "commands"}
    for folder in folders:
        assert len([name for name in MODULES if name.rpartition(".")[0] == folder]) <= LARGEST, folder


def test_modules_import_downwards() -> None:
    for name, path in modules():
        assert broken(name, path.read_text()) == [], path


def graph() -> dict[str, set[str]]:
    """Map each module to those of ours that it imports, anywhere in it."""
    found = {name: set[str]() for name in MODULES}
    for name, path in modules():
        found[name] |= {own(imported) for imported in imports(parsed(path.read_text()))} - {"", name}
        found[name] = {other for other in found[name] if "." in other or other == "cli"}
    return found


def test_no_circle_of_imports() -> None:
    """Check modules, within one package too."""
    left = graph()
    while leaves := [name for name, used in left.items() if not used]:
        for leaf in leaves:
            del left[leaf]
        for used in left.values():
            used.difference_update(leaves)
    assert left == {}


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("lock.lockfile", "from trainwright.docker import engine"),
        ("lock.lockfile", "import trainwright.cli"),
        ("matrix.model", "from trainwright.lock.lockfile import digest"),
        ("docker.engine", "from trainwright.registry.client import push"),
        ("resolve.apt", "def f():\n    from trainwright.resolve import pypi"),
        ("image.render", "import subprocess"),
        ("image.render", "from urllib.request import urlopen"),
        ("image.key", "import os\nos.environ['HOME']"),
        ("image.key", "from datetime import datetime\ndatetime.now()"),
        ("image.probe", "import httpx"),
    ],
)
def test_the_rules_can_fail(name: str, text: str) -> None:
    assert broken(name, text) != []


def test_no_module_is_long() -> None:
    for _, path in modules():
        assert len(path.read_text().splitlines()) <= 600, path


# --- build/ ----------------------------------------------------------------------------------------------------------


def test_build_is_no_package() -> None:
    assert not (ROOT / "build/__init__.py").exists()


def test_git_sees_the_source_root() -> None:
    """A line `build/` in .gitignore gives an empty wheel, with exit code 0."""
    if not (ROOT / ".git").exists():
        pytest.skip("not run: no git checkout")
    files = [str(path) for _, path in modules()]
    ignored = subprocess.run(["git", "check-ignore", "--no-index", *files], cwd=ROOT, capture_output=True, text=True)
    assert ignored.stdout == ""
    assert ignored.returncode == 1  # 128 would be an answer to no question


def test_ruff_and_mypy_see_the_source_root() -> None:
    """Other tools skip a folder called build by default."""
    listed = subprocess.run(
        [BIN / "ruff", "check", "--show-files"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert str(PACKAGE / "cli.py") in listed.stdout.splitlines()
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["mypy"]
    assert settings["strict"] is True
    assert "build" in settings["mypy_path"].split(":")
    assert "trainwright" in settings["packages"]


# --- Makefile --------------------------------------------------------------------------------------------------------

MAKEFILE = (ROOT / "Makefile").read_text()


def goals() -> list[str]:
    return re.findall(r"^([a-z][a-z-]*):(?!=)", MAKEFILE, re.MULTILINE)


def test_every_goal_is_phony() -> None:
    """`make build` without it does nothing, with exit code 0: there is a folder of that name."""
    phony = re.findall(r"^\.PHONY:((?:.*\\\n)*.*)", MAKEFILE, re.MULTILINE)
    assert set(goals()) == set(" ".join(phony).replace("\\", " ").split())
    assert {"build", "push", "test", "help", "lock", "doctor", "registry"} <= set(goals())


def make(*words: str) -> str:
    """Run make as from a shell, without the flags of the `make test` that runs us."""
    env = {name: value for name, value in os.environ.items() if name not in ("MAKEFLAGS", "MAKELEVEL", "MFLAGS")}
    return subprocess.run(["make", *words], cwd=ROOT, env=env, capture_output=True, text=True, check=True).stdout


def test_help_lists_every_goal() -> None:
    assert sorted(line.split()[1] for line in make("help").splitlines()) == sorted(goals())


def dry_run(*words: str) -> str:
    return make("-n", *words)


def test_make_hands_over_what_was_asked_for() -> None:
    assert "trainwright build --set-up --framework 'pytorch'" in dry_run("build", "FRAMEWORK=pytorch")
    assert "trainwright build --set-up --framework ''" in dry_run("build", "FRAMEWORK=")
    assert "trainwright build --set-up '*-ec2'" in dry_run("build", "ONLY=*-ec2")
    assert re.search(r"trainwright build --set-up *$", dry_run("build"), re.MULTILINE)
    for words, said in ((["ONLY=a"], "build --set-up 'a'"), (["BASE=team/train:1"], "graft --set-up 'team/train:1' *")):
        assert re.search(rf"trainwright {said} --with 'team.txt' *$", dry_run("build", "WITH=team.txt", *words), re.M)


def test_make_prove_hands_over_its_variables() -> None:
    assert re.search(r"trainwright prove *$", dry_run("prove"), re.MULTILINE)
    said = dry_run("prove", "ONLY=*-ec2 jax-*", "MINUTES=5", "KEEP=1", "DRY=1")
    assert "trainwright prove '*-ec2 jax-*' --minutes '5' --keep --dry-run" in said
    for word in ("engine.py ensure", "registry up"):
        assert (word in dry_run("prove"), word in said) == (True, False)


@pytest.mark.parametrize("words", ["build push", "push build", "push", "push REGISTRY=example.invalid"])
def test_make_push_is_one_process_that_builds_first(words: str) -> None:
    said = dry_run(*words.split(), "FRAMEWORK=pytorch")
    ours = [line for line in said.splitlines() if "setup_venv" not in line and not line.startswith(("make:", ":"))]
    assert ours == [".venv/bin/trainwright build --set-up --framework 'pytorch' --push"]


def test_the_makefile_carries_no_version() -> None:
    assert not re.search(r"\d+\.\d+", MAKEFILE)


# --- data and scripts ------------------------------------------------------------------------------------------------


def test_every_lock_has_a_variant(intent: Intent) -> None:
    held = inputs.held(intent)
    wanted = {f"{recipe.variant.lock}.toml" for recipe in held}
    wanted |= {f"{recipe.variant.base}.packages" for recipe in held}
    wanted |= {f"{recipe.variant.base}.build.packages" for recipe in held if recipe.compiles}
    assert {path.name for path in (ROOT / "dockerfiles/locks").iterdir()} == wanted


SCRIPTS = sorted((ROOT / "scripts").glob("*.sh"))


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.name)
def test_scripts_stop_at_the_first_error(path: Path) -> None:
    text = path.read_text()
    assert re.search(r"^(set -eu|set -Eeuo pipefail|\. .*/lib\.sh\"?)$", text, re.MULTILINE)
    shell = "#!/bin/sh\n" if path.name == "python.sh" else "#!/usr/bin/env bash\n"  # a Mac's bash is of 2007
    assert path.name == "lib.sh" or (text.startswith(shell) and path.stat().st_mode & 0o100)


def test_what_an_error_sends_a_person_to_is_there() -> None:
    """Every file or glob of dockerfiles/ that a module names whole: a remedy for a file that is gone is none."""
    said = [(name, place) for name, path in modules() for place in named(path.read_text())]
    assert ("resolve.apt", "dockerfiles/bases.toml") in said
    assert [(name, place) for name, place in said if not any(ROOT.glob(place))] == []


def named(text: str) -> list[str]:
    return re.findall(r"dockerfiles/[\w./*-]*\w(?=[\s\"',;:)]|[.]\s)", text)


def test_numbers_have_their_plural() -> None:
    """`1 image`, `2 images`, by counted() of core/progress.py; `image(s)` is neither."""
    texts = {path: path.read_text() for path in (ROOT / "build/trainwright").rglob("*.py")}
    wrong = {path.name: found for path, text in texts.items() if (found := re.findall(r"\}[ \w]* [a-z]+\(s\)", text))}
    assert wrong == {}
    assert (counted(0, "image"), counted(1, "image"), counted(2, "image")) == ("0 images", "1 image", "2 images")
