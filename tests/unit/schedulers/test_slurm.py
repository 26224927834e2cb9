"""Test what files for sbatch request, and what they refuse at their start, with stand-ins of Slurm's programs."""

from pathlib import Path
from typing import Any

import pytest
from hosts import SCRIPT, quick
from unit.emitted import IMAGE, TWO, Emit, program, ran

ROOT = Path(__file__).parents[3]
COUNTED, UNCOUNTED = "   Gres=gpu:h100:8(S:0-1)", "   Gres=(null)"
ASKED = 'case "$*" in *"printenv SLURM_STEP_GPUS") printf "%s" "{gpus}"; exit ;; esac\necho started\n'


@pytest.fixture
def write(cli: Any, emit: Emit) -> Any:
    def run(on: str, *words: str) -> str:
        if on == "gate":
            ended = cli(ROOT, "gate", IMAGE, "--on", "slurm", "--emit", "-", *TWO, *words)
        else:
            ended = emit(on, *TWO, *words)
        assert ended.code == 0, ended.err
        return str(ended.out)

    return run


def head(text: str) -> list[str]:
    return [line.removeprefix("#SBATCH ") for line in text.splitlines() if line.startswith("#SBATCH ")]


@pytest.mark.parametrize("on", ["gate", "slurm", "hyperpod-slurm"])
def test_a_file_requests_all_memory_of_its_nodes(write: Any, on: str) -> None:
    """--exclusive gives CPUs, and of the memory what the cluster gives by default."""
    assert {"--exclusive", "--mem=0"} <= set(head(write(on)))


@pytest.mark.parametrize("on", ["gate", "slurm", "hyperpod-slurm"])
@pytest.mark.parametrize(
    ("node", "step", "variables", "refused"),
    [
        (COUNTED, "", {}, True),
        ("   Gres=craynetwork:1,gpu:8", "", {}, True),
        (UNCOUNTED, "", {}, False),
        (COUNTED, "0,1,2,3,4,5,6,7", {}, False),  # sbatch --gres=gpu:8 FILE
        (COUNTED, "", {"SLURM_GPUS_PER_NODE": "8"}, False),  # sbatch --gpus-per-node=8 FILE
    ],
    ids=["counted", "among others", "uncounted", "gres", "requested"],
)
def test_a_slurm_that_counts_gpus_must_be_asked_for_them(
    write: Any, tmp_path: Path, on: str, node: str, step: str, variables: dict[str, str], refused: bool
) -> None:
    program(tmp_path, "scontrol", f'#!/bin/sh\n[ "$*" = "show node n1" ] && echo "{node}"\n')
    program(tmp_path, "srun", "#!/bin/sh\n" + ASKED.format(gpus=step))
    text = write(on, "--no-gpus-per-node")
    assert text.count(SCRIPT.read_text()) == (on == "gate")
    (tmp_path / "job.sbatch").write_text(text.replace(SCRIPT.read_text(), quick()))
    done = ran(["bash", "job.sbatch"], tmp_path, SLURMD_NODENAME="n1", **variables)
    said = "this Slurm counts GPUs (GRES), and the job requested none: emit its file with --gpus-per-node\n"
    assert (said == done.stderr) is refused
    assert ("started" not in done.stdout and done.returncode == 2) is refused


@pytest.mark.parametrize("on", ["gate", "slurm"])
def test_a_file_that_requests_gpus_checks_nothing(write: Any, on: str) -> None:
    assert "SLURM_STEP_GPUS" not in write(on, "--gpus-per-node")
