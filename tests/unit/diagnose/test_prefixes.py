"""Test that a traceback is read behind whatever a tool puts before each line: {line} is the log's, {n} its number."""

import io
from pathlib import Path
from typing import Any

import pytest
from unit.diagnose.answers import diagnosed

from trainwright.diagnose import log_lines, writers
from trainwright.diagnose.causes import load_causes
from trainwright.diagnose.reader import Reader, load_settings

ROOT = Path(__file__).parents[3]

LINES = """\
Epoch 1 loss 0.5
Traceback (most recent call last):
  File "/opt/ml/code/train.py", line 10, in <module>
    main()
  File "/opt/ml/code/train.py", line 5, in main
    raise ValueError("3 channels expected")
ValueError: 3 channels expected
""".splitlines()
COMPLAINT = ["step 1 loss 0.5", "ERROR: the list of shards is empty", "make: *** [train] Error 1"]
PREFIXED = {
    "plain": "{line}",
    "docker compose": "trainer-1  | {line}",
    "docker service logs": "train.1.x7kq0b@ip-10-0-0-5    | {line}",
    "stern": "\x1b[36mtrainer-0\x1b[0m \x1b[1;36mpytorch\x1b[0m {line}",
    "kubetail": "[trainer-0 pytorch] {line}",
    "kubectl logs --prefix --timestamps": "[pod/trainer-0/pytorch] 2026-11-27T10:00:0{n}.123456789Z {line}",
    "a node's file of Kubernetes": "2026-11-27T10:00:0{n}.123456789Z stderr F {line}",
    "mpiexec -prepend-rank": "[0] {line}",
    "srun --label": " 0: {line}",
    "torchrun --tee": "[default0]:{line}",
    "pdsh": "node1: {line}",
    "ansible": "node1 | {line}",
    "parallel --tag": "node1\t{line}",
    "Ray": "\x1b[36m(RayTrainWorker pid=1234, ip=10.0.0.5)\x1b[0m {line}",
    "SkyPilot": "(worker1, rank=1, pid=1234, ip=10.0.0.1) {line}",
    "SkyPilot, one node": "(train, pid=1234) {line}",
    "Metaflow": "2026-11-27 10:00:0{n}.123 [172/train/3 (pid 123)] {line}",
    "Airflow 2": "[2026-11-27T10:00:0{n}.123+0000] {{pod_manager.py:468}} INFO - [base] {line}",
    "Airflow 1": "[2026-11-27 10:00:0{n},123] {{bash.py:173}} INFO - {line}",
    "Prefect": "10:00:0{n}.123 | INFO    | Flow run 'red-fox' - {line}",
    "argo logs": "train-abc-1234567: {line}",
    "Jenkins": "[2026-11-27T10:00:0{n}.123Z] {line}",
    "Jenkins, Timestamper": "10:00:0{n}  {line}",
    "TeamCity": "[10:00:0{n}] :\t [Step 1/3] {line}",
    "Buildkite": "\x1b_bk;t=170000000000{n}\x07{line}",
    "GitHub Actions": "2026-11-27T10:00:0{n}.1234567Z {line}",
    "gh run view --log": "train\tRun training\t2026-11-27T10:00:0{n}.1234567Z {line}",
    "GitLab": "2026-11-27T10:00:0{n}.123456Z 00O {line}",
    "Azure ML": "[2026-11-27T10:00:0{n}.123456] {line}",
    "Vertex AI": "INFO\t2026-11-27 10:00:0{n} -0800\tworkerpool0-0\t{line}",
    "Amazon ECS": "2026-11-27T10:00:0{n}Z ecs/train/0123456789abcdef0123456789abcdef {line}",
    "Container Insights": "2026-11-27T10:00:0{n}.123000+00:00 ip-10-0-0-5-application.containers.t_n.log {line}",
    "AWS CodeBuild": "[Container] 2026/11/27 10:00:0{n}.123456 {line}",
    "Heroku": "2026-11-27T10:00:0{n}.123456+00:00 app[worker.1]: {line}",
    "journalctl": "Nov 27 10:00:0{n} node-1 python3[77]: {line}",
    "journalctl -o short-iso": "2026-11-27T10:00:0{n}+0000 node-1 python3[77]: {line}",
    "pm2": "0|train    | {line}",
    "foreman": "10:00:0{n} train.1   | {line}",
    "ts": "Nov 27 10:00:0{n} {line}",
    "cat -n": "     {n}\t{line}",
    "diff": "+{line}",
    "a quotation": "> {line}",
    "Python's logging": "2026-11-27 10:00:0{n},123 - train - ERROR - {line}",
    "loguru": "2026-11-27 10:00:0{n}.123 | ERROR    | __main__:main:5 - {line}",
    "Dask": "2026-11-27 10:00:0{n},123 - distributed.worker - {line}",
    "Windows": "{line}\r",
}


def answer(folder: Path, form: str, lines: list[str]) -> dict[str, Any]:
    text = "".join(form.format(n=number, line=line) + "\n" for number, line in enumerate(lines))
    (folder / "train.log").write_text(text, newline="")
    (row,) = diagnosed(folder / "train.log")
    return row


@pytest.mark.parametrize("form", PREFIXED.values(), ids=PREFIXED)
def test_a_traceback_behind_a_prefix(form: str, tmp_path: Path) -> None:
    row = answer(tmp_path, form, LINES)
    assert row["cause"] == "exception"
    assert "ValueError: 3 channels expected, at /opt/ml/code/train.py:5 in main" in row["what"]


def test_lines_below_a_complaint_need_no_prefix(tmp_path: Path) -> None:
    """A logger writes its prefix once, before the first line of a traceback."""
    row = answer(tmp_path, "{line}", [LINES[0], f"2026-11-27 10:00:00,123 ERROR {LINES[1]}", *LINES[2:]])
    assert "at /opt/ml/code/train.py:5 in main" in row["what"]


@pytest.mark.parametrize("name", ["Airflow 2", "Prefect", "Vertex AI", "SkyPilot", "GitLab", "gh run view --log"])
def test_the_level_in_a_prefix_is_that_of_the_tool(name: str, tmp_path: Path) -> None:
    assert answer(tmp_path, PREFIXED[name], COMPLAINT)["cause"] == "stated"


@pytest.mark.parametrize(
    "form",
    [
        "[2026-11-27 10:00:0{n},500] torch._dynamo.convert_frame: [WARNING] {line}",
        "W1127 10:00:0{n}.5 77 a.py:5] {line}",
    ],
)
def test_a_traceback_that_only_warns(form: str, tmp_path: Path) -> None:
    assert answer(tmp_path, form, LINES)["cause"] == "unknown"


def test_what_a_lost_line_end_left_is_no_prefix(tmp_path: Path) -> None:
    raised = "RuntimeError: this type is not supported"
    row = answer(tmp_path, "{line}", [f"{raised}{LINES[1]}", *LINES[2:-1], raised])
    assert row["evidence"] == f"line 6: {raised}"


READER = Reader(load_causes(ROOT), load_settings(ROOT))
OTHER = [
    *LINES[:4],
    LINES[4].replace("line 5", "line 9"),
    "    dist.all_reduce(loss)",
    "RuntimeError: Connection closed by peer [10.0.0.2]:31662",
]
WRITERS = {
    "pdsh": ("node1: ", "node2: ", "node1"),
    "DeepSpeed over pdsh": ("10.0.0.1: [rank0]: ", "10.0.0.2: [rank8]: ", "10.0.0.1"),
    "argo logs": ("train-abc-123: ", "train-abc-456: ", "train-abc-123"),
    "SkyPilot": ("(head, rank=0, pid=12) ", "(worker1, rank=1, pid=13, ip=10.0.0.2) ", "head"),
    "Ray": ("(Worker pid=12, ip=10.0.0.1) ", "(Worker pid=13, ip=10.0.0.2) ", "Worker-pid-12-ip-10.0.0.1"),
    "stern": ("trainer-0 pytorch ", "trainer-1 pytorch ", "trainer-0"),
    "stern, in colours": ("\x1b[36mtrainer-0\x1b[0m pytorch ", "\x1b[32mtrainer-1\x1b[0m pytorch ", "trainer-0"),
    "clush, GPU hosts": ("gpu01: ", "gpu02: ", "gpu01"),
    "kubetail": ("[trainer-x2k4p] ", "[trainer-b7n5q] ", "trainer-x2k4p"),
    "docker service logs": ("train.1.x7@node1    | ", "train.2.y8@node2    | ", "train.1.x7@node1"),
    "rsyslog": ("2026-11-27T10:00:00.1+00:00 a train: ", "2026-11-27T10:00:00.1+00:00 b train: ", "a"),
    "Tekton": ("[train-1 : run] ", "[train-2 : run] ", "train-1"),
    "journalctl": ("Nov 27 10:00:00 a python3[77]: ", "Nov 27 10:00:00 b python3[78]: ", "a"),
    "AWS Batch": (
        "2026-11-27T10:00:00.123000+00:00 t/default/0123456789abcdef ",
        "2026-11-27T10:00:00.123000+00:00 t/default/fedcba9876543210 ",
        "t-default-0123456789abcdef",
    ),
    "Container Insights": (
        "2026-11-27T10:00:00.123000+00:00 n-application.var.log.containers.trainer-0_ns_c-0f.log ",
        "2026-11-27T10:00:00.123000+00:00 n-application.var.log.containers.trainer-1_ns_c-1f.log ",
        "trainer-0",
    ),
}


@pytest.mark.parametrize(("first", "second", "name"), WRITERS.values(), ids=WRITERS)
def test_two_hosts_in_one_log(first: str, second: str, name: str, tmp_path: Path) -> None:
    """Their tracebacks stand in each other's middle; that of the other one ends first."""
    mixed = [f"{second}{OTHER[0]}", f"{first}{LINES[0]}", f"{second}{OTHER[1]}"]
    for one, other in zip(LINES[1:], [*OTHER[2:], "exiting"], strict=True):
        mixed += [f"{first}{one}", f"{second}{other}"]
    row = answer(tmp_path, "{line}", mixed)
    assert f"{name} failed first: the program raised ValueError" in row["what"]
    assert "at /opt/ml/code/train.py:5 in main" in row["what"]
    reader = READER.fresh()  # `watch` reads the lines of all hosts as one log
    with log_lines.opened(str(tmp_path / "train.log")) as stream:
        reader.read(stream)
    assert [(found.kind, found.where) for found in reader.tracebacks.found] == [
        ("RuntimeError", "/opt/ml/code/train.py:9 in main"),
        ("ValueError", "/opt/ml/code/train.py:5 in main"),
    ]


def test_counted_words_are_no_hosts(tmp_path: Path) -> None:
    lines = [f"epoch{number}: loss 0.{number}" for number in (1, 1, 1, 2, 2, 2)]
    assert "failed first" not in answer(tmp_path, "{line}", [*lines, *(f"epoch2: {line}" for line in LINES)])["what"]


def test_a_logger_s_line_is_no_part_of_a_message(tmp_path: Path) -> None:
    raised = "RuntimeError: CUDA Error: invalid argument at /workspace/csrc/allocator.cpp:139"
    row = answer(tmp_path, "{line}", [*LINES[:-1], raised, "INFO 06-02 14:32:23 [core.py:736] Waiting for requests"])
    assert row["evidence"] == f"line 7: {raised}"


@pytest.mark.parametrize("raised", ["cv2.error: (-215) empty", "urllib3.exceptions.LocationParseError: bad host"])
def test_an_exception_is_no_host(raised: str, tmp_path: Path) -> None:
    lines = [f"node{number % 2}: step {number}" for number in range(60)]
    row = answer(tmp_path, "{line}", [*lines, *LINES[1:-1], raised])
    assert row["cause"] == "exception"
    assert raised.partition(": ")[2] in row["what"]


@pytest.mark.parametrize("name", ["trial-{n}", "fold-{n}", "gpu{n}:", "client-{n}", "lr{n}:"])
def test_what_is_counted_is_no_host(name: str, tmp_path: Path) -> None:
    lines = [f"{name.format(n=number % 3)} step {number}/20 loss: 0.5" for number in range(60)]
    survived = f"{name.format(n=1)} torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB"
    assert "failed first" not in answer(tmp_path, "{line}", [*lines[:20], survived, *lines[20:]])["what"]


@pytest.mark.parametrize("before", ["WARNING: loss is large", "[W1127 10:00:00.5 socket.cpp:663] retrying "])
def test_a_warning_whose_line_end_is_lost(before: str, tmp_path: Path) -> None:
    assert answer(tmp_path, "{line}", [f"{before}{LINES[1]}", *LINES[2:]])["cause"] == "exception"


def test_a_message_whose_reason_stands_below(tmp_path: Path) -> None:
    row = answer(
        tmp_path, "{line}", [*LINES[:-1], "ValueError: these shards are damaged:", "ERROR shard 3 has 12 bytes"]
    )
    assert "shard 3 has 12 bytes" in row["what"]


def test_a_traceback_that_is_cut_off_is_forgotten() -> None:
    found = READER.fresh()
    text = "".join(f"a-1  | {line}\n" for line in LINES[1:3]) + "b-1  | step 1 loss 0.5\n" * 5000
    found.read(io.BytesIO(text.encode()))
    assert not found.tracebacks.open


def test_labels_below_the_lines_of_a_batch_script(tmp_path: Path) -> None:
    head = [f"+ module load cuda number {number} of the batch script" for number in range(20)]
    mixed = [f"node{1 + number % 2}: step {number} loss 0.5" for number in range(100)]
    for one, other in zip(LINES[1:], OTHER[1:], strict=True):
        mixed += [f"node2: {other}", f"node1: {one}"]
    row = answer(tmp_path, "{line}", [*head, *mixed])
    assert "node1 failed first: the program raised ValueError" in row["what"]
    assert "train.py:5 in main" in row["what"]


def test_a_word_behind_a_name_is_a_container_only_if_it_is_there_again_and_again() -> None:
    words = ["step", "loss", "reads", "saves", "fatal"]
    head = "".join(f"worker-{number % 2} {words[number % 5]} of this run {number}\n" for number in range(60)).encode()
    pattern = writers.pattern(head)
    assert pattern
    assert not writers.several(pattern, head)
