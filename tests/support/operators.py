"""An administrator for a test, and a job that holds resources."""

from pipeline.attempt import UNATTENDED
from pipeline.outcome import Done, Reservation
from pipeline.principal import Interface, Principal, Role
from pipeline.records import Job
from pipeline.settings import Settings
from pipeline.states import Event
from pipeline.working_storage import mount
from pipeline.working_storage.workspace import folder_of
from tests.support import planting
from zkstate.connection.session import Session
from zkstate.record import batches, jobs, space
from zkstate.record.jobs import JobMove

ANN = Principal(name="ann@desk", role=Role.ADMIN, interface=Interface.CLI)


def downloading_job(session: Session, settings: Settings) -> Job:
    """A job in downloading that holds reserved space and has a working directory."""
    batch = planting.acquired_batch(session)
    batch = planting.create_jobs(session, batch, planting.plan(1), settings.working, "test", UNATTENDED)
    batches.finish_split(session, batch)
    job = jobs.load(session, batches.all_jobs(session, batch.bid)[0])
    job = planting.apply_event(session, job, Event.ACQUIRE)
    job = jobs.move(
        session, planting.acquire(session, job), JobMove(Event.SUCCEED, "w", done=Done(space_needed=700))
    )
    seen = space.promised(session)
    granted = Done(reservation=Reservation(700, seen))
    job = jobs.move(session, planting.acquire(session, job), JobMove(Event.SUCCEED, "w", done=granted))
    mount.mark(settings.working)
    folder = folder_of(job, settings.working)
    folder.mkdir(parents=True)
    (folder / "a.txt").write_text("a")
    return job
