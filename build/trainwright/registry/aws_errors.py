"""Convert AWS refusals to one error with what, where, why and fix."""

import re
from typing import NamedTuple

from trainwright.core.errors import AwsError

# "User: <who> is not authorized to perform: <action> on resource: <arn> because <reason>"; parts may be missing.
DENIED = re.compile(
    r"(?:User: (?P<who>\S+) )?is not authorized to perform: (?P<action>[\w*]+:[\w*]+)"
    r"(?: on resource: (?P<resource>\S+))?(?: (?:because|with) (?P<reason>.*))?"
)
POLICY, LAUNCH_POLICY = "docs/iam-policy.json", "docs/iam-launch-policy.json"
LAUNCHES = {"s3", "secretsmanager", "logs", "sagemaker"}  # services of training jobs;
READS = {"DescribeModel", "DescribeTrainingJob", "ListModels", "ListTrainingJobs"}  # also in the policy of `prune`
# "The account-level service limit 'ml.p5.48xlarge for training job usage' is 0 Instances, with current utilization of
# 0 Instances and a request delta of 2 Instances."
QUOTA = re.compile(
    r"limit '(?P<name>[^']+)' is (?P<most>\d+).*?utilization of (?P<used>\d+).*?delta of (?P<more>\d+)", re.DOTALL
)


class Call(NamedTuple):
    """One call of an AWS API."""

    service: str  # as boto3 and IAM call it: ecr
    operation: str = ""  # CreateRepository
    region: str = ""
    resource: str = ""  # the object of the call, as a user would name it

    def __str__(self) -> str:
        return " ".join(filter(None, [f"{self.service}:{self.operation or '*'}", self.resource, self.region]))


# Error code of the service or botocore exception class: its meaning, and its remedy.
CREDENTIALS = {
    "NoCredentialsError": ("no AWS credentials were found", "export AWS_PROFILE=<profile>, or aws configure"),
    "PartialCredentialsError": ("the AWS credentials are incomplete", "set AWS_SECRET_ACCESS_KEY beside the key id"),
    "CredentialRetrievalError": ("the AWS credentials cannot be obtained", "aws sts get-caller-identity"),
    "MetadataRetrievalError": ("the AWS credentials cannot be obtained", "aws sts get-caller-identity"),
    "ProfileNotFound": ("the AWS profile does not exist", "aws configure list-profiles"),
    "ConfigParseError": ("the AWS configuration cannot be read", "aws configure list"),
    "SSOTokenLoadError": ("you are not signed in to AWS", "aws sso login"),
    "UnauthorizedSSOTokenError": ("the AWS sign-in has expired", "aws sso login"),
    "TokenRetrievalError": ("the AWS sign-in has expired", "aws sso login"),
    "ExpiredToken": ("the AWS credentials have expired", "sign in again: aws sso login, or a new session token"),
    "ExpiredTokenException": (
        "the AWS credentials have expired",
        "sign in again: aws sso login, or a new session token",
    ),
    "RequestExpired": ("Amazon rejected the request as expired", "set this machine's clock, then sign in again"),
    "InvalidClientTokenId": ("Amazon does not know these credentials", "aws sts get-caller-identity"),
    "UnrecognizedClientException": (
        "Amazon does not know these credentials, or the region is not enabled for the account",
        "aws sts get-caller-identity; aws account list-regions",
    ),
    "InvalidSignatureException": ("the AWS secret key or the clock is wrong", "date -u; aws configure"),
    "SignatureDoesNotMatch": ("the AWS secret key or the clock is wrong", "date -u; aws configure"),
    "IncompleteSignature": ("the AWS credentials are malformed", "aws configure"),
    "MissingAuthenticationToken": ("the AWS credentials are malformed", "aws configure"),
}
PLACE = {
    "NoRegionError": ("no AWS region is set", "--region us-east-1, or export AWS_REGION=us-east-1"),
    "InvalidRegionError": ("this is not an AWS region", "aws account list-regions"),
    "UnknownEndpointError": ("this is not an AWS region", "aws account list-regions"),
    "EndpointConnectionError": (
        "Amazon does not answer: no network, or no such region",
        "check --region; curl -I the endpoint",
    ),
    "ConnectTimeoutError": ("Amazon does not answer", "check --region and the proxy settings"),
    "ReadTimeoutError": ("Amazon answers too slowly", "run the same command again"),
    "ConnectionClosedError": ("Amazon closed the connection", "run the same command again"),
    "ProxyConnectionError": ("the proxy does not answer", "echo $HTTPS_PROXY"),
    "SSLError": ("Amazon's certificate is not trusted here", "export TRAINWRIGHT_CA=<your CA's PEM file>"),
    "ResponseParserError": ("the answer did not come from Amazon", "check the proxy settings, and AWS_ENDPOINT_URL"),
    "OptInRequired": ("the account has not enabled that region or service", "aws account list-regions"),
}
REFUSALS = {
    "LimitExceededException": ("a quota of the account is used up", "ask for more: Service Quotas, Amazon ECR"),
    "TooManyTagsException": ("there are too many tags", "remove some of [repository.tags] in dockerfiles/publish.toml"),
    "RepositoryNotFoundException": ("the repository does not exist", "trainwright repositories --apply"),
    "RepositoryAlreadyExistsException": ("the repository already exists", "run the same command again"),
    "RepositoryPolicyNotFoundException": ("the repository has no policy", "trainwright repositories --apply"),
    "LifecyclePolicyNotFoundException": ("the repository has no lifecycle policy", "trainwright repositories --apply"),
    "ImageNotFoundException": ("the image does not exist", "trainwright plan"),
    "ImageTagAlreadyExistsException": ("the immutable tag already names another image", "choose another name"),
    "ImageAlreadyExistsException": ("the image already exists, or its tag names another one", "trainwright plan"),
    "KmsException": ("the repository's KMS key cannot be used", "check kms_key of publish.toml, and its policy"),
    "InvalidParameterException": ("Amazon rejected a value of publish.toml", "$EDITOR dockerfiles/publish.toml"),
    "InvalidTagParameterException": ("Amazon rejected these tags", "$EDITOR dockerfiles/publish.toml"),
    "ValidationException": ("Amazon rejected the request", "$EDITOR dockerfiles/publish.toml"),
    "ParamValidationError": ("the request is malformed", "$EDITOR dockerfiles/publish.toml"),
}  # fmt: skip
# Training jobs: the same codes with other remedies. JOB_HINTS maps a word of the message to what to check.
JOB_REFUSALS = {
    "ResourceInUse": ("a training job of that name exists already", "--name <another one>, or no --name"),
    "NoSuchBucket": ("the bucket does not exist", "aws s3 mb s3://<bucket>; or another --output"),
    "PermanentRedirect": ("the bucket is in another region", "use an --output in the region of the job"),
    "ResourceNotFoundException": ("the secret does not exist", "aws secretsmanager list-secrets"),
    "ParamValidationError": ("the request is malformed", "trainwright launch ... --dry-run shows it"),
    "InvalidParameterException": ("Amazon rejected the request", "run the same command again; without --since"),
}
SECRET_REFUSALS = {
    "InvalidRequestException": (
        "the secret cannot be read: it may be marked for deletion",
        "aws secretsmanager restore-secret",
    ),
    "InvalidParameterException": ("this is not the name of a secret", "aws secretsmanager describe-secret"),
    "DecryptionFailure": ("the KMS key of the secret cannot be used", "aws secretsmanager describe-secret"),
}
JOB_HINTS = {
    "role": "check --role: its trust policy must name sagemaker.amazonaws.com, and it needs access to image and data",
    "S3": "check that each --channel, --checkpoints and --output exists in this region, and that --role has access",
    "image": "check that the image is in this region, and open to --role (other accounts: docs/iam-pull-policy.json)",
    "spot": "use another --instance, or no --spot",
    "": "trainwright launch ... --dry-run shows the request",
}
ACCESS = {"AccessDenied", "AccessDeniedException", "UnauthorizedOperation", "NotAuthorized"}
THROTTLED = {"ThrottlingException", "Throttling", "TooManyRequestsException", "RequestLimitExceeded", "SlowDown"}
PASSING = {  # in addition to THROTTLED and every status of 500 and above
    *("ServerException", "InternalFailure", "ServiceUnavailable", "ServiceUnavailableException"),
    *("EndpointConnectionError", "ConnectTimeoutError", "ReadTimeoutError", "ConnectionClosedError", "HTTPClientError"),
    *("ProxyConnectionError", "ResponseStreamingError", "IncompleteReadError"),
}


# DescribeTrainingJob's answers for a missing job: the one error of its model, and the messages observed instead.
NO_JOB, NO_JOB_WORDS = "ResourceNotFound", ("resource not found", "does not exist", "could not find")


def no_job(error: AwsError) -> bool:
    """Return whether DescribeTrainingJob failed because no job has that name."""
    said = error.why.lower()
    return error.code == NO_JOB or (error.code == "ValidationException" and any(one in said for one in NO_JOB_WORDS))


def explain(call: Call, code: str, message: str, status: int = 0, attempts: int = 1) -> AwsError:
    """Return one error for a failed call. `code` is the service's error code or botocore's exception class."""
    error = _explain(call, code, message, status, attempts)
    error.code = code
    error.passes = code in THROTTLED | PASSING or status >= 500
    return error


def _explain(call: Call, code: str, message: str, status: int, attempts: int) -> AwsError:
    if code in ACCESS or "is not authorized to perform" in message:
        return _denied(call, message)
    if code in THROTTLED:
        what, fix = f"Amazon still throttles the account after {attempts} attempts", "run the same command again, later"
    elif code == "ResourceLimitExceeded":
        return _quota(call, message)
    elif call.service in LAUNCHES and code == "ValidationException":
        what = "Amazon rejected the request"
        fix = next(fix for word, fix in JOB_HINTS.items() if word.lower() in message.lower())
    elif call.service == "secretsmanager" and code in SECRET_REFUSALS:
        what, fix = SECRET_REFUSALS[code]
        fix = f"{fix} --secret-id {call.resource} --region {call.region}"
    elif call.service in LAUNCHES and (own := JOB_REFUSALS.get(code)):
        what, fix = own
    elif known := (CREDENTIALS | PLACE | REFUSALS).get(code):
        what, fix = known
    elif status >= 500 or code == "ServerException":
        what, fix = f"Amazon still fails after {attempts} attempts", "run the same command again"
    else:
        what, fix = f"Amazon refused {call.operation or call.service}", "aws sts get-caller-identity"
    return AwsError(what, where=str(call), why=f"{code}: {message}".removesuffix(": "), fix=fix)


def _denied(call: Call, message: str) -> AwsError:
    """Return the error for a missing permission: action and resource from the message, else from the call."""
    found = DENIED.search(message)
    parts = found.groupdict() if found else {}
    action = parts.get("action") or f"{call.service}:{call.operation}"
    resource = (parts.get("resource") or call.resource or "*").rstrip(".")
    explicit = "explicit deny" in message
    error = AwsError(
        f"{parts.get('who') or 'these credentials'} may not {action}",
        where=f"{resource} {call.region}".rstrip(),
        why=message or "access denied",
        fix=f"a policy explicitly denies {action} on {resource}: find and change that policy"
        if explicit
        else f"allow {action} on {resource}; {_policy(call)} lists all permissions that are needed",
    )
    error.denied = True
    return error


def _policy(call: Call) -> str:
    return LAUNCH_POLICY if call.service in LAUNCHES and call.operation not in READS else POLICY


def _quota(call: Call, message: str) -> AwsError:
    """Return the error for an exhausted quota; its fix looks up the quota's code by the name in the message."""
    found, where = QUOTA.search(message), f"--service-code {call.service} --region {call.region}"
    named = " ".join(found["name"].split()) if found else ""
    code = f"aws service-quotas list-service-quotas {where} --output text --query \"Quotas[?QuotaName=='{named}']"
    wanted = int(found["used"]) + int(found["more"]) if found else 0
    return AwsError(
        f"a quota of the account is used up: {named or 'Amazon did not say which one'}",
        where=str(call),
        why=f"ResourceLimitExceeded: {message}",
        fix=f"aws service-quotas request-service-quota-increase {where} --desired-value {wanted} "
        f'--quota-code "$({code}.QuotaCode")"'
        if found
        else f"aws service-quotas list-service-quotas {where}",
    )
