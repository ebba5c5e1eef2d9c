"""The commands that a worker obeys over Redis: those that ask, those of events, and the two of a drain.

Whoever can write to Redis could otherwise end every worker by one message (`shutdown`), or its pool, have it
drop messages as revoked (`hello`), or read its settings (`conf`, `report`).
"""

from collections.abc import Callable
from functools import partial
from typing import Any

from celery.worker.control import Panel

from tasks.logs import log

ALLOWED = frozenset(
    {
        "active",
        "active_queues",
        "add_consumer",
        "cancel_consumer",
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


def restrict(serve: Callable[..., None]) -> None:
    """Refuse all other commands of Celery, in this process; `serve` is called by those that change queues."""
    for name in set(Panel.data) - ALLOWED:
        Panel.data[name] = partial(_refuse, name)
    for name, served in (("add_consumer", True), ("cancel_consumer", False)):
        Panel.data[name] = partial(_change_queue, Panel.data[name], partial(serve, served=served))


def _change_queue(
    command: Callable[..., Any], note: Callable[[str], None], state: Any, queue: str, **options: Any
) -> Any:
    answer = command(state, queue, **options)
    note(queue)
    return answer


def _refuse(name: str, *_: object, **__: object) -> dict[str, str]:
    log().warning("a remote command was refused", command=name)
    return {"error": f"{name} is refused: use the supervisor of the worker's machine, or arkline drain"}
