"""Test the report on a log that is still written: each cause once and at once, and silence if it is unexpected."""

import json
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from unit.forked import Forked

from trainwright.diagnose import causes, reader, tail
from trainwright.diagnose import watch as diagnose_watch
from trainwright.diagnose.watch import Watch

ROOT = Path(__file__).parents[3]
OOM = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB"
KILLED = (
    "ERROR:torch.distributed.elastic.multiprocessing.api:failed (exitcode: -9) local_rank: 0 (pid: 53) of binary: x"
)
DOUBLE = "h:7:7 [0] init.cc:943 NCCL WARN Duplicate GPU detected : rank 1 and rank 0 both on CUDA device 1b000"
TERMINATED = "torch.distributed.elastic.multiprocessing.api.SignalException: Process 7 got Signal 15 (SIGTERM) received"
NO_PLUGIN = "algo-1:7:7 [0] NCCL INFO NET/OFI Failed to find CUDA Runtime library"
JOB, HOST = 900, 1800  # seconds
READER = reader.Reader(causes.load_causes(ROOT), reader.load_settings(ROOT))


def watch(hosts: int = 0, job: float = JOB) -> Watch:
    settings = diagnose_watch.load_settings(ROOT)
    settings = settings.model_copy(update={"silence": diagnose_watch.Silence(job_seconds=job, host_seconds=HOST)})
    return Watch(READER.fresh(), settings, hosts)


def ids(said: list[str]) -> list[str]:
    return [line.partition(":")[0] for line in said if not line.startswith(" ")]


def test_a_cause_is_said_once_and_at_once_with_its_fix() -> None:
    one = watch()
    assert one.line("algo-1", "step 1", 0) == []
    said = one.line("algo-2", OOM, 1)
    assert ids(said) == ["out-of-memory"]
    assert said[1].strip() == f"line 2: {OOM}"
    assert said[2].startswith("  fix: ")
    assert one.line("algo-1", OOM, 2) == one.end() == []
    assert one.cause
    assert one.cause[0].fatal


def test_a_line_that_shows_two_rows_is_said_by_the_most_specific() -> None:
    one = watch()
    assert len(one.line("", OOM, 0)) == 3
    assert one.cause
    assert "what was asked" in one.cause[0].what


def test_a_more_specific_cause_that_comes_later_is_said_too() -> None:
    one = watch()
    assert ids(one.line("", "h:1:1 [0] NCCL INFO NET/OFI aws-ofi-nccl initialization failed", 0)) == ["plugin-failed"]
    assert ids(one.line("", "h:1:1 [0] NCCL INFO Using network Socket", 1)) == ["socket-fallback"]
    assert one.cause
    assert one.cause[0].id == "socket-fallback"


def test_what_a_later_line_may_speak_against_is_said_at_the_end() -> None:
    one = watch()
    assert one.line("", KILLED, 0) == []
    assert one.stops() is None
    assert ids(one.end()) == ["killed"]
    other = watch()
    other.line("", KILLED, 0)
    other.line("", TERMINATED, 1)
    assert other.end() == []
    assert other.cause is None


def test_the_end_names_the_first_cause_again_where_another_was_said_after_it() -> None:
    one = watch()
    one.line("", "fork: retry: Resource temporarily unavailable: No space left on device: '/data/a'", 0)
    assert ids(one.line("", DOUBLE, 1)) == ["duplicate-gpu"]
    assert one.cause
    assert one.end() == [f"{one.cause[0].id}: this is the first cause, of those above"]


def test_what_a_later_try_outlived_stops_no_job() -> None:
    one = watch()
    ecc = "[ 1399.2] NVRM: Xid (PCI:0000:01:00): 48, pid=99, An uncorrectable double bit error (DBE) has been detected"
    assert ids(one.line("", ecc, 0)) == ["ecc"]
    assert one.stops()
    one.line("", "[Auto Resume] Info: JobID: 7 Retrying step. Attempt number: 1", 1)
    assert one.stops() is None


def test_the_end_has_the_remedy_of_the_place() -> None:
    one = watch()
    one.line("", "SM_MODEL_DIR=/opt/ml/model", 0)
    line = "ERROR: failed to register layer: write /usr/lib/x: no space left on device"
    said, last = one.line("", line, 1), one.end()
    assert ids(said) == ["disk-full"]
    assert last[0].startswith("first cause: disk-full: ")
    assert "VolumeSizeInGB" in last[2]


def test_the_end_takes_back_what_the_program_survived() -> None:
    one = watch()
    assert ids(one.line("", OOM, 0)) == ["out-of-memory"]
    for step in range(1, 200):
        one.line("", f"step {step} loss {1 / step:.4f}", step)
    assert one.end() == [diagnose_watch.WENT_ON]
    assert one.cause is None


def test_the_network_is_no_cause_on_a_lone_host() -> None:
    assert ids(watch(hosts=2).line("", NO_PLUGIN, 0)) == ["libcudart"]
    lone = watch(hosts=1)
    assert lone.line("", NO_PLUGIN, 0) == []
    assert lone.cause is None
    assert lone.stops() is None


def test_what_a_program_may_survive_stops_no_job() -> None:
    """A script that looks for its largest batch catches the first of these, and trains on."""
    for line in (OOM, "OSError: [Errno 28] No space left on device: '/opt/ml/checkpoints/a'", NO_PLUGIN, KILLED):
        one = watch(hosts=2)
        one.line("algo-1", line, 0)
        assert one.cause
        assert one.stops() is None
        assert not one.cause[0].stops
    one = watch()
    assert ids(one.line("", DOUBLE, 0)) == ["duplicate-gpu"]
    assert one.stops()


def test_a_gpu_without_memory_counts_once_the_job_is_said_to_have_failed() -> None:
    one = watch()
    one.line("", OOM, 0)
    assert one.line("", "torch.distributed.elastic.multiprocessing.errors.ChildFailedError:", 1) == []
    found = one.stops()
    assert found
    assert found[0].id == "out-of-memory"
    alone = watch()
    alone.line("", "torch.distributed.elastic.multiprocessing.errors.ChildFailedError:", 0)
    assert alone.stops() is None


def test_silence_is_said_once_and_again_after_the_next_word() -> None:
    one = watch()
    one.line("algo-1", "step 1", 0)
    assert one.tick(JOB - 1) == []
    assert ids(one.tick(JOB)) == ["silence"]
    assert one.silent
    assert one.tick(2 * JOB) == []
    one.line("algo-1", "step 2", 2 * JOB)
    assert not one.silent
    assert ids(one.tick(3 * JOB)) == ["silence"]


def test_silence_counts_while_the_job_trains_alone() -> None:
    one = watch()
    one.line("algo-1", "step 1", 0)
    assert one.tick(5 * JOB, training=False) == one.tick(6 * JOB) == []  # it has just begun to train again
    assert ids(one.tick(7 * JOB)) == ["silence"]


def test_a_host_that_used_to_speak_is_missed() -> None:
    one, said = watch(hosts=2), []
    for now in range(0, 5 * HOST, 60):
        one.line("algo-1", "step", now)
        if now < 2 * HOST:
            one.line("algo-2", "step", now)
        said += one.tick(now)
    assert ids(said) == ["silence"]
    assert "algo-2" in said[0]


def test_a_host_that_only_ever_said_hello_is_not_missed() -> None:
    one, said = watch(hosts=2), []
    one.line("algo-2", "hello", 0)
    for now in range(0, 5 * HOST, 60):
        one.line("algo-1", "step", now)
        said += one.tick(now)
    assert said == []


def test_hosts_that_are_silent_together_are_not_missed_one_by_one() -> None:
    one, said = watch(hosts=2, job=100 * HOST), []
    for now in range(0, 6 * HOST, 60):
        for host in ("algo-1", "algo-2") if now < 2 * HOST else ():
            one.line(host, "step", now)
        said += one.tick(now)
    assert said == []


def test_what_our_images_say_is_no_cause_by_itself() -> None:
    """Every line that stands in their scripts, as if a healthy job had printed it."""
    for path in sorted((ROOT / "dockerfiles/rootfs").rglob("*")):
        one = watch()
        for line in path.read_text(errors="replace").splitlines() if path.is_file() else ():
            assert one.line("", line, 0) == [], path
        assert one.cause is None


# --- files and pipes -------------------------------------------------------------------------------------------------


def test_a_file_that_grows_is_cut_and_is_replaced(tmp_path: Path) -> None:
    path, found = tmp_path / "log", list[str]()
    path.write_text("one\ntw")

    steps: Iterator[Callable[[], object]] = iter(
        [
            lambda: path.open("a").write("o\nthree\n"),
            lambda: path.write_text("four\n"),  # it became shorter
            lambda: (path.rename(tmp_path / "old"), path.write_text("five\nsix")),
            lambda: None,
        ]
    )
    quiet = 0
    for line in tail.lines(str(path), follow=True, tick=0.01):
        if line is not None:
            found.append(line)
        else:
            quiet += 1
            if quiet % 3 == 0:
                step = next(steps, None)
                if step is None:
                    break
                step()
    assert found == ["one", "two", "three", "four", "five"]


def run(*words: str, root: Path = ROOT) -> Forked:
    return Forked(["watch", *words], root)


def test_a_pipe_is_passed_on_and_its_cause_said_while_it_is_open() -> None:
    process = run("-", "--stop-on-cause")
    process.stdin.write(f"step 1\n{OOM}\n{DOUBLE}\n")
    process.stdin.flush()
    closer = threading.Timer(30, process.kill)  # a program that waits for more is a failure, not a hanging test
    closer.start()
    code = process.wait()
    closer.cancel()
    assert code == 9
    assert process.stdout.read() == f"step 1\n{OOM}\n{DOUBLE}\n"
    said = process.stderr.read()
    assert "watch  | out-of-memory: " in said
    assert "a job fails: NCCL sees two ranks on the same GPU" in said
    process.stdin.close()


def test_a_pipe_is_passed_on_to_the_last_byte() -> None:
    """What nobody looks at, too: the end of a long line, what is no UTF-8, and a last line without its end."""
    text = b"a" * 200_000 + b"z\n\xff\xfe\r\nlast"
    process = run("-")
    out, err = process.communicate(text)
    assert (process.returncode, out) == (0, text)
    assert b"no known cause in 3 lines" in err


def test_a_pipe_through_which_nothing_comes_any_more(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "dockerfiles/causes", tmp_path / "dockerfiles/causes")
    for name in ("matrix.toml", "diagnose.toml", "follow.toml", "stragglers.toml"):
        text = (ROOT / "dockerfiles" / name).read_text()
        text = text.replace("job_seconds = 900", "job_seconds = 0.3").replace(
            "file_seconds = 1 ", "file_seconds = 0.1 "
        )
        (tmp_path / "dockerfiles" / name).write_text(text)
    process = run("-", "--stop-on-silence", "--json", root=tmp_path)
    process.stdin.write("step 1\n")
    process.stdin.flush()
    closer = threading.Timer(30, process.kill)
    closer.start()
    code = process.wait()
    closer.cancel()
    assert code == 9
    said = json.loads(process.stdout.read())
    assert (said["silent"], said["lines"], said["cause"]) == (True, 1, None)
    process.stdin.close()


def test_a_log_without_a_known_cause_is_no_failure(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_text("step 1\nstep 2\n")
    out, err = run(str(path)).communicate()
    assert (out, err.decode()) == (b"", f"{path}: no known cause in 2 lines\n")
    path.write_text("")
    assert run(str(path)).communicate()[1].decode() == f"{path}: the log is empty\n"


def test_a_cause_that_a_program_may_have_survived_is_no_failure(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_text(f"step 1\n{OOM}\nstep 2, half the batch\n")
    process = run(str(path), "--stop-on-cause")
    out, err = process.communicate()
    assert (process.returncode, err) == (0, b"")
    assert b"watch  | out-of-memory: " in out


def test_a_cause_that_ends_most_programs_is_no_failure_of_one_that_went_on(tmp_path: Path) -> None:
    path = tmp_path / "log"
    steps = "".join(f"step {step} loss 2.29\n" for step in range(9))
    ecc = "[ 1399.2] NVRM: Xid (PCI:0000:01:00): 48, pid=99, An uncorrectable double bit error (DBE) has been detected"
    path.write_text(
        f"{ecc}\n[Auto Resume] Info: JobID: 7 Retrying step. Attempt number: 1\n{steps}Training completed\n"
    )
    process = run(str(path))
    out, err = process.communicate()
    assert (process.returncode, err) == (0, b"")
    assert b"watch  | ecc: " in out
    assert out.decode().endswith(f"watch  | {diagnose_watch.WENT_ON}\n")


def test_a_log_that_is_not_there(tmp_path: Path) -> None:
    for words in ((str(tmp_path / "none"),), (str(tmp_path / "none"), "--follow")):
        process = run(*words)
        _, err = process.communicate()
        assert process.returncode == 2
        assert b"the log cannot be read" in err


def test_ctrl_c_ends_following_a_file(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_text(f"{OOM}\n")
    process = run(str(path), "--follow")
    assert "out-of-memory" in process.stdout.readline()
    time.sleep(0.2)
    process.send_signal(2)
    _, err = process.communicate()
    assert process.returncode == 130
    assert b"Traceback" not in err
