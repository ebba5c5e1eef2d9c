"""Settings of the export of traces."""

from pydantic import Field, field_validator

from pipeline.settings import EnvironmentSettings


class OtelSettings(EnvironmentSettings):
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
