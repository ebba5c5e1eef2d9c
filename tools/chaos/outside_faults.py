"""Injects faults into outside systems: sources, EZID, mail, the callback receiver and clamd."""

from tests.servers.proxy import Proxy
from tools.chaos.actors import Actor
from tools.chaos.faults import Effect, FaultContext, Table, kind_of, thaw
from tools.chaos.schedule import Fault, Kind

BEGIN: Table = {}
"""Kind of fault -> function that injects it."""

BYTE_SECONDS = 25.0
"""Seconds between two bytes of a slow host: below every socket timeout."""


def _end(proxy: Proxy) -> None:
    proxy.accept()
    proxy.cut()


@kind_of(BEGIN, Kind.SOURCE_DOWN)
def _refuse_source(context: FaultContext, fault: Fault, late: bool) -> Effect:
    proxy = context.cluster.fakes.source_proxy
    release = context.claim("source", proxy.accept)
    proxy.refuse()
    return Effect("source", release)


@kind_of(BEGIN, Kind.SOURCE_HANGS)
def _hang_source(context: FaultContext, fault: Fault, late: bool) -> Effect:
    proxy = context.cluster.fakes.source_proxy
    release = context.claim("source", proxy.cut)
    proxy.swallow()
    return Effect("source", release)


@kind_of(BEGIN, Kind.SOURCE_BUSY)
def _busy_source(context: FaultContext, fault: Fault, late: bool) -> Effect:
    status = (503, 429)[fault.target % 2]
    source = context.cluster.fakes.source
    release = context.claim("source", lambda: source.calm(far=False))
    source.busy(status, "2", far=False)
    return Effect(str(status), release)


@kind_of(BEGIN, Kind.HOST_BUSY)
def _busy_host(context: FaultContext, fault: Fault, late: bool) -> Effect:
    """One of two content hosts asks every client to come back, soon or in a minute."""
    retry_after = ("2", "60")[fault.target % 2]
    source = context.cluster.fakes.source
    release = context.claim("far host", lambda: source.calm(far=True))
    source.busy(503, retry_after, far=True)
    return Effect(f"one of two hosts, Retry-After: {retry_after}", release)


@kind_of(BEGIN, Kind.SOURCE_CHANGED)
def _change_content(context: FaultContext, fault: Fault, late: bool) -> Effect:
    """Files without a declared digest get another body, some after their size was probed."""
    release = context.claim("source", lambda: None)
    for path, body in context.second_bodies.items():
        context.cluster.fakes.source.change(path, body=body)
    release()
    return Effect(f"{len(context.second_bodies)} files")


@kind_of(BEGIN, Kind.HOST_DEAD)
def _dead_host(context: FaultContext, fault: Fault, late: bool) -> Effect:
    """One of two content hosts refuses connections, or accepts requests and answers nothing."""
    proxy = context.cluster.fakes.far_proxy
    how = ("refuses", "answers nothing")[fault.target % 2]
    release = context.claim("far host", lambda: _end(proxy))
    if how == "refuses":
        proxy.refuse()
    else:
        proxy.swallow()
    return Effect(how, release)


@kind_of(BEGIN, Kind.HOST_SLOW)
def _slow_host(context: FaultContext, fault: Fault, late: bool) -> Effect:
    proxy = context.cluster.fakes.far_proxy
    release = context.claim("far host", proxy.hurry)
    proxy.trickle(BYTE_SECONDS)
    return Effect("one of two hosts", release)


@kind_of(BEGIN, Kind.EZID_DOWN, Kind.EZID_OUTAGE)
def _ezid_down(context: FaultContext, fault: Fault, late: bool) -> Effect:
    proxy = context.cluster.fakes.ezid_proxy
    how = ("refuses", "loses its answers")[fault.target % 2]
    release = context.claim("EZID", lambda: _end(proxy))
    if how == "refuses":
        proxy.refuse()
    else:
        proxy.swallow()
    return Effect(how, release)


@kind_of(BEGIN, Kind.MAIL_DOWN, Kind.MAIL_OUTAGE)
def _mail_down(context: FaultContext, fault: Fault, late: bool) -> Effect:
    """Mail is refused, answered with 451, or accepted without an answer: the last causes a repeat."""
    proxy, postbox = context.cluster.fakes.mail_proxy, context.cluster.fakes.postbox
    how = ("refuses", "answers 451", "loses its answers")[fault.target % 3]

    def end_fault() -> None:
        postbox.busy = False
        _end(proxy)

    release = context.claim("mail", end_fault)
    if how == "refuses":
        proxy.refuse()
    elif how == "answers 451":
        postbox.busy = True
    else:
        proxy.swallow_after(b"From:")
    return Effect(how, release)


@kind_of(BEGIN, Kind.CALLBACK_DOWN, Kind.CALLBACK_OUTAGE)
def _callback_down(context: FaultContext, fault: Fault, late: bool) -> Effect:
    proxy = context.cluster.fakes.callback_proxy
    how = ("refuses", "loses its answers")[fault.target % 2]
    release = context.claim("callback receiver", lambda: _end(proxy))
    if how == "refuses":
        proxy.refuse()
    else:
        proxy.swallow()
    return Effect(how, release)


def _scanner(context: FaultContext) -> Actor:
    scanner = context.cluster.scanner
    assert scanner is not None, "the schedule has no fault of a clamd that is not there"
    return scanner


@kind_of(BEGIN, Kind.CLAMD_KILLED, Kind.CLAMD_OUTAGE)
def _kill_clamd(context: FaultContext, fault: Fault, late: bool) -> Effect:
    release = context.claim("clamd", lambda: None)
    _scanner(context).kill(pause=fault.seconds)
    return Effect("clamd", release)


@kind_of(BEGIN, Kind.CLAMD_FROZEN)
def _freeze_clamd(context: FaultContext, fault: Fault, late: bool) -> Effect:
    scanner = _scanner(context)
    frozen: list[int] = []
    release = context.claim("clamd", lambda: thaw(scanner, frozen)())
    frozen += scanner.freeze()
    return Effect("clamd", release)


@kind_of(BEGIN, Kind.CLAMD_RESTARTED)
def _restart_clamd(context: FaultContext, fault: Fault, late: bool) -> Effect:
    context.claim("clamd", lambda: None)()
    _scanner(context).restart()
    return Effect("clamd")
