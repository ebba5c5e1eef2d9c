"""A dry run of a deposit of local files: nothing is uploaded."""

from operations.dry_run import LIST_LIMIT
from operations.dry_run_result import DryRunResult, Trouble
from operations.known_objects import known_objects
from operations.local_deposit import LocalDeposit
from operations.site import Site
from operations.submission import owned
from pipeline.identifiers import ownership
from pipeline.principal import Principal
from pipeline.profiles.profile import with_site_limits
from pipeline.records import Submission
from pipeline.states import JobState
from zkstate import batches, holds, queue


def dry_run_local(
    site: Site, principal: Principal, submission: Submission, deposit: LocalDeposit
) -> DryRunResult:
    """What the deposit of local files would do; nothing is uploaded, and every file is there and readable."""
    submission = owned(submission, principal)
    session, settings = site.session, site.settings
    profile = with_site_limits(site.profiles.get(submission.profile_name), settings)
    named = deposit.named(submission)
    objects = known_objects(site, profile, named)
    known = {name: ark for one in named for name, ark in objects.of(one).items()}
    refused = tuple(
        Trouble(number=number, name=deposit.name_of(named[number - 1]), message=message)
        for number, message in objects.refusals(submission, profile, named)
    )
    too_large = [file for file in deposit.files if file.size > settings.upload_bytes]
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
        payload_url=str(deposit.source),
        payload_type=deposit.type,
        submission_mode=submission.submission_mode,
        new_version=ownership.may_add_version(submission, profile),
        submitted_before=batches.submitted_under(session, submission),
        jobs=deposit.objects,
        files=len(deposit.files),
        bytes=deposit.bytes,
        asked=len(deposit.files),
        priority=submission.priority if submission.priority is not None else profile.priority,
        ahead=queue.counts(session)[JobState.PENDING],
        known=dict(list(known.items())[:LIST_LIMIT]),
        known_count=len(known),
        failing=min(deposit.objects, len(too_large) + len({trouble.number for trouble in refused})),
        failures=(*refused, *failures)[:LIST_LIMIT],
        paused=holds.paused(session),
        hold=holds.collection_hold(session, profile.name),
    )
