"""The message that begins a batch, sent without loading Celery: a submission sends this one and no other."""

import json
import os
import socket
from uuid import uuid4

import redis

from pipeline.records import Ticket
from pipeline.settings import Settings
from pipeline.states import BATCH, BatchState
from tasks.message import compose
from tasks.queue_lists import list_of, step_of
from tasks.redis_client import client
from tasks.signing import keys_of


def send_split(settings: Settings, ticket: Ticket) -> bool:
    """Send the ticket of a new batch; False if Redis did not accept the message.

    A message whose answer was lost may be sent again: it moves the batch once.
    """
    task = BATCH.task(BatchState(ticket.state))
    step = step_of(0)
    message = compose(
        task.name,
        ticket.model_dump(mode="json"),
        queue=task.queue.value,
        priority=step,
        identity=str(uuid4()),
        origin=f"gen{os.getpid()}@{socket.gethostname()}",
    )
    signed = json.dumps(keys_of(settings).sign(message))
    try:
        client(settings).lpush(list_of(settings.broker_prefix, task.queue.value, step), signed)
    except redis.RedisError:
        return False
    return True
