"""A dry run: what a submission would do. Manifests are read and sources probed; nothing is changed.

Rule: it uses the readers and checks of real jobs, so a submission that passes can fail later only if
something changes in between.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from itertools import chain, islice
from threading import Lock

from operations.deposits.dry_run_result import (
    LIST_LIMIT,
    DryRunResult,
    Estimate,
    Fit,
    HostResult,
    LocalPlan,
    SpaceNeed,
    Trouble,
    judged_facts,
)
from operations.deposits.judgement import judge, upload_problems
from operations.deposits.planned import FieldProblem, JudgedObject, NamedObject, ObjectFile
from operations.deposits.submission import check_url, owned
from operations.deposits.uploads import resolved_url
from operations.site import Site
from pipeline.attempt import UNATTENDED, Attempt, in_parallel
from pipeline.errors import UsageRefused
from pipeline.http.urls import host_of
from pipeline.identifiers import minter
from pipeline.manifests.checkm import Row
from pipeline.manifests.split import PlannedJob, plan
from pipeline.names import SCHEME, is_upload
from pipeline.outcome import StepFailed
from pipeline.principal import Principal
from pipeline.profiles.profile import Profile
from pipeline.records import JobConfiguration, PayloadType, Submission
from pipeline.settings import Settings
from pipeline.sources.download import DocumentTooLarge
from pipeline.sources.fetch import HttpFetcher, ProbeResult, Sample, probe, sample
from pipeline.states import FailureKind, JobState
from pipeline.steps.estimate import CONTAINER_FACTOR
from pipeline.steps.expected_files import payload_file, read_manifest
from pipeline.working_storage.capacity import refusal
from zkstate.fleet import holds
from zkstate.queue import queue
from zkstate.record import batches, space

PROBE_LIMIT = 1000
"""Default limit for manifests read and for files whose sources are probed."""

BYTES_OF_A_LINE = 1000
"""Average bytes per line that are allowed where the number of lines is limited."""


def perform_dry_run(
    site: Site,
    principal: Principal,
    submission: Submission,
    most: int = PROBE_LIMIT,
    lines: int | None = None,
    attempt: Attempt = UNATTENDED,
) -> DryRunResult:
    """Perform a dry run: read at most `most` manifests, and probe the sources of at most `most` files.

    Forbidden unless the principal may submit to the collection; UsageRefused if its manifests have more than
    `lines` lines.
    """
    submission = owned(submission, principal)
    check_url(submission.payload_url)
    resolved_url(site, principal, submission.payload_url)
    settings = site.settings
    profile = site.profile(submission.profile_name)
    opening = _opening(site, submission, profile)
    with HttpFetcher(settings, sources=lambda: profile.allowed_sources) as fetcher:
        run = DryRun(submission, profile, settings, fetcher, most, lines, attempt)
        try:
            planned = plan(
                submission,
                run.read_manifest,
                settings.manifest_limit,
                profile.priority,
                profile.limits.batch_jobs,
            )
        except StepFailed as failure:
            trouble = Trouble(number=0, name=submission.name, message=failure.message)
            return opening.model_copy(update={"failing": 1, "failures": (trouble,)})
        jobs = run.read_jobs(planned.jobs)
        answers = run.ask_sources(jobs)
        hosts = run.hosts(jobs, answers)
    judged = judge(site, profile, submission, [job.named for job in jobs])
    objects = [_with_faults(job, one) for job, one in zip(jobs, judged.objects, strict=True)]
    doubtful = [job for job, one in zip(jobs, objects, strict=True) if job.doubts and not one.errors]
    doubts = chain.from_iterable(map(DryRunJob.doubtful, jobs))
    return opening.model_copy(
        update={
            **_counts(jobs),
            **judged_facts(judged.model_copy(update={"objects": tuple(objects)}), len(jobs)),
            "asked": len(answers),
            "priority": planned.jobs[0].priority if planned.jobs else None,
            "doubtful": len(doubtful),
            "doubts": tuple(islice(doubts, LIST_LIMIT)),
            "space": _space(site, jobs),
            "hosts": tuple(host.result for host in hosts),
            "estimate": _estimate(hosts, settings.download_threads),
        }
    )


def _with_faults(job: "DryRunJob", judged: JudgedObject) -> JudgedObject:
    """With the faults that the sources showed, which come first."""
    failures = tuple(FieldProblem(message=message, field="file") for message in job.failures)
    doubts = tuple(FieldProblem(message=message, field="file") for message in job.doubts)
    return judged.model_copy(update={"errors": failures + judged.errors, "warnings": doubts})


def dry_run_local(
    site: Site, principal: Principal, submission: Submission, planned: LocalPlan
) -> DryRunResult:
    """A dry run of objects that the caller describes, as of files that are not uploaded yet."""
    submission = owned(submission, principal)
    profile = site.profile(submission.profile_name)
    judged = judge(site, profile, submission, planned.named, total=planned.objects)
    files = [file for one in planned.named for file in one.files or ()]
    if not files:  # a client up to 0.3.0, which names the largest files alone
        largest = (ObjectFile(name=file.name, size=file.size, to_upload=True) for file in planned.largest)
        too_large = tuple(chain.from_iterable(upload_problems(file, site.settings) for file in largest))
        judged = judged.model_copy(update={"errors": judged.errors + too_large})
    return _opening(site, submission, profile).model_copy(
        update={
            **judged_facts(judged, planned.objects),
            "jobs": planned.objects,
            "files": planned.files,
            "bytes": planned.bytes,
            "unsized": sum(file.bytes is None for file in files),
            "without_digest": sum(file.digest is None and not file.to_upload for file in files),
            "asked": planned.files,
            "priority": submission.priority if submission.priority is not None else profile.priority,
        }
    )


def _opening(site: Site, submission: Submission, profile: Profile) -> DryRunResult:
    """What is known before any manifest is read."""
    session = site.session
    return DryRunResult(
        profile=profile.name,
        payload_url=submission.payload_url,
        payload_type=submission.type,
        submission_mode=submission.submission_mode,
        new_version=minter.may_add_version(submission, profile),
        submitted_before=batches.submitted_under(session, submission),
        ahead=queue.counts(session)[JobState.PENDING],
        paused=holds.paused(session),
        hold=holds.collection_hold(session, profile.name),
    )


@dataclass
class DryRunJob:
    """One job: the files that it would fetch, and why it would fail."""

    planned: PlannedJob
    number: int
    """Its position in the batch, from 1."""
    files: tuple[Row, ...] = ()
    failures: list[str] = field(default_factory=list)
    doubts: list[str] = field(default_factory=list)
    """Faults that may be gone when the job runs."""
    sizes: dict[str, int] = field(default_factory=dict)
    read: bool = False

    @property
    def by_manifest(self) -> bool:
        return self.planned.payload_type is PayloadType.OBJECT_MANIFEST

    @property
    def needed(self) -> int:
        """Bytes of working storage that the step estimating would compute."""
        known = sum(self.size(file) or 0 for file in self.files)
        return known * (CONTAINER_FACTOR if self.planned.payload_type is PayloadType.CONTAINER else 1)

    def size(self, file: Row) -> int | None:
        return file.size if file.size is not None else self.sizes.get(file.url)

    @property
    def named(self) -> NamedObject:
        """The object for the judge."""
        files = (
            ObjectFile(
                name=file.name, size=file.size, digest=file.digest, found_size=self.sizes.get(file.url)
            )
            for file in self.files
        )
        return NamedObject(
            number=self.number,
            name=self.planned.payload_name,
            title=self.planned.erc_what,
            creator=self.planned.erc_who,
            date=self.planned.erc_when,
            primary_id=self.planned.primary_id,
            local_id=self.planned.local_id,
            payload=self.planned.payload_url,
            files=tuple(files) or None,
        )

    def doubtful(self) -> Iterator[Trouble]:
        for message in self.doubts:
            yield Trouble(number=self.number, name=self.planned.payload_name, message=message)


@dataclass(frozen=True)
class _Host:
    result: HostResult
    sample: Sample | None
    seconds: float = 0.0
    """Time to download everything from the host over one connection, extrapolated from the sample."""


@dataclass
class DryRun:
    """Reads manifests with at most `lines` lines in total, and probes the sources."""

    submission: Submission
    profile: Profile
    settings: Settings
    fetcher: HttpFetcher
    most: int = PROBE_LIMIT
    lines: int | None = None
    attempt: Attempt = UNATTENDED
    _lines_read: int = field(default=0, init=False)
    _guard: Lock = field(default_factory=Lock, init=False)

    def read_manifest(self, url: str, limit: int) -> bytes:
        """A manifest; UsageRefused if it exceeds the allowed lines or bytes. Thread-safe."""
        most = limit if self.lines is None else min(limit, self.lines * BYTES_OF_A_LINE)
        try:
            data = self.fetcher.read(url, most, self.attempt)
        except DocumentTooLarge as failure:
            if most == limit:
                raise
            raise self._too_many_lines() from failure
        if self.lines is not None:
            with self._guard:
                self._lines_read += len(data.splitlines()) if len(data) <= most else self.lines + 1
                if self._lines_read > self.lines:
                    raise self._too_many_lines()
        return data

    def _too_many_lines(self) -> UsageRefused:
        return UsageRefused(
            f"a dry run at this address reads at most {self.lines:,} lines of manifests: "
            "try with fewer, or ask the operator for a dry run on a host of the repository"
        )

    def read_jobs(self, planned: Iterable[PlannedJob]) -> list[DryRunJob]:
        """The jobs with their files; object manifests beyond `most` are not read."""
        jobs = [DryRunJob(one, number) for number, one in enumerate(planned, 1)]
        by_manifest = (job for job in jobs if job.by_manifest)
        to_read = [*(job for job in jobs if not job.by_manifest), *islice(by_manifest, self.most)]
        for _, future in in_parallel(self._read, to_read, self.settings.download_threads, self.attempt):
            future.result()
        return jobs

    def _read(self, job: DryRunJob, attempt: Attempt) -> None:
        attempt.check()
        given = dict(self.submission) | dict(job.planned) | {"batch_id": "", "working_dir": ""}
        configuration = JobConfiguration.model_validate(given)
        try:
            if job.by_manifest:
                data = self.read_manifest(job.planned.payload_url, self.settings.manifest_limit)
                fold, most = not self.profile.case_sensitive_names, self.settings.object_files
                job.files = read_manifest(data, configuration, case_fold=fold, most=most)
            else:
                job.files = (payload_file(configuration),)
        except StepFailed as failure:
            if failure.kind is FailureKind.TRANSIENT:
                job.doubts.append(failure.message)
                return
            job.failures.append(failure.message)
        job.read = True

    def ask_sources(self, jobs: Sequence[DryRunJob]) -> dict[str, ProbeResult]:
        """Probe at most `most` URLs: first one per host, then files without a declared size."""
        files = [(job, file) for job in jobs for file in job.files]
        first: dict[str, Row] = {}
        for _, file in files:
            first.setdefault(host_of(file.url), file)
        undeclared = (file for _, file in files if file.size is None)
        ordered = chain(first.values(), undeclared, (file for _, file in files))
        urls = list(dict.fromkeys(file.url for file in ordered))[: self.most]
        threads = self.settings.download_threads
        outcomes = in_parallel(partial(probe, self.fetcher), urls, threads, self.attempt)
        answers = {url: future.result() for url, future in outcomes}
        for job, file in files:
            if file.url in answers:
                _compare(job, file, answers[file.url])
        return answers

    def hosts(self, jobs: Iterable[DryRunJob], answers: dict[str, ProbeResult]) -> list[_Host]:
        """The hosts, each with a sample of the largest file that answered."""
        named: dict[str, list[tuple[str, int]]] = {}
        for job in jobs:
            for file in job.files:
                host = SCHEME if is_upload(file.url) else host_of(file.url)
                named.setdefault(host, []).append((file.url, job.size(file) or 0))
        return [self._host(name, files, answers) for name, files in sorted(named.items())]

    def _host(self, name: str, files: list[tuple[str, int]], answers: dict[str, ProbeResult]) -> _Host:
        probed = [answers[url] for url, _ in files if url in answers]
        available = {answer.url for answer in probed if not answer.failure}
        largest = max(
            (file for file in files if file[0] in available), key=lambda file: file[1], default=None
        )
        latency = sum(answer.seconds for answer in probed) / len(probed) if probed else None
        taken = sample(self.fetcher, largest[0], self.attempt) if largest else None
        size = sum(size for _, size in files)
        result = HostResult(
            host=name,
            files=len(files),
            bytes=size,
            latency=None if latency is None else round(latency, 3),
            bytes_per_second=int(taken.bytes / taken.seconds) if taken else None,
        )
        if taken is None:
            return _Host(result, None)
        return _Host(result, taken, size * taken.seconds / taken.bytes + len(files) * (latency or 0.0))


def _compare(job: DryRunJob, file: Row, answer: ProbeResult) -> None:
    where = f"line {file.line}: " if len(job.files) > 1 else ""
    if answer.failure:
        (job.doubts if answer.transient else job.failures).append(f"{where}{answer.failure}")
    elif answer.size is not None:
        job.sizes[file.url] = answer.size


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


def _estimate(hosts: Sequence[_Host], connections: int) -> Estimate:
    unmeasured = tuple(host.result.host for host in hosts if host.sample is None)
    samples = [host.sample for host in hosts if host.sample is not None]
    if not samples:
        return Estimate(unmeasured=unmeasured, connections=connections)
    seconds = sum(host.seconds for host in hosts)
    return Estimate(
        least=round(seconds / connections, 1),
        most=round(seconds, 1),
        sampled=sum(taken.bytes for taken in samples),
        measured=len(samples),
        unmeasured=unmeasured,
        connections=connections,
    )
