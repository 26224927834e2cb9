"""Test the list of a job's hosts, from real environments of SageMaker, Slurm, Kubernetes and users."""

import json
from collections.abc import Mapping
from dataclasses import replace

import pytest
import worlds
from errors import LauncherError
from worlds import Flags, World, world

ROUTES = """Iface\tDestination\tGateway\tFlags\tRefCnt\tUse\tMetric\tMask\tMTU\tWindow\tIRTT
eth1\t0000FEA9\t00000000\t0001\t0\t0\t0\t0000FFFF\t0\t0\t0
eth0\t00000000\t010011AC\t0003\t0\t0\t0\t00000000\t0\t0\t0
"""
NETWORK = {
    "/proc/net/route": ROUTES,
    "/sys/class/net/eth0/address": "02:42\n",
    "/sys/class/net/eth1/address": "02:43\n",
}


def see(environ: Mapping[str, str], files: Mapping[str, str] = NETWORK, flags: Flags | None = None) -> World:
    return world(environ, {**NETWORK, **files}.get, flags or Flags(), gpus=4)


def resources(**more: object) -> dict[str, str]:
    said = {"current_host": "algo-2", "hosts": ["algo-1", "algo-2"], "network_interface_name": "eth1", **more}
    return {worlds.RESOURCES: json.dumps(said)}


def test_one_host_is_alone() -> None:
    found = see({})
    assert (found.hosts, found.index, found.host_count, found.processes, found.interface) == (
        ("localhost",),
        0,
        1,
        4,
        "eth0",
    )


def test_sagemaker() -> None:
    found = see({"TRAINING_JOB_NAME": "my-job"}, resources())
    assert found == World("sagemaker", "my-job", ("algo-1", "algo-2"), "algo-2", 4, "eth1")
    assert (found.main, found.index) == ("algo-1", 1)


def test_hosts_come_to_the_same_order_and_job() -> None:
    names = [f"algo-{number}" for number in range(1, 12)]
    one, other = see({}, resources(hosts=names)), see({}, resources(hosts=names[::-1]))
    assert one.hosts == other.hosts == tuple(names)
    assert one.job == other.job


def test_a_heterogeneous_cluster_is_a_job_for_each_group() -> None:
    groups = [
        {"instance_group_name": "data", "hosts": ["algo-1"]},
        {"instance_group_name": "train", "hosts": ["algo-2", "algo-3"]},
    ]
    found = see({}, resources(instance_groups=groups, current_group_name="train", hosts=["algo-1", "algo-2", "algo-3"]))
    assert found.hosts == ("algo-2", "algo-3")


@pytest.mark.parametrize("name", ["ethwe", "", "eth9"])
def test_an_interface_that_is_not_there(name: str) -> None:
    assert see({}, resources(network_interface_name=name)).interface == "eth0"


def test_the_interface_of_the_flags_wins() -> None:
    assert see({}, resources(), Flags(interface="eth0")).interface == "eth0"


def test_only_ipv6() -> None:
    zero = "0" * 32
    rows = f"{zero} 00 {zero} 00 {zero} ffffffff 1 0 00200200 lo\n{zero} 00 {zero} 00 fe80 00000400 1 0 00000003 eth7\n"
    assert worlds.interface({"/proc/net/ipv6_route": rows}.get) == "eth7"


def test_no_network_at_all() -> None:
    assert worlds.interface(dict[str, str]().get, "eth0") == ""


@pytest.mark.parametrize("text", ["{", "[]", '{"hosts": ["a"]}', '{"hosts": 3, "current_host": "a"}'])
def test_sagemaker_that_says_half(text: str) -> None:
    with pytest.raises(LauncherError, match="resourceconfig"):
        see({}, {worlds.RESOURCES: text})


def test_a_host_that_is_none_of_them() -> None:
    with pytest.raises(LauncherError, match="algo-9 is not one of the job's hosts: algo-1, algo-2"):
        see({}, resources(current_host="algo-9"))


def test_flags_win_over_the_platform() -> None:
    flags = Flags(hosts=("a", "b"), host="b", processes=2)
    found = see({}, resources(), flags)
    assert (found.platform, found.hosts, found.host, found.processes) == ("flags", ("a", "b"), "b", 2)
    assert see({}, {}, replace(flags, host="a")).job == found.job
    with pytest.raises(LauncherError, match="--hosts requires --host"):
        see({}, {}, replace(flags, host=""))
    with pytest.raises(LauncherError, match="twice"):
        see({}, {}, Flags(hosts=("a", "a"), host="a"))


@pytest.mark.parametrize(
    ("text", "hosts"),
    [
        ("node[01-03,07]", "node01 node02 node03 node07"),
        ("gpu1", "gpu1"),
        ("p5-dy-p5-[1-2],login", "p5-dy-p5-1 p5-dy-p5-2 login"),
        ("r[1-2]n[1-2]", "r1n1 r1n2 r2n1 r2n2"),
        ("a[9-11]x", "a9x a10x a11x"),
        ("ip-10-0-0-1,ip-10-0-0-2", "ip-10-0-0-1 ip-10-0-0-2"),
    ],
)
def test_nodelist(text: str, hosts: str) -> None:
    assert worlds.nodelist(text) == tuple(hosts.split())


@pytest.mark.parametrize("text", ["", "node[", "node[3-1]", "node[a]", "node[1-2]]"])
def test_no_nodelist(text: str) -> None:
    with pytest.raises(LauncherError, match="invalid node list"):
        worlds.nodelist(text)


# srun --nodes=3 --ntasks-per-node=1 --gpus-per-node=8 in an allocation of four, on the third node.
SLURM = {
    "SLURM_JOB_ID": "4711",
    "SLURM_STEP_ID": "0",
    "SLURM_PROCID": "2",
    "SLURM_NODEID": "2",
    "SLURM_NNODES": "3",
    "SLURM_NTASKS": "3",
    "SLURM_STEP_NUM_TASKS": "3",
    "SLURM_JOB_NODELIST": "p5-[1-4]",
    "SLURM_STEP_NODELIST": "p5-[1-3]",
    "SLURM_GPUS_ON_NODE": "8",
}


def test_slurm() -> None:
    assert see(SLURM) == World("slurm", "4711.0", ("p5-1", "p5-2", "p5-3"), "p5-3", 8, "eth0")


def test_slurm_with_a_task_for_each_gpu() -> None:
    with pytest.raises(LauncherError, match="--ntasks-per-node=1"):
        see({**SLURM, "SLURM_STEP_NUM_TASKS": "24"})


def test_a_batch_script_without_srun_is_one_host() -> None:
    assert see({name: value for name, value in SLURM.items() if name != "SLURM_PROCID"}).platform == "one host"


# training-operator 1.8, nprocPerNode "8", one master, two workers; on the second worker.
PYTORCHJOB = {
    "HOSTNAME": "bert-worker-1",
    "MASTER_ADDR": "bert-master-0",
    "MASTER_PORT": "23456",
    "WORLD_SIZE": "24",
    "RANK": "2",
    "PET_NNODES": "3",
    "PET_NPROC_PER_NODE": "8",
    "PET_NODE_RANK": "2",
    "PET_MASTER_ADDR": "bert-master-0",
    "PET_MASTER_PORT": "23456",
}


def test_pytorchjob() -> None:
    hosts = ("bert-master-0", "bert-worker-0", "bert-worker-1")
    assert see(PYTORCHJOB).peers == hosts[:1]  # torchrun asks for no other; the names may be none that DNS knows
    assert see(PYTORCHJOB) == World("pytorchjob", "bert", hosts, "bert-worker-1", 8, "eth0")


def test_pytorchjob_that_leaves_the_processes_to_torchrun() -> None:
    assert see({**PYTORCHJOB, "PET_NPROC_PER_NODE": "auto"}).processes == 4


def test_pytorchjob_of_an_older_operator() -> None:
    old = {"HOSTNAME": "x-master-0", "MASTER_ADDR": "localhost", "WORLD_SIZE": "2", "RANK": "0"}
    assert see(old).hosts == ("x-master-0", "x-worker-0")
    worker = {**old, "HOSTNAME": "x-worker-0", "MASTER_ADDR": "x-master-0", "RANK": "1"}
    assert see(worker).hosts == see(old).hosts


def test_an_elastic_rendezvous_is_refused() -> None:
    with pytest.raises(LauncherError, match="c10d"):
        see({**PYTORCHJOB, "PET_RDZV_BACKEND": "c10d", "PET_NNODES": "1:3"})


def test_a_rank_of_torchrun_is_no_pytorchjob() -> None:
    assert see({**PYTORCHJOB, "LOCAL_RANK": "0"}).platform == "one host"


def test_pytorchjob_of_one_host() -> None:
    """A master alone, as `emit --nodes 1` writes it: the operator calls it localhost to itself."""
    alone = {**PYTORCHJOB, "HOSTNAME": "bert-master-0", "PET_NNODES": "1", "PET_NODE_RANK": "0", "WORLD_SIZE": "8"}
    for main in ("bert-master-0", "localhost"):
        found = see({**alone, "PET_MASTER_ADDR": main, "MASTER_ADDR": main, "RANK": "0"}, {}, Flags(processes=2))
        assert found == World("pytorchjob", "bert", ("bert-master-0",), "bert-master-0", 2, "eth0")


DOMAIN = "sum.team.svc"
ROWS = "".join(f"sum-{name}.{DOMAIN} slots=2\n" for name in ("launcher", "worker-0", "worker-1"))


def test_mpijob_whose_launcher_is_alone() -> None:
    """runLauncherAsWorker without workers, as `emit --nodes 1` writes it."""
    found = see({"HOSTNAME": "sum-launcher"}, {worlds.HOSTFILE: ROWS.splitlines()[0] + "\n"})
    assert (found.hosts, found.rank_hosts, found.processes) == ((f"sum-launcher.{DOMAIN}",),) * 2 + (2,)


@pytest.mark.parametrize("me", ["launcher", "worker-0", "worker-1"])
def test_mpijob_whose_launcher_is_a_worker(me: str) -> None:
    found = see({"HOSTNAME": f"sum-{me}"}, {worlds.HOSTFILE: ROWS}, Flags(worker=me != "launcher"))
    assert (found.main, found.host, found.host_count) == (f"sum-launcher.{DOMAIN}", f"sum-{me}.{DOMAIN}", 3)
    assert (found.job, found.processes, found.rank_hosts) == ("sum", 2, found.hosts)
