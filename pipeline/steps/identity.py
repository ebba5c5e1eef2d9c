"""Which object a job's content is: the ARK that was given, that a local id names, or a new one.

Two jobs with one new local id become two versions of one object: each holds its local ids while it looks
them up, and lets go only when the inventory knows that they name its ARK.
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
    """True if the ARK was minted here and nothing else can name the object yet."""


def identify(job: Job, profile: Profile, context: StepContext, local_id: tuple[str, ...]) -> Identity:
    """The job's ARK, written to its identifiers together with all its local ids, and kept in the inventory.

    Whatever an attempt that ended early has done of this, the next one arrives at one ARK: a minted ARK
    is written by the transaction that takes its number. If another job gave the local ids to its own ARK
    before this one could, this job takes that ARK; the number it had taken stays unused.
    """
    with ExitStack() as held:
        # In one order, so that two jobs with several ids cannot wait for each other.
        for each in sorted(local_id):
            held.enter_context(context.job_record.exclusive("localid", f"{each}_{profile.owner}"))
        known = context.job_record.identifiers(job)
        named = context.inventory.arks_of(profile.owner, local_id)
        if known.primary_id is not None and not known.assigned:
            identity = _accept(job, context, known.primary_id, known, local_id, named)
        elif named:
            identity = _follow(job, context, known, local_id, named)
        else:
            return _mint(job, profile, context, known, local_id)
        _reserve(profile, context, local_id, identity.ark)
        return identity


def _reserve(profile: Profile, context: StepContext, local_id: tuple[str, ...], ark: str) -> None:
    context.attempt.check()
    context.inventory.reserve_local_ids(profile.owner, ark, local_id)


def _accept(
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
    for each, other in sorted(named.items()):
        if other != ark:
            raise content(
                f"the local id '{each}' names {other}, but the primary identifier given is {ark}: "
                "submit again with the one that is meant"
            )
    identifiers = _write(job, context, known, Identifiers(primary_id=ark, local_id=local_id))
    return Identity(ark, identifiers, new=False)


def _follow(
    job: Job, context: StepContext, known: Identifiers, local_id: tuple[str, ...], named: dict[str, str]
) -> Identity:
    """The ARK that the local ids name."""
    arks = sorted(set(named.values()))
    if len(arks) > 1:
        pairs = ", ".join(f"'{each}' names {ark}" for each, ark in sorted(named.items()))
        raise content(f"the local ids are those of several objects ({pairs}): submit each object by itself")
    identifiers = Identifiers(primary_id=arks[0], local_id=local_id, assigned=True)
    return Identity(arks[0], _write(job, context, known, identifiers), new=False)


def _mint(
    job: Job, profile: Profile, context: StepContext, known: Identifiers, local_id: tuple[str, ...]
) -> Identity:
    """A new ARK. The inventory knows of it before anybody else does: if that one is away then, the next job
    with these local ids takes this ARK and none of its own.
    """
    if job.configuration.submission_mode is SubmissionMode.RESET:
        raise content(
            "the object is to be reset, but nothing names it: give its ARK or one of its local ids, or "
            "submit it with mode add"
        )
    # Before the ARK is there, so that a crash after it cannot make it look as if it had been given.
    wanted = Identifiers(primary_id=known.primary_id, local_id=local_id, assigned=True)
    _write(job, context, known, wanted)
    context.attempt.check()
    reserve = partial(_reserve, profile, context, local_id)
    ark = context.minter.mint(job, profile, context.job_record, reserve)
    return Identity(ark, context.job_record.identifiers(job), new=not local_id)


def _write(job: Job, context: StepContext, known: Identifiers, wanted: Identifiers) -> Identifiers:
    if known != wanted:
        context.attempt.check()
        context.job_record.write_identifiers(job, wanted)
    return wanted
