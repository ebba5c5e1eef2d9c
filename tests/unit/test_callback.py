import base64
import json
import socket
import threading
from datetime import timedelta
from typing import Any
from xml.etree.ElementTree import fromstring

import pytest

from pipeline.notify import callback
from pipeline.notify.callback import NAMESPACE, HttpCallback, callback_facts
from pipeline.outcome import AttemptOver, ObjectDescription, ServiceDown, StepFailed
from pipeline.profiles.profile import Profile
from pipeline.records import HistoryEntry, ResponseType
from pipeline.settings import Settings
from pipeline.states import Event, FailureKind, JobState
from tests.servers.hostile_source import BEFORE_THE_BODY, HostileSource
from tests.servers.receiver import Receiver
from tests.support.fetching import over_after
from tests.support.records import AT, a_job


def a_callback(**settings: Any) -> HttpCallback:
    return HttpCallback(Settings(**{"allow_networks": "127.0.0.0/8", **settings}), pause=0.01)


def a_profile(url: str | None, **more: Any) -> Profile:
    return Profile(
        name="demo",
        owner="ark:/99999/j2000000",
        collections=("ark:/99999/m5000000",),
        callback_url=url,
        **more,
    )


def test_a_callback_has_the_state_of_a_completed_job(receiver: Receiver) -> None:
    job = a_job(
        1,
        JobState.NOTIFY,
        local_id=("loc-1", "loc-2"),
        erc_who="Tracy Seneca",
        erc_what="Größe",
        erc_when="2009",
        deposit_name="Nachlass Müller 1911",
        message="version 2 was recorded",
    )
    a_callback().deliver(job, a_profile(receiver.url()), 2)

    (request,) = receiver.received
    assert (request.path, request.headers["Content-Type"]) == ("/callback", "application/json")
    assert json.loads(request.raw) == {
        "job:jobState": {
            "xmlns:job": "http://uc3.cdlib.org/ontology/mrt/ingest/job",
            "job:jobID": "jid0000000001",
            "job:batchID": "bid0000000001",
            "job:depositName": "Nachlass Müller 1911",
            "job:jobStatus": "COMPLETED",
            "job:primaryID": "ark:/99999/fk41",
            "job:localID": "loc-1; loc-2",
            "job:versionID": 2,
            "job:packageName": "1.checkm",
            "job:objectCreator": "Tracy Seneca",
            "job:objectTitle": "Größe",
            "job:objectDate": "2009",
            "job:submissionDate": "2026-09-01T12:00:00+00:00",
            "job:completionDate": "2026-09-01T12:00:00+00:00",
            "job:persistentURL": "https://n2t.net/ark:/99999/fk41",
        }
    }


def test_the_date_in_a_callback_is_when_the_object_was_recorded_also_in_one_sent_again_later() -> None:
    recorded, completed = AT + timedelta(hours=1), AT + timedelta(hours=5)
    job = a_job(1, JobState.COMPLETED, last_modification_date=completed)
    moves = (
        HistoryEntry(state=JobState.RECORDING, event=Event.SUCCEED, at=AT),
        HistoryEntry(state=JobState.NOTIFY, event=Event.SUCCEED, at=recorded),
        HistoryEntry(state=JobState.NOTIFY, kind=FailureKind.TRANSIENT, at=recorded + timedelta(hours=1)),
        HistoryEntry(state=JobState.COMPLETED, event=Event.SUCCEED, at=completed),
    )

    assert callback_facts(job.model_copy(update={"history": moves}), 1)["completionDate"] == (
        recorded.isoformat()
    )


def test_the_callback_has_the_description_that_was_stored() -> None:
    stored = ObjectDescription(who="Seneca", what="Jazz for the bears", when="2009")
    job = a_job(erc_who="FORM", erc_what="FORM TITLE", erc_when="1900", description=stored)

    facts = callback_facts(job, 1)

    assert [facts[f"object{element}"] for element in ("Creator", "Title", "Date")] == [
        "Seneca",
        "Jazz for the bears",
        "2009",
    ]


def test_the_callback_of_a_failed_job_has_its_message() -> None:
    facts = callback_facts(a_job(1, JobState.FAILED, message="a.jpg: 404", primary_id=None), None)

    assert (facts["jobStatus"], facts["jobStatusMessage"]) == ("FAILED", "a.jpg: 404")
    assert not {"primaryID", "versionID", "persistentURL"} & facts.keys()


def test_a_submission_can_ask_for_an_xml_callback(receiver: Receiver) -> None:
    job = a_job(1, JobState.NOTIFY, response_type=ResponseType.XML, erc_what="Größe & <Gewicht>\x1b")
    a_callback().deliver(job, a_profile(receiver.url()), 1)

    (request,) = receiver.received
    assert request.headers["Content-Type"] == "application/xml"
    root = fromstring(request.raw)
    assert root.tag == f"{{{NAMESPACE}}}jobState"
    assert root.findtext(f"{{{NAMESPACE}}}objectTitle") == "Größe & <Gewicht>\ufffd"


def test_a_collection_can_ask_for_turtle_callbacks(receiver: Receiver) -> None:
    profile = a_profile(receiver.url(), notification_format="turtle")
    a_callback().deliver(a_job(1, JobState.NOTIFY, erc_what='"q"\n\\ 🗻'), profile, 1)

    (request,) = receiver.received
    assert request.headers["Content-Type"] == "text/turtle"
    lines = request.raw.decode().splitlines()
    assert lines[:4] == [
        f"@prefix job: <{NAMESPACE}#> .",
        "",
        "[] a job:jobState ;",
        '    job:jobID "jid0000000001" ;',
    ]
    assert "    job:versionID 1 ;" in lines
    assert '    job:objectTitle "\\"q\\"\\n\\\\ 🗻" ;' in lines


def test_a_profile_without_a_callback_sends_nothing() -> None:
    a_callback().deliver(a_job(), a_profile(None), 1)


def test_user_and_password_of_the_url_become_basic_authentication(receiver: Receiver) -> None:
    a_callback().deliver(a_job(), a_profile(receiver.url(login="ann:s%40cret@")), 1)

    (request,) = receiver.received
    assert request.headers["Authorization"] == "Basic " + base64.b64encode(b"ann:s@cret").decode()
    assert "ann" not in request.headers["Host"]


def test_repetitions_share_a_delivery_id_and_a_resumed_job_has_a_new_one(receiver: Receiver) -> None:
    receiver.answers += [(503, {}), (200, {})]
    a_callback().deliver(a_job(), a_profile(receiver.url()), 1)
    a_callback().deliver(a_job(retry_count=1), a_profile(receiver.url()), 1)

    assert [request.headers["Arkline-Delivery"] for request in receiver.received] == [
        "jid0000000001-0",
        "jid0000000001-0",
        "jid0000000001-1",
    ]


@pytest.mark.parametrize("status", [500, 503, 429, 408])
def test_a_transient_fault_is_retried(receiver: Receiver, status: int) -> None:
    receiver.answers += [(status, {}), (status, {})]
    a_callback().deliver(a_job(), a_profile(receiver.url()), 1)

    assert len(receiver.received) == 3


def test_a_fault_that_outlasts_the_retries_is_the_receivers_and_shows_no_secret(receiver: Receiver) -> None:
    receiver.answers += [(503, {})] * 3
    url = receiver.url("/callback?token=secret", login="ann:secret@")

    with pytest.raises(
        ServiceDown, match=f"http://127.0.0.1:{receiver.port}/callback.* answered 503"
    ) as failure:
        a_callback().deliver(a_job(), a_profile(url), 1)
    assert failure.value.instance == "127.0.0.1"
    assert "secret" not in failure.value.message
    assert "ann" not in failure.value.message


def test_a_short_retry_after_is_waited_for(receiver: Receiver) -> None:
    receiver.answers += [(429, {"Retry-After": "0"})]
    a_callback().deliver(a_job(), a_profile(receiver.url()), 1)

    assert len(receiver.received) == 2


def test_a_long_retry_after_is_left_to_the_job(receiver: Receiver) -> None:
    receiver.answers += [(429, {"Retry-After": "120"})]

    with pytest.raises(ServiceDown, match="answered 429") as failure:
        a_callback().deliver(a_job(), a_profile(receiver.url()), 1)
    assert failure.value.retry_after == 120
    assert len(receiver.received) == 1


@pytest.mark.parametrize(
    ("status", "remedy"), [(404, "check the URL in the profile"), (302, "that it redirects to")]
)
def test_a_refusal_needs_an_operator(receiver: Receiver, status: int, remedy: str) -> None:
    receiver.answers += [(status, {"Location": receiver.url("/elsewhere")})]

    with pytest.raises(StepFailed, match=f"/callback answered {status}: .*{remedy}") as failure:
        a_callback().deliver(a_job(), a_profile(receiver.url(login="ann:secret@")), 1)
    assert failure.value.kind is FailureKind.SYSTEM
    assert "secret" not in failure.value.message
    assert len(receiver.received) == 1


def test_a_receiver_that_is_unreachable_is_named_without_its_password() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]

    with pytest.raises(ServiceDown, match=f"127.0.0.1:{port}/c cannot be reached") as failure:
        a_callback().deliver(a_job(), a_profile(f"http://ann:secret@127.0.0.1:{port}/c"), 1)
    assert failure.value.instance == "127.0.0.1"
    assert "secret" not in failure.value.message


def test_a_receiver_that_does_not_answer_times_out(
    receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(callback, "TIMEOUT", 0.1)
    receiver.hold = threading.Event()

    with pytest.raises(ServiceDown, match="did not answer in time") as failure:
        a_callback().deliver(a_job(), a_profile(receiver.url()), 1)
    assert failure.value.instance == "127.0.0.1"


@pytest.mark.parametrize("variant", BEFORE_THE_BODY)
def test_a_receiver_whose_answer_never_ends_is_given_up_after_the_timeout(
    variant: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(callback, "TIMEOUT", 0.4)
    with HostileSource(variant, pause=0.05) as receiver:
        with pytest.raises(StepFailed, match="did not answer in time") as failure:
            a_callback().deliver(a_job(), a_profile(receiver.url), 1)
        receiver.await_left(receiver.arrived)  # a try on a busy machine may be over before it arrives
    assert failure.value.kind is FailureKind.TRANSIENT


def test_a_callback_ends_with_its_attempt() -> None:
    over = threading.Event()
    threading.Timer(0.3, over.set).start()

    with HostileSource("endless-header", pause=0.05) as receiver, pytest.raises(AttemptOver):
        a_callback().deliver(a_job(), a_profile(receiver.url), 1, over_after(over))


def test_a_receiver_on_a_private_network_needs_permission(receiver: Receiver) -> None:
    with pytest.raises(StepFailed, match=r"not public: .*ARKLINE_ALLOW_NETWORKS") as failure:
        a_callback(allow_networks="").deliver(a_job(), a_profile(receiver.url()), 1)
    assert failure.value.kind is FailureKind.SYSTEM
    assert receiver.received == []
