"""Horovod reduces over two ranks, with MPI and with gloo, and its optimizer takes the steps that one process takes."""

import json
import re
from typing import Any

import pytest

from trainwright.image.inputs import Inputs

pytestmark = [pytest.mark.component("horovod"), pytest.mark.component("openmpi")]
# A machine with one core has one slot. Without these names Horovod would leave it to chance what carries the job.
MPI = "env HOROVOD_CONTROLLER=mpi HOROVOD_CPU_OPERATIONS=mpi mpirun -np 2 --oversubscribe"
GLOO = "horovodrun --gloo --network-interfaces lo -np 2 -H localhost:2"


def answers(printed: str) -> list[dict[str, Any]]:
    """What the ranks say; horovodrun puts `[1,0]<stdout>:` before each line, and more lines around."""
    said = [json.loads(text) for text in re.findall(r"\{.*\}", printed)]
    return sorted(said, key=lambda answer: int(answer["rank"]))


@pytest.fixture(scope="module", params=[MPI, GLOO], ids=["mpi", "gloo"])
def ranks(request: pytest.FixtureRequest, host: Any, programs: str) -> list[dict[str, Any]]:
    done = host.run(f"timeout 300 {request.param} python {programs}/horovod_step.py")
    assert done.rc == 0, done.stdout + done.stderr
    found = answers(done.stdout)
    assert [(answer["rank"], answer["size"]) for answer in found] == [(0, 2), (1, 2)], done.stdout
    assert {answer["mpi"] for answer in found} == {request.param == MPI}, "something else carried the job"
    return found


def test_collectives(ranks: list[dict[str, Any]]) -> None:
    for answer in ranks:
        assert answer["sum"], "the sum of two ranks is wrong"
        assert answer["mean"], "the mean of two ranks is wrong"
        assert answer["gathered"] == [0.0, 1.0, 1.0]
        assert answer["from_the_last"] == [1.0]


def test_steps_of_two_ranks_equal_those_of_one_process(ranks: list[dict[str, Any]]) -> None:
    for answer in ranks:
        assert answer["moved"] > 1e-2, "nothing was learned: this shows nothing"
        assert answer["error"] < 1e-5


def test_it_says_what_it_was_compiled_for(host: Any, declared: Inputs) -> None:
    printed = host.check_output("horovodrun --check-build")
    wanted = {"PyTorch", "MPI", "Gloo", *(["NCCL"] if "nccl" in declared.pins else [])}
    assert set(re.findall(r"\[X\] (\w+)", printed)) == wanted


def test_a_failing_rank_fails_the_job(host: Any) -> None:
    code = "import horovod.torch as hvd; hvd.init(); raise SystemExit(hvd.rank())"
    assert host.run(f"timeout 300 {GLOO} python -c '{code}'").rc != 0
