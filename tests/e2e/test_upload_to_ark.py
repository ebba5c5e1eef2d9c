"""From an upload to an ARK with nothing but a token: as `curl` does it."""

import base64
import hashlib

from operations.jobs.batch_view import report
from operations.site import Site
from pipeline.principal import Role
from pipeline.settings import Settings
from tests.support import cli
from tests.support.fleet import Fleet, assert_completed, batch_ended
from tests.support.operators import ANN
from tests.support.web import serving
from zkstate.connection.session import Session

DATA = b"lighthouse" * 1000


def test_an_upload_becomes_an_object_whose_custody_begins_with_the_depositors_digest(
    session: Session, settings: Settings, fleet: Fleet
) -> None:
    fleet.worker()
    fleet.beat()
    sha256 = hashlib.sha256(DATA)
    digest = f"sha-256=:{base64.b64encode(sha256.digest()).decode()}:"
    with serving(settings) as web:
        ada = web.caller(Role.DEPOSITOR, ["demo"], name="ada")
        uploaded = ada.request(
            "POST", "/v1/uploads?name=light.jpg", data=DATA, headers={"Repr-Digest": digest}
        ).json()
        form = {"profile": "demo", "file": uploaded["payload_url"], "type": "file", "responseForm": "json"}
        parts = {name: (None, value) for name, value in form.items()}
        answer = ada.request("POST", "/poster/submit", files=parts).json()

    bid = answer["bat:batchState"]["bat:batchID"]
    assert_completed(batch_ended(session, bid, timeout=120))
    (completed,) = (job for _, jobs in report(Site(settings, session), ANN, bid).sections for job in jobs)
    assert completed.ark is not None
    custody = cli.run(settings, "object", completed.ark, "--json").json()["custody"]
    (file,) = (file for file in custody["files"] if file["path"] == "producer/light.jpg")
    assert file["source"]["digest"] == f"sha256:{sha256.hexdigest()}"
    assert (file["source"]["declared_by"], custody["agrees"]) == ("upload", True)
