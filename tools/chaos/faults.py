"""Injects faults into workers and beats, and undoes them; server_faults.py has the other faults."""

import signal
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from pipeline.states import BatchState
from tools.chaos.actors import Actor, children, send
from tools.chaos.background import SecondBeat, Submitter
from tools.chaos.cluster import Cluster
from tools.chaos.operator import OperatorThread
from tools.chaos.schedule import Fault, Kind


class NotNow(Exception):
    """No process is in the state that this fault needs; try again soon."""


@dataclass
class Effect:
    """An injected fault: its target, and the function that undoes it."""

    what: str
    undo: Callable[[], None] | None = None


@dataclass
class FaultContext:
    """The targets of faults. `late`: a fault that has waited long enough takes any target."""

    cluster: Cluster
    beat: SecondBeat
    operator: OperatorThread
    submitter: Submitter
    second_bodies: dict[str, bytes]
    claimed: set[str] = field(default_factory=set)
    """Services in use by a fault. A second fault on one waits, because its end would end the first."""
    copied: int | None = None
    """The inventory's mark when ZooKeeper's data were copied; None if there is no copy."""
    watches: Counter[Fault] = field(default_factory=Counter)
    """How often a fault has watched for a job that has just stored its version."""
    struck: set[bytes] = field(default_factory=set)
    """Marks of the batch attempts that a fault has struck."""

    def claim(self, service: str, end: Callable[[], None]) -> Callable[[], None]:
        """Claim a service, or raise NotNow; the returned function ends the fault and the claim."""
        if service in self.claimed:
            raise NotNow
        self.claimed.add(service)

        def release() -> None:
            end()
            self.claimed.discard(service)

        return release


Begin = Callable[[FaultContext, Fault, bool], Effect]
Table = dict[Kind, Begin]
BEGIN: Table = {}
"""Kind of fault -> function that injects it."""


def kind_of(table: Table, *kinds: Kind) -> Callable[[Begin], Begin]:
    def register(function: Begin) -> Begin:
        table.update(dict.fromkeys(kinds, function))
        return function

    return register


def busy_child(context: FaultContext, fault: Fault, late: bool, state: str = "") -> tuple[Actor, int, str]:
    """A worker and a process of its pool that runs a step (of `state`); any process if the fault is late."""
    pools = {pid: actor for actor in context.cluster.workers for pid in actor.pool}
    at_work = [
        holder
        for holder in context.cluster.witness.holders()
        if holder.pid in pools and (not state or holder.state == state)
    ]
    if at_work:
        holder = at_work[fault.target % len(at_work)]
        return pools[holder.pid], holder.pid, f"{holder.jid} {holder.state}"
    if not late or not pools:
        raise NotNow
    pid = list(pools)[fault.target % len(pools)]
    return pools[pid], pid, "idle"


@kind_of(BEGIN, Kind.KILL_CHILD)
def _kill_child(context: FaultContext, fault: Fault, late: bool) -> Effect:
    actor, pid, doing = busy_child(context, fault, late)
    send(pid, signal.SIGKILL)
    context.cluster.witness.killed([pid], fault.kind.label)
    return Effect(f"{actor.name}/{pid} ({doing})")


@kind_of(BEGIN, Kind.OUT_OF_MEMORY)
def _kill_largest_child(context: FaultContext, fault: Fault, late: bool) -> Effect:
    """Kill only the working process that the kernel's OOM killer would choose."""
    pools = {pid: actor for actor in context.cluster.workers for pid in actor.pool}
    busy = {holder.pid: holder for holder in context.cluster.witness.holders() if holder.pid in pools}
    if not busy and not (late and pools):
        raise NotNow
    pid = max(busy or pools, key=_oom_score)
    doing = f"{busy[pid].jid} {busy[pid].state}" if busy else "idle"
    what = f"{pools[pid].name}/{pid} ({doing}), oom_score {_oom_score(pid)}"
    send(pid, signal.SIGKILL)
    context.cluster.witness.killed([pid], fault.kind.label)
    return Effect(what)


def _oom_score(pid: int) -> int:
    """The kernel's OOM score; -1 if the process is gone."""
    try:
        return int(Path(f"/proc/{pid}/oom_score").read_text())
    except OSError:
        return -1


@kind_of(BEGIN, Kind.KILL_WORKER)
def _kill_worker(context: FaultContext, fault: Fault, late: bool) -> Effect:
    actor, _, _ = busy_child(context, fault, late)
    pids = actor.pids
    actor.kill()
    lost = context.cluster.witness.killed(pids, fault.kind.label)
    return Effect(f"{actor.name} ({', '.join(lost) or 'idle'})")


@kind_of(BEGIN, Kind.TERM_DOWNLOADING, Kind.TERM_STORING)
def _terminate(context: FaultContext, fault: Fault, late: bool) -> Effect:
    state = "downloading" if fault.kind is Kind.TERM_DOWNLOADING else "processing"
    actor, _, doing = busy_child(context, fault, late, state)
    actor.ask_to_stop(fault.seconds)
    return Effect(f"{actor.name} ({doing}), SIGKILL after {fault.seconds} s")


@kind_of(BEGIN, Kind.ZOMBIE_CHILD)
def _freeze_child(context: FaultContext, fault: Fault, late: bool) -> Effect:
    actor, pid, doing = busy_child(context, fault, late)
    send(pid, signal.SIGSTOP)

    def wake() -> None:
        if pid in actor.pool:
            send(pid, signal.SIGCONT)

    return Effect(f"{actor.name}/{pid} ({doing})", wake)


_BATCH_WORK = {
    Kind.KILL_SPLIT: (BatchState.PENDING, BatchState.PROCESSING),
    Kind.ZOMBIE_SPLIT: (BatchState.PENDING, BatchState.PROCESSING),
    Kind.KILL_REPORT: (BatchState.REPORTING,),
    Kind.ZOMBIE_REPORT: (BatchState.REPORTING,),
    Kind.KILL_UPDATE: (BatchState.UPDATE_REPORTING,),
    Kind.ZOMBIE_UPDATE: (BatchState.UPDATE_REPORTING,),
}


@kind_of(BEGIN, *_BATCH_WORK)
def _stop_batch_work(context: FaultContext, fault: Fault, late: bool) -> Effect:
    """Kill or freeze the process that splits a batch or reports its end; no other target will do."""
    states = _BATCH_WORK[fault.kind]
    pools = {pid: actor for actor in context.cluster.workers for pid in actor.pool}
    at_work = [
        holder
        for holder in context.cluster.witness.batch_holders()
        if holder.pid in pools and holder.state in states and holder.mark not in context.struck
    ]
    if not at_work:
        if BatchState.UPDATE_REPORTING in states:
            context.operator.prepare_update()
        raise NotNow
    holder = at_work[fault.target % len(at_work)]
    context.struck.add(holder.mark)
    actor, pid = pools[holder.pid], holder.pid
    what = f"{actor.name}/{pid} ({holder.jid} {holder.state})"
    if fault.seconds == 0:
        send(pid, signal.SIGKILL)
        return Effect(what)
    send(pid, signal.SIGSTOP)
    return Effect(what, lambda: send(pid, signal.SIGCONT) if pid in actor.pool else None)


@kind_of(BEGIN, Kind.ROLLING_RESTART)
def _restart_workers(context: FaultContext, fault: Fault, late: bool) -> Effect:
    if context.cluster.restarting:
        raise NotNow
    context.cluster.restart_workers()
    return Effect(f"{len(context.cluster.workers)} workers, one after the other")


@kind_of(BEGIN, Kind.ZOMBIE_WORKER)
def _freeze_worker(context: FaultContext, fault: Fault, late: bool) -> Effect:
    actor, _, doing = busy_child(context, fault, late)
    return Effect(f"{actor.name} ({doing})", thaw(actor, actor.freeze()))


@kind_of(BEGIN, Kind.STALLED_CONSUMER)
def _stall_consumer(context: FaultContext, fault: Fault, late: bool) -> Effect:
    actor = context.cluster.workers[fault.target % len(context.cluster.workers)]
    if not actor.running:
        raise NotNow
    actor.process.send_signal(signal.SIGSTOP)
    return Effect(actor.name, thaw(actor, [actor.process.pid]))


def thaw(actor: Actor, frozen: list[int]) -> Callable[[], None]:
    def wake() -> None:
        if actor.running and actor.process.pid in frozen:
            for pid in frozen:
                if pid == actor.process.pid or pid in children(actor.process.pid):
                    send(pid, signal.SIGCONT)

    return wake


@kind_of(BEGIN, Kind.KILL_BEAT)
def _kill_beat(context: FaultContext, fault: Fault, late: bool) -> Effect:
    pid = context.cluster.witness.leading_beat()
    leader = next((beat for beat in context.cluster.beats if beat.running and beat.process.pid == pid), None)
    if leader is None:
        if not late:
            raise NotNow
        leader = context.cluster.beats[fault.target % 2]
    leader.kill()
    return Effect(leader.name)


def job_folders(working: Path) -> list[Path]:
    """The folders of jobs in working storage, where the folder of a batch may go while they are listed."""
    folders: list[Path] = []
    for batch in working.glob("bid*"):
        with suppress(FileNotFoundError):
            folders += batch.glob("jid*")
    return folders
