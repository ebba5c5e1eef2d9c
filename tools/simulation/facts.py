"""What a history does to its jobs and batches, read from each change that the leader commits."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from kazoo.protocol.serialization import Create, Delete, SetData

from pipeline.machine import Machine, Transition
from pipeline.states import ANY, BATCH, JOB, BatchState, Bucket, Event, JobState, Room
from tools.simulation.ensemble import Change


@dataclass
class Facts:
    """The statuses of all jobs and batches that there ever were, and the rows by which they moved."""

    jobs: dict[str, dict[str, Any]] = field(default_factory=dict)
    """JID -> its last status, also of a job that has left the record."""
    batches: dict[str, dict[str, Any]] = field(default_factory=dict)
    names: dict[str, str] = field(default_factory=dict)
    """JID -> the name of its file."""
    bids: dict[str, str] = field(default_factory=dict)
    """JID -> the id of its batch."""
    rows: set[str] = field(default_factory=set)
    reached: set[tuple[str, str]] = field(default_factory=set)
    """The id of a job or a batch, and a state that the record says it reached."""

    def note(self, changes: Sequence[Change]) -> None:
        """Note the changes of a transaction that was committed."""
        written = {change.path: change.data for change in changes if isinstance(change, Create | SetData)}
        for change in changes:
            match change, getattr(change, "path", "").split("/"):
                case Create(), ["", "jobs", jid, "configuration"]:
                    given = json.loads(change.data)
                    self.names[jid] = given["payload_url"].rpartition("/")[2]
                    self.bids[jid] = given["batch_id"]
                case Create() | SetData(), ["", "jobs" | "batches" as kind, name, "status"]:
                    known, status = self.known(kind), json.loads(change.data)
                    before, known[name] = known.get(name), status
                    self.reached.add((name, status["status"]))
                    history = json.loads(written.get(f"/{kind}/{name}/history", b"[{}]"))
                    event = history[-1].get("event")  # of a move; none if the record stays in its state
                    if before is not None and event is not None and before.get("op") != status.get("op"):
                        machine: Machine[Any] = JOB if kind == "jobs" else BATCH
                        self.rows |= rows_of(machine, before, event, status["status"])
                case Create(), ["", "batches", _, "states", Bucket.DELETED.value, jid] if jid in self.jobs:
                    self.rows |= rows_of(JOB, self.jobs[jid], Event.DELETE, JobState.DELETED)
                    self.jobs[jid] = {**self.jobs[jid], "status": JobState.DELETED}
                case Delete(), ["", "batches", bid, "status"]:
                    self.batches[bid] = {**self.batches[bid], "status": BatchState.DELETED}
                case Delete(), ["", "jobs", jid, "status"]:
                    if self.jobs[jid]["status"] != JobState.COMPLETED:  # whose record leaves with its batch
                        self.jobs[jid] = {**self.jobs[jid], "status": JobState.DELETED}
                case _:
                    pass

    def known(self, kind: str) -> dict[str, dict[str, Any]]:
        """Those of the folder `jobs` or `batches` of the record."""
        return self.jobs if kind == "jobs" else self.batches

    def in_state(self, state: str) -> list[str]:
        """The jobs or the batches in this state, as a list shows them."""
        known = self.jobs if isinstance(state, JobState) else self.batches
        return [name for name, status in known.items() if status["status"] == state]


def rows_of(machine: Machine[Any], before: dict[str, Any], event: str, target: str) -> set[str]:
    """The row of a move from a status; empty if the table has none."""
    after = before.get("last_successful_status") if machine is JOB else None
    room = Room(before.get("room", Room.KEPT))
    rows = [
        row
        for row in machine.rows(before["status"], Event(event))
        if row.target == target and row.follows(after, room)
    ]
    usual = any(not row.named for row in rows)
    return {name_of(machine, row) for row in rows if row.named is not usual}


def name_of(machine: Machine[Any], row: Transition[Any]) -> str:
    """A row in words: `job failed resume downloading after provisioning, room kept`."""
    words = f"{machine.name} {row.source} {row.event} {row.target}"
    if row.after is not ANY:
        words += f" after {row.after or 'nothing'}"
    if row.room:
        words += f", room {' or '.join(sorted(row.room))}"
    return words + (", if named" if row.named else "")
