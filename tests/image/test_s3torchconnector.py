"""s3torchconnector: its client is compiled, and asks for what AWS's own chain of credentials finds."""

from typing import Any

import pytest

pytestmark = pytest.mark.component("s3torchconnector")


def test_reads_what_a_server_of_s3_holds_by_the_role_of_the_job(host: Any, programs: str) -> None:
    """A server on loopback in place of Amazon S3, and of what hands out a role's credentials."""
    assert host.check_output(f"python {programs}/s3_dataset.py") == "signed by served: b'0123456789'"
