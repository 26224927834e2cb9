"""Test `trainwright gate`: what it refuses, emits and runs here."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from hosts import DIGEST, GOOD, HANGS, LOGS, ROOT, Host
from unit.gate.launchers.conftest import IMAGE, KEYS, OUTPUT, ROLE, SCRIPT, Cli, Make

from trainwright.core.errors import ConfigError, EnvironmentProblem
from trainwright.gate import run


def test_without_a_gpu_it_is_not_run(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    if list(Path("/dev").glob("nvidia[0-9]*")):
        pytest.skip("not run: this machine has GPUs")
    monkeypatch.delenv("DOCKER_HOST")
    ended = cli(ROOT, "gate", IMAGE)
    assert ended.code == 7
    assert "this machine has no NVIDIA GPU" in ended.err


@pytest.mark.parametrize(
    ("on", "word"),
    [
        ("slurm", "sbatch"),
        ("kubernetes", "kubectl create"),
        pytest.param("sagemaker", "create-training-job", marks=KEYS),
    ],
)
def test_what_is_emitted_says_how_to_submit_and_judge_it(cli: Cli, tmp_path: Path, on: str, word: str) -> None:
    file = tmp_path / on
    words = ["--role", ROLE, "--output", OUTPUT] if on == "sagemaker" else []
    ended = cli(
        ROOT, "gate", IMAGE, "--on", on, "--nodes", "2", "--instance", "p5.48xlarge", "--emit", str(file), *words
    )
    assert (ended.code, ended.out) == (0, "")
    assert word in ended.err
    assert re.search("^[.a-z/]*trainwright judge ", ended.err, re.MULTILINE)
    assert "--nodes 2 --world-size 16 --instance p5.48xlarge" in ended.err
    assert ended.err.startswith("# 2 nodes with 8 GPUs each, 32 EFA interfaces each\n")
    assert file.stat().st_mode & 0o777 == (0o600 if on == "sagemaker" else 0o644)


def test_one_node_by_default_is_said(cli: Cli) -> None:
    ended = cli(ROOT, "gate", IMAGE, "--on", "slurm", "--instance", "p5.48xlarge", "--emit", "-")
    assert ended.err.startswith("# 1 node (EFA is only tested on several nodes: --nodes) with 8 GPUs each\n")


def test_kubernetes_is_waited_for_without_a_race(cli: Cli) -> None:
    """A pod that `kubectl wait` does not find yet is an error of it, at once."""
    ended = cli(ROOT, "gate", IMAGE, "--on", "kubernetes", "--instance", "p5.48xlarge", "--emit", "-")
    assert "kubectl wait" not in ended.err
    pattern = r"^for try in \$\(seq (\d+)\); do kubectl logs --follow job/(\S+) > \2\.log && break; sleep 5; done$"
    ((tries, job),) = re.findall(pattern, ended.err, re.MULTILINE)
    assert f"name: {job}\n" in ended.out
    (deadline,) = re.findall(r"activeDeadlineSeconds: (\d+)", ended.out)
    assert 0 <= int(tries) * 5 - int(deadline) < 5


def test_a_dry_run_makes_no_key(cli: Cli) -> None:
    words = ["--on", "sagemaker", "--nodes", "2", "--instance", "p5.48xlarge", "--role", ROLE, "--output", OUTPUT]
    ended = cli(ROOT, "gate", IMAGE, *words, "--dry-run")
    assert json.loads(ended.out)["Environment"]["GATE_KEY"] == "***"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["pytorch-2.13-cpu-py311-sagemakr", "--on", "slurm"], "did you mean 'pytorch-2.13-cpu-py311-sagemaker'"),
        ([IMAGE, "--on", "dokcer"], "did you mean 'docker'"),
        ([IMAGE, "--on", "ssh"], "no hosts were given"),
        ([IMAGE, "--on", "slurm", "--hosts", "README.md"], "--hosts only applies to --on ssh"),
        ([IMAGE, "--on", "sagemaker", "--instance", "p5.48xlarge"], "--role"),
        (["--on", "kubernetes"], "no image was given"),
        ([IMAGE, "--on", "slurm", "--instance", "p5.48xlarge", "--role", ROLE], "--role only applies to training jobs"),
        ([IMAGE, "--subnet", "subnet-1"], "--subnet only applies to training jobs, which --on docker does not create"),
    ],
)
def test_what_is_asked_for_wrongly_is_refused(cli: Cli, words: list[str], said: str) -> None:
    ended = cli(ROOT, "gate", *words)
    assert ended.code == 2
    assert said in ended.err


SLURM = ["--on", "slurm", "--instance", "p5.48xlarge"]
SAGEMAKER = ["--on", "sagemaker", "--instance", "p5.48xlarge", "--role", ROLE, "--output", OUTPUT]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            ["pytorch-2.15-cu132-py313-sagemaker-single-node", *SLURM],
            "fix:   trainwright gate pytorch-2.15-cu132-py313",
        ),
        (["base-1.0-cu128-py312-ec2-nvidia-cuda", *SLURM], "does not contain nccl-tests"),
        (["pytorch-2.13-cpu-py311-sagemaker", *SLURM, "--dry-run"], "does not contain nccl-tests"),
        ([IMAGE, "--against", "jax-0.12-cpu-py313-ec2", *SLURM], "does not contain nccl-tests"),
        ([f"127.0.0.1:5000/a/b@{DIGEST}", *SLURM], "127.0.0.1:5000 is a loopback address"),
        ([f"localhost:5000/a/b@{DIGEST}", *SAGEMAKER], "cannot pull"),
        ([f"[::1]:5000/a/b@{DIGEST}", "--on", "kubernetes", "--instance", "p5.48xlarge"], "make push REGISTRY=ecr"),
        ([f"public.ecr.aws/a/b@{DIGEST}", *SAGEMAKER], "TrainingImageConfig"),
        ([f"x.example/a/b@{DIGEST}", *SAGEMAKER], "SageMaker does not pull from x.example"),
    ],
)
def test_what_no_gate_can_come_of_is_not_emitted(cli: Cli, words: list[str], said: str) -> None:
    ended = cli(ROOT, "gate", *words)
    assert (ended.code, ended.out) == (2, "")
    assert said in ended.err.replace(".venv/bin/", "")


def test_an_image_of_others_may_have_nccl_tests(tree: Path) -> None:
    for name in ("pytorch-2.12-cu132-py312-ec2-ngc", "pytorch-2.8-cu129-py312-sagemaker-dlc", "x/y:1"):
        run.check_image(ROOT, name)


def test_a_registry_on_this_machine_is_enough_for_it_alone() -> None:
    image = f"127.0.0.1:5000/a/b@{DIGEST}"
    run.check_hosts(image, "docker", [])
    run.check_hosts(image, "ssh", ["root@localhost"])
    with pytest.raises(ConfigError, match="cannot pull"):
        run.check_hosts(image, "ssh", ["localhost", "two"])


@pytest.mark.parametrize(
    ("image", "instance", "fits"),
    [
        ("pytorch-2.15-cu132-py313-ec2", "g5g.xlarge", False),
        ("pytorch-2.15-cu132-py313-ec2-arm64", "p5.48xlarge", False),
        ("pytorch-2.15-cu132-py313-ec2-arm64", "g5g.xlarge", True),
        ("", "g5g.xlarge", True),
    ],
)
def test_an_image_goes_where_its_programs_run(image: str, instance: str, fits: bool) -> None:
    what = run.Subject(reference=IMAGE, id=image)
    words: dict[str, Any] = {"nodes": 1, "gpus": None, "hosts": None, "collectives": [], "limit": None}
    if fits:
        run.prepare(ROOT, what, "slurm", instance=instance, **words)
        return
    with pytest.raises(ConfigError, match="the image is for a"):
        run.prepare(ROOT, what, "slurm", instance=instance, **words)


def test_what_is_emitted_is_data_where_that_is_asked_for(cli: Cli, tmp_path: Path) -> None:
    said = json.loads(cli(ROOT, "gate", IMAGE, *SLURM, "--json").out)
    assert said["text"].startswith("#!/bin/bash")
    assert "sbatch FILE" in said["advice"]
    file = tmp_path / "gate.sbatch"
    ended = cli(ROOT, "gate", IMAGE, *SLURM, "--emit", str(file), "--json")
    said = json.loads(ended.out)
    assert (said["file"], ended.err) == (str(file), "")
    assert f"sbatch {file}" in said["advice"]
    assert json.loads(cli(ROOT, "gate", IMAGE, *SLURM, "--dry-run", "--json").out)["text"].startswith("#!/bin/bash")
    ended = cli(ROOT, "gate", IMAGE, "--instance", "p5.48xlarge", "--dry-run", "--json")
    assert json.loads(ended.out)["command"].startswith("docker run")
    ended = cli(ROOT, "gate", IMAGE, "--against", IMAGE, *SLURM, "--json")
    assert any("compare --a " in line for line in json.loads(ended.out)["advice"])


@KEYS
def test_interfaces_are_judged_as_they_were_asked_for(
    cli: Cli, cluster: Host, tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tree / "scripts/gate.sh").write_text(SCRIPT)
    text = (LOGS / "07_ok_p4d_2node_efa_old_error_column_interleaved_log.txt").read_text()
    (tree / "printed").write_text(text.replace("Selected Provider is efa", "Selected Provider is efa (found 3 nics)"))
    (tree / "hosts").write_text("one\ntwo\n")
    cluster.program("all_reduce_perf", f"cat {tree / 'printed'}")
    for name in ("PATH", "MARK"):
        monkeypatch.setenv(name, cluster.environment[name])
    words = ["--on", "ssh", "--hosts", "hosts", "--instance", "p4d.24xlarge", "--collective", "all_reduce"]
    for more, state in ((["--efa", "3"], "pass"), ([], "fail")):
        (said,) = json.loads(cli(tree, "gate", IMAGE, *words, *more, "--json").out)
        assert [one["state"] for one in said["checks"] if one["name"] == "nics"] == [state]


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("p5", "p5.4xlarge"),
        ("p6.48xlarge", "p6"),
        ("p5.48xlrge", "p5.48xlarge"),
    ],
)
def test_an_unknown_instance_type_names_those_of_its_family(cli: Cli, name: str, said: str) -> None:
    ended = cli(ROOT, "gate", IMAGE, "--on", "slurm", "--instance", name)
    assert ended.code == 2
    assert f"did you mean '{said}" in ended.err
    assert f"fix:   --instance {said}" in ended.err
    assert "row" not in ended.err


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "gpus_here", lambda: 8)


def test_a_gate_here_leaves_one_log_and_its_verdict(
    cli: Cli, cluster: Host, gpu: None, tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tree / "scripts/gate.sh").write_text(SCRIPT)
    cluster.prints("all_reduce_perf", GOOD)
    for name in ("PATH", "MARK"):
        monkeypatch.setenv(name, cluster.environment[name])
    ended = cli(tree, "gate", IMAGE, "--collective", "all_reduce", "--json")
    assert ended.code == 0, ended.err
    (verdict,) = json.loads(ended.out)
    assert (verdict["verdict"], verdict["image"]) == ("pass", DIGEST)
    (log,) = (tree / "out/gate").iterdir()
    assert log.suffix == ".log"
    assert "all_reduce exited with code 0" in ended.err
    cluster.program("all_reduce_perf", "exit 7")
    assert cli(tree, "gate", IMAGE, "--collective", "all_reduce").code == 6


def test_an_interrupt_ends_the_container_and_keeps_no_half_log(
    make: Make, cluster: Host, tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tree / "scripts/gate.sh").write_text(SCRIPT)
    cluster.program("all_reduce_perf", HANGS)
    for name in ("PATH", "MARK"):
        monkeypatch.setenv(name, cluster.environment[name])

    def interrupt(line: str) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run.execute(tree, make(nodes=1, collectives=["all_reduce"]), "docker", interrupt)
    assert list((tree / "out/gate").iterdir()) == []
    assert cluster.left() == []
    assert "docker rm --force" in (cluster.folder / "docker.log").read_text()


def test_a_launcher_that_starts_nothing_is_no_verdict(
    make: Make, cluster: Host, tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tree / "scripts/gate.sh").write_text(SCRIPT)
    cluster.program("docker", "echo 'could not select device driver with capabilities: [[gpu]]' >&2; exit 125")
    monkeypatch.setenv("PATH", cluster.environment["PATH"])
    with pytest.raises(EnvironmentProblem) as refused:
        run.execute(tree, make(nodes=1), "docker", print)
    assert "could not select device driver" in refused.value.why
    assert list((tree / "out/gate").iterdir()) == []
