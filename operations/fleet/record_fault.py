"""Whether the record can be relied on: it cannot if it is an older copy, or of another deployment."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

from operations.explanation import Cause
from operations.reasons import Reason
from pipeline import plugins
from pipeline.deployment import NAMES, OutdatedStore
from pipeline.errors import Action, ArklineError, Remedy
from pipeline.outcome import Service, ServiceDown
from pipeline.records import Record, now
from pipeline.storage.ocfl import storage
from tasks import stores
from zkstate.care import deployment
from zkstate.care.deployment import Stores, check_not_lost, compare_age
from zkstate.fleet import outages
from zkstate.fleet.scheduled import leader

if TYPE_CHECKING:
    from operations.site import Site
    from pipeline.settings import Settings
    from zkstate.connection.session import Session

_REMEDIES = {Reason.RECORD_OUTDATED: Action.RECONCILE, Reason.RECORD_FOREIGN: Action.CHECK_SETTINGS}


CONFIRMATION = 30.0
"""Seconds for which a comparison by beat, made every 10 s, spares this process its own."""


class RecordFault(Record):
    reason: Reason
    message: str
    since: datetime | None = None
    """When the fleet noticed the fault; None if it has not, or the record is another deployment's, which is
    not written."""

    @property
    def remedies(self) -> tuple[Remedy, ...]:
        return (Remedy(_REMEDIES[self.reason]),)

    @property
    def cause(self) -> Cause:
        return Cause(
            reason=self.reason,
            message=self.message,
            waits_for=Service.RECORD,
            outage_since=self.since,
            remedies=self.remedies,
        )


def record_fault(site: Site) -> RecordFault | None:
    """The fault that the fleet entered, or else the one this machine finds; writes nothing.

    A store that is absent or does not answer proves nothing: this machine may not be a worker host.
    """
    session, settings = site.session, site.settings
    known = outages.known(session).get(Service.RECORD)
    if known is not None and known.outage.ended is None:
        outage = known.outage
        return RecordFault(reason=Reason.RECORD_OUTDATED, message=outage.message, since=outage.since)
    if _is_confirmed(session, settings):
        return None
    return compared_fault(site)


def compared_fault(site: Site) -> RecordFault | None:
    """The fault that this machine finds, whatever the fleet has entered; writes nothing."""
    session, settings = site.session, site.settings
    try:
        _compare(stores.stores_of(session, settings))
    except OutdatedStore as fault:
        return RecordFault(reason=Reason.RECORD_OUTDATED, message=fault.message)
    except ServiceDown as fault:
        if fault.service is Service.RECORD:
            return RecordFault(reason=Reason.RECORD_FOREIGN, message=fault.message)
    except ArklineError:
        return None  # the settings name a store that cannot be opened
    return None


def _is_confirmed(session: Session, settings: Settings) -> bool:
    """Whether scheduled work has recently confirmed the record, and the storage root here belongs to it.

    The alternative is to query the inventory, which loads SQLAlchemy: a fifth of the time of a status.
    """
    if plugins.choosing(plugins.STORAGE) or not leader(session):
        return False
    recorded = deployment.read_dated(session)
    if recorded is None or abs((now() - recorded[1]).total_seconds()) > CONFIRMATION:
        return False
    try:
        marker = storage.OcflStorage(settings.storage).read_deployment()
    except ServiceDown:
        return False
    return marker is not None and marker.id == recorded[0].id


def _compare(stores: Stores) -> None:
    """Compare the record with the inventory; only if that does not confirm it, with storage, which may be
    slow."""
    record = stores.record.read_deployment()
    if record is None:
        check_not_lost(stores)
        return
    others = []
    for store in reversed(stores.kept):
        try:
            marker = store.read_deployment()
        except ServiceDown:
            continue
        if marker is not None and marker.id == record.id:
            if store is stores.inventory:
                compare_age(stores, marker)
            return
        if marker is not None:
            others.append(f"{NAMES[store.service]} {store.place} to {marker.id}")
    if others:
        raise ServiceDown(
            Service.RECORD,
            f"the record {stores.record.place} belongs to deployment {record.id}, but {', '.join(others)}",
        )
