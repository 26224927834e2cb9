"""A build of CodeBuild, here: the phases of a buildspec in one shell, in a clean clone of the last commit.

As AWS describes it ("Build phase transitions", "Build specification reference"): a failed install or pre_build ends the
build, a failed build still runs post_build, `finally` runs in any case, artifacts are collected once build has begun.
"""

import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from xml.etree import ElementTree

from trainwright import buildspecs, checkout, config
from trainwright.buildspecs import PHASES, BuildSpec
from trainwright.errors import BuildError, ConfigError, NotRunError
from trainwright.git import FOREIGN
from trainwright.model import Model
from trainwright.process import GRACE_SECONDS

NOT_HANDED_ON = {"MAKEFLAGS", "MAKELEVEL", "MFLAGS", "MAKEOVERRIDES", "VIRTUAL_ENV", "PYTHONPATH", *FOREIGN}
WILD = "*?["
POLL_SECONDS = 0.02
PROJECT = "rehearsal"  # as a build is named where it needs a name
Say = Callable[[str], None]


class PhaseRow(Model):
    phase: str
    state: str  # SUCCEEDED, FAILED, or "not run"
    seconds: float = 0
    code: int = 0  # of the command that failed
    command: str = ""


class Collected(Model):
    """What one path or glob of reports, artifacts or cache stands for after the build."""

    kind: str  # artifact, report, cache
    path: str
    files: int
    bytes: int
    note: str = ""


class Rehearsal(Model):
    commit: str
    phases: list[PhaseRow]
    collected: list[Collected]
    exported: dict[str, str]
    problems: list[str]  # beside a phase that failed


class TimedOut(Exception):
    """The build took as long as one may take."""


class Shell:
    """One shell that runs commands, and says how each ended; what they print goes to our standard error."""

    def __init__(self, words: list[str], folder: Path, env: Mapping[str, str], deadline: float) -> None:
        self.deadline = deadline
        self.said, own = os.pipe()
        # Its third file is ours, whatever number the pipe has here: /bin/sh knows numbers of one digit alone.
        self.child = subprocess.Popen(
            ["bash", "-c", f'exec "$@" 3>&{own} {own}>&-', "bash", *words],
            cwd=folder,
            env=dict(env),
            stdin=subprocess.PIPE,
            stdout=sys.stderr,
            text=True,
            pass_fds=(own,),
            start_new_session=True,
        )
        os.close(own)  # of the shell alone: its end is then seen here

    def tell(self, line: str) -> None:
        assert self.child.stdin
        with suppress(BrokenPipeError):  # it has ended; whoever reads next sees that
            self.child.stdin.write(f"{line}\n")
            self.child.stdin.flush()

    def answer(self, line: str) -> str | None:
        """What a command writes for us, up to a zero byte; None where the shell ended instead. Raises TimedOut."""
        self.tell(line)
        text = b""
        while not text.endswith(b"\0"):
            left = self.deadline - time.monotonic()
            if left <= 0 or not select.select([self.said], [], [], left)[0]:
                raise TimedOut
            piece = os.read(self.said, 1 << 16)
            if not piece:
                return None
            text += piece
        return text[:-1].decode(errors="replace")

    def run(self, file: Path) -> int | None:
        """The exit code of a file of commands, sourced, so that it can set variables; None: it ended the shell."""
        code = self.answer(f". '{file}' </dev/null 3>&-; printf '%s\\0' \"$?\" >&3")
        return None if code is None else int(code)

    def close(self) -> None:
        """Nothing of its session goes on; a daemon with a session of its own, as make starts one, does."""
        with suppress(OSError):
            if self.child.stdin:
                self.child.stdin.close()
        for sign in (signal.SIGTERM, signal.SIGKILL):
            with suppress(ProcessLookupError):
                os.killpg(self.child.pid, sign)
            end = time.monotonic() + GRACE_SECONDS
            while time.monotonic() < end and self._lives():
                time.sleep(POLL_SECONDS)
        os.close(self.said)

    def _lives(self) -> bool:
        self.child.poll()
        try:
            os.killpg(self.child.pid, 0)
        except ProcessLookupError:
            return False
        return True


def rehearse(
    root: Path, file: str, given: Mapping[str, str | None], minutes: float, into: Path | None, say: Say
) -> Rehearsal:
    """Run a buildspec of the last commit. `given` are variables of a project: they win, and None takes one away.

    `into`: where artifacts go. Raises ConfigError for a buildspec that is none, NotRunError for secrets of an account.
    """
    commit = checkout.commit_of(root, "HEAD")
    if changed := checkout.uncommitted(root):
        say(f"not committed, and so not in it: {', '.join(changed[:5])}{' ...' if len(changed) > 5 else ''}")
    with tempfile.TemporaryDirectory(prefix="trainwright-rehearsal-", ignore_cleanup_errors=True) as name:
        source = Path(name) / "src"
        checkout.git(root, "clone", "--quiet", root, source)
        checkout.git(source, "checkout", "--quiet", "--detach", commit)
        if not (source / file).is_file():
            raise ConfigError(f"there is no {file} in the last commit", where=str(root), fix=f"git add {file}")
        spec = buildspecs.parse(config.read(source / file, file), file)
        env = _environment(spec, given, source, commit)
        phases, exported = _run(spec, source, env, Path(name), minutes, say)
        begun = any(row.phase == "build" and row.state != "not run" for row in phases)
        collected, problems = _collect(spec, source, into) if begun else ([], [])
    for wanted in spec.env.exported_variables:
        if wanted not in exported:
            problems.append(f"{wanted} is to be exported, and no phase set it")
    return Rehearsal(commit=commit, phases=phases, collected=collected, exported=exported, problems=problems)


def refuse(found: Rehearsal) -> None:
    """Raises BuildError where the build would have failed."""
    for row in found.phases:
        if row.state == "FAILED":
            why = f"exit code {row.code}" if row.code >= 0 else "it took longer than a build may"
            raise BuildError(f"the build would fail in {row.phase}", where=row.command, why=why)
    if found.problems:
        raise BuildError("the build would not hand on what it should", why="; ".join(found.problems))


def _environment(spec: BuildSpec, given: Mapping[str, str | None], source: Path, commit: str) -> dict[str, str]:
    """What CodeBuild sets, too; a variable of the project wins over the same one of the buildspec."""
    own = {name: value for name, value in os.environ.items() if name not in NOT_HANDED_ON}
    region = own.get("AWS_REGION") or own.get("AWS_DEFAULT_REGION") or ""
    region_words = {"AWS_REGION": region, "AWS_DEFAULT_REGION": region} if region else {}
    codebuild = {
        "CODEBUILD_BUILD_ID": f"{PROJECT}:{commit[:12]}",
        "CODEBUILD_BUILD_NUMBER": "1",
        "CODEBUILD_BUILD_SUCCEEDING": "1",
        "CODEBUILD_INITIATOR": "trainwright",
        "CODEBUILD_RESOLVED_SOURCE_VERSION": commit,
        "CODEBUILD_SOURCE_VERSION": commit,
        "CODEBUILD_SRC_DIR": str(source),
        "CODEBUILD_START_TIME": str(int(time.time() * 1000)),
    }
    env = {**spec.env.variables, **own, **region_words, **codebuild}
    for name, value in given.items():
        env.pop(name, None)
        if value is not None:
            env[name] = value
    secrets = sorted({*spec.env.parameter_store, *spec.env.secrets_manager} - env.keys())
    if secrets:
        raise NotRunError(
            f"{', '.join(secrets)} come from an account", why="a rehearsal asks nobody for secrets", fix="set them here"
        )
    return env


def _run(
    spec: BuildSpec, source: Path, env: dict[str, str], scratch: Path, minutes: float, say: Say
) -> tuple[list[PhaseRow], dict[str, str]]:
    """All phases in one shell; a command that ends it (`exit 1`) gets the next ones a new one."""
    words = ["bash", "--noprofile", "--norc"] if spec.env.shell == "bash" else ["/bin/sh"]
    deadline, rows, stopped = time.monotonic() + 60 * minutes, list[PhaseRow](), False
    shell = Shell(words, source, env, deadline)

    def command(text: str) -> int:
        nonlocal shell
        say(f"$ {text.strip()}")
        file = scratch / "command"
        file.write_text(f"{text}\n")
        code = shell.run(file)
        if code is None:
            code = shell.child.wait()
            say("this command ended its shell; what follows gets a new one")
            shell.close()
            shell = Shell(words, source, env, deadline)
        return code

    try:
        for name in PHASES:
            phase = getattr(spec.phases, name)
            if phase is None or stopped:
                rows += [PhaseRow(phase=name, state="not run")] if phase else []
                continue
            say(f"--- {name}")
            begun, failed, code = time.monotonic(), "", 0
            for text in phase.commands:
                if code := command(text):
                    failed = text
                    break
            for text in phase.finally_:
                if (last := command(text)) and not failed:
                    failed, code = text, last
            state = "FAILED" if failed else "SUCCEEDED"
            row = PhaseRow(phase=name, state=state, seconds=time.monotonic() - begun, code=code, command=failed.strip())
            rows.append(row)
            if failed:
                shell.tell("export CODEBUILD_BUILD_SUCCEEDING=0")
                env["CODEBUILD_BUILD_SUCCEEDING"] = "0"
                stopped = phase.on_failure == "ABORT" or (name != "build" and phase.on_failure != "CONTINUE")
        return rows, _exported(shell, spec.env.exported_variables)
    except TimedOut:
        rows.append(PhaseRow(phase=name, state="FAILED", code=-1, command=text.strip(), seconds=60 * minutes))
        return rows, {}
    finally:
        shell.close()


def _exported(shell: Shell, names: list[str]) -> dict[str, str]:
    """What these are in the environment of the shell; none that is not exported there."""
    found = {}
    for name in names:
        value = shell.answer(f"printenv {name} >&3; printf '\\0' >&3")
        if value:
            found[name] = value.removesuffix("\n")
    return found


def _collect(spec: BuildSpec, source: Path, into: Path | None) -> tuple[list[Collected], list[str]]:
    """What would be uploaded, and what is refused: a file that is named and not there, no artifact at all."""
    rows, problems = list[Collected](), list[str]()
    if spec.artifacts:
        base = source / spec.artifacts.base_directory
        for pattern in spec.artifacts.files:
            files = _matching(base, pattern)
            rows.append(_row("artifact", pattern, files, ""))
            if not files and not any(sign in pattern for sign in WILD):
                problems.append(f"the artifact {pattern} is not there")
            for path in files if into else []:
                assert into
                target = into / path.relative_to(base)
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(path.read_bytes())
        if not any(row.files for row in rows):
            problems.append("no artifact is there at all")
    for group, report in spec.reports.items():
        for pattern in report.files:
            files = _matching(source / report.base_directory, pattern)
            note = _tests(files) if report.file_format == "JUNITXML" else report.file_format
            rows.append(_row("report", f"{group}: {pattern}", files, note))
    for pattern in spec.cache.paths if spec.cache else []:
        rows.append(_row("cache", pattern, _matching(source, pattern), ""))
    return rows, problems


def _matching(base: Path, pattern: str) -> list[Path]:
    whole = base / pattern  # the pattern alone, where it is an absolute one
    found = Path(whole.anchor).glob(str(whole.relative_to(whole.anchor)))
    return sorted(path for path in found if path.is_file() and not path.is_symlink())


def _row(kind: str, path: str, files: list[Path], note: str) -> Collected:
    size = sum(file.stat().st_size for file in files)
    return Collected(kind=kind, path=path, files=len(files), bytes=size, note=note if files else "nothing is there")


def _tests(files: list[Path]) -> str:
    """JUnit in a few words. A file that is no JUnit is said: CodeBuild would show nothing of it."""
    counts = dict.fromkeys(("tests", "failures", "errors", "skipped"), 0)
    for path in files:
        try:
            suites = list(ElementTree.parse(path).iter("testsuite"))
        except ElementTree.ParseError as error:
            return f"{path.name} is no JUnit: {error}"
        for suite in suites:
            for name in counts:
                counts[name] += int(suite.get(name) or 0)
    return ", ".join(f"{count} {name}" for name, count in counts.items())
