"""A dry run: what a submission would do. Manifests are read and sources probed; nothing is changed.

Rule: it uses the readers and checks of real jobs, so a submission that passes can fail later only if
something changes in between.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from itertools import chain, islice
from threading import Lock

from operations.deposits.dry_run_result import (
    LIST_LIMIT,
    Contradiction,
    DryRunResult,
    Estimate,
    Fit,
    HostResult,
    LocalPlan,
    NamedObject,
    SpaceNeed,
    Trouble,
)
from operations.deposits.submission import check_url, owned
from operations.deposits.uploads import resolved_url
from operations.site import Site
from pipeline.attempt import UNATTENDED, Attempt, in_parallel
from pipeline.errors import UsageRefused
from pipeline.http.urls import host_of
from pipeline.identifiers import minter
from pipeline.manifests.checkm import Row
from pipeline.manifests.split import PlannedJob, plan
from pipeline.names import SCHEME, NotAnArk, canonical_ark, is_upload, quote_name
from pipeline.outcome import StepFailed
from pipeline.principal import Principal
from pipeline.profiles.profile import Profile, with_site_limits
from pipeline.records import JobConfiguration, PayloadType, Submission
from pipeline.settings import Settings
from pipeline.sources.download import DocumentTooLarge
from pipeline.sources.fetch import HttpFetcher, ProbeResult, Sample, probe, sample
from pipeline.states import FailureKind, JobState
from pipeline.steps.estimate import CONTAINER_FACTOR
from pipeline.steps.expected_files import check_bytes, check_files, payload_file, read_manifest
from pipeline.working_storage.capacity import in_units, refusal, usage_now
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
    profile = with_site_limits(site.profiles.get(submission.profile_name), settings)
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
        run.check_sizes(jobs, _largest(settings))
        hosts = run.hosts(jobs, answers)
    _check_names(site, jobs, profile)
    objects = _known_objects(site, submission, profile, planned.jobs)
    for index, message in objects.refused:
        jobs[index].failures.append(message)
    shared = tuple(repeated(jobs))
    return opening.model_copy(
        update={
            **_counts(jobs),
            **_troubles(jobs),
            **objects.facts,
            "asked": len(answers),
            "priority": planned.jobs[0].priority if planned.jobs else None,
            "space": _space(site, jobs),
            "hosts": tuple(host.result for host in hosts),
            "repeated": shared[:LIST_LIMIT],
            "repeated_count": len(shared),
            "contradictions": tuple(_contradictions(planned.jobs, objects.arks)),
            "estimate": _estimate(hosts, settings.download_threads),
        }
    )


def dry_run_local(
    site: Site, principal: Principal, submission: Submission, planned: LocalPlan
) -> DryRunResult:
    """A dry run of local files: nothing is uploaded, and the files are known to exist and be readable."""
    submission = owned(submission, principal)
    profile = with_site_limits(site.profiles.get(submission.profile_name), site.settings)
    objects = _known_objects(site, submission, profile, planned.named)
    refused = tuple(
        Trouble(number=planned.named[index].number, name=planned.named[index].name, message=message)
        for index, message in objects.refused
    )
    limit = site.settings.upload_bytes
    too_large = tuple(
        Trouble(
            number=0,
            name=file.name,
            message=f"{file.size:,} bytes are more than {limit:,} (ARKLINE_UPLOAD_BYTES)",
        )
        for file in planned.largest
        if file.size > limit
    )
    return _opening(site, submission, profile).model_copy(
        update={
            **objects.facts,
            "jobs": planned.objects,
            "files": planned.files,
            "bytes": planned.bytes,
            "asked": planned.files,
            "priority": submission.priority if submission.priority is not None else profile.priority,
            "failing": min(planned.objects, len(too_large) + len({trouble.number for trouble in refused})),
            "failures": (*refused, *too_large)[:LIST_LIMIT],
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


@dataclass(frozen=True)
class _KnownObjects:
    """The objects of a deposit that the repository already has."""

    arks: dict[str, str] = field(default_factory=dict)
    """Local id -> ARK, for this owner's local ids that have one."""
    known: dict[str, str] = field(default_factory=dict)
    """Identifier in the deposit -> ARK."""
    refused: list[tuple[int, str]] = field(default_factory=list)
    """(index, reason) of each object that may not add a version."""

    @property
    def facts(self) -> dict[str, object]:
        return {"known": dict(list(self.known.items())[:LIST_LIMIT]), "known_count": len(self.known)}


def _known_objects(
    site: Site, submission: Submission, profile: Profile, deposits: Sequence[PlannedJob | NamedObject]
) -> _KnownObjects:
    local_ids = list(dict.fromkeys(name for deposit in deposits for name in deposit.local_id))
    own_arks = [_ark(deposit.primary_id) for deposit in deposits if deposit.primary_id]
    inventory = site.archive() if local_ids or own_arks else None
    if inventory is None:
        return _KnownObjects()
    arks = inventory.arks_of(profile.owner, local_ids)
    titles = inventory.titles_of(profile.owner, profile.collections, [*arks.values(), *own_arks])
    objects = _KnownObjects(arks)
    for index, deposit in enumerate(deposits):
        known = {name: arks[name] for name in deposit.local_id if name in arks}
        if deposit.primary_id and (ark := _ark(deposit.primary_id)) in titles:
            known[deposit.primary_id] = ark
        objects.known.update(known)
        if not minter.may_add_version(submission, profile):
            objects.refused.extend(
                (index, minter.version_problem(ark, titles[ark], profile))
                for ark in dict.fromkeys(known.values())
                if ark in titles
            )
    return objects


def _ark(given: str) -> str:
    try:
        return canonical_ark(given)
    except NotAnArk:
        return given  # the submission is refused for this reason


def _largest(settings: Settings) -> int | None:
    """Maximum bytes of working storage for one job; None if it cannot be measured on this machine."""
    space = usage_now(settings) if settings.working.is_dir() else None
    return space.total * settings.working_threshold // 100 if space else None


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

    def troubles(self, messages: Iterable[str]) -> Iterator[Trouble]:
        for message in messages:
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
            check_files(self.profile, len(job.files))
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

    def check_sizes(self, jobs: Iterable[DryRunJob], largest: int | None) -> None:
        """Add a failure to jobs larger than the collection accepts, or that need over `largest` bytes."""
        for job in jobs:
            try:
                check_bytes(self.profile, sum(job.size(file) or 0 for file in job.files))
            except StepFailed as failure:
                job.failures.append(failure.message)
            if largest is not None and job.needed > largest:
                job.failures.append(
                    f"it needs {in_units(job.needed)} of working storage, of which only {in_units(largest)} "
                    "may be used: it would never start"
                )

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
        if file.size is not None and file.size != answer.size:
            job.failures.append(
                f"{where}{quote_name(file.name)}: the source has {answer.size:,} bytes, "
                f"but {file.size:,} were declared"
            )


def repeated(jobs: Iterable[DryRunJob]) -> Iterator[str]:
    """Values that several jobs of the batch share, possibly by mistake."""
    planned = [job.planned for job in jobs]
    shared = (
        ("URL", (job.payload_url for job in planned), "every entry makes an object"),
        (
            "digest",
            (f"{job.digest.algorithm}:{job.digest.value}" for job in planned if job.digest),
            "the same bytes are deposited more than once",
        ),
    )
    for what, values, meaning in shared:
        for value, times in Counter(values).items():
            if times > 1:
                yield f"{times:,} objects have the {what} {quote_name(value)}: {meaning}"


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
    failures = chain.from_iterable(job.troubles(job.failures) for job in jobs)
    doubts = chain.from_iterable(job.troubles(job.doubts) for job in jobs)
    return {
        "failing": sum(bool(job.failures) for job in jobs),
        "failures": tuple(islice(failures, LIST_LIMIT)),
        "doubtful": sum(bool(job.doubts) and not job.failures for job in jobs),
        "doubts": tuple(islice(doubts, LIST_LIMIT)),
    }


def _check_names(site: Site, jobs: Sequence[DryRunJob], profile: Profile) -> None:
    """Add a failure to each job whose primary identifier the collection may not use."""
    named = [job for job in jobs if job.planned.primary_id]
    inventory = site.archive() if named else None
    for job in named:
        ark = canonical_ark(job.planned.primary_id or "")
        placement = inventory.placement_of(ark) if inventory is not None else None
        if problem := minter.ownership_problem(ark, profile, placement):
            job.failures.append(problem)


def _contradictions(planned: Iterable[PlannedJob], known: dict[str, str]) -> Iterator[Contradiction]:
    """Objects whose local ids contradict their primary identifier, or each other."""
    for number, job in enumerate(planned, 1):
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
