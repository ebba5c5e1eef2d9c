"""The identity of a job's content: the ARK that was given, the ARK of a local id, or a new ARK.

Two jobs with the same new local id become two versions of one object: a job locks its local ids, looks them
up, and unlocks them once the inventory has them reserved for its ARK.

The record's counter is not the only memory of what was minted, because the record may be restored from a
backup: names that inventory or storage knows are skipped, and a job that one of them knows keeps its ARK.
"""

from collections.abc import Collection, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial

from pipeline.identifiers import ownership
from pipeline.identifiers.minter import Known, none_known
from pipeline.inventory.ownership import Placement
from pipeline.names import NotAnArk, spellings
from pipeline.outcome import content
from pipeline.profiles.profile import Profile
from pipeline.records import Identifiers, Job, SubmissionMode
from pipeline.steps.context import StepContext


class _NameTaken(Exception):
    """The minted ARK belongs to another job or object."""


@dataclass(frozen=True)
class Identity:
    ark: str
    identifiers: Identifiers
    new: bool
    """True if the ARK was minted for this job and no local id can name the object yet."""


def identify(job: Job, profile: Profile, context: StepContext, local_id: tuple[str, ...]) -> Identity:
    """The job's ARK, written to the job's identifiers with all local ids, and reserved in the inventory.

    An attempt that ended early does not matter: the next one comes to the same ARK, because a minted ARK is
    written in the transaction that takes its number. If another job has reserved the local ids for its own
    ARK meanwhile, this job uses that ARK; its own number stays unused.
    """
    with ExitStack() as locks:
        # In sorted order, so that two jobs with several ids cannot deadlock.
        for name in sorted(local_id):
            locks.enter_context(context.job_record.exclusive("localid", f"{name}_{profile.owner}"))
        known = context.job_record.identifiers(job)
        named = context.inventory.arks_of(profile.owner, local_id)
        if known.primary_id is not None and not known.assigned:
            ark, assigned = _given_ark(known.primary_id, named, context), False
        elif named:
            ark, assigned = _known_ark(named), True
        else:
            return _mint_ark(job, profile, context, known, local_id)
        placement = context.inventory.placement_of(ark)
        _check_ownership(ark, profile, placement, given=not assigned)
        check_consent(job, ark, context, recorded=placement is not None)
        changes = {"primary_id": ark, "local_id": local_id, "assigned": assigned}
        identifiers = known.model_copy(update=changes)
        _write(job, context, known, identifiers)
        _reserve(profile, context, local_id, ark)
        return Identity(ark, identifiers, new=False)


def recall(job: Job, context: StepContext) -> bool:
    """Whether the inventory has an ARK for this job; a record that lost the ARK gets it with its local ids.

    StepFailed(system) if the inventory knows another job of this number.
    """
    ark = context.inventory.ark_of(job)
    known = context.job_record.identifiers(job)
    if ark is not None and known.primary_id is None:
        local_id = tuple(dict.fromkeys((*known.local_id, *context.inventory.local_ids_of(ark))))
        changes = {"primary_id": ark, "assigned": True, "local_id": local_id}
        _write(job, context, known, known.model_copy(update=changes))
    return ark is not None


def _reserve(profile: Profile, context: StepContext, local_id: tuple[str, ...], ark: str) -> None:
    context.attempt.check()
    context.inventory.reserve_local_ids(profile.owner, ark, local_id)


def check_consent(job: Job, ark: str, context: StepContext, *, recorded: bool = False) -> None:
    """StepFailed(content) if the job would add a version to an object, and may not.

    A version that this job stored itself is none. Asked before the job's local ids are reserved for the
    object, and again under the lock of its storage: another job may have made the object meanwhile.
    """
    profile, storage = context.profile, context.storage
    if ownership.may_add_version(job.configuration, profile):
        return
    node = profile.storage_node
    if not recorded and not storage.has_object(ark, node):
        return
    if storage.version_of(ark, job.jid, node, job.configuration.key) is not None:
        return
    _check_ownership(ark, profile, context.inventory.placement_of(ark), given=False)
    titles = context.inventory.titles_of(profile.owner, profile.collections, (ark,))
    raise content(ownership.version_problem(ark, titles.get(ark), profile))


def _check_ownership(ark: str, profile: Profile, placement: Placement | None, *, given: bool) -> None:
    if problem := ownership.problem(ark, profile, placement, given=given):
        raise content(problem)


def _given_ark(given: str, named: dict[str, str], context: StepContext) -> str:
    """The ARK that the depositor gave, unless a local id contradicts it."""
    try:
        ark, *older = spellings(given)
    except NotAnArk as error:
        raise content(f"the primary identifier {error}") from error
    ark = next((name for name in older if context.inventory.placement_of(name)), ark)
    for name, other in sorted(named.items()):
        if other != ark:
            raise content(
                f"the local id '{name}' belongs to {other}, but the submitted primary identifier "
                f"is {ark}: submit again with one of the two"
            )
    return ark


def _known_ark(named: dict[str, str]) -> str:
    """The ARK that the local ids name."""
    if len(set(named.values())) > 1:
        pairs = ", ".join(f"'{name}' belongs to {ark}" for name, ark in sorted(named.items()))
        raise content(f"the local ids belong to several objects ({pairs}): submit every object separately")
    return next(iter(named.values()))


def _mint_ark(
    job: Job, profile: Profile, context: StepContext, known: Identifiers, local_id: tuple[str, ...]
) -> Identity:
    """A new ARK. The inventory reserves the local ids for it before it is registered anywhere: after a crash,
    the next job with these local ids uses this ARK.
    """
    if job.configuration.submission_mode is SubmissionMode.RESET:
        raise content(
            "the object to reset is not identified: give its ARK or one of its local ids, or submit it with "
            "mode add"
        )
    # Written with the ARK, in one transaction, so that the ARK is never mistaken for a depositor's.
    assigned = known.model_copy(update={"local_id": local_id, "assigned": True})
    if known.primary_id is not None:
        _write(job, context, known, assigned)
    claim = partial(_claim, job, profile, context, local_id)
    names: Known = none_known  # the claim asks too; only a counter that is behind needs a search
    while True:
        context.attempt.check()
        try:
            ark = context.minter.mint(job, profile, context.job_record, claim, names, assigned)
        except _NameTaken:
            names = partial(_known_arks, context)
            taken = context.job_record.identifiers(job)
            _write(job, context, taken, taken.model_copy(update={"primary_id": None}))
        else:
            return Identity(ark, context.job_record.identifiers(job), new=not local_id)


def _known_arks(context: StepContext, arks: Sequence[str]) -> Collection[str]:
    return context.inventory.known_arks(arks)


def _claim(job: Job, profile: Profile, context: StepContext, local_id: tuple[str, ...], ark: str) -> None:
    """Storage first: the local ids of a claimed ARK are reserved for ever."""
    storage, node = context.storage, profile.storage_node
    stored = storage.has_object(ark, node)
    if stored and storage.version_of(ark, job.jid, node, job.configuration.key) is None:
        raise _NameTaken
    context.attempt.check()
    if not context.inventory.claim_ark(job, profile.owner, ark, local_id, unused=not stored):
        raise _NameTaken


def _write(job: Job, context: StepContext, known: Identifiers, identifiers: Identifiers) -> None:
    if known != identifiers:
        context.attempt.check()
        context.job_record.write_identifiers(job, identifiers)
