"""A dry run: what a submission would do. Manifests are read and sources probed; nothing is changed."""

from collections.abc import Iterator, Sequence
from functools import cache, partial

from operations.deposits.dry_run_result import (
    LIST_LIMIT,
    Contradiction,
    DryRunResult,
    Estimate,
    Fit,
    HostResult,
    SpaceNeed,
    Trouble,
)
from operations.deposits.known_objects import known_objects
from operations.deposits.submission import owned
from operations.deposits.uploads import resolved_url
from operations.site import Site
from pipeline.attempt import UNATTENDED, Attempt
from pipeline.identifiers import minter
from pipeline.manifests.split import Plan, plan
from pipeline.names import canonical_ark
from pipeline.outcome import StepFailed
from pipeline.principal import Principal
from pipeline.profiles.profile import Profile, with_site_limits
from pipeline.records import Submission
from pipeline.settings import Settings
from pipeline.sources.fetch import HttpFetcher
from pipeline.states import JobState
from pipeline.steps import dry_run
from pipeline.steps.dry_run import DryRunJob, Host
from pipeline.working_storage.capacity import refusal, usage_now
from zkstate.fleet import holds
from zkstate.queue import queue
from zkstate.record import batches, space

PROBE_LIMIT = 1000
"""Default limit of manifests that are read, and of files whose sources are probed."""


def perform_dry_run(
    site: Site,
    principal: Principal,
    submission: Submission,
    most: int = PROBE_LIMIT,
    lines: int | None = None,
    attempt: Attempt = UNATTENDED,
) -> DryRunResult:
    """At most `most` manifests are read, and the sources of at most `most` files are probed.

    Forbidden unless the principal may submit to the collection; UsageRefused if its manifests have more than
    `lines` lines.
    """
    submission = owned(submission, principal)
    resolved_url(site, principal, submission.payload_url)
    session, settings = site.session, site.settings
    profile = with_site_limits(site.profiles.get(submission.profile_name), settings)
    opening = DryRunResult(
        profile=profile.name,
        payload_url=submission.payload_url,
        payload_type=submission.type,
        submission_mode=submission.submission_mode,
        new_version=minter.may_add_version(submission, profile),
        submitted_before=batches.submitted_under(session, submission),
        paused=holds.paused(session),
        hold=holds.collection_hold(session, profile.name),
    )
    with HttpFetcher(settings, sources=lambda: profile.allowed_sources) as fetcher:
        manifests = dry_run.Manifests(fetcher, attempt, lines)
        try:
            planned = plan(
                submission,
                manifests.read,
                settings.manifest_limit,
                profile.priority,
                profile.limits.batch_jobs,
            )
        except StepFailed as failure:
            trouble = Trouble(
                number=0,
                name=submission.name,
                message=failure.message,
            )
            return opening.model_copy(update={"failing": 1, "failures": (trouble,)})
        jobs = dry_run.read_jobs(planned.jobs, submission, profile, manifests, settings, most)
        answers = dry_run.ask_sources(jobs, fetcher, settings, most, attempt)
        dry_run.check_sizes(jobs, profile, _largest(settings))
        hosts = dry_run.hosts(jobs, answers, fetcher, attempt)
    _check_names(site, jobs, profile)
    named = [job.planned for job in jobs]
    objects = known_objects(site, profile, named)
    for number, message in objects.refusals(submission, profile, named):
        jobs[number - 1].failures.append(message)
    known = {name: ark for one in named for name, ark in objects.of(one).items()}
    repeated = tuple(dry_run.repeated(jobs))
    return opening.model_copy(
        update={
            **_counts(jobs),
            **_troubles(jobs),
            "asked": len(answers),
            "priority": planned.jobs[0].priority if planned.jobs else None,
            "ahead": queue.counts(session)[JobState.PENDING],
            "space": _space(site, jobs),
            "hosts": tuple(_host_result(host) for host in hosts),
            "known": dict(list(known.items())[:LIST_LIMIT]),
            "known_count": len(known),
            "repeated": repeated[:LIST_LIMIT],
            "repeated_count": len(repeated),
            "contradictions": tuple(_contradictions(planned, objects.named)),
            "estimate": _estimate(hosts, settings.download_threads),
        }
    )


def _largest(settings: Settings) -> int | None:
    """Bytes of working storage that one job can get; None if it cannot be measured here."""
    space = usage_now(settings) if settings.working.is_dir() else None
    return space.total * settings.working_threshold // 100 if space else None


def _counts(jobs: list[DryRunJob]) -> dict[str, int]:
    files = [(job, file) for job in jobs for file in job.files]
    return {
        "jobs": len(jobs),
        "unread": sum(not job.read for job in jobs),
        "files": len(files),
        "bytes": sum(job.size(file) or 0 for job, file in files),
        "unsized": sum(job.size(file) is None for job, file in files),
        "without_digest": sum(file.digest is None for _, file in files),
    }


def _troubles(jobs: list[DryRunJob]) -> dict[str, object]:
    failures = [_trouble(job, message) for job in jobs for message in job.failures]
    doubts = [_trouble(job, message) for job in jobs for message in job.doubts]
    return {
        "failing": sum(bool(job.failures) for job in jobs),
        "failures": tuple(failures[:LIST_LIMIT]),
        "doubtful": sum(bool(job.doubts) and not job.failures for job in jobs),
        "doubts": tuple(doubts[:LIST_LIMIT]),
    }


def _trouble(job: DryRunJob, message: str) -> Trouble:
    return Trouble(number=job.number, name=job.planned.payload_name, message=message)


def _check_names(site: Site, jobs: Sequence[DryRunJob], profile: Profile) -> None:
    """Add a failure to each job whose primary identifier the collection may not use."""
    named = [job for job in jobs if job.planned.primary_id]
    inventory = site.archive() if named else None
    for job in named:
        ark = canonical_ark(job.planned.primary_id or "")
        placement = inventory.placement_of(ark) if inventory is not None else None
        if problem := minter.ownership_problem(ark, profile, placement):
            job.failures.append(problem)


def _contradictions(planned: Plan, known: dict[str, str]) -> Iterator[Contradiction]:
    """Objects whose local ids contradict their primary identifier, or one another."""
    for number, job in enumerate(planned.jobs, 1):
        arks = {known[value] for value in job.local_id if value in known}
        named = arks | ({job.primary_id} if job.primary_id else set())
        if len(named) > 1:
            yield Contradiction(number=number, name=job.payload_name, arks=tuple(sorted(named)))


def _space(site: Site, jobs: list[DryRunJob]) -> SpaceNeed:
    session, settings = site.session, site.settings
    needed = [job.needed for job in jobs]
    fit, waiting = Fit.UNKNOWN, 0
    if settings.working.is_dir():
        promised = space.promised(session).bytes
        reserved = cache(partial(space.reservations, session))
        waiting = sum(refusal(size, promised, reserved, settings) is not None for size in needed)
        all_fit = refusal(sum(needed), promised, reserved, settings) is None
        fit = Fit.ALL_NOW if all_fit else Fit.SOME_WAIT if waiting else Fit.IN_TURN
    return SpaceNeed(total=sum(needed), largest=max(needed, default=0), fit=fit, waiting=waiting)


def _estimate(hosts: Sequence[Host], connections: int) -> Estimate:
    measured = [(host, host.sample) for host in hosts if host.sample is not None]
    unmeasured = tuple(host.name for host in hosts if host.sample is None)
    if not measured:
        return Estimate(unmeasured=unmeasured, connections=connections)
    seconds = sum(
        host.bytes * sample.seconds / sample.bytes + host.files * (host.latency or 0.0)
        for host, sample in measured
    )
    return Estimate(
        least=round(seconds / connections, 1),
        most=round(seconds, 1),
        sampled=sum(sample.bytes for _, sample in measured),
        measured=len(measured),
        unmeasured=unmeasured,
        connections=connections,
    )


def _host_result(host: Host) -> HostResult:
    rate = host.sample.bytes / host.sample.seconds if host.sample else None
    return HostResult(
        host=host.name,
        files=host.files,
        bytes=host.bytes,
        latency=None if host.latency is None else round(host.latency, 3),
        bytes_per_second=None if rate is None else int(rate),
    )
