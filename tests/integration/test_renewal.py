"""A batch keeps the profile it started with until an operator renews it."""

import json
from pathlib import Path

import pytest

from operations.jobs.allowed_verbs import Moved
from operations.site import Site
from operations.verbs.collection_profiles import renew
from operations.verbs.holds import batch_history
from operations.why.why import why
from pipeline.attempt import UNATTENDED
from pipeline.errors import Action
from pipeline.principal import Interface
from pipeline.profiles.profile import Profiles, UnknownProfile
from pipeline.profiles.snapshot import take_snapshot
from pipeline.records import Batch
from pipeline.settings import Settings
from pipeline.states import BatchState, Event, FailureKind, IllegalTransition
from tests.support import cli as arkline
from tests.support import planting
from tests.support.operators import ANN
from zkstate import paths
from zkstate.connection.session import Session
from zkstate.record import batches, jobs, record
from zkstate.record.batches import BatchMove
from zkstate.record.record import Lock


@pytest.fixture
def settings(settings: Settings, tmp_path: Path) -> Settings:
    folder = tmp_path / "profiles"
    folder.mkdir()
    return settings.model_copy(update={"profiles": folder})


def write(settings: Settings, **rules: object) -> None:
    profile = {"owner": "ark:/99999/fk4o", "collections": ["ark:/99999/fk4c"], **rules}
    (settings.profiles / "demo.yaml").write_text(json.dumps(profile))


def started(session: Session, settings: Settings) -> Batch:
    bid = batches.submit(session, planting.submission())
    batch = batches.acquire(session, record.ticket(batches.load(session, bid)), "test")
    profile = take_snapshot(Profiles(settings.profiles).get("demo"))
    return batches.move(session, batch, BatchMove(Event.ACQUIRE, "test", lock=Lock.KEEP, profile=profile))


def test_a_renewed_batch_goes_on_by_the_file_and_says_who_changed_it(
    session: Session, settings: Settings, site: Site
) -> None:
    write(settings, priority=7)
    batch = started(session, settings)
    write(settings, priority=9)

    assert renew(site, ANN, batch.bid, dry_run=True).changes == {"priority": (7, 9)}
    assert renew(site, ANN, batch.bid, reason="because").changes == {"priority": (7, 9)}
    assert renew(site, ANN, batch.bid, reason="because").changes == {}

    snapshot = batches.profile_snapshot(session, batch.bid)
    assert snapshot is not None
    assert (snapshot.profile["priority"], snapshot.by, snapshot.reason) == (9, "ann@desk", "because")


def test_every_renewal_stays_in_the_history_of_the_batch(
    session: Session, settings: Settings, site: Site
) -> None:
    write(settings, priority=7)
    batch = started(session, settings)
    for priority in (8, 9):
        write(settings, priority=priority)
        bob = ANN.model_copy(update={"name": f"bob{priority}"})
        renew(site, bob, batch.bid, reason="because")

    history = batch_history(Site(settings, session), ANN, batch.bid)

    assert [(one.by, one.reason, one.via) for one in history.renewals] == [
        ("bob8", "because", Interface.CLI),
        ("bob9", "because", Interface.CLI),
    ]
    shown = arkline.run(settings, "history", batch.bid).out
    actions = [line.split()[2] for line in shown.splitlines() if line.startswith("20")]
    assert actions == ["created", "acquire", "renew-profile", "renew-profile"]


def test_a_renewal_on_an_older_version_is_refused(session: Session, settings: Settings, site: Site) -> None:
    write(settings, priority=7)
    batch = started(session, settings)
    write(settings, priority=9)

    with pytest.raises(Moved, match=f"{batch.bid} has changed since you read it"):
        renew(site, ANN, batch.bid, version=batch.version - 1)

    assert renew(site, ANN, batch.bid, version=batch.version).changes == {"priority": (7, 9)}


def test_a_batch_that_an_older_release_started_can_be_given_a_profile(
    session: Session, settings: Settings, site: Site
) -> None:
    write(settings)
    batch = planting.acquired_batch(session)

    assert renew(site, ANN, batch.bid).changes["owner"] == (None, "ark:/99999/fk4o")
    assert batches.profile_snapshot(session, batch.bid) is not None


@pytest.mark.parametrize(
    ("state", "because"),
    [
        (BatchState.PENDING, "has not started"),
        (BatchState.HELD, "has not started"),
        (BatchState.COMPLETED, "has no job left"),
        (BatchState.DELETED, "has no job left"),
    ],
)
def test_a_batch_with_nothing_to_renew_is_left_as_it_is(
    session: Session, settings: Settings, site: Site, state: BatchState, because: str
) -> None:
    write(settings)
    batch = planting.batch_in(session, state)

    with pytest.raises(IllegalTransition, match=because):
        renew(site, ANN, batch.bid)

    assert session.exists(paths.profile_snapshot(batch.bid)) is None


def test_an_invalid_profile_replaces_nothing(session: Session, settings: Settings, site: Site) -> None:
    write(settings, priority=7)
    batch = started(session, settings)
    before = planting.tree(session)
    (settings.profiles / "demo.yaml").unlink()

    with pytest.raises(UnknownProfile):
        renew(site, ANN, batch.bid)

    assert planting.tree(session) == before


def test_the_command_shows_what_changes(session: Session, settings: Settings) -> None:
    write(settings, priority=7, callback_url="https://ann:secret@example.org/told?token=secret")
    batch = started(session, settings)
    write(settings, priority=9, callback_url="https://ann:secret@example.com/told?token=secret")

    done = arkline.run(settings, "profile", "renew", batch.bid, "--dry-run")

    assert done.code == 0
    assert done.out == (
        "callback_url: https://example.org/told -> https://example.com/told\npriority: 7 -> 9\n"
    )
    assert f"{batch.bid} would use profile demo as its file is now: 2 fields changed" in done.err


def test_why_says_that_a_corrected_profile_is_not_used_before_its_renewal(
    session: Session, settings: Settings, site: Site
) -> None:
    write(settings, storage_node=1)
    batch = started(session, settings)
    batch = planting.create_jobs(session, batch, planting.plan(1), settings.working, "test", UNATTENDED)
    batches.finish_split(session, batch)
    (jid,) = batches.all_jobs(session, batch.bid)
    planting.apply_event(session, jobs.load(session, jid), Event.FAIL, FailureKind.SYSTEM)
    assert why(Site(settings, session), ANN, jid).changed_fields == ()

    write(settings, storage_node=2)
    found = why(Site(settings, session), ANN, jid)
    assert found.changed_fields == ("storage_node",)
    assert [remedy.action for remedy in found.remedies] == [Action.RENEW_PROFILE, Action.RESUME]

    renew(site, ANN, batch.bid)
    assert why(Site(settings, session), ANN, jid).changed_fields == ()
