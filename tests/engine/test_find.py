"""Search the guilty one of six containers over a real ssh: five of 20 searches at each commit, and an interrupt.

The programs that are measured print a recorded table, which is slowed for one host, or they hang or die there. The
hosts have network cards, as files, and a DCGM that passes.
"""

import json
import os
import re
import signal
import subprocess
import sys
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import finding
import pytest
from turns import taken

from trainwright.core.errors import EnvironmentProblem
from trainwright.docker import engine
from trainwright.gate import floors, spec
from trainwright.gate import run as gate_run
from trainwright.gate.find import model, prepare, report, search
from trainwright.image import inputs
from trainwright.matrix import instances
from trainwright.matrix.matrix import Recipe, load_intent

pytestmark = [pytest.mark.engine, pytest.mark.slow]
ROOT = Path(__file__).parents[2]
COUNT, INSIDE = 6, "/opt/find"
SERVES = f"""\
mkdir -p /root/.ssh /run/sshd && chmod 0700 /root/.ssh
cp {INSIDE}/key /root/.ssh/id_ed25519 && cp {INSIDE}/key.pub /root/.ssh/authorized_keys && chmod 0600 /root/.ssh/*
printf 'StrictHostKeyChecking no\\nUserKnownHostsFile /dev/null\\nLogLevel ERROR\\n' >/root/.ssh/config
cp {INSIDE}/key /root/host_key && chmod 0600 /root/host_key
printf '%s\\n' 'HostKey /root/host_key' 'UsePAM no' 'StrictModes no' 'MaxStartups 100' \
  "SetEnv PATH={INSIDE}/bin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin GATE_SYS={INSIDE}/sys/$(hostname)" \
  >/root/sshd_config
exec /usr/sbin/sshd -D -e -f /root/sshd_config
"""
# Which host of six does what, in 20 searches.
FAULTS = [
    *[(host, "slow 0.5") for host in range(6)],
    *[(host, "slow 0.8 errors") for host in (1, 4)],
    *[(host, "rail 1 0.5") for host in (0, 3, 5)],
    *[(host, "hang") for host in (0, 2, 5)],
    *[(host, "dies") for host in range(6)],
]
TURNS = [FAULTS[first::4] for first in range(4)]  # five kinds at each commit: all 20 take ten minutes


@dataclass
class Hosts:
    """Six containers that answer ssh."""

    folder: Path  # they see it as /opt/find
    names: list[str]  # of the containers
    addresses: list[str]

    def fault(self, place: int = -1, text: str = "ok") -> None:
        for number in range(COUNT):
            (self.folder / f"fault.h{number}").write_text(f"{text if number == place else 'ok'}\n")

    def left(self) -> list[str]:
        """List what still runs in the containers besides their sshd."""
        found = []
        for name in self.names:
            words = ["docker", "top", name, "-eo", "pid,args"]
            listed = subprocess.run(words, capture_output=True, text=True, check=True)
            found += [line for line in listed.stdout.splitlines() if re.search(r"sleep|gate|rank|mpirun", line)]
        return found


@pytest.fixture(scope="module")
def image(request: pytest.FixtureRequest) -> str:
    """Return the default image, which has OpenSSH, or that of --image."""
    if asked := request.config.getoption("--image"):
        return str(asked)
    intent = load_intent(ROOT)
    variant = next(one for one in intent.variants if one.default and "openssh" in one.pins)
    name = inputs.load(Recipe(intent, variant)).name
    try:
        held = engine.image_id(name)
    except EnvironmentProblem as error:
        pytest.skip(f"not run: {error}")
    if held is None:
        pytest.skip(f"not run: {variant.id} is not in the engine; make build FRAMEWORK={variant.framework}")
    return name


@pytest.fixture(scope="module")
def hosts(image: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hosts]:
    folder = tmp_path_factory.mktemp("find") / "hosts"
    finding.write(folder, INSIDE)
    finding.write_witnesses(folder, [f"h{number}" for number in range(COUNT)], INSIDE)
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", folder / "key"], check=True)
    network = f"trainwright-find-{uuid.uuid4().hex[:8]}"
    names = [f"{network}-{number}" for number in range(COUNT)]
    subprocess.run(["docker", "network", "create", network], check=True, capture_output=True)
    try:
        addresses = []
        for number, name in enumerate(names):
            words = ["docker", "run", "--detach", "--init", "--name", name, "--network", network]
            words += [
                "--hostname",
                f"h{number}",
                "--volume",
                f"{folder}:{INSIDE}:ro",
                "--volume",
                f"{folder}/sys:{INSIDE}/sys",
            ]
            words += ["--entrypoint", "bash", image, "-c", SERVES]
            subprocess.run(words, check=True, capture_output=True)
            form = "{{range .NetworkSettings.Networks}}{{.IPAddress}}{{end}}"
            asked = ["docker", "inspect", "--format", form, name]
            addresses.append(subprocess.run(asked, check=True, capture_output=True, text=True).stdout.strip())
        ours = folder.parent / "ours"  # an ssh that knows the key
        ours.mkdir()
        (folder.parent / "config").write_text(
            f"User root\nIdentityFile {folder / 'key'}\nStrictHostKeyChecking no\n"
            "UserKnownHostsFile /dev/null\nLogLevel ERROR\n"
        )
        program = subprocess.run(["which", "ssh"], check=True, capture_output=True, text=True).stdout.strip()
        (ours / "ssh").write_text(f'#!/bin/sh\nexec {program} -F {folder.parent / "config"} "$@"\n')
        (ours / "ssh").chmod(0o755)
        before = os.environ["PATH"]
        os.environ["PATH"] = f"{ours}:{before}"
        yield Hosts(folder, names, addresses)
        os.environ["PATH"] = before
    finally:
        for name in names:
            subprocess.run(["docker", "rm", "--force", "--volumes", name], capture_output=True)
        subprocess.run(["docker", "network", "rm", network], capture_output=True)


def searched(hosts: Hosts, folder: Path, gpus: int) -> search.Search:
    known = model.load_settings(ROOT)
    quick = known.run.model_copy(update={"limit": 40, "rail_limit": 40, "grace": 1, "wait": 60})
    whole = spec.make(
        spec.load_settings(ROOT),
        instances.load_instances(ROOT),
        floors.load_floors(ROOT),
        name=f"gate-{folder.name}",
        nodes=COUNT,
        gpus=gpus,
        hosts=hosts.addresses,
    )
    cluster, _ = prepare.cluster(whole, "ssh", None)
    settings = known.model_copy(update={"run": quick})
    return search.Search(ROOT, whole, "ssh", cluster, settings, folder, gate_run.script(ROOT))


def test_the_guilty_one_of_six_hosts(hosts: Hosts, tmp_path: Path) -> None:
    assert {fault for turn in TURNS for fault in turn} == set(FAULTS)
    [faults] = taken(TURNS, 1)
    lines, right = [], 0
    for number, (place, fault) in enumerate(faults, 1):
        hosts.fault(place, fault)
        asked = searched(hosts, tmp_path / str(number), 2 if fault.startswith("rail") else 1)
        found = search.find(asked, lambda line: print(line, file=sys.stderr))
        who = report.named(found.answer.culprit, found.cluster)
        wanted = ("rail", place, 1) if fault.startswith("rail") else ("hosts", place)
        right += found.answer.state == "found" and found.answer.culprit == wanted
        bad = {(sign.source, sign.host) for sign in found.belief.signs if sign.state == "bad"}
        assert bad == ({("nics", hosts.addresses[place])} if fault.endswith("errors") else set())
        who = who.replace(hosts.addresses[place], f"h{place}")
        lines.append(f"h{place}: {fault:10} | {found.answer.state}: {who} | {found.answer.rounds} rounds")
    print("\n".join(lines))
    assert right == len(faults), "\n".join(lines)


def test_an_interrupt_during_a_hang_leaves_nothing_on_any_host(hosts: Hosts, tmp_path: Path) -> None:
    hosts.fault()
    for file in hosts.folder.glob("fault.*"):
        file.write_text("hang\n")
    (tmp_path / "hosts").write_text("\n".join(hosts.addresses) + "\n")
    command = [str(Path(sys.executable).parent / "trainwright"), "gate", "--find", "--on", "ssh", "--gpus", "1"]
    command += ["--hosts", str(tmp_path / "hosts"), "--folder", str(tmp_path / "runs")]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, cwd=ROOT) as child:
        assert child.stderr
        while not child.stderr.readline().startswith("round 1"):
            assert child.poll() is None
        while not any("sleep" in line for line in hosts.left()):
            assert child.poll() is None
        child.send_signal(signal.SIGINT)
        said = child.stderr.read()
    assert child.returncode == 130, said
    assert f"--folder {tmp_path / 'runs'} goes on from its runs" in said
    assert hosts.left() == []
    hosts.fault(3, "slow 0.5")
    done = subprocess.run([*command, "--json"], capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 6, done.stderr
    assert json.loads(done.stdout)["hosts"] == [hosts.addresses[3]]
    assert (tmp_path / "runs/find.html").exists()


def test_a_host_that_is_killed_in_the_middle_is_left_out(hosts: Hosts, tmp_path: Path) -> None:
    """The last test: its container does not come back."""
    hosts.fault(2, "slow 0.8")

    def say(line: str) -> None:
        print(line, file=sys.stderr)
        if line.startswith("round 2:"):
            subprocess.run(["docker", "kill", hosts.names[5]], check=True, capture_output=True)

    found = search.find(searched(hosts, tmp_path / "killed", 1), say)
    assert list(found.gone) == [hosts.addresses[5]]
    assert found.gone[hosts.addresses[5]].startswith("it left in round 2: ssh does not reach it")
    assert report.hosts_of(found.answer.culprit, found.cluster) == [hosts.addresses[2]]
