"""Provisioning: the job continues once its bytes fit into working storage, and reserves them.

The bytes are reserved in the transaction that moves the job, provided that no other job has reserved any
since the reservations were counted. A job that does not fit waits here without blocking smaller jobs; a job
that would not fit into empty working storage fails.
"""

from pipeline import causes
from pipeline.outcome import Done, Reservation, Wait, system
from pipeline.records import Job
from pipeline.steps import earlier_version
from pipeline.steps.context import StepContext
from pipeline.working_storage import mount
from pipeline.working_storage.capacity import in_units, never_fits, refusal


def work(job: Job, context: StepContext) -> Done | Wait:
    mount.require(context.settings, context.job_record.working_storage)
    is_stored = earlier_version.find(job, context) is not None
    needed = 0 if is_stored else job.space_needed
    too_large = never_fits(needed, context.settings)
    if too_large is not None:
        raise system(too_large).because(causes.SPACE_EXCEEDED())
    # The sum is read first: if a reservation changes before all are read, the sum is outdated.
    promised = context.job_record.promised()
    reservations = context.job_record.working_storage.reservations
    reason = refusal(needed, promised.bytes, reservations, context.settings, job.jid)
    if reason is not None:
        return Wait(reason)
    return Done(
        space_needed=needed if is_stored else None,
        reservation=Reservation(bytes=needed, seen=promised),
        message=f"{in_units(needed)} of working storage reserved" if needed else "",
    )
