"""Celery's settings, as data; `tasks.broker` adds the broker's address and the key prefix.

docs/decisions/ and docs/operators/ give the reason for each value.
"""

import kombu

from pipeline.machine import PRIORITY_STEPS, Queue
from pipeline.states import BATCH, JOB

QUEUES = tuple(queue.value for queue in Queue)

broker_connection_retry_on_startup = True
broker_connection_max_retries = None  # the default gives up after some 46 minutes of outage
broker_transport_options = {
    "socket_timeout": 5,  # seconds; without a limit a frozen Redis blocks a publisher forever
    "socket_connect_timeout": 5,
    "socket_keepalive": True,
    "visibility_timeout": 43200,
    "priority_steps": list(PRIORITY_STEPS),
    "queue_order_strategy": "priority",
}
task_publish_retry_policy = {
    "max_retries": 3,
    "interval_start": 0.2,
    "interval_step": 0.5,
    "interval_max": 2,
}

task_queues = [kombu.Queue(name) for name in QUEUES]
task_default_queue = Queue.IO.value
task_create_missing_queues = False  # a mistyped queue name is an error, not a queue without a worker
task_routes = {
    **{task.name: {"queue": task.queue.value} for task in (*JOB.tasks(), *BATCH.tasks())},
    # long: scheduled work of seconds must not wait for them
    "beat.fixity": {"queue": Queue.PROCESS.value},
    "beat.proofs": {"queue": Queue.PROCESS.value},
    "beat.checks": {"queue": Queue.PROCESS.value},
    "beat.embargoes": {"queue": Queue.PROCESS.value},
    "beat.index_objects": {"queue": Queue.PROCESS.value},
    "beat.growth": {"queue": Queue.PROCESS.value},
    "beat.notifications": {"queue": Queue.IO.value},
    "beat.*": {"queue": Queue.CONTROL.value},
    "callback.*": {"queue": Queue.IO.value},
}
task_serializer = "json"
result_serializer = "json"
accept_content = ["json"]
task_ignore_result = True  # ZooKeeper is the result
task_acks_late = False  # the sweep redelivers from ZooKeeper; Redis never does
task_reject_on_worker_lost = False
task_inherit_parent_priority = True

worker_disable_prefetch = True  # a worker reserves no message ahead of its work
worker_prefetch_multiplier = 1
worker_cancel_long_running_tasks_on_connection_loss = False
worker_max_tasks_per_child = 5000  # a task may be a whole job; a new process costs a second of CPU
worker_max_memory_per_child = 250_000  # kB; a process that has needed more ends after its task
worker_send_task_events = False  # Flower enables them while it runs
worker_hijack_root_logger = False
worker_redirect_stdouts = False
task_send_sent_event = False

beat_max_loop_interval = 1  # seconds
CLOCK_DIFFERENCE = 60.0
"""Seconds by which the clock of a sender may be behind that of a worker, which compares the end of a message
with its own clock; without them, a fleet whose beat is some seconds behind would do no scheduled work."""

beat_schedule = {
    name: {"task": f"beat.{name}", "schedule": every, "options": {"expires": every + CLOCK_DIFFERENCE}}
    for name, every in {
        "feed": 5.0,
        "recheck_provisioning": 5.0,
        "sweep": 3.0,
        "check_stores": 10.0,
        "watch_outages": 10.0,
        "notifications": 10.0,
        "clean_up_jobs": 30.0,
        "clean_up_batches": 600.0,
        "fixity": 60.0,
        "proofs": 60.0,
        "checks": 60.0,
        "embargoes": 60.0,
        "index_objects": 60.0,
        "growth": 60.0,
    }.items()
}
