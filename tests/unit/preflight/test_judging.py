"""Test the judgement of a host: each missing item is named with its fix, and an unknown one is never ok."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from findings import HOST, IMAGE, OK, REFUSED, UNKNOWN, UNLIMITED, WARNING, Case, Facts, Finding
from judging import judge
from limits import size
from peers import chosen

from trainwright.image import preflight_settings
from trainwright.matrix.matrix import Intent

GIB = 1 << 30
PLUGIN = "/opt/amazon/ofi-nccl/lib/libnccl-net-ofi.so"
EFA = tuple(f"uverbs{number}" for number in range(32))
# A p5.48xlarge as it should be, one of two.
GOOD = Facts(
    hosts=("algo-1", "algo-2"),
    peers=("algo-1", "algo-2"),
    host="algo-1",
    processes=8,
    interface="eth0",
    distribution="torchrun",
    instance="p5.48xlarge",
    told_by="resourceconfig.json",
    efa_devices=tuple(f"rdmap{number}s0" for number in range(32)),
    uverbs=EFA,
    providers=("efa", "tcp"),
    efa_answer="",
    plugins={PLUGIN: ""},
    cudart="",
    interfaces=("lo", "eth0"),
    addresses={"algo-1": ("10.0.0.1",), "algo-2": ("10.0.0.2",)},
    memlock=UNLIMITED,
    pins_anything=False,
    nofile=1048576,
    tasks_left=UNLIMITED,
    shm=1000 * GIB,
    gpus=8,
    driver="580.105.08",
    cuda_of_driver=13000,
    gdrdrv="2.5.1",
    gdrdrv_device=True,
)
FLAGSHIP = {
    "torch": {"says": "2.15.0"},
    "cuda": {"says": "13.2"},
    "nccl": {"says": "2.30.7"},
    "libfabric": {"says": "2.6.0amzn1.0"},
    "aws-ofi-nccl": {"says": "1.21.1"},
    "gdrcopy": {"says": "2.6"},
}
CPU = {"torch": {"says": "2.13.0"}, "libfabric": {"says": "1.17.0"}}
SINGLE_NODE = {name: FLAGSHIP[name] for name in ("torch", "cuda", "nccl", "libfabric")}
Judged = Callable[..., list[Finding]]


@pytest.fixture
def judged(intent: Intent) -> Judged:
    data = preflight_settings.settings(intent, {"cuda": "13.2.2"})

    def judged(components: dict[str, Any] = FLAGSHIP, facts: Facts = GOOD, **changed: Any) -> list[Finding]:
        return judge(Case(replace(facts, **changed), components, data))

    return judged


def of(findings: list[Finding], check: str) -> Finding:
    """Return the only finding of a check."""
    (found,) = (finding for finding in findings if finding.check == check)
    return found


def levels(findings: list[Finding]) -> dict[str, str]:
    return {finding.check: finding.level for finding in findings if finding.level != OK}


def test_a_good_host_is_ok_in_every_check(judged: Judged) -> None:
    findings = judged()
    assert levels(findings) == {}
    checks = ["efa", "provider", "plugin", "peers", "interface", "gpus", "driver", "gdrcopy"]
    assert [one.check for one in findings] == [*checks, "memlock", "nofile", "nproc", "shm"]


def test_the_worst_comes_first(judged: Judged) -> None:
    found = [one.level for one in judged(uverbs=(), memlock=8 << 20, nofile=1024, shm=None)]
    assert found == sorted(found, key=[REFUSED, WARNING, UNKNOWN, OK].index)
    assert found[0] == REFUSED


def test_every_refusal_says_how_to_go_on(judged: Judged) -> None:
    findings = judged(uverbs=(), memlock=0, nofile=10, tasks_left=8, shm=GIB // 1024, gpus=0, addresses={})
    refused = [one for one in findings if one.level == REFUSED]
    assert len(refused) >= 6
    for one in refused:
        assert one.expected
        assert one.found
        assert one.fix
        assert one.text().startswith(f"expected {one.expected}, found {one.found}")
        assert one.text().endswith(f"Fix: {one.fix}")


# --- EFA -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changed", "level", "words"),
    [
        ({"efa_devices": (), "uverbs": ()}, REFUSED, "found no /dev/infiniband/uverbs*"),
        ({"uverbs": ()}, REFUSED, "found none in this container, and 32 on the host"),
        ({"uverbs": EFA[:8]}, WARNING, "found 8 "),
        ({"hosts": ("algo-1",), "efa_devices": (), "uverbs": ()}, OK, "one host"),
        ({"hosts": (), "efa_devices": (), "uverbs": ()}, OK, "one host"),
        ({"uverbs": (), "allow_tcp": True}, WARNING, "found none in this container"),
        ({"uverbs": (), "efa_said": False}, OK, "TRAINWRIGHT_EFA=0"),
        ({"uverbs": (), "efa_devices": (), "instance": "g4dn.xlarge", "gpus": 1}, OK, "g4dn.xlarge has no EFA"),
        ({"uverbs": (), "efa_devices": (), "instance": "", "told_by": "QEMU"}, OK, "not an EC2 instance (QEMU)"),
        ({"uverbs": (), "efa_devices": (), "instance": None, "told_by": ""}, UNKNOWN, "TRAINWRIGHT_EFA=1 or 0"),
        ({"uverbs": (), "efa_devices": (), "instance": "p7.48xlarge"}, UNKNOWN, "2 hosts of p7.48xlarge"),
        ({"uverbs": (), "efa_devices": (), "instance": "p7.48xlarge", "efa_said": True}, REFUSED, "1 EFA interfaces"),
        ({"uverbs": (), "instance": None, "told_by": ""}, REFUSED, "and 32 on the host"),
        ({"environment": {"NCCL_NET": "Socket"}}, REFUSED, "NCCL_NET=Socket"),
        ({"environment": {"FI_PROVIDER": "tcp"}}, REFUSED, "FI_PROVIDER=tcp"),
        ({"environment": {"FI_PROVIDER": "efa", "NCCL_NET": "Libfabric"}}, OK, "32 interfaces"),
    ],
)
def test_several_hosts_and_efa(judged: Judged, changed: dict[str, Any], level: str, words: str) -> None:
    found = of(judged(**changed), "efa")
    assert found.level == level
    assert words in found.text()
    assert found.code == HOST


@pytest.mark.parametrize(
    ("changed", "level", "words"),
    [
        ({"providers": ("tcp", "shm")}, REFUSED, "found tcp, shm (fi_info -l)"),
        ({"efa_answer": "fi_getinfo: -61"}, REFUSED, "fi_getinfo: -61"),
        ({"efa_answer": "fi_getinfo: -61", "allow_tcp": True}, WARNING, "fi_getinfo: -61"),
        ({"efa_answer": None}, UNKNOWN, "did not answer"),
        ({"providers": None}, UNKNOWN, "did not answer"),
    ],
)
def test_interfaces_without_a_provider(judged: Judged, changed: dict[str, Any], level: str, words: str) -> None:
    found = of(judged(**changed), "provider")
    assert found.level == level
    assert words in found.text()


@pytest.mark.parametrize(
    ("components", "changed", "level"),
    [
        (SINGLE_NODE, {}, REFUSED),
        (SINGLE_NODE, {"allow_tcp": True}, WARNING),
        (SINGLE_NODE, {"hosts": ("algo-1",)}, OK),
        (SINGLE_NODE, {"instance": "c5n.18xlarge", "gpus": 0}, WARNING),
        ({"torch": {"says": "2.13.0"}}, {}, WARNING),
        (CPU, {"uverbs": (), "efa_devices": ()}, REFUSED),
        (CPU, {"uverbs": (), "efa_devices": (), "instance": "c5n.18xlarge", "gpus": 0}, REFUSED),
    ],
)
def test_images_that_cannot_talk_efa(
    judged: Judged, components: dict[str, Any], changed: dict[str, Any], level: str
) -> None:
    assert of(judged(components, **changed), "efa").level == level


def test_a_plugin_that_does_not_load_is_the_images_fault(judged: Judged) -> None:
    message = "libhwloc.so.15: cannot open shared object file: No such file or directory"
    found = of(judged(plugins={PLUGIN: message}), "plugin")
    assert (found.level, found.code) == (REFUSED, IMAGE)
    assert message in found.text()
    assert PLUGIN in found.text()
    assert of(judged(plugins={}), "plugin").level == REFUSED
    assert of(judged(plugins={PLUGIN: None}), "plugin").level == UNKNOWN
    assert of(judged(cudart="libcudart.so: cannot open shared object file"), "plugin").level == REFUSED
    assert "plugin" not in {one.check for one in judged(CPU, plugins={})}


# --- peers -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changed", "level", "words"),
    [
        (
            {"addresses": {"algo-1": ("10.0.0.1",), "algo-2": ()}, "wait": 7},
            REFUSED,
            "after 7 s, found none for algo-2",
        ),
        (
            {"addresses": {"algo-1": ("127.0.1.1",), "algo-2": ("10.0.0.2",)}},
            WARNING,
            "only a loopback address for algo-1",
        ),
        ({"addresses": {"algo-1": ("10.0.0.1", "127.0.1.1"), "algo-2": ("10.0.0.2",)}}, OK, "addresses for 2 of 2"),
        ({"addresses": None}, UNKNOWN, "not waited for"),
    ],
)
def test_peers(judged: Judged, changed: dict[str, Any], level: str, words: str) -> None:
    found = of(judged(**changed), "peers")
    assert found.level == level
    assert words in found.text()


def test_a_host_without_processes_needs_no_more_than_the_others_names(judged: Judged) -> None:
    """The launcher's pod of an MPIJob has no GPU and no EFA, on whichever node it is."""
    findings = judged(processes=0, gpus=0, uverbs=(), efa_devices=(), shm=64 << 20, memlock=0)
    assert [(one.check, one.level) for one in findings] == [("peers", OK), ("interface", OK), ("nofile", OK)]


def test_only_names_that_must_lead_to_a_host_are_asked(judged: Judged) -> None:
    found = of(judged(peers=("algo-1",), addresses={"algo-1": ("10.0.0.1",)}), "peers")
    assert (found.level, found.found) == (OK, "addresses for 1 of 1")


def test_one_host_has_no_peers(judged: Judged) -> None:
    assert "peers" not in {one.check for one in judged(hosts=("algo-1",), addresses=None)}


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"interface": "ethwe"}, "expected ethwe, found lo, eth0"),
        ({"environment": {"NCCL_SOCKET_IFNAME": "ens"}}, "NCCL_SOCKET_IFNAME=ens"),
        ({"environment": {"GLOO_SOCKET_IFNAME": "eth"}}, "GLOO_SOCKET_IFNAME=eth"),
    ],
)
def test_an_interface_that_is_not_there(judged: Judged, changed: dict[str, Any], words: str) -> None:
    found = of(judged(**changed), "interface")
    assert found.level == WARNING
    assert words in found.text()


@pytest.mark.parametrize(
    ("value", "meant"),
    [
        ("eth", ["eth0", "eth1"]),
        ("=eth0", ["eth0"]),
        ("=eth", []),
        ("^lo,docker", ["eth0", "eth1"]),
        ("^=eth0", ["lo", "eth1"]),
        ("eth1:2", ["eth1"]),
    ],
)
def test_which_interfaces_nccl_takes(value: str, meant: list[str]) -> None:
    assert chosen(value, ("lo", "eth0", "eth1"), prefixes=True) == meant


# --- GPUs ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("components", "changed", "level", "words"),
    [
        (FLAGSHIP, {"gpus": 0}, REFUSED, "the 8 GPUs of p5.48xlarge, found no /dev/nvidia*"),
        (FLAGSHIP, {"gpus": 4}, WARNING, "expected the 8 of p5.48xlarge, found 4"),
        (FLAGSHIP, {"gpus": 0, "instance": None, "told_by": ""}, WARNING, "found no /dev/nvidia*"),
        (FLAGSHIP, {"gpus": None}, UNKNOWN, "/dev could not be read"),
        (FLAGSHIP, {"gpus": 1, "instance": "g5.xlarge"}, WARNING, "one for each of 8 processes"),
        (CPU, {}, WARNING, "an image without CUDA"),
    ],
)
def test_gpus(judged: Judged, components: dict[str, Any], changed: dict[str, Any], level: str, words: str) -> None:
    found = of(judged(components, **changed), "gpus")
    assert found.level == level
    assert words in found.text()


def test_an_image_without_cuda_where_there_are_no_gpus(judged: Judged) -> None:
    findings = judged(CPU, instance="c5n.18xlarge", gpus=0)
    assert not {"gpus", "driver", "gdrcopy"} & {one.check for one in findings}


@pytest.mark.parametrize(
    ("changed", "level", "words"),
    [
        ({"cuda_of_driver": 12080, "driver": "570.86.15"}, REFUSED, "expected a driver for CUDA 13.2: 580 or newer"),
        ({"cuda_of_driver": 13000, "driver": "580.65.06"}, OK, "CUDA 13.0; the image has 13.2"),
        # Forward compatibility: a newer libcuda over an older module.
        ({"cuda_of_driver": 13020, "driver": "570.86.15"}, OK, "driver 570.86.15"),
        ({"cuda_of_driver": None, "driver": "535.104.05"}, REFUSED, "found driver 535.104.05"),
        ({"cuda_of_driver": None, "libcuda_said": "libcuda.so.1: cannot open"}, REFUSED, "libcuda.so.1: cannot open"),
        (
            {"cuda_of_driver": None, "libcuda_said": "libcuda.so.1: cannot open"},
            REFUSED,
            "NVIDIA_VISIBLE_DEVICES=all NVIDIA_DRIVER_CAPABILITIES=compute,utility",
        ),
        ({"cuda_of_driver": None}, UNKNOWN, "libcuda did not answer"),
        ({"cuda_of_driver": None, "driver": ""}, UNKNOWN, "driver unknown"),
    ],
)
def test_driver(judged: Judged, changed: dict[str, Any], level: str, words: str) -> None:
    found = of(judged(**changed), "driver")
    assert found.level == level
    assert words in found.text()


@pytest.mark.parametrize(
    ("changed", "level"),
    [({"gdrdrv": "1.3"}, WARNING), ({"gdrdrv_device": False}, WARNING), ({"gdrdrv": "10.1"}, OK)],
)
def test_gdrcopy(judged: Judged, changed: dict[str, Any], level: str) -> None:
    assert of(judged(**changed), "gdrcopy").level == level


def test_gdrcopy_is_asked_only_where_both_are(judged: Judged) -> None:
    assert "gdrcopy" not in {one.check for one in judged(gdrdrv="")}
    assert "gdrcopy" not in {one.check for one in judged(SINGLE_NODE)}


# --- limits ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("check", "changed", "level"),
    [
        ("memlock", {"memlock": 8 << 20}, REFUSED),
        ("memlock", {"memlock": 16 * GIB}, WARNING),
        ("memlock", {"memlock": 8 << 20, "pins_anything": True}, OK),
        ("memlock", {"memlock": 8 << 20, "hosts": ("algo-1",)}, OK),
        ("memlock", {"memlock": 8 << 20, "efa_said": False}, OK),
        ("memlock", {"memlock": 8 << 20, "allow_tcp": True}, OK),
        ("memlock", {"memlock": None}, UNKNOWN),
        ("nofile", {"nofile": 256}, REFUSED),
        ("nofile", {"nofile": 1024}, WARNING),
        ("nofile", {"nofile": 65536}, OK),
        ("nofile", {"nofile": None}, UNKNOWN),
        ("nproc", {"tasks_left": 100}, REFUSED),
        ("nproc", {"tasks_left": 1024}, WARNING),
        ("nproc", {"tasks_left": 96365}, OK),
        ("nproc", {"tasks_left": None}, UNKNOWN),
        ("shm", {"shm": 64 << 20}, REFUSED),
        ("shm", {"shm": 0}, REFUSED),
        ("shm", {"shm": GIB}, WARNING),
        ("shm", {"shm": 64 << 20, "processes": 1}, WARNING),
        ("shm", {"shm": 2 * GIB}, OK),
        ("shm", {"shm": None}, UNKNOWN),
    ],
)
def test_limits(judged: Judged, check: str, changed: dict[str, Any], level: str) -> None:
    assert of(judged(**changed), check).level == level


def test_ranks_without_gpus_need_little_shared_memory_but_for_mpi(judged: Judged) -> None:
    host: dict[str, Any] = {"instance": "c5n.18xlarge", "gpus": 0, "shm": 64 << 20}
    assert of(judged(CPU, **host), "shm").level == WARNING
    assert of(judged(CPU, **host, distribution="mpi"), "shm").level == REFUSED


def test_sizes_are_for_people() -> None:
    assert [size(64 << 20), size(3 * GIB // 2), size(9), size(65536)] == ["64 MiB", "1.5 GiB", "9 bytes", "64 KiB"]


# --- the data --------------------------------------------------------------------------------------------------------


def test_the_driver_floor_is_that_of_the_rules(intent: Intent) -> None:
    assert preflight_settings.settings(intent, {"cuda": "12.8.90"})["driver"] == "525"
    assert preflight_settings.settings(intent, {"cuda": "13.2.2"})["driver"] == "580"
    assert preflight_settings.settings(intent, {})["driver"] == ""


def test_the_instance_types_are_all_that_are_known(intent: Intent) -> None:
    data = preflight_settings.settings(intent, {})["instances"]
    assert data["p5en.48xlarge"] == [16, 8]
    assert data["c5n.18xlarge"] == [1, 0]
    assert data.keys() == intent.instances.keys()
