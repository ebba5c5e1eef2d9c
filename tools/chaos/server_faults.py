"""Faults of what the repository needs: Redis, ZooKeeper, disks, the inventory, and all that is outside."""

import shutil
import sqlite3

import redis
from sqlalchemy import make_url

from tools.chaos.actors import Actor
from tools.chaos.faults import NotNow, Scene, Struck, Table, kind_of, thaw
from tools.chaos.schedule import Fault, Kind

BEGIN: Table = {}
"""How each kind of this page is done."""


@kind_of(BEGIN, Kind.REDIS_KILLED, Kind.REDIS_EMPTY)
def _kill_redis(scene: Scene, fault: Fault, late: bool) -> Struck:
    actor = scene.arena.redis
    actor.kill(pause=fault.seconds)
    if fault.kind is Kind.REDIS_EMPTY:
        shutil.rmtree(scene.arena.folder / "redis", ignore_errors=True)
        (scene.arena.folder / "redis").mkdir()
    return Struck(actor.name)


@kind_of(BEGIN, Kind.REDIS_FLUSHED)
def _flush(scene: Scene, fault: Fault, late: bool) -> Struck:
    try:
        with redis.Redis.from_url(scene.arena.settings.broker_url, socket_timeout=1) as client:
            keys = client.dbsize()
            client.flushall()
    except redis.RedisError:
        if not late:
            raise NotNow from None
        return Struck("redis did not answer")
    return Struck(f"redis, {keys} keys")


@kind_of(BEGIN, Kind.REDIS_FROZEN)
def _freeze_redis(scene: Scene, fault: Fault, late: bool) -> Struck:
    return Struck("redis", thaw(scene.arena.redis, scene.arena.redis.freeze()))


@kind_of(BEGIN, Kind.ZK_KILLED, Kind.ZK_LEADER_KILLED)
def _kill_zookeeper(scene: Scene, fault: Fault, late: bool) -> Struck:
    actor = _zookeeper(scene, fault, late, leads=fault.kind is Kind.ZK_LEADER_KILLED)
    actor.kill(pause=fault.seconds)
    return Struck(actor.name)


@kind_of(BEGIN, Kind.ZK_FOLLOWER_FROZEN, Kind.ZK_LEADER_FROZEN)
def _freeze_zookeeper(scene: Scene, fault: Fault, late: bool) -> Struck:
    actor = _zookeeper(scene, fault, late, leads=fault.kind is Kind.ZK_LEADER_FROZEN)
    return Struck(actor.name, thaw(actor, actor.freeze()))


@kind_of(BEGIN, Kind.ZK_RESTARTED)
def _restart_zookeeper(scene: Scene, fault: Fault, late: bool) -> Struck:
    for actor in scene.arena.zookeepers:
        actor.kill(pause=fault.seconds)
    return Struck("the whole ensemble")


def _zookeeper(scene: Scene, fault: Fault, late: bool, *, leads: bool) -> Actor:
    leader = scene.arena.leading()
    if leader is None and not late:
        raise NotNow
    servers = scene.arena.zookeepers
    if leader is None:
        return servers[fault.target % len(servers)]
    if leads:
        return servers[leader]
    followers = [each for number, each in enumerate(servers) if number != leader]
    return followers[fault.target % len(followers)]


@kind_of(BEGIN, Kind.ANSWERS_SWALLOWED)
def _swallow(scene: Scene, fault: Fault, late: bool) -> Struck:
    """From the next acquire, move or creation on, answers are lost; then the connections."""
    said = (b"/lock", b"/history", b"/jobs/states/", b"/configuration")[fault.target % 4]
    for proxy in scene.arena.zk_proxies:
        proxy.swallow_after(said)

    def cut() -> None:
        for proxy in scene.arena.zk_proxies:
            proxy.cut()

    return Struck(f"worker1, from {said.decode()} on", cut)


@kind_of(BEGIN, Kind.WORKER_CUT_OFF)
def _cut_off(scene: Scene, fault: Fault, late: bool) -> Struck:
    for proxy in scene.arena.zk_proxies:
        proxy.partition()

    def join_again() -> None:
        for proxy in scene.arena.zk_proxies:
            proxy.cut()

    return Struck("worker1", join_again)


@kind_of(BEGIN, Kind.WORKING_FULL, Kind.STORAGE_FULL)
def _fill(scene: Scene, fault: Fault, late: bool) -> Struck:
    filler = scene.arena.fillers["working" if fault.kind is Kind.WORKING_FULL else "storage"]
    return Struck(f"{filler.fill() >> 20} MB", filler.remove)


@kind_of(BEGIN, Kind.INVENTORY_LOCKED)
def _lock_inventory(scene: Scene, fault: Fault, late: bool) -> Struck:
    file = make_url(scene.arena.settings.inventory).database or ""
    connection = sqlite3.connect(file, timeout=0.5, isolation_level=None, check_same_thread=False)
    try:
        connection.execute("BEGIN EXCLUSIVE")
    except sqlite3.OperationalError:
        connection.close()
        raise NotNow from None

    def release() -> None:
        connection.rollback()
        connection.close()

    return Struck("BEGIN EXCLUSIVE", release)


@kind_of(BEGIN, Kind.SOURCE_DOWN)
def _refuse_source(scene: Scene, fault: Fault, late: bool) -> Struck:
    proxy = scene.arena.outside.source_proxy
    proxy.refuse()
    return Struck("source", proxy.accept)


@kind_of(BEGIN, Kind.SOURCE_HANGS)
def _hang_source(scene: Scene, fault: Fault, late: bool) -> Struck:
    proxy = scene.arena.outside.source_proxy
    proxy.swallow()
    return Struck("source", proxy.cut)


@kind_of(BEGIN, Kind.SOURCE_BUSY)
def _busy_source(scene: Scene, fault: Fault, late: bool) -> Struck:
    status = (503, 429)[fault.target % 2]
    scene.arena.outside.source.busy(status)
    return Struck(str(status), scene.arena.outside.source.calm)


@kind_of(BEGIN, Kind.SOURCE_CHANGED)
def _change_content(scene: Scene, fault: Fault, late: bool) -> Struck:
    """Files without a declared digest get another body: some between HEAD and GET."""
    for path, body in scene.second_bodies.items():
        scene.arena.outside.source.change(path, body=body)
    return Struck(f"{len(scene.second_bodies)} files")


@kind_of(BEGIN, Kind.MAIL_DOWN)
def _mail_down(scene: Scene, fault: Fault, late: bool) -> Struck:
    """Refused, answered with 451, or taken without an answer: the last makes a repetition."""
    proxy, postbox = scene.arena.outside.mail_proxy, scene.arena.outside.postbox
    how = ("refuses", "answers 451", "loses its answers")[fault.target % 3]
    if how == "refuses":
        proxy.refuse()
    elif how == "answers 451":
        postbox.busy = True
    else:
        proxy.swallow_after(b"From:")

    def mend() -> None:
        postbox.busy = False
        proxy.accept()
        proxy.cut()

    return Struck(how, mend)


@kind_of(BEGIN, Kind.CALLBACK_DOWN)
def _callback_down(scene: Scene, fault: Fault, late: bool) -> Struck:
    proxy = scene.arena.outside.callback_proxy
    how = ("refuses", "loses its answers")[fault.target % 2]
    if how == "refuses":
        proxy.refuse()
    else:
        proxy.swallow()

    def mend() -> None:
        proxy.accept()
        proxy.cut()

    return Struck(how, mend)


@kind_of(BEGIN, Kind.SECOND_SWEEP)
def _second_sweep(scene: Scene, fault: Fault, late: bool) -> Struck:
    scene.beat.ask("sweep", "feed", "recheck_provisioning", "clean_up_jobs", "sweep", "feed")
    return Struck("beside the elected beat")
