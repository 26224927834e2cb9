"""Test running programs: each error shows the whole command, and Ctrl-C leaves no process behind."""

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from trainwright.build import baking
from trainwright.core.errors import BuildError, EnvironmentProblem
from trainwright.core.process import logged, pass_on, run


def test_output() -> None:
    assert run(["printf", "%s", "a b"], error=BuildError) == "a b"
    assert run(["cat"], stdin="text", error=BuildError) == "text"
    assert run(["sh", "-c", "echo $OWN"], env={"OWN": "1"}, error=BuildError) == "1\n"


def test_nothing_reads_the_terminal() -> None:
    assert run(["cat"], error=BuildError) == ""


def test_a_failure_tells_the_command_and_its_last_words() -> None:
    with pytest.raises(BuildError, match="sh failed with exit code 3") as raised:
        run(["sh", "-c", "seq 20; echo no such luck >&2; exit 3"], error=BuildError, fix="pray")
    assert raised.value.where == "sh -c 'seq 20; echo no such luck >&2; exit 3'"
    assert raised.value.why == "no such luck"
    assert raised.value.fix == "pray"


def test_last_words_on_standard_output_count_too_and_only_the_last() -> None:
    with pytest.raises(BuildError) as raised:
        run(["sh", "-c", "seq 100; exit 1"], error=BuildError, what="it failed")
    assert raised.value.what == "it failed"
    assert raised.value.why.splitlines() == [str(number) for number in range(86, 101)]


def test_program_that_is_not_there() -> None:
    with pytest.raises(EnvironmentProblem, match="no-such-program is not installed") as raised:
        run(["no-such-program", "--flag"], error=BuildError)
    assert "no-such-program --flag" in raised.value.why


def test_program_that_may_not_run(tmp_path: Path) -> None:
    """A script that lost its mode bit, in a checkout that came as a zip file for instance."""
    (tmp_path / "script.sh").write_text("#!/bin/sh\n")
    with pytest.raises(EnvironmentProblem, match=r"script\.sh"):
        run([tmp_path / "script.sh"], error=BuildError)


def test_output_that_is_no_text() -> None:
    assert "end" in run(["printf", r"\377end"], error=BuildError)


def test_data_of_a_child_does_not_mix_with_ours(capfd: pytest.CaptureFixture[str]) -> None:
    with capfd.disabled():
        code = "from trainwright.core.errors import *; from trainwright.core.process import pass_on, run\n"
        code += "run(['sh', '-c', 'echo out; echo err >&2'], error=BuildError, show=True, out_to_err=True)"
        ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ended.stdout == ""
    assert sorted(ended.stderr.split()) == ["err", "out"]


def test_what_is_passed_on_is_in_the_error_too(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Of a log's end alone, a person reads why: what was passed on may be out of sight."""
    with pytest.raises(BuildError) as raised:
        pass_on(
            ["sh", "-c", "echo 'no space left' >&2; exit 3"],
            cwd=tmp_path,
            error=BuildError,
            what="it failed",
            fix="",
            reason=str.strip,
        )
    assert (raised.value.why, capfd.readouterr().err) == ("no space left", "no space left\n")


# As BuildKit 0.29 printed it.
FAILED = """#9 1.204 done
#9 ERROR: process "/bin/sh -c touch /a" did not complete successfully: exit code: 1
------
 > [image 3/5] RUN touch /a:
0.312 touch: cannot touch '/a': No space left on device
------
Dockerfile:118
--------------------
 117 |     FROM base
 118 | >>> RUN touch /a
--------------------
ERROR: failed to solve: process "/bin/sh -c touch /a" did not complete successfully: exit code: 1
"""


@pytest.mark.parametrize(
    ("said", "why"),
    [
        (FAILED, " > [image 3/5] RUN touch /a:\n0.312 touch: cannot touch '/a': No space left on device"),
        ("ERROR: no builder\n", "ERROR: no builder"),
        ("", ""),
    ],
)
def test_a_failed_build_names_its_step_and_what_that_said(said: str, why: str) -> None:
    assert baking.failed_step(said) == why


@pytest.mark.parametrize("stubborn", [False, True])
def test_ctrl_c_stops_the_child(tmp_path: Path, stubborn: bool) -> None:
    """Asked first; one that does not listen is made to."""
    pid = tmp_path / "pid"
    trap = "trap '' INT; " if stubborn else ""
    code = (
        "from trainwright.core import process\n"
        "from trainwright.core.errors import BuildError\n"
        "process.GRACE_SECONDS = 0.1\n"
        f"process.run(['sh', '-c', '''{trap}echo $$ > {pid}.new; mv {pid}.new {pid}; exec sleep 60'''],"
        " error=BuildError)"
    )
    ours = subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.PIPE, text=True)
    while not pid.exists():
        time.sleep(0.01)
    child = Path("/proc", pid.read_text().strip())
    assert child.exists()
    time.sleep(0.1)  # until Popen has returned: before that, nobody but Python knows the child
    ours.send_signal(signal.SIGINT)
    assert "KeyboardInterrupt" in ours.communicate(timeout=10)[1]
    assert not child.exists()


def test_hours_of_output_are_passed_on_and_kept(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    words = ["sh", "-c", "echo $OWN; seq 600; echo bad >&2; exit 3"]
    code, said = logged(words, tmp_path / "log", cwd=tmp_path, env={"OWN": "1"}, grace=1)
    lines = ["1", *(str(number) for number in range(1, 601)), "bad"]
    assert (code, said.splitlines()) == (3, lines[-500:])
    assert (tmp_path / "log").read_text().splitlines() == lines
    assert capfd.readouterr().err.splitlines() == lines


class Interrupted:
    """A standard error that Ctrl-C reaches at the first line of a program."""

    def __init__(self) -> None:
        self.lines = list[str]()

    def write(self, text: str) -> None:
        self.lines.append(text)
        if len(self.lines) == 1:
            raise KeyboardInterrupt

    def flush(self) -> None:
        pass


@pytest.mark.parametrize(
    ("trap", "ended"), [("", ""), ("trap 'echo clean >done; exit' INT;", "clean"), ("trap '' INT TERM;", "")]
)
@pytest.mark.parametrize("nohup", [False, True])
def test_an_interrupt_ends_all_processes_of_a_session(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, trap: str, ended: str, nohup: bool
) -> None:
    """Also one that ignores it, and the children of a shell that is gone; also where we ignore it ourselves."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN) if nohup else signal.getsignal(signal.SIGINT)
    script = f"{trap} sleep 987 & echo $! $$ >pids; echo ready; wait; sleep 987"
    monkeypatch.setattr(sys, "stderr", Interrupted())
    with pytest.raises(KeyboardInterrupt):
        logged(["sh", "-c", script], tmp_path / "log", cwd=tmp_path, grace=0.2)
    assert signal.signal(signal.SIGINT, before) == (signal.SIG_IGN if nohup else before)
    done = tmp_path / "done"
    assert (done.read_text().strip() if done.exists() else "") == ended
    for pid in (tmp_path / "pids").read_text().split():
        end = time.monotonic() + 10  # who was killed by a signal is gone a moment later
        while _runs(pid) and time.monotonic() < end:
            time.sleep(0.01)
        assert not _runs(pid)


def test_a_program_that_cannot_start_leaves_an_ignored_interrupt_ignored(tmp_path: Path) -> None:
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with pytest.raises(FileNotFoundError):
            logged([tmp_path / "none"], tmp_path / "log", cwd=tmp_path, grace=1)
        assert signal.getsignal(signal.SIGINT) == signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)


def _runs(pid: str) -> bool:
    try:
        return Path("/proc", pid, "stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False
