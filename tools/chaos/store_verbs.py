"""An operator's acts on the stores: backup, reconcile, export, fixity check. None changes a job."""

from operations.checks.check import check
from operations.checks.deployment import back_up
from operations.checks.differences import BROKEN
from operations.objects import objects
from operations.objects.fixity import check_fixity
from operations.site import Site
from pipeline.fixity import ignore
from pipeline.outcome import DamagedObject
from pipeline.states import Bucket
from pipeline.steps.context import open_clients
from tasks.stores import expected_of
from tools.chaos.acts import Acts, Backup, Exported
from tools.chaos.operator_verbs import PERSON, REASON, Act, one_of
from tools.chaos.problem import Category, Problem
from zkstate import paths
from zkstate.connection.session import Session
from zkstate.record import batches, jobs


def _completed(session: Session) -> list[str]:
    return [
        jid
        for bid in session.children(paths.BATCHES)
        for jid in batches.jobs_in(session, bid, Bucket.COMPLETED)
    ]


def _one_completed(session: Session, target: int) -> list[str]:
    return one_of(_completed(session), target)


def _everything(session: Session, target: int) -> list[str]:
    return ["everything"]


def _back_up(site: Site, names: list[str], acts: Acts) -> str:
    folder = site.settings.home / "backups" / str(len(acts.backups) + 1)
    acts.backups.append(Backup(folder, frozenset(_completed(site.session))))
    manifest = back_up(site, folder).manifest
    return f"{manifest.batches} batches, {manifest.jobs} jobs"


def _reconcile(site: Site, names: list[str], acts: Acts) -> str:
    """Reconcile; jobs in flight make differences, but no version may be reported lost or damaged."""
    view = check(site, PERSON, reason=REASON)
    if view.unreachable:
        return f"{view.compared} compared: {view.unreachable}"
    for difference in view.differences:
        if difference.gap in BROKEN:
            acts.problems.append(Problem(Category.ILLEGAL, difference.jid, f"check: {difference!r}"))
    return f"{view.compared} compared, {view.left} differences"


def _export(site: Site, names: list[str], acts: Acts) -> str:
    (jid,) = names
    ark = jobs.load(site.session, jid).identifiers.primary_id or ""
    clients = open_clients(site.settings, expected_of(site.session))
    known, number = objects.object_to_export(clients.inventory, ark, None)
    folder = site.settings.home / "exports" / f"{len(acts.exports) + 1}"
    folder.parent.mkdir(exist_ok=True)
    acts.exports.append(Exported(folder, ark, number))
    request = objects.ExportRequest(known, number, folder, PERSON.name)
    try:
        bag = objects.export(
            request, site.settings, clients.inventory, clients.storage, ignore, lambda: False
        )
    except DamagedObject as damage:
        acts.problems.append(Problem(Category.ILLEGAL, jid, f"export: {damage}"))
        raise
    return f"{ark} version {number}, {bag.files} files"


def _check_fixity(site: Site, names: list[str], acts: Acts) -> str:
    """Check every stored file; no fault in a run damages one."""
    run = check_fixity(site, PERSON, (), every=True, on_check=lambda _: None)
    for damaged in run.damaged:
        acts.problems.append(Problem(Category.ILLEGAL, "", f"fixity check: {damaged!r}"))
    return f"{len(run.checked)} objects read, {len(run.unreadable)} unreadable"


BACK_UP = Act("backup", _everything, _back_up)
RECONCILE = Act("reconcile", _everything, _reconcile)
EXPORT = Act("export", _one_completed, _export)
CHECK_FIXITY = Act("fixity check", _one_completed, _check_fixity)
