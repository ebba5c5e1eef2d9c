"""The commands that a worker obeys over Redis: those that ask, those of events, and the two of a drain.

Whoever can write to Redis could end every worker by one message otherwise (`shutdown`), or its pool.
"""

from functools import partial

from celery.worker.control import Panel

from tasks.logs import log

ALLOWED = frozenset(
    {
        "active",
        "active_queues",
        "add_consumer",
        "cancel_consumer",
        "conf",
        "disable_events",
        "enable_events",
        "heartbeat",
        "hello",
        "ping",
        "query_task",
        "registered",
        "report",
        "reserved",
        "revoked",
        "scheduled",
        "stats",
    }
)


def restrict() -> None:
    """Refuse all other commands of Celery, in this process."""
    for name in set(Panel.data) - ALLOWED:
        Panel.data[name] = partial(_refuse, name)


def _refuse(name: str, *_: object, **__: object) -> dict[str, str]:
    log().warning("a remote command was refused", command=name)
    return {"error": f"{name} is refused: use the supervisor of the worker's machine, or arkline drain"}
