"""Test that an error of Amazon's becomes an error with a fix."""

import re

import pytest

from trainwright.registry import aws_errors
from trainwright.registry.aws_errors import Call, explain

CALL = Call("ecr", "CreateRepository", "us-east-1", "trainwright/pytorch")
ARN = "arn:aws:ecr:us-east-1:111122223333:repository/trainwright/pytorch"
WHO = "arn:aws:sts::111122223333:assumed-role/builder/me"


@pytest.mark.parametrize(
    "because",
    [
        " because no identity-based policy allows the ecr:CreateRepository action",
        " because no resource-based policy allows the ecr:CreateRepository action",
        "",
    ],
)
def test_a_missing_permission_is_named_with_its_resource(because: str) -> None:
    message = f"User: {WHO} is not authorized to perform: ecr:CreateRepository on resource: {ARN}{because}"
    error = explain(CALL, "AccessDeniedException", message, 400)
    assert error.exit_code == 9
    assert error.what == f"{WHO} may not ecr:CreateRepository"
    assert error.where == f"{ARN} us-east-1"
    assert error.fix.startswith(f"allow ecr:CreateRepository on {ARN}; docs/iam-policy.json")


def test_an_explicit_deny_is_not_mended_by_allowing() -> None:
    message = (
        f"User: {WHO} is not authorized to perform: ecr:PutImage on resource: {ARN} "
        "with an explicit deny in a service control policy"
    )
    error = explain(CALL, "AccessDenied", message)
    assert error.fix == f"a policy explicitly denies ecr:PutImage on {ARN}: find and change that policy"


def test_a_denial_that_says_nothing_names_what_was_called() -> None:
    error = explain(CALL, "AccessDeniedException", "")
    assert error.what == "these credentials may not ecr:CreateRepository"
    assert error.where == "trainwright/pytorch us-east-1"


def test_a_denial_of_another_action_than_the_one_called() -> None:
    """KMS is asked by ECR, in our name."""
    message = f"User: {WHO} is not authorized to perform: kms:DescribeKey on resource: arn:aws:kms:us-east-1:1:key/2"
    error = explain(CALL, "KmsException", message)
    assert "may not kms:DescribeKey" in error.what
    assert "arn:aws:kms:us-east-1:1:key/2" in error.where


@pytest.mark.parametrize("code", sorted({**aws_errors.CREDENTIALS, **aws_errors.PLACE, **aws_errors.REFUSALS}))
def test_every_known_code_says_what_and_what_to_do(code: str) -> None:
    error = explain(CALL, code, "said Amazon", 400)
    assert error.exit_code == 9
    assert error.what
    assert error.fix
    assert error.why == f"{code}: said Amazon"
    assert error.where == "ecr:CreateRepository trainwright/pytorch us-east-1"


@pytest.mark.parametrize(
    ("code", "status", "said"),
    [
        ("ThrottlingException", 400, "throttles the account after 3 attempts"),
        ("ServerException", 500, "Amazon still fails after 3 attempts"),
        ("503", 503, "Amazon still fails after 3 attempts"),
        ("BrandNewException", 400, "Amazon refused CreateRepository"),
    ],
)
def test_what_is_no_row_of_a_table(code: str, status: int, said: str) -> None:
    assert said in explain(CALL, code, "x", status, 3).what


def test_what_to_do_about_it_is_there() -> None:
    """A fix that names a command of ours names one that there is."""
    from trainwright.commands import register
    from trainwright.commands.options import app

    register(())  # every command

    named = {info.name or getattr(info.callback, "__name__", "") for info in app.registered_commands}
    rows = [*aws_errors.CREDENTIALS.values(), *aws_errors.PLACE.values(), *aws_errors.REFUSALS.values()]
    for word in re.findall(r"trainwright ([a-z]+)", " ".join(fix for _, fix in rows)):
        assert word in named


@pytest.mark.parametrize(
    ("code", "status", "passes"),
    [
        ("ThrottlingException", 400, True),
        ("InternalFailure", 500, True),
        ("AnythingElse", 503, True),
        ("ReadTimeoutError", 0, True),
        ("EndpointConnectionError", 0, True),
        ("ExpiredTokenException", 400, False),
        ("AccessDeniedException", 400, False),
        ("ValidationException", 400, False),
        ("SSLError", 0, False),
    ],
)
def test_what_passes_by_itself_may_be_asked_again(code: str, status: int, passes: bool) -> None:
    error = explain(CALL, code, "because", status)
    assert (error.code, error.passes) == (code, passes)


@pytest.mark.parametrize(
    ("service", "code", "fix"),
    [
        ("logs", "InvalidParameterException", "run the same command again"),
        ("secretsmanager", "InvalidRequestException", "aws secretsmanager restore-secret --secret-id it --region x"),
        ("secretsmanager", "InvalidParameterException", "aws secretsmanager describe-secret --secret-id it"),
    ],
)
def test_the_remedy_is_of_the_service_that_refused(service: str, code: str, fix: str) -> None:
    error = explain(Call(service, "Something", "x", "it"), code, "no", 400)
    assert error.fix.startswith(fix)
    assert "publish.toml" not in error.what + error.fix


def test_no_region_is_mended_in_whatever_command_asked() -> None:
    assert explain(Call("ecr"), "NoRegionError", "").fix.startswith("--region ")
