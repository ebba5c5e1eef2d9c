"""A failed job's callback: the depositor's system is told, and nothing depends on whether it was."""

from celery.exceptions import Ignore

from pipeline.errors import UsageRefused
from pipeline.outcome import StepFailed
from pipeline.states import JobState
from tasks.app import app
from tasks.logs import log
from tasks.process import PROCESS
from tasks.profiles import profile_of
from zkstate import jobs
from zkstate.errors import Missing, Unreachable


def tell_failed(jid: str, epoch: int) -> None:
    """Tell of a job that failed and still is; what a later try of the job says is told then."""
    try:
        session = PROCESS.session()
        job = jobs.load(session, jid)
    except (Missing, Unreachable) as error:
        log().warning("a failure was not told", jid=jid, error=str(error))
        PROCESS.drop_session()
        raise Ignore from error
    status = job.status
    if (status.status, status.epoch) != (JobState.FAILED, epoch):
        return
    if status.last_successful_status is JobState.RECORDING:
        return  # its object is kept, and all that failed is the callback itself
    kit = PROCESS.kit()
    try:
        profile = profile_of(session, kit, job.bid, job.configuration.profile_name)
        kit.callback.tell(job, profile, None)
    except (StepFailed, UsageRefused) as error:
        log().warning("a failure was not told", jid=jid, error=str(error))


app.task(name="callback.failed")(tell_failed)
