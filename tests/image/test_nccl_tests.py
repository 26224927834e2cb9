"""nccl-tests without a GPU: every collective is there, for this NCCL and these GPUs, and says so when it cannot run."""

import json
import re
from typing import Any

import pytest

from trainwright.image.inputs import Inputs

pytestmark = pytest.mark.component("nccl-tests")
COLLECTIVES = [
    "all_gather",
    "all_reduce",
    "alltoall",
    "broadcast",
    "gather",
    "reduce",
    "reduce_scatter",
    "scatter",
    "sendrecv",
]
HEADER = re.compile(r"nccl-tests version (\S+) nccl-headers=(\d+) nccl-library=(\d+)")
NO_DRIVER = 2  # exit status where there is no GPU; -h would end with 0 and prove nothing


@pytest.fixture(scope="module")
def programs_of_tests(host: Any) -> dict[str, str]:
    """Collective to its program, from the list of what was compiled."""
    lines = host.check_output("cat /opt/trainwright/files/nccl-tests").splitlines()
    paths = [line.split(None, 1)[1] for line in lines]
    return {path.rpartition("/")[2].removesuffix("_perf"): path for path in paths if path.endswith("_perf")}


@pytest.mark.parametrize("collective", COLLECTIVES)
def test_collective(
    host: Any, programs_of_tests: dict[str, str], declared: Inputs, nccl_number: int, collective: str
) -> None:
    """Without our environment: it finds its libraries by itself. Open MPI asks for a home."""
    result = host.run(f"env -i HOME=/root {programs_of_tests[collective]}")
    assert result.rc == NO_DRIVER, result.stdout + result.stderr
    assert "CUDA failure" in result.stdout + result.stderr
    header = HEADER.search(result.stdout)
    assert header, result.stdout
    assert header.groups() == (declared.pins["nccl-tests"], str(nccl_number), str(nccl_number))


@pytest.mark.component("openmpi")
def test_two_ranks(host: Any, programs_of_tests: dict[str, str]) -> None:
    """One header for both: they are one job, and not two jobs of one rank."""
    result = host.run(f"mpirun --allow-run-as-root -np 2 --oversubscribe {programs_of_tests['all_reduce']}")
    assert result.rc == NO_DRIVER, result.stdout + result.stderr
    assert len(HEADER.findall(result.stdout)) == 1, result.stdout


def test_compiled_for_the_fleet_alone(
    host: Any, programs: str, programs_of_tests: dict[str, str], fleet: list[str]
) -> None:
    found = json.loads(host.check_output(f"python {programs}/architectures.py {' '.join(programs_of_tests.values())}"))
    assert {path: built["sass"] for path, built in found.items()} == dict.fromkeys(found, fleet)


@pytest.mark.component("compiler")
def test_libraries_are_found_by_the_programs_themselves(host: Any, programs_of_tests: dict[str, str]) -> None:
    for path in programs_of_tests.values():
        dynamic = host.check_output(f"readelf -d {path}")
        assert re.search(r"\((RUNPATH|RPATH)\)", dynamic), path
        assert not re.search(r"\((RUNPATH|RPATH)\).*\[(.*:)?(/(out|src|tmp)\b|:|\])", dynamic), "a path of the build"
