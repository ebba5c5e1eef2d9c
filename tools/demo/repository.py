"""What the demo asks of arkline: the same verbs as the command line and the API."""

from operations.batch_view import BatchView, batch_view
from operations.submission import submit
from pipeline.notify.report import as_text, compose_report
from pipeline.principal import Interface, Principal, Role
from pipeline.profiles.profile import Profiles
from pipeline.records import Submission
from pipeline.settings import Settings
from zkstate import batches, jobs
from zkstate.session import Session

_DEMO = Principal(name="demo", role=Role.ADMIN, interface=Interface.CLI)


class Repository:
    """The running stack, through one session."""

    def __init__(self, session: Session, settings: Settings) -> None:
        self._session = session
        self._settings = settings
        self._profiles = Profiles(settings.profiles)

    def submit(self, submission: Submission) -> str:
        return submit(self._session, self._settings, self._profiles, submission, _DEMO).bid

    def view(self, bid: str) -> BatchView:
        return batch_view(self._session, bid)

    def report(self, bid: str) -> str:
        """What the depositor was told by mail, word for word."""
        found = [jobs.load(self._session, jid) for jid in batches.all_jobs(self._session, bid)]
        return as_text(compose_report(batches.load(self._session, bid), found))
