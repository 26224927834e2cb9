"""OpenSSH: a server that would start, without a key of its own and without passwords."""

from typing import Any

import pytest

pytestmark = pytest.mark.component("openssh")


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
