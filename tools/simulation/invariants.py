"""What holds after each change of the record: read from the tree alone."""

import json
import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from kazoo.protocol.serialization import CheckVersion, Create, Delete, SetData

from pipeline.states import BATCH, JOB, Bucket, JobState
from tasks import retention
from tools.simulation.ensemble import Change, CloseSession, Ensemble, Tree
from tools.simulation.facts import Facts
from tools.simulation.world import Process

_QUEUES = tuple(f"/jobs/states/{state.value}" for state in JobState)

_BUCKET = {JobState.COMPLETED: Bucket.COMPLETED, JobState.FAILED: Bucket.FAILED}

SPACE = "/space/working"

GRACE = 0.1
"""Seconds within which a process that runs has noticed that its lock is gone, and publishes nothing more."""

_STAGED = re.compile(r"/staging/(jid\d+)-\w+/(?!draft)")
_OF_JOB = re.compile(r"/jobs/(jid\d+)/status|/(?:jobs|batches/\w+)/states/[\w-]+/(?:\d+-)?(jid\d+)")
_EMPTIES = f" {retention.BY}".encode()
"""The end of the lock under which the content of a job is removed, which is no attempt."""
_ANY = -1
"""The version of a change that compares none."""
_ROWS = {(str(row.source), str(row.target)) for machine in (JOB, BATCH) for row in machine.every_row}


@dataclass
class Rules:
    """What each change has to keep; knows statuses and locks as they were before it."""

    facts: Facts
    """As before the change."""
    owners: dict[str, int] = field(default_factory=dict)
    """Path of a job or a batch -> the session that has its lock, or had it last."""
    lost: dict[str, float] = field(default_factory=dict)
    """The same path -> when its lock was last taken away from its holder."""

    def after_change(
        self, ensemble: Ensemble, session: int, changes: tuple[Change, ...], now: float
    ) -> Iterator[str]:
        """The rules that a change by a session has broken."""
        tree = ensemble.leader
        if CloseSession() in changes:
            self.lost |= {place: now for place, owner in self.owners.items() if owner == session}
        for change in changes:
            place = _record_of(change)
            if isinstance(change, SetData) and place and change.path == f"{place}/status":
                owner = self.owners.get(place, 0)
                owner = owner if owner in ensemble.sessions else 0
                _, kind, name = place.split("/")
                yield from _moved(place, self.facts.known(kind)[name], owner, change, changes, session)
        for place in dict.fromkeys(filter(None, map(_record_of, changes))):
            lock = tree.nodes.get(f"{place}/lock")
            last, owner = self.owners.pop(place, 0), lock.owner if lock else 0
            if last not in (0, owner, session):
                self.lost[place] = now
            if owner:
                self.owners[place] = owner
        for jid in dict.fromkeys(filter(None, map(_job_of, changes))):
            status = tree.nodes.get(f"/jobs/{jid}/status")
            if status is not None:
                yield from _places(tree, jid, JobState(json.loads(status.data)["status"]))
        if any(getattr(change, "path", "").startswith(SPACE) for change in changes):
            yield from _reserved(tree)

    def before_effect(
        self, process: Process, sessions: Collection[int], name: str, paths: Sequence[Any], now: float
    ) -> Iterator[str]:
        """A process publishes a version while it holds its job's lock, but for the last moment."""
        staged = _STAGED.search(str(paths[0])) if name == "rename" else None
        if staged is None or "/extensions/" in str(paths[1]):
            return
        place = f"/jobs/{staged[1]}"
        since = max(self.lost.get(place, 0.0), process.frozen_until)
        if self.owners.get(place) not in sessions and now - since > GRACE:
            yield f"owner: {process.name} publishes the version of {staged[1]}, whose lock it does not hold"


def _record_of(change: Change) -> str:
    place, _, name = getattr(change, "path", "").rpartition("/")
    return place if name in ("status", "lock") and place.count("/") == 2 else ""


def _moved(
    place: str, was: dict[str, Any], owner: int, put: SetData, changes: Sequence[Change], session: int
) -> Iterator[str]:
    """A status changes under its version, and under the lock of who changes it, or while nobody has it.

    An epoch has one dispatch, and an attempt is counted when it begins.
    """
    who, now = place.rpartition("/")[2], json.loads(put.data)
    machine = JOB if place.startswith("/jobs/") else BATCH
    locking = [change for change in changes if getattr(change, "path", "") == f"{place}/lock"]
    on_lock = set(map(type, locking))
    empties = any(isinstance(change, Create) and change.data.endswith(_EMPTIES) for change in locking)
    begins = Create in on_lock and Delete not in on_lock and not empties
    moves = now["status"] != was["status"]
    raised, counted = (now.get(name, 0) - was.get(name, 0) for name in ("epoch", "attempt"))
    if put.version == _ANY:
        yield f"fence: {who} changes whatever its version is"
    if moves and (was["status"], now["status"]) not in _ROWS:
        yield f"table: {who} moves from {was['status']} to {now['status']}"
    if owner not in (0, session) and Delete not in on_lock:
        yield f"owner: {who} changes while another session has its lock"
    if raised and not on_lock and owner != session:
        yield f"lock: {who} changes, and nothing was asked of its lock"
    handed = now.get("handed_back") and not was.get("handed_back")
    dispatched = was.get("dispatched_at") != now.get("dispatched_at")
    if not 0 <= raised <= 1 or (not raised and (moves or handed or dispatched)):
        yield f"epoch: {who} goes from epoch {was['epoch']} to {now['epoch']}"
    if owner == session and now["status"] == JobState.FAILED and now.get("kind") == "system":
        yield f"failed: {who} fails by itself: {now['message']}"
    passed_on = machine is JOB and moves and (begins or CheckVersion in on_lock)
    if counted != begins + passed_on:
        yield f"attempt: {who} counts {counted} more attempts"
    if counted and was["status"] not in machine.working():
        yield f"attempt: {who} is begun although it is {was['status']}"


def _reserved(tree: Tree) -> Iterator[str]:
    """The node of all reservations has their sum."""
    counted = int(tree.nodes[SPACE].data or 0)
    total = sum(int(tree.nodes[f"{SPACE}/{name}"].data) for name in tree.nodes[SPACE].children)
    if counted != total:
        yield f"space: {counted} bytes are counted, and {total} are reserved"


def _job_of(change: Change) -> str:
    of = _OF_JOB.fullmatch(getattr(change, "path", ""))
    return str(of[of.lastindex]) if of and of.lastindex else ""


def _places(tree: Tree, jid: str, state: JobState) -> Iterator[str]:
    """A job is in the queue of its state alone, and in one bucket of its batch: that of its state."""
    queued = [
        folder.rpartition("/")[2]
        for folder in _QUEUES
        if folder in tree.nodes
        for entry in tree.nodes[folder].children
        if entry.endswith(f"-{jid}")
    ]
    if queued != ([] if state is JobState.COMPLETED else [state.value]):
        yield f"queue: {jid} is {state}, and queued in {queued}"
    configuration = tree.nodes.get(f"/jobs/{jid}/configuration")
    bid = json.loads(configuration.data).get("batch_id", "") if configuration else ""
    buckets = [
        bucket
        for bucket in Bucket
        if (node := tree.nodes.get(f"/batches/{bid}/states/{bucket.value}")) and jid in node.children
    ]
    if bid and buckets != [_BUCKET.get(state, Bucket.PROCESSING)]:
        yield f"batch: {jid} is {state}, and its batch has it in {buckets}"
