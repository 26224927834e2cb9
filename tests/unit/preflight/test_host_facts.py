"""Test the facts read from a host, with real texts of /proc, /sys and programs; every wait has a limit."""

import json
import socket
import sys
from pathlib import Path
from threading import Event, Thread
from typing import Any

import host_facts
import pytest
from job_settings import SettingError, settings

DRIVERS = [
    (
        "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.183.01  Sun May 12 19:39:15 UTC 2024\n"
        "GCC version:  gcc version 12.3.0 (Ubuntu 12.3.0-1ubuntu1~22.04)\n",
        "535.183.01",
    ),
    (
        "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.105.08  Release Build  (root@ip-10-0-0-1)\n"
        "GCC version:  gcc version 11.5.0 20240719 (Red Hat 11.5.0-5) (GCC)\n",
        "580.105.08",
    ),
    ("", ""),
]
# Of a process in a container of Docker, and with --cap-add IPC_LOCK.
STATUS = "Name:\tpython\nCapInh:\t0000000000000000\nCapPrm:\t00000000a80425fb\nCapEff:\t{}\nCapBnd:\t00000000a80425fb\n"
FI_INFO = "efa:\n    version: 206.0\nefa-direct:\n    version: 206.0\ntcp;ofi_rxm:\n    version: 206.0\n"
SECONDS = {"retry": 0.05, "say": 60.0}


def put(root: Path, name: str, content: str) -> None:
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content)


@pytest.mark.parametrize(("said", "version"), DRIVERS)
def test_driver(said: str, version: str) -> None:
    assert host_facts.driver_version(said) == version


def test_a_capability() -> None:
    assert host_facts.may(14, STATUS.format("00000000a80465fb")) is True
    assert host_facts.may(14, STATUS.format("00000000a80425fb")) is False
    assert host_facts.may(14, "") is None


@pytest.mark.parametrize(
    ("vendor", "product", "told"),
    [
        ("Amazon EC2\n", "p5.48xlarge\n", "p5.48xlarge"),
        ("Amazon EC2\n", "c8a.metal-48xl\n", "c8a.metal-48xl"),
        ("Amazon EC2\n", "Not Specified\n", None),
        ("Xen\n", "HVM domU\n", None),
        ("QEMU\n", "Standard PC (Q35 + ICH9, 2009)\n", ""),
        (None, None, None),
    ],
)
def test_the_hardware_says_its_type(tmp_path: Path, vendor: str | None, product: str, told: str | None) -> None:
    if vendor is not None:
        put(tmp_path, "sys/devices/virtual/dmi/id/sys_vendor", vendor)
        put(tmp_path, "sys/devices/virtual/dmi/id/product_name", product)
    assert host_facts.dmi(tmp_path)[0] == told


def test_cards_of_efa_are_told_from_infiniband(tmp_path: Path) -> None:
    put(tmp_path, "rdmap16s27/device/vendor", "0x1d0f\n")
    put(tmp_path, "mlx5_0/device/vendor", "0x15b3\n")
    (tmp_path / "drivers/efa").mkdir(parents=True)
    (tmp_path / "class/efa_0/device").mkdir(parents=True)
    (tmp_path / "class/efa_0/device/driver").symlink_to(tmp_path / "drivers/efa")
    assert host_facts.efa_devices(tmp_path) == ("rdmap16s27",)
    assert host_facts.efa_devices(tmp_path / "class") == ("efa_0",)
    assert host_facts.efa_devices(tmp_path / "none") == ()


def test_names(tmp_path: Path) -> None:
    for name in ("nvidia0", "nvidia7", "nvidiactl", "nvidia-uvm", "null"):
        (tmp_path / name).touch()
    assert host_facts.names(tmp_path, r"nvidia\d+") == ("nvidia0", "nvidia7")


@pytest.mark.parametrize(
    ("folder", "most", "left"), [("", "100", 93), ("pids/", "100", 93), ("", "max", -1), ("", "5", 0)]
)
def test_tasks_of_the_control_group(tmp_path: Path, folder: str, most: str, left: int) -> None:
    put(tmp_path, f"{folder}pids.max", f"{most}\n")
    put(tmp_path, f"{folder}pids.current", "7\n")
    assert host_facts.tasks_left(tmp_path, user=0) == left


def test_what_fi_info_lists() -> None:
    assert host_facts.providers((0, FI_INFO)) == ("efa", "efa-direct", "tcp;ofi_rxm")
    assert host_facts.providers((1, FI_INFO)) is None
    assert host_facts.providers(None) is None


def test_programs_run_side_by_side_and_none_without_an_end(tmp_path: Path) -> None:
    meet = "import pathlib, sys, time\nmine, other = map(pathlib.Path, sys.argv[1:])\nmine.touch()\n"
    meet += "while not other.exists(): time.sleep(0.01)"
    pair = [str(tmp_path / "one"), str(tmp_path / "two")]
    both = {"one": host_facts.python(meet, *pair), "two": host_facts.python(meet, *reversed(pair))}
    assert host_facts.answers(both, 60) == {"one": (0, ""), "two": (0, "")}
    sleep = [sys.executable, "-c", "import time; time.sleep(60)"]
    missing = host_facts.python(host_facts.OPEN, "libnobody.so.1")
    said = host_facts.answers({"a": sleep, "b": sleep, "c": ["/no/such/program"]}, 0.2)
    assert said["a"] is said["b"] is None
    assert host_facts.trouble(said["c"])
    said = host_facts.answers({"d": ["echo", "13020"], "e": missing}, 60)
    assert (host_facts.trouble(said["d"]), host_facts.number(said["d"])) == ("", 13020)
    assert host_facts.trouble(said["e"]) == "libnobody.so.1: cannot open shared object file: No such file or directory"
    assert host_facts.trouble(None) is None


def test_names_that_come_late(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def late(host: str, _: Any) -> Any:
        asked.append(host)
        if asked.count(host) < 3:
            raise socket.gaierror(-2, "Name or service not known")
        return [(0, 0, 0, "", ("10.0.0.1", 0))]

    monkeypatch.setattr(socket, "getaddrinfo", late)
    assert host_facts.look_up(("algo-1",), 30, SECONDS, Event()) == {"algo-1": ("10.0.0.1",)}
    assert len(asked) == 3


def test_a_resolver_that_never_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    never = Event()

    def silent(*_: object) -> list[Any]:
        never.wait(30)
        return [(0, 0, 0, "", ("10.0.0.1", 0))]

    monkeypatch.setattr(socket, "getaddrinfo", silent)
    assert host_facts.look_up(("algo-1",), 0.3, SECONDS, Event()) == {"algo-1": ()}
    never.set()


def test_nobody_waits_who_will_not_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host_facts, "addresses_of", lambda _: ())
    stop = Event()
    stop.set()
    assert host_facts.look_up(("algo-1",), 60, SECONDS, stop) is None


def test_it_says_whom_it_waits_for(monkeypatch: pytest.MonkeyPatch) -> None:
    stop, told = Event(), list[str]()

    def say(text: str) -> None:
        told.append(text)
        stop.set()

    monkeypatch.setattr(host_facts, "addresses_of", lambda _: ())
    monkeypatch.setattr(host_facts, "say", say)
    assert host_facts.look_up(("algo-1", "algo-2"), 600, {"retry": 0.05, "say": 0.0}, stop) is None
    assert "waiting for the names to resolve: algo-1, algo-2 (" in told[0]


# --- what the job is -------------------------------------------------------------------------------------------------

SAGEMAKER = {
    "current_host": "algo-1",
    "current_instance_type": "ml.p4d.24xlarge",
    "current_group_name": "gpu",
    "hosts": ["algo-1", "algo-2", "algo-3"],
    "instance_groups": [
        {"instance_group_name": "cpu", "instance_type": "ml.c5.xlarge", "hosts": ["algo-3"]},
        {"instance_group_name": "gpu", "instance_type": "ml.p4d.24xlarge", "hosts": ["algo-1", "algo-2"]},
    ],
    "network_interface_name": "eth0",
}


def told(environ: dict[str, str], resources: dict[str, Any] | None = None) -> Any:
    return settings(environ, resources or {}, ["local", "local_gpu"], 900)


def test_a_job_of_sagemaker() -> None:
    found = told({}, json.loads(json.dumps(SAGEMAKER)))
    assert (found.hosts, found.host) == (("algo-1", "algo-2"), "algo-1")
    assert (found.instance, found.told_by) == ("p4d.24xlarge", "resourceconfig.json")
    assert (found.mode, found.wait, found.efa, found.allow_tcp) == ("refuse", 900, None, False)


def test_what_somebody_says_counts_more() -> None:
    words = {"TRAINWRIGHT_HOSTS": "a, b", "TRAINWRIGHT_HOST": "b", "TRAINWRIGHT_INSTANCE": "p5.48xlarge"}
    found = told({**words, "TRAINWRIGHT_PROCESSES": "8", "TRAINWRIGHT_EFA": "0"}, SAGEMAKER)
    assert (found.hosts, found.host, found.processes, found.efa) == (("a", "b"), "b", 8, False)
    assert (found.instance, found.told_by) == ("p5.48xlarge", "TRAINWRIGHT_INSTANCE")


def test_local_mode_is_no_instance() -> None:
    found = told({}, {**SAGEMAKER, "current_instance_type": "local"})
    assert (found.instance, found.told_by) == ("", "resourceconfig.json says local")


def test_a_container_that_nobody_told_anything() -> None:
    found = told({})
    assert (found.hosts, found.instance, found.told_by, found.processes) == ((), "", "", 1)


@pytest.mark.parametrize(
    ("environ", "words"),
    [
        ({"TRAINWRIGHT_HOSTS": "a,b", "TRAINWRIGHT_HOST": "c"}, "which TRAINWRIGHT_HOSTS does not name: a, b"),
        ({"TRAINWRIGHT_HOSTS": "a,a"}, "twice"),
        ({"TRAINWRIGHT_PROCESSES": "-1"}, "TRAINWRIGHT_PROCESSES is '-1': expected a number of 0 or more"),
        ({"TRAINWRIGHT_PROCESSES": "auto"}, "TRAINWRIGHT_PROCESSES is 'auto'"),
        ({"TRAINWRIGHT_PEER_WAIT": "-1"}, "TRAINWRIGHT_PEER_WAIT is '-1'"),
        ({"TRAINWRIGHT_EFA": "yes"}, "TRAINWRIGHT_EFA is 'yes'"),
    ],
)
def test_settings_that_say_nothing_sensible(environ: dict[str, str], words: str) -> None:
    with pytest.raises(SettingError, match=words):
        told(environ)


def test_an_answer_between_two_looks_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """A thread may end after it was counted and before it is waited for."""

    class Ends(Thread):
        looks = 0

        def is_alive(self) -> bool:
            self.looks += 1
            return self.looks == 1

    monkeypatch.setattr(host_facts, "Thread", Ends)
    monkeypatch.setattr(host_facts, "addresses_of", lambda _: ("10.0.0.1",))
    assert host_facts.look_up(("algo-1",), 30, SECONDS, Event()) == {"algo-1": ("10.0.0.1",)}
