"""Injecting faults into Redis, ZooKeeper, disks, the inventory and the outside systems."""

import shutil
import sqlite3

import redis
from sqlalchemy import make_url

from tools.chaos.actors import Actor
from tools.chaos.faults import Effect, FaultContext, NotNow, Table, kind_of, thaw
from tools.chaos.schedule import Fault, Kind

BEGIN: Table = {}
"""Kind of fault -> the function that injects it."""


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
    """From the next acquire, move or creation on, answers are lost; then the connections."""
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


@kind_of(BEGIN, Kind.WORKING_FULL, Kind.STORAGE_FULL)
def _fill(context: FaultContext, fault: Fault, late: bool) -> Effect:
    filler = context.cluster.fillers["working" if fault.kind is Kind.WORKING_FULL else "storage"]
    return Effect(f"{filler.fill() >> 20} MB", filler.remove)


@kind_of(BEGIN, Kind.INVENTORY_LOCKED)
def _lock_inventory(context: FaultContext, fault: Fault, late: bool) -> Effect:
    file = make_url(context.cluster.settings.inventory).database or ""
    connection = sqlite3.connect(file, timeout=0.5, isolation_level=None, check_same_thread=False)
    try:
        connection.execute("BEGIN EXCLUSIVE")
    except sqlite3.OperationalError:
        connection.close()
        raise NotNow from None

    def release() -> None:
        connection.rollback()
        connection.close()

    return Effect("BEGIN EXCLUSIVE", release)


@kind_of(BEGIN, Kind.SOURCE_DOWN)
def _refuse_source(context: FaultContext, fault: Fault, late: bool) -> Effect:
    proxy = context.cluster.fakes.source_proxy
    proxy.refuse()
    return Effect("source", proxy.accept)


@kind_of(BEGIN, Kind.SOURCE_HANGS)
def _hang_source(context: FaultContext, fault: Fault, late: bool) -> Effect:
    proxy = context.cluster.fakes.source_proxy
    proxy.swallow()
    return Effect("source", proxy.cut)


@kind_of(BEGIN, Kind.SOURCE_BUSY)
def _busy_source(context: FaultContext, fault: Fault, late: bool) -> Effect:
    status = (503, 429)[fault.target % 2]
    context.cluster.fakes.source.busy(status)
    return Effect(str(status), context.cluster.fakes.source.calm)


@kind_of(BEGIN, Kind.SOURCE_CHANGED)
def _change_content(context: FaultContext, fault: Fault, late: bool) -> Effect:
    """Files without a declared digest get another body: some between HEAD and GET."""
    for path, body in context.second_bodies.items():
        context.cluster.fakes.source.change(path, body=body)
    return Effect(f"{len(context.second_bodies)} files")


@kind_of(BEGIN, Kind.MAIL_DOWN)
def _mail_down(context: FaultContext, fault: Fault, late: bool) -> Effect:
    """Refused, answered with 451, or taken without an answer: the last makes a repetition."""
    proxy, postbox = context.cluster.fakes.mail_proxy, context.cluster.fakes.postbox
    how = ("refuses", "answers 451", "loses its answers")[fault.target % 3]
    if how == "refuses":
        proxy.refuse()
    elif how == "answers 451":
        postbox.busy = True
    else:
        proxy.swallow_after(b"From:")

    def end_fault() -> None:
        postbox.busy = False
        proxy.accept()
        proxy.cut()

    return Effect(how, end_fault)


@kind_of(BEGIN, Kind.CALLBACK_DOWN)
def _callback_down(context: FaultContext, fault: Fault, late: bool) -> Effect:
    proxy = context.cluster.fakes.callback_proxy
    how = ("refuses", "loses its answers")[fault.target % 2]
    if how == "refuses":
        proxy.refuse()
    else:
        proxy.swallow()

    def end_fault() -> None:
        proxy.accept()
        proxy.cut()

    return Effect(how, end_fault)


@kind_of(BEGIN, Kind.SECOND_SWEEP)
def _second_sweep(context: FaultContext, fault: Fault, late: bool) -> Effect:
    context.beat.ask("sweep", "feed", "recheck_provisioning", "clean_up_jobs", "sweep", "feed")
    return Effect("beside the elected beat")
