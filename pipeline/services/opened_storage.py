"""The storage that the settings name: workers, and whoever looks at what they kept, open the same."""

from pipeline.ocfl.bucket import Bucket
from pipeline.outcome import system
from pipeline.services.merritt_storage import MerrittStorage
from pipeline.services.ocfl_storage import OcflStorage
from pipeline.services.s3_storage import S3Storage
from pipeline.services.storage import Storage
from pipeline.settings import Settings


def open_storage(settings: Settings) -> Storage:
    if settings.storage_service_url:
        return MerrittStorage(settings)
    if settings.s3_root:
        return S3Storage(lambda: _bucket(settings))
    return OcflStorage(settings.storage)


def _bucket(settings: Settings) -> Bucket:
    """boto3 comes with an extra and takes half a second to import: so only where a bucket is used."""
    try:
        from pipeline.services.s3_bucket import open_bucket
    except ModuleNotFoundError as error:
        raise system(
            f"ARKLINE_S3_ROOT is set, but the package {error.name} is not installed here: "
            "pip install 'arkline[s3]', then resume"
        ) from error
    return open_bucket(settings)
