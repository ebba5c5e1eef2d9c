"""Renders what a check found in record, storage and inventory, and what to do about it."""

from entrypoints.render import screen
from operations.checks.check import CheckView
from operations.checks.differences import BROKEN, REPAIRABLE, Difference, NotCompared, StoreProblem
from pipeline.humanize import counted
from pipeline.names import printable

SHOWN = 20
"""Maximum differences of one kind shown on a screen; --json has up to a thousand of all kinds."""

_TITLES = {
    StoreProblem.INCONSISTENT: "of the record, looked at twice, so no move in progress",
    StoreProblem.NOT_ENTERED: "in storage and not in the inventory",
    StoreProblem.NOT_RESERVED: "of a job in flight, without its reservation in the inventory",
    StoreProblem.NO_JOB: "in storage, stored by no job of arkline",
    StoreProblem.DELETED_JOB: "in storage, from a job that was deleted after it failed",
    StoreProblem.UNDESCRIBED: "in storage, and the inventory cannot take it over",
    StoreProblem.OTHER_OBJECT: "in the inventory under another object, or from another job",
    StoreProblem.DIFFERENT: "different in storage and in the inventory",
    StoreProblem.NOT_STORED: "in the inventory and not in storage",
    StoreProblem.UNREADABLE: "in storage and not readable",
    StoreProblem.DAMAGED: "in storage with damaged bytes",
    StoreProblem.LOST: "of a completed job, neither in storage nor in the inventory",
    StoreProblem.NUMBERS: "a counter behind the numbers that were given",
    StoreProblem.RESERVED: "a sum of reserved working storage that is not that of the jobs",
    StoreProblem.OUTDATED: "record and inventory are not of the same time: the fleet waits",
}

_NOT_COMPARED = {
    NotCompared.UNKNOWN_VERSIONS: "versions that neither the inventory nor a job knows, because the storage "
    "service cannot list its objects. For each known version the storage service was asked.",
    NotCompared.INVENTORY_SERVICE: "the inventory service, because it cannot list its entries. Our own "
    "inventory was compared; a repair enters a version in both.",
}

_REMEDIES = {
    StoreProblem.INCONSISTENT: "the runbook says what each means; save `arkline check --json` first",
    StoreProblem.OTHER_OBJECT: "restore the store that is wrong from its copy, then check again",
    StoreProblem.DAMAGED: "restore the objects from a copy of the storage root, then check again",
    StoreProblem.NO_JOB: "ask who else writes to the storage root; the version stays as it is",
    StoreProblem.DELETED_JOB: "submit the object again if the repository is to have it; the version stays",
    StoreProblem.UNDESCRIBED: "correct what the message names, then check again",
    StoreProblem.DIFFERENT: "compare the two jobs with `arkline timeline JID` and `arkline object ARK`, then "
    "restore the store that is wrong from its copy",
    StoreProblem.NOT_STORED: "restore the objects from a copy of the storage root, then check again",
    StoreProblem.UNREADABLE: "restore the objects from a copy of the storage root, then check again",
    StoreProblem.LOST: "restore the objects from a copy of the storage root, or submit them again",
}


def show(view: CheckView) -> None:
    for gap in StoreProblem:
        if view.counts.get(gap):
            _kind(view, gap)
    for part in view.not_compared:
        screen.note(f"Not compared: {_NOT_COMPARED[part]}")
    _sum(view)


def _kind(view: CheckView, gap: StoreProblem) -> None:
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
    if difference.gap is StoreProblem.NUMBERS:
        return f"{difference.counter}: the record is at {value}, but {difference.known} was given"
    if difference.gap is StoreProblem.RESERVED:
        return f"the record has {value}, and the jobs have reserved {difference.known} bytes"
    if difference.gap is StoreProblem.INCONSISTENT:
        return f"{difference.path}: {difference.reason}"
    if difference.gap is StoreProblem.OUTDATED:
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


def _sum(view: CheckView) -> None:
    compared = f"{view.compared:,} versions and jobs compared"
    if view.unreachable:
        screen.note(f"storage and inventory were not compared to the end: {view.unreachable}", "yellow")
    elif not view.complete:
        screen.say(f"Interrupted: {compared}. The same command continues.", "yellow")
    elif not view.counts:
        agree = "agree as far as they were compared" if view.not_compared else "agree"
        screen.say(f"Record, storage and inventory {agree}: {compared}.", "green")
    elif not view.left:
        screen.say(f"Repaired: {compared}, {counted(sum(view.counts.values()), 'difference')}.", "green")
    else:
        screen.say(f"{compared}, {counted(view.left, 'difference')} left.", "yellow")
    if not view.repair and any(gap in REPAIRABLE for gap in view.counts):
        screen.note("Nothing was changed. `arkline check --repair` repairs what it can.", "")
