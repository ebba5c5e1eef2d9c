"""Why a job or a batch is where it is: one paragraph, with what it waits for and what to do."""

from datetime import datetime

from operations.archive import Archive, no_archive
from operations.batch_view import BatchView, batch_view
from operations.job_view import JobView, job_view
from operations.why_batch import why_batch
from operations.why_job import why_job
from operations.wording import age, duration
from pipeline.errors import UsageRefused
from pipeline.records import Record
from pipeline.settings import Settings
from zkstate import batches, jobs
from zkstate.errors import Missing
from zkstate.session import Session


class Explanation(Record):
    id: str
    state: str
    since: datetime
    text: str


def kind_of(name: str) -> str:
    """`job` or `batch`, by the form of its id."""
    for prefix, kind in (("jid", "job"), ("bid", "batch")):
        if name.startswith(prefix):
            return kind
    raise UsageRefused(f"'{name}' is neither a batch (bid0000000001) nor a job (jid0000000001)")


def why(session: Session, settings: Settings, name: str, archive: Archive = no_archive) -> Explanation:
    try:
        if kind_of(name) == "job":
            job = jobs.load(session, name)
            text = why_job(session, settings, job)
            state, since = str(job.status.status), job.status.last_modification_date
        else:
            batch = batches.load(session, name)
            text = why_batch(session, settings, batch)
            state, since = str(batch.status.status), batch.status.last_modified
    except Missing:
        return _gone(session, name, archive)
    return Explanation(id=name, state=state, since=since, text=text)


def _gone(session: Session, name: str, archive: Archive) -> Explanation:
    view: JobView | BatchView
    if kind_of(name) == "job":
        view = job_view(session, name, archive)
        state = str(view.state)
    else:
        view = batch_view(session, name, archive)
        state = str(view.status)
    if view.archived is None:
        return Explanation(id=name, state=state, since=view.since, text=f"{name} is {state}.")
    gone = view.archived
    reason = f": {gone.reason}" if gone.reason else ""
    text = (
        f"{name} is {state} and left ZooKeeper {duration(age(gone.at))} ago, taken out by {gone.by}{reason}. "
        "What is known of it is kept in the archive. There is nothing to do."
    )
    return Explanation(id=name, state=state, since=view.since, text=text)
