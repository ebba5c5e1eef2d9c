"""How each kind of fault is done to the arena, and how it is taken back."""

import shutil
import signal
import sqlite3
from collections.abc import Callable
from dataclasses import dataclass

import redis
from sqlalchemy import make_url

from tests.chaos.actors import Actor, children, send
from tests.chaos.arena import Arena
from tests.chaos.insiders import SecondBeat
from tests.chaos.schedule import Fault, Kind


class NotNow(Exception):
    """Nothing is in the state that this fault is for; it may be in a moment."""


@dataclass
class Struck:
    """A fault that has begun: what it hit, and how it is taken back."""

    what: str
    undo: Callable[[], None] | None = None


@dataclass
class Scene:
    """What the faults act on. `late`: a fault that waited for its moment takes whatever there is."""

    arena: Arena
    beat: SecondBeat
    second_bodies: dict[str, bytes]


Begin = Callable[[Scene, Fault, bool], Struck]
_BEGIN: dict[Kind, Begin] = {}


def begin(scene: Scene, fault: Fault, late: bool) -> Struck:
    return _BEGIN[fault.kind](scene, fault, late)


def _kind(*kinds: Kind) -> Callable[[Begin], Begin]:
    def register(function: Begin) -> Begin:
        _BEGIN.update(dict.fromkeys(kinds, function))
        return function

    return register


def _busy_child(scene: Scene, fault: Fault, late: bool, state: str = "") -> tuple[Actor, int, str]:
    """A worker and a process of its pool, at work (in `state`) unless it is too late to be choosy."""
    pools = {pid: actor for actor in scene.arena.workers for pid in actor.pool}
    at_work = [
        each
        for each in scene.arena.witness.holders()
        if each.pid in pools and (not state or each.state == state)
    ]
    if at_work:
        holder = at_work[fault.target % len(at_work)]
        return pools[holder.pid], holder.pid, f"{holder.jid} {holder.state}"
    if not late or not pools:
        raise NotNow
    pid = list(pools)[fault.target % len(pools)]
    return pools[pid], pid, "idle"


@_kind(Kind.KILL_CHILD)
def _kill_child(scene: Scene, fault: Fault, late: bool) -> Struck:
    actor, pid, doing = _busy_child(scene, fault, late)
    send(pid, signal.SIGKILL)
    scene.arena.witness.killed([pid], fault.kind.label)
    return Struck(f"{actor.name}/{pid} ({doing})")


@_kind(Kind.KILL_WORKER)
def _kill_worker(scene: Scene, fault: Fault, late: bool) -> Struck:
    actor, _, _ = _busy_child(scene, fault, late)
    pids = actor.pids
    actor.kill()
    lost = scene.arena.witness.killed(pids, fault.kind.label)
    return Struck(f"{actor.name} ({', '.join(lost) or 'idle'})")


@_kind(Kind.TERM_DOWNLOADING, Kind.TERM_STORING)
def _terminate(scene: Scene, fault: Fault, late: bool) -> Struck:
    state = "downloading" if fault.kind is Kind.TERM_DOWNLOADING else "processing"
    actor, _, doing = _busy_child(scene, fault, late, state)
    actor.ask_to_stop(fault.seconds)
    return Struck(f"{actor.name} ({doing}), SIGKILL after {fault.seconds} s")


@_kind(Kind.ZOMBIE_CHILD)
def _freeze_child(scene: Scene, fault: Fault, late: bool) -> Struck:
    actor, pid, doing = _busy_child(scene, fault, late)
    send(pid, signal.SIGSTOP)

    def wake() -> None:
        if pid in actor.pool:
            send(pid, signal.SIGCONT)

    return Struck(f"{actor.name}/{pid} ({doing})", wake)


@_kind(Kind.ZOMBIE_WORKER)
def _freeze_worker(scene: Scene, fault: Fault, late: bool) -> Struck:
    actor, _, doing = _busy_child(scene, fault, late)
    return Struck(f"{actor.name} ({doing})", _thaw(actor, actor.freeze()))


@_kind(Kind.DEAF_WORKER)
def _deafen(scene: Scene, fault: Fault, late: bool) -> Struck:
    actor = scene.arena.workers[fault.target % len(scene.arena.workers)]
    if not actor.running:
        raise NotNow
    actor.process.suspend()
    return Struck(actor.name, _thaw(actor, [actor.process.pid]))


def _thaw(actor: Actor, frozen: list[int]) -> Callable[[], None]:
    def wake() -> None:
        if actor.running and actor.process.pid in frozen:
            for pid in frozen:
                if pid == actor.process.pid or pid in children(actor.process.pid):
                    send(pid, signal.SIGCONT)

    return wake


@_kind(Kind.KILL_BEAT)
def _kill_beat(scene: Scene, fault: Fault, late: bool) -> Struck:
    pid = scene.arena.witness.leading_beat()
    leader = next((beat for beat in scene.arena.beats if beat.running and beat.process.pid == pid), None)
    if leader is None:
        if not late:
            raise NotNow
        leader = scene.arena.beats[fault.target % 2]
    leader.kill()
    return Struck(leader.name)


@_kind(Kind.REDIS_KILLED, Kind.REDIS_EMPTY)
def _kill_redis(scene: Scene, fault: Fault, late: bool) -> Struck:
    actor = scene.arena.redis
    actor.kill(pause=fault.seconds)
    if fault.kind is Kind.REDIS_EMPTY:
        shutil.rmtree(scene.arena.folder / "redis", ignore_errors=True)
        (scene.arena.folder / "redis").mkdir()
    return Struck(actor.name)


@_kind(Kind.REDIS_FLUSHED)
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


@_kind(Kind.REDIS_FROZEN)
def _freeze_redis(scene: Scene, fault: Fault, late: bool) -> Struck:
    return Struck("redis", _thaw(scene.arena.redis, scene.arena.redis.freeze()))


@_kind(Kind.ZK_KILLED, Kind.ZK_LEADER_KILLED)
def _kill_zookeeper(scene: Scene, fault: Fault, late: bool) -> Struck:
    actor = _zookeeper(scene, fault, late, leads=fault.kind is Kind.ZK_LEADER_KILLED)
    actor.kill(pause=fault.seconds)
    return Struck(actor.name)


@_kind(Kind.ZK_FOLLOWER_FROZEN, Kind.ZK_LEADER_FROZEN)
def _freeze_zookeeper(scene: Scene, fault: Fault, late: bool) -> Struck:
    actor = _zookeeper(scene, fault, late, leads=fault.kind is Kind.ZK_LEADER_FROZEN)
    return Struck(actor.name, _thaw(actor, actor.freeze()))


@_kind(Kind.ZK_RESTARTED)
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


@_kind(Kind.ANSWERS_SWALLOWED)
def _swallow(scene: Scene, fault: Fault, late: bool) -> Struck:
    """From the next acquire, move or creation on, answers are lost; then the connections."""
    said = (b"/lock", b"/history", b"/jobs/states/", b"/configuration")[fault.target % 4]
    for proxy in scene.arena.zk_proxies:
        proxy.swallow_after(said)

    def cut() -> None:
        for proxy in scene.arena.zk_proxies:
            proxy.cut()

    return Struck(f"worker1, from {said.decode()} on", cut)


@_kind(Kind.WORKER_CUT_OFF)
def _cut_off(scene: Scene, fault: Fault, late: bool) -> Struck:
    for proxy in scene.arena.zk_proxies:
        proxy.partition()

    def join_again() -> None:
        for proxy in scene.arena.zk_proxies:
            proxy.cut()

    return Struck("worker1", join_again)


@_kind(Kind.WORKING_FULL, Kind.STORAGE_FULL)
def _fill(scene: Scene, fault: Fault, late: bool) -> Struck:
    filler = scene.arena.fillers["working" if fault.kind is Kind.WORKING_FULL else "storage"]
    return Struck(f"{filler.fill() >> 20} MB", filler.remove)


@_kind(Kind.INVENTORY_LOCKED)
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


@_kind(Kind.SOURCE_DOWN)
def _refuse_source(scene: Scene, fault: Fault, late: bool) -> Struck:
    proxy = scene.arena.outside.source_proxy
    proxy.refuse()
    return Struck("source", proxy.accept)


@_kind(Kind.SOURCE_HANGS)
def _hang_source(scene: Scene, fault: Fault, late: bool) -> Struck:
    proxy = scene.arena.outside.source_proxy
    proxy.swallow()
    return Struck("source", proxy.cut)


@_kind(Kind.SOURCE_BUSY)
def _busy_source(scene: Scene, fault: Fault, late: bool) -> Struck:
    status = (503, 429)[fault.target % 2]
    scene.arena.outside.source.busy(status)
    return Struck(str(status), scene.arena.outside.source.calm)


@_kind(Kind.SOURCE_CHANGED)
def _change_content(scene: Scene, fault: Fault, late: bool) -> Struck:
    """Files without a declared digest get another body: some between HEAD and GET."""
    for path, body in scene.second_bodies.items():
        scene.arena.outside.source.change(path, body=body)
    return Struck(f"{len(scene.second_bodies)} files")


@_kind(Kind.MAIL_DOWN)
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


@_kind(Kind.CALLBACK_DOWN)
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


@_kind(Kind.SECOND_SWEEP)
def _second_sweep(scene: Scene, fault: Fault, late: bool) -> Struck:
    scene.beat.ask("sweep", "feed", "recheck_provisioning", "clean_up_jobs", "sweep", "feed")
    return Struck("beside the elected beat")
