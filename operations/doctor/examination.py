"""All that is examined before production, and when something is wrong at night.

Nothing is changed: no store is created, and files that measure a disk are removed. What needs ZooKeeper is
not known while it does not answer. All probes run at the same time and are waited for for a bounded time: a
disk or a server may hang, and a probe that hangs is left behind in its thread, which ends with the process.
"""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from operations.doctor import fleet, host, servers
from operations.doctor.line import Examination, Line, Todo, line, unknown
from operations.site import Site
from pipeline import plugins, records
from pipeline.errors import Action, ArklineError, Remedy
from pipeline.storage.ocfl.writer import Root
from zkstate.care import deployment
from zkstate.connection.session import connect

if TYPE_CHECKING:
    from pipeline.principal import Principal
    from pipeline.settings import Settings

CONNECT_SECONDS, ANSWER_SECONDS = 3.0, 10.0

LIMIT = 20.0
"""Seconds for all probes together."""

T = TypeVar("T")


class Probe(NamedTuple):
    area: str
    name: str
    """Of the line that says why there are no others."""
    examine: Callable[..., Iterable[Line]]
    todo: Todo
    """If the probe has no result."""


SERVERS = "see that it answers and accepts the login (install.md#servers)"
AWAY = "repeat this once the record can be used (runbook.md#zookeeper-was-unreachable)"

OF_SETTINGS = (
    Probe("host", "versions", host.versions, f"install the wheel {host.INSTALL}"),
    Probe("host", "settings", host.settings_and_secrets, "see settings.md"),
    Probe("host", "limits", host.limits, f"see by hand {host.LIMITS}"),
    Probe("zookeeper", "servers", servers.zookeeper, SERVERS),
    Probe("redis", "server", servers.broker, SERVERS),
    Probe("inventory", "database", servers.inventory, SERVERS),
    Probe("certificates", "servers", servers.certificates, servers.RENEW),
    Probe("clocks", "hosts", servers.workers, "see production.md#clocks"),
    Probe("mail", "server", servers.mail, f"see by hand {servers.MAIL}"),
    Probe("collections", "profiles", fleet.collections, "see profiles.md"),
)
OF_RECORD = (
    Probe("zookeeper", "session", servers.session, AWAY),
    Probe("working storage", "mount", fleet.mounted, AWAY),
    Probe("uploads", "mount", fleet.uploads_mounted, AWAY),
    Probe("stores", "id", fleet.deployment, AWAY),
    Probe("fleet", "processes", fleet.fleet, AWAY),
    Probe("care", "backup", fleet.care, AWAY),
)


@contextmanager
def opened(settings: Settings) -> Iterator[Site | ArklineError]:
    """The site, or why ZooKeeper cannot be used; the record is not created."""
    try:
        session = connect(settings, CONNECT_SECONDS, create=False, answer_timeout=ANSWER_SECONDS)
    except ArklineError as error:
        yield error
        return
    with session:
        place = f"the record {session.hosts}{session.root}"
        fault = ArklineError(f"{place} has no deployment id: no worker has started yet")
        fault = fault.with_remedies(Remedy(Action.INITIALIZE))
        try:
            has_id = deployment.read(session) is not None
        except ArklineError as error:  # damaged, closed to this user, or gone since
            has_id, fault = False, error
        yield Site(settings, session) if has_id else fault


def examine(settings: Settings, principal: Principal, site: Site | ArklineError) -> Examination:
    """Takes at most `LIMIT` seconds."""
    deadline = time.monotonic() + LIMIT
    calls = [(one, partial(_examined, one, settings)) for one in (*OF_SETTINGS, *_folders(settings))]
    calls += [(one, partial(_examined, one, site, principal)) for one in OF_RECORD]
    running = [(one, started(call)) for one, call in calls]
    lines = tuple(shown for one, future in running for shown in _lines(one, future, deadline))
    return Examination(host=socket.gethostname(), at=records.now(), lines=lines)


def started(call: Callable[[], T]) -> Future[T]:
    """The result of a call in a thread of its own."""
    future: Future[T] = Future()

    def run() -> None:
        try:
            future.set_result(call())
        except Exception as error:  # noqa: BLE001 - raised where the result is read
            future.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    return future


def _folders(settings: Settings) -> Iterator[Probe]:
    for area, path, use in (
        ("working storage", settings.working, settings.working),
        ("uploads", settings.uploads_folder, settings.uploads_folder),
        ("storage root", settings.storage, Root(settings.storage).staging),
    ):
        if area != "storage root" or not plugins.choosing(plugins.STORAGE):
            yield Probe(area, "folder", partial(host.folder, path=path, use=use), host.MOUNT)


def _examined(probe: Probe, subject: Settings | Site | ArklineError, *others: Principal) -> tuple[Line, ...]:
    if not isinstance(subject, ArklineError):
        return tuple(probe.examine(subject, *others))
    if probe.area == "zookeeper":
        raise subject
    return (unknown(probe.name, "the record cannot be used", AWAY),)


def _lines(probe: Probe, future: Future[tuple[Line, ...]], deadline: float) -> Iterator[Line]:
    lines: tuple[Line, ...]
    try:
        lines = future.result(max(0.0, deadline - time.monotonic()))
    except ArklineError as error:
        lines = (line(probe.name, str(error), *(error.remedies or (probe.todo,)), wrong=True),)
    except Exception as error:  # noqa: BLE001 - one probe must not hide the others; its line names the error
        why = "no answer in time" if isinstance(error, TimeoutError) else f"{type(error).__name__}: {error}"
        lines = (unknown(probe.name, why, probe.todo),)
    for one in lines:
        yield one.model_copy(update={"area": probe.area})
