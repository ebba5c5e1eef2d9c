"""Objects on the file system of a tape library."""

from pathlib import Path

from pydantic import Field, field_validator

from pipeline.deployment import Expected
from pipeline.settings import EnvironmentSettings, Settings, read_settings
from pipeline.storage.ocfl.storage import OcflStorage


class TapeSettings(EnvironmentSettings):
    tape_root: Path = Field(Path(), description="OCFL storage root on the tape library.")

    @field_validator("tape_root")
    @classmethod
    def _is_absolute(cls, value: Path) -> Path:
        if value != Path() and not value.is_absolute():
            raise ValueError("write an absolute path")
        return value


def open_storage(settings: Settings, expected: Expected | None) -> OcflStorage:
    return OcflStorage(read_settings(TapeSettings).tape_root, lock_wait=1, expected=expected)
