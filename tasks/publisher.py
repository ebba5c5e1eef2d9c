"""The Celery application without its tasks: all that a process needs that only sends messages.

`tasks.app` adds the tasks. Nothing here reads the environment: the caller passes the settings.
"""

from functools import lru_cache

from celery import Celery

import celeryconfig
from pipeline.settings import Settings
from tasks import transport

_SHORT = {"max_retries": 2, "interval_start": 0.1}
"""Without a limit kombu tries forever to reach a Redis that is down, and the operator's command hangs."""


def configured(settings: Settings) -> Celery:
    """A separate application on the broker of `settings`."""
    transport.register()
    app = Celery("arkline", set_as_current=False, control="tasks.control:Control")
    app.config_from_object(celeryconfig)
    options = {**celeryconfig.broker_transport_options, "global_keyprefix": settings.broker_prefix}
    app.conf.update(broker_url=settings.broker_url, broker_transport_options=options)
    return app


@lru_cache(maxsize=8)
def publisher(settings: Settings) -> Celery:
    """The application of a command or a service: publishing gives up within a second.

    A message that is not sent is left to the sweep. One per settings, because an application owns a pool
    of connections.
    """
    app = configured(settings)
    app.conf.broker_transport_options = {**app.conf.broker_transport_options, **_SHORT}
    return app
