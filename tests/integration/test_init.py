"""`arkline init`: stores get one id, agree, or are told apart."""

from dataclasses import replace
from typing import Any

import pytest

from operations.checks.deployment import initialize
from operations.site import Site
from pipeline.deployment import Deployment, OutdatedStore, StorageStore
from pipeline.inventory.sql import open_inventory
from pipeline.outcome import Service, ServiceDown
from pipeline.settings import Settings
from tasks.stores import ConfirmedStores, count_up, level_marks, stores_of
from tests.support import cli
from tests.support.recordings import recording
from zkstate import paths
from zkstate.care import deployment
from zkstate.connection.session import Session
from zkstate.fleet import counters


def test_empty_stores_get_one_id_and_keep_it(session: Session, settings: Settings) -> None:
    first = cli.run(settings, "init", "--json").json()
    again = cli.run(settings, "init", "--json").json()

    recorded = deployment.read(session)
    assert recorded is not None
    assert first["id"] == again["id"] == recorded.id
    assert {store["service"]: store["initialized"] for store in first["stores"]} == {
        "record": True,
        "storage": True,
        "inventory": True,
    }
    assert [store["initialized"] for store in again["stores"]] == [False, False, False]


def test_other_users_of_the_machine_can_read_nothing(session: Session, settings: Settings) -> None:
    cli.run(settings, "init")

    made = [path for path in settings.home.rglob("*") if path != settings.profiles]
    assert settings.storage in made
    assert {path.name for path in made if path.stat().st_mode & 0o007} == set()


def test_a_crash_between_two_markers_leaves_an_id_that_the_next_start_adopts(
    session: Session, settings: Settings
) -> None:
    first = initialize(Site(settings, session))
    session.zk.delete(paths.DEPLOYMENT)

    assert initialize(Site(settings, session)).id == first.id


def test_an_empty_record_does_not_take_over_stores_with_objects(session: Session, settings: Settings) -> None:
    initialize(Site(settings, session))
    inventory = open_inventory(settings.inventory)
    inventory.record(recording(jid="jid0000000041"))
    session.zk.delete(paths.DEPLOYMENT)

    with pytest.raises(ServiceDown, match="is empty, but the inventory") as down:
        initialize(Site(settings, session))
    assert down.value.service is Service.RECORD
    view = initialize(Site(settings, session), missing=True)

    assert [store.service for store in view.stores if store.initialized] == [Service.RECORD]
    assert counters.last(session, "job") == 41


def test_a_record_that_is_older_than_the_inventory_is_refused_until_the_marks_are_level(
    session: Session, settings: Settings
) -> None:
    initialize(Site(settings, session))
    inventory = open_inventory(settings.inventory)
    older, _ = session.get(paths.DEPLOYMENT)
    for _ in range(2):
        count_up(session, inventory)
    session.zk.set(paths.DEPLOYMENT, older)
    stores = ConfirmedStores(settings)

    with pytest.raises(OutdatedStore) as down:
        stores.confirm(session)
    assert down.value.service is Service.RECORD
    level_marks(session, inventory)

    stores.confirm(session)
    assert stores.expected(Service.INVENTORY) == stores.id


def test_a_process_that_was_frozen_while_it_gave_the_id_changes_no_id(
    session: Session, settings: Settings
) -> None:
    """The lock of the frozen process expires with its session, and another process gives the id."""
    stores = stores_of(session, settings)
    assert stores.storage is not None
    storage: StorageStore = stores.storage
    others: list[str] = []

    class Frozen:
        """The storage of a process that continues after another one has confirmed the stores."""

        def write_deployment(self, given: Deployment) -> None:
            others.append(deployment.confirm(stores_of(session, settings)).deployment.id)
            storage.write_deployment(given)

        def __getattr__(self, name: str) -> Any:
            return getattr(storage, name)

    with pytest.raises(ServiceDown, match=r"the storage root .* belongs to deployment"):
        deployment.confirm(replace(stores, storage=Frozen()))

    assert [marker.id for one in stores.every if (marker := one.read_deployment())] == others * 3
    assert deployment.confirm(stores).deployment.id == others[0]


def test_an_id_that_another_process_gave_the_storage_is_added_again_before_the_record_has_it(
    session: Session, settings: Settings
) -> None:
    """That process may be frozen before its sync: a power cut would leave the record with the id alone."""
    stores = stores_of(session, settings)
    assert stores.storage is not None
    storage: StorageStore = stores.storage
    storage.write_deployment(Deployment(id="a" * 32))
    recorded: list[Deployment | None] = []

    class Noting:
        def write_deployment(self, given: Deployment) -> None:
            recorded.append(deployment.read(session))
            storage.write_deployment(given)

        def __getattr__(self, name: str) -> Any:
            return getattr(storage, name)

    assert deployment.confirm(replace(stores, storage=Noting())).deployment.id == "a" * 32
    assert recorded == [None]


def test_a_process_that_was_frozen_while_it_raised_the_marks_sets_no_mark_back(
    session: Session, settings: Settings
) -> None:
    initialize(Site(settings, session))
    inventory = open_inventory(settings.inventory)
    frozen = deployment.raise_mark(session, 1)
    for _ in range(3):
        count_up(session, inventory)

    inventory.write_deployment(frozen)

    assert (marker := inventory.read_deployment()) is not None
    assert marker.mark == 3
    ConfirmedStores(settings).confirm(session)


def test_an_inventory_that_is_older_than_the_record_is_not_used(session: Session, settings: Settings) -> None:
    initialize(Site(settings, session))
    deployment.raise_mark(session, 2)
    stores = ConfirmedStores(settings)

    stores.confirm(session)

    with pytest.raises(OutdatedStore, match="is older than it was"):
        stores.expected(Service.INVENTORY)
    assert stores.expected(Service.STORAGE) == stores.id
