"""libfabric: tcp is what every host has."""

from typing import Any

import pytest

pytestmark = pytest.mark.component("libfabric")


def test_tcp_provider(host: Any) -> None:
    assert "tcp:" in host.check_output("fi_info -l").splitlines()
    assert "provider: tcp" in host.check_output("fi_info -p tcp").splitlines()


def test_bytes_really_travel(host: Any) -> None:
    ping = "fi_pingpong -p tcp -e rdm -I 10 -S 65536"
    often = "for one in $(seq 100)"  # until the other listens
    result = host.run(f"{ping} & {often}; do {ping} 127.0.0.1 && wait && exit; sleep 0.05; done; exit 1")
    assert result.rc == 0, result.stderr
    assert "64k" in result.stdout
