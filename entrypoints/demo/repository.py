"""What the demo asks of arkline: the same verbs as the command line and the API."""

from entrypoints.operations.batch_view import BatchView, batch_view
from entrypoints.operations.listing import JobFilter, JobRow, find
from entrypoints.operations.submitting import submit
from pipeline.profile import Profiles
from pipeline.records import Submission
from pipeline.settings import Settings
from zkstate.session import Session


class Repository:
    """The running stack, through one session."""

    def __init__(self, session: Session, settings: Settings) -> None:
        self._session = session
        self._profiles = Profiles(settings.profiles)

    def submit(self, submission: Submission) -> str:
        return submit(self._session, self._profiles, submission).bid

    def view(self, bid: str) -> BatchView:
        return batch_view(self._session, bid)

    def jobs(self, bid: str) -> list[JobRow]:
        return list(find(self._session, JobFilter(bid=bid)))
