"""Test the command and environment of each distribution, and how they treat a user's own settings."""

import json
from dataclasses import replace
from datetime import timedelta
from types import SimpleNamespace

import agent
import pytest
import starting
from errors import LauncherError
from worlds import World

PORTS = [7780, 7781]
ONE = World("sagemaker", "job", ("algo-1",), "algo-1", 2, "eth0")
TWO = World("sagemaker", "job", ("algo-1", "algo-2"), "algo-2", 2, "eth1")
PYTHON = "/opt/venv/bin/python -u"
HARMFUL = ("NCCL_PROTO", "NCCL_IB_DISABLE", "NCCL_MIN_NRINGS", "NCCL_DEBUG")


@pytest.mark.parametrize(
    ("words", "command"),
    [
        ("train.py --epochs 3", f"{PYTHON} train.py --epochs 3"),
        ("-m package --lr 1", f"{PYTHON} -m package --lr 1"),
        ("./program --x", "./program --x"),
    ],
)
def test_script(words: str, command: str) -> None:
    assert starting.script(words.split()) == command.split()


def test_script_of_a_shell_is_no_python() -> None:
    assert starting.script(["train.sh", "a b"])[-2:] == ["./train.sh", "a b"]


def test_under_mpi_one_rank_that_raises_ends_all() -> None:
    assert starting.script(["train.py"], mpi=True) == f"{PYTHON} -m mpi4py train.py".split()


def test_no_script() -> None:
    with pytest.raises(LauncherError, match="no script"):
        starting.script([])


def test_torchrun() -> None:
    said = " ".join(starting.torchrun(TWO, 7777, {}))
    for word in ("--nnodes=2", "--nproc-per-node=2", "--node-rank=1", "--master-addr=algo-1", "--master-port=7777"):
        assert word in said
    assert "/agent.py " in said  # without it the main host leaves first, and the others print DistNetworkError
    assert "--master-addr=127.0.0.1" in starting.torchrun(ONE, 7777, {})
    with pytest.raises(LauncherError, match="c10d"):
        starting.torchrun(TWO, 7777, {"PET_RDZV_BACKEND": "c10d"})


def test_the_main_hosts_agent_leaves_last() -> None:
    """Not before each other one has left torchrun's own meeting; and it waits for them no longer than some seconds."""
    order, left = list[str](), set[str]()

    class Store:
        def set(self, key: str, _: str) -> None:
            left.add(key)

        def wait(self, keys: list[str], within: timedelta) -> None:
            order.append(f"waited for {len(keys)}")
            if missing := set(keys) - left:
                raise RuntimeError(f"{missing} within {within}")

    def leave(rank: int) -> None:
        one = SimpleNamespace(_worker_group=SimpleNamespace(group_rank=rank, group_world_size=3), _store=Store())
        agent.leaving(lambda _: order.append(f"met {rank}"))(one)

    for rank in (0, 1, 2, 0):
        leave(rank)
    assert order == ["met 0", "waited for 2", "met 1", "met 2", "met 0", "waited for 2"]
    assert len(left) == 2


def test_torchrun_takes_nothing_of_the_rendezvous_from_the_environment() -> None:
    environ = {"PET_RDZV_ENDPOINT": "x:1", "PET_MASTER_PORT": "1", "PET_MAX_RESTARTS": "3", "OMP_NUM_THREADS": "4"}
    assert starting.for_torchrun(environ) == {"PET_MAX_RESTARTS": "3", "OMP_NUM_THREADS": "4"}


@pytest.mark.parametrize("world", [ONE, TWO])
def test_nothing_harmful_is_set_and_the_users_own_is_kept(world: World) -> None:
    assert not set(HARMFUL) & starting.common(world, {}).keys()
    own = dict.fromkeys([*HARMFUL, "NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME"], "mine")
    assert starting.common(world, own) == own
    for major in (4, 5):
        assert not [word for word in starting.mpirun(world, major) if "NCCL" in word]


def test_nccl_gets_the_interface_by_its_whole_name() -> None:
    """NCCL takes a bare name for a prefix, so that eth1 means eth10, too; Gloo takes whole names alone."""
    said = starting.common(replace(TWO, interface="eth1"), {})
    assert (said["NCCL_SOCKET_IFNAME"], said["GLOO_SOCKET_IFNAME"]) == ("=eth1", "eth1")


@pytest.mark.parametrize(
    ("said", "major"),
    [("mpirun (Open MPI) 4.1.4\n\nReport bugs", 4), ("mpirun (Open MPI) 5.0.6", 5), ("prterun (Open MPI) 5.1.0a1", 5)],
)
def test_open_mpi_is_told_apart(said: str, major: int) -> None:
    assert starting.openmpi_major(said) == major


@pytest.mark.parametrize("said", ["", "HYDRA build details: Version: 4.2.0", "Intel(R) MPI Library"])
def test_another_mpi(said: str) -> None:
    with pytest.raises(LauncherError, match="Open MPI"):
        starting.openmpi_major(said)


def pairs(words: list[str]) -> dict[str, str]:
    """Map MCA parameters to their values."""
    flags = ("--mca", "--prtemca")
    return {words[at + 1]: words[at + 2] for at, word in enumerate(words) if word in flags}


def test_mpirun_of_open_mpi_4() -> None:
    words = starting.mpirun(TWO, 4, agent="ssh -F x")
    assert words[:5] == ["mpirun", "--host", "algo-1:2,algo-2:2", "-np", "4"]
    found = pairs(words)
    assert (found["btl_tcp_if_include"], found["oob_tcp_if_include"]) == ("eth1", "eth1")
    assert (found["plm_rsh_agent"], found["plm_rsh_no_tree_spawn"]) == ("ssh -F x", "1")
    assert "--prtemca" not in words


def test_mpirun_of_open_mpi_5() -> None:
    words = starting.mpirun(TWO, 5, agent="ssh -F x")
    found = pairs(words)
    assert (found["plm_ssh_agent"], found["plm_ssh_no_tree_spawn"], found["prte_if_include"]) == (
        "ssh -F x",
        "1",
        "eth1",
    )
    assert not [word for word in words if "orte" in word or "plm_rsh" in word or "oob_tcp" in word]


def test_mpirun_on_one_host_asks_nobody_for_its_name() -> None:
    assert starting.mpirun(ONE, 4)[:5] == ["mpirun", "--host", "localhost:2", "-np", "2"]


def test_the_users_own_options_come_last_and_their_ranks_count() -> None:
    words = starting.mpirun(TWO, 4, "-np 3 -x 'A=b c' -x D")
    assert words[-6:] == ["-np", "3", "-x", "A=b c", "-x", "D"]
    assert words.count("-np") == 1
    assert starting.kept("-np 3 -x 'A=b c' -x D") == ["A", "D"]


def test_hosts_without_ranks_are_not_asked_for_any() -> None:
    world = replace(TWO, ranked=("algo-2",))
    assert starting.mpirun(world, 4)[2:5] == ["algo-2:2", "-np", "2"]


def test_a_rank_has_its_own_hosts_environment() -> None:
    """mpirun brings the main host's: what names a host must not come from there."""
    own = {"SM_CURRENT_HOST": "algo-1", "OMPI_COMM_WORLD_RANK": "3", "A": "by -x", "PATH": "main"}
    host = {"SM_CURRENT_HOST": "algo-2", "A": "host", "OMPI_MCA_x": "host", "PATH": "here"}
    found = starting.of_rank(own, host, ["A"])
    assert found == {"SM_CURRENT_HOST": "algo-2", "OMPI_COMM_WORLD_RANK": "3", "A": "by -x", "PATH": "here"}


def test_mpirun_does_not_know_that_it_runs_under_slurm_or_an_operator() -> None:
    """It would start its daemons with srun, take itself for a rank, or go by the operator's ssh; ranks know."""
    slurm = {"SLURM_JOBID": "1", "SLURM_NNODES": "2", "PMIX_RANK": "0", "PMI_RANK": "0"}
    theirs = {"OMPI_MCA_orte_default_hostfile": "/etc/mpi/hostfile", "OMPI_MCA_plm_rsh_args": "-o x"}
    ours = {"PATH": "/bin", "OMPI_MCA_btl": "tcp", "PMIX_MCA_gds": "hash"}
    assert starting.for_mpirun({**slurm, **theirs, **ours}) == ours
    assert starting.of_rank({"OMPI_COMM_WORLD_RANK": "1"}, slurm, [])["SLURM_JOBID"] == "1"


def test_tensorflow() -> None:
    said = [json.loads(starting.tensorflow(TWO, PORTS, {}, number)["TF_CONFIG"]) for number in range(2)]
    workers = ["algo-1:7780", "algo-1:7781", "algo-2:7780", "algo-2:7781"]
    assert [one["cluster"] for one in said] == [{"worker": workers}] * 2
    assert [one["task"] for one in said] == [{"type": "worker", "index": index} for index in (2, 3)]
    alone = json.loads(starting.tensorflow(replace(ONE, processes=1), PORTS[:1], {}, 0)["TF_CONFIG"])
    assert alone["cluster"] == {"worker": ["localhost:7780"]}


def test_a_tf_config_of_the_users_own() -> None:
    assert starting.tensorflow(replace(TWO, processes=1), PORTS[:1], {"TF_CONFIG": "{}"}, 0) == {}
    with pytest.raises(LauncherError, match="TF_CONFIG"):
        starting.tensorflow(TWO, PORTS, {"TF_CONFIG": "{}"}, 0)


def test_a_parameter_of_the_users_own_is_not_given_twice() -> None:
    """Open MPI 4 refuses to start."""
    own = "--mca btl tcp,self --mca orte_keep_fqdn_hostnames 0 --bind-to core"
    words = starting.mpirun(TWO, 4, own)
    for name in ("btl", "orte_keep_fqdn_hostnames", "--bind-to"):
        assert words.count(name) == 1
    assert pairs(words)["btl"] == "tcp,self"


@pytest.mark.parametrize(("major", "name"), [(4, "orte_keep_fqdn_hostnames"), (5, "prte_keep_fqdn_hostnames")])
def test_full_names_stay_full(major: int, name: str) -> None:
    """The hosts' keys are known under these."""
    assert pairs(starting.mpirun(TWO, major))[name] == "1"


def test_without_an_interface_none_is_named() -> None:
    world = replace(TWO, interface="")
    assert starting.common(world, {}) == {}
    assert not [word for word in starting.mpirun(world, 4) if word.endswith("if_include")]
