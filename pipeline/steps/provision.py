"""Provisioning: the job continues once its bytes fit into working storage, and reserves them.

The bytes are reserved in the transaction that moves the job, on condition that no other job reserved any
since they were counted. A job that does not fit waits here and does not block smaller jobs.
"""

from pipeline.outcome import Done, Reservation, Wait
from pipeline.records import Job
from pipeline.steps.context import StepContext
from pipeline.working_storage.capacity import in_units, refusal


def work(job: Job, context: StepContext) -> Done | Wait:
    promised = context.job_record.promised()
    reason = refusal(job.space_needed, promised.bytes, context.settings)
    if reason is not None:
        return Wait(reason)
    return Done(
        reservation=Reservation(bytes=job.space_needed, seen=promised),
        message=f"{in_units(job.space_needed)} of working storage reserved" if job.space_needed else "",
    )
