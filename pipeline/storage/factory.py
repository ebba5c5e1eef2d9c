"""The storage that the settings name: workers, and whoever looks at what they kept, open the same."""

from pipeline.outcome import system
from pipeline.settings import Settings
from pipeline.storage.base import Storage
from pipeline.storage.merritt.storage import MerrittStorage
from pipeline.storage.ocfl.bucket import Bucket
from pipeline.storage.ocfl.storage import OcflStorage
from pipeline.storage.s3.storage import S3Storage


def open_storage(settings: Settings) -> Storage:
    if settings.storage_service_url:
        return MerrittStorage(settings)
    if settings.s3_root:
        return S3Storage(lambda: _bucket(settings))
    return OcflStorage(settings.storage)


def _bucket(settings: Settings) -> Bucket:
    """boto3 comes with an extra and takes half a second to import: so only where a bucket is used."""
    try:
        from pipeline.storage.s3.bucket import open_bucket
    except ModuleNotFoundError as error:
        raise system(
            f"ARKLINE_S3_ROOT is set, but the package {error.name} is not installed here: "
            "pip install 'arkline[s3]', then resume"
        ) from error
    return open_bucket(settings)
