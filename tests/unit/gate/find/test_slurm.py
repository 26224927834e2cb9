"""Search the slow and the dying node of one allocation of a real Slurm of six nodes on loopback, if it is installed.

The nodes are slurmd processes of this machine; srun, its steps side by side and the script that runs in them are real,
and a stand-in for the nccl-tests prints a recorded table.
"""

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import finding
import pytest
from hosts import ROOT
from slurms import Run, log_of, running, state, until

pytestmark = pytest.mark.slurm
NODES, LONG = 6, 600
# One task of each node; the first of them prints what a world of ranks prints.
PERF = """\
#!/usr/bin/env bash
case " $* " in *" -e 8 "*) exit 0 ;; esac
hosts=" $(scontrol show hostnames "$SLURM_STEP_NODELIST" | tr '\\n' ' ')"
read -r guilty how <"{folder}/fault"
echo "$SLURM_STEP_ID $(date +%s.%N) $hosts" >>"{folder}/steps.$SLURM_PROCID"
case $hosts in *" $guilty "*) slow=1 ;; *) slow= ;; esac
[ "$how" != dies ] || [ -z "$slow" ] || [ "$SLURMD_NODENAME" != "$guilty" ] || exit 3
[ "$SLURM_PROCID" = 0 ] || exit 0
[ "$how" != slow ] || [ -z "$slow" ] || exec "{folder}/table" 0.5
exec "{folder}/table" 1
"""
JOB = """\
#!/usr/bin/env bash
cd {root} && exec {program} gate --find --on slurm --gpus 1 --mpi-type none --folder {runs} --json
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("find") / "hosts"
    finding.write(place)
    return place


@pytest.fixture(scope="module")
def slurm(folder: Path) -> Iterator[Run]:
    with running(NODES, {"all_reduce_perf": PERF.format(folder=folder)}) as run:
        yield run


@pytest.mark.parametrize(("node", "how"), [("n4", "slow"), ("n2", "dies")])
def test_the_guilty_node_of_an_allocation_is_found(
    slurm: Run, folder: Path, tmp_path: Path, node: str, how: str
) -> None:
    (folder / "fault").write_text(f"{node} {how}\n")
    (tmp_path / "job").write_text(
        JOB.format(root=ROOT, program=Path(sys.executable).parent / "trainwright", runs=tmp_path / "runs")
    )
    asked = ["--parsable", f"--nodes={NODES}", "--exclusive", f"--output={tmp_path}/log", f"--error={tmp_path}/said"]
    done = slurm("sbatch", *asked, str(tmp_path / "job"))
    job = done.stdout.strip()
    assert job, done.stderr
    until(lambda: state(slurm, job) in ("COMPLETED", "FAILED"), "the search", LONG)
    said = (tmp_path / "said").read_text()
    found = json.loads(log_of(slurm, job).read_text() or "{}")
    assert found.get("hosts") == [node], said
    assert found["state"] == "found"
    runs = [json.loads(line) for line in (tmp_path / "runs/runs.jsonl").read_text().splitlines()]
    pairs = [run for run in runs if run["round"] == 1]
    assert sorted(host for run in pairs for host in run["hosts"]) == [f"n{number + 1}" for number in range(NODES)]
    assert {sign["what"] for run in runs for sign in run["signs"] if sign["source"] == "dcgm"} == {"no dcgmi on PATH"}
