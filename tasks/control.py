"""The commands that a worker obeys over Redis: those that ask, and those of events.

Whoever can write to Redis could otherwise end every worker by one message (`shutdown`), or its pool, have it
consume nothing (`cancel_consumer`), drop messages as revoked (`hello`), or read its settings (`conf`,
`report`).

Celery's remote control, which waits for the workers that got the question, and for no others.

Celery's own waits a fixed time: too short for a worker on a busy machine, and too long where all have
answered. Redis says how many workers receive a message: so many answers end the wait.
"""

from functools import partial
from typing import Any

import celery.app.control
from celery.worker.control import Panel
from kombu import Producer, pidbox

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


class Mailbox(pidbox.Mailbox):
    def _publish(self, *values: Any, **options: Any) -> None:
        """On the channel that waits for the answers, because that one knows the receivers."""
        if options.get("producer") is None and (channel := options.get("channel")) is not None:
            options["producer"] = Producer(channel, auto_declare=False)
        super()._publish(*values, **options)

    def _collect(
        self,
        ticket: str,
        limit: int | None = None,
        timeout: float = 1,
        callback: Any = None,
        channel: Any = None,
        accept: Any = None,
    ) -> Any:
        receivers = getattr(channel, "receivers", None)
        if receivers == 0:
            return []
        expected = receivers if limit is None or receivers is None else min(limit, receivers)
        return super()._collect(ticket, expected or limit, timeout, callback, channel, accept)


class Control(celery.app.control.Control):
    Mailbox = Mailbox
