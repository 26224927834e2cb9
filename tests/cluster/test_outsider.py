"""A container of the same image on the same network, whose owner has read everything there is to read but the secret.

He cannot log in, join, give orders, or pass for the main host. What he can do: keep hosts from finding each other.
"""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from cluster import harness, names

from trainwright.jobs import contract
from trainwright.jobs.containers import Host

pytestmark = [
    pytest.mark.component("sagemaker-training"),
    pytest.mark.component("mpi4py"),
    pytest.mark.xdist_group("outsider"),
]
PROGRAM = Path(__file__).parent / "programs/outsider.py"
START, SOON = 150, 60  # seconds
JOB = "job"
# Otherwise each host first waits for the others' names, and no watch is there to be attacked.
QUICK = {"TRAINWRIGHT_STARTUP_CHECK": "off", "TRAINWRIGHT_PREFLIGHT": "off"}
CONNECTIONS = 200
WAITS = """
import os, time
from mpi4py import MPI
print("environment", sorted(os.environ.items()), flush=True)
print("trains", flush=True)
while not os.path.exists("/opt/ml/checkpoints/enough"):
    time.sleep(0.1)
MPI.COMM_WORLD.Barrier()
"""
HOLDS = "import time\nprint('trains', flush=True)\ntime.sleep(600)"


def outsider(names: list[str], *aliases: str) -> Host:
    files = contract.config(names, "algo-1", {}, [], "ml.c5.xlarge")
    files["/outsider.py"] = PROGRAM.read_bytes()
    return Host(name="outsider", command=["sleep", "infinity"], aliases=list(aliases), files=files)


def does(job: harness.Cluster, *words: str) -> tuple[int, str]:
    return job.run("outsider", "/opt/venv/bin/python", "-B", "/outsider.py", *words)


def begins(job: harness.Cluster, *words: str) -> None:
    """Goes on beside the test, until the container is gone; returns when it is at it."""
    script = (
        f"/opt/venv/bin/python -B /outsider.py {' '.join(words)} >/said 2>&1 & until [ -s /said ]; do sleep 0.1; done"
    )
    code, said = job.run("outsider", "timeout", "30", "bash", "-c", script)
    assert code == 0, said


@pytest.fixture(scope="module")
def attacked(image: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    """One MPI job, before its second host has come and while it trains; and how it ended all the same."""
    kept, found = tmp_path_factory.mktemp("checkpoints"), dict[str, Any]()
    options: dict[str, Any] = {"distribution": "mpi", "environment": QUICK}
    options["volumes"] = {"/opt/ml/checkpoints": (kept, "rw")}
    with harness.cluster(image, tmp_path_factory.mktemp("job"), 2, WAITS, begin=False, **options) as job:
        job.add(outsider(job.hosts))
        job.start("outsider", "algo-1")
        job.wait_for("algo-1", "waiting for algo-2", START)
        found["guesses"] = [
            json.loads(line) for line in does(job, "guess", JOB, "algo-1", "algo-2", "algo-3")[1].split("\n") if line
        ]
        begins(job, "shout", "algo-1", str(CONNECTIONS))
        job.start("algo-2")
        job.wait_for("algo-1", "trains", START)
        found["ports"] = {host: json.loads(does(job, "scan", host)[1]) for host in job.hosts}
        found["settings"] = json.loads(job.read("algo-1", "/opt/trainwright/launcher/settings.json"))
        ports = (22, found["settings"]["ssh_port"])
        found["ssh"] = {(host, port): logs_in(job, host, port) for host in job.hosts for port in ports}
        found["inspected"] = "".join(job.inspect(host) for host in job.hosts)
        found["processes"] = "".join(job.run(host, "ps", "-eww", "-o", "args")[1] for host in job.hosts)
        found["secret"] = job.read("algo-1", contract.SECRET).decode()
        (kept / "enough").touch()
        found["ended"], found["logs"] = job.ended(SOON), job.said()
        yield found


def logs_in(job: harness.Cluster, host: str, port: int) -> list[tuple[int, str]]:
    """With no key, with a key of his own, and with every private key that the image has."""
    job.run("outsider", "bash", "-c", "[ -f /mine ] || ssh-keygen -q -t ed25519 -N '' -f /mine")
    listed = job.run(
        "outsider",
        "bash",
        "-c",
        "grep -rlIs --include='*' -e '-----BEGIN OPENSSH PRIVATE KEY' /etc /root /home /opt/trainwright",
    )
    keys = ["/dev/null", "/mine", *listed[1].split()]
    words = [
        "-p",
        str(port),
        "-o",
        "StrictHostKeyChecking=no",
        "-o",
        "UserKnownHostsFile=/dev/null",
        "-o",
        "ConnectTimeout=5",
    ]
    words += ["-o", "BatchMode=yes", "-o", "IdentitiesOnly=yes", "-o", "LogLevel=ERROR"]
    return [job.run("outsider", "ssh", *words, "-i", key, f"root@{host}", "id") for key in keys]


def test_the_job_ends_well_all_the_same(attacked: dict[str, Any]) -> None:
    assert [one.code for one in attacked["ended"].values()] == [0, 0], attacked["logs"]
    assert "forged words" not in attacked["logs"]


def test_nothing_that_can_be_derived_lets_him_in(attacked: dict[str, Any]) -> None:
    assert len(attacked["guesses"]) == 2 * 11
    found = {(host, said) for host, _, said in attacked["guesses"]}
    assert found == {
        ("algo-2", "refused: secret"),
        ("algo-2", "refused: wants secret"),
        ("algo-3", "refused: stranger"),
    }


def test_open_ports(attacked: dict[str, Any], record_property: Callable[[str, object], None]) -> None:
    """Those of the launcher, and those that MPI opens for itself; never the usual one of ssh."""
    record_property("open ports", str(attacked["ports"]))
    assert 22 not in {port for ports in attacked["ports"].values() for port in ports}
    watch, ssh = attacked["settings"]["watch_port"], attacked["settings"]["ssh_port"]
    assert watch not in attacked["ports"]["algo-1"], "the watch listens only until all are there"
    assert ssh not in attacked["ports"]["algo-1"], "the main host is logged in to by nobody"
    assert ssh in attacked["ports"]["algo-2"]


def test_he_cannot_log_in(attacked: dict[str, Any]) -> None:
    for (host, port), tries in attacked["ssh"].items():
        for code, said in tries:
            assert code == 255, (host, port, said)
            assert "uid=" not in said
    assert "Permission denied (publickey)" in attacked["ssh"]["algo-2", attacked["settings"]["ssh_port"]][1][1]


def test_the_secret_is_nowhere(attacked: dict[str, Any]) -> None:
    secret = attacked["secret"].strip()
    assert len(secret) >= 32
    for where in ("inspected", "processes", "logs"):
        assert secret not in attacked[where], where
    assert "TRAINWRIGHT_JOB_SECRET" not in attacked["logs"], "the script's environment has it"


@pytest.mark.parametrize("kind", ["guess", "downgrade"])
def test_he_cannot_pass_for_the_main_host(cluster: Callable[..., harness.Cluster], kind: str) -> None:
    job = cluster(2, HOLDS, distribution="plain", environment=QUICK, begin=False)
    job.add(outsider(job.hosts, "algo-1"))
    job.start("outsider")
    begins(job, "impostor", kind, JOB, "algo-1", "algo-1", "algo-2")
    job.start("algo-2")
    ended = job.ended(SOON, ["algo-2"])["algo-2"]
    assert ended.code != 0
    assert "secret" in ended.failure
    assert "trains" not in job.said("algo-2").splitlines()
    assert "they went on" not in job.run("outsider", "cat", "/said")[1]


def test_he_cannot_speak_for_another(cluster: Callable[..., harness.Cluster]) -> None:
    """He sits between two hosts and passes on what they say. A word of his own breaks the connection; nobody obeys."""
    with names.server() as server:
        job = cluster(2, HOLDS, distribution="plain", environment=QUICK, volumes=server.volumes, begin=False)
        job.add(outsider(job.hosts))
        job.start("outsider", "algo-1")
        begins(job, "between", job.address("algo-1"))
        job.start("algo-2")
        server.answer(job, {"algo-1": "outsider"})
        job.wait_for("algo-2", "trains", START)
        job.run("outsider", "touch", "/tmp/now")
        ended = job.ended(SOON)
        assert "said it" in job.run("outsider", "cat", "/said")[1]
        assert "MAC" in ended["algo-2"].failure
        assert all(one.code for one in ended.values())
        assert "forged words" not in job.said() + "".join(one.failure for one in ended.values())
