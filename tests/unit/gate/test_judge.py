"""Test the judge on real logs: what each of them proves."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from logs import EXPECTED, GOOD, LOGS, ROOT, complete, judged, log, planted, state
from typer.testing import CliRunner
from unit.diagnose.test_prefixes import PREFIXED

from trainwright.commands import register
from trainwright.commands.options import app
from trainwright.diagnose import causes, log_lines
from trainwright.gate import judge

register(["diagnose"])
register(["judge"])


@pytest.fixture(autouse=True)
def here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)


# --- real logs -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", EXPECTED)
def test_every_log_gets_its_verdict(name: str) -> None:
    found, said = judged(LOGS / f"{name}.txt"), EXPECTED[name]
    assert found.verdict == said["verdict"]
    if "cause" in said:
        assert found.cause == said["cause"]
    if "peak_busbw" in said:
        assert found.peak_busbw == pytest.approx(said["peak_busbw"])
    if "ranks" in said:
        bounds = [(low, high) for low, high in found.ranks if low is not None and high is not None]
        assert all(low <= count <= high for count, (low, high) in zip(said["ranks"], bounds, strict=True))


def test_a_gate_of_our_image_without_efa_fails_by_its_transport_alone() -> None:
    """scripts/gate.sh over two hosts with one H200, without what NCCL_DEBUG_SUBSYS had in addition (TUNING, GRAPH)."""
    found = judged(log("50"))
    failed = {check.name for check in found.checks if check.state in ("fail", "not established")}
    assert failed == {"transport"}
    for check in ("completion", "average", "sizes", "wrong values", "rank count", "nccl version", "exit code"):
        assert state(found, check) == "pass"


def test_what_is_declared_is_held_against_the_log() -> None:
    one_node = log("05")
    assert judged(one_node).verdict == "pass"
    assert judged(one_node, world_size=8).verdict == "pass"
    sold = judged(one_node, world_size=16)
    assert (sold.verdict, sold.cause, sold.declared_ranks) == ("fail", "rank-count", 16)
    assert judged(one_node, nodes=2, instance="p5.48xlarge").cause == "rank-count"
    assert judged(log("16"), nodes=2).cause == "rank-count"  # the header names one host
    assert judged(one_node, exit_code=0).verdict == "pass"
    assert judged(one_node, exit_code=7).cause == "exit-code"
    assert judged(log("12"), pins={"nccl": "2.29.3"}).verdict == "incomplete"
    assert judged(log("12"), pins={"nccl": "2.30.7"}).cause == "two-nccl"
    assert state(judged(one_node, pins={"nccl": "2.30.7"}), "nccl version") == "not established"


def test_a_declared_instance_needs_its_witnesses() -> None:
    """EFA, its NICs and GPUDirect are promised by the instance: a log that says nothing of them proves nothing."""
    found = judged(log("03"), instance="p5.48xlarge", nodes=2)
    assert found.verdict == "incomplete"
    assert {check: state(found, check) for check in ("transport", "nics", "gpudirect", "floor")} == {
        "transport": "not established",
        "nics": "not established",
        "gpudirect": "not established",
        "floor": "pass",
    }
    old = judged(log("07"), instance="p4d.24xlarge", nodes=2)
    assert (state(old, "transport"), state(old, "gpudirect"), state(old, "floor")) == ("pass", "pass", "pass")
    assert state(judged(log("08"), instance="p4d.24xlarge", nodes=2), "floor") == "fail"  # 32.8 GB/s of 50


def test_every_pin_that_a_log_can_show(tmp_path: Path) -> None:
    said = "h:1:2 [0] NCCL INFO NET/OFI Initializing aws-ofi-nccl 1.21.1\n"
    path = planted(tmp_path, said + log("20").read_text(), str)
    right = {"nccl": "2.29.7", "nccl-tests": "2.18.0", "aws-ofi-nccl": "1.21.1"}
    assert judged(path, pins=right).verdict == "pass"
    for name in right:
        wrong = judged(path, pins=right | {name: "1.0.0"})
        assert (wrong.verdict, wrong.cause) == ("fail", "two-nccl" if name == "nccl" else "other-version")
    assert judged(log("20"), pins=right).verdict == "incomplete"


def test_one_process_may_have_all_gpus_of_a_node(tmp_path: Path) -> None:
    """-g 8: 16 ranks, and two processes that say what they found."""
    text, said = complete(), list[str]()
    for rank in range(16):
        host = rank // 8
        text = re.sub(rf"(Rank +{rank} Pid +)\d+( on \S+-)\d", rf"\g<1>{77}\g<2>{host}", text)
    lines = [line for line in text.splitlines(keepends=True) if "NCCL INFO" not in line]
    for host in (0, 1):
        name = f"nccl-tests-efa-16-worker-{host}:77:77 [0] NCCL INFO"
        said.append(f"{name} NET/OFI Selected provider is efa, fabric is efa (found 4 nics)\n")
        said.append(f"{name} Using network AWS Libfabric\n{name} Channel 00 : 1 -> 8 via NET/AWS Libfabric/1/GDRDMA\n")
    found = judged(planted(tmp_path, "".join(said + lines), str), instance="p4d.24xlarge", nodes=2)
    assert (state(found, "transport"), found.verdict) == ("pass", "pass"), found.checks
    assert judged(tmp_path / "log.txt", instance="ml.p4d.24xlarge", nodes=2).verdict == "pass"


@pytest.mark.parametrize(("found", "wanted"), [(4, "pass"), (8, "pass"), (2, "fail"), (16, "fail")])
def test_a_gb200_has_four_interfaces_or_eight(tmp_path: Path, found: int, wanted: str) -> None:
    text = complete().replace("found 4 nics", f"found {found} nics")
    verdict = judged(planted(tmp_path, text, str), instance="p6e-gb200.36xlarge", nodes=4)
    assert state(verdict, "nics") == wanted


WHOLE = ("all_reduce", "broadcast", "alltoall")


def a_gate() -> str:
    """Return a log as our runner writes it: several collectives in turn, each with its own processes."""
    parts = ["gate: image host/x@sha256:" + "a" * 64]
    for number, name in enumerate(WHOLE):
        shape = {"all_reduce": ("sum -1 268435456", 1.875), "broadcast": ("none 0 268435456", 1.0)}
        words, factor = shape.get(name, ("none -1 16777216", 0.9375))
        redop, root, count = words.split()
        side = f"53687.1  20.00  {20 * factor:.2f}  0"
        parts.append(f"gate: {name} begins")
        for rank in range(16):
            said = f"host-{rank // 8}:{100 * number + rank}:{rank} [0] NCCL INFO"
            parts.append(f"{said} NET/OFI Selected provider is efa, fabric is efa (found 4 nics)")
            parts.append(f"{said} Using network Libfabric")
            parts.append(f"{said} Channel 00/0 : 0[0] -> 8[0] [send] via NET/Libfabric/0/GDRDMA")
        parts += [
            f"# Collective test starting: {name}_perf",
            "# size count type redop root " + "time algbw busbw #wrong " * 2,
        ]
        parts.append(f"1073741824 {count} float {redop} {root} {side} {side}")
        parts += ["# Out of bounds values : 0 OK", f"# Avg bus bandwidth    : {20 * factor:g}"]
        parts += [f"# Collective test concluded: {name}_perf", f"gate: {name} exited with code 0"]
    return "\n".join(parts) + "\n"


def test_a_whole_gate(tmp_path: Path) -> None:
    declared = {"instance": "p4d.24xlarge", "nodes": 2}
    good = judged(planted(tmp_path, a_gate(), str), **declared)
    assert (good.verdict, set(good.collectives)) == ("pass", set(WHOLE)), [c for c in good.checks if c.state != "pass"]
    for mutation, verdict in (
        (lambda text: text + "gate: reduce begins\n", "incomplete"),  # and nothing more
        (lambda text: text + "gate: interrupted\n", "fail"),
        (lambda text: text + "# nThread 1 nGpus 1 minBytes 8 maxBytes 16 step: 2(factor)\n", "incomplete"),
        (lambda text: re.sub(r"host-1:2\d\d:.*\n", "", text), "incomplete"),  # its ranks said nothing in the last test
        (
            lambda text: re.sub("53687.1  20.00  18.75", "10737418  0.10  0.09", text).replace(": 18.75", ": 0.09"),
            "fail",
        ),
        (lambda text: text.replace("starting: broadcast", "starting: all_gather"), "fail"),
        (lambda text: text.replace("20.00  20.00", "20.00  37.50"), "fail"),  # of a broadcast
        (lambda text: text + "efa-counters before h0 0\nefa-counters after h0 99000000000\n", "incomplete"),  # of one
    ):
        path = planted(tmp_path, a_gate(), mutation)
        assert path.read_text() != a_gate()
        assert judged(path, **declared).verdict == verdict, path.read_text()[-300:]
    assert judged(planted(tmp_path, a_gate(), str), **declared, world_size=8).verdict == "fail"


def test_too_fast_to_be_true() -> None:
    """482 GB/s are of p5, and not of two p4d."""
    assert state(judged(log("03"), instance="p5.48xlarge", nodes=2), "ceiling") == "pass"
    assert state(judged(log("01"), instance="p4de.24xlarge", nodes=2), "ceiling") == "pass"  # 78 of 50: a tree
    assert judged(log("03"), instance="p4d.24xlarge", nodes=2).cause == "inconsistent"


def test_hosts_that_share_nvlink_are_faster_than_their_network() -> None:
    assert state(judged(log("03"), instance="p6e-gb200.36xlarge", nodes=2), "ceiling") == "not applicable"


def test_hosts_that_share_nvlink_need_not_send_over_efa(tmp_path: Path) -> None:
    text = re.sub("via NET/.*", "via P2P/MNNVL", complete().replace(" 900000000000\n", " 1\n"))
    path = planted(tmp_path, text, str)
    assert state(judged(path, instance="p5.48xlarge", nodes=2), "efa counters") == "fail"
    shared = judged(path, instance="p6e-gb200.36xlarge", nodes=2)
    assert [state(shared, name) for name in ("efa counters", "gpudirect")] == ["not applicable"] * 2


def test_no_floor_is_ungraded(tmp_path: Path) -> None:
    found = judged(planted(tmp_path, complete(), lambda text: text), instance="c5n.18xlarge", nodes=2)
    assert state(found, "floor") == "not established"
    found = judged(log("16"), instance="g5.48xlarge", nodes=1)
    assert next(row.evidence for row in found.checks if row.name == "floor").startswith("ungraded")


def test_the_gate_of_a_peer_passes_this(tmp_path: Path) -> None:
    """Exit code 3, 4,242 wrong values, 5.37 GB/s on two p4d: awk on one line of it finds 5.37, and 5.37 >= 3."""
    found = judged(log("07"), instance="p4d.24xlarge", nodes=2)
    assert found.verdict != "fail"
    text = log("07").read_text()
    row = re.search(r"^.*  1073741824 .*$", text, re.MULTILINE)
    assert row
    slow = row[0].replace("5e-07", "4242").replace("22.66   42.48", " 2.86    5.37").replace("47392", "374912")
    path = planted(tmp_path, text.replace(row[0], slow), str)
    verdict = judged(path, exit_code=3, instance="p4d.24xlarge", nodes=2)
    failed = {check.name for check in verdict.checks if check.state == "fail"}
    assert verdict.verdict == "fail"
    assert failed >= {"exit code", "wrong values", "average", "floor"}


# --- the command -----------------------------------------------------------------------------------------------------


def run(*words: str) -> tuple[int, Any]:
    from trainwright.core.errors import TrainwrightError

    done = CliRunner().invoke(app, words)
    code = done.exception.exit_code if isinstance(done.exception, TrainwrightError) else done.exit_code
    return code, done


@pytest.mark.parametrize(("name", "code"), [("03", 0), ("30", 6), ("01", 7)])
def test_the_exit_code_is_the_verdict(name: str, code: int) -> None:
    found, done = run("judge", str(log(name)), "--json")
    assert found == code
    (verdict,) = json.loads(done.stdout)
    assert verdict.keys() >= {"file", "verdict", "ranks", "declared_ranks", "peak_busbw", "cause", "checks"}
    assert {row["state"] for row in verdict["checks"]} <= {"pass", "fail", "not established", "not applicable"}


def test_one_bad_log_among_good_ones() -> None:
    assert run("judge", str(log("03")), str(log("01")), str(log("30")), "--json")[0] == 6


def test_bad_options(tmp_path: Path) -> None:
    assert run("judge", str(log("03")), "--instance", "p5.48xlrge")[0] == 2
    assert run("judge", str(log("03")), "--collective", "allreduce")[0] == 2
    assert run("judge", str(log("03")), "--pins", "nothing")[0] == 2
    assert run("judge", str(tmp_path / "none"))[0] == 2
    assert run("judge", str(tmp_path))[0] == 2


def test_every_cause_is_in_the_published_list() -> None:
    known = {cause.id for cause in causes.load_causes(ROOT)}
    assert {*judge.FIRST.values(), *judge.LAST.values(), "tcp-provider"} - {""} <= known
    for cause in causes.load_causes(ROOT):
        assert "" not in (cause.what, cause.fix, cause.seen)
        for line in cause.lines:
            re.compile(line)


PYXIS = "slurmstepd: error: pyxis: "
IMPORT = f"{PYXIS}child 1022281 failed with error code: 1\n{PYXIS}failed to import docker image\n"
OOM_KILL = "slurmstepd: error: Detected 1 oom_kill event in StepId=1054.0. Some of the step tasks have been OOM Killed."

WATCHDOG = (
    "[rank0]:[E321 02:07:08.408 ProcessGroupNCCL.cpp:607] [Rank 0] Watchdog caught collective operation timeout: "
    "WorkNCCL(SeqNum=1580, OpType=ALLREDUCE, Timeout(ms)=600000) ran for 600060 milliseconds before timing out."
)
KILLED = (
    "ERROR:torch.distributed.elastic.multiprocessing.api:failed (exitcode: -9) local_rank: 0 (pid: 53) of binary: x"
)
PEERS = "[Gloo] Rank 0 is connected to 1 peer ranks. Expected number of connected peer ranks is : 1"
ABORT = "terminate called without an active exception"
PREEMPTED = "slurmstepd: error: *** JOB 323917 ON cn119 CANCELLED AT 2021-06-18T13:05:36 DUE TO PREEMPTION ***"
NO_SPACE = "OSError: [Errno 28] No space left on device"
TRAINING = [  # what jobs that train say, and nccl-tests do not
    (WATCHDOG, "timeout"),
    (f"torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB\n{WATCHDOG}", "out-of-memory"),
    (KILLED, "killed"),
    ("  exitcode  : -9 (pid: 36071)", "killed"),
    ("  traceback : Signal 9 (SIGKILL) received by PID 36071", "killed"),
    (f"{PREEMPTED}\n{KILLED}", "preempted"),
    ("ModuleNotFoundError: No module named 'transformers'", "module-missing"),
    ("[rank1]: ModuleNotFoundError: No module named 'transformers'", "module-missing"),
    ("WARNING no profiler (ModuleNotFoundError: No module named 'x'): going on without", "unknown"),
    (f"{KILLED}\nslurmstepd: error: *** JOB 1 ON a CANCELLED AT 2021-06-18T13:05:36 ***", "killed"),
    ("  exitcode  : -11 (pid: 36071)", "crash"),
    ("RuntimeError: DataLoader worker (pid 3002) is killed by signal: Bus error. It is possible that", "shm"),
    ("RuntimeError: unable to write to file </torch_1_2_3>: No space left on device (28)", "shm"),
    (f"{NO_SPACE}: '/opt/ml/checkpoints/7.pt'", "disk-full"),
    ('IoError(Os { code: 28, kind: StorageFull, message: "No space left on device" })', "disk-full"),
    (f"RuntimeError: [enforce fail] . PytorchStreamWriter failed writing file data/2: x\n{NO_SPACE}", "disk-full"),
    (NO_SPACE, "disk-full"),  # a disk, or /dev/shm: the fix names both
    (f"{NO_SPACE}: '/dev/shm/x'", "shm"),
    (f"{PEERS}\n{ABORT}", "gloo-exit"),
    (ABORT, "unknown"),  # any program in C++ may say so
    (PEERS, "unknown"),
    ("CapacityError: Unable to provision requested ML compute capacity. Please retry using a different", "capacity"),
]


@pytest.mark.parametrize(
    ("lines", "cause"),
    [
        ("gate: there is no sendrecv_perf here: looked on PATH (/usr/bin) and in /opt", "no-nccl-tests"),
        (
            "gate: there is no all_reduce_perf_mpi all_reduce_perf here: looked on PATH (/bin) and in /opt",
            "no-nccl-tests",
        ),
        ("gate: there is no mpirun here: looked on PATH (/usr/bin) and in /opt/amazon/openmpi/bin", "no-launcher"),
        ("bash: line 212: srun: command not found", "no-launcher"),
        ("bash: mpirun: command not found", "no-launcher"),
        ("bash: rosrun: command not found", "no-command"),
        (
            f"{IMPORT}{PYXIS}    [ERROR] URL https://nvcr.io/proxy_auth returned error code: 401 Unauthorized",
            "registry-credentials",
        ),
        (f"{IMPORT}{PYXIS}    curl: (22) The requested URL returned error: 403", "registry-credentials"),
        ("[ERROR] URL https://nvcr.io/proxy_auth returned error code: 401 Unauthorized", "stated"),
        (f"{IMPORT}{PYXIS}    curl: (22) The requested URL returned error: 404", "image-import"),
        (f"{IMPORT}{OOM_KILL}", "out-of-memory"),
        (OOM_KILL, "out-of-memory"),
        ("include/alloc.h:320 (ncclCuMemAlloc) NCCL WARN Cuda failure 2 'out of memory'", "out-of-memory"),
        ("torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB", "out-of-memory"),
        ("458398: Test CUDA failure common.cu:730 'no CUDA-capable device is detected'", "no-gpu"),
        *TRAINING,
        ("failed call to cuInit: CUDA_ERROR_NO_DEVICE: no CUDA-capable device is detected", "unknown"),  # of TensorFlow
    ],
)
def test_a_line_that_is_planted_names_its_cause(tmp_path: Path, lines: str, cause: str) -> None:
    path = tmp_path / "log"
    path.write_text(f"gate: all_reduce begins\n{lines}\n")
    code, done = run("diagnose", str(path), "--json")
    assert (code, [row["cause"] for row in json.loads(done.stdout)]) == (7 if cause == "unknown" else 0, [cause])


@pytest.mark.parametrize(
    ("line", "fix"),
    [
        ("alloc.h:320 (ncclCuMemAlloc) NCCL WARN Cuda failure 2 'out of memory'", "a smaller batch"),
        ("slurmstepd: error: *** JOB 1 ON a CANCELLED AT 2026-01-01T00:00:00 DUE TO TIME LIMIT ***", "--hours"),
        ("algo-1 | ModuleNotFoundError: No module named 'x'", "requirements.txt beside the script"),
    ],
)
def test_the_fix_is_one_of_training_too(line: str, fix: str) -> None:
    """What is said while the log is written must not send a training job to nccl-tests' options."""
    found = causes.Signatures(causes.load_causes(ROOT))
    found.feed(line, 1)
    (named, *_) = found.found
    assert fix in named[0].fix


def test_a_good_log_has_no_line_of_any_of_these() -> None:
    new = {"no-gpu", "no-nccl-tests", "no-launcher", "registry-credentials", "image-import", "out-of-memory"}
    new |= {cause for _, cause in TRAINING}
    table = causes.load_causes(ROOT)
    for name in GOOD:
        found = causes.Signatures(table)
        for number, line in enumerate(log(name).read_text().splitlines()):
            found.feed(line, number)
        assert not new & {cause.id for cause, _ in found.found}, name


def test_diagnose_names_one_cause_and_its_line() -> None:
    code, done = run("diagnose", str(log("37")), str(log("19")), str(log("03")), "--json")
    rows = json.loads(done.stdout)
    assert code == 7  # one of them is not established
    assert [row["cause"] for row in rows] == ["libcudart", "unknown", "none"]
    assert "libcudart.so: cannot open shared object file" in rows[0]["evidence"]
    assert rows[0]["fix"]


@pytest.mark.parametrize("form", PREFIXED.values(), ids=PREFIXED)
def test_a_table_behind_any_prefix(form: str, tmp_path: Path) -> None:
    """The same prefixes as of tracebacks; the numbers of lines in the evidence are those of the log."""
    lines = log("05").read_text().splitlines()
    text = "".join(form.format(n=number % 10, line=line) + "\n" for number, line in enumerate(lines))
    (tmp_path / "log").write_text(text, newline="")
    found, plain = judged(tmp_path / "log"), judged(log("05"))
    assert (found.verdict, found.peak_busbw, found.checks) == (plain.verdict, plain.peak_busbw, plain.checks)


def test_numbers_alone_are_no_prefix() -> None:
    """Else the sizes of the rows, which are numbers, too, would go with it."""
    assert log_lines.like("  3 ") is None
    assert log_lines.like("x" * 301) is None
    found = log_lines.like("10:00:01 [train-1] ")
    assert found
    assert found.match("11:59:59 [train-2] 8")
