"""Shows the differences between record, storage and inventory, and what to do."""

from entrypoints.cli import console as screen
from entrypoints.cli.render.humanize import counted
from operations.reconcile import ReconcileView
from operations.reconciliation import BROKEN, REPAIRABLE, Difference, Gap, NotCompared
from pipeline.names import printable

SHOWN = 20
"""Differences of one kind that are shown on a screen; --json has up to a thousand of all kinds."""

_TITLES = {
    Gap.NOT_ENTERED: "in storage and not in the inventory",
    Gap.NOT_RESERVED: "of a job in flight, without its reservation in the inventory",
    Gap.NO_JOB: "in storage, stored by no job of arkline",
    Gap.DELETED_JOB: "in storage, from a job that was deleted after it failed",
    Gap.UNDESCRIBED: "in storage, and the inventory cannot take it over",
    Gap.DIFFERENT: "different in storage and in the inventory",
    Gap.NOT_STORED: "in the inventory and not in storage",
    Gap.UNREADABLE: "in storage and not readable",
    Gap.LOST: "of a completed job, neither in storage nor in the inventory",
    Gap.NUMBERS: "a counter behind the numbers that were given",
    Gap.RESERVED: "a sum of reserved working storage that is not that of the jobs",
    Gap.OUTDATED: "record and inventory are not of the same time: the fleet waits",
}

_NOT_COMPARED = {
    NotCompared.UNKNOWN_VERSIONS: "versions that neither the inventory nor a job knows, because the storage "
    "service cannot list its objects. For each known version the storage service was asked.",
    NotCompared.INVENTORY_SERVICE: "the inventory service, because it cannot list its entries. Our own "
    "inventory was compared; a repair enters a version in both.",
}

_REMEDIES = {
    Gap.NO_JOB: "ask who else writes to the storage root; the version stays as it is",
    Gap.DELETED_JOB: "submit the object again if it is to be in the repository; the version stays as it is",
    Gap.UNDESCRIBED: "correct what the message names, then reconcile again",
    Gap.DIFFERENT: "compare the two jobs with `arkline timeline JID` and `arkline object ARK`, then restore "
    "the store that is wrong from its copy",
    Gap.NOT_STORED: "restore the objects from a copy of the storage root, then reconcile again",
    Gap.UNREADABLE: "restore the objects from a copy of the storage root, then reconcile again",
    Gap.LOST: "restore the objects from a copy of the storage root, or submit them again",
}


def show(view: ReconcileView) -> None:
    for gap in Gap:
        if view.counts.get(gap):
            _kind(view, gap)
    for part in view.not_compared:
        screen.note(f"Not compared: {_NOT_COMPARED[part]}")
    _sum(view)


def _kind(view: ReconcileView, gap: Gap) -> None:
    number, repaired = view.counts[gap], view.repaired.get(gap, 0)
    done = f", {repaired:,} repaired" if repaired else ""
    screen.say(f"{number:,} {_TITLES[gap]}{done}:", "red" if gap in BROKEN else "bold")
    shown = [difference for difference in view.differences if difference.gap is gap][:SHOWN]
    for difference in shown:
        screen.say(printable(f"  {_line(difference)}"))
    if number > len(shown):
        screen.say(f"  and {number - len(shown):,} more")
    remedy = _REMEDIES.get(gap)
    if remedy and repaired < number:
        screen.say(f"  To do: {remedy}.")


def _line(difference: Difference) -> str:
    value = "a damaged value" if difference.value is None else difference.value
    if difference.gap is Gap.NUMBERS:
        return f"{difference.counter}: the record is at {value}, but {difference.known} was given"
    if difference.gap is Gap.RESERVED:
        return f"the record has {value}, and the jobs have reserved {difference.known} bytes"
    if difference.gap is Gap.OUTDATED:
        return f"the mark of the record is {difference.value}, that of the inventory {difference.known}"
    parts = (
        difference.ark or "no ARK",
        f"version {difference.version}" if difference.version else "",
        difference.jid,
    )
    line = " ".join(part for part in parts if part)
    if difference.job_failed and not difference.reason:
        return f"{line}: the job failed; `arkline resume {difference.jid}` completes it"
    return f"{line}: {difference.reason}" if difference.reason else line


def _sum(view: ReconcileView) -> None:
    compared = f"{view.compared:,} versions and jobs compared"
    if not view.complete:
        screen.say(f"Interrupted: {compared}. The same command continues.", "yellow")
    elif not view.counts:
        agree = "agree as far as they were compared" if view.not_compared else "agree"
        screen.say(f"Record, storage and inventory {agree}: {compared}.", "green")
    elif not view.left:
        screen.say(f"Repaired: {compared}, {counted(sum(view.counts.values()), 'difference')}.", "green")
    else:
        screen.say(f"{compared}, {counted(view.left, 'difference')} left.", "yellow")
    if not view.repair and any(gap in REPAIRABLE for gap in view.counts):
        screen.note("Nothing was changed. `arkline reconcile --repair` repairs what it can.", "")
