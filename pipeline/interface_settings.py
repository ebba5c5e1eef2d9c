"""Settings of what arkline tells other systems about itself, and of who may log in at the pages."""

from pydantic import Field, field_validator
from pydantic_settings import BaseSettings


class InterfaceSettings(BaseSettings):
    """A part of `pipeline.settings.Settings`."""

    otlp_endpoint: str = Field(
        "",
        description="URL of an OpenTelemetry collector, to which the exporter sends a trace of every job "
        "that ended, by OTLP over HTTP: http://127.0.0.1:4318; empty: nowhere.",
    )

    @field_validator("otlp_endpoint")
    @classmethod
    def _is_http(cls, value: str) -> str:
        if value and not value.startswith(("http://", "https://")):
            raise ValueError("the URL begins with http:// or https://")
        return value
