"""Compares a restored record and inventory with the run they were restored from."""

from collections.abc import Iterator
from dataclasses import dataclass

from pipeline.records import number_of
from pipeline.states import JobState
from tools.chaos.acts import Acts, Backup
from tools.chaos.final_state import FinalState
from tools.chaos.problem import Category, Problem


@dataclass(frozen=True)
class Restored:
    """A restored deployment, after `check --repair`."""

    state: FinalState
    """With the record, the audit's findings, and the inventory."""
    last_job: int
    last_batch: int


def check_restored(backup: Backup, restored: Restored, final: FinalState, acts: Acts) -> Iterator[Problem]:
    """Check a restore; `final`: the end of the run, later than the backup."""
    state = restored.state
    for jid in sorted(backup.completed):
        job = state.jobs.get(jid)
        if job is None or job.status.status is not JobState.COMPLETED:
            now = job.status.status if job else "absent"
            yield Problem(Category.LOST, jid, f"was completed before the backup and is {now}")
    yield from _numbers(restored, final)
    yield from _entries(state, final, acts)
    yield from (Problem(Category.AUDIT, "", finding) for finding in state.findings)


def _numbers(restored: Restored, final: FinalState) -> Iterator[Problem]:
    """Check that no job or batch number is given twice."""
    jobs = {*final.jobs, *(version.jid for version in (*final.versions, *final.entries))}
    for kind, last, given in (
        ("job", restored.last_job, jobs),
        ("batch", restored.last_batch, set(final.batches)),
    ):
        highest = max(map(number_of, given), default=0)
        if last < highest:
            text = f"the last {kind} number is {last}, but {highest} was given"
            yield Problem(Category.DUPLICATED, "", text)


def _entries(state: FinalState, final: FinalState, acts: Acts) -> Iterator[Problem]:
    """Check that the inventory has every version it had, unless the job that enters it will run again."""
    entered = {entry.jid: entry for entry in state.entries}
    for entry in final.entries:
        job = state.jobs.get(entry.jid)
        waiting = job is not None and job.status.status is not JobState.COMPLETED
        if entry.jid in acts.deleted_jobs or (waiting and entry.jid not in entered):
            continue
        present = entered.get(entry.jid)
        if present != entry:
            yield Problem(Category.LOST, entry.jid, f"the inventory has {present}, not {entry}")
    arks = {entry.ark for entry in final.entries if entry.jid not in acts.deleted_jobs}
    for local_id, ark in final.local_ids.items():
        if ark in arks and state.local_ids.get(local_id) != ark:
            yield Problem(
                Category.DUPLICATED, "", f"{local_id} names {state.local_ids.get(local_id)}, not {ark}"
            )
