"""Settings, all from the environment: `ARKLINE_` and the field's name in capitals."""

import re
from functools import cached_property
from ipaddress import IPv4Network, IPv6Network
from pathlib import Path
from typing import Annotated

from pydantic import Field, SecretStr, field_validator
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

Seconds = Annotated[float, Field(gt=0)]
Bytes = Annotated[int, Field(ge=0)]


class Settings(BaseSettings):
    model_config = SettingsConfigDict(env_prefix="ARKLINE_", frozen=True, extra="ignore")

    zk_hosts: str = Field("127.0.0.1:2181", description="ZooKeeper servers, host:port, comma separated.")
    zk_root: str = Field("/", description="The znode below which everything is kept.")
    zk_session_timeout: Seconds = Field(
        20,
        description="Seconds after which a dead worker's locks are free; the server allows 2 to 20 ticks.",
    )
    zk_user: str = Field("", description="User of ZooKeeper's digest scheme; empty: no authentication.")
    zk_password: SecretStr = Field(SecretStr(""), description="Password of zk_user.")
    broker_url: str = Field("redis://127.0.0.1:6379/0", description="Redis or Valkey, for Celery's messages.")
    broker_prefix: str = Field("arkline:", description="Prefix of every key in Redis.")

    home: Path = Field(Path("var"), description="Folder of everything below that has no setting of its own.")
    working_storage: Path | None = Field(
        None, description="Jobs' working directories, shared by all workers; default HOME/working."
    )
    storage_root: Path | None = Field(None, description="OCFL storage root; default HOME/ocfl.")
    outbox: Path | None = Field(
        None, description="Mail is written here unless smtp_host is set; default HOME/outbox."
    )
    inventory_url: str = Field("", description="SQLAlchemy URL of the inventory; default sqlite in HOME.")
    profiles: Path = Field(
        default_factory=lambda values: values.get("home", Path("var")) / "profiles",
        description="Folder of the collections' profiles, NAME.yaml; default HOME/profiles.",
    )

    working_threshold: Annotated[int, Field(ge=1, le=100)] = Field(
        80, description="Percent of working storage that may be used or promised."
    )
    working_capacity: Bytes = Field(
        0, description="Bytes of working storage to use at most; 0: what the file system has."
    )
    in_flight: Annotated[int, Field(ge=1)] = Field(
        64,
        description="Jobs taken up at a time; the others wait in ZooKeeper, where priority still counts.",
    )
    max_tries: Annotated[int, Field(ge=1)] = Field(
        5, description="Tries of a step that meets passing faults, before the job fails."
    )
    max_redispatches: Annotated[int, Field(ge=1)] = Field(
        10, description="Times a job may lose its worker in one state, before it fails."
    )
    backoff: Seconds = Field(5, description="Seconds before the second try; doubles with each further one.")
    backoff_limit: Seconds = Field(600, description="Seconds between two tries at most.")
    stalled_after: Seconds = Field(
        60,
        description="Seconds in which a worker with a free process takes none of the waiting messages, "
        "before it ends itself.",
    )
    stop_grace: Seconds = Field(
        30,
        description="Seconds that running steps have to end when a worker stops; then they are handed back.",
    )
    retention: Seconds = Field(30 * 86400, description="Seconds that a completed batch stays in ZooKeeper.")

    allow_networks: Annotated[tuple[IPv4Network | IPv6Network, ...], NoDecode] = Field(
        (),
        description="Private networks that content may come from, comma separated: 127.0.0.0/8,10.1.0.0/16.",
    )
    download_threads: Annotated[int, Field(ge=1, le=64)] = Field(
        4, description="Files of one job fetched at a time."
    )
    host_limit: Annotated[int, Field(ge=0)] = Field(
        32, description="Connections that the whole fleet has open to one source's host; 0: no limit."
    )
    connect_timeout: Seconds = Field(10, description="Seconds to wait for a connection to a source.")
    read_timeout: Seconds = Field(60, description="Seconds to wait for the next bytes from a source.")
    fetch_tries: Annotated[int, Field(ge=1)] = Field(4, description="Tries of one file without any progress.")
    manifest_limit: Bytes = Field(5_000_000, description="Bytes of a batch manifest at most.")
    object_manifest_limit: Bytes = Field(50_000_000, description="Bytes of an object manifest at most.")
    object_files: Annotated[int, Field(ge=1)] = Field(
        100_000, description="Files that an object manifest lists at most."
    )
    container_entries: Annotated[int, Field(ge=1)] = Field(
        100_000, description="Files in a container at most."
    )
    container_ratio: Annotated[int, Field(ge=1)] = Field(
        200, description="Times that a container may grow when unpacked."
    )
    container_bytes: Bytes = Field(1 << 40, description="Bytes of an unpacked container at most.")

    s3_root: str = Field(
        "",
        description="OCFL storage root in S3, in place of storage_root: s3://bucket/prefix; "
        "credentials and region come from where boto3 looks for them.",
    )
    s3_endpoint: str = Field("", description="URL of an S3 server other than Amazon's.")

    storage_service_url: str = Field(
        "", description="Merritt storage service that keeps the objects; empty: the OCFL storage root."
    )
    storage_service_node: Annotated[int, Field(ge=0)] = Field(
        0, description="Its storage node for profiles that name none."
    )
    storage_service_timeout: Seconds = Field(
        48 * 3600, description="Seconds to wait for it to make a version: it fetches all files first."
    )
    storage_service_look_again: Seconds = Field(
        300,
        description="Seconds before what its lost answer left is looked at: it may still be at work on it.",
    )
    working_storage_url: str = Field(
        "",
        description="URL of working storage, from which the storage service fetches files; "
        "empty: it has the same disk and is told file: URLs.",
    )

    ezid_url: str = Field(
        "", description="EZID, where minted ARKs are registered: https://ezid.cdlib.org; empty: nowhere."
    )
    ezid_user: str = Field("", description="EZID's user, who may write below the profiles' shoulders.")
    ezid_password: SecretStr = Field(SecretStr(""), description="Password of ezid_user.")
    ezid_timeout: Seconds = Field(30, description="Seconds to wait for EZID's answer.")
    ezid_target: str = Field(
        "",
        description="Where a registered ARK leads, {ark} for the ARK: https://example.org/m/{ark}; "
        "empty: EZID's own page.",
    )

    smtp_host: str = Field("", description="SMTP server; empty: mail is written to the outbox.")
    smtp_port: Annotated[int, Field(ge=1, le=65535)] = Field(25, description="Its port.")
    smtp_user: str = Field("", description="Login, if it wants one.")
    smtp_password: SecretStr = Field(SecretStr(""), description="Password of smtp_user.")
    smtp_tls: bool = Field(False, description="Encrypt from the first byte on, usually on port 465.")
    smtp_starttls: bool = Field(False, description="Encrypt by STARTTLS before anything is said.")
    mail_from: str = Field("arkline@localhost", description="Sender of mail.")
    callback_timeout: Seconds = Field(60, description="Seconds to wait for a callback's answer.")
    callback_secret: SecretStr = Field(
        SecretStr(""),
        description="Signs callbacks, 16 bytes at least, unless NAME.secret beside a profile has its own.",
    )

    log_level: str = Field("INFO", description="DEBUG, INFO, WARNING or ERROR.")

    @field_validator("allow_networks", mode="before")
    @classmethod
    def _split(cls, value: object) -> object:
        if isinstance(value, str):
            return tuple(part.strip() for part in value.split(",") if part.strip())
        return value

    @field_validator("s3_root")
    @classmethod
    def _is_s3(cls, value: str) -> str:
        if value and not re.fullmatch(r"s3://[A-Za-z0-9][\w.-]+(/.*)?", value):
            raise ValueError(f"'{value}' is not s3://BUCKET or s3://BUCKET/PREFIX")
        return value

    @field_validator("storage_root")
    @classmethod
    def _is_folder(cls, value: Path | None) -> Path | None:
        if value is not None and value.parts[:1] == ("s3:",):
            raise ValueError("it is a folder; a storage root in S3 is named by ARKLINE_S3_ROOT")
        return value

    @cached_property
    def working(self) -> Path:
        return (self.working_storage or self.home / "working").absolute()

    @cached_property
    def storage(self) -> Path:
        return (self.storage_root or self.home / "ocfl").absolute()

    @cached_property
    def outbox_folder(self) -> Path:
        return (self.outbox or self.home / "outbox").absolute()

    @cached_property
    def inventory(self) -> str:
        return self.inventory_url or f"sqlite:///{(self.home / 'inventory.sqlite').absolute()}"
