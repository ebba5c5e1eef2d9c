"""The limits of a collection."""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

Count = Annotated[int, Field(ge=1)]


class ProfileLimits(BaseModel):
    """The limits of a collection; the limits of the settings apply as well."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    object_bytes: Count | None = Field(None, description="a number: maximum bytes of one object")
    object_files: Count | None = Field(None, description="a number: maximum files of one object")
    batch_jobs: Count | None = Field(None, description="a number: maximum objects of one batch")
    live_jobs: Count | None = Field(None, description="a number: maximum jobs that have not ended")
    recipients: Count | None = Field(None, description="a number: maximum mail addresses of a report")
    jobs_at_work: Count | None = Field(None, description="a number: maximum jobs that are active at a time")
    host_connections: Count | None = Field(
        None, description="a number: maximum connections to one host; replaces the setting"
    )
