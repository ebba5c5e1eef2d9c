"""Opens the storage service that the settings name, and imports no other one."""

from typing import TYPE_CHECKING

from pipeline.deployment import Expected
from pipeline.outcome import system
from pipeline.settings import Settings
from pipeline.storage.base import Storage
from pipeline.storage.ocfl.storage import OcflStorage

if TYPE_CHECKING:
    from pipeline.storage.s3.bucket import S3Bucket


def open_storage(settings: Settings, expected: Expected | None = None) -> Storage:
    """`expected`: the deployment that an existing root must belong to; None: a missing root is created."""
    if settings.storage_service_url:
        from pipeline.storage.merritt.storage import MerrittStorage

        return MerrittStorage(settings)
    if settings.s3_root:
        from pipeline.storage.s3.storage import S3Storage

        return S3Storage(lambda: _open_bucket(settings), expected)
    return OcflStorage(settings.storage, expected=expected)


def _open_bucket(settings: Settings) -> "S3Bucket":
    """boto3 is an extra and takes half a second to import, so it is imported when a bucket is first used."""
    try:
        from pipeline.storage.s3.bucket import open_bucket
    except ModuleNotFoundError as error:
        raise system(
            f"ARKLINE_S3_ROOT is set, but the package {error.name} is not installed on this host: "
            "pip install 'arkline[s3]', then resume the job"
        ) from error
    return open_bucket(settings)
