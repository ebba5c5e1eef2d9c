"""A record that is older, or another deployment's: `why` and `status` name it, and the remedy works."""

import json
from pathlib import Path
from uuid import uuid4

import pytest

from entrypoints.cli import exit_codes
from entrypoints.render.remedies import command
from operations.checks.deployment import back_up, initialize
from operations.checks.stores import MARGIN
from operations.fleet.health import Health, HealthProblem, overview
from operations.reasons import Reason
from operations.site import Site
from operations.why.why import why
from pipeline.deployment import OutdatedStore, outdated
from pipeline.inventory.sql import SqlInventory, open_inventory
from pipeline.outcome import Service, ServiceDown
from pipeline.principal import Role
from pipeline.settings import Settings
from tasks.stores import ConfirmedStores, count_up
from tests.support import cli, planting
from tests.support.operators import ANN
from tests.support.polling import eventually
from tests.support.web import serving
from zkstate import paths
from zkstate.care import copy
from zkstate.connection.session import Session, connect
from zkstate.fleet import counters, outages
from zkstate.record import batches


@pytest.fixture
def older(session: Session, settings: Settings) -> str:
    """A job of a record whose marker is older than the inventory."""
    initialize(Site(settings, session))
    job = planting.one_job(session)
    before, _ = session.get(paths.DEPLOYMENT)
    for _ in range(3):
        count_up(session, inventory(settings))
    session.zk.set(paths.DEPLOYMENT, before)
    return job.jid


def with_changes(settings: Settings, **changes: object) -> Settings:
    return Settings.model_validate(settings.model_dump(exclude_unset=True) | changes)


def inventory(settings: Settings) -> SqlInventory:
    return open_inventory(settings.inventory)


def await_end_of_the_outage(session: Session, settings: Settings, jid: str) -> None:
    """Outages are cached, and the news of what another process wrote takes a moment."""
    site = Site(settings, session)
    eventually(lambda: why(site, ANN, jid).reason is not Reason.RECORD_OUTDATED)


def test_an_older_record_is_named_with_its_time_and_the_remedy_lets_work_continue(
    session: Session, settings: Settings, older: str
) -> None:
    last = counters.last(session, "job")
    with pytest.raises(OutdatedStore):
        ConfirmedStores(settings).confirm(session)

    health = overview(Site(settings, session), ANN).health
    found = why(Site(settings, session), ANN, older)

    assert health.status is Health.STOPPED
    assert health.problems[0] == HealthProblem(
        reason=Reason.RECORD_OUTDATED, waits_for="record", stops_all=True, remedies=health.remedies[:1]
    )
    assert Reason.SERVICE_DOWN not in {problem.reason for problem in health.problems}
    assert (found.reason, found.moves_itself) == (Reason.RECORD_OUTDATED, False)
    assert found.outage_since == outages.known(session)[Service.RECORD].outage.since
    assert health.record_fault is not None
    assert health.record_fault.since == found.outage_since
    assert "its mark is" in found.message
    (remedy,) = found.remedies
    assert remedy == health.remedies[0]

    assert cli.run(settings, *command(remedy).split()[1:]).code == 0
    ConfirmedStores(settings).confirm(session)
    await_end_of_the_outage(session, settings, older)
    assert overview(Site(settings, session), ANN).health.record_fault is None
    assert counters.last(session, "job") == last + MARGIN
    assert batches.submit(session, planting.submission()) > f"bid{MARGIN:010}"


def test_an_older_record_is_named_before_any_worker_noticed_it(
    session: Session, settings: Settings, older: str
) -> None:
    shown = cli.run(settings, "why", older)
    status = cli.run(settings, "status")

    assert "nothing is processed" in shown.out
    assert "restored from a backup" in shown.out
    assert "arkline check --repair" in shown.out
    assert status.code != 0
    assert "the record is older than it was" in status.out
    assert outages.known(session) == {}


def test_a_job_that_an_older_record_lacks_is_no_job_without_a_reason(
    session: Session, settings: Settings, older: str
) -> None:
    with pytest.raises(
        ServiceDown, match=r"jid0000000999 is not in this record: .* is older than it was"
    ) as no:
        why(Site(settings, session), ANN, "jid0000000999")

    assert [command(remedy) for remedy in no.value.remedies] == ["arkline check --repair"]


def test_a_record_that_went_back_within_one_mark_continues_after_the_remedy(
    session: Session, settings: Settings
) -> None:
    """Only the worker knows the change that is missing: the marks are the same."""
    initialize(Site(settings, session))
    job = planting.one_job(session)
    outages.report(session, outdated(Service.RECORD, "zk:2181/arkline", "its last change is 0x1"), "host")

    found = why(Site(settings, session), ANN, job.jid)
    repaired = json.loads(cli.run(settings, *command(found.remedies[0]).split()[1:], "--json").out)
    assert found.reason is Reason.RECORD_OUTDATED
    assert repaired["repaired"]["outdated"] == 1
    await_end_of_the_outage(session, settings, job.jid)


def test_the_record_of_another_deployment_is_named_and_nothing_is_written_to_it(
    session: Session, settings: Settings, tmp_path: Path
) -> None:
    initialize(Site(settings, session))
    job = planting.one_job(session)
    elsewhere = with_changes(settings, zk_root=f"/t{uuid4().hex}", home=tmp_path / "elsewhere")
    with connect(elsewhere) as their_session:
        initialize(Site(elsewhere, their_session))
        theirs = planting.one_job(their_session)
        leading = f"{paths.LEADER}/{'0' * 32}__lock__0000000000"
        their_session.zk.create(leading, b"their beat", ephemeral=True, makepath=True)
        before = planting.tree(their_session)
        wrong = with_changes(settings, zk_root=elsewhere.zk_root)

        found = why(Site(wrong, their_session), ANN, theirs.jid)
        shown = cli.run(wrong, "status")
        unknown = cli.run(wrong, "why", "jid0000000999")

        assert (found.reason, found.outage_since) == (Reason.RECORD_FOREIGN, None)
        assert "belongs to deployment" in found.message
        assert shown.code != 0
        assert "not that of the storage root and the inventory" in shown.out
        assert unknown.code == 3
        assert "is not in this record" in unknown.err
        assert "ARKLINE_ZK_ROOT" in unknown.err
        assert planting.tree(their_session) == before
    assert why(Site(settings, session), ANN, job.jid).reason is not Reason.RECORD_FOREIGN


def test_an_empty_record_beside_stores_with_objects_is_named_until_the_backup_is_restored(
    session: Session, settings: Settings, tmp_path: Path
) -> None:
    initialize(Site(settings, session))
    batches.submit(session, planting.submission())
    back_up(Site(settings, session), tmp_path / "backup")
    inventory(settings).claim_ark(planting.one_job(session), "ark:/99999/owner", "ark:/99999/fk4x", ())
    copy.clear(session)

    health = overview(Site(settings, session), ANN).health

    assert health.record_fault is not None
    assert health.record_fault.reason is Reason.RECORD_FOREIGN
    assert "restore ZooKeeper's data" in health.record_fault.message
    assert cli.run(settings, "restore", str(tmp_path / "backup")).code == 0
    assert overview(Site(settings, session), ANN).health.record_fault is None


def test_a_machine_without_the_stores_accuses_no_record(
    session: Session, settings: Settings, tmp_path: Path
) -> None:
    initialize(Site(settings, session))
    desk = with_changes(settings, home=tmp_path / "desk")

    assert overview(Site(desk, session), ANN).health.record_fault is None
    assert not (tmp_path / "desk" / "inventory.sqlite").exists()


def test_a_submission_over_the_api_to_an_older_record_ends_with_its_fault_and_what_helps(
    session: Session, settings: Settings, older: str, tmp_path: Path
) -> None:
    (tmp_path / "a.txt").write_text("a")
    with pytest.raises(OutdatedStore):
        ConfirmedStores(settings).confirm(session)
    with serving(settings) as web:
        ada = web.caller(Role.DEPOSITOR)
        reached = {"ARKLINE_URL": ada.url, "ARKLINE_TOKEN": ada.token}
        done = cli.run(settings, "submit", str(tmp_path / "a.txt"), "--profile", "demo", **reached)

    assert done.code == exit_codes.UNREACHABLE
    assert "nothing was submitted, because the record" in done.err
    assert "trying again" not in done.err
    assert "try: arkline status" in done.err
