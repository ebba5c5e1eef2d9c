"""Collection profiles: the owner of submitted objects, and the rules for naming, storing and reporting.

A profile is YAML, or Merritt's text format (`Key: value` lines).
"""

import codecs
import difflib
import re
import time
from collections.abc import Callable, Iterable, Iterator
from enum import StrEnum
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple
from urllib.parse import urlsplit, urlunsplit

import yaml
from pydantic import (
    AnyHttpUrl,
    BaseModel,
    ConfigDict,
    Field,
    StringConstraints,
    ValidationError,
    field_validator,
    model_validator,
)
from pydantic_core import ErrorDetails

from pipeline import codes
from pipeline.checks import CheckRule, require_installed
from pipeline.errors import Action, Remedy, UsageRefused
from pipeline.names import ARK_CHARACTERS, ARK_PATTERN, quote_name
from pipeline.profiles.sources import Sources, SourceText
from pipeline.records import Priority, ResponseType
from pipeline.settings import Settings

_FIELD = {
    "ProfileID": "name",
    "ProfileDescription": "description",
    "Identifier-namespace": "naan",
    "Type": "object_type",
    "Role": "object_role",
    "Aggregate": "aggregate_role",
    "Owner": "owner",
    "NotificationSuppression": "notification_suppression",
    "NotificationFormat": "notification_format",
    "CallbackURL": "callback_url",
    "StorageNode": "storage_node",
    "Priority": "priority",
    "Context": "context",
    "EZID_co-owner": "ezid_co_owner",
    "SuppressDublinCoreLocalID": "suppress_dublin_core_local_id",
}
_LISTS = {"Collection": "collections", "Notification": "notification"}
_READ = {*_FIELD, "Identifier-scheme", "ObjectMinterURL", "NotificationType"}
_MINTER = re.compile(r".*/shoulder/ark:/?(\d+)/([a-z0-9]*)/?")
_NUMBERED = re.compile(r"(\w+)\.(\d+)")


class MalformedText(UsageRefused):
    """A text profile that cannot be parsed; the message has the line number."""


class _Line(NamedTuple):
    number: int
    key: str
    value: str


def read_merritt_text(text: str) -> tuple[dict[str, object], tuple[str, ...]]:
    """The fields of the text, not yet validated, and a warning for every ignored key."""
    lines = tuple(_lines(text))
    given = {line.key: line for line in lines if line.value}
    fields: dict[str, object] = {_FIELD[key]: line.value for key, line in given.items() if key in _FIELD}
    fields |= _lists(lines)
    scheme = given.get("Identifier-scheme")
    if scheme and scheme.value.upper() != "ARK":
        raise MalformedText(
            f"line {scheme.number}: {scheme.value} is not supported; the only identifier scheme is ARK"
        )
    if minter := given.get("ObjectMinterURL"):
        fields |= _shoulder(minter)
    for name in ("notification_suppression", "notification_format"):
        if name in fields:
            fields[name] = str(fields[name]).lower()
    # Merritt confirms a queued batch by mail unless mail is suppressed or sent for every object (verbose).
    verbose = "NotificationType" in given and given["NotificationType"].value.lower() == "verbose"
    suppressed = fields.get("notification_suppression", "none") != "none"
    fields["confirmation_mail"] = not (verbose or suppressed)
    return fields, _ignored(lines)


def _lists(lines: Iterable[_Line]) -> dict[str, object]:
    values: dict[str, list[tuple[int, str]]] = {}
    for line in lines:
        numbered = _NUMBERED.fullmatch(line.key)
        if numbered and numbered[1] in _LISTS:
            values.setdefault(_LISTS[numbered[1]], []).append((int(numbered[2]), line.value))
    return {name: [value for _, value in sorted(numbered)] for name, numbered in values.items()}


def _ignored(lines: Iterable[_Line]) -> tuple[str, ...]:
    """Warnings about ignored keys; a numbered list has one warning for all its keys."""
    warnings: dict[str, str] = {}
    for line in lines:
        stem = _NUMBERED.sub(r"\1", line.key)
        if line.key not in _READ and stem not in _LISTS:
            warnings.setdefault(stem, f"line {line.number}: {stem} is not supported and is ignored")
    return tuple(warnings.values())


def _lines(text: str) -> Iterator[_Line]:
    line_of: dict[str, int] = {}
    for number, line in enumerate(text.splitlines(), 1):
        stripped = line.strip()
        if not stripped or stripped.startswith("#"):
            continue
        key, colon, value = (part.strip() for part in stripped.partition(":"))
        if not colon:
            raise MalformedText(
                f"line {number}: expected 'Key: value', a comment after '#', or an empty line"
            )
        if key in line_of:
            raise MalformedText(f"line {number}: {key} was already given on line {line_of[key]}")
        line_of[key] = number
        yield _Line(number, key, value)


def _shoulder(line: _Line) -> dict[str, object]:
    """NAAN and shoulder from the URL of Merritt's minter; a setting chooses the minter itself."""
    match = _MINTER.fullmatch(line.value)
    if match is None:
        raise MalformedText(
            f"line {line.number}: {line.key} must end with /shoulder/ark:/NAAN/SHOULDER, as in "
            ".../shoulder/ark:/99999/fk4"
        )
    return {"naan": match[1], "shoulder": match[2]}


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


_NAME = r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,127}$"
_SUFFIXES = (".yaml", ".txt")
_MISTAKEN = (".yml", ".json", ".YAML", ".TXT")
_AN_ARK = "an ARK such as ark:/99999/fk4abc"

Ark = Annotated[str, StringConstraints(pattern=ARK_PATTERN)]
ArkPrefix = Annotated[str, StringConstraints(pattern=rf"^ark:/[0-9]{{5,9}}/[{ARK_CHARACTERS}]*$")]
Mail = Annotated[str, StringConstraints(pattern=r"^[^@\s,;<>]+@[^@\s,;<>]+$")]


class ProfileError(UsageRefused):
    code = codes.PROFILE_ERROR

    def __init__(self, message: str, faults: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.faults = faults or (message,)


class UnknownProfile(ProfileError):
    """There is no profile with this name."""


class Suppression(StrEnum):
    """The mail that is not sent."""

    NONE = "none"
    PARTIAL = "partial"
    FULL = "full"


class MinterName(StrEnum):
    """The minter of ARKs for new objects."""

    LOCAL = "local"
    EZID = "ezid"


class Profile(BaseModel):
    """The rules of one collection; a field's description says which values it may have."""

    model_config = ConfigDict(frozen=True, extra="forbid", coerce_numbers_to_str=True)
    name: Annotated[str, StringConstraints(pattern=_NAME)] = Field(
        description="the name of the file: letters, digits, '_', '.' and '-'"
    )
    description: str = Field("", description="a text")
    owner: Ark = Field(description=_AN_ARK)
    collections: tuple[Ark, ...] = Field(min_length=1, description=f"a list of ARKs; an item is {_AN_ARK}")
    identifier_scheme: Literal["ark"] = Field("ark", description="ark, the only supported scheme")
    minter: MinterName | None = Field(
        None,
        description="local or ezid; default: the minter of a plugin that a setting chooses, else ezid if the "
        "settings name an EZID server, else local",
    )
    naan: Annotated[str, StringConstraints(pattern=r"^[0-9]{5,9}$")] = Field(
        "99999", description="the 5 to 9 digits of a name assigning authority number (NAAN), in quotes"
    )
    shoulder: Annotated[str, StringConstraints(pattern=r"^[a-z0-9]*$")] = Field(
        "fk4", description="lower-case letters and digits, the prefix of minted names"
    )
    given_arks: tuple[ArkPrefix, ...] = Field(
        (),
        description="a list of the prefixes, such as ark:/12345/x9, of ARKs that depositors may give to new "
        "objects, besides the ARKs of the shoulder",
    )
    ezid_co_owner: str = Field("", description="an EZID user name")
    notification: tuple[Mail, ...] = Field((), description="a list of mail addresses")
    confirmation_mail: bool = Field(False, description="true or false: confirm a received submission by mail")
    notification_suppression: Suppression = Field(
        Suppression.NONE, description="none, partial (no confirmation mail) or full (no mail at all)"
    )
    notification_format: ResponseType | None = Field(
        None, description="json, xml or turtle: the format of callbacks"
    )
    callback_url: AnyHttpUrl | None = Field(
        None,
        repr=False,  # may hold a password
        description="a URL that begins with http:// or https://",
    )
    priority: Priority | None = Field(None, description="a number from 0 (most urgent) to 99")
    # as many as the columns of the inventory: PostgreSQL would refuse the version after it is stored
    object_type: str = Field("MRT-curatorial", max_length=32, description="at most 32 characters")
    object_role: str = Field("MRT-content", max_length=32, description="at most 32 characters")
    aggregate_role: str = Field("MRT-none", max_length=64, description="at most 64 characters")
    suppress_dublin_core_local_id: bool = Field(False, description="true or false")
    new_versions: bool = Field(
        False,
        description="true or false: a deposit that names an object that is here becomes its next version, "
        "whether the depositor allows it or not",
    )
    review: bool = Field(
        False,
        description="true or false: an operator approves or rejects what was downloaded before it is stored",
    )
    case_sensitive_names: bool = Field(
        True,
        description="true or false: accept objects with file names that differ only in case; "
        "storage that cannot hold both refuses them in any case",
    )
    zip_name_encoding: str = Field(
        "",
        description="an encoding such as cp850 or shift_jis, for names in zip files that are not marked as "
        "UTF-8; default: UTF-8 if they are UTF-8, else cp437",
    )
    sources: tuple[SourceText, ...] = Field(
        (),
        description="a list of hosts (example.org, *.example.org) and networks (192.0.2.0/24), each with or "
        "without a port (example.org:8443): content comes from these alone; default: from every host",
    )
    checks: tuple[CheckRule, ...] = Field(
        (),
        description="a list of checks of the deposited files, each a name such as clamav, or a name with "
        "command, after, found, unchecked, at_once, again and settings",
    )
    storage_node: int | None = Field(None, ge=0, description="the number of a storage node")
    context: str = Field("", description="a text")
    retention_days: Annotated[int, Field(ge=0)] | None = Field(
        None, description="a number: days for which a completed batch stays listed"
    )
    fixity_days: Annotated[int, Field(ge=0)] | None = Field(
        None, description="a number: days within which every stored file is read again, or 0 for never"
    )
    quota_bytes: Count | None = Field(
        None,
        description="a number: the bytes agreed for the collection's stored objects; its page and its report "
        "show what of it is used, and nothing is refused",
    )
    limits: ProfileLimits = Field(
        default_factory=ProfileLimits,
        description="object_bytes, object_files, batch_jobs, live_jobs, jobs_at_work and host_connections",
    )

    @field_validator("collections", "notification", "given_arks", "sources", mode="before")
    @classmethod
    def _listed(cls, value: object) -> object:
        return (value,) if isinstance(value, str) else value

    @field_validator("checks", mode="before")
    @classmethod
    def _rules(cls, value: object) -> object:
        rules = value if isinstance(value, list | tuple) else (value,)
        return tuple({"name": rule} if isinstance(rule, str) else rule for rule in rules)

    @field_validator("checks")
    @classmethod
    def _distinct_checks(cls, value: tuple[CheckRule, ...]) -> tuple[CheckRule, ...]:
        names = [rule.name for rule in value]
        if len(names) != len(set(names)):
            raise ValueError("two checks have the same name")
        return value

    @property
    def allowed_sources(self) -> Sources:
        return Sources.of(self.sources)

    @field_validator("zip_name_encoding")
    @classmethod
    def _known_encoding(cls, value: str) -> str:
        try:
            return codecs.lookup(value).name if value else value
        except LookupError as error:
            raise ValueError(f"{value} is no known encoding") from error

    @model_validator(mode="after")
    def _mail_settings_agree(self) -> "Profile":
        if self.confirmation_mail and self.notification_suppression is not Suppression.NONE:
            raise ValueError(
                f"confirmation_mail is true, but notification_suppression: "
                f"{self.notification_suppression} suppresses that mail; remove one of the two"
            )
        return self

    @property
    def ark_prefixes(self) -> tuple[str, ...]:
        """The prefixes of the ARKs that depositors may give to new objects."""
        return (f"ark:/{self.naan}/{self.shoulder}", *self.given_arks)

    @property
    def sends_report(self) -> bool:
        return self.notification_suppression is not Suppression.FULL

    @property
    def callback_address(self) -> str | None:
        """The callback URL without secrets."""
        return None if self.callback_url is None else _without_secrets(str(self.callback_url))

    def public(self) -> dict[str, Any]:
        """All fields as JSON values, without secrets."""
        return {**self.model_dump(mode="json"), "callback_url": self.callback_address}


def _without_secrets(url: str) -> str:
    """Remove user, password and query, which may contain a token."""
    parts = urlsplit(url)
    return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2], query="", fragment=""))


class Profiles:
    """The profiles in a folder: NAME.yaml in our format, NAME.txt or NAME in Merritt's."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def get(self, name: str, *, elsewhere: bool = False) -> Profile:
        """The profile as currently in its file; `elsewhere`: its checks need not be installed here."""
        return read_profile(self.file(name), elsewhere=elsewhere)[0]

    def names(self) -> tuple[str, ...]:
        files = self._files(self.folder.iterdir)
        names = {path.stem if path.suffix in _SUFFIXES else path.name for path in files if _is_profile(path)}
        return tuple(sorted(name for name in names if re.match(_NAME, name)))

    def unread(self) -> tuple[Path, ...]:
        """Files that look like profiles but have an unsupported suffix."""
        return tuple(sorted(path for path in self.folder.iterdir() if path.suffix in _MISTAKEN))

    def _files(self, listed: Callable[[], Iterable[Path]]) -> list[Path]:
        """Those that are files; the folder may be unreadable when `listed` is called."""
        try:
            return [path for path in listed() if path.is_file()]
        except OSError as error:
            raise ProfileError(
                f"the folder of profiles {self.folder} cannot be read ({error.strerror}): "
                "create it, or set ARKLINE_PROFILES"
            ) from error

    def file(self, name: str) -> Path:
        suffixes = (*_SUFFIXES, "") if "." not in name else _SUFFIXES
        beside = [self.folder / f"{name}{suffix}" for suffix in suffixes if re.match(_NAME, name)]
        paths = self._files(lambda: beside)
        if not paths:  # the folder is listed for an unknown name alone: it may have thousands
            near = difflib.get_close_matches(name, self.names(), 1)
            hint = f"did you mean {near[0]}?" if near else "use the name of one of this site"
            refusal = UnknownProfile(f"there is no profile {quote_name(name, 128)}; {hint}")
            raise refusal.with_remedies(Remedy(Action.SHOW_PROFILES))
        if len(paths) > 1:
            files = ", ".join(path.name for path in paths)
            raise ProfileError(f"profile {name} is in {len(paths)} files ({files}): keep one of them")
        return paths[0]


def read_profile(path: Path, *, elsewhere: bool = False) -> tuple[Profile, tuple[str, ...]]:
    """The profile in a file, named after the file, and warnings about ignored fields.

    `elsewhere`: its checks need not be installed on this host.
    """
    source = path.name
    name = path.stem if path.suffix in _SUFFIXES else path.name
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise ProfileError(f"profile {source} is not UTF-8: save the file as UTF-8") from error
    except OSError as error:
        raise ProfileError(f"profile {source} cannot be read: {error}") from error
    fields, warnings = (_from_yaml if path.suffix == ".yaml" else _from_text)(text, source)
    profile = _profile({"name": name, **fields}, name, source)
    try:
        require_installed(() if elsewhere else profile.checks)
    except UsageRefused as refusal:
        raise ProfileError(f"profile {source}: {refusal}") from refusal
    return profile, warnings


def _is_profile(path: Path) -> bool:
    return path.suffix in _SUFFIXES or "." not in path.name


def _from_yaml(text: str, source: str) -> tuple[dict[str, object], tuple[str, ...]]:
    try:
        fields = yaml.safe_load(text)
    except yaml.MarkedYAMLError as error:
        line = f", line {error.problem_mark.line + 1}" if error.problem_mark else ""
        raise ProfileError(f"profile {source}{line}: {error.problem}") from error
    except (yaml.YAMLError, ValueError) as error:
        raise ProfileError(f"profile {source} is not YAML: {error}") from error
    if not isinstance(fields, dict):
        raise ProfileError(f"profile {source} has no 'field: value' lines")
    return {str(name): value for name, value in fields.items()}, ()


def _from_text(text: str, source: str) -> tuple[dict[str, object], tuple[str, ...]]:
    try:
        return read_merritt_text(text)
    except MalformedText as error:
        raise ProfileError(f"profile {source}: {error}") from error


def _profile(fields: dict[str, object], name: str, source: str) -> Profile:
    try:
        profile = Profile.model_validate(fields)
    except ValidationError as error:
        faults = tuple(dict.fromkeys(map(_fault, error.errors(include_url=False))))
        message = f"profile {source}: {'; '.join(faults)}"
        raise ProfileError(message, faults) from None  # the cause quotes the given value, which may be secret
    if profile.name != name:
        raise ProfileError(
            f"profile {source}: the name is {profile.name}, but the file is named {name}: use the same name"
        )
    return profile


def _fault(error: ErrorDetails) -> str:
    where = [str(part) for part in error["loc"]]
    if not where:
        return str(error.get("ctx", {}).get("error", error["msg"]))
    if where[0] == "checks" and error["type"] == "value_error":
        return f"checks: {error['ctx']['error']}"
    model = ProfileLimits if where[0] == "limits" and len(where) > 1 else Profile
    field = ".".join(part for part in where if not part.isdecimal())
    if error["type"] == "extra_forbidden":
        near = difflib.get_close_matches(where[-1], model.model_fields, 1)
        return f"{field} is not a field" + (f"; did you mean {near[0]}?" if near else "; remove the line")
    expected = model.model_fields[where[1] if model is ProfileLimits else where[0]].description
    if error["type"] == "missing":
        return f"{field} is missing; expected {expected}"
    value = "the value" if where[0] == "callback_url" else f"{error['input']!r:.60}"
    return f"{value} is not valid for {field}; expected {expected}"


_OF_SITE = ("object_bytes", "batch_jobs", "live_jobs", "recipients")
"""Limits that always have a value; an operator raises one for a collection in its profile."""


def with_site_limits(profile: Profile, settings: Settings) -> Profile:
    missing = {name: getattr(settings, name) for name in _OF_SITE if getattr(profile.limits, name) is None}
    return profile.model_copy(update={"limits": profile.limits.model_copy(update=missing)})


CACHE_SECONDS = 5
"""Seconds for which a quota, which is needed whenever a job ends, is cached."""


def quota_in(folder: Path) -> Callable[[str], int | None]:
    """A function from a collection's name to its quota in the profiles in `folder`; None is no limit."""
    return lambda name: _limits(folder, name, int(time.monotonic() // CACHE_SECONDS)).jobs_at_work


@lru_cache(maxsize=512)
def _limits(folder: Path, name: str, _moment: int) -> ProfileLimits:
    try:
        return Profiles(folder).get(name, elsewhere=True).limits
    except ProfileError:
        return ProfileLimits()  # the job will meet the same fault and report it
