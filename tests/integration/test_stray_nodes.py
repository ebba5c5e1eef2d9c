"""Nodes that are not arkline's in the folders of the record: the work goes on, and the audit names them."""

from collections.abc import Iterator

import pytest

from pipeline.settings import Settings
from pipeline.states import Bucket, JobState
from tests.integration.test_damage_spoils_no_list import Readers, faults, readers, whole
from tests.support import planting
from tests.support.boards import job_page
from zkstate import feed, paths
from zkstate.care import audit
from zkstate.connection.session import Session
from zkstate.queue import listings, queue
from zkstate.record import callbacks

__all__ = ["readers", "whole"]

STRAYS = ("notes", "05-notes", "xx-jid0000000001", "5-jid0000000001")


@pytest.fixture
def strays(session: Session) -> Iterator[list[str]]:
    """Paths of nodes that no release of arkline has written."""
    bid = planting.one_job(session).bid
    folders = [
        paths.BATCHES,
        paths.JOBS,
        paths.OPEN_BATCHES,
        paths.WAITING,
        paths.CALLBACKS,
        paths.bucket(bid, Bucket.PROCESSING),
    ]
    in_queues = [
        f"{paths.queue(state)}/{name}" for state in (JobState.PENDING, JobState.FAILED) for name in STRAYS
    ]
    planted = [*in_queues, *(f"{folder}/notes" for folder in folders)]
    for path in planted:
        session.ensure_node(path)
    yield planted
    for path in planted:
        session.zk.delete(path)


def test_stray_nodes_spoil_no_list_and_no_scheduled_work(readers: Readers, strays: list[str]) -> None:
    assert strays
    assert faults(readers) == {}


def test_a_pending_job_is_fed_beside_stray_nodes(
    session: Session, settings: Settings, strays: list[str]
) -> None:
    job = planting.one_job(session)

    tickets = queue.feed(session, 100).tickets

    assert job.jid in {ticket.id for ticket in tickets}
    assert {ticket.id for ticket in tickets} <= set(listings.all_jobs(session))


def test_a_list_by_priority_has_jobs_only(session: Session, strays: list[str]) -> None:
    job = planting.one_job(session)

    listed = job_page(session, state=JobState.PENDING)

    assert job.jid in {row.jid for row in listed.rows}
    assert not listed.unreadable


def test_the_board_gets_jobs_only(session: Session, strays: list[str]) -> None:
    buckets = [(bid, Bucket.PROCESSING) for bid in listings.all_batches(session)]

    jids = {jid for _, _, jids in feed.bucket_jids(session, buckets) for jid in jids}

    assert jids
    assert jids <= set(listings.all_jobs(session))


def test_the_audit_names_every_stray_node(session: Session, strays: list[str]) -> None:
    beside = {f"{folder}/notes" for folder in (paths.BATCHES, paths.JOBS)}  # of another application

    assert set(strays) - beside <= {finding.path for finding in audit.audit(session)}
    assert callbacks.names(session) == []
