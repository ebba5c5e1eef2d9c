"""The deployment: its stores and profiles, the processes, what stops jobs, the last backup and check."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from operations.doctor.line import Line, Todo, line, unknown
from operations.fleet import health
from operations.reasons import Reason
from pipeline import humanize, plugins, records
from pipeline.errors import Action, ArklineError, Remedy
from pipeline.identifiers.ezid import EzidMinter
from pipeline.outcome import REMEDIES, ServiceDown
from pipeline.profiles.profile import Profile, Profiles
from pipeline.uploads import stored
from pipeline.working_storage import mount
from tasks import stores
from zkstate.fleet import notes, scheduled
from zkstate.record import space

if TYPE_CHECKING:
    from pathlib import Path

    from operations.site import Site
    from pipeline.principal import Principal
    from pipeline.settings import Settings

NIGHTLY = 36 * 3600.0
"""Seconds: the greatest age of what is made every night."""

EZID_SECONDS = 5.0

TEST_NAAN = "99999"
"""Reserved for tests: its ARKs are nobody's, and resolve nowhere."""

OWN_LINES = {Reason.NO_WORKER, Reason.NO_BEAT, Reason.RECORD_LIMIT, Reason.RECORD_FULL}
"""Problems of the status that other lines show."""

STEPS = {
    Reason.BETWEEN_TRIES: "remove the cause that the message names: each job tries again by itself, and "
    "fails after its last try (ARKLINE_MAX_TRIES)",
}
"""What to do about problems that no command solves."""

WITHOUT_MESSAGES = {Reason.BROKER_UNREACHABLE, Reason.BROKER_REFUSES, Reason.BROKER_FOREIGN}
"""Problems of Redis: no worker gets a message or can be asked."""

EZID = "(services.md#ezid)"


def deployment(site: Site, _: Principal) -> Iterator[Line]:
    """The ids of record, storage root and inventory; none is created. The status compares them further."""
    markers = {}
    for store in stores.stores_of(site.session, site.settings).every:
        try:
            markers[str(store.service)] = store.read_deployment()
        except ServiceDown as down:
            yield line(str(store.service), str(down), f"{REMEDIES[down.service]} (runbook.md)", wrong=True)
    fact = ", ".join(f"{name} {marker.id if marker else 'has none'}" for name, marker in markers.items())
    step = "mount what is absent (runbook.md#a-store-is-absent-foreign-or-older)"
    yield line("id", fact, step, wrong=len({marker and marker.id for marker in markers.values()}) > 1)


def mounted(site: Site, _: Principal) -> Iterator[Line]:
    """Whether working storage is mounted, as far as the record knows that it was."""
    folder, was_marked = site.settings.working, space.WorkingStorage(site.session).was_marked()
    yield _mount(folder, "job", was_marked=was_marked, is_marked=mount.is_marked(folder))


def uploads_mounted(site: Site, _: Principal) -> Iterator[Line]:
    """Whether the folder of uploads is mounted, as far as the record knows that it was."""
    folder = site.settings.uploads_folder
    was_marked = space.was_marked(site.session)
    yield _mount(folder, "upload", was_marked=was_marked, is_marked=stored.is_marked(folder))


def _mount(folder: Path, user: str, *, was_marked: bool, is_marked: bool) -> Line:
    fact = f"{folder} has {'its' if is_marked else 'no'} mark"
    step = "mount it (runbook.md#working-storage-is-not-mounted-or-is-lost)"
    unused = f"no {user} has used {folder} yet"
    return line("mount", fact if was_marked else unused, step, wrong=was_marked and not is_marked)


def fleet(site: Site, principal: Principal) -> Iterator[Line]:
    """Beats, and what the status shows: the processes of each queue, and the problems."""
    beats, view = scheduled.contenders(site.session), health.overview(site, principal).health
    yield line("beats", str(beats), Remedy(Action.START_BEAT), warn=beats < 2, wrong=not beats)
    answers = WITHOUT_MESSAGES.isdisjoint(problem.reason for problem in view.problems)
    for queue in view.queues if answers else ():
        processes = humanize.counted(queue.processes, "process", "processes")
        fact = f"{processes} of {humanize.counted(queue.workers, 'worker')}"
        undo = [one for one in view.remedies if one.action is Action.UNDO_DRAIN]
        start = Remedy(Action.START_WORKER, queue.queue)
        yield line(f"queue {queue.queue}", fact, *undo, start, wrong=not queue.workers)
    for problem in view.problems:
        if problem.reason not in OWN_LINES:
            text = problem.reason.of_fleet.format(problem.waits_for, message=problem.message)
            yield line(problem.reason, text, *todo(problem), warn=True, wrong=problem.stops_all)


def todo(problem: health.HealthProblem) -> tuple[Todo, ...]:
    """What to do about a problem of the status: its remedies, or the step for its service or reason."""
    step = REMEDIES.get(problem.waits_for.partition(":")[0]) or STEPS.get(problem.reason)
    return problem.remedies or ((f"{step} (runbook.md)",) if step else ())


def care(site: Site, _: Principal) -> Iterator[Line]:
    """The last backup, and the last comparison of record and stores."""
    last, again = notes.BACKUP.readable(site.session), Remedy(Action.BACK_UP, "FOLDER")
    if last is None:
        yield unknown("backup", "the record has no note of a complete backup", again)
    else:
        fact = f"{humanize.ago(last.at)}, {last.folder} on {last.host}"
        yield line("backup", fact, again, warn=records.age(last.at) > NIGHTLY)
        fact = f"is {'' if last.inventory else 'not '}in {last.folder}"
        step = "install pg_dump where backups are made (maintenance.md#backup-and-restore)"
        yield line("inventory in the backup", fact, step, warn=not last.inventory)
    audit = notes.AUDIT.readable(site.session)
    step = "compare record and stores every night (maintenance.md#check-record-storage-and-inventory)"
    if audit is None:
        yield unknown("check", "the record has no note of a complete check", step)
    else:
        fact = f"{humanize.ago(audit.at)}, {humanize.counted(audit.findings, 'problem')} left"
        yield line("check", fact, step, warn=bool(audit.findings) or records.age(audit.at) > NIGHTLY)


def collections(settings: Settings) -> Iterator[Line]:
    folder, read, wrong = Profiles(settings.profiles), list[Profile](), list[str]()
    for name in folder.names():
        try:
            read.append(folder.get(name))
        except ArklineError as error:
            wrong.append(str(error))
    fact = "; ".join(wrong) or f"{len(read)} in {settings.profiles}"
    yield line("profiles", fact, "correct them (profiles.md)", wrong=bool(wrong) or not read)
    tests = ", ".join(profile.name for profile in read if profile.naan == TEST_NAAN)
    fact = f"of tests in {tests}: not permanent" if tests else "of your own in every profile"
    yield line("naan", fact, "give the profiles a NAAN of your own (profiles.md)", warn=bool(tests))
    if plugin := plugins.choosing(plugins.MINTER):
        yield unknown("minter", f"the plugin of {plugin} has no test", f"make a test deposit {EZID}")
        return
    timeout = min(EZID_SECONDS, settings.connect_timeout)
    minter = EzidMinter(settings.model_copy(update={"connect_timeout": timeout}))
    for profile in filter(minter.uses_service, read):
        problem, step = "", f"correct ARKLINE_EZID_URL and the login {EZID}"
        try:
            minter.check(profile)
        except ArklineError as error:
            problem = str(error)
        fact = problem or "EZID answers; whether it accepts a name, a deposit shows"
        yield line(f"minter of {profile.name}", fact, step, wrong=bool(problem))
