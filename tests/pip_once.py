"""Ask pip for this host's settings once for many tests, because each time it is a program of its own."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest


@contextmanager
def pip_asked_once() -> Iterator[None]:
    """Let every TLS connection of this process find what pip says now. Programs that a test starts ask pip themselves.

    For tests that change no setting of pip in their own process.
    """
    from trainwright.core import certificates, host_settings

    said = host_settings.pip_settings()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(certificates, "pip_settings", lambda: said)
        yield
