"""The fleet as numbers, for metrics: what the board does not know and has to query.

If a server does not answer, only its numbers are absent.
"""

import shutil
from collections import Counter
from collections.abc import Mapping
from datetime import datetime

import redis
from pydantic import Field

from operations.certificates import expiry
from operations.fleet.fleet import Fleet
from operations.fleet.hosts import waiting_hosts
from operations.site import Site
from pipeline.errors import ArklineError
from pipeline.machine import Queue
from pipeline.records import Record
from pipeline.settings import Settings
from pipeline.working_storage.capacity import usage_now
from tasks import redis_keys
from tasks.broker import waiting_messages
from zkstate.connection.session import Session
from zkstate.fleet import notes, outages, scheduled
from zkstate.fleet.notes import FixityStatus, LastAudit, RepeatedCheck
from zkstate.queue import queue
from zkstate.queue.depth import Depth, depths
from zkstate.record import callbacks, space, subscriptions


class RecordMeasures(Record):
    """What ZooKeeper says."""

    in_flight: int
    """Jobs that take a place."""
    depths: dict[Queue, Depth]
    """What the workers of each queue have to do."""
    callbacks_owed: int
    beats: int
    reserved: int
    """Bytes of working storage."""
    capacity: int | None = None
    """None on a machine without working storage."""
    used: int | None = None
    redispatched: dict[str, int]
    """Jobs that sweeps have dispatched again, by state, since the record was created."""
    hosts_waiting: int
    """Hosts to which no request is sent for a while."""
    outages: dict[str, int] = Field(default_factory=dict)
    """Outages by service."""
    fixity: FixityStatus
    repeated_checks: tuple[RepeatedCheck, ...] = ()
    """The checks of stored versions that are repeated."""
    last_audit: LastAudit | None = None
    """None before the first audit."""
    notifications: dict[str, int] = Field(default_factory=dict)
    """Subscriptions, those suspended, and the events that wait for them."""


class BrokerMeasures(Record):
    """What Redis and the workers say."""

    foreign_messages: int
    messages: dict[str, int]
    """Messages by queue."""
    workers: dict[str, int]
    """Workers that consume a queue."""
    processes: dict[str, int]
    busy: dict[str, int]
    callbacks: dict[str, int] = Field(default_factory=dict)
    """Deliveries of callbacks by outcome, since Redis lost its content last."""
    notifications: dict[str, int] = Field(default_factory=dict)
    """The same of notifications."""


class Measures(Record):
    record: RecordMeasures | None = None
    """None if ZooKeeper does not answer."""
    broker: BrokerMeasures | None = None
    """None if Redis does not answer."""
    storage_root_free: int | None = None
    """Bytes; None for a storage root that is no folder of this machine."""
    certificates: dict[str, datetime] = Field(default_factory=dict)
    """Server -> when its certificate ends; none without TLS."""


def measure(site: Site) -> Measures:
    """Query every server once; takes up to some seconds if no worker answers."""
    session, settings = site.session, site.settings
    try:
        record = _record(session, settings) if session.connected else None
    except ArklineError:
        record = None
    fleet = Fleet(site)
    return Measures(
        record=record,
        broker=_broker(fleet, settings),
        storage_root_free=_free(settings),
        certificates=expiry.valid_until(settings),
    )


def _record(session: Session, settings: Settings) -> RecordMeasures:
    disk = usage_now(settings) if settings.working.is_dir() else None
    current = (known.outage for known in outages.known(session).values() if known.outage.ended is None)
    return RecordMeasures(
        in_flight=queue.places_taken(session),
        depths=depths(session, settings.in_flight),
        callbacks_owed=len(callbacks.names(session)),
        beats=scheduled.contenders(session),
        reserved=space.reserved(session),
        capacity=disk.total if disk else None,
        used=disk.used if disk else None,
        redispatched=scheduled.redispatched(session),
        hosts_waiting=len(waiting_hosts(session)),
        outages=Counter(outage.service for outage in current),
        fixity=notes.fixity(session),
        repeated_checks=notes.repeated_checks(session),
        last_audit=notes.AUDIT.readable(session),
        notifications=dict(subscriptions.counts(session)),
    )


def _broker(fleet: Fleet, settings: Settings) -> BrokerMeasures | None:
    if fleet.queued is None:
        return None
    try:
        delivered = {what: redis_keys.delivered(settings, what) for what in redis_keys.Counted}
        messages = {queue: waiting_messages(settings, (queue,)) for queue in Queue}
    except redis.RedisError:
        delivered, messages = {}, {}
    return BrokerMeasures(
        foreign_messages=fleet.foreign_messages,
        messages=dict(messages),
        workers={name: len(fleet.consumers(name)) for name in Queue},
        processes={name: sum(worker.processes for worker in fleet.consumers(name)) for name in Queue},
        busy={name: sum(worker.busy for worker in fleet.consumers(name)) for name in Queue},
        callbacks=_by_outcome(delivered.get(redis_keys.Counted.CALLBACKS, {})),
        notifications=_by_outcome(delivered.get(redis_keys.Counted.NOTIFICATIONS, {})),
    )


def _by_outcome(numbers: Mapping[redis_keys.Outcome, int]) -> dict[str, int]:
    return {str(outcome): number for outcome, number in numbers.items()}


def _free(settings: Settings) -> int | None:
    try:
        return shutil.disk_usage(settings.storage).free
    except OSError:
        return None
