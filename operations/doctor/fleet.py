"""The deployment: its stores, the processes of the fleet, what stops jobs, and the last backup and check."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from operations.doctor.line import Line, line, unknown
from operations.fleet import fleet, health
from operations.fleet.record_fault import record_fault
from operations.reasons import Reason
from pipeline import humanize, records
from pipeline.errors import Action, Remedy
from pipeline.machine import Queue
from pipeline.outcome import REMEDIES, ServiceDown
from pipeline.working_storage import mount
from tasks import stores
from zkstate.fleet import notes, scheduled
from zkstate.record import space

if TYPE_CHECKING:
    from operations.site import Site
    from pipeline.principal import Principal

OLD_BACKUP, OLD_CHECK = 36 * 3600.0, 36 * 3600.0
"""Seconds: each is made every night."""


def deployment(site: Site) -> Iterator[Line]:
    """The ids of record, storage root and inventory; none is created."""
    markers = {}
    for store in stores.stores_of(site.session, site.settings).every:
        try:
            markers[str(store.service)] = store.read_deployment()
        except ServiceDown as down:
            yield line(str(store.service), str(down), f"{REMEDIES[down.service]} (runbook.md)", wrong=True)
    fact = ", ".join(f"{name} {marker.id if marker else 'has none'}" for name, marker in markers.items())
    if broken := record_fault(site):
        yield line("id", broken.message, *broken.remedies, wrong=True)
    else:
        step = "mount what is absent (runbook.md#a-store-is-absent-foreign-or-older)"
        yield line("id", fact, step, wrong=len({marker and marker.id for marker in markers.values()}) > 1)


def mounted(site: Site) -> Iterator[Line]:
    """Whether working storage is mounted, as far as the record knows that it was."""
    folder, was_marked = site.settings.working, space.WorkingStorage(site.session).was_marked()
    gone = was_marked and not mount.is_marked(folder)
    fact = f"{folder} has {'no' if gone else 'its'} mark" if was_marked else f"no job has used {folder} yet"
    step = "mount it (runbook.md#working-storage-is-not-mounted-or-is-lost)"
    yield line("mount", fact, step, wrong=gone)


def processes(site: Site) -> Iterator[Line]:
    beats = scheduled.contenders(site.session)
    yield line("beats", str(beats), Remedy(Action.START_BEAT), warn=beats < 2, wrong=not beats)
    current = fleet.Fleet(site)
    if current.fault is not None:
        yield unknown("workers", "Redis gives them no messages", "see the lines of redis (runbook.md)")
        return
    for queue in Queue:
        consumers = current.consumers(queue)
        number, names = sum(one.processes for one in consumers), ", ".join(one.name for one in consumers)
        obstacles = [one for one in current.obstacles(queue) if one.waits_for == queue]
        todo = current.remedies(obstacles) or (Remedy(Action.START_WORKER, queue),)
        fact = f"{humanize.counted(number, 'process', 'processes')} of {names or 'no worker'}"
        yield line(f"queue {queue}", fact, *todo, wrong=not consumers)
    hosts = sorted({one.name.rpartition("@")[2] for one in current.workers})
    one_host = len(hosts) > 1 and site.settings.inventory.startswith("sqlite")
    step = "use PostgreSQL: SQLite serves one host (install.md#servers)"
    yield line("hosts", ", ".join(hosts) or "none", step, wrong=one_host)


def troubles(site: Site, principal: Principal) -> Iterator[Line]:
    """What the status shows as a problem; missing workers and beats have lines of their own."""
    view = health.overview(site, principal).health
    for problem in view.problems:
        if problem.reason in (Reason.NO_WORKER, Reason.NO_BEAT):
            continue
        text = problem.reason.of_fleet.format(problem.waits_for, message=problem.message)
        todo = view.remedies or (f"{REMEDIES.get(problem.waits_for, 'see the status')} (runbook.md)",)
        fact = text or f"{problem.reason}: {problem.waits_for}"
        yield line(problem.reason, fact, *todo, warn=True, wrong=problem.stops_all)


def care(site: Site) -> Iterator[Line]:
    """The last backup, and the last comparison of record and stores."""
    last, again = notes.BACKUP.readable(site.session), Remedy(Action.BACK_UP, "FOLDER")
    if last is None:
        yield unknown("backup", "the record has no note of a complete backup", again)
    else:
        fact = f"{humanize.ago(last.at)}, {last.folder} on {last.host}"
        yield line("backup", fact, again, warn=records.age(last.at) > OLD_BACKUP)
        fact = f"is {'' if last.inventory else 'not '}in {last.folder}"
        step = "install pg_dump where backups are made (maintenance.md#backup-and-restore)"
        yield line("inventory in the backup", fact, step, warn=not last.inventory)
    audit = notes.AUDIT.readable(site.session)
    step = "compare record and stores every night (maintenance.md#check-record-storage-and-inventory)"
    if audit is None:
        yield unknown("check", "the record has no note of a complete check", step)
    else:
        fact = f"{humanize.ago(audit.at)}, {humanize.counted(audit.findings, 'problem')} left"
        yield line("check", fact, step, warn=bool(audit.findings) or records.age(audit.at) > OLD_CHECK)
