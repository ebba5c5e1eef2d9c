"""The nodes of new jobs, which are encoded by a template."""

import pytest

from pipeline.attempt import UNATTENDED
from pipeline.manifests.split import Plan
from pipeline.states import JobState
from tests.support import planting
from zkstate import paths
from zkstate.connection.session import Session
from zkstate.connection.transaction import Create, Delete, commit
from zkstate.errors import Refused
from zkstate.record import creation, jobs


def test_jobs_of_one_transaction_have_priorities_and_identifiers_of_their_own(session: Session) -> None:
    planned = (
        planting.planned(1, priority=7, local_id=("l-1",)),
        planting.planned(2, priority=0, primary_id="ark:/99999/fk4abc"),
        planting.planned(3, priority=7, erc_what="jid0000000001"),
        planting.planned(4, priority=None),
    )
    batch = planting.acquired_batch(session)
    plan = Plan(planned, "sha")
    (batch,) = creation.create_jobs(session, batch, plan, planting.WORKING, "splitter", UNATTENDED)

    for number, (one, priority) in enumerate(zip(planned, (7, 0, 7, 5), strict=True), 1):
        jid = f"jid{number:010d}"
        job = jobs.load(session, jid)
        assert (job.bid, job.status.priority, job.history[0].by) == (batch.bid, priority, "splitter")
        assert (job.identifiers.local_id, job.identifiers.primary_id) == (one.local_id, one.primary_id)
        assert (job.configuration.payload_url, job.configuration.erc_what) == (one.payload_url, one.erc_what)
        assert job.configuration.working_dir == str(planting.WORKING / batch.bid / jid)
        assert sorted(session.children(paths.job(jid))) == sorted(
            ("bid", "configuration", "history", "identifiers", "priority", "space_needed", "status")
        )
        assert session.get(paths.priority(jid))[0] == str(priority).encode()
        assert session.exists(paths.queue_entry(job.status.status, priority, jid))


def test_a_node_in_the_way_of_a_new_job_is_named(session: Session) -> None:
    batch = planting.acquired_batch(session)
    entry = paths.queue_entry(JobState.PENDING, 5, "jid0000000003")
    session.ensure_node(entry)

    with pytest.raises(Refused, match=f"^{entry}: NodeExistsError"):
        planting.create_jobs(session, batch, planting.plan(5), planting.WORKING, "splitter", UNATTENDED)

    assert session.exists(paths.job("jid0000000001")) is None
    commit(session, [Delete(entry)])


def test_an_operation_behind_an_encoded_one_is_a_mistake(session: Session) -> None:
    batch = planting.acquired_batch(session)
    _, encoded = creation.compose(session, batch, planting.plan(2), 0, planting.WORKING, "splitter")

    with pytest.raises(TypeError, match="comes after nodes of a template"):
        commit(session, (*encoded, Create("/ids/other")))

    assert session.exists(paths.job("jid0000000001")) is None
