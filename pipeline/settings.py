"""Settings, all from the environment: `ARKLINE_` and the field's name in capitals."""

import re
from functools import cached_property
from pathlib import Path
from typing import Annotated, Self

from pydantic import AliasChoices, Field, SecretStr, field_validator, model_validator
from pydantic_settings import NoDecode, SettingsConfigDict

from pipeline.allowed_networks import AllowedNetwork, read_networks
from pipeline.interface_settings import InterfaceSettings
from pipeline.server_settings import ServerSettings
from pipeline.setting_paths import absolute

Seconds = Annotated[float, Field(gt=0)]
Bytes = Annotated[int, Field(ge=0)]
Positive = Annotated[int, Field(ge=1)]


class Settings(ServerSettings, InterfaceSettings):
    model_config = SettingsConfigDict(
        env_prefix="ARKLINE_",
        frozen=True,
        extra="ignore",
        validate_by_name=True,
        validate_by_alias=True,
        hide_input_in_errors=True,  # it may be a secret
    )

    home: Path = Field(Path("var"), description="Parent folder of all data folders that have no setting.")
    working_storage: Path | None = Field(
        None, description="Working directories of jobs, shared by all workers; default HOME/working."
    )
    storage_root: Path | None = Field(None, description="OCFL storage root; default HOME/ocfl.")
    outbox: Path | None = Field(
        None, description="Mail is written to this folder unless smtp_host is set; default HOME/outbox."
    )
    uploads: Path | None = Field(
        None,
        description="What depositors upload, shared by all workers and the web server; default HOME/uploads.",
    )
    upload_bytes: Positive = Field(100 << 30, description="Maximum bytes of an uploaded file.")
    upload_bytes_of_owner: Positive = Field(
        1 << 40, description="Maximum bytes that the holder of a token has in the folder of uploads."
    )
    uploads_of_owner: Positive = Field(
        100_000,
        description="Maximum uploads, and files in them together, that the holder of a token has there.",
    )
    upload_days: Annotated[float, Field(gt=0)] = Field(
        7, description="Days after which an upload is removed that no unfinished batch was made of."
    )
    inventory_url: str = Field("", description="SQLAlchemy URL of the inventory; default SQLite in HOME.")
    profiles: Path = Field(
        default_factory=lambda values: values.get("home", Path("var")) / "profiles",
        description="Folder of the collections' profiles, NAME.yaml; default HOME/profiles.",
    )

    working_threshold: Annotated[int, Field(ge=1, le=100)] = Field(
        80, description="Percent of working storage that may be used or reserved."
    )
    working_capacity: Bytes = Field(
        0, description="Maximum bytes of working storage; 0: the size of the file system."
    )
    in_flight: Annotated[int, Field(ge=1)] = Field(
        64,
        description="Maximum jobs in progress; the others wait in ZooKeeper, in the order of their priority.",
    )
    share_of_places: Annotated[int, Field(ge=1, le=100)] = Field(
        75, description="Maximum percent of the in_flight places for one submitter, or one collection."
    )
    share_of_processes: Annotated[int, Field(ge=1, le=100)] = Field(
        75, description="The same for the processes that are busy, while jobs of others wait for one."
    )
    waiting_limit: Annotated[int, Field(ge=0)] = Field(
        1000, description="Maximum jobs that wait with a part of working storage and take no place."
    )
    record_jobs: Annotated[int, Field(ge=0)] = Field(
        120_000,
        description="Jobs in ZooKeeper, ended ones included, from which on nothing is submitted or split; a "
        "job needs some 12 kB of ZooKeeper's heap, and a smaller heap than 2 GB lowers the number; 0: no "
        "limit.",
    )
    live_jobs: Positive = Field(
        100_000, description="Maximum jobs of a collection that have not ended; or as in the profile."
    )
    submitter_jobs: Positive = Field(
        100_000, description="Maximum jobs of a submitter, in all collections, that have not ended."
    )
    batch_jobs: Positive = Field(100_000, description="Maximum objects of a batch; or as in the profile.")
    object_bytes: Positive = Field(1 << 40, description="Maximum bytes of an object; or as in the profile.")
    recipients: Positive = Field(20, description="Maximum mail addresses of a report; or as in the profile.")
    max_tries: Annotated[int, Field(ge=1)] = Field(
        33,
        description="Tries of a step with transient faults of the job itself, before the job fails; with the "
        "default delays, some 12 hours. A fault of a shared service counts as none.",
    )
    max_redispatches: Annotated[int, Field(ge=1)] = Field(
        10, description="Times that a job or a batch may lose its worker in one state, before it fails."
    )
    backoff: Seconds = Field(5, description="Seconds before the second try; doubled for every further try.")
    backoff_limit: Seconds = Field(1800, description="Maximum seconds between two tries.")
    stalled_after: Seconds = Field(
        60,
        validation_alias=AliasChoices("ARKLINE_STALLED_AFTER", "ARKLINE_DEAF_AFTER"),
        description="A worker restarts after so many seconds with an idle process and a queued message that "
        "it does not consume.",
    )
    stop_grace: Seconds = Field(
        1,
        description="Seconds that a stopping worker waits for running steps; then it hands their jobs back.",
    )
    retention: Seconds = Field(30 * 86400, description="Seconds that a completed batch stays in ZooKeeper.")

    fixity_days: Annotated[int, Field(ge=0)] = Field(
        90,
        description="Days within which every stored file is read again, unless the profile has its own "
        "fixity_days; 0: never.",
    )
    fixity_rate: Bytes = Field(
        20_000_000,
        description="Maximum bytes per second that all workers together read again for fixity; 0: no limit. "
        "20 MB per second reads 155 TB in 90 days.",
    )
    operator_mail: str = Field(
        "",
        description="Mail address for notices to the operator, such as damage in storage and outages.",
    )

    allow_networks: Annotated[tuple[AllowedNetwork, ...], NoDecode] = Field(
        (),
        description="Private networks that content may come from, comma separated, with ports if not "
        "all of them are meant: 127.0.0.0/8,10.1.0.0/16:8080,9000-9010,[fd00::/8]:443.",
    )
    download_threads: Annotated[int, Field(ge=1, le=64)] = Field(
        4, description="Files of one job downloaded at a time."
    )
    host_limit: Annotated[int, Field(ge=0)] = Field(
        32, description="Maximum connections of all workers together to one source host; 0: no limit."
    )
    connect_timeout: Seconds = Field(10, description="Seconds to wait for a connection to a source.")
    read_timeout: Seconds = Field(60, description="Seconds to wait for the next bytes from a source.")
    headers_timeout: Seconds = Field(
        120,
        description="Seconds from a request until the headers of its answer are complete, the connection and "
        "all redirects included; at least connect_timeout and read_timeout together.",
    )
    transfer_limit: Seconds = Field(
        86400,
        description="Seconds that one answer may last; then the file is requested again, from where it "
        "stopped if its source can continue it.",
    )
    min_speed: Bytes = Field(
        1000,
        description="Minimum bytes per second of all files of a job together; a slower download is tried "
        "again later; 0: no minimum.",
    )
    slow_after: Seconds = Field(60, description="Seconds over which the speed of a download is measured.")
    download_turn: Seconds = Field(
        3600,
        description="Seconds after which a download that its source can continue gives its place to other "
        "jobs; it continues later.",
    )
    fetch_tries: Annotated[int, Field(ge=1)] = Field(
        4, description="Tries of one file without a new byte; one if its host lets a timeout pass."
    )
    manifest_limit: Bytes = Field(50_000_000, description="Maximum bytes of a batch manifest.")
    object_manifest_limit: Bytes = Field(50_000_000, description="Maximum bytes of an object manifest.")
    object_files: Annotated[int, Field(ge=1)] = Field(
        100_000, description="Maximum files in an object manifest."
    )
    container_entries: Annotated[int, Field(ge=1)] = Field(
        100_000, description="Maximum files and folders in a container."
    )
    container_ratio: Annotated[int, Field(ge=1)] = Field(
        200, description="Maximum expansion ratio of a container."
    )
    decoding_memory: Annotated[int, Field(ge=100_000_000)] = Field(
        300_000_000,
        description="Maximum bytes of memory of the process that reads a container, a large manifest, or the "
        "lists and descriptions in a deposit; the same holds for all.",
    )
    decoding_seconds: Annotated[int, Field(ge=1)] = Field(
        60,
        description="Seconds of processor time that such a process may use, beside one for each megabyte "
        "and for each 1,000 files that it unpacks or checks.",
    )
    container_bytes: Bytes = Field(1 << 40, description="Maximum bytes of an unpacked container.")

    s3_root: str = Field(
        "",
        description="OCFL storage root in S3, instead of storage_root: s3://bucket/prefix; "
        "credentials and region are those of boto3.",
    )
    s3_endpoint: str = Field("", description="URL of an S3 server other than Amazon's.")

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

    ezid_url: str = Field(
        "",
        description="URL of EZID, where minted ARKs are registered: https://ezid.cdlib.org; empty: nowhere.",
    )
    ezid_user: str = Field("", description="EZID user that may write below the shoulders of the profiles.")
    ezid_password: SecretStr = Field(SecretStr(""), description="Password of ezid_user.")
    ezid_timeout: Seconds = Field(30, description="Seconds to wait for a response of EZID.")
    ezid_target: str = Field(
        "",
        description="Target URL of a registered ARK, with {ark} for the ARK: https://example.org/m/{ark}; "
        "empty: EZID's own page.",
    )

    smtp_host: str = Field("", description="SMTP server; empty: mail is written to the outbox.")
    smtp_port: Annotated[int, Field(ge=1, le=65535)] = Field(25, description="Port of the SMTP server.")
    smtp_user: str = Field("", description="User of the SMTP server; empty: no login.")
    smtp_password: SecretStr = Field(SecretStr(""), description="Password of smtp_user.")
    smtp_tls: bool = Field(False, description="TLS from the first byte on, usually on port 465.")
    smtp_starttls: bool = Field(False, description="TLS by STARTTLS, before login and mail.")
    mail_from: str = Field("arkline@localhost", description="Sender address of mail.")
    callback_timeout: Seconds = Field(
        60, description="Seconds to wait for the response to a callback, the connection included."
    )
    callback_secret: SecretStr = Field(
        SecretStr(""),
        description="Key to sign callbacks, at least 16 bytes; NAME.secret beside a profile overrides it.",
    )

    log_level: str = Field("INFO", description="DEBUG, INFO, WARNING or ERROR.")

    @field_validator("allow_networks", mode="before")
    @classmethod
    def _networks(cls, value: object) -> object:
        return read_networks(value) if isinstance(value, str) else value

    @field_validator("s3_root")
    @classmethod
    def _is_s3(cls, value: str) -> str:
        if value and not re.fullmatch(r"s3://[A-Za-z0-9][\w.-]+(/.*)?", value):
            raise ValueError(f"'{value}' is not s3://BUCKET or s3://BUCKET/PREFIX")
        return value

    @model_validator(mode="after")
    def _inventory_service_reads_storage_service(self) -> Self:
        if self.inventory_service_url and not self.storage_service_url:
            raise ValueError(
                "inventory_service_url needs storage_service_url: the inventory service reads versions there"
            )
        return self

    @field_validator("storage_root")
    @classmethod
    def _is_folder(cls, value: Path | None) -> Path | None:
        if value is not None and value.parts[:1] == ("s3:",):
            raise ValueError("storage_root is a folder; use ARKLINE_S3_ROOT for a storage root in S3")
        return value

    @cached_property
    def data(self) -> Path:
        """HOME, absolute."""
        return absolute(self.home, "ARKLINE_HOME")

    @cached_property
    def working(self) -> Path:
        given = self.working_storage
        return absolute(given, "ARKLINE_WORKING_STORAGE") if given else self.data / "working"

    @cached_property
    def storage(self) -> Path:
        given = self.storage_root
        return absolute(given, "ARKLINE_STORAGE_ROOT") if given else self.data / "ocfl"

    @cached_property
    def outbox_folder(self) -> Path:
        return absolute(self.outbox, "ARKLINE_OUTBOX") if self.outbox else self.data / "outbox"

    @cached_property
    def uploads_folder(self) -> Path:
        return absolute(self.uploads, "ARKLINE_UPLOADS") if self.uploads else self.data / "uploads"

    @cached_property
    def inventory(self) -> str:
        if relative := re.fullmatch("sqlite:///([^/].*)", self.inventory_url):
            return f"sqlite:///{absolute(Path(relative[1]), 'the file in ARKLINE_INVENTORY_URL')}"
        return self.inventory_url or f"sqlite:///{self.data / 'inventory.sqlite'}"
