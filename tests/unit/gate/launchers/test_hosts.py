"""Test the same run with docker, ssh and Slurm: the commands that each of them gets."""

import contextlib
import os
import re
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest
from hosts import DIGEST, GOOD, ROOT, Host
from unit.gate.launchers.conftest import IMAGE, KEYS, NOT_SET, SCRIPT, SSH_HERE, Make, run_here

from trainwright.build import lint
from trainwright.core.errors import ConfigError
from trainwright.gate import floors, launchers, spec
from trainwright.matrix.instances import Instance
from trainwright.schedulers import slurm


def test_a_run_has_what_its_instance_type_has(make: Make) -> None:
    run = make()
    assert (run.gpus, run.efa, run.ranks) == (8, 32, 16)
    assert run.environment["NCCL_NET"] == "Libfabric"
    assert make(instance="ml.p5.48xlarge").instance == "p5.48xlarge"
    assert make(gpus=4).ranks == 8


def test_only_several_hosts_with_efa_insist_on_it(make: Make) -> None:
    assert "NCCL_NET" not in make(nodes=1).environment
    assert "NCCL_NET" not in make(instance="g5.xlarge").environment
    assert "NCCL_NET" not in make(instance="", gpus=8).environment


def test_what_the_plugin_knows_better_is_not_set(make: Make) -> None:
    assert not {name for name in make().environment if name.startswith(NOT_SET)}


def test_the_largest_message_is_one_that_a_floor_asks_for(make: Make, table: dict[str, Instance]) -> None:
    for floor in floors.load_floors(ROOT).floors:
        for name in floor.instances:
            assert make(instance=name).sweep.most >= floor.size, name
    for name, row in table.items():
        if row.count:  # nccl-tests hold three buffers of it
            assert make(instance=name).sweep.most * 3 < row.memory_gib * 2**30, name


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"instance": "p5.48xlrge"}, "did you mean 'p5.48xlarge'"),
        ({"efa": 33}, "33 EFA interfaces were requested, but p5.48xlarge has 32"),
        ({"gpus": 9}, "9 GPUs were requested, but p5.48xlarge has 8"),
        ({"instance": ""}, "the number of GPUs per host is unknown"),
        ({"instance": "c5n.18xlarge"}, "has no GPU"),
        ({"collectives": ["allreduce"]}, "did you mean 'all_reduce'"),
        ({"hosts": ["one"]}, "1 hosts are named"),
        ({"hosts": ["one", "one"]}, "named twice"),
        ({"hosts": ["one", "two; reboot"]}, "is not a host name"),
    ],
)
def test_what_does_not_go_together_is_refused(make: Make, asked: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError) as refused:
        make(**asked)
    assert said in f"{refused.value.what} {refused.value.why}"


def test_hosts_are_read_as_mpirun_reads_them() -> None:
    text = "# ours\nroot@10.0.0.1 slots=8\n\ntwo:8  # the other\n"
    assert spec.read_hosts(text) == ["root@10.0.0.1", "two"]


@pytest.mark.parametrize("subject", ["pytorch-2.15-cu132-py313-sagemaker-single-node", IMAGE, "", "a/b:1.0", "---"])
def test_a_name_suits_every_launcher(subject: str) -> None:
    name = spec.name_of(subject, "20261122-060000")
    assert re.fullmatch(r"[a-z]([a-z0-9-]*[a-z0-9])?", name)
    assert len(f"{name}-launcher") <= 63


def clean(text: str, tmp_path: Path) -> None:
    """Check that bash and shellcheck accept a script."""
    path = tmp_path / "emitted.sh"
    path.write_text(text)
    subprocess.run(["bash", "-n", path], check=True)
    said = subprocess.run([lint.program("shellcheck"), "--severity", "warning", path], capture_output=True, text=True)
    assert said.stdout == ""


def test_docker_gets_all_gpus_devices_and_limits(make: Make, tmp_path: Path) -> None:
    run = make(nodes=1)
    devices = [f"/dev/infiniband/uverbs{number}" for number in range(32)]
    words = launchers.docker(run, devices)
    assert words[words.index("--gpus") + 1] == "all"
    assert [word for word in words if word.startswith("--device=")] == [f"--device={device}" for device in devices]
    assert {"--ulimit=memlock=-1", "--ulimit=stack=67108864", "--shm-size=8g", "--rm", "--init"} <= set(words)
    assert words[words.index(IMAGE) - 2 :][:3] == ["--entrypoint", "bash", IMAGE]
    assert words[-len(run.variables) :] == run.variables
    clean(launchers.docker_script(run, SCRIPT), tmp_path)


def test_the_script_for_docker_finds_the_devices_where_it_runs(make: Make, cluster: Host, tmp_path: Path) -> None:
    for number in range(2):
        (tmp_path / f"uverbs{number}").touch()
    cluster.prints("all_reduce_perf", GOOD)
    run = make(nodes=1, collectives=["all_reduce"])
    patterns = {"devices": [f"{tmp_path}/uverbs*", f"{tmp_path}/gdrdrv"]}
    docker = run.settings.docker.model_copy(update=patterns)
    run = run.model_copy(update={"settings": run.settings.model_copy(update={"docker": docker})})
    assert run_here(cluster, launchers.docker_script(run, SCRIPT)).returncode == 0
    (ran,) = (cluster.folder / "docker.log").read_text().splitlines()
    assert re.findall(r"--device=(\S+)", ran) == [f"{tmp_path}/uverbs{number}" for number in range(2)]


def test_slurm_gets_options_that_sbatch_has(make: Make, tmp_path: Path) -> None:
    text = launchers.slurm(make(), SCRIPT)
    options = dict(re.findall(r"^#SBATCH --([a-z-]+)=?(.*)$", text, re.MULTILINE))
    known = {"job-name", "nodes", "ntasks-per-node", "gpus-per-node", "exclusive", "mem", "time", "output"}
    assert options.keys() == known  # sbatch(1)
    assert (options["nodes"], options["ntasks-per-node"], options["gpus-per-node"]) == ("2", "8", "8")
    assert re.fullmatch(r"\d\d:\d\d:00", options["time"])
    assert text.startswith("#!/bin/bash\n#SBATCH")  # what follows a command is none
    host = "123456789012.dkr.ecr.us-east-1.amazonaws.com"
    assert f"--container '{host}#trainwright/pytorch:{DIGEST}'" in text
    assert f"machine {host} login AWS password $(aws ecr get-login-password --region us-east-1)" in text
    assert f'enroot remove --force "pyxis_{make().name}-$SLURM_JOB_ID"' in text
    bare = launchers.slurm(make(image=""), SCRIPT)
    assert not [word for word in ("--container '1", "credentials", "enroot remove") if word in bare]
    clean(text, tmp_path)


def test_what_slurm_imported_is_removed_from_every_node(make: Make, cluster: Host) -> None:
    cluster.program("srun", 'echo "srun $*" | head -n 1 >> "${0%/*}/srun.log"')
    text = launchers.slurm(make(collectives=["all_reduce"]), SCRIPT)
    name = f"{make().name}-77"
    assert run_here(cluster, f"export SLURM_JOB_ID=77\n{text}").returncode == 0
    ran = (cluster.folder / "srun.log").read_text().splitlines()
    assert f"--container-name={name} " in next(line for line in ran if "--container-image" in line)
    assert ran[-1] == f"srun --nodes=2 --ntasks=2 --ntasks-per-node=1 enroot remove --force pyxis_{name}"


# The parsers of enroot 3.0.1 to 4.1.2 (src/docker.sh) all read these, and give the digest to the registry.
ENROOT = re.compile(r"(?:([^#/@]+)#)?([a-z0-9/._-]+)(?::([A-Za-z0-9._:-]+))?")


@pytest.mark.parametrize(
    ("reference", "read"),
    [
        ("localhost:5000/a/b:1", ("localhost:5000", "a/b", "1")),
        (f"localhost:5000/a/b@{DIGEST}", ("localhost:5000", "a/b", DIGEST)),
        (f"x.example/a/b:1@{DIGEST}", ("x.example", "a/b", DIGEST)),
        ("nvidia/cuda:13", (None, "nvidia/cuda", "13")),
        (f"nvidia/cuda@{DIGEST}", (None, "nvidia/cuda", DIGEST)),
    ],
)
def test_enroot_reads_a_reference_to_its_digest(reference: str, read: tuple[str | None, str, str]) -> None:
    found = ENROOT.fullmatch(slurm.enroot(reference))
    assert found
    assert found.groups() == read


def test_the_credentials_of_a_registry_are_said_as_enroot_takes_them() -> None:
    assert slurm.credentials("x.example:5000") == "machine x.example login <user> password <token>"


def test_ssh_scripts_are_sound(make: Make, tmp_path: Path) -> None:
    for image in (IMAGE, ""):
        clean(launchers.ssh(make(image=image, hosts=["ec2-user@one", "two"]), SCRIPT), tmp_path)


@pytest.mark.parametrize("image", [pytest.param(IMAGE, marks=KEYS), ""])
def test_ssh_runs_on_all_hosts_and_leaves_none_of_them_waiting(make: Make, cluster: Host, image: str) -> None:
    cluster.prints("all_reduce_perf", GOOD)
    run = make(image=image, hosts=["root@one", "two"], collectives=["all_reduce"], instance="", gpus=8)
    done = run_here(cluster, launchers.ssh(run, SCRIPT))
    assert done.returncode == 0, done.stderr
    assert "gate: all_reduce exited with code 0" in done.stdout
    assert (f"gate: image {IMAGE}" in done.stdout) is bool(image)
    assert "KEY" not in done.stdout + done.stderr
    assert cluster.left() == []
    if image:
        ran = (cluster.folder / "docker.log").read_text().splitlines()
        assert sorted(line.split()[1] for line in ran) == ["rm", "rm", "run", "run"]
        assert sum(" --serve" in line for line in ran) == 1
        assert all(" --network host --gpus all " in line for line in ran if line.startswith("docker run"))


@pytest.mark.parametrize("image", [pytest.param(IMAGE, marks=KEYS), ""])
def test_what_an_interrupt_found_connecting_starts_nothing_later(
    make: Make, cluster: Host, image: str, tmp_path: Path
) -> None:
    """Each connection that starts a run waits at a gate, which opens when the script has ended."""
    gate, begun = tmp_path / "opens", tmp_path / "begun"
    os.mkfifo(gate)
    waits = f'case "$*" in */proc/* | *" rm "*) ;; *--name*) read -r _ <{gate} || touch {begun} ;; esac\n'
    cluster.program("ssh", waits + SSH_HERE)
    text = launchers.ssh(make(image=image, hosts=["one", "two"], collectives=["all_reduce"], gpus=8), SCRIPT)
    with subprocess.Popen(["bash", "-c", text], env=cluster.environment, stdin=subprocess.DEVNULL) as child:
        opened = None
        while opened is None:
            assert child.poll() is None
            with contextlib.suppress(OSError):  # ENXIO until a connection reads the pipe
                opened = os.open(gate, os.O_WRONLY | os.O_NONBLOCK)
        child.send_signal(signal.SIGINT)
        try:
            assert child.wait(60) == 130
        finally:
            child.kill()
    os.close(opened)
    while any("ssh" in line for line in cluster.left()):
        pass
    assert not begun.exists()
    assert cluster.left() == []
