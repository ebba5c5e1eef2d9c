"""Errors with a message for people, and the remedies of errors and states.

A message names the thing and, if there is one, the remedy. A remedy is only a fact; the interface spells out
the command.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Self

from pipeline import codes
from pipeline.codes import Code, ErrorKind

if TYPE_CHECKING:
    from pydantic import ValidationError


class Documented(StrEnum):
    """A string enum whose members carry their meaning, for the docs and for `--help`."""

    doc: str

    def __new__(cls, value: str, doc: str = "") -> Self:
        member = str.__new__(cls, value)
        member._value_ = value
        member.doc = doc
        return member


class Action(Documented):
    """Codes are stable: scripts, pages and alerts read them. Most are verbs of arkline."""

    UNPAUSE = "unpause", "Start new jobs again."
    RELEASE = "release", "Release the held job or batch."
    RELEASE_COLLECTION = "release-collection", "End the hold on the collection and release what it held."
    HOLD_COLLECTION = "hold-collection", "Put the collection on hold."
    RESUME = "resume", "Resume the failed job at the step that failed."
    OVERRULE = (
        "overrule",
        "Keep the files although a check stopped them: a resume that overrules its findings, for a reason.",
    )
    RESUME_BATCH = "resume-batch", "Resume the failed jobs of the batch."
    APPROVE = "approve", "Approve what was downloaded: the job continues, and its version is stored."
    REJECT = "reject", "Or reject it: the job fails, and the depositor learns the reason."
    SHOW_REVIEWS = "reviews", "List the jobs that wait for a review; approve or reject them."
    CANCEL = "cancel", "Stop the batch: its split, its jobs that have not ended, its report."
    DELETE = "delete", "Delete the job or the batch."
    REPAIR = "repair", "Replace the znodes that cannot be read, and end the job."
    UPDATE_REPORT = "update-report", "Send the depositor a report of what changed."
    SHOW_REPORT = "report", "Print the batch's report."
    RENEW_PROFILE = "renew-profile", "Use the changed profile for the rest of the batch."
    UNDO_DRAIN = "undo-drain", "Let the worker accept tasks again."
    SHOW_STATUS = "status", "Show the job, the batch or the queue."
    SHOW_JOBS = "jobs", "List jobs."
    SHOW_OBJECTS = "objects", "List objects."
    SHOW_PROFILES = "profiles", "List the profiles of the collections."
    SHOW_FAILURES = "failures", "List the failed jobs; resume them once the cause is removed, or delete them."
    CLEAN_UP = "cleanup", "Remove the files that no job needs from working storage."
    AUDIT = "audit", "Check the record in ZooKeeper."
    RECONCILE = (
        "reconcile",
        "Compare record, storage and inventory beside the stack, and repair what can be repaired.",
    )
    RESTORE_INVENTORY = "restore-inventory", "Restore the inventory from the backup, beside the stack."
    FIXITY_REPORT = "fixity-report", "Show the damage in storage, with what to do."
    CHECK_FIXITY = "fixity-check", "Read again what is due, beside the stack."
    RAISE_FIXITY_RATE = (
        "raise-fixity-rate",
        "Raise ARKLINE_FIXITY_RATE or the period: ARKLINE_FIXITY_DAYS, or fixity_days of the profile.",
    )
    INITIALIZE = "init", "Give the stores one deployment id, beside the stack, as the first worker does."
    BACK_UP = "backup", "Copy the record and the inventory, beside the stack; do so every night."
    SUBMIT_AGAIN = "submit-again", "Correct the content, and deposit it again."
    START_WORKER = "start-worker", "Start a worker for the queue, beside the stack."
    START_BEAT = "start-beat", "Start the scheduler, beside the stack."
    RESTART_BEAT = (
        "restart-beat",
        "If a further worker does not help, end the beat that leads: another one takes over.",
    )
    START_BROKER = "start-broker", "Start Redis."
    START_RECORD = (
        "start-record",
        "Start ZooKeeper, or restore the network to it (runbook: ZooKeeper was unreachable). Nothing is "
        "lost: jobs continue by themselves.",
    )
    RAISE_LIMIT = (
        "raise-limit",
        "Start every ZooKeeper server with -Djute.maxbuffer=1048575 (ZooKeeper's default) or more, then "
        "resume what failed.",
    )
    FIX_BROKER = (
        "fix-broker",
        "Have Redis accept writes, as its message says: end its replication (replicaof no one), raise its "
        "maxmemory, give it disk space, or correct the user and the password in ARKLINE_BROKER_URL.",
    )
    CHANGE_PREFIX = (
        "change-prefix",
        "Set ARKLINE_BROKER_PREFIX to a prefix that no other deployment uses, and restart this deployment.",
    )
    CHECK_SETTINGS = (
        "check-settings",
        "Name the record of these stores in ARKLINE_ZK_HOSTS and ARKLINE_ZK_ROOT, or restore a backup.",
    )
    RAISE_SHARE = (
        "raise-share",
        "Raise ARKLINE_SHARE_OF_PLACES, or give the collection limits.jobs_at_work in its profile.",
    )
    ADD_SPACE = (
        "add-space",
        "Enlarge working storage, raise its threshold, or remove files of other programs from it.",
    )


@dataclass(frozen=True)
class Remedy:
    """One action, and the job, batch, collection, worker or queue that it is applied to."""

    action: Action
    target: str = ""
    findings: tuple[str, ...] = ()
    """The findings to overrule."""


class ArklineError(Exception):
    """The root of the errors that a person may see; the message is shown as it is, without a traceback.

    A type is what code distinguishes; a code is what people and programs look up. A type has a code, and an
    error may have a more precise one.
    """

    code: Code = codes.ERROR
    remedies: tuple[Remedy, ...] = ()
    """The remedy; not spelled in the message, because the command line and a page present it differently."""

    def __init__(self, message: str = "", *, code: Code | None = None) -> None:
        super().__init__(message)
        if code is not None:
            self.code = code

    @property
    def error_kind(self) -> ErrorKind:
        return self.code.kind

    def with_remedies(self, *remedies: Remedy) -> Self:
        """This error, to be raised with `remedies`."""
        self.remedies = remedies
        return self


class UsageRefused(ArklineError):
    code = codes.USAGE_REFUSED


class ServiceUnreachable(ArklineError):
    code = codes.SERVICE_UNREACHABLE


def first_fault(error: "ValidationError", whole: str = "content") -> str:
    """`PLACE: MESSAGE` of the first fault, without the invalid value, which may be secret.

    `whole`: the place of a fault that is in no field.
    """
    first = error.errors(include_url=False, include_context=False, include_input=False)[0]
    return f"{'.'.join(map(str, first['loc'])) or whole}: {first['msg']}"
