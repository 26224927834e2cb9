"""boto3: the chain by which AWS's tools find credentials, without network."""

from typing import Any

import pytest

pytestmark = pytest.mark.component("boto3")

FOUND = (
    "import boto3; found = boto3.Session().get_credentials(); print(found and found.method, found and found.access_key)"
)


def test_environment(host: Any) -> None:
    code = f"AWS_ACCESS_KEY_ID=own AWS_SECRET_ACCESS_KEY=x python -c '{FOUND}'"
    assert host.check_output(code) == "env own"


def test_nothing_is_found_where_nothing_is(host: Any) -> None:
    """No key in the image. The host's metadata service, which comes last, is left out."""
    assert host.check_output(f"AWS_EC2_METADATA_DISABLED=true python -c '{FOUND}'") == "None None"


def test_role_of_a_job_or_a_pod(host: Any, programs: str) -> None:
    """SageMaker, ECS and EKS pod identity hand out credentials at an address in the environment."""
    assert host.check_output(f"python {programs}/container_credentials.py") == "container-role served"
