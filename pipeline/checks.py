"""What a check is and what it reports: the contract between arkline and a guest.

A check reads the files of a deposit in a process of its own, which has the limits that the check declares,
and yields findings. It decides nothing: the profile says what a finding means. docs/developers/guests.md
shows how to write one.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from itertools import islice
from pathlib import Path
from typing import Annotated, Any, ClassVar, Protocol

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError, model_validator

from pipeline import plugins
from pipeline.errors import UsageRefused, first_fault
from pipeline.names import quote_name

CHECK_NAME = r"^[a-z][a-z0-9-]{0,31}$"

CODE_LIMIT = 100
MESSAGE_LIMIT = 500
"""Characters of a finding; what exceeds them is cut."""

RECORDED_FINDINGS = 10
RECORDED_CHARACTERS = 4_000
RECORDED_CODES = 10
"""Findings of all runs that the record and reports have of a job, and the characters of their texts; and the
codes of the findings by which one run stops the job."""

SHOWN_FINDINGS = 100
"""Findings of a run in an event of PREMIS and in the description of an object; the inventory has all."""

FINDINGS_OF_A_FILE = 20
"""Further findings of one file are dropped, and the last one says so."""

BYTES_PER_SECOND = 1_000_000
"""Bytes for which whatever reads deposited files has a further second, a decoder one of processor time.
bzip2, the slowest format, is about ten times as fast."""

NAMED_FINDINGS = 5
"""A sentence for people names so many findings, and counts the rest."""

NAMED_CHARACTERS = 120
"""Characters of a finding in such a sentence."""

FINDING = re.compile(r"\(finding ([0-9a-f]{16})\)")
"""How the message of a failed job names the findings that an operator may overrule."""

VALIDATION = "validation"
VIRUS_CHECK = "virus check"
FORMAT_IDENTIFICATION = "format identification"
"""Types of events in the Library of Congress's vocabulary; a check may name any other of that vocabulary."""


class CheckVerdict(StrEnum):
    """What a check found in one file. Codes are stable: they stand in the inventory and in PREMIS."""

    FINE = "fine"
    """Checked, and nothing is wrong; `code` may say what the file is, such as `fmt/40`."""
    FOUND = "found"
    """Checked, and something is wrong; `code` names it, such as a virus."""
    UNCHECKED = "unchecked"
    """Not checked, or not completely; `code` is an `Obstacle` or the check's own."""

    @property
    def label(self) -> str:
        """The value for people: `not checked`."""
        return "not checked" if self is CheckVerdict.UNCHECKED else self.value


class Obstacle(StrEnum):
    """Why a file was not checked. Codes are stable."""

    TOO_LARGE = "too-large"
    ENCRYPTED = "encrypted"
    TIMED_OUT = "timed-out"
    OUT_OF_MEMORY = "out-of-memory"
    CRASHED = "crashed"
    """The check raised an error, or its process died."""
    NO_ANSWER = "no-answer"
    """The check ended without a finding for the file."""
    INVALID_ANSWER = "invalid-answer"
    SERVICE_DIED = "service-died"
    """The check's service ended each time it was given the file."""


class _Fact(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")


class CheckFinding(_Fact):
    """One finding about one file."""

    path: str
    """As in `CheckedFile`."""
    verdict: CheckVerdict
    code: Annotated[str, StringConstraints(max_length=CODE_LIMIT)] = ""
    """What a search asks for: the name of a virus, a format, an Obstacle."""
    message: Annotated[str, StringConstraints(max_length=MESSAGE_LIMIT)] = ""
    """For people: a depositor or an archivist."""


@dataclass(frozen=True)
class CheckedFile:
    """A deposited file as a check gets it."""

    path: str
    """In the deposit, with '/' between folders."""
    source: Path
    """Where its bytes are; it may be read, and nothing may be written there."""
    size: int
    sha512: str


class ServiceAway(Exception):
    """Raised by a check whose service does not answer: the job waits until it does, and no try is counted."""


class ServiceDied(ServiceAway):
    """Raised by a check whose service ended while it had the file at hand, and did not come back.

    A file at which this happens again and again is not checked any more: the others need the service.
    """


@dataclass(frozen=True)
class Access:
    """What the process of a check may do; everything else is refused where the kernel can refuse it."""

    sockets: bool = False
    """Connect to sockets of this host: Unix sockets in the file system."""
    network: bool = False
    """Connect to other hosts."""
    programs: bool = False
    """Start programs, which have the same limits."""
    memory: int = 1 << 30
    """Bytes of address space."""
    open_files: int = 64
    seconds: float = 60.0
    """For one file, by the clock; a second more for each megabyte of the file."""
    start_seconds: float = 60.0
    """Until the check is ready, by the clock."""
    reads: tuple[str, ...] = ()
    """Files and folders that may be read besides the deposit, Python's modules and shared libraries."""
    environment: tuple[tuple[str, str], ...] = ()
    """Names and values; else the process has no environment. Runtimes such as Go's read it when the process
    starts: a check that sets a variable itself is too late."""


class CheckContext(Protocol):
    """What a running check is given besides its files."""

    def alive(self) -> None:
        """Stop here if the work was cancelled; call it at least once a second while one file is read."""


class Check(Protocol):
    """A check; registered under its name in the group of entry points `arkline.checks`.

    The class is imported by every worker: it imports what is large or slow in `__init__`, which runs in the
    check's own process only. With `renewed = True`, which is optional, stored versions are checked again once
    the check has a newer version: it says more about the same files.
    """

    name: ClassVar[str]
    access: ClassVar[Access]
    event: ClassVar[str] = VALIDATION
    """The type of the event that a run is in PREMIS. Of a `format identification`, a code such as `fmt/40` is
    the file's format in PRONOM's registry."""
    settings: ClassVar[type[BaseModel] | None]
    """The settings that a profile may give; those of the site too, if it is an `EnvironmentSettings`."""

    def __init__(self, settings: Any) -> None:
        """`settings`: an instance of `settings`; ServiceAway if the check's service does not answer."""

    @property
    def version(self) -> str:
        """Of the program and of its data, such as signatures; another version means a new result.

        The version of a run is what this returns when `run` takes its first file.
        """

    def run(self, files: Iterable[CheckedFile], context: CheckContext) -> Iterator[CheckFinding]:
        """Findings, those of one file before the next file is taken from `files`."""


class Stage(StrEnum):
    """When a check runs."""

    DOWNLOADED = "downloaded"
    """Before the version is stored; only now can a finding stop the job."""
    STORED = "stored"
    """After the version is stored, before it is entered in the inventory."""
    RECORDED = "recorded"
    """After the version is entered in the inventory."""


class Overrule(_Fact):
    """An operator's decision that a finding does not stop the job."""

    by: str
    at: datetime
    reason: str


class CheckRun(_Fact):
    """One check of the files of one version, complete."""

    check: str
    version: str
    """Of the check, as it reported it."""
    event: str = VALIDATION
    """As in `Check`."""
    stage: Stage
    at: datetime
    """The end of the run."""
    findings: tuple[CheckFinding, ...] = ()
    """At least one for each file."""
    overruled: Overrule | None = None
    notice: bool = False
    """The operator is notified of what it found: the version is stored already."""

    def counts(self) -> dict[CheckVerdict, int]:
        """Files by their worst verdict; every verdict is a key."""
        worst: dict[str, CheckVerdict] = {}
        for finding in self.findings:
            worst[finding.path] = worse(worst.get(finding.path, CheckVerdict.FINE), finding.verdict)
        return {verdict: sum(value is verdict for value in worst.values()) for verdict in CheckVerdict}


class Stopping(_Fact):
    """The findings by which a run stops a job."""

    finding: str
    """Their digest, by which an operator overrules them."""
    codes: tuple[str, ...] | None = None
    """The codes of all these findings, each once; null if there are more than ten."""


class CheckSummary(BaseModel):
    """A run without the findings of every file."""

    model_config = ConfigDict(frozen=True, extra="allow")
    check: str
    version: str
    """Of the check."""
    event: str
    """The type of its event in PREMIS."""
    stage: Stage
    """When it ran: before the version was stored (downloaded), or after it was stored or recorded."""
    at: datetime
    """The end of the run."""
    fine: int
    """Files by their worst verdict, as are `found` and `unchecked`."""
    found: int
    unchecked: int
    """With the files of which the run says nothing."""
    findings: tuple[CheckFinding, ...]
    """At most the first hundred that are not fine; of a job, the first that stop it or are remarked."""
    overruled: Overrule | None = None
    stopping: Stopping | None = None
    """Of a job that the run stopped."""

    @classmethod
    def of(
        cls, run: CheckRun, named: Iterable[CheckFinding] | None = None, stopping: Stopping | None = None
    ) -> "CheckSummary":
        """`named`: the findings to name; None: those that are not fine."""
        counts = run.counts()
        if named is None:
            named = (finding for finding in run.findings if finding.verdict is not CheckVerdict.FINE)
        return cls(
            check=run.check,
            version=run.version,
            event=run.event,
            stage=run.stage,
            at=run.at,
            fine=counts[CheckVerdict.FINE],
            found=counts[CheckVerdict.FOUND],
            unchecked=counts[CheckVerdict.UNCHECKED],
            findings=tuple(islice(named, SHOWN_FINDINGS)),
            overruled=run.overruled,
            stopping=stopping,
        )

    @property
    def worst(self) -> CheckVerdict:
        """A run without files is fine."""
        if self.found:
            return CheckVerdict.FOUND
        return CheckVerdict.UNCHECKED if self.unchecked else CheckVerdict.FINE


class CheckedFiles(BaseModel):
    """Files of many deposits, by the worst verdict of one check."""

    model_config = ConfigDict(frozen=True, extra="allow")
    check: str
    fine: int = Field(0, ge=0, le=2**53)
    found: int = Field(0, ge=0, le=2**53)
    unchecked: int = Field(0, ge=0, le=2**53)

    @classmethod
    def sums(cls, counted: Mapping[tuple[str, CheckVerdict], int]) -> "tuple[CheckedFiles, ...]":
        """By check and verdict, as values that the record keeps."""
        return tuple(
            cls(check=name, **{verdict.value: counted.get((name, verdict), 0) for verdict in CheckVerdict})
            for name in sorted({check for check, _ in counted})
        )


def by_verdict(of: Iterable[CheckSummary | CheckedFiles]) -> Counter[tuple[str, CheckVerdict]]:
    """Check and verdict -> files."""
    counted = Counter[tuple[str, CheckVerdict]]()
    for one in of:
        for verdict in CheckVerdict:
            counted[one.check, verdict] += getattr(one, verdict.value)
    return counted


def latest(*summaries: CheckSummary) -> tuple[CheckSummary, ...]:
    """The last summary of each check, with as many findings as the record has of a job."""
    room, number = RECORDED_CHARACTERS, RECORDED_FINDINGS
    shortened = list[CheckSummary]()
    for summary in {summary.check: summary for summary in summaries}.values():
        first = list[CheckFinding]()
        for finding in summary.findings:
            room -= len(finding.path) + len(finding.code) + len(finding.message)
            number -= 1
            if room < 0 or number < 0:
                break
            first.append(finding)
        shortened.append(summary.model_copy(update={"findings": tuple(first)}))
    return tuple(shortened)


def first_named(findings: Sequence[CheckFinding]) -> str:
    """The first files, with what was found or why they were not checked."""
    return ", ".join(
        f"{quote_name(finding.path)} ({(finding.message or finding.code):.{NAMED_CHARACTERS}})"
        for finding in findings[:NAMED_FINDINGS]
    )


_ORDER = (CheckVerdict.FINE, CheckVerdict.UNCHECKED, CheckVerdict.FOUND)


def worse(one: CheckVerdict, other: CheckVerdict) -> CheckVerdict:
    return max(one, other, key=_ORDER.index)


class Action(StrEnum):
    """What the profile makes of a verdict."""

    STOP = "stop"
    """The job fails, and its message says why; only before the version is stored."""
    WARN = "warn"
    """The job continues with a remark in the report; of something found after storing, the operator is also
    notified."""
    NOTE = "note"
    """The finding is recorded, and nobody is notified."""


class Again(StrEnum):
    """When stored versions are checked again."""

    RENEWED = "renewed"
    """When the installed check is newer than the one that checked them last."""
    NEVER = "never"


class CheckRule(BaseModel):
    """A check that a profile asks for, and what its verdicts mean."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    name: Annotated[str, StringConstraints(pattern=CHECK_NAME)]
    command: tuple[str, ...] = ()
    """The program to run instead of an installed check, with its arguments; `{file}` is the file's path."""
    after: Stage = Stage.DOWNLOADED
    found: Action | None = None
    unchecked: Action = Action.WARN
    at_once: Annotated[int, Field(ge=1, le=10_000)] | None = None
    """Runs of the check that the fleet may do at once; None: as many as there are workers."""
    again: Again | Annotated[int, Field(ge=1, le=36_500)] | None = None
    """A number: when the last run is so many days old. None: as the check declares."""
    settings: Mapping[str, Any] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _stops_in_time(self) -> "CheckRule":
        if self.after is not Stage.DOWNLOADED and Action.STOP in (self.found, self.unchecked):
            raise ValueError("only a check after: downloaded can stop a job; use warn")
        return self

    @property
    def on_found(self) -> Action:
        """By default a finding stops the job while that is possible."""
        if self.found is not None:
            return self.found
        return Action.STOP if self.after is Stage.DOWNLOADED else Action.WARN

    def checked_again(self, kind: type[Check]) -> Again | int:
        """When versions are checked again that have been checked by `kind`."""
        if self.again is not None:
            return self.again
        return Again.RENEWED if getattr(kind, "renewed", False) else Again.NEVER


COMMAND = "command"
"""The installed check that runs the programs of profiles."""


def installed(rule: CheckRule) -> type[Check] | None:
    """The class that does the check; None if it is not installed on this host.

    UsageRefused if it cannot be loaded, or is no check.
    """
    name = COMMAND if rule.command else rule.name
    try:
        kind: type[Check] | None = plugins.named(plugins.CHECKS, name)
    except Exception as error:
        raise UsageRefused(
            f"the check {name} cannot be loaded: {_said(error)}; install a release of it that works, then "
            "restart the processes of this host"
        ) from error
    if kind is None:
        return None
    lacking = [attribute for attribute in ("access", "settings") if not hasattr(kind, attribute)]
    if lacking:
        raise UsageRefused(f"{name} is no check: its class declares no {' and no '.join(lacking)}")
    return kind


def configured(rule: CheckRule, kind: type[Check]) -> BaseModel | None:
    """The settings of the check; UsageRefused names what is wrong."""
    given = {**rule.settings, **({"command": rule.command} if rule.command else {})}
    known = {} if kind.settings is None else kind.settings.model_fields
    if unknown := sorted(given.keys() - known.keys()):
        names = ", ".join(sorted(known)) or "none"
        raise UsageRefused(f"the check {rule.name} has no setting {unknown[0]}; its settings: {names}")
    try:
        return None if kind.settings is None else kind.settings(**given)
    except ValidationError as error:
        raise UsageRefused(f"the check {rule.name}: {first_fault(error)}") from None
    except Exception as error:
        raise UsageRefused(
            f"the settings of the check {rule.name} cannot be read: {_said(error)}; install a release of the "
            "check that works, then restart the processes of this host"
        ) from error


def _said(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"


def require_installed(rules: Iterable[CheckRule]) -> None:
    """UsageRefused unless every check is installed on this host and its settings are valid."""
    for rule in rules:
        kind = installed(rule)
        if kind is None:
            names = ", ".join(sorted(set(plugins.names(plugins.CHECKS)) - {COMMAND})) or "none"
            raise UsageRefused(
                f"no check is called {rule.name}; installed on this host: {names}; install the check, or "
                "give the program to run as command"
            )
        configured(rule, kind)
