"""The storage that the settings name: workers, and whoever looks at what they kept, open the same."""

from pipeline.services.merritt_storage import MerrittStorage
from pipeline.services.ocfl_storage import OcflStorage
from pipeline.services.storage import Storage
from pipeline.settings import Settings


def open_storage(settings: Settings) -> Storage:
    if settings.storage_service_url:
        return MerrittStorage(settings)
    return OcflStorage(settings.storage)
