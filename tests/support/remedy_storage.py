"""Cases of the stores: damage one, follow the advice of the status or of `why`, and see the alarm end."""

import json

from sqlalchemy import text

from operations.checks.deployment import initialize
from operations.fleet.health import overview
from operations.reasons import Reason
from operations.site import Site
from operations.why.why import why
from pipeline.errors import Action, Remedy
from pipeline.inventory.sql import open_inventory
from pipeline.settings import Settings
from pipeline.storage.ocfl.objects import object_path
from tasks.stores import count_up
from tests.servers import zookeeper as zookeeper_servers
from tests.support import planting
from tests.support.operators import ANN
from tests.support.remedy_world import Case, World, adding_to
from tests.support.stores import flip, rewrite
from zkstate import paths
from zkstate.connection.session import connect
from zkstate.connection.transaction import DEFAULT_BUFFER
from zkstate.record import batches, jobs

CASES: dict[Reason, Case] = {}
case = adding_to(CASES)


def _stored(world: World) -> str:
    """The ARK of a new object."""
    bid = world.submit()
    jid = world.job(bid)
    world.completed(bid)
    ark = jobs.load(world.session, jid).identifiers.primary_id
    assert ark is not None
    return ark


def _commands(world: World, reason: Reason) -> list[str]:
    """What the status advises about fixity, after it has named the reason."""
    health = overview(Site(world.settings, world.session), ANN).health
    assert reason in {problem.reason for problem in health.problems}
    advised = [line for line in world.arkline("status").splitlines() if line.startswith("try ")]
    return [line for line in advised if "fixity" in line.casefold()]


def _is_over(world: World, reason: Reason) -> bool:
    health = overview(Site(world.settings, world.session), ANN).health
    return reason not in {problem.reason for problem in health.problems}


@case(Reason.FIXITY_DAMAGED)
def _damaged(world: World) -> None:
    ark = _stored(world)
    root = world.settings.storage / object_path(ark)
    (path,) = (root / "v1" / "content" / "producer").iterdir()
    content = path.read_bytes()
    rewrite(path, flip(content))
    world.arkline("fixity", "check", ark, code=4)

    (advice,) = _commands(world, Reason.FIXITY_DAMAGED)
    assert "arkline fixity report" in advice
    report = json.loads(world.arkline("fixity", "report", "--json", code=4))
    assert report["damage"][0]["files"][0]["remedy"].startswith(f"restore {path}")

    path.write_bytes(content)
    world.arkline("fixity", "check", ark)
    assert _is_over(world, Reason.FIXITY_DAMAGED)


@case(Reason.RECORD_OUTDATED)
def _restored(world: World) -> None:
    inventory = open_inventory(world.settings.inventory)
    with world.without_beat(leader=False):
        before, _ = world.session.get(paths.DEPLOYMENT)
        for _ in range(2):
            count_up(world.session, inventory)
        world.session.zk.set(paths.DEPLOYMENT, before)
        job = world.planted()

        world.remedied(job.jid, Reason.RECORD_OUTDATED)
    world.completed(job.bid)


@case(Reason.RECORD_FOREIGN)
def _foreign(world: World) -> None:
    """The remedy is a setting: with that of this world, the same submission is processed."""
    own = world.settings
    given = own.model_dump(exclude_unset=True) | {"zk_root": f"{own.zk_root}-other"}
    theirs = Settings.model_validate(given | {"home": own.home / "other"})
    with connect(theirs) as session:
        initialize(Site(theirs, session))
        bid = batches.submit(session, planting.submission(payload_url=world.put()))

        found = why(Site(Settings.model_validate(given), session), ANN, bid)

    assert (found.reason, found.moves_itself) == (Reason.RECORD_FOREIGN, False)
    assert found.remedies == (Remedy(Action.CHECK_SETTINGS),)
    with connect(theirs) as session:
        assert why(Site(theirs, session), ANN, bid).reason is not Reason.RECORD_FOREIGN
    world.completed(world.submit())


@case(Reason.RECORD_LIMIT)
def _small_server(world: World) -> None:
    folder = world.settings.home / "small-server"
    with zookeeper_servers.running(folder / "before", max_buffer=100_000) as small:
        theirs = world.settings.model_copy(update={"zk_hosts": small.hosts})
        with connect(theirs) as session:
            assert Remedy(Action.RAISE_LIMIT) in overview(Site(theirs, session), ANN).health.remedies
    with zookeeper_servers.running(folder / "after", max_buffer=DEFAULT_BUFFER) as started:
        theirs = world.settings.model_copy(update={"zk_hosts": started.hosts})
        with connect(theirs) as session:
            problems = overview(Site(theirs, session), ANN).health.problems
            assert Reason.RECORD_LIMIT not in {problem.reason for problem in problems}


@case(Reason.FIXITY_OVERDUE)
def _overdue(world: World) -> None:
    old, new = _stored(world), _stored(world)
    with world.without_beat(leader=True):
        world.arkline("fixity", "check", "--all")
        open_inventory(world.settings.inventory).database.write(
            lambda connection: connection.execute(
                text(
                    "UPDATE inv_fixities SET since = datetime(since, '-100 days') "
                    "WHERE inv_object_id = (SELECT id FROM inv_objects WHERE ark = :ark)"
                ),
                {"ark": old},
            )
        )
        world.arkline("fixity", "check", new)

        first, second = _commands(world, Reason.FIXITY_OVERDUE)
        assert "ARKLINE_FIXITY_DAYS" in second
        usual = world.settings
        world.settings = usual.model_copy(update={"fixity_days": 200})
        world.arkline("fixity", "check", new)
        assert _is_over(world, Reason.FIXITY_OVERDUE)

        world.settings = usual
        world.arkline("fixity", "check", new)
        assert not _is_over(world, Reason.FIXITY_OVERDUE)
        assert "arkline fixity check" in first
        world.arkline("fixity", "check")
        assert _is_over(world, Reason.FIXITY_OVERDUE)
