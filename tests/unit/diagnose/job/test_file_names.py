"""Test which rank or host wrote a log, as far as the names of its file and folders say it."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from trainwright.commands.options import app
from trainwright.diagnose.job.file_names import hosts, numbered, of_one_process
from trainwright.gate.diagnosis import diagnosed

ROOT = Path(__file__).parents[4]
RAISED = (
    'Traceback (most recent call last):\n  File "/job/train.py", line 7, in main\n    x()\nValueError: 3 channels\n'
)
CLOSED = "RuntimeError: Connection closed by peer [10.0.0.1]:99\n"
UID = "0f3e2f5a-1111-2222-3333-44445555666"
HEX = "ab" * 32


def never(file: str, word: str) -> bool:
    raise AssertionError(f"{file} is not asked for {word}")


def nothing(file: str, word: str) -> bool:
    return False


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (["node1.log", "node2.log"], ["node1", "node2"]),
        (["9.dgx-a100-12.out", "9.dgx-a100-13.out"], ["dgx-a100-12", "dgx-a100-13"]),
        (["logs/ip-10-0-1-5.ec2.internal.log", "logs/ip-10-0-1-6.ec2.internal.log"], ["ip-10-0-1-5", "ip-10-0-1-6"]),
        (["train_77_p5-st-gpu-1_0.err", "train_77_p5-st-gpu-2_1.err"], ["p5-st-gpu-1", "p5-st-gpu-2"]),
        (["i-0abc12345/out.log", "i-0abc12346/out.log"], ["i-0abc12345", "i-0abc12346"]),
        (["x/algo-1-1700000000/000000.gz", "x/algo-2-1700000000/000000.gz"], ["algo-1", "algo-2"]),
        ([f"/pods/ns_a-0_{UID}7/c/0.log", f"/pods/ns_a-1_{UID}8/c/0.log"], ["a-0", "a-1"]),
        ([f"a-0_ns_c-{HEX}.log", f"a-1_ns_c-{HEX}.log"], ["a-0", "a-1"]),
        (["must/pods/a-0/c/current.log", "must/pods/a-1/c/current.log"], ["a-0", "a-1"]),
    ],
)
def test_names_of_hosts(names: list[str], expected: list[str]) -> None:
    assert hosts(names, never) == dict(zip(names, expected, strict=True))


@pytest.mark.parametrize(
    "names",
    [
        ["rank0.log", "rank1.log"],
        ["run1.log", "run2.log"],
        ["seed42/out.log", "seed43/out.log"],
        ["node1.log"],
        ["node1.log", "a/node2.log"],
        ["train.out", "train.err"],
        ["resnet50.log", "resnet101.log"],
        ["train_nodes2.log", "train_nodes4.log"],
        ["cnn1.log", "cnn2.log"],
        ["user1/train.log", "user2/train.log"],
        [],
    ],
)
def test_names_of_no_hosts(names: list[str]) -> None:
    assert hosts(names, nothing) == {}


@pytest.mark.parametrize("said", [["tensor01.log", "tensor02.log"], ["tensor02.log"], []])
def test_an_unusual_name_must_stand_in_its_own_log(said: list[str]) -> None:
    names = ["tensor01.log", "tensor02.log"]
    assert (hosts(names, lambda file, word: file in said and word == file.removesuffix(".log")) != {}) == (
        said == names
    )


def test_a_name_in_a_path_is_no_host(tmp_path: Path) -> None:
    for number in (1, 2):
        (tmp_path / f"user{number}.log").write_text(f"reading /home/user{number}/data\n{RAISED * (number == 1)}")
    assert len(diagnosed(ROOT, [str(tmp_path)])) == 2


def test_numbers_of_ranks() -> None:
    assert numbered(["a-0.log", "a-1.log"]) == {"a-0.log": 0, "a-1.log": 1}
    both = [f"rank-{rank}.{end}" for rank in range(2) for end in ("err", "out")]
    assert numbered(both) == dict(zip(both, (0, 0, 1, 1), strict=True))
    assert numbered(["a-0.log", "b-1.log"]) == {}
    tasks = ["job-12-gpu-1-0.out", "job-12-gpu-2-1.out"]
    assert numbered(tasks) == dict(zip(tasks, (0, 1), strict=True))
    assert numbered(["job-12-gpu-1-3.out", "job-12-gpu-2-5.out"]) == {}
    assert numbered(["train-101-0.out", "train-102-1.out"]) == {}
    assert numbered(["exp1_rank0.log", "exp2_rank1.log"]) == {}
    assert numbered(["a-0.log", "x/a-0.log"]) == {}
    assert numbered(["9.dgx-12.out", "9.dgx-13.out"], of_hosts=True) == {}


def test_output_and_errors_of_one_process() -> None:
    names = ["a.err", "a.out", "b.out", "job/stderr.log", "job/stdout.log", "c.log", "d.out.1", "d.err.1"]
    assert of_one_process(names) == [
        ["a.err", "a.out"], ["b.out"], ["job/stderr.log", "job/stdout.log"], ["c.log"], ["d.out.1", "d.err.1"],
    ]  # fmt: skip
    rotated = ["a.out.1", "a.err.1", "a.out.2", "a.err.2"]
    assert of_one_process(rotated) == [rotated[:2], rotated[2:]]
    other = ["a.out.new", "a.out.old", "b.err", "b.err.old", "std.out", "stdout.1", "stderr.2"]
    assert of_one_process(other) == [[name] for name in other]


@pytest.fixture
def row(tmp_path: Path) -> Callable[[dict[str, str]], dict[str, Any]]:
    def row(files: dict[str, str]) -> dict[str, Any]:
        for name, text in files.items():
            (tmp_path / name).write_text(text)
        (found,) = diagnosed(ROOT, [str(tmp_path)])
        return found

    return row


@pytest.mark.parametrize(
    ("out", "err", "cause"),
    [
        ("Epoch 1 loss 0.5\n", RAISED, "exception"),
        (RAISED, "", "exception"),
        ("Training completed\n", "a note\n", "none"),
        ("Training completed\n", RAISED, "exception"),
        ("Training completed\n", "ERROR: could not close the port\n", "none"),
        ("Epoch 1\n", "ERROR: could not close the port\n", "stated"),
        ("Training finished\n", "/tmp/slurm_script: line 11: module: command not found\na note\n", "none"),
        ("Training finished\n", f"{RAISED}wandb: Find logs at: ./wandb\n", "exception"),
        ("Training finished\n", RAISED + "retrying\n" * 30, "none"),
    ],
)
def test_the_reason_stands_in_either(out: str, err: str, cause: str, row: Callable[..., dict[str, Any]]) -> None:
    assert row({"job.out": out, "job.err": err or "\n \nx\n"})["cause"] == cause


def test_the_line_is_told_with_its_file(tmp_path: Path) -> None:
    (tmp_path / "job.out").write_text("Epoch 1 loss 0.5\n")
    (tmp_path / "job.err").write_text(RAISED)
    done = CliRunner().invoke(app, ["diagnose", str(tmp_path / "job.out"), str(tmp_path / "job.err")])
    assert done.stdout.startswith(f"{tmp_path}/job.out, {tmp_path}/job.err: exception")
    assert f"{tmp_path}/job.err:4: ValueError" in done.stdout


def test_the_host_that_failed_first(row: Callable[..., dict[str, Any]]) -> None:
    found = row({"node1.log": CLOSED, "node2.log": f"step 1\n{RAISED}"})
    assert (found["cause"], found["job"]["host"]) == ("exception", "node2")


def test_hosts_that_ended_well(row: Callable[..., dict[str, Any]]) -> None:
    text = "epoch 1/2 loss 0.5\nTraining complete\n"
    assert row({"node1.log": text, "node2.log": text})["cause"] == "none"


def test_the_rank_that_failed_first_has_two_files(row: Callable[..., dict[str, Any]]) -> None:
    found = row({"rank-0.out": "x\n", "rank-0.err": CLOSED, "rank-1.out": "y\n", "rank-1.err": RAISED})
    assert (found["cause"], found["job"]["failed_first"], found["job"]["world"]) == ("exception", [1], 2)
