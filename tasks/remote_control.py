"""The commands that a worker obeys over Redis: those that ask, and those of events.

Whoever can write to Redis could otherwise end every worker by one message (`shutdown`), or its pool, have it
consume nothing (`cancel_consumer`), drop messages as revoked (`hello`), or read its settings (`conf`,
`report`).
"""

from functools import partial

from celery.worker.control import Panel

from tasks.logs import log

ALLOWED = frozenset(
    {
        "active",
        "active_queues",
        "disable_events",
        "enable_events",
        "heartbeat",
        "ping",
        "query_task",
        "registered",
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
