"""Test the launcher in a separate process on this host: exit codes, reasons, signals, and no remaining processes."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path

import hosts
import launch
import options
import processes
import pytest
import ranks
from errors import LauncherError

FOLDER = Path(launch.__file__).parent
# As __main__.py does it, with this host's Python, and a place of our own for what a platform reads.
DRIVER = """
import json, os, sys
from pathlib import Path
here, output, stop_seconds, *words = sys.argv[1:]
sys.path.insert(0, here)
import failures, launch, ranks, starting
starting.PYTHON, starting.LAUNCHER, failures.OUTPUT = sys.executable, here, Path(output)
settings = {**json.loads(Path(here, "settings.json").read_text()), "stop_seconds": float(stop_seconds)}
settings |= json.loads(os.environ.get("SETTINGS", "{}"))
os._exit(launch.main(words, settings))
"""
LIMIT_SECONDS = 60  # ends what hangs
WAITS = "import time\nprint('ready', flush=True)\nwhile True: time.sleep(0.05)\n"
SAVES = (
    f"import signal, sys\nsignal.signal(signal.SIGTERM, lambda *_: (print('saved', flush=True), sys.exit(0)))\n{WAITS}"
)
IGNORES = f"import signal\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n{WAITS}"


def apart() -> dict[str, float]:
    """Return a free port for the hosts of one job, because other tests run jobs at the same time."""
    with socket.create_server(("", 0)) as server:
        return {"watch_port": server.getsockname()[1]}


def settings() -> dict[str, float]:
    found: dict[str, float] = json.loads((FOLDER / "settings.json").read_text())
    return found


@dataclass
class Host:
    folder: Path
    stop_seconds: float = 20
    started: list[subprocess.Popen[str]] = field(default_factory=list)

    @property
    def failure(self) -> str:
        place = self.folder / "output/failure"
        return place.read_text() if place.exists() else ""

    @property
    def succeeded(self) -> bool:
        return (self.folder / "output/success").exists()

    def check(self, text: str) -> None:
        self.program("trainwright-check", text)

    def program(self, name: str, text: str) -> None:
        (self.folder / "bin").mkdir(exist_ok=True)
        program = self.folder / "bin" / name
        program.write_text(f"#!/bin/sh\n{text}\n")
        program.chmod(0o755)

    def begin(self, *words: str, **environ: str) -> subprocess.Popen[str]:
        command = [
            sys.executable,
            "-c",
            DRIVER,
            str(FOLDER),
            str(self.folder / "output"),
            str(self.stop_seconds),
            *words,
        ]
        own = {**os.environ, "PATH": f"{self.folder}/bin:{os.environ['PATH']}", "MARK": str(self.folder), **environ}
        said = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True, "cwd": self.folder}
        self.started.append(subprocess.Popen(command, env=own, **said))  # type: ignore[call-overload]
        return self.started[-1]

    def run(self, *words: str, **environ: str) -> tuple[int, str]:
        started = self.begin(*words, **environ)
        said, _ = started.communicate(timeout=LIMIT_SECONDS)
        return started.returncode, said

    def script(self, text: str, name: str = "train.py") -> str:
        (self.folder / name).write_text(text)
        return name

    def left(self) -> list[str]:
        """List the processes that the launcher started and that still run."""
        return hosts.marked(self.folder)


@pytest.fixture
def host(tmp_path: Path) -> Iterator[Host]:
    (tmp_path / "output").mkdir()
    made = Host(tmp_path)
    made.check("echo checked $TRAINWRIGHT_DISTRIBUTION $TRAINWRIGHT_HOSTS $TRAINWRIGHT_PROCESSES >&2")
    yield made
    for process in made.started:
        process.kill()
    assert made.left() == []


def until(process: subprocess.Popen[str], word: str) -> None:
    assert process.stdout
    while word not in (line := process.stdout.readline()):
        assert line, "it ended before"


def test_a_script_that_ends_well(host: Host) -> None:
    (host.folder / "output/failure").write_text("of an earlier start")
    code, said = host.run("--processes", "1", host.script("import sys; print('trained', sys.argv[1:])"), "--lr", "1")
    assert (code, host.failure, host.succeeded) == (0, "", True)
    assert "checked plain localhost 1" in said
    assert "trained ['--lr', '1']" in said


@pytest.mark.parametrize(
    ("text", "code", "says"),
    [
        ("import sys; sys.exit(3)", 3, "localhost: exit code 3"),
        ("raise ValueError('upside down')", 1, "ValueError: upside down"),
        ("import os; os.kill(os.getpid(), 9)", 137, "localhost: exit code 137 (SIGKILL)"),
    ],
)
def test_the_exit_code_is_the_scripts(host: Host, text: str, code: int, says: str) -> None:
    ended, said = host.run(host.script(text))
    assert (ended, host.succeeded) == (code, False), said
    assert host.failure.startswith(f"localhost: exit code {code}")
    assert says in host.failure


def test_a_shell_script(host: Host) -> None:
    assert host.run(host.script("exit 7", "train.sh"))[0] == 7


def test_a_check_that_refuses(host: Host) -> None:
    host.check("echo this is not the image >&2; exit 5")
    code, said = host.run(host.script("print('trained')"))
    assert (code, host.failure) == (5, "this is not the image\n")
    assert "trained" not in said


def test_no_place_for_the_reason(host: Host) -> None:
    """A full disk, as far as root can have one here; the exit code stays."""
    (host.folder / "output/failure").symlink_to("/dev/full")
    code, said = host.run(host.script("import os, sys; os.symlink('/dev/full', 'output/failure'); sys.exit(3)"))
    assert code == 3
    assert "cannot be written: No space left on device" in said


@pytest.mark.parametrize("kind", ["plain", "tensorflow"])
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_stop_is_the_scripts_to_handle(host: Host, kind: str, number: int) -> None:
    host.stop_seconds = 600  # and not waited for
    started = host.begin("--distribution", kind, host.script(SAVES))
    until(started, "ready")
    started.send_signal(number)
    said, _ = started.communicate(timeout=LIMIT_SECONDS)
    assert (started.returncode, host.succeeded) == (0, True), said
    assert "saved" in said


@pytest.mark.parametrize("shell", ["python3 train.py\necho after $?", "exec python3 train.py"])
def test_a_stop_reaches_what_a_shell_runs(host: Host, shell: str) -> None:
    host.script(SAVES)
    started = host.begin(host.script(shell, "train.sh"))
    until(started, "ready")
    started.send_signal(signal.SIGTERM)
    said, _ = started.communicate(timeout=LIMIT_SECONDS)
    assert started.returncode == 0, said
    assert "saved" in said


def test_a_shell_that_handles_a_stop_itself(host: Host) -> None:
    host.script(WAITS)
    shell = "trap 'echo trapped; kill $!; exit 4' TERM\npython3 train.py &\nwait"
    started = host.begin(host.script(shell, "train.sh"))
    until(started, "ready")
    started.send_signal(signal.SIGTERM)
    said, _ = started.communicate(timeout=LIMIT_SECONDS)
    assert (started.returncode, "trapped" in said) == (4, True), said


def test_a_script_that_lets_itself_be_stopped(host: Host) -> None:
    started = host.begin(host.script(WAITS))
    until(started, "ready")
    started.send_signal(signal.SIGTERM)
    started.communicate(timeout=LIMIT_SECONDS)
    assert started.returncode == 143
    assert host.failure.startswith("localhost: exit code 143 (SIGTERM), stopped by SIGTERM")


def test_a_script_that_does_not_end_is_killed(host: Host) -> None:
    host.stop_seconds = 1
    started = host.begin(host.script(IGNORES))
    until(started, "ready")
    started.send_signal(signal.SIGTERM)
    started.communicate(timeout=LIMIT_SECONDS)
    assert started.returncode == 137
    assert "did not end within 1.0 s" in host.failure


def test_a_stop_before_the_script_runs(host: Host) -> None:
    host.check("echo checking; exec sleep 600")
    started = host.begin(host.script(WAITS))
    until(started, "checking")
    started.send_signal(signal.SIGTERM)
    started.communicate(timeout=LIMIT_SECONDS)
    assert started.returncode == 143
    assert "before its script ran" in host.failure


def test_a_stop_that_was_held_back(host: Host) -> None:
    """`train` blocks SIGTERM while it becomes the launcher; it comes the moment that this one can hear it."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    try:
        started = host.begin(host.script(WAITS))
        started.send_signal(signal.SIGTERM)
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
    said, _ = started.communicate(timeout=LIMIT_SECONDS)
    assert (started.returncode, "Traceback" in said) == (143, False), said
    assert "before its script ran" in host.failure


def test_two_jobs_beside_each_other(host: Host) -> None:
    """They share no folder and no port."""
    text = f"import os, sys; print(os.environ['TF_CONFIG'], flush=True)\n{SAVES}"
    both = [host.begin("--distribution", "tensorflow", host.script(text)) for _ in range(2)]
    configs = []
    for one in both:
        assert one.stdout
        configs.append(next(line for line in one.stdout if "cluster" in line))
        until(one, "ready")
    assert configs[0] != configs[1]
    for one in both:
        one.send_signal(signal.SIGTERM)
        assert one.wait(LIMIT_SECONDS) == 0


def test_a_host_whose_check_refuses_is_not_waited_for(host: Host) -> None:
    """The other one hears the cause at once, and not after a quarter of an hour."""
    host.check('[ "$TRAINWRIGHT_HOST" = 127.0.0.2 ] && echo no GPU here >&2 && exit 5; exit 0')
    words = ["--distribution", "torchrun", "--hosts", "127.0.0.1,127.0.0.2", "--host"]
    place = {name: str(host.folder / name) for name in ("127.0.0.1", "127.0.0.2")}
    script = host.script("print('trained')")
    own = {"SETTINGS": json.dumps(apart())}
    both = [host.begin(*words, name, script, TRAINWRIGHT_FAILURE_FILE=file, **own) for name, file in place.items()]
    for one in both:
        said, _ = one.communicate(timeout=LIMIT_SECONDS)
        assert one.returncode, said
        assert "trained" not in said
    assert all("no GPU here" in Path(file).read_text() for file in place.values())


TWO = ("127.0.0.1", "127.0.0.2")


def both(host: Host, *scripts: str) -> list[subprocess.Popen[str]]:
    """Start a job of two hosts, with a script for each."""
    changed, started = json.dumps(apart()), []
    for name, script in zip(TWO, scripts, strict=True):
        words = ["--distribution", "plain", "--hosts", ",".join(TWO), "--host", name, script]
        started.append(host.begin(*words, TRAINWRIGHT_FAILURE_FILE=str(host.folder / name), SETTINGS=changed))
    return started


@pytest.mark.parametrize("who", [0, 1])
@pytest.mark.parametrize(
    ("fails", "says"),
    [("train.py", "ValueError: the data is upside down"), ("./nothing", "./nothing cannot be started")],
)
def test_the_cause_is_told_to_every_host(host: Host, who: int, fails: str, says: str) -> None:
    """Of a script that fails, and of one that cannot even be started."""
    host.script("raise ValueError('the data is upside down')")
    scripts = [host.script(WAITS, "waits.py"), fails]
    started = both(host, *(scripts if who else scripts[::-1]))
    for name, one in zip(TWO, started, strict=True):
        said, _ = one.communicate(timeout=LIMIT_SECONDS)
        assert one.returncode == 1, said
        assert says in (host.folder / name).read_text()
        assert TWO[who] in (host.folder / name).read_text()


@pytest.mark.parametrize("who", [0, 1])
def test_a_stop_of_one_host_reaches_the_scripts_of_all(host: Host, who: int) -> None:
    started = both(host, *[host.script(SAVES)] * 2)
    for one in started:
        until(one, "ready")
    started[who].send_signal(signal.SIGTERM)
    for one in started:
        said, _ = one.communicate(timeout=LIMIT_SECONDS)
        assert (one.returncode, "saved" in said) == (0, True), said


@pytest.mark.parametrize("who", ["127.0.0.1", "127.0.0.2"])
def test_mpi_without_the_watch_is_refused_on_every_host(host: Host, who: str) -> None:
    """On the main one, too: its mpirun would log in with whatever keys the image and its user have."""
    words = ["--distribution", "mpi", "--hosts", "127.0.0.1,127.0.0.2", "--host", who, host.script("print('trained')")]
    code, said = host.run(*words, TRAINWRIGHT_WATCH="off", TRAINWRIGHT_TRUST="network")
    assert code == 1
    assert "MPI over several hosts does not work with TRAINWRIGHT_WATCH=off" in host.failure, said
    assert "unset TRAINWRIGHT_WATCH" in host.failure


SECRET = "0123456789abcdef" * 2


@pytest.mark.waits
@pytest.mark.parametrize(
    ("main", "worker", "first", "second"),
    [
        ({}, {}, "requires a secret", "requires a secret"),
        ({}, {"TRAINWRIGHT_JOB_SECRET": SECRET}, "requires a secret", "127.0.0.1 has none"),
        ({"TRAINWRIGHT_JOB_SECRET": "short"}, {"TRAINWRIGHT_JOB_SECRET": SECRET}, "too short", "127.0.0.1 has none"),
        ({"TRAINWRIGHT_JOB_SECRET": SECRET}, {}, "localhost has no job secret", "requires a secret"),
    ],
)
def test_a_host_without_a_secret_is_not_waited_for(
    host: Host, main: dict[str, str], worker: dict[str, str], first: str, second: str
) -> None:
    """Hosts of an MPI job; the others hear of it at once, and not after a quarter of an hour."""
    words = ["--distribution", "mpi", "--hosts", "127.0.0.1,localhost", "--host"]
    changed = json.dumps({**apart(), "tell_seconds": 5})
    script, started = host.script("print('trained')"), []
    for name, text in (("sshd", ""), ("ssh-keygen", 'for last; do :; done; echo ssh-ed25519 AAAA >"$last.pub"')):
        host.program(name, text)
    for name, own in (("localhost", worker), ("127.0.0.1", main)):
        own = {**own, "SETTINGS": changed, "TMPDIR": str(host.folder)}  # hosts of one name share what lies there
        started.append(host.begin(*words, name, script, TRAINWRIGHT_FAILURE_FILE=str(host.folder / name), **own))
    for one in started:
        said, _ = one.communicate(timeout=LIMIT_SECONDS)
        assert one.returncode == 1, said
    assert first in (host.folder / "127.0.0.1").read_text()
    assert second in (host.folder / "localhost").read_text()


# Starts its rank as torchrun's agent does; once that has failed, it waits for the agents of other hosts.
AGENT = """
import subprocess, sys, time
subprocess.run(sys.argv[sys.argv.index("--no-python") + 1 :])
print("waits for others", flush=True)
time.sleep(600)
"""


def test_an_agent_without_ranks_is_not_waited_for(host: Host) -> None:
    (host.folder / "torch/distributed").mkdir(parents=True)
    (host.folder / "torch/distributed/run.py").write_text(AGENT)
    patient = json.dumps({"peer_stop_seconds": 600})
    host.run("--distribution", "torchrun", host.script("raise SystemExit(3)"), SETTINGS=patient)
    assert host.failure.startswith("localhost: exit code 3")


def test_the_first_words_of_a_rank_are_kept(tmp_path: Path) -> None:
    """Two that call themselves the same do not overwrite each other; who was killed is not the cause."""
    for number, code in enumerate((143, 3, 1)):
        record = ranks.Record("0", code, float(number), "")
        (tmp_path / f"rank-0-{number}.json").write_text(json.dumps(asdict(record)))
    assert [one.code for one in ranks.records(tmp_path)] == [3, 1, 143]


def test_another_users_folder_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    made = ranks.folder("job", alone=False)
    assert made == ranks.folder("job", alone=False) != ranks.folder("other", alone=False)
    assert ranks.folder("job", alone=True) != ranks.folder("job", alone=True)  # two jobs of one host share none
    made.chmod(0o755)
    with pytest.raises(LauncherError, match="other users can access"):
        ranks.folder("job", alone=False)


def rank(host: Host, text: str) -> subprocess.Popen[str]:
    """Start the parent of a rank, as torchrun and mpirun do."""
    environ = {**os.environ, "MARK": str(host.folder), "RANK": "1"}
    words = ["--rank", str(host.folder), "--keep", "", "--", sys.executable, "-u", host.script(text)]
    command = [sys.executable, "-IB", str(FOLDER), *words]
    host.started.append(
        subprocess.Popen(command, env=environ, stdout=subprocess.PIPE, text=True, cwd=host.folder, bufsize=1)
    )
    return host.started[-1]


def test_a_rank_hands_a_stop_on(host: Host) -> None:
    """Its handler runs to the end, and its parent waits for that."""
    one = rank(host, SAVES)
    until(one, "ready")
    one.send_signal(signal.SIGTERM)
    said, _ = one.communicate(timeout=LIMIT_SECONDS)
    assert (one.returncode, said) == (0, "saved\n")
    assert ranks.records(host.folder) == []


def test_a_rank_that_is_stopped_at_once_hands_it_on(host: Host) -> None:
    """What came while it was held back, before there was anybody to tell, reaches the script nevertheless."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    try:
        one = rank(host, WAITS)
        one.send_signal(signal.SIGTERM)
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
    one.communicate(timeout=LIMIT_SECONDS)
    assert one.returncode == 143  # the launcher's word for it; of a parent that dies by the signal itself it is -15
    assert [record.code for record in ranks.records(host.folder)] == [143]


@pytest.mark.parametrize(
    ("kind", "asked", "found"),
    [("plain", 0, 1), ("plain", 1, 1), ("tensorflow", 0, 1), ("torchrun", 0, 8), ("mpi", 0, 8)],
)
def test_how_many_processes(kind: str, asked: int, found: int) -> None:
    assert launch.count(kind, asked, 8) == found


def test_processes_that_nothing_makes_one_job_of(host: Host) -> None:
    code, said = host.run("--processes", "4", host.script("print('trained')"))
    assert (code, "trained" in said) == (1, False)
    assert "--processes 4 requires another distribution" in host.failure
    assert "--distribution torchrun" in host.failure


def test_a_program_that_does_not_end(tmp_path: Path) -> None:
    with pytest.raises(LauncherError, match="sleep did not end within"):
        processes.run(["sleep", "600"], 0.2)
    with pytest.raises(LauncherError, match="mpirum cannot be started"):
        processes.run(["mpirum"], 5)
    assert processes.run(["sh", "-c", "echo one; echo two >&2; exit 3"], 5) == (3, "one\ntwo")


def test_every_setting_is_there_and_used() -> None:
    used = set[str]()
    for path in FOLDER.glob("*.py"):
        used |= set(re.findall(r'settings\[?[("]+(\w+)"', path.read_text()))
        used |= {name for name in settings() if f'"{name}"' in path.read_text()}
    assert used == settings().keys()


def test_the_page_says_what_the_settings_say() -> None:
    page = (Path(__file__).parents[3] / "docs/training.md").read_text()
    said = {name: float(value) for name, value in re.findall(r"`(\w+_seconds)`,? \((\d+)", page)}
    assert {"stop_seconds", "silent_seconds", "peer_stop_seconds", "join_seconds"} <= said.keys()
    assert said == {name: settings()[name] for name in said}
    for name in ("watch_port", "ssh_port", "torch_port"):
        assert f"port {settings()[name]:.0f}" in page
    grace = 120  # of SageMaker, between SIGTERM and SIGKILL: what follows the script's own end must fit, too
    assert sum(settings()[name] for name in ("stop_seconds", "farewell_seconds", "upload_seconds")) < grace


def test_one_worker_that_fails_ends_the_others(host: Host) -> None:
    text = f"import json, os\nif json.loads(os.environ['TF_CONFIG'])['task']['index']: raise SystemExit(6)\n{WAITS}"
    host.stop_seconds = 600  # and not waited for
    code, said = host.run("--distribution", "tensorflow", "--processes", "2", host.script(text))
    assert code == 6, said


def test_a_process_that_the_script_leaves_behind_holds_nothing_up(host: Host) -> None:
    text = "import subprocess; subprocess.Popen(['sleep', '600'], start_new_session=True); print('trained')"
    assert host.run(host.script(text))[0] == 0


def test_the_secret_is_not_the_scripts(host: Host) -> None:
    text = "import os; print([name for name in os.environ if 'SECRET' in name])"
    code, said = host.run(host.script(text), TRAINWRIGHT_JOB_SECRET="0123456789abcdef" * 2)
    assert (code, "[]" in said) == (0, True), said


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("--process 2 x.py", "did you mean --processes?"),
        ("--distribution torch x.py", "did you mean torchrun?"),
        ("--processes two x.py", "--processes two"),
        ("--host a --host b x.py", "given twice"),
        ("--processes 2", "no script"),
        ("--hosts", "requires a value"),
    ],
)
def test_words_that_make_no_sense(words: str, says: str) -> None:
    with pytest.raises(LauncherError) as raised:
        options.parse(words.split())
    assert says in str(raised.value)


def test_the_scripts_words_are_its_own() -> None:
    asked = options.parse(["--distribution=mpi", "--mpi-options=-x_A", "train.py", "--processes", "9", "--", "-m"])
    assert asked.words == ("train.py", "--processes", "9", "--", "-m")
    assert (asked.distribution, asked.mpi_options, asked.flags.processes) == ("mpi", "-x_A", 0)
    assert options.parse(["--", "--odd.py"]).words == ("--odd.py",)


@pytest.mark.parametrize(
    ("environ", "count"), [({}, 2), ({"CUDA_VISIBLE_DEVICES": "3"}, 1), ({"CUDA_VISIBLE_DEVICES": ""}, 0)]
)
def test_gpus_are_counted_as_a_process_sees_them(environ: dict[str, str], count: int) -> None:
    assert options.gpus(["nvidia0", "nvidia7", "nvidiactl", "nvidia-uvm", "null"], environ) == count


def test_hosts_that_would_train_side_by_side(host: Host) -> None:
    code, said = host.run("--hosts", "a,b", "--host", "a", host.script("print('trained')"))
    assert code == 1
    assert "a job of 2 hosts requires a distribution" in said
    assert "trained" not in said
