"""How faults are done to the arena and taken back; those of workers and beats. See also server_faults."""

import signal
from collections.abc import Callable
from dataclasses import dataclass

from tools.chaos.actors import Actor, children, send
from tools.chaos.background import SecondBeat
from tools.chaos.cluster import Arena
from tools.chaos.schedule import Fault, Kind


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
Table = dict[Kind, Begin]
BEGIN: Table = {}
"""How each kind of this page is done."""


def kind_of(table: Table, *kinds: Kind) -> Callable[[Begin], Begin]:
    def register(function: Begin) -> Begin:
        table.update(dict.fromkeys(kinds, function))
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


@kind_of(BEGIN, Kind.KILL_CHILD)
def _kill_child(scene: Scene, fault: Fault, late: bool) -> Struck:
    actor, pid, doing = _busy_child(scene, fault, late)
    send(pid, signal.SIGKILL)
    scene.arena.witness.killed([pid], fault.kind.label)
    return Struck(f"{actor.name}/{pid} ({doing})")


@kind_of(BEGIN, Kind.KILL_WORKER)
def _kill_worker(scene: Scene, fault: Fault, late: bool) -> Struck:
    actor, _, _ = _busy_child(scene, fault, late)
    pids = actor.pids
    actor.kill()
    lost = scene.arena.witness.killed(pids, fault.kind.label)
    return Struck(f"{actor.name} ({', '.join(lost) or 'idle'})")


@kind_of(BEGIN, Kind.TERM_DOWNLOADING, Kind.TERM_STORING)
def _terminate(scene: Scene, fault: Fault, late: bool) -> Struck:
    state = "downloading" if fault.kind is Kind.TERM_DOWNLOADING else "processing"
    actor, _, doing = _busy_child(scene, fault, late, state)
    actor.ask_to_stop(fault.seconds)
    return Struck(f"{actor.name} ({doing}), SIGKILL after {fault.seconds} s")


@kind_of(BEGIN, Kind.ZOMBIE_CHILD)
def _freeze_child(scene: Scene, fault: Fault, late: bool) -> Struck:
    actor, pid, doing = _busy_child(scene, fault, late)
    send(pid, signal.SIGSTOP)

    def wake() -> None:
        if pid in actor.pool:
            send(pid, signal.SIGCONT)

    return Struck(f"{actor.name}/{pid} ({doing})", wake)


@kind_of(BEGIN, Kind.ZOMBIE_WORKER)
def _freeze_worker(scene: Scene, fault: Fault, late: bool) -> Struck:
    actor, _, doing = _busy_child(scene, fault, late)
    return Struck(f"{actor.name} ({doing})", thaw(actor, actor.freeze()))


@kind_of(BEGIN, Kind.DEAF_WORKER)
def _deafen(scene: Scene, fault: Fault, late: bool) -> Struck:
    actor = scene.arena.workers[fault.target % len(scene.arena.workers)]
    if not actor.running:
        raise NotNow
    actor.process.suspend()
    return Struck(actor.name, thaw(actor, [actor.process.pid]))


def thaw(actor: Actor, frozen: list[int]) -> Callable[[], None]:
    def wake() -> None:
        if actor.running and actor.process.pid in frozen:
            for pid in frozen:
                if pid == actor.process.pid or pid in children(actor.process.pid):
                    send(pid, signal.SIGCONT)

    return wake


@kind_of(BEGIN, Kind.KILL_BEAT)
def _kill_beat(scene: Scene, fault: Fault, late: bool) -> Struck:
    pid = scene.arena.witness.leading_beat()
    leader = next((beat for beat in scene.arena.beats if beat.running and beat.process.pid == pid), None)
    if leader is None:
        if not late:
            raise NotNow
        leader = scene.arena.beats[fault.target % 2]
    leader.kill()
    return Struck(leader.name)
