"""A dry run of a deposit of local files: nothing is uploaded."""

from collections.abc import Sequence

from pydantic import Field

from operations.deposits.dry_run_result import LIST_LIMIT, DryRunResult, Trouble
from operations.deposits.known_objects import known_objects
from operations.deposits.local_deposit import LocalDeposit
from operations.deposits.submission import owned
from operations.site import Site
from pipeline.identifiers import minter
from pipeline.principal import Principal
from pipeline.profiles.profile import with_site_limits
from pipeline.records import Record, Submission, Text
from pipeline.states import JobState
from zkstate.fleet import holds
from zkstate.queue import queue
from zkstate.record import batches

NAMED = 2000
"""Objects with identifiers that are judged at a time."""

LARGEST = 20
"""Files whose sizes are judged: the largest."""


class NamedObject(Record):
    """An object of the deposit that has identifiers; `number`: its place in the batch, from 1."""

    number: int = Field(ge=1)
    name: Text = ""
    primary_id: Text | None = None
    local_id: tuple[Text, ...] = ()


class PlannedFile(Record):
    name: Text
    size: int = Field(ge=0)


class LocalPlan(Record):
    """A deposit of files that are not uploaded yet; a plan with many named objects comes in parts."""

    objects: int = Field(ge=0)
    files: int = Field(ge=0)
    bytes: int = Field(ge=0)
    largest: tuple[PlannedFile, ...] = Field((), max_length=LARGEST)
    named: tuple[NamedObject, ...] = Field((), max_length=NAMED)


def plans(submission: Submission, deposit: LocalDeposit | None) -> list[LocalPlan]:
    """The parts of the plan; without a deposit, of the one object that the submission names."""
    given = deposit.named(submission) if deposit else (submission,)
    named = [
        NamedObject(
            number=number,
            name=deposit.name_of(one) if deposit else "",
            primary_id=one.primary_id,
            local_id=one.local_id,
        )
        for number, one in enumerate(given, 1)
        if one.local_id or one.primary_id
    ]
    files = deposit.files if deposit else ()
    largest = sorted(files, key=lambda file: file.size, reverse=True)[:LARGEST]
    whole = LocalPlan(
        objects=deposit.objects if deposit else 1,
        files=len(files),
        bytes=sum(file.size for file in files),
        largest=tuple(PlannedFile(name=file.name, size=file.size) for file in largest),
    )
    parts = [tuple(named[start : start + NAMED]) for start in range(0, len(named), NAMED)]
    return [whole.model_copy(update={"named": part}) for part in parts or [()]]


def together(parts: Sequence[DryRunResult]) -> DryRunResult:
    """The judgement of a plan whose parts were judged apart; its files were judged with each of them."""
    first, *others = parts
    refused = [trouble for part in others for trouble in part.failures if trouble.number]
    known = {name: ark for part in parts for name, ark in part.known.items()}
    return first.model_copy(
        update={
            "known": dict(list(known.items())[:LIST_LIMIT]),
            "known_count": sum(part.known_count for part in parts),
            "failing": first.failing + len(refused),
            "failures": (*first.failures, *refused)[:LIST_LIMIT],
        }
    )


def dry_run_local(
    site: Site, principal: Principal, submission: Submission, planned: LocalPlan
) -> DryRunResult:
    """What the deposit of local files would do; nothing is uploaded, and every file is there and readable."""
    submission = owned(submission, principal)
    session, settings = site.session, site.settings
    profile = with_site_limits(site.profiles.get(submission.profile_name), settings)
    objects = known_objects(site, profile, planned.named)
    known = {name: ark for one in planned.named for name, ark in objects.of(one).items()}
    refused = tuple(
        Trouble(number=planned.named[place - 1].number, name=planned.named[place - 1].name, message=message)
        for place, message in objects.refusals(submission, profile, planned.named)
    )
    too_large = [file for file in planned.largest if file.size > settings.upload_bytes]
    failures = tuple(
        Trouble(
            number=0,
            name=file.name,
            message=f"{file.size:,} bytes are more than {settings.upload_bytes:,} (ARKLINE_UPLOAD_BYTES)",
        )
        for file in too_large
    )
    return DryRunResult(
        profile=profile.name,
        payload_url=submission.payload_url,
        payload_type=submission.type,
        submission_mode=submission.submission_mode,
        new_version=minter.may_add_version(submission, profile),
        submitted_before=batches.submitted_under(session, submission),
        jobs=planned.objects,
        files=planned.files,
        bytes=planned.bytes,
        asked=planned.files,
        priority=submission.priority if submission.priority is not None else profile.priority,
        ahead=queue.counts(session)[JobState.PENDING],
        known=dict(list(known.items())[:LIST_LIMIT]),
        known_count=len(known),
        failing=min(planned.objects, len(too_large) + len({trouble.number for trouble in refused})),
        failures=(*refused, *failures)[:LIST_LIMIT],
        paused=holds.paused(session),
        hold=holds.collection_hold(session, profile.name),
    )
