"""Before a job's first step, in the real image: what its host lacks is named, and where it matters nothing starts."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from docker.types import Ulimit

from trainwright.docker import engine

TWO = {"TRAINWRIGHT_HOSTS": "algo-1,algo-2", "TRAINWRIGHT_HOST": "algo-1"}
EFA_AND_GPUS = {"TRAINWRIGHT_INSTANCE": "p5.48xlarge"}
EFA_ALONE = {"TRAINWRIGHT_INSTANCE": "c5n.18xlarge"}
NO_EFA = {"TRAINWRIGHT_EFA": "0"}
KNOWN = {"hostname": "algo-1", "extra_hosts": {"algo-2": "10.0.0.2"}}  # both have addresses
LIMIT_SECONDS = 180
Ended = tuple[int, str]


@pytest.fixture
def check(image: str) -> Callable[..., Ended]:
    """Exit code and report of trainwright-check in a container of its own, whose options `options` are."""

    def check(environment: dict[str, str], *words: str, **options: Any) -> Ended:
        labels, command = {"io.trainwright.test": "preflight"}, ["trainwright-check", *words]
        with engine.container(image, command=command, environment=environment, labels=labels, **options) as running:
            code = running.wait(timeout=LIMIT_SECONDS)["StatusCode"]
            return code, running.logs().decode(errors="replace")

    return check


def test_a_single_host_starts(check: Callable[..., Ended]) -> None:
    code, said = check(EFA_ALONE)
    assert code == 0, said
    assert "one host: nothing goes over the network" in said
    assert "matches its declaration" in said


def test_several_hosts_without_efa_start(check: Callable[..., Ended]) -> None:
    code, said = check({**TWO, **NO_EFA}, **KNOWN)
    assert code == 0, said
    assert "2 hosts over TCP: TRAINWRIGHT_EFA=0" in said
    assert "addresses for 2 of 2" in said


def test_several_hosts_that_should_have_efa_are_refused(check: Callable[..., Ended]) -> None:
    code, said = check({**TWO, **EFA_AND_GPUS}, **KNOWN)
    assert code == 10, said
    assert said.startswith("preflight: refused  efa")
    assert "on p5.48xlarge" in said
    assert "TRAINWRIGHT_ALLOW_TCP=1" in said.splitlines()[0]


@pytest.mark.parametrize("word", ["TRAINWRIGHT_ALLOW_TCP=1", "TRAINWRIGHT_PREFLIGHT=warn"])
def test_who_allows_tcp_gets_it(check: Callable[..., Ended], word: str) -> None:
    name, _, value = word.partition("=")
    code, said = check({**TWO, **EFA_ALONE, name: value}, **KNOWN)
    assert code == 0, said
    assert "preflight: warning  efa" in said


def test_a_peer_without_a_name_is_waited_for_and_named(check: Callable[..., Ended]) -> None:
    code, said = check({**TWO, **NO_EFA, "TRAINWRIGHT_PEER_WAIT": "5"}, hostname="algo-1")
    assert code == 10, said
    assert "expected addresses of 2 host names after 5 s, found none for algo-2" in said


def test_few_open_files(check: Callable[..., Ended]) -> None:
    code, said = check({}, ulimits=[Ulimit(name="nofile", soft=100, hard=100)])
    assert code == 10, said
    assert "found 100 (ulimit -n)" in said


def test_few_processes(check: Callable[..., Ended]) -> None:
    code, said = check({"TRAINWRIGHT_PROCESSES": "16"}, pids_limit=300)
    assert code == 10, said
    assert "preflight: refused  nproc" in said


def test_a_tiny_shared_memory(check: Callable[..., Ended]) -> None:
    code, said = check({}, shm_size="1m")
    assert code == 0, said
    assert "found 1 MiB for 1 process (/dev/shm)" in said
    code, said = check({"TRAINWRIGHT_PROCESSES": "2", "TRAINWRIGHT_DISTRIBUTION": "mpi"}, shm_size="1m")
    assert code == 10, said
    assert "preflight: refused  shm" in said


def test_without_the_framework_it_takes_less_than_two_seconds(
    check: Callable[..., Ended], record_property: Callable[[str, Any], None]
) -> None:
    environment = {**TWO, **NO_EFA, "TRAINWRIGHT_STARTUP_CHECK": "off"}
    code, said = check(environment, "--json", **KNOWN)
    assert code == 0, said
    seconds = json.loads(said)["seconds"]
    record_property("preflight_seconds", seconds)
    assert seconds < 2


@pytest.mark.component("sagemaker-training")
def test_a_job_that_is_refused_does_not_start(job: Callable[..., Any]) -> None:
    outcome = job("train.py", {"train.py": "print('trained')"}, environment={"TRAINWRIGHT_PREFLIGHT": "of"})
    assert outcome.code != 0, outcome.logs
    assert "\ntrained" not in outcome.logs
    assert "TRAINWRIGHT_PREFLIGHT is 'of': expected refuse, warn or off" in outcome.failure[:1024]
