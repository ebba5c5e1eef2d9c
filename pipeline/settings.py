"""Settings, all from the environment: `ARKLINE_` and the field's name in capitals."""

import difflib
import os
import re
from collections.abc import Iterator
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Literal, Self, TypeVar
from urllib.parse import parse_qs, urlsplit

from pydantic import (
    AliasChoices,
    BeforeValidator,
    Field,
    SecretStr,
    ValidationError,
    field_validator,
    model_validator,
)
from pydantic_settings import (
    BaseSettings,
    NoDecode,
    PydanticBaseSettingsSource,
    SecretsSettingsSource,
    SettingsConfigDict,
)

from pipeline.allowed_networks import AllowedNetwork, read_networks
from pipeline.errors import UsageRefused


def absolute(path: Path, variable: str) -> Path:
    """UsageRefused for a relative path, unless all processes of the checkout share the current folder."""
    in_checkout = Path("pyproject.toml").is_file() and Path.cwd() == Path(__file__).resolve().parents[1]
    if not path.is_absolute() and not in_checkout:
        raise UsageRefused(
            f"{variable} is the relative path '{path}', so that processes in different folders would work on "
            "different data: set it to an absolute path"
        )
    return path.absolute()


GONE = {
    "CALLBACK_TIMEOUT": "now 60 seconds",
    "EZID_TIMEOUT": "now 30 seconds",
    "BACKOFF_LIMIT": "now 30 minutes",
    "CONTAINER_RATIO": "now 200",
    "CONTAINER_BYTES": "now ARKLINE_OBJECT_BYTES",
    "CONTAINER_ENTRIES": "now ARKLINE_OBJECT_FILES",
    "OBJECT_MANIFEST_LIMIT": "now ARKLINE_MANIFEST_LIMIT",
    "DECODING_SECONDS": "now 60 seconds",
    "SHARE_OF_PROCESSES": "now 75 percent",
    "WAITING_LIMIT": "now 1,000 jobs",
    "HEADERS_TIMEOUT": "now two minutes, or ARKLINE_CONNECT_TIMEOUT and ARKLINE_READ_TIMEOUT together",
    "TRANSFER_LIMIT": "now a day",
    "SLOW_AFTER": "now 60 seconds",
    "DOWNLOAD_TURN": "now an hour",
    "MESSAGE_KEY": "messages have no signature",
    "MESSAGE_UNSIGNED": "messages have no signature",
}
"""Removed settings of 0.2.1 -> what replaces them."""

_SIMILAR = 0.8
"""The variables of plugins, of commands and of the compose file are less similar to a setting
(`tests/unit/test_settings.py`)."""


def ignored_settings() -> Iterator[str]:
    """A message for every environment variable that was a setting of an earlier release, or is misspelled."""
    upper = (name.upper() for name in os.environ)
    settings = [name.upper() for name in Settings.model_fields]
    for name in sorted(name.removeprefix(_PREFIX) for name in upper if name.startswith(_PREFIX)):
        longer = any(name.startswith(f"{setting}_") for setting in settings)  # as those of plugins
        if name in GONE:
            yield f"ARKLINE_{name} is ignored: it is no setting any more ({GONE[name]})"
        elif (
            name not in settings
            and not longer
            and (near := difflib.get_close_matches(name, settings, 1, _SIMILAR))
        ):
            yield f"ARKLINE_{name} is ignored: it is no setting; did you mean ARKLINE_{near[0]}?"


_PREFIX = "ARKLINE_"

SECRETS = "ARKLINE_SECRETS"
"""Environment variable with the folder of secrets: its file arkline_zk_password holds ARKLINE_ZK_PASSWORD."""


_SCHEMES = ("redis", "rediss", "unix")
_NUMBER = re.compile(r"/?\d*")
_OPTION = re.compile(
    r"db|username|password|client_name|protocol|max_connections|health_check_interval|retry_on_timeout|timeout"
    r"|(?:ssl|socket)_\w+"
)
"""Options of a URL of Redis that the library knows: with others, its connections fail one by one."""

LogLevel = Annotated[Literal["DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL"], BeforeValidator(str.upper)]
Seconds = Annotated[float, Field(gt=0)]
Bytes = Annotated[int, Field(ge=0)]
Positive = Annotated[int, Field(ge=1)]


class EnvironmentSettings(BaseSettings):
    """Settings of the core or a plugin: from the environment, else from the folder in ARKLINE_SECRETS."""

    model_config = SettingsConfigDict(
        env_prefix=_PREFIX,
        frozen=True,
        extra="ignore",
        validate_by_name=True,
        validate_by_alias=True,
        hide_input_in_errors=True,  # the input may be a secret
    )

    @classmethod
    def settings_customise_sources(
        cls, settings_cls: type[BaseSettings], *sources: Any, **named: Any
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        folder = os.environ.get(SECRETS)
        if folder and Path(folder).expanduser().is_file():
            raise UsageRefused(
                f"{SECRETS} is '{folder}', which is no folder: name the folder of the secrets' files"
            )
        files = (SecretsSettingsSource(settings_cls, folder),) if folder else ()
        return (named["init_settings"], named["env_settings"], *files)


S = TypeVar("S", bound=EnvironmentSettings)


def read_settings(kind: type[S]) -> S:
    """Read the settings from the environment; UsageRefused names every invalid variable, with the reason."""
    try:
        return kind()
    except ValidationError as error:
        problems = error.errors(include_url=False, include_input=False)
        messages = [
            ": ".join((*map(_variable, problem["loc"][:1]), problem["msg"].removeprefix("Value error, ")))
            for problem in problems
            if problem["type"] != "default_factory_not_called"  # the default of another setting
        ]
        raise UsageRefused("; ".join(messages)) from error


def _variable(name: int | str) -> str:
    """The variable of a setting; for a setting with an earlier name, `name` is already the variable."""
    return f"ARKLINE_{str(name).upper().removeprefix('ARKLINE_')}"


def _servers(zk_hosts: str) -> tuple[tuple[str, int], ...]:
    """Host and port of each server; what follows a slash is a path, as kazoo reads it."""
    return tuple(map(_server, zk_hosts.partition("/")[0].split(",")))


def _server(text: str) -> tuple[str, int]:
    try:
        parts = urlsplit(f"//{text.lstrip()}")
        host, port = parts.hostname, parts.port
    except ValueError:
        host, port = None, None
    if not host or re.search(r"[\s;@]", parts.netloc) or parts.netloc.endswith(":"):
        raise ValueError(
            f"'{text}' names no server: write host:port, or [IPv6 address]:port; with commas between"
        )
    return host, port or 2181


class Settings(EnvironmentSettings):
    zk_hosts: str = Field("127.0.0.1:2181", description="ZooKeeper servers, host:port, comma separated.")
    zk_root: str = Field("/", description="The znode that contains all others.")
    zk_session_timeout: Annotated[float, Field(ge=1, le=3600)] = Field(
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
    zk_client: Literal["direct", "kazoo"] = Field(
        "direct",
        description="Connection to ZooKeeper: direct, which takes a fifth less CPU for a job, or kazoo, that "
        "library's own.",
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
    min_speed: Bytes = Field(
        1000,
        description="Minimum bytes per second of all files of a job together; a slower download is tried "
        "again later; 0: no minimum.",
    )
    fetch_tries: Annotated[int, Field(ge=1)] = Field(
        4, description="Tries of one file without a new byte; one if its host lets a timeout pass."
    )
    manifest_limit: Bytes = Field(50_000_000, description="Maximum bytes of a manifest.")
    object_files: Annotated[int, Field(ge=1)] = Field(
        100_000, description="Maximum files in an object manifest, and files and folders in a container."
    )
    decoding_memory: Annotated[int, Field(ge=100_000_000)] = Field(
        300_000_000,
        description="Maximum bytes of memory of the process that reads a container, a spreadsheet, a large "
        "manifest, or the lists and descriptions in a deposit; the same holds for all.",
    )
    ezid_url: str = Field(
        "",
        description="URL of EZID, where minted ARKs are registered: https://ezid.cdlib.org; empty: nowhere.",
    )
    ezid_user: str = Field("", description="EZID user that may write below the shoulders of the profiles.")
    ezid_password: SecretStr = Field(SecretStr(""), description="Password of ezid_user.")
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
    public_url: str = Field(
        "",
        pattern=r"^(https?://[^\s/?#]+(/[^\s?#]*)?)?$",
        description="Address of the site's pages, without a path, as https://deposit.example.org, for "
        "links in mails and in Flower; empty: they have no links.",
    )
    callback_secret: SecretStr = Field(
        SecretStr(""),
        description="Key to sign callbacks, at least 16 bytes; NAME.secret beside a profile overrides it.",
    )
    log_level: LogLevel = Field("INFO", description="DEBUG, INFO, WARNING or ERROR.")

    @field_validator("broker_url")
    @classmethod
    def _is_of_redis(cls, value: str) -> str:
        with suppress(ValueError):  # the error's text may quote the password
            parts = urlsplit(value)
            _ = parts.port
            place = parts.path if parts.scheme == "unix" else parts.hostname and _NUMBER.fullmatch(parts.path)
            known = all(map(_OPTION.fullmatch, parse_qs(parts.query, keep_blank_values=True)))
            if parts.scheme in _SCHEMES and place and known and "#" not in value:
                return value
        raise ValueError(
            "write redis://:PASSWORD@HOST:PORT/NUMBER; in the password '/' is %2F, '@' %40, '#' %23, '?' %3F"
        )

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

    @field_validator("allow_networks", mode="before")
    @classmethod
    def _networks(cls, value: object) -> object:
        return read_networks(value) if isinstance(value, str) else value

    @field_validator("zk_hosts")
    @classmethod
    def _names_servers(cls, value: str) -> str:
        _servers(value)
        return value

    @field_validator("zk_root")
    @classmethod
    def _is_znode(cls, value: str) -> str:
        if not re.fullmatch(r"/|(/[^/\s]+)+/?", value):
            raise ValueError("write the path of a znode, as /arkline")
        return value

    @field_validator("public_url")
    @classmethod
    def _has_no_slash_at_its_end(cls, value: str) -> str:
        return value.rstrip("/")

    @field_validator("storage_root")
    @classmethod
    def _is_folder(cls, value: Path | None) -> Path | None:
        if value is not None and value.parts[:1] == ("s3:",):
            raise ValueError("storage_root is a folder; use ARKLINE_S3_ROOT for a storage root in S3")
        return value

    @property
    def zk_servers(self) -> tuple[tuple[str, int], ...]:
        """Host and port of each ZooKeeper server; an IPv6 address has no brackets."""
        return _servers(self.zk_hosts)

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


JOB_BYTES = 12_000
"""Bytes of ZooKeeper's heap for one job with a long history (decision 48)."""

PERCENT = 70
"""Percent of the heap for jobs; the rest is for the server's own work."""


def accepted_jobs(settings: Settings, heap_bytes: int | None) -> int:
    """The number of jobs at which submissions and splits stop; 0: no limit.

    `heap_bytes`: ZooKeeper's heap, if known; a smaller heap lowers the setting.
    """
    if not settings.record_jobs or heap_bytes is None:
        return settings.record_jobs
    return min(settings.record_jobs, heap_bytes * PERCENT // 100 // JOB_BYTES)


def limit_of(settings: Settings, heap_bytes: int | None) -> str:
    """The name of the limit that applies, for messages."""
    if heap_bytes is None or accepted_jobs(settings, heap_bytes) == settings.record_jobs:
        return "ARKLINE_RECORD_JOBS"
    return f"the maximum for ZooKeeper's heap of {heap_bytes >> 20:,} MB"
