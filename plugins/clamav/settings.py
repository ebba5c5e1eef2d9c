"""Where clamd answers: for the whole site, or for the collections of a profile."""

import re

from pydantic import Field, field_validator

from pipeline.settings import EnvironmentSettings


class ClamavSettings(EnvironmentSettings):
    clamd: str = Field(
        "unix:/run/clamav/clamd.ctl",
        description="Where clamd answers the check clamav: unix:/PATH or tcp:HOST:PORT.",
    )

    @field_validator("clamd")
    @classmethod
    def _is_address(cls, value: str) -> str:
        if not re.fullmatch(r"unix:/.+|tcp:(\[[0-9A-Fa-f:.]+\]|[^\s:/\[\]]+):[0-9]{1,5}", value):
            raise ValueError(f"'{value}' is not unix:/PATH or tcp:HOST:PORT")
        return value
