"""Replace a batch's profile snapshot by the collection's profile as the file has it now."""

from typing import Any

from operations.allowed_verbs import check_seen
from operations.operator import Operator, retry_stale
from operations.visibility import recorded_batch
from pipeline.profiles.snapshot import profile_changes, take_snapshot
from pipeline.records import Batch, Record
from pipeline.states import BATCH, BatchState, IllegalTransition
from zkstate import batch_profile


class ProfileRenewal(Record):
    """The changes for a batch; `changes`: field -> value before and value now."""

    bid: str
    profile: str
    changes: dict[str, tuple[Any, Any]]
    dry_run: bool = False


def renew(
    operator: Operator, bid: str, *, version: int | None = None, dry_run: bool = False
) -> ProfileRenewal:
    """Let the batch's remaining jobs use the profile as its file is now."""
    return retry_stale(bid, lambda: _renew(operator, bid, version, dry_run))


def _renew(operator: Operator, bid: str, version: int | None, dry_run: bool) -> ProfileRenewal:
    batch = recorded_batch(operator.site, operator.principal, bid)
    profile_name = batch.profile_name
    operator.require(f"renew the profile of {bid}", profile_name)
    check_seen(batch, version)
    _check(batch)
    profile = operator.site.profiles.get(profile_name)
    changed = profile_changes(batch_profile.snapshot(operator.session, bid), profile)
    if changed and not dry_run:
        principal = operator.principal
        snapshot = take_snapshot(
            profile, operator.by, operator.reason, principal.interface, principal.request_id
        )
        batch_profile.renew(operator.session, batch, snapshot)
    return ProfileRenewal(bid=bid, profile=profile.name, changes=changed, dry_run=dry_run)


def _check(batch: Batch) -> None:
    state = batch.status.status
    if not BATCH.facts[state].split:
        raise IllegalTransition(
            f"{batch.bid} has not started: it will use the profile as the file is when it starts"
        )
    if state in (BatchState.COMPLETED, BatchState.DELETED):
        raise IllegalTransition(f"{batch.bid} is {state}: it has no job left that would use a profile")
