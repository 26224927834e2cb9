"""OpenSSH: a server that would start, without a key of its own and without passwords."""

import re
from collections.abc import Callable, Mapping
from importlib.metadata import distribution
from pathlib import Path
from typing import Any

import pytest

from trainwright.docker import engine

pytestmark = pytest.mark.component("openssh")
LOGINS = Path(__file__).parent / "programs/logins.py"
PYTEST = ("pytest", "pluggy", "iniconfig", "packaging", "pygments")  # plain Python, as it is installed here
LIMIT_SECONDS = 300  # only ends what hangs


def test_no_key_before_a_job(host: Any) -> None:
    assert host.run("find /etc/ssh -name 'ssh_host_*'; find /root/.ssh -type f").stdout == ""


def test_effective_configuration(host: Any) -> None:
    """As sshd itself reads it, with a host key made just now."""
    key = "/tmp/key-of-test"
    printed = host.check_output(
        f"mkdir -p /run/sshd && rm -f {key}* && ssh-keygen -q -t ed25519 -N '' -f {key} && /usr/sbin/sshd -T -h {key}"
    )
    lines = printed.lower().splitlines()
    assert "passwordauthentication no" in lines
    assert "kbdinteractiveauthentication no" in lines
    assert "permitemptypasswords no" in lines
    assert "pubkeyauthentication yes" in lines


def test_root_has_no_password(host: Any) -> None:
    """A locked or empty field: nobody shares a password through the image."""
    hashes = [line.split(":")[1] for line in host.file("/etc/shadow").content_string.splitlines()]
    assert not [field for field in hashes if field.startswith("$")]


@pytest.mark.long(seconds=7)
def test_who_has_the_key_gets_a_command_and_nobody_else_anything(
    image: str, pack: Callable[[Mapping[str, bytes]], bytes]
) -> None:
    """The launcher's logins, with the sshd and ssh of the image: tests of their own, in a container of their own."""
    packed = (one for name in PYTEST for one in distribution(name).files or [])
    files = {f"tests/{one}": one.read_binary() for one in packed if ".." not in one.parts and one.suffix != ".pyc"}
    files["tests/logins.py"] = LOGINS.read_bytes()
    wanted = len(re.findall(r"^def test_", LOGINS.read_text(), re.MULTILINE))
    words = ["timeout", str(LIMIT_SECONDS), "python", "-m", "pytest", "-c", "/dev/null", "-p", "no:cacheprovider"]
    with engine.container(image, command=["sleep", "infinity"], init=True, network_mode="none") as running:
        running.put_archive("/", pack(files))
        done = running.exec_run([*words, "/tests/logins.py"], workdir="/tests", environment={"PYTHONPATH": "/tests"})
    said = done.output.decode(errors="replace")
    assert done.exit_code == 0, said
    found = re.search(r"= (\d+) passed in", said)  # and nothing skipped
    assert found, said
    assert int(found[1]) >= wanted, said
