"""The identity of a job's content: the ARK that was given, the ARK of a local id, or a new ARK.

Two jobs with the same new local id become two versions of one object: a job locks its local ids, looks them
up, and unlocks them once the inventory has them reserved for its ARK.
"""

from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial

from pipeline.identifiers import noid
from pipeline.outcome import content
from pipeline.profiles.profile import Profile
from pipeline.records import Identifiers, Job, SubmissionMode
from pipeline.steps.context import StepContext


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
            identity = _use_given_ark(job, context, known.primary_id, known, local_id, named)
        elif named:
            identity = _use_known_ark(job, context, known, local_id, named)
        else:
            return _mint_ark(job, profile, context, known, local_id)
        _reserve(profile, context, local_id, identity.ark)
        return identity


def _reserve(profile: Profile, context: StepContext, local_id: tuple[str, ...], ark: str) -> None:
    context.attempt.check()
    context.inventory.reserve_local_ids(profile.owner, ark, local_id)


def _use_given_ark(
    job: Job,
    context: StepContext,
    given: str,
    known: Identifiers,
    local_id: tuple[str, ...],
    named: dict[str, str],
) -> Identity:
    """The ARK that the depositor gave, unless a local id contradicts it."""
    try:
        ark = str(noid.parse_ark(given))
    except noid.NotAnArk as error:
        raise content(f"the primary identifier {error}") from error
    for name, other in sorted(named.items()):
        if other != ark:
            raise content(
                f"the local id '{name}' belongs to {other}, but the submitted primary identifier "
                f"is {ark}: submit "
                "again with one of the two"
            )
    identifiers = _write(job, context, known, Identifiers(primary_id=ark, local_id=local_id))
    return Identity(ark, identifiers, new=False)


def _use_known_ark(
    job: Job, context: StepContext, known: Identifiers, local_id: tuple[str, ...], named: dict[str, str]
) -> Identity:
    """The ARK that the local ids name."""
    arks = sorted(set(named.values()))
    if len(arks) > 1:
        pairs = ", ".join(f"'{name}' belongs to {ark}" for name, ark in sorted(named.items()))
        raise content(f"the local ids belong to several objects ({pairs}): submit every object separately")
    identifiers = Identifiers(primary_id=arks[0], local_id=local_id, assigned=True)
    return Identity(arks[0], _write(job, context, known, identifiers), new=False)


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
    # Written before the ARK, so that after a crash the ARK is not mistaken for a depositor's.
    identifiers = Identifiers(primary_id=known.primary_id, local_id=local_id, assigned=True)
    _write(job, context, known, identifiers)
    context.attempt.check()
    reserve = partial(_reserve, profile, context, local_id)
    ark = context.minter.mint(job, profile, context.job_record, reserve)
    return Identity(ark, context.job_record.identifiers(job), new=not local_id)


def _write(job: Job, context: StepContext, known: Identifiers, identifiers: Identifiers) -> Identifiers:
    if known != identifiers:
        context.attempt.check()
        context.job_record.write_identifiers(job, identifiers)
    return identifiers
