"""EZID and the Merritt storage service, away and back while real workers want them."""

import pytest

from pipeline.settings import Settings
from pipeline.states import BatchState
from tests.e2e.collection import put_collection, submit
from tests.ezid_server import PASSWORD, USER, Fault, ezid
from tests.fleet import Fleet, batch_ended, quiet, wait_for
from tests.http_source import HttpSource
from tests.merritt_server import merritt
from zkstate import batches, jobs, paths
from zkstate.session import Session

pytestmark = [pytest.mark.e2e, pytest.mark.integration, pytest.mark.timeout(240)]

OBJECTS = 6


def split(session: Session, bid: str) -> None:
    def is_split() -> bool:
        return batches.load(session, bid).status.total is not None

    wait_for(session, paths.batch_status(bid), is_split, 60, lambda: str(batches.load(session, bid)))


def waits_for(session: Session, jid: str, service: str) -> None:
    """Wait until the job's last try failed for want of `service`."""

    def said() -> bool:
        return service in jobs.load(session, jid).status.message

    wait_for(session, paths.job_status(jid), said, 60, lambda: str(jobs.load(session, jid)))


def test_services_that_go_and_come_back_lose_nothing_and_mint_nothing_twice(
    session: Session, settings: Settings, fleet: Fleet, source: HttpSource
) -> None:
    with ezid() as names, merritt() as store:
        fleet.extra |= {
            "ARKLINE_EZID_URL": names.url,
            "ARKLINE_EZID_USER": USER,
            "ARKLINE_EZID_PASSWORD": PASSWORD,
            "ARKLINE_STORAGE_SERVICE_URL": store.url,
            "ARKLINE_MAX_TRIES": "100",
            "ARKLINE_BACKOFF_LIMIT": "1",
        }
    fleet.worker()
    fleet.beat()
    bid = submit(session, settings, put_collection(source, objects=OBJECTS, files=1))
    split(session, bid)
    members = batches.all_jobs(session, bid)
    waits_for(session, members[0], "EZID")
    names.faults = [Fault(cut=True)] * 5

    with ezid(names):
        waits_for(session, members[0], "the storage service")
        with merritt(store):
            batch = batch_ended(session, bid, timeout=120)
            quiet(session)

    assert batch.status.status is BatchState.COMPLETED, batch.status.message
    arks = {jobs.load(session, jid).identifiers.primary_id for jid in members}
    assert len(arks) == OBJECTS
    assert set(names.identifiers) == arks
    assert {kept["_status"] for kept in names.identifiers.values()} == {"public"}
    assert {ark for _, ark in store.objects} == arks
    assert {len(versions) for versions in store.objects.values()} == {1}
    assert list(settings.storage.rglob("*")) == []
