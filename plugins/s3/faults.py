"""Translates S3's refusals and boto3's errors into job failures with a remedy for the operator."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from botocore import exceptions
from urllib3.exceptions import HTTPError

from pipeline.http.service import is_transient, retry_after
from pipeline.outcome import Service, ServiceDown, StepFailed, system, transient
from plugins.s3.keys import Absent, Refused

_CREDENTIALS = (
    "give the workers a key that may use the bucket: in AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, in a "
    "profile of ~/.aws, or by the host's role"
)
_RIGHTS = (
    "allow this key s3:GetObject, s3:PutObject, s3:DeleteObject, s3:ListBucket, s3:AbortMultipartUpload and "
    "s3:ListBucketMultipartUploads on the bucket"
)
_ADDRESS = "check ARKLINE_S3_ROOT and ARKLINE_S3_ENDPOINT"
_REGION = "set AWS_DEFAULT_REGION to the bucket's region, and ARKLINE_S3_ENDPOINT if it is not Amazon's"
UNCONDITIONAL = (
    "it does not support conditional writes (If-None-Match and If-Match on PutObject): use a server that does"
)

REMEDIES = {
    "NoSuchBucket": "create it, or correct ARKLINE_S3_ROOT",
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
"""Remedies by S3 error code; a numeric code is the status of a response without a body."""

_TRANSIENT_CODES = frozenset(
    {"SlowDown", "OperationAborted", "RequestTimeout", "Throttling", "ThrottlingException"}
)
_CONFLICTS = frozenset({"PreconditionFailed", "ConditionalRequestConflict", "412"})
_ABSENT = frozenset({"NoSuchKey", "NoSuchUpload"})

_NO_CREDENTIALS = (
    exceptions.NoCredentialsError,
    exceptions.PartialCredentialsError,
    exceptions.CredentialRetrievalError,
    exceptions.TokenRetrievalError,
    exceptions.ProfileNotFound,
    exceptions.SSOError,
)
_BROKEN = (
    exceptions.HTTPClientError,
    exceptions.ConnectionError,
    exceptions.IncompleteReadError,
    HTTPError,
)


@contextmanager
def translated(bucket: str, refusable: bool = False) -> Iterator[None]:
    """Errors as StepFailed, with the bucket's name for people.

    Refused and Absent are raised only if `refusable`: an S3 server does not refuse a listing that way.
    """
    try:
        yield
    except exceptions.ClientError as error:
        raise _from_response(error.response, bucket, refusable) from error
    except (exceptions.BotoCoreError, HTTPError) as error:
        raise _from_error(error, bucket) from error


def _from_response(response: dict[str, Any], bucket: str, refusable: bool) -> Exception:
    error = response.get("Error", {})
    code = str(error.get("Code", ""))
    metadata = response.get("ResponseMetadata", {})
    status = int(metadata.get("HTTPStatusCode", 0))
    if refusable and code in _CONFLICTS:
        return Refused(code)
    if refusable and code in _ABSENT:
        return Absent(code)
    if code in REMEDIES:
        return refuses_all(f"{bucket} cannot be used ({code}): {REMEDIES[code]}")
    if is_transient(status) or code in _TRANSIENT_CODES:
        wait = retry_after(metadata.get("HTTPHeaders", {}).get("retry-after"))
        return transient(f"{bucket} answered {status} {code}; the job will try again", wait)
    reason = error.get("Message", "no reason given")
    return system(f"{bucket} answered {status} {code} ({reason}): {_ADDRESS}")


def refuses_all(message: str) -> ServiceDown:
    """The error of a server that refuses every request: an operator has to act, and the jobs wait."""
    return ServiceDown(Service.STORAGE, message)


def _from_error(error: Exception, bucket: str) -> StepFailed | ServiceDown:
    if isinstance(error, _NO_CREDENTIALS):
        return refuses_all(f"{bucket} needs credentials ({type(error).__name__}): {_CREDENTIALS}")
    if isinstance(error, exceptions.SSLError):
        return refuses_all(f"{bucket} has no trusted certificate: check ARKLINE_S3_ENDPOINT")
    if isinstance(error, _BROKEN):
        return transient(f"{bucket} cannot be reached, or closed the connection ({type(error).__name__})")
    return system(f"{bucket} cannot be used ({type(error).__name__}): {_ADDRESS}")
