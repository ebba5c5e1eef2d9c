"""A handler for kazoo that waits for sockets with poll(2).

kazoo 2.11 creates, fills and closes a selector for every wait: with epoll four system calls instead of one,
and five waits for one request. poll has no limit of file descriptors either.
"""

import select
from collections.abc import Sequence
from typing import Any

from kazoo.handlers.threading import SequentialThreadingHandler
from kazoo.handlers.utils import fileobj_to_fd

_READABLE = select.POLLIN | select.POLLPRI | select.POLLHUP | select.POLLERR
"""A closed or broken connection counts as readable, as with epoll: the read then reports the reason."""

_WRITABLE = select.POLLOUT | select.POLLHUP | select.POLLERR


class PollHandler(SequentialThreadingHandler):  # type: ignore[misc]  # kazoo has no types
    def select(
        self,
        reading: Sequence[Any],
        writing: Sequence[Any],
        _exceptional: object,
        timeout: float | None = None,
    ) -> tuple[list[Any], list[Any], list[Any]]:
        """The ready ones, as by `select.select`; `timeout` in seconds, None for no limit.

        ValueError for a file that is closed and for a negative timeout.
        """
        if timeout is not None and timeout < 0:
            raise ValueError("timeout must be non-negative")
        events_of: dict[int, int] = {}
        for file in reading:
            events_of[fileobj_to_fd(file)] = select.POLLIN | select.POLLPRI
        for file in writing:
            descriptor = fileobj_to_fd(file)
            events_of[descriptor] = events_of.get(descriptor, 0) | select.POLLOUT
        poll = select.poll()
        for descriptor, events in events_of.items():
            poll.register(descriptor, events)
        ready = dict(poll.poll(None if timeout is None else timeout * 1000))
        if closed := [descriptor for descriptor, events in ready.items() if events & select.POLLNVAL]:
            raise ValueError(f"file descriptor {closed[0]} is closed")
        return (
            [file for file in reading if ready.get(fileobj_to_fd(file), 0) & _READABLE],
            [file for file in writing if ready.get(fileobj_to_fd(file), 0) & _WRITABLE],
            [],
        )
