"""All that is examined before production, and when something is wrong at night.

Nothing is changed: no store is created, and files that measure a disk are removed. What needs ZooKeeper is
not known while it does not answer.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING

from operations.doctor import broker, fleet, host, inventory, outside, probing, record
from operations.doctor.line import Examination, Line, line, unknown
from operations.doctor.probing import Probe
from operations.site import Site
from pipeline import plugins, records
from pipeline.errors import Action, ArklineError, Remedy
from pipeline.storage.ocfl.writer import Root
from zkstate.care import deployment
from zkstate.connection.session import connect

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from pipeline.principal import Principal
    from pipeline.settings import Settings

CONNECT_SECONDS, ANSWER_SECONDS = 3.0, 10.0

MOUNT = f"mount it on this host; the user of the fleet has to own it {host.STORAGE}"
SERVERS = "see that it answers and accepts the login (install.md#servers)"
AWAY = "repeat this once the record can be used (runbook.md#zookeeper-was-unreachable)"


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
        empty = ArklineError(f"{place} has no deployment id: no worker has started yet")
        has_id = deployment.read(session) is not None
        yield Site(settings, session) if has_id else empty.with_remedies(Remedy(Action.INITIALIZE))


def examine(settings: Settings, principal: Principal, site: Site | ArklineError) -> Examination:
    """Takes at most `probing.LIMIT` seconds."""
    probes = (*_of_host(settings), *_of_servers(settings), *_of_record(principal, site))
    return Examination(host=socket.gethostname(), at=records.now(), lines=probing.examine(probes))


def _of_host(settings: Settings) -> Iterator[Probe]:
    yield Probe("host", "versions", host.versions, f"install the wheel {host.INSTALL}")
    yield Probe("host", "settings", partial(host.settings_and_secrets, settings), "see settings.md")
    yield Probe("host", "limits", host.limits, f"see by hand {host.LIMITS}")
    folders = {"working storage": settings.working, "uploads": settings.uploads_folder}
    if not plugins.choosing(plugins.STORAGE):
        folders["storage root"] = settings.storage
    for area, path in folders.items():
        if not path.is_dir():
            absent = unknown("folder", f"{path} is not there: not mounted, or not used yet", MOUNT)
            yield Probe(area, "folder", partial(tuple, [absent]), MOUNT)
            continue
        use = Root(path).staging if area == "storage root" else path
        yield Probe(area, "folder", partial(host.folder, path, use, MOUNT), MOUNT)
        working = area == "working storage"
        yield Probe(area, "space", partial(host.space, settings, path, working=working), MOUNT)


def _of_servers(settings: Settings) -> Iterator[Probe]:
    yield Probe("zookeeper", "servers", partial(record.servers, settings), SERVERS)
    yield Probe("redis", "server", partial(broker.server, settings), SERVERS)
    yield Probe("inventory", "database", partial(inventory.database, settings), SERVERS)
    yield Probe("clocks", "hosts", partial(broker.workers, settings), "see production.md#clocks")
    yield Probe("mail", "server", partial(outside.mail, settings), f"see by hand {outside.MAIL}")
    yield Probe("collections", "profiles", partial(outside.collections, settings), "see profiles.md")


def _of_record(principal: Principal, site: Site | ArklineError) -> Iterator[Probe]:
    parts: dict[tuple[str, str], Callable[[Site], Iterable[Line]]] = {
        ("zookeeper", "session"): record.session,
        ("working storage", "mount"): fleet.mounted,
        ("stores", "id"): fleet.deployment,
        ("fleet", "processes"): fleet.processes,
        ("fleet", "problems"): partial(fleet.troubles, principal=principal),
        ("care", "backup"): fleet.care,
    }
    for (area, name), part in parts.items():
        if isinstance(site, Site):
            yield Probe(area, name, partial(part, site), AWAY)
        elif area == "zookeeper":
            away = line(name, str(site), *(site.remedies or (AWAY,)), wrong=True)
            yield Probe(area, name, partial(tuple, [away]), AWAY)
        else:
            yield Probe(area, name, partial(tuple, [unknown(name, "the record cannot be used", AWAY)]), AWAY)
