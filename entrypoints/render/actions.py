"""Shows what operators did to collections, batches and the fleet."""

from datetime import datetime

from entrypoints.render import screen
from entrypoints.render.screen import Column
from operations.verbs.holds import ActionHistory, BatchHistory, HoldResult
from pipeline.humanize import by_whom


def held(result: HoldResult) -> None:
    """A hold or a pause, or the end of one."""
    collection = result.collection
    subject = f"collection {collection}" if collection else "the queue"
    condition = "on hold" if collection else "paused"
    if result.hold is not None and result.changed:
        who = ": ".join(part for part in (f"by {result.hold.by}", result.hold.reason) if part)
        screen.say(f"{subject} is now {condition} ({who}).")
    elif result.hold is not None:
        hold = result.hold
        screen.note(f"{subject} is already {condition}{by_whom(hold.by, hold.reason, hold.at)}")
    elif result.changed:
        screen.say(f"{subject} is no longer {condition}.")
    else:
        screen.note(f"{subject} was not {condition}")


def batch_history(history: BatchHistory) -> None:
    moves = [
        (entry.at, entry.named(first=number == 0), entry.state, entry.by, entry.via or "", entry.message)
        for number, entry in enumerate(history.moves)
    ]
    renewals = [
        (renewal.since, "renew-profile", "", renewal.by, renewal.via or "", renewal.reason)
        for renewal in history.renewals
    ]
    screen.table(
        sorted(moves + renewals, key=lambda row: row[0]),
        Column("at (UTC)", lambda row: _moment(row[0])),
        Column("action", lambda row: row[1]),
        Column("state", lambda row: row[2]),
        Column("by", lambda row: row[3]),
        Column("via", lambda row: row[4], wide=True),
        Column("message", lambda row: row[5], long=True),
    )


def _moment(at: datetime) -> str:
    return f"{at:%Y-%m-%d %H:%M:%S}"


def history(actions: ActionHistory) -> None:
    subject = f"collection {actions.collection}" if actions.collection else "the queue"
    if not actions.entries:
        screen.note(f"no action is recorded for {subject}")
        return
    screen.table(
        actions.entries,
        Column("at (UTC)", lambda entry: _moment(entry.at)),
        Column("action", lambda entry: f"{entry.action} {entry.target}".rstrip()),
        Column("by", lambda entry: entry.by),
        Column("via", lambda entry: entry.via or "", wide=True),
        Column("reason", lambda entry: entry.reason, long=True),
    )
