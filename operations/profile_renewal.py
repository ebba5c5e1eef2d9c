"""A batch's own profile, taken anew from the collection's file: for jobs that failed by what it said."""

from typing import Any

from operations.operator import TRIES, Operator
from pipeline.profiles.profile import Profiles
from pipeline.profiles.snapshot import profile_changes, take_snapshot
from pipeline.records import Batch, Record
from pipeline.states import BATCH, BatchState, IllegalTransition
from zkstate import batches
from zkstate.errors import Busy, Stale


class Renewed(Record):
    """What a batch goes on with; `changes`: field -> what was kept before and what is kept now."""

    bid: str
    profile: str
    changes: dict[str, tuple[Any, Any]]
    dry_run: bool = False


def renew(operator: Operator, bid: str, *, dry_run: bool = False) -> Renewed:
    """Have the batch's jobs go on by the profile's file as it stands now."""
    for _ in range(TRIES):
        batch = batches.load(operator.session, bid)
        _check(batch)
        current = Profiles(operator.settings.profiles).get(batch.submission.profile_name)
        found = profile_changes(batches.profile_snapshot(operator.session, bid), current)
        if found and not dry_run:
            try:
                kept = take_snapshot(current, by=operator.by, reason=operator.reason)
                batches.renew_profile(operator.session, batch, kept)
            except Stale:
                continue
        return Renewed(bid=bid, profile=current.name, changes=found, dry_run=dry_run)
    raise Busy(f"{bid} moves faster than it can be changed: try again")


def _check(batch: Batch) -> None:
    state = batch.status.status
    if state in (BATCH.initial, BatchState.HELD):
        raise IllegalTransition(f"{batch.bid} has not started: it will take the profile as it stands then")
    if state in (BatchState.COMPLETED, BatchState.DELETED):
        raise IllegalTransition(f"{batch.bid} is {state}: there is no job in it that a profile could change")
