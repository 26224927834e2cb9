"""The fabric plugin without a fabric: NCCL would find it, load it, understand it, and it was built for EC2."""

import json
import re
from typing import Any

import pytest

from trainwright.core import versions
from trainwright.image.inputs import Inputs
from trainwright.matrix.matrix import Intent

pytestmark = pytest.mark.component("aws-ofi-nccl")
ALONE = "env -i /opt/venv/bin/python"
# Where each provider of libfabric puts it: a plugin that finds another one was not built against it.
LIBFABRIC = {"distro": "/usr/lib/", "efa-installer": "/opt/amazon/efa/"}


def net_apis(intent: Intent, component: str, version: str) -> set[int]:
    """Versions of the net API that it speaks, as the rules of the matrix have it."""
    rows = (row for row in intent.compat.interfaces if row.component == component)
    row = next(row for row in rows if versions.within(version, row.range))
    return set(range(row.first, row.last + 1))


@pytest.fixture(scope="module")
def plugin(host: Any, programs: str) -> str:
    """The file that NCCL loads by its default name, without anything in the environment. RTLD_NOW: every symbol."""
    result = host.run(f"{ALONE} {programs}/loaded.py libnccl-net.so")
    assert result.rc == 0, result.stderr
    return str(json.loads(result.stdout)["path"])


@pytest.fixture(scope="module")
def exported(host: Any, plugin: str) -> set[str]:
    return {line.split()[-1] for line in host.check_output(f"nm -D --defined-only {plugin}").splitlines()}


@pytest.fixture(scope="module")
def needed(host: Any, plugin: str) -> dict[str, str]:
    """Library to the file that it really is."""
    lines = [line.split() for line in host.check_output(f"ldd {plugin}").splitlines() if "=>" in line]
    paths = host.check_output("realpath " + " ".join(words[2] for words in lines)).splitlines()
    return dict(zip((words[0] for words in lines), paths, strict=True))


def test_also_by_its_own_name(host: Any, programs: str, plugin: str) -> None:
    """NCCL_NET_PLUGIN=ofi, as the EFA installer's own settings say."""
    loaded = json.loads(host.check_output(f"{ALONE} {programs}/loaded.py libnccl-net-ofi.so"))
    assert loaded["path"].rpartition("/")[0] == plugin.rpartition("/")[0]


def test_complete(host: Any, plugin: str) -> None:
    printed = host.run(f"env -i ldd -r {plugin}")
    assert re.findall(r".*(?:undefined symbol|not found).*", printed.stdout + printed.stderr) == []


@pytest.mark.component("nccl")
def test_nccl_understands_it(exported: set[str], declared: Inputs, intent: Intent) -> None:
    spoken = net_apis(intent, "aws-ofi-nccl", declared.pins["aws-ofi-nccl"])
    found = {int(name.rpartition("_v")[2]) for name in exported if name.startswith("ncclNetPlugin_v")}
    assert found == spoken
    assert max(found & net_apis(intent, "nccl", declared.pins["nccl"])) >= max(found) - 1, (
        "NCCL would use an old interface"
    )


def test_built_for_ec2(exported: set[str]) -> None:
    """By default configure asks whether the machine of the build is an EC2 instance; the tuner is only there then."""
    assert [name for name in exported if name.startswith("ncclTunerPlugin_v")]


def test_libfabric_is_the_declared_one(host: Any, needed: dict[str, str], declared: Inputs) -> None:
    place = LIBFABRIC[declared.variant.pins["libfabric"].provider]
    found = [path for name, path in needed.items() if name.startswith("libfabric.so")]
    assert len(found) == 1
    assert found[0].startswith(place)
    program = host.check_output("ldd $(command -v fi_info)")
    assert re.search(r"libfabric\.so\.\d+ => (\S+)", program), "fi_info has libfabric inside"
    assert host.check_output("realpath %s", re.findall(r"libfabric\.so\.\d+ => (\S+)", program)[0]) == found[0]


def test_topology_of_the_host_can_be_read(needed: dict[str, str]) -> None:
    assert [name for name in needed if name.startswith("libhwloc.so")], "built without hwloc"


def test_cuda_is_not_a_second_one(needed: dict[str, str], host: Any, plugin: str) -> None:
    """Linked statically, or opened as libcudart.so; a NEEDED of another CUDA would load a second runtime."""
    assert [name for name in needed if name.startswith(("libcuda", "libnccl"))] == []
    assert not [name for name in host.check_output(f"readelf -d {plugin}").split() if name.startswith("[libcudart")]


def test_topologies_of_instances_are_there(host: Any, plugin: str) -> None:
    """p4d's is read from the disk at run time: copying lib/ alone loses it."""
    share = plugin.split("/lib")[0] + "/share/aws-ofi-nccl/xml"
    assert host.check_output(f"ls {share}/*p4d*.xml")
