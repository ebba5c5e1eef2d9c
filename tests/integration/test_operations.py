"""What is asked of the record: submitting, looking, and why something is where it is."""

import pytest

from entrypoints.render.explanation import text
from operations.deposits.submission import submit
from operations.jobs.batch_view import batch_view
from operations.jobs.job_view import job_view, timeline
from operations.reasons import Reason
from operations.site import Site
from operations.why.why import why
from pipeline import codes
from pipeline.deployment import outdated
from pipeline.inventory.archive import archive_batch
from pipeline.inventory.sql import open_inventory
from pipeline.outcome import Service, ServiceDown
from pipeline.principal import Forbidden, Interface, Principal, Role
from pipeline.profiles.profile import Profiles, UnknownProfile
from pipeline.settings import Settings
from pipeline.states import BatchState, Bucket, Event, FailureKind, JobState
from tasks.broker import read_queues
from tests.support import planting
from tests.support.errors import raises_code
from tests.support.operators import ANN
from zkstate.connection.session import Session
from zkstate.errors import Missing
from zkstate.fleet import outages
from zkstate.record import batches, deletion, jobs
from zkstate.record.batches import BatchMove
from zkstate.record.record import Lock

LIVING = [state for state in JobState if state is not JobState.DELETED]
AWAY = {"broker_url": "redis://127.0.0.1:1/0"}
"""A port where nobody listens."""


@pytest.fixture
def profiles(settings: Settings) -> Profiles:
    return Profiles(settings.profiles)


def test_a_submission_is_written_down_and_handed_to_a_worker(
    session: Session, settings: Settings, profiles: Profiles
) -> None:
    done = submit(Site(settings, session), ANN, planting.submission())

    batch = batches.load(session, done.bid)
    assert batch.status.status is BatchState.PENDING
    assert (done.again, done.sent) == (False, True)
    assert read_queues(settings).tickets == {(done.bid, batch.status.epoch)}


def test_an_older_copy_of_the_record_takes_no_submission_until_the_outage_is_over(
    session: Session, settings: Settings, profiles: Profiles
) -> None:
    older = outdated(Service.RECORD, "zk:2181/arkline", "its mark is 3, that of the inventory 7")
    outages.report(session, older, "host")

    with pytest.raises(ServiceDown, match=r"nothing was submitted, because .*its mark is 3"):
        submit(Site(settings, session), ANN, planting.submission())

    assert session.children("/batches") == []
    outages.end(session, Service.RECORD)
    assert submit(Site(settings, session), ANN, planting.submission()).sent


def test_an_unknown_profile_is_refused_with_the_names_that_are_known(
    session: Session, settings: Settings, profiles: Profiles
) -> None:
    with pytest.raises(UnknownProfile, match="demo"):
        submit(Site(settings, session), ANN, planting.submission(profile_name="demmo"))

    assert session.children("/batches") == []


def test_the_same_key_submits_once(session: Session, settings: Settings, profiles: Profiles) -> None:
    submission = planting.submission(idempotency_key="k1")
    first = submit(Site(settings, session), ANN, submission)

    second = submit(Site(settings, session), ANN, submission)

    assert (second.bid, second.again) == (first.bid, True)
    with raises_code(codes.KEY_REUSED, match=first.bid):
        submit(Site(settings, session), ANN, submission.model_copy(update={"note": "other"}))


def test_a_key_of_another_principal_is_free(session: Session, settings: Settings, profiles: Profiles) -> None:
    submission = planting.submission(idempotency_key="k1")
    first = submit(Site(settings, session), ANN, submission)
    bob = Principal(name="bob", role=Role.DEPOSITOR, interface=Interface.API)

    others = submit(Site(settings, session), bob, submission.model_copy(update={"note": "other"}))
    again = submit(Site(settings, session), bob, submission.model_copy(update={"note": "other"}))

    assert others.bid != first.bid
    assert (again.bid, again.again) == (others.bid, True)


def test_a_key_is_the_same_for_a_person_on_every_host(
    session: Session, settings: Settings, profiles: Profiles
) -> None:
    submission = planting.submission(idempotency_key="k1")
    first = submit(Site(settings, session), ANN, submission)

    again = submit(Site(settings, session), ANN.model_copy(update={"name": "ann@laptop"}), submission)

    assert again.bid == first.bid


def test_a_key_of_0_1_0_belongs_to_the_submitter_of_its_batch(
    session: Session, settings: Settings, profiles: Profiles
) -> None:
    submission = planting.submission(idempotency_key="k1", submitter="ann")
    old = batches.submit(session, submission)
    bob = ANN.model_copy(update={"name": "bob@desk"})
    api = Principal(name="ann", role=Role.DEPOSITOR, interface=Interface.API)

    assert submit(Site(settings, session), ANN, submission).bid == old
    with raises_code(codes.KEY_REUSED, match=old):
        submit(Site(settings, session), ANN, submission.model_copy(update={"note": "other"}))
    bobs = submission.model_copy(update={"submitter": "bob"})
    assert submit(Site(settings, session), bob, bobs).bid != old
    assert submit(Site(settings, session), api, submission).bid != old


def test_a_submission_needs_the_role_of_a_depositor_for_its_collection(
    session: Session, settings: Settings, profiles: Profiles
) -> None:
    viewer = Principal(name="eve", role=Role.VIEWER, interface=Interface.API)
    elsewhere = Principal(
        name="bob", role=Role.DEPOSITOR, interface=Interface.API, collections=frozenset({"other"})
    )

    with pytest.raises(Forbidden, match="role depositor"):
        submit(Site(settings, session), viewer, planting.submission())
    with pytest.raises(Forbidden, match="rights for collection demo"):
        submit(Site(settings, session), elsewhere, planting.submission())

    assert session.children("/batches") == []


def test_a_broker_that_is_away_is_no_error(session: Session, settings: Settings, profiles: Profiles) -> None:
    away = settings.model_copy(update=AWAY)

    done = submit(Site(away, session), ANN, planting.submission())

    assert not done.sent
    assert batches.load(session, done.bid).status.status is BatchState.PENDING


def test_a_batch_shows_how_far_its_jobs_are(session: Session, site: Site) -> None:
    bid, jids = planting.split_batch(session, 4)
    planting.complete(session, jobs.load(session, jids[0]))
    planting.apply_event(session, jobs.load(session, jids[1]), Event.FAIL, FailureKind.CONTENT)
    planting.apply_event(session, jobs.load(session, jids[2]), Event.ACQUIRE)

    view = batch_view(site, ANN, bid)

    assert view.jobs == {
        JobState.PENDING: 1,
        JobState.ESTIMATING: 1,
        JobState.COMPLETED: 1,
        JobState.FAILED: 1,
    }
    assert view.buckets[Bucket.PROCESSING] == 2
    assert (view.total, view.percent, view.ended) == (4, 50.0, False)
    assert [(job.jid, job.kind, job.message) for job in view.failed_jobs] == [
        (jids[1], FailureKind.CONTENT, "said so")
    ]


@pytest.mark.parametrize("state", [state for state in BatchState if state is not BatchState.DELETED])
def test_a_batch_in_any_state_can_be_shown_and_explained(
    session: Session, settings: Settings, state: BatchState
) -> None:
    batch = planting.batch_in(session, state)

    assert batch_view(Site(settings, session), ANN, batch.bid).status is state
    found = why(Site(settings, session), ANN, batch.bid)
    assert found.state == state
    assert batch.bid in text(found)


@pytest.mark.parametrize("state", LIVING)
def test_a_job_in_any_state_can_be_shown_and_explained(
    session: Session, settings: Settings, state: JobState
) -> None:
    job = planting.job_in(session, state)

    assert job_view(Site(settings, session), ANN, job.jid).state is state
    found = why(Site(settings, session), ANN, job.jid)
    assert found.state == state
    assert job.jid in text(found)
    assert timeline(Site(settings, session), ANN, job.jid).steps[-1].state is state


def test_a_job_says_what_an_operator_may_do_with_it(session: Session, site: Site) -> None:
    beyond = planting.job_in(session, JobState.FAILED, JobState.PROVISIONING)
    rejected = planting.one_job(session)
    planting.apply_event(session, rejected, Event.FAIL, FailureKind.CONTENT)

    assert job_view(site, ANN, beyond.jid).verbs == (Event.RESUME, Event.DELETE)
    assert job_view(site, ANN, rejected.jid).verbs == (Event.DELETE,)


def test_what_has_left_zookeeper_is_answered_from_the_archive(session: Session, settings: Settings) -> None:
    batch = planting.batch_in(session, BatchState.COMPLETED)
    (jid,) = batches.all_jobs(session, batch.bid)
    inventory = open_inventory(settings.inventory)
    archive_batch(inventory, batch, [jobs.load(session, jid)], by="retention", reason="old")
    batch = batches.move(
        session, batches.load(session, batch.bid), BatchMove(Event.DELETE, "test", lock=Lock.FREE)
    )
    deletion.remove_batch(session, batch)

    view = batch_view(Site(settings, session), ANN, batch.bid)
    assert (view.status, view.archived and view.archived.by) == (BatchState.COMPLETED, "retention")
    assert job_view(Site(settings, session), ANN, jid).state is JobState.COMPLETED
    assert timeline(Site(settings, session), ANN, jid).steps[-1].state is JobState.COMPLETED
    found = why(Site(settings, session), ANN, jid)
    assert (found.reason, found.holder) == (Reason.ARCHIVED, "retention")
    without_archive = Settings.model_validate({**settings.model_dump(), "home": settings.home / "elsewhere"})
    with pytest.raises(Missing, match=batch.bid):
        batch_view(Site(without_archive, session), ANN, batch.bid)
