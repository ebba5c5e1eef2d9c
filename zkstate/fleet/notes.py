"""Notes of scheduled work and of web processes for the status, which opens no SQL database.

The last writer wins; an unreadable note is replaced by the next one.
"""

from datetime import datetime

from pipeline.records import Count, Record
from zkstate import paths
from zkstate.connection.session import Session
from zkstate.record.node import Node


class FixityStatus(Record):
    """`/fixity`: the sums of the fixity schedule. The inventory decides what is due and what is damaged."""

    objects: int = 0
    """Objects in the schedule."""
    damaged: int = 0
    """Objects whose last check found damage."""
    overdue: int = 0
    """Objects that were not read within their period."""
    oldest: datetime | None = None
    """When the oldest current period began."""
    files_intact: Count = 0
    """Files that checks have read and that agreed, since the record was created."""
    files_damaged: Count = 0
    """Files that disagreed or were missing, once for every check."""
    problem: str = ""
    """Why the last run could not read an object; empty if it could."""


class RepeatedCheck(Record):
    """A check of stored versions that is repeated when it is outdated."""

    check: str
    version: str
    """The version of the check with which stored versions are checked again."""
    outstanding: Count = 0
    """Stored versions whose last run of the check is outdated."""
    position: Count = 0
    """The key, in the inventory, of the last outdated run that was tried; the schedule continues after it."""
    problem: str = ""
    """Why the last run of the schedule could not check a version; empty if it could."""
    fine: Count = 0
    """Files that the schedule has checked again, by their worst verdict, as `found` and `unchecked`."""
    found: Count = 0
    unchecked: Count = 0


class RepeatedChecks(Record):
    """`/checks`: the checks that are repeated. The inventory decides what is outdated."""

    checks: tuple[RepeatedCheck, ...] = ()


class LastAudit(Record):
    """`/audit`: the end of the last complete check of the record, and what it left."""

    at: datetime
    findings: Count


class LastBackup(Record):
    """`/backup`: the last complete backup. A record that was restored from it has the one before."""

    at: datetime
    """When its copy of the record began: what changed later is not in it."""
    host: str
    folder: str
    """On that host."""
    inventory: bool
    """Whether the inventory is in it."""


class Correction(Record):
    """`/board`: the last time that a web process found its board to differ from the record.

    No process can ask another one for its board; the status is asked beside a site's web processes.
    """

    at: datetime
    differences: Count
    """Jobs and batches that the board showed otherwise than the record."""
    host: str
    """The machine of the web process."""


AUDIT = Node(paths.AUDIT, LastAudit)
BACKUP = Node(paths.BACKUP, LastBackup)
BOARD = Node(paths.BOARD, Correction)
_CHECKS = Node(paths.CHECKS, RepeatedChecks, lambda _: RepeatedChecks())
_FIXITY = Node(paths.FIXITY, FixityStatus, lambda damage: FixityStatus(problem=str(damage)))


def fixity(session: Session) -> FixityStatus:
    """The sums; an unreadable node is reported as their `problem`, until the next run writes them."""
    return _FIXITY.read(session) or FixityStatus()


def note_fixity(session: Session, sums: FixityStatus) -> None:
    if fixity(session) != sums:
        _FIXITY.publish(session, sums)


def repeated_checks(session: Session) -> tuple[RepeatedCheck, ...]:
    """The checks that are repeated; none while the node is unreadable, until the next run writes it."""
    noted = _CHECKS.read(session)
    return () if noted is None else noted.checks


def note_repeated_checks(session: Session, repeated: tuple[RepeatedCheck, ...]) -> None:
    if repeated_checks(session) != repeated:
        _CHECKS.publish(session, RepeatedChecks(checks=repeated))
