"""Render the runs of a search for each launcher, and refuse what cannot be searched."""

import os
import subprocess
from pathlib import Path

import pytest
from hosts import DIGEST, ROOT
from typer.testing import CliRunner

from trainwright.commands import register
from trainwright.commands.options import app
from trainwright.core.errors import ConfigError, NotRunError
from trainwright.gate import floors, spec
from trainwright.gate import run as gate_run
from trainwright.gate.find import launch, model, prepare
from trainwright.gate.spec import Run
from trainwright.matrix import instances
from trainwright.schedulers import clusters

IMAGE = f"registry.example/x/y@{DIGEST}"
SETTINGS = model.load_settings(ROOT)
register(["gate"])


def whole(on: str, nodes: int = 4, instance: str = "p5.48xlarge", **asked: object) -> Run:
    kinds = clusters.load_kinds(ROOT)
    words: dict[str, object] = {"name": "gate-x", "image": IMAGE, "instance": instance, "nodes": nodes, **asked}
    if on in gate_run.SCHEDULED:
        words |= {"kinds": kinds, "cluster": kinds.clusters["slurm" if on == "slurm" else "kubernetes"]}
    return spec.make(
        spec.load_settings(ROOT),
        instances.load_instances(ROOT),
        floors.load_floors(ROOT),
        **words,  # type: ignore[arg-type]
    )


def test_a_step_of_slurm_runs_on_its_own_nodes() -> None:
    run = launch.part(whole("slurm"), ["n3", "n1"], "slurm", SETTINGS, "gate-x-r02")
    text = launch.text(run, "slurm", "# script\n")
    assert "export GATE_NODELIST=n3,n1 SLURM_EXACT=1" in text
    assert "--srun 2" in text
    assert "NCCL_ALGO=Ring" in text
    assert "NCCL_NET=Libfabric" in text


def test_the_runs_of_slurm_share_one_container_with_the_time_to_import_it() -> None:
    asked = whole("slurm")
    runs = [launch.part(asked, ["n1", "n3"], "slurm", SETTINGS, f"gate-x-r{number}") for number in (1, 2)]
    assert [(run.name, run.sweep.wait) for run in runs] == [("gate-x", asked.sweep.wait)] * 2
    assert asked.sweep.wait > SETTINGS.run.wait
    other = launch.part(whole("kubernetes"), ["w-3"], "kubernetes", SETTINGS, "gate-x-r1")  # its name is a file's
    assert (other.name, other.sweep.wait) == ("gate-x-r1", SETTINGS.run.wait)


def test_a_host_alone_does_not_need_efa() -> None:
    run = launch.part(whole("ssh", hosts=["a", "b", "c", "d"]), ["a"], "ssh", SETTINGS, "gate-x-r01")
    assert (run.nodes, run.gpus, run.hosts) == (1, 8, ["a"])
    assert "NCCL_NET" not in run.environment


def test_a_rail_is_one_gpu_of_each_host() -> None:
    run = launch.part(whole("ssh", hosts=["a", "b", "c", "d"]), ["a", "b"], "ssh", SETTINGS, "gate-x-r02", rail=5)
    assert (run.gpus, run.environment["CUDA_VISIBLE_DEVICES"]) == (1, "5")
    assert run.sweep.limit == SETTINGS.run.rail_limit


def test_on_this_machine_the_gpus_are_the_hosts() -> None:
    run = launch.part(whole("docker", nodes=1), ["gpu1", "gpu6"], "docker", SETTINGS, "gate-x-r01")
    text = launch.text(run, "docker", "# script\n")
    assert "CUDA_VISIBLE_DEVICES=1,6" in text
    assert "--gpus 2 " in text
    assert text.startswith("trap 'docker rm --force --volumes gate-x-r01 ")
    cluster, _ = prepare.cluster(whole("docker", nodes=1), "docker", None)
    assert (cluster.names[7], cluster.rails, cluster.alone) == ("gpu7", 1, False)


def test_a_pod_that_launches_gets_its_hosts_by_a_file(tmp_path: Path) -> None:
    """The text is run with a kubectl that stays here."""
    run = launch.part(whole("kubernetes"), ["w-3", "w-1"], "kubernetes", SETTINGS, "gate-x-r02")
    kubectl = tmp_path / "kubectl"
    kubectl.write_text('#!/bin/bash\necho "$1 $2 $3"\nwhile [ "$1" != -- ]; do shift; done; shift; exec "$@"\n')
    kubectl.chmod(0o755)
    script = 'for w; do [ "$before" != --hostfile ] || cat "$w"; before=$w; done; echo "$*"\n'
    text = launch.text(run, "kubernetes", script, "gate-x")
    environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    done = subprocess.run(["bash", "-c", text], capture_output=True, text=True, env=environment)
    lines = done.stdout.splitlines()
    assert lines[0] == "exec --stdin job/gate-x-launcher", done.stderr
    assert lines[1:3] == ["w-3", "w-1"]
    assert "--trust-hosts" in lines[3]
    assert "NCCL_ALGO=Ring" in lines[3]
    Path("/tmp/gate-x-r02").unlink()


def test_a_search_needs_two_of_a_kind_and_each_once() -> None:
    with pytest.raises(ConfigError, match="two hosts at least"):
        prepare.cluster(whole("ssh", nodes=1, hosts=["a"]), "ssh", None)
    with pytest.raises(NotRunError, match="one GPU has no other one"):
        prepare.cluster(whole("docker", nodes=1, instance="g5.xlarge"), "docker", None)
    with pytest.raises(ConfigError, match="named twice") as told:
        prepare.cluster(whole("slurm"), "slurm", None, ["a", "b", "a"])
    assert told.value.why == "a"


BASELINE = """\
name = "known"
instance = "p4d.24xlarge"
nodes = {nodes}
digest = ""
day = 2026-11-20
proved = true
[logs]
[[points]]
collective = "all_reduce"
algorithm = "any"
size = {size}
out_of_place = 40.0
in_place = 90.0
"""


@pytest.mark.parametrize(
    ("instance", "nodes", "size", "said"),
    [
        ("p5.48xlarge", 2, 1 << 28, "the baseline is of p4d.24xlarge, and these hosts are p5.48xlarge"),
        ("p4d.24xlarge", 8, 1 << 28, "the baseline is of 8 nodes"),
        ("p4d.24xlarge", 2, 1 << 10, "nothing to compare with"),
        ("p4d.24xlarge", 2, 1 << 28, ""),
    ],
)
def test_a_baseline_is_one_of_pairs_of_such_hosts(
    tmp_path: Path, instance: str, nodes: int, size: int, said: str
) -> None:
    file = tmp_path / "dockerfiles/baselines/known.toml"
    file.parent.mkdir(parents=True)
    file.write_text(BASELINE.format(nodes=nodes, size=size))
    run = whole("ssh", instance=instance, hosts=["a", "b", "c", "d"])
    if said:
        with pytest.raises(ConfigError, match=said):
            prepare.expected(tmp_path, "known", run, SETTINGS)
    else:
        assert prepare.expected(tmp_path, "known", run, SETTINGS) == pytest.approx(4.0943, abs=0.001)  # log 60


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--on", "sagemaker", "x/y:1"], "a training job gets other hosts each time"),
        (["--on", "slurm", "--gpus", "8"], "SLURM_JOB_NODELIST is not set"),
        (["--on", "ssh", "--hosts", "HOSTS", "--gpus", "1", "--emit", "-"], "--emit and --find exclude each other"),
        (["--on", "ssh", "--hosts", "TWICE", "--gpus", "1"], "a host is named twice"),
        (["--on", "ssh", "--hosts", "HOSTS", "--gpus", "1", "--limit", "9"], "--limit has no effect"),
        (
            ["--on", "ssh", "--hosts", "HOSTS", "--gpus", "1", "--collective", "all_gather"],
            "--collective has no effect",
        ),
        (["--on", "slurm", "--gpus", "8", "--partition", "p"], "--partition has no effect"),
        (["--on", "kubernetes", "--gpus", "8", "x/y:1"], "--nodes 1"),
    ],
)
def test_what_cannot_be_searched_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str], said: str
) -> None:
    monkeypatch.chdir(ROOT)
    monkeypatch.delenv("SLURM_JOB_NODELIST", raising=False)
    (tmp_path / "hosts").write_text("a\nb\nc\n")
    (tmp_path / "twice").write_text("a\nb\na\n")
    files = {"HOSTS": str(tmp_path / "hosts"), "TWICE": str(tmp_path / "twice")}
    done = CliRunner().invoke(app, ["gate", "--find", *(files.get(word, word) for word in words)])
    assert isinstance(done.exception, ConfigError)
    assert said in f"{done.exception} {done.exception.why}"


def test_the_plan_is_printed_and_nothing_is_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    (tmp_path / "hosts").write_text("\n".join(f"h{number}" for number in range(9)) + "\n")
    words = ["gate", "--find", "--on", "ssh", "--hosts", str(tmp_path / "hosts"), "--gpus", "8", "--dry-run"]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 0
    assert "9 hosts, racks unknown" in done.output
    assert "if one host is at fault: " in done.output
    assert "GPU-hours" in done.output
    assert "a round takes about 35 s, and 155 s where a suspect is measured rail by rail" in done.output


def test_options_of_a_search_need_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    done = CliRunner().invoke(app, ["gate", "x/y:1", "--on", "ssh", "--folder", "x"])
    assert isinstance(done.exception, ConfigError)
    assert "--folder requires --find" in str(done.exception)
