"""`arkline fleet plan`, with a real worker: from what the stores say, or not known."""

import json
import re
from dataclasses import replace
from datetime import timedelta

import pytest

from operations.fleet.plan import MEASURED
from pipeline.inventory.sql import open_inventory
from pipeline.records import now
from pipeline.settings import Settings
from tasks import stores
from tests.support import cli, planting
from tests.support.fleet import Fleet
from tests.support.recordings import of_job
from zkstate import paths
from zkstate.connection.session import Session
from zkstate.fleet import holds
from zkstate.fleet.holds import Hold
from zkstate.record import jobs

pytestmark = pytest.mark.timeout(240)

JOBS = 2 * MEASURED
AT_WORK = timedelta(minutes=30)


def at_work(session: Session, settings: Settings, stored: int) -> None:
    """A batch of JOBS that began half an hour ago, and of which so many are stored."""
    stores.compare(session, settings)
    bid, jids = planting.split_batch(session, JOBS)
    for jid in jids[:stored]:
        planting.complete(session, jobs.load(session, jid))
        entered = of_job(jid.removeprefix("jid"), bid=bid)
        version = replace(entered.version, created=now())
        open_inventory(settings.inventory).record(replace(entered, version=version))
    status = json.loads(session.zk.get(paths.batch_status(bid))[0])
    began = (now() - AT_WORK).isoformat()
    session.zk.set(paths.batch_status(bid), json.dumps(status | {"last_modified": began}).encode())


def test_the_workers_that_a_backlog_and_a_deadline_need_follow_from_the_measured_rate(
    session: Session, settings: Settings, fleet: Fleet
) -> None:
    at_work(session, settings, MEASURED)
    fleet.worker("one", 2)
    fleet.worker("control", 1, queues="control")

    # the half that is left takes another half an hour of one worker with two processes
    plan = cli.run(settings, "fleet", "plan", "--within", "5m", "--json").json()
    more = cli.run(settings, "fleet", "plan", "--within", "30m", "--jobs", str(JOBS), "--json").json()
    shown = cli.run(settings, "fleet", "plan", "--within", "5m")

    assert (plan["jobs"], plan["measured"], plan["workers"], plan["processes"]) == (20, MEASURED, 1, 2)
    assert 1700 < plan["seconds_left"] < 2200
    assert 32 < plan["per_hour"] < 43
    assert 12 <= plan["processes_needed"] <= 14
    assert plan["workers_needed"] == (plan["processes_needed"] + 1) // 2
    assert plan["unknown"] is None
    assert more["jobs"] == plan["jobs"] + JOBS
    assert 5 <= more["processes_needed"] <= 8
    assert shown.code == 0
    assert re.search(
        rf"measured +{MEASURED} objects of batches in progress, stored within the last hour\n", shown.out
    )
    assert re.search(r"within 5 minutes +[67] workers, 1[234] processes\n", shown.out)


def test_the_number_of_workers_is_not_known_of_too_few_objects_or_while_the_queue_is_paused(
    session: Session, settings: Settings
) -> None:
    at_work(session, settings, MEASURED - 1)
    few = cli.run(settings, "fleet", "plan", "--within", "6h")
    plan = cli.run(settings, "fleet", "plan", "--within", "6h", "--json").json()
    holds.place(session, Hold(by="ann"))
    paused = cli.run(settings, "fleet", "plan", "--within", "6h", "--json")

    assert few.code == paused.code == 1
    assert f"not known: fewer than {MEASURED} objects" in few.out
    assert (plan["unknown"], plan["measured"], plan["workers_needed"]) == ("few", MEASURED - 1, None)
    assert paused.json()["unknown"] == "paused"


def test_an_empty_backlog_needs_no_worker_and_succeeds(session: Session, settings: Settings) -> None:
    at_work(session, settings, JOBS)
    plan = cli.run(settings, "fleet", "plan", "--within", "6h", "--json")
    shown = cli.run(settings, "fleet", "plan", "--within", "6h")
    more = cli.run(settings, "fleet", "plan", "--within", "6h", "--jobs", "1")

    assert (plan.code, shown.code, more.code) == (0, 0, 1)
    assert (plan.json()["jobs"], plan.json()["workers_needed"], plan.json()["unknown"]) == (0, 0, None)
    assert re.search(r"measured +0 objects of batches in progress", shown.out)
    assert re.search(r"within 6 hours +0 workers, 0 processes\n", shown.out)
