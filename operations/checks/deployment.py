"""The deployment of record, storage root and inventory: shown, and given to stores that have none."""

from datetime import datetime

from pipeline.deployment import OutdatedStore
from pipeline.outcome import Service, ServiceDown
from pipeline.records import Record
from pipeline.settings import Settings
from tasks.stores import compare, stores_of
from zkstate.care.deployment import join_missing
from zkstate.connection.session import Session


class StoreView(Record):
    service: Service
    place: str
    initialized: bool
    """True if the store got the id just now."""


class DeploymentView(Record):
    id: str
    created: datetime
    stores: tuple[StoreView, ...]
    outdated: str = ""
    """Why jobs wait until the stores are reconciled, after `missing` gave an empty inventory the id."""


def initialize(session: Session, settings: Settings, *, missing: bool = False) -> DeploymentView:
    """Give one id to record, storage root and inventory, if all are empty; compare them if they have one.

    `missing`: give the id also to a store that is lost or that an earlier release made, though others have
    one. ServiceDown says which store is absent, foreign or older than the others.
    """
    stores = stores_of(session, settings)
    before = {store.service: store.read_deployment() for store in stores.every}
    if missing:
        join_missing(stores)
    confirmed = compare(session, settings)
    outdated = ""
    for fault in confirmed.faults.values():
        if not (missing and isinstance(fault, OutdatedStore)):
            raise ServiceDown(fault.service, fault.message)
        outdated = fault.message
    return DeploymentView(
        id=confirmed.deployment.id,
        created=confirmed.deployment.created,
        stores=tuple(
            StoreView(service=store.service, place=store.place, initialized=before[store.service] is None)
            for store in (stores.record, *stores.kept)
        ),
        outdated=outdated,
    )
