"""Settings of a storage root in S3."""

import re

from pydantic import Field, field_validator

from pipeline.settings import EnvironmentSettings


class S3Settings(EnvironmentSettings):
    s3_root: str = Field(
        "",
        description="OCFL storage root in S3, instead of storage_root: s3://bucket/prefix; "
        "credentials and region are those of boto3.",
    )
    s3_endpoint: str = Field("", description="URL of an S3 server other than Amazon's.")

    @field_validator("s3_root")
    @classmethod
    def _is_s3(cls, value: str) -> str:
        if value and not re.fullmatch(r"s3://[A-Za-z0-9][\w.-]+(/.*)?", value):
            raise ValueError(f"'{value}' is not s3://BUCKET or s3://BUCKET/PREFIX")
        return value
