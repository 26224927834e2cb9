"""The house rules that a person forgets: who imports whom, and the traps of a source root called build/."""

import ast
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from zipfile import ZipFile

import pytest

from trainwright import inputs, lock
from trainwright.matrix import Intent

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "build/trainwright"
BIN = Path(sys.executable).parent

LEVELS = {
    "errors model outcome standing progress": 0,
    "config versions compat remedy instances providers declaring checking matrix lock facts explaining finding "
    "packages render preflight declaration heredity image_config derived plan bake probe layers wheels differences "
    "overview trains builders rebuilt requirements additions scanning publication repositories denials provenance sbom "
    "pipelines comparison retention nccl_tests nccl_json nccl_info causes floors judge witnesses table_checks "
    "network_checks scaling runs launchers cloud_launchers baselines charts judge_pages junit pictures "
    "clusters cluster_files "
    "regressions jobs training_compiler merging watching fitting submissions": 1,  # pure
    "files layouts process store host_settings inputs proofs proving mirrors certificates pip_files git checkout "
    "children aws registry_documents registry_http registry_auth registry_uploads registry_notes registry_work "
    "gates packing unpacking kept templates apt_sources engine_socket canonical": 1,  # of the host
    "engine registry indexes distribution sources licences ecr provisioning following submitting": 2,  # effects
    "locking recording relocking updates fetching building publishing images linting report commands cli doctor": 3,
    "adding conflicts compiling parents rebuilding deriving verifying testing attesting inspecting": 3,
    "changes releasing affected updating places forecasting addressing dispatching beginning": 3,
    "tailing loopback baking programs signing": 3,
    "running containers comparing pruning judging launching reports verdicts measuring interleaving gateable": 3,
    "apt_container emitting": 3,
}
LEVEL = {name: level for names, level in LEVELS.items() for name in names.split()}
PURE = {name for name, level in LEVEL.items() if level == 0} | set(list(LEVELS)[1].split())
EFFECTS = set(list(LEVELS)[3].split())
IMPURE = {"subprocess", "socket", "time", "random", "secrets", "uuid", "httpx", "docker", "urllib.request", "tempfile"}
IMPURE_NAMES = {"environ", "getenv", "now", "today", "utcnow", "getcwd", "cwd", "home", "expanduser"}


def modules() -> Iterator[tuple[str, Path]]:
    """Module below trainwright ("doctor" for each of its files), and its file."""
    for path in sorted(PACKAGE.rglob("*.py")):
        name = path.relative_to(PACKAGE).parts[0].removesuffix(".py")
        if name != "__init__":
            yield name, path


def imports(tree: ast.AST) -> Iterator[str]:
    """Every module that a source names in an import, wherever that stands; those for types alone do not count."""
    typing = {
        id(node)
        for block in ast.walk(tree)
        if isinstance(block, ast.If) and ast.unparse(block.test) == "TYPE_CHECKING"
        for node in ast.walk(block)
    }
    for node in ast.walk(tree):
        if id(node) in typing:
            continue
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def own(name: str) -> str:
    """`trainwright.lock.digest` is of our module `lock`; "" for what is none of ours."""
    parts = name.split(".")
    return parts[1] if parts[0] == "trainwright" and len(parts) > 1 and parts[1] in LEVEL else ""


def broken(name: str, text: str) -> list[str]:
    """Which of the rules a module's source breaks."""
    tree, found = ast.parse(text), []
    for imported in imports(tree):
        other = own(imported)
        if other and LEVEL[other] > LEVEL[name]:
            found.append(f"{name} imports upwards: {other}")
        if other and other != name and {name, other} <= EFFECTS:
            found.append(f"the effect {name} imports the effect {other}")
        if name in PURE and (imported in IMPURE or imported.split(".")[0] in IMPURE):
            found.append(f"{name} is pure and imports {imported}")
    if name in PURE:
        names = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
        found += [f"{name} is pure and uses {used}" for used in sorted(names & IMPURE_NAMES)]
    return found


def test_every_module_has_a_level() -> None:
    assert {name for name, _ in modules()} == LEVEL.keys()


def test_modules_import_downwards() -> None:
    for name, path in modules():
        assert broken(name, path.read_text()) == [], path


def test_no_circle_of_imports() -> None:
    """Within one level, too."""
    graph = {name: set[str]() for name in LEVEL}
    for name, path in modules():
        graph[name] |= {own(imported) for imported in imports(ast.parse(path.read_text()))} - {"", name}
    while leaves := [name for name, used in graph.items() if not used]:
        for leaf in leaves:
            del graph[leaf]
        for used in graph.values():
            used.difference_update(leaves)
    assert graph == {}


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("lock", "from trainwright import engine"),
        ("lock", "import trainwright.cli"),
        ("model", "from trainwright.lock import digest"),
        ("engine", "from trainwright.registry import push"),
        ("engine", "def f():\n    from trainwright import indexes"),
        ("render", "import subprocess"),
        ("render", "from urllib.request import urlopen"),
        ("plan", "import os\nos.environ['HOME']"),
        ("plan", "from datetime import datetime\ndatetime.now()"),
        ("probe", "import httpx"),
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


def test_the_wheel_holds_every_module(tmp_path: Path) -> None:
    """Built from what git would hand out, without a network."""
    skipped = shutil.ignore_patterns(
        ".venv", ".sdk", ".git", "out", "dist", "__pycache__", ".*_cache", ".hypothesis", "tests"
    )
    shutil.copytree(ROOT, tmp_path / "clone", ignore=skipped)
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(command, cwd=tmp_path / "clone", check=True, capture_output=True)
    (wheel,) = tmp_path.glob("*.whl")
    held = set(ZipFile(wheel).namelist())
    assert {f"trainwright/{path.relative_to(PACKAGE)}" for _, path in modules()} <= held
    assert not [name for name in held if name.startswith(("build/", "tests/"))]


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
    """As from a shell: `make test` is our parent, and its flags are not meant for this one."""
    env = {name: value for name, value in os.environ.items() if name not in ("MAKEFLAGS", "MAKELEVEL", "MFLAGS")}
    return subprocess.run(["make", *words], cwd=ROOT, env=env, capture_output=True, text=True, check=True).stdout


def test_help_lists_every_goal() -> None:
    assert sorted(line.split()[1] for line in make("help").splitlines()) == sorted(goals())


def dry_run(*words: str) -> str:
    return make("-n", *words)


def test_make_hands_over_what_was_asked_for() -> None:
    assert "trainwright build --set-up --framework 'pytorch'" in dry_run("build", "FRAMEWORK=pytorch")
    assert "trainwright build --set-up --framework ''" in dry_run("build", "FRAMEWORK=")
    assert "trainwright build --set-up --only '*-ec2'" in dry_run("build", "ONLY=*-ec2")
    assert re.search(r"trainwright build --set-up *$", dry_run("build"), re.MULTILINE)


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
    wanted = {f"{variant.lock}.toml" for variant in held}
    wanted |= {f"{variant.base}.packages" for variant in held}
    wanted |= {f"{variant.base}.build.packages" for variant in held if lock.compiles(intent, variant)}
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
    assert ("distribution", "dockerfiles/bases.toml") in said
    assert [(name, place) for name, place in said if not any(ROOT.glob(place))] == []


def named(text: str) -> list[str]:
    return re.findall(r"dockerfiles/[\w./*-]*\w(?=[\s\"',;:)]|[.]\s)", text)
