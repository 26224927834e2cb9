"""What a person or a platform finds: programs on PATH, and a distribution one can build upon."""

import re
from typing import Any

import pytest

# Program to the component that brings it; "" is every image's.
PROGRAMS = {
    "bash": "",
    "apt-get": "",
    "curl": "",
    "git": "",
    "ps": "",
    "python": "python",
    "python3": "python",
    "pip": "pip",
    "gcc": "compiler",
    "g++": "compiler",
    "make": "compiler",
    "mpirun": "openmpi",
    "fi_info": "libfabric",
    "ssh": "openssh",
    "sshd": "openssh",
    "ssh-keygen": "openssh",
    "torchrun": "torch",
    "train": "sagemaker-training",
}


@pytest.mark.parametrize(
    "program", [pytest.param(name, marks=pytest.mark.component(by) if by else ()) for name, by in PROGRAMS.items()]
)
def test_program_is_on_path(host: Any, program: str) -> None:
    assert host.run(f"command -v {program}").rc == 0


@pytest.mark.exact("it may have package sources of its own")
def test_apt_knows_the_distribution(host: Any) -> None:
    """People build on top; sources are the distribution's public ones, not the mirror of the build."""
    (path,) = host.check_output(
        "find /etc/apt/sources.list /etc/apt/sources.list.d -type f 2> /dev/null || true"
    ).split()
    found = host.file(path).content_string
    assert found == host.file(f"/usr/share/doc/apt/examples/{path.rpartition('/')[2]}").content_string
    assert len(re.findall(r"^(?:deb |URIs: )", found, re.MULTILINE)) >= 2
    assert "proxy" not in host.check_output("apt-config dump").lower().replace("::proxyauto", "")
    assert host.run("apt-get check").rc == 0


def test_no_package_is_half_installed(host: Any) -> None:
    assert host.check_output("dpkg --audit") == ""


@pytest.mark.exact("it has files of its own")
def test_temporary_folders_are_empty(saved: Any) -> None:
    left = [entry.name for layer in saved.layers for entry in layer if entry.name.startswith(("tmp/", "var/tmp/"))]
    assert left == []
