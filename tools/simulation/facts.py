"""What a history does to its jobs and batches, read from each change that the leader commits."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from pipeline.machine import Machine, Transition
from pipeline.states import ANY, BATCH, JOB, BatchState, Bucket, Event, JobState, Room
from tools.simulation.ensemble import Change, Create, Delete, Put, Tree


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
    processed: set[str] = field(default_factory=set)
    """The jobs whose processing began: their version may be stored."""
    stored: set[str] = field(default_factory=set)

    def note(self, tree: Tree, changes: Sequence[Change]) -> None:
        """Take over what this transaction changed; what was refused is not in the tree."""
        written = {getattr(change, "path", "") for change in changes}
        for change in changes:
            match change, getattr(change, "path", "").split("/"):
                case Create(), ["", "jobs", jid, "configuration"] if change.path in tree.nodes:
                    given = json.loads(change.data)
                    self.names[jid] = given["payload_url"].rpartition("/")[2]
                    self.bids[jid] = given["batch_id"]
                case Create() | Put(), ["", "jobs" | "batches" as kind, name, "status"]:
                    node = tree.nodes.get(change.path)
                    if node is not None and node.data == change.data:
                        history = f"/{kind}/{name}/history"
                        entry = json.loads(tree.nodes[history].data)[-1] if history in written else {}
                        self._write(kind, name, json.loads(change.data), entry.get("event"))
                case Create(), ["", "batches", _, "states", Bucket.DELETED.value, jid]:
                    if change.path in tree.nodes and jid in self.jobs:
                        self._left(jid)
                case Delete(), ["", "batches", bid, "status"] if change.path not in tree.nodes:
                    self.batches[bid] = {**self.batches[bid], "status": BatchState.DELETED}
                case Delete(), ["", "jobs", jid, "status"] if change.path not in tree.nodes:
                    if self.jobs[jid]["status"] != JobState.COMPLETED:  # whose record leaves with its batch
                        self.jobs[jid] = {**self.jobs[jid], "status": JobState.DELETED}
                case _:
                    pass

    def _write(self, kind: str, name: str, status: dict[str, Any], event: str | None) -> None:
        """`event`: of a move; None if the record stays in its state."""
        known = self.jobs if kind == "jobs" else self.batches
        before, known[name] = known.get(name), status
        if kind == "jobs" and status["status"] == JobState.PROCESSING:
            self.processed.add(name)
        if kind == "jobs" and JOB.facts[JobState(status["status"])].stored:
            self.stored.add(name)
        if before is not None and event is not None and before.get("op") != status.get("op"):
            machine: Machine[Any] = JOB if kind == "jobs" else BATCH
            self.rows |= rows_of(machine, before, event, status["status"])

    def _left(self, jid: str) -> None:
        self.rows |= rows_of(JOB, self.jobs[jid], Event.DELETE, JobState.DELETED)
        self.jobs[jid] = {**self.jobs[jid], "status": JobState.DELETED}

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
