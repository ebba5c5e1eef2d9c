"""A dry run: what a submission would do. Manifests are read and sources probed; nothing is changed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING

from pydantic import Field

from operations.archive import no_archive
from operations.download_estimate import Estimate, estimate
from operations.wording import by_whom, counted
from pipeline.manifests.split import Plan, plan
from pipeline.names import quote_name
from pipeline.outcome import StepFailed
from pipeline.profiles.profile import Profile, Profiles
from pipeline.records import Record, Submission
from pipeline.settings import Settings
from pipeline.sources.fetch import HttpFetcher
from pipeline.sources.probe import Prober
from pipeline.states import JobState
from pipeline.steps import dry_run
from pipeline.steps.dry_run import DryRunJob, Host
from pipeline.working_storage.capacity import in_units, refusal, usage
from zkstate import batches, holds, queue, space
from zkstate.session import Session

if TYPE_CHECKING:
    from operations.archive import Archive

PROBE_LIMIT = 1000
"""Default limit of manifests that are read, and of files whose sources are probed."""

LIST_LIMIT = 50
"""Failures, doubts and known local ids that are listed; all of them are counted."""


class Trouble(Record):
    """Why one object would fail, or may fail."""

    number: int
    """The object's place in the batch, from 1; 0: the batch as a whole."""
    name: str
    message: str


class HostResult(Record):
    host: str
    files: int
    bytes: int
    latency: float | None = None
    bytes_per_second: int | None = None


class DryRunResult(Record):
    """What a submission would do. `failing` and `doubtful` are numbers of objects; the lists are limited."""

    profile: str
    payload_url: str
    payload_type: str
    submission_mode: str
    submitted_before: str | None = None
    jobs: int = 0
    unread: int = 0
    files: int = 0
    bytes: int = 0
    unsized: int = 0
    asked: int = 0
    without_digest: int = 0
    priority: int | None = None
    ahead: int = 0
    space: str = ""
    hosts: tuple[HostResult, ...] = ()
    known: dict[str, str] = Field(default_factory=dict)
    known_count: int = 0
    failing: int = 0
    failures: tuple[Trouble, ...] = ()
    doubtful: int = 0
    doubts: tuple[Trouble, ...] = ()
    warnings: tuple[str, ...] = ()
    estimate: Estimate | None = None

    @property
    def good(self) -> bool:
        return not self.failing


def perform_dry_run(
    session: Session,
    settings: Settings,
    submission: Submission,
    archive: Archive = no_archive,
    most: int = PROBE_LIMIT,
) -> DryRunResult:
    """At most `most` manifests are read, and the sources of at most `most` files are probed."""
    profile = Profiles(settings.profiles).get(submission.profile_name)
    opening = DryRunResult(
        profile=profile.name,
        payload_url=submission.payload_url,
        payload_type=submission.type,
        submission_mode=submission.submission_mode,
        submitted_before=batches.submitted_under(session, submission),
        warnings=tuple(_waiting(session, profile.name)),
    )
    with HttpFetcher(settings) as fetcher, Prober(settings) as prober:
        try:
            planned = plan(
                submission,
                fetcher.read,
                settings.manifest_limit,
                profile.priority,
                profile.limits.batch_jobs,
            )
        except StepFailed as failure:
            trouble = Trouble(number=0, name=submission.payload_filename, message=failure.message)
            return opening.model_copy(update={"failing": 1, "failures": (trouble,)})
        jobs = dry_run.read_jobs(planned.jobs, submission, profile, fetcher, settings, most)
        answers = dry_run.ask_sources(jobs, prober, settings, most)
        dry_run.check_bytes(jobs, profile, _largest(settings))
        hosts = dry_run.hosts(jobs, answers, prober)
    known = _known(profile, planned, archive)
    return opening.model_copy(
        update={
            **_counts(jobs),
            **_troubles(jobs),
            "asked": len(answers),
            "priority": planned.jobs[0].priority if planned.jobs else None,
            "ahead": queue.counts(session)[JobState.PENDING],
            "space": _space(session, settings, jobs),
            "hosts": tuple(_host_result(host) for host in hosts),
            "known": dict(list(known.items())[:LIST_LIMIT]),
            "known_count": len(known),
            "warnings": (*opening.warnings, *_repeated(jobs), *_contradictions(planned, known)),
            "estimate": estimate(hosts, settings),
        }
    )


def _waiting(session: Session, name: str) -> Iterator[str]:
    pause, hold = holds.paused(session), holds.collection_hold(session, name)
    if pause is not None:
        yield f"the queue has been paused{by_whom(pause.by, pause.reason, pause.at)}: the jobs would wait"
    if hold is not None:
        by = by_whom(hold.by, hold.reason, hold.at)
        yield f"collection {name} has been on hold{by}: the jobs would be held"


def _largest(settings: Settings) -> int | None:
    """Bytes of working storage that one job can get; None if working storage is not on this machine."""
    if not settings.working.is_dir():
        return None
    return usage(settings).total * settings.working_threshold // 100


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


def _known(profile: Profile, planned: Plan, archive: Archive) -> dict[str, str]:
    """Local id -> ARK, of local ids that already name an object of this owner."""
    local_id = list(dict.fromkeys(value for job in planned.jobs for value in job.local_id))
    inventory = archive() if local_id else None
    return inventory.arks_of(profile.owner, local_id) if inventory is not None else {}


def _repeated(jobs: list[DryRunJob]) -> tuple[str, ...]:
    warnings = list(dry_run.repeated(jobs))
    more = (f"and {len(warnings) - LIST_LIMIT:,} more",) if len(warnings) > LIST_LIMIT else ()
    return (*warnings[:LIST_LIMIT], *more)


def _contradictions(planned: Plan, known: dict[str, str]) -> Iterator[str]:
    """Objects whose local ids contradict their primary identifier, or each other."""
    for number, job in enumerate(planned.jobs, 1):
        arks = {known[value] for value in job.local_id if value in known}
        named = arks | ({job.primary_id} if job.primary_id else set())
        if len(named) > 1:
            yield (
                f"object {number}, {quote_name(job.payload_name)}: its identifiers name different objects "
                f"({', '.join(sorted(named))})"
            )


def _space(session: Session, settings: Settings, jobs: list[DryRunJob]) -> str:
    needed = sum(job.needed for job in jobs)
    largest = max((job.needed for job in jobs), default=0)
    need = f"{in_units(needed)} of working storage in total, {in_units(largest)} for the largest object"
    if not settings.working.is_dir():
        return f"{need}; unknown whether they fit: working storage is not on this machine"
    promised = space.promised(session).bytes
    if refusal(needed, promised, settings) is None:
        return f"{need}; all fit now"
    waiting = Counter(refusal(job.needed, promised, settings) is None for job in jobs)[False]
    if waiting:
        return f"{need}; {counted(waiting, 'object')} would have to wait for space"
    return f"{need}; every object fits now, but not all at once: some would wait until others end"


def _host_result(host: Host) -> HostResult:
    rate = host.sample.bytes / host.sample.seconds if host.sample else None
    return HostResult(
        host=host.name,
        files=host.files,
        bytes=host.bytes,
        latency=None if host.latency is None else round(host.latency, 3),
        bytes_per_second=None if rate is None else int(rate),
    )
