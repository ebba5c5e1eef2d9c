"""The principal behind an operator's verb, and what the verbs have in common."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TypeVar

from operations.site import Site
from pipeline.errors import ArklineError, ErrorKind
from pipeline.principal import Principal, Role
from pipeline.records import Job, Record
from pipeline.settings import Settings
from pipeline.working_storage import mount
from pipeline.working_storage.workspace import folder_of
from tasks import after_move
from zkstate.connection.session import Session
from zkstate.errors import Busy, Stale
from zkstate.fleet.holds import Hold
from zkstate.record.journal import Stamp

R = TypeVar("R")

TRIES = 20
"""Times that a verb reads a job or a batch again that moved between the read and the write."""


class Stopped(ArklineError):
    """The caller asked to stop; the message says what was done."""

    error_kind = ErrorKind.INTERRUPTED


@dataclass(frozen=True)
class Run:
    """How a long verb reports its progress and learns that it should stop.

    `on_progress` gets the number of jobs and batches that are done, with a fraction for one that is begun,
    and their total. `should_stop` is asked before each of them, and inside the deletion of a batch; a verb
    that stopped can be repeated, and does the rest.
    """

    on_progress: Callable[[float, int], None] = lambda done, total: None
    should_stop: Callable[[], bool] = lambda: False

    def check(self, message: str) -> None:
        """Stopped, with this message, if the caller asks to stop."""
        if self.should_stop():
            raise Stopped(message)

    def part(self, done: int, total: int) -> Run:
        """For the next of `total` jobs and batches, of which `done` are done."""
        return replace(self, on_progress=lambda within, all_: self.on_progress(done + within / all_, total))


@dataclass(frozen=True)
class Operator:
    """The site that a verb changes, who changes it, and why."""

    site: Site
    principal: Principal
    reason: str = ""
    run: Run = field(default_factory=Run)

    @property
    def session(self) -> Session:
        return self.site.session

    @property
    def settings(self) -> Settings:
        return self.site.settings

    @property
    def by(self) -> str:
        return self.principal.name

    @property
    def because(self) -> str:
        return f": {self.reason}" if self.reason else ""

    @property
    def stamp(self) -> Stamp:
        principal = self.principal
        return Stamp(by=self.by, reason=self.reason, via=principal.interface, request_id=principal.request_id)

    @property
    def hold(self) -> Hold:
        return Hold.model_validate(self.stamp.model_dump())

    def require(self, action: str, collection: str | None = None) -> None:
        """Forbidden unless the principal is an operator of the collection or, without one, of all."""
        self.principal.require(Role.OPERATOR, action, collection)


class VerbResult(Record):
    """The effect of a verb on a job or a batch; `version` is that of its status after the verb."""

    id: str
    was: str
    now: str
    version: int | None = None
    sent: bool = True
    """False if Redis did not take a message; the sweep sends the message later."""
    folder_left: str = ""
    """The working directory, if it is not on this machine and so was not removed."""
    complete: bool = True
    """False if the caller stopped the deletion of a batch midway; the same verb does the rest."""


def retry_stale(name: str, act: Callable[[], R]) -> R:
    """Call `act` until no other change comes between its read and its write."""
    for _ in range(TRIES):
        try:
            return act()
        except Stale:
            continue
    raise Busy(f"{name} keeps changing state; try again")


def remove_folder(operator: Operator, job: Job) -> str:
    """Remove a job's working directory; its path if working storage is not there, and so the folder stays."""
    working = operator.settings.working
    if not mount.is_marked(working):
        return job.configuration.working_dir
    folder = folder_of(job, working)
    after_move.remove_folder(folder)
    return ""
