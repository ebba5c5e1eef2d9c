"""Cases of stored objects: damage one, follow the advice of the status, and see the alarm end."""

import json

from sqlalchemy import text

from operations.facts import Reason
from operations.overview import overview
from pipeline.inventory.sql import open_inventory
from pipeline.storage.ocfl.layout import object_path
from tests.support.remedy_world import Case, World, adding_to
from tests.support.stores import flip
from zkstate import jobs

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
    """The commands that the status advises, after it has named the reason."""
    health = overview(world.session, world.settings).health
    assert reason in {problem.reason for problem in health.problems}
    return [line for line in world.arkline("status").splitlines() if line.startswith("try ")]


def _is_over(world: World, reason: Reason) -> bool:
    health = overview(world.session, world.settings).health
    return reason not in {problem.reason for problem in health.problems}


@case(Reason.FIXITY_DAMAGED)
def _damaged(world: World) -> None:
    ark = _stored(world)
    root = world.settings.storage / object_path(ark)
    (path,) = (root / "v1" / "content" / "producer").iterdir()
    content = path.read_bytes()
    path.unlink()
    path.write_bytes(flip(content))
    world.arkline("fixity", "check", ark, code=4)

    (advice,) = _commands(world, Reason.FIXITY_DAMAGED)
    assert "arkline fixity report" in advice
    report = json.loads(world.arkline("fixity", "report", "--json", code=4))
    assert report["damage"][0]["files"][0]["remedy"].startswith(f"restore {path}")

    path.write_bytes(content)
    world.arkline("fixity", "check", ark)
    assert _is_over(world, Reason.FIXITY_DAMAGED)


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

        first, _ = _commands(world, Reason.FIXITY_OVERDUE)
        assert "arkline fixity check" in first
        world.arkline("fixity", "check")
        assert _is_over(world, Reason.FIXITY_OVERDUE)
