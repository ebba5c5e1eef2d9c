"""One title of an object, from the deposit's own description, in everything that names the object."""

import io
import json
import zipfile
from pathlib import Path

import pytest

from operations.jobs.batch_view import report, sent_texts
from operations.site import Site
from pipeline.records import Submission, SubmissionType
from pipeline.settings import Settings
from pipeline.states import BatchState
from pipeline.steps.context import open_clients
from pipeline.storage.ocfl.storage import OcflStorage
from tasks import retention
from tests.e2e.collection import send
from tests.e2e.test_pipeline import rows
from tests.integration.test_retention import later
from tests.servers.http_source import HttpSource
from tests.servers.receiver import Receiver
from tests.support.fleet import Fleet, batch_ended, quiet
from tests.support.operators import ANN
from tests.support.outbox import letters
from zkstate.connection.session import Session
from zkstate.record import batches

FORM, OWN = "FORM TITLE", "Jazz for the bears"


@pytest.fixture
def settings(settings: Settings, receiver: Receiver, tmp_path: Path) -> Settings:
    """A collection with a callback."""
    folder = tmp_path / "profiles"
    folder.mkdir()
    (folder / "demo.yaml").write_text(
        f"owner: ark:/99999/fk4o\ncollections: ark:/99999/fk4c\ncallback_url: {receiver.url()}\n"
    )
    return settings.model_copy(update={"profiles": folder})


def a_zip_that_describes_itself() -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as container:
        container.writestr("jazz.txt", "la la")
        container.writestr("mrt-erc.txt", f"erc:\nwho: The Band\nwhat: {OWN}\nwhen: 1926\n")
    return packed.getvalue()


def submitted_with_a_form(session: Session, settings: Settings, url: str) -> str:
    submission = Submission(
        profile_name="demo",
        submitter="tester",
        payload_url=url,
        type=SubmissionType.CONTAINER,
        payload_filename="jazz.zip",
        erc_what=FORM,
        notification=("depositor@example.org",),
    )
    bid = batches.submit(session, submission)
    send(settings, bid, session)
    return bid


def test_report_callback_mail_archive_inventory_and_storage_have_the_title_that_was_stored(
    session: Session, settings: Settings, fleet: Fleet, source: HttpSource, receiver: Receiver
) -> None:
    fleet.worker()
    url = source.put("/jazz.zip", a_zip_that_describes_itself())
    bid = submitted_with_a_form(session, settings, url)
    assert batch_ended(session, bid).status.status is BatchState.COMPLETED
    quiet(session)

    (reported,) = report(Site(settings, session), ANN, bid).completed
    (call,) = receiver.wait_for_requests(1)
    called_back = json.loads(call.raw)["job:jobState"]["job:objectTitle"]
    (mail,) = letters(settings)
    (attached,) = (json.loads(part.get_content()) for part in mail.iter_attachments())
    with_title = rows(settings, "select ark, erc_what from inv_objects")
    retention.remove_old_batches(session, later(session, settings.retention + 60), open_clients(settings))
    (archived,) = report(Site(settings, session), ANN, bid).completed
    (sent,) = sent_texts(Site(settings, session), ANN, bid)

    ark = reported.ark
    assert ark is not None
    stored = OcflStorage(settings.storage).read(ark, "system/mrt-erc.txt")
    assert reported.title == called_back == archived.title == OWN
    assert [job["title"] for job in attached["completedJobs"]] == [OWN]
    assert with_title == [(ark, OWN)]
    assert f"what: {OWN}\n".encode() in (stored or b"")
    assert session.children("/batches") == []
    contents = [str(part.get_content()) for part in mail.walk() if not part.is_multipart()]
    for text in (*contents, sent, (stored or b"").decode(), call.raw.decode()):
        assert FORM not in text
