"""Settings of ZooKeeper and Redis: where the servers are, and how a process and a server trust each other."""

import os
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any, Self
from urllib.parse import urlsplit

from pydantic import Field, SecretStr, field_validator, model_validator
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SecretsSettingsSource

from pipeline.errors import UsageRefused

SECRETS = "ARKLINE_SECRETS"
"""Variable with a folder of settings that are secret: the file arkline_zk_password has that setting."""

MIN_KEY = 16
"""Characters of a key; a shorter one can be guessed."""


class ServerSettings(BaseSettings):
    """A part of `pipeline.settings.Settings`."""

    zk_hosts: str = Field("127.0.0.1:2181", description="ZooKeeper servers, host:port, comma separated.")
    zk_root: str = Field("/", description="The znode that contains all others.")
    zk_session_timeout: Annotated[float, Field(gt=0)] = Field(
        20,
        description="Seconds until the locks of a dead worker are released; the server allows 2 to 20 ticks.",
    )
    zk_user: str = Field(
        "",
        description="User of ZooKeeper's digest scheme, who alone may use the znodes; may be empty "
        "only on loopback.",
    )
    zk_password: SecretStr = Field(SecretStr(""), description="Password of zk_user.")
    zk_open: bool = Field(
        False, description="Work without zk_user on a ZooKeeper outside loopback: its znodes belong to all."
    )
    zk_tls_ca: Path | None = Field(
        None,
        description="File with the certificates (PEM) of the authorities that sign ZooKeeper's certificates; "
        "connections to ZooKeeper are then encrypted, and zk_hosts names secure client ports.",
    )
    zk_tls_certificate: Path | None = Field(
        None, description="File with the certificate (PEM) that is shown to ZooKeeper, if it asks for one."
    )
    zk_tls_key: Path | None = Field(None, description="File with the key (PEM) of zk_tls_certificate.")
    broker_url: str = Field("redis://127.0.0.1:6379/0", description="Redis or Valkey, for Celery's messages.")
    broker_prefix: str = Field("arkline:", description="Prefix of every key in Redis.")

    message_key: SecretStr = Field(
        SecretStr(""),
        description="Keys that sign the messages in Redis, at least 16 characters each, comma separated: the "
        "first signs, all are accepted; empty: nothing is signed.",
    )
    message_unsigned: bool = Field(
        False, description="Accept messages without a signature too, while message_key is introduced."
    )

    @classmethod
    def settings_customise_sources(
        cls, settings_cls: type[BaseSettings], *sources: Any, **named: Any
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """The environment, else the folder in ARKLINE_SECRETS, with a file for each setting."""
        folder = os.environ.get(SECRETS)
        if folder and Path(folder).expanduser().is_file():
            raise UsageRefused(
                f"{SECRETS} is '{folder}', which is no folder: name the folder of the secrets' files"
            )
        files = (SecretsSettingsSource(settings_cls, folder),) if folder else ()
        return (named["init_settings"], named["env_settings"], *files)

    @property
    def message_keys(self) -> tuple[str, ...]:
        return tuple(key.strip() for key in self.message_key.get_secret_value().split(",") if key.strip())

    @field_validator("broker_url")
    @classmethod
    def _is_of_redis(cls, value: str) -> str:
        with suppress(ValueError):  # its text may quote the password
            parts = urlsplit(value)
            _ = parts.port
            if parts.scheme in ("redis", "rediss", "unix"):
                return value
        raise ValueError(
            "write redis://:PASSWORD@HOST:PORT/NUMBER; in the password '/' is %2F, '@' %40, '#' %23"
        )

    @field_validator("message_key")
    @classmethod
    def _keys_are_long(cls, value: SecretStr) -> SecretStr:
        if any(0 < len(key.strip()) < MIN_KEY for key in value.get_secret_value().split(",")):
            raise ValueError(f"a key is shorter than {MIN_KEY} characters: `openssl rand -hex 32` makes one")
        return value

    @model_validator(mode="after")
    def _tls_is_complete(self) -> Self:
        if bool(self.zk_tls_certificate) != bool(self.zk_tls_key):
            raise ValueError("ARKLINE_ZK_TLS_CERTIFICATE and ARKLINE_ZK_TLS_KEY need each other")
        if self.zk_tls_certificate and not self.zk_tls_ca:
            raise ValueError("ARKLINE_ZK_TLS_CERTIFICATE needs ARKLINE_ZK_TLS_CA")
        return self

    @model_validator(mode="after")
    def _user_has_a_password(self) -> Self:
        if bool(self.zk_user) != bool(self.zk_password.get_secret_value()):
            raise ValueError("ARKLINE_ZK_USER and ARKLINE_ZK_PASSWORD need each other")
        return self
