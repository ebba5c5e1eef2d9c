"""Injects faults into Redis and ZooKeeper."""

import base64
import json
import shutil
from pathlib import Path

import redis

from pipeline.errors import ArklineError
from pipeline.inventory.sql import open_inventory
from pipeline.states import Queue
from tools.chaos.actors import Actor
from tools.chaos.clocks import BACK, FORWARD
from tools.chaos.faults import Effect, FaultContext, NotNow, Table, kind_of, thaw
from tools.chaos.schedule import Fault, Kind

MARKS = 2
"""Increments of the mark between a copy of ZooKeeper's data and its restore: the record's mark is briefly
one ahead of the inventory's, so a copy within one mark cannot be recognised (decision 34)."""

_DATA = "zookeeper data"

BEGIN: Table = {}
"""Kind of fault -> function that injects it."""


@kind_of(BEGIN, Kind.REDIS_KILLED, Kind.REDIS_EMPTY)
def _kill_redis(context: FaultContext, fault: Fault, late: bool) -> Effect:
    actor = context.cluster.redis
    actor.kill(pause=fault.seconds)
    if fault.kind is Kind.REDIS_EMPTY:
        shutil.rmtree(context.cluster.folder / "redis", ignore_errors=True)
        (context.cluster.folder / "redis").mkdir()
    return Effect(actor.name)


@kind_of(BEGIN, Kind.REDIS_FLUSHED)
def _flush(context: FaultContext, fault: Fault, late: bool) -> Effect:
    try:
        with redis.Redis.from_url(context.cluster.settings.broker_url, socket_timeout=1) as client:
            keys = client.dbsize()
            client.flushall()
    except redis.RedisError:
        if not late:
            raise NotNow from None
        return Effect("redis did not answer")
    return Effect(f"redis, {keys} keys")


def _enveloped(body: str, task: str) -> bytes:
    """A message in kombu's envelope."""
    envelope = {
        "body": base64.b64encode(body.encode()).decode(),
        "content-encoding": "utf-8",
        "content-type": "application/json",
        "headers": {"task": task, "id": "00000000-0000-0000-0000-000000000000", "lang": "py"},
        "properties": {
            "delivery_tag": "foreign",
            "delivery_info": {"exchange": "", "routing_key": "io"},
            "body_encoding": "base64",
            "priority": 0,
        },
    }
    return json.dumps(envelope).encode()


_FOREIGN = {
    "no JSON": b"\x80\x04foreign",
    "JSON of another kind": b'[{"hello": "world"}]',
    "a body that is no JSON": _enveloped("not json", "job.pending"),
    "an unknown task": _enveloped("[[], {}, {}]", "other.task"),
    "arguments of another kind": _enveloped('[["jid0000000001", 7], {}, {}]', "job.downloading"),
    "2 MB": _enveloped(json.dumps([["x" * 2_000_000], {}, {}]), "job.estimating"),
}


@kind_of(BEGIN, Kind.FOREIGN_MESSAGE)
def _send_foreign(context: FaultContext, fault: Fault, late: bool) -> Effect:
    settings = context.cluster.settings
    name = list(_FOREIGN)[fault.target % len(_FOREIGN)]
    queue = list(Queue)[fault.target % len(Queue)]
    try:
        with redis.Redis.from_url(settings.broker_url, socket_timeout=1) as client:
            client.lpush(f"{settings.broker_prefix}{queue}", _FOREIGN[name])
    except redis.RedisError:
        raise NotNow from None
    return Effect(f"{name}, in queue {queue}")


@kind_of(BEGIN, Kind.REDIS_FROZEN)
def _freeze_redis(context: FaultContext, fault: Fault, late: bool) -> Effect:
    return Effect("redis", thaw(context.cluster.redis, context.cluster.redis.freeze()))


@kind_of(BEGIN, Kind.ZK_KILLED, Kind.ZK_LEADER_KILLED)
def _kill_zookeeper(context: FaultContext, fault: Fault, late: bool) -> Effect:
    actor = _zookeeper(context, fault, late, leads=fault.kind is Kind.ZK_LEADER_KILLED)
    actor.kill(pause=fault.seconds)
    return Effect(actor.name)


@kind_of(BEGIN, Kind.ZK_FOLLOWER_FROZEN, Kind.ZK_LEADER_FROZEN)
def _freeze_zookeeper(context: FaultContext, fault: Fault, late: bool) -> Effect:
    actor = _zookeeper(context, fault, late, leads=fault.kind is Kind.ZK_LEADER_FROZEN)
    return Effect(actor.name, thaw(actor, actor.freeze()))


@kind_of(BEGIN, Kind.ZK_RESTARTED)
def _restart_zookeeper(context: FaultContext, fault: Fault, late: bool) -> Effect:
    for actor in context.cluster.zookeepers:
        actor.kill(pause=fault.seconds)
    return Effect("the whole ensemble")


@kind_of(BEGIN, Kind.ZK_CLOCK)
def _set_clock(context: FaultContext, fault: Fault, late: bool) -> Effect:
    """The leader's wall clock jumps by half an hour, and back when the fault ends."""
    leader = context.cluster.leading()
    if leader is None:
        raise NotNow
    clock = context.cluster.clocks[leader]
    seconds = (BACK, BACK, FORWARD)[fault.target % 3]
    clock.set(seconds)
    name = context.cluster.zookeepers[leader].name
    return Effect(f"{name}, {seconds / 60:+.0f} minutes", lambda: clock.set(0))


@kind_of(BEGIN, Kind.ZK_OLDER)
def _restore_older(context: FaultContext, fault: Fault, late: bool) -> Effect:
    """Give the ensemble an older copy of its data, and later its own data again.

    In between nobody submits or acts, as during an announced restore. Nothing may be processed.
    """
    folder = context.cluster.folder / "zookeeper"
    places = [folder / str(number) for number in range(1, len(context.cluster.zookeepers) + 1)]
    mark = _mark(context)
    if context.copied is None:
        for place in places:
            shutil.copytree(place / "data", place / "copy")
        context.copied = mark
    if mark < context.copied + MARKS:
        raise NotNow

    def end() -> None:
        _swap(context, places, "own", "older")
        for thread in (context.submitter, context.operator):
            thread.paused.clear()

    # a submission that continues on the older data would be lost
    if _DATA in context.claimed or not context.submitter.pause():
        raise NotNow
    if not context.operator.pause():
        context.submitter.paused.clear()
        raise NotNow
    release = context.claim(_DATA, end)
    _swap(context, places, "copy", "own")
    copied, context.copied = context.copied, None
    return Effect(f"data of {mark - copied} marks ago", release)


def _mark(context: FaultContext) -> int:
    """The inventory's mark; NotNow while a fault holds the inventory, or its mark is unknown."""
    try:
        marker = open_inventory(context.cluster.settings.inventory).read_deployment()
    except ArklineError as error:
        raise NotNow from error
    if marker is None:
        raise NotNow  # a copy with an unknown mark may have the current one
    return marker.mark


def _swap(context: FaultContext, places: list[Path], new: str, old: str) -> None:
    """Kill all servers and give each the data named `new`; its current data are renamed to `old`."""
    for actor in context.cluster.zookeepers:
        actor.kill()
    for place in places:
        shutil.rmtree(place / old, ignore_errors=True)
        (place / "data").rename(place / old)
        (place / new).rename(place / "data")


def _zookeeper(context: FaultContext, fault: Fault, late: bool, *, leads: bool) -> Actor:
    leader = context.cluster.leading()
    if leader is None and not late:
        raise NotNow
    servers = context.cluster.zookeepers
    if leader is None:
        return servers[fault.target % len(servers)]
    if leads:
        return servers[leader]
    followers = [server for number, server in enumerate(servers) if number != leader]
    return followers[fault.target % len(followers)]


@kind_of(BEGIN, Kind.ANSWERS_SWALLOWED)
def _swallow(context: FaultContext, fault: Fault, late: bool) -> Effect:
    """From the next acquire, move or creation on, lose the answers; then cut the connections."""
    said = (b"/lock", b"/history", b"/jobs/states/", b"/configuration")[fault.target % 4]
    for proxy in context.cluster.zk_proxies:
        proxy.swallow_after(said)

    def cut() -> None:
        for proxy in context.cluster.zk_proxies:
            proxy.cut()

    return Effect(f"worker1, from {said.decode()} on", cut)


@kind_of(BEGIN, Kind.WORKER_CUT_OFF)
def _cut_off(context: FaultContext, fault: Fault, late: bool) -> Effect:
    for proxy in context.cluster.zk_proxies:
        proxy.partition()

    def join_again() -> None:
        for proxy in context.cluster.zk_proxies:
            proxy.cut()

    return Effect("worker1", join_again)


@kind_of(BEGIN, Kind.SECOND_SWEEP)
def _second_sweep(context: FaultContext, fault: Fault, late: bool) -> Effect:
    context.beat.ask("sweep", "feed", "recheck_provisioning", "clean_up_jobs", "sweep", "feed")
    return Effect("beside the elected beat")
