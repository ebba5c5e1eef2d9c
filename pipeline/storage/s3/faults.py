"""What S3's refusals and boto3's errors mean for a job, and what an operator has to do."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from botocore import exceptions as boto
from urllib3.exceptions import HTTPError

from pipeline.http.retry import is_transient, retry_after
from pipeline.outcome import StepFailed, system, transient

_CREDENTIALS = (
    "put a key that may use the bucket into AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, a profile of "
    "~/.aws, or the host's role"
)
_RIGHTS = (
    "let this key do s3:GetObject, s3:PutObject, s3:DeleteObject, s3:ListBucket, s3:AbortMultipartUpload and "
    "s3:ListBucketMultipartUploads there"
)
_ADDRESS = "check ARKLINE_S3_ROOT and ARKLINE_S3_ENDPOINT"
_REGION = "set AWS_DEFAULT_REGION to the bucket's region, and ARKLINE_S3_ENDPOINT if it is not Amazon's"
UNCONDITIONAL = (
    "its server does not keep writers apart (If-None-Match and If-Match on PutObject): use one that does"
)

REMEDIES = {
    "NoSuchBucket": "make it, or correct ARKLINE_S3_ROOT",
    "InvalidBucketName": "correct ARKLINE_S3_ROOT",
    "AccessDenied": _RIGHTS,
    "AllAccessDisabled": _RIGHTS,
    "403": _RIGHTS,
    "InvalidAccessKeyId": _CREDENTIALS,
    "SignatureDoesNotMatch": _CREDENTIALS,
    "ExpiredToken": _CREDENTIALS,
    "InvalidToken": _CREDENTIALS,
    "TokenRefreshRequired": _CREDENTIALS,
    "NotImplemented": UNCONDITIONAL,
    "RequestTimeTooSkewed": "set this host's clock",
    "PermanentRedirect": _REGION,
    "AuthorizationHeaderMalformed": _REGION,
    "IllegalLocationConstraintException": _REGION,
    "301": _REGION,
}
"""What to do about an error code of S3; a code that is only a status has no body."""

_TRANSIENT_CODES = frozenset(
    {"SlowDown", "OperationAborted", "RequestTimeout", "Throttling", "ThrottlingException"}
)
_CONFLICTS = frozenset({"PreconditionFailed", "ConditionalRequestConflict", "412"})
_ABSENT = frozenset({"NoSuchKey", "NoSuchUpload"})

_NO_CREDENTIALS = (
    boto.NoCredentialsError,
    boto.PartialCredentialsError,
    boto.CredentialRetrievalError,
    boto.TokenRetrievalError,
    boto.ProfileNotFound,
    boto.SSOError,
)
_BROKEN = (
    boto.HTTPClientError,
    boto.ConnectionError,
    boto.IncompleteReadError,
    HTTPError,
)


class Refused(Exception):
    """The server will not because of what is there: the key is taken, changed, or gone."""


class Absent(Refused):
    """There is nothing under this key, or no such upload."""


@contextmanager
def translated(bucket: str, refusable: bool = False) -> Iterator[None]:
    """Faults met inside as StepFailed for whoever can mend them, naming the bucket as people know it.

    Refused and Absent only where they may be: a server that says so of a list is none of S3.
    """
    try:
        yield
    except boto.ClientError as error:
        raise _answered(error.response, bucket, refusable) from error
    except (boto.BotoCoreError, HTTPError) as error:
        raise _failed(error, bucket) from error


def _answered(response: dict[str, Any], bucket: str, refusable: bool) -> Exception:
    said = response.get("Error", {})
    code = str(said.get("Code", ""))
    met = response.get("ResponseMetadata", {})
    status = int(met.get("HTTPStatusCode", 0))
    if refusable and code in _CONFLICTS:
        return Refused(code)
    if refusable and code in _ABSENT:
        return Absent(code)
    if code in REMEDIES:
        return system(f"{bucket} cannot be used ({code}): {REMEDIES[code]}")
    if is_transient(status) or code in _TRANSIENT_CODES:
        wait = retry_after(met.get("HTTPHeaders", {}).get("retry-after"))
        return transient(f"{bucket} answered {status} {code}; it is tried again", wait)
    reason = said.get("Message", "no reason given")
    return system(f"{bucket} answered {status} {code} ({reason}): {_ADDRESS}")


def _failed(error: Exception, bucket: str) -> StepFailed:
    if isinstance(error, _NO_CREDENTIALS):
        return system(f"{bucket} needs credentials ({type(error).__name__}): {_CREDENTIALS}")
    if isinstance(error, boto.SSLError):
        return system(f"{bucket} has no certificate that is trusted: check ARKLINE_S3_ENDPOINT")
    if isinstance(error, _BROKEN):
        return transient(f"{bucket} cannot be reached, or broke off ({type(error).__name__})")
    return system(f"{bucket} cannot be asked ({type(error).__name__}): {_ADDRESS}")
