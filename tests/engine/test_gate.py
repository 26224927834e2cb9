"""Run the gate's request for SageMaker in two containers: sshd, key and Open MPI are real, the tests are not."""

import json
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path

import at_once
import pytest

from trainwright.core.errors import EnvironmentProblem
from trainwright.docker import engine
from trainwright.gate import run as gate_run
from trainwright.image import inputs
from trainwright.matrix.matrix import Recipe, load_intent

pytestmark = [pytest.mark.engine, pytest.mark.slow]
ROOT = Path(__file__).parents[2]
DIGEST = "sha256:" + "a1" * 32
PROGRAMS = {
    # What the variables are on every host, and a table by the first rank.
    "all_reduce_perf": '[ "$OMPI_COMM_WORLD_RANK" != 0 ] || cat /opt/gate/good.txt\n'
    'echo "rank $OMPI_COMM_WORLD_RANK on $(hostname), $NCCL_NET, key ${GATE_KEY:-none}"',
    "broadcast_perf": 'trap "" TERM; setsid sleep 1234 & sleep 1233',
    # What of that is left, and who may come in without the key.
    "reduce_perf": """\
n=0
for p in /proc/[0-9]*; do if grep -aq "^sleep.123" $p/cmdline 2>/dev/null; then n=$((n + 1)); fi; done
echo "left on $(hostname): $n"
ssh -o BatchMode=yes -o StrictHostKeyChecking=no -p 2222 algo-2 true 2>&1 | tail -n 1
true""",
}


@pytest.fixture
def image() -> str:
    """Return the default image, which has Open MPI and OpenSSH."""
    intent = load_intent(ROOT)
    variant = next(one for one in intent.variants if one.default and "openmpi" in one.pins)
    name = inputs.load(Recipe(intent, variant)).name
    try:
        held = engine.image_id(name)
    except EnvironmentProblem as error:
        pytest.skip(f"not run: {error}")
    if held is None:
        pytest.skip(f"not run: {variant.id} is not in the engine; make build FRAMEWORK={variant.framework}")
    return name


@pytest.fixture
def network() -> Iterator[str]:
    name = f"trainwright-gate-{uuid.uuid4().hex[:8]}"
    subprocess.run(["docker", "network", "create", name], check=True, capture_output=True)
    yield name
    for number in (1, 2):
        subprocess.run(["docker", "rm", "--force", f"{name}-{number}"], capture_output=True)
    subprocess.run(["docker", "network", "rm", name], check=True, capture_output=True)


def test_two_hosts_of_a_training_job(image: str, network: str, tmp_path: Path) -> None:
    what = gate_run.Subject(reference=f"123456789012.dkr.ecr.us-east-1.amazonaws.com/x/y@{DIGEST}")
    run = gate_run.prepare(
        ROOT,
        what,
        "sagemaker",
        instance="p5.48xlarge",
        nodes=2,
        gpus=2,
        hosts=None,
        collectives=["all_reduce", "broadcast", "reduce"],
        limit=5,
    )
    asked = json.loads(gate_run.emit(ROOT, run, "sagemaker", "arn:aws:iam::123456789012:role/r", "s3://bucket"))
    programs = tmp_path / "bin"
    programs.mkdir()
    for name, text in PROGRAMS.items():
        (programs / name).write_text(f"#!/bin/bash\n{text}\n")
        (programs / name).chmod(0o755)
    good = ROOT / "tests/unit/nccl-tests/16_ok_h100_1node_8gpu_singleproc.txt"
    children = []
    for number in (2, 1):
        config = tmp_path / f"config{number}"
        config.mkdir()
        (config / "resourceconfig.json").write_text(
            json.dumps({"current_host": f"algo-{number}", "hosts": ["algo-1", "algo-2"]})
        )
        words = ["docker", "run", "--rm", "--name", f"{network}-{number}", "--network", network]
        words += ["--hostname", f"h{number}", "--network-alias", f"algo-{number}"]
        words += ["-v", f"{config}:/opt/ml/input/config:ro", "-v", f"{programs}:/opt/nccl-tests/bin:ro"]
        words += ["-v", f"{good}:/opt/gate/good.txt:ro"]
        words += [word for name, value in asked["Environment"].items() for word in ("-e", f"{name}={value}")]
        specification = asked["AlgorithmSpecification"]
        words += ["--entrypoint", specification["ContainerEntrypoint"][0], image]
        words += [*specification["ContainerEntrypoint"][1:], *specification["ContainerArguments"]]
        children.append(subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True))
    (second, _), (first, _) = at_once.outputs(children, 120)
    print(first, second, file=sys.stderr)
    assert [child.returncode for child in children] == [0, 124]
    for rank in range(4):
        assert f"rank {rank} on h{rank // 2 + 1}, Libfabric, key none" in first
    assert "gate: broadcast exited with code 124" in first
    assert "left on h1: 0" in first
    assert "left on h2: 0" in first
    assert first.count("Permission denied (publickey)") == 4
    assert asked["Environment"]["GATE_KEY"] not in first + second
