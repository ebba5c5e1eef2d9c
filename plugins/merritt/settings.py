"""Settings of Merritt's storage and inventory services."""

from typing import Annotated, Self

from pydantic import AliasChoices, Field, model_validator

from pipeline.settings import EnvironmentSettings, Seconds


class MerrittSettings(EnvironmentSettings):
    storage_service_url: str = Field(
        "", description="URL of a Merritt storage service for the objects; empty: the OCFL storage root."
    )
    storage_service_node: Annotated[int, Field(ge=0)] = Field(
        0, description="Storage node for profiles that do not name one."
    )
    storage_service_timeout: Seconds = Field(
        48 * 3600,
        description="Seconds to wait for a new version: the storage service fetches all files first.",
    )
    storage_service_recheck_after: Seconds = Field(
        300,
        validation_alias=AliasChoices(
            "ARKLINE_STORAGE_SERVICE_RECHECK_AFTER", "ARKLINE_STORAGE_SERVICE_LOOK_AGAIN"
        ),
        description="Seconds before the outcome of a request whose response was lost is checked.",
    )
    inventory_service_url: str = Field(
        "",
        description="URL of Merritt's inventory service, which is asked beside the inventory; needs "
        "storage_service_url; empty: only the inventory.",
    )
    working_storage_url: str = Field(
        "",
        description="URL of working storage, from which the storage service fetches files; "
        "empty: the service has the same disk and gets file: URLs.",
    )

    @model_validator(mode="after")
    def _inventory_service_reads_storage_service(self) -> Self:
        if self.inventory_service_url and not self.storage_service_url:
            raise ValueError(
                "ARKLINE_INVENTORY_SERVICE_URL needs ARKLINE_STORAGE_SERVICE_URL: the inventory service "
                "reads versions there"
            )
        return self
