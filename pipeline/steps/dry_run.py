"""What a submission would do, without submitting it.

Rule: the readers and checks of real jobs are used here, so that a submission that passes fails later only if
something changes meanwhile.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from itertools import chain, islice
from threading import Lock

from pipeline.attempt import UNATTENDED, Attempt, in_parallel
from pipeline.errors import UsageRefused
from pipeline.http.urls import host_of
from pipeline.manifests.split import PlannedJob
from pipeline.names import SCHEME, is_upload, quote_name
from pipeline.outcome import StepFailed
from pipeline.profiles.profile import Profile
from pipeline.records import JobConfiguration, PayloadType, Submission
from pipeline.settings import Settings
from pipeline.sources.download import DocumentTooLarge
from pipeline.sources.fetch import HttpFetcher, ProbeResult, Sample, probe, sample
from pipeline.states import FailureKind
from pipeline.steps.estimate import CONTAINER_FACTOR
from pipeline.steps.expected_files import FileSpec, check_bytes, check_files, payload_file, read_manifest
from pipeline.working_storage.capacity import in_units

BYTES_OF_A_LINE = 1000
"""Bytes of a line on average, where lines are bounded."""


@dataclass
class DryRunJob:
    """One job: the files that it would fetch, and the reasons why it would fail."""

    planned: PlannedJob
    number: int
    """Its place in the batch, from 1."""
    files: tuple[FileSpec, ...] = ()
    failures: list[str] = field(default_factory=list)
    doubts: list[str] = field(default_factory=list)
    """Faults that may have passed when the job runs."""
    sizes: dict[str, int] = field(default_factory=dict)
    read: bool = False

    @property
    def by_manifest(self) -> bool:
        return self.planned.payload_type is PayloadType.OBJECT_MANIFEST

    @property
    def needed(self) -> int:
        """Bytes of working storage, as the step estimating would count them."""
        known = sum(self.size(file) or 0 for file in self.files)
        return known * (CONTAINER_FACTOR if self.planned.payload_type is PayloadType.CONTAINER else 1)

    def size(self, file: FileSpec) -> int | None:
        return file.size if file.size is not None else self.sizes.get(file.url)


@dataclass(frozen=True)
class Host:
    """What would be fetched from a host, and how the host answered."""

    name: str
    files: int
    bytes: int
    latency: float | None
    """Average seconds from a request to its response."""
    sample: Sample | None


class Manifests:
    """The manifests of one dry run, which have `lines` lines together at most. Thread-safe."""

    def __init__(self, fetcher: HttpFetcher, attempt: Attempt = UNATTENDED, lines: int | None = None) -> None:
        self.attempt = attempt
        self._fetcher = fetcher
        self._most = lines
        self._left = lines
        self._guard = Lock()

    def read(self, url: str, limit: int) -> bytes:
        """A manifest; UsageRefused if it exceeds the lines or their bytes."""
        most = limit if self._most is None else min(limit, self._most * BYTES_OF_A_LINE)
        try:
            data = self._fetcher.read(url, most, self.attempt)
        except DocumentTooLarge as failure:
            if most == limit:
                raise
            raise self._refusal() from failure
        with self._guard:
            if self._left is not None and self._most is not None:
                self._left -= len(data.splitlines()) if len(data) <= most else self._most + 1
                if self._left < 0:
                    raise self._refusal()
        return data

    def _refusal(self) -> UsageRefused:
        return UsageRefused(
            f"a dry run at this address reads at most {self._most:,} lines of manifests: "
            "try with fewer, or ask the operator for a dry run on a host of the repository"
        )


def read_jobs(
    jobs: Iterable[PlannedJob],
    submission: Submission,
    profile: Profile,
    manifests: Manifests,
    settings: Settings,
    most: int,
) -> list[DryRunJob]:
    """The jobs with their files; at most `most` object manifests are read."""
    dry_run_jobs = [DryRunJob(planned, number) for number, planned in enumerate(jobs, 1)]
    by_manifest = (job for job in dry_run_jobs if job.by_manifest)
    to_read = [*(job for job in dry_run_jobs if not job.by_manifest), *islice(by_manifest, most)]

    def read(job: DryRunJob, attempt: Attempt) -> None:
        attempt.check()
        _read(job, submission, profile, manifests, settings)

    for _, future in in_parallel(read, to_read, settings.download_threads, manifests.attempt):
        future.result()
    return dry_run_jobs


def _read(
    job: DryRunJob, submission: Submission, profile: Profile, manifests: Manifests, settings: Settings
) -> None:
    given = dict(submission) | dict(job.planned) | {"batch_id": "", "working_dir": ""}
    configuration = JobConfiguration.model_validate(given)
    try:
        if job.by_manifest:
            data = manifests.read(job.planned.payload_url, settings.manifest_limit)
            fold = not profile.case_sensitive_names
            job.files = read_manifest(data, configuration, case_fold=fold, most=settings.object_files)
        else:
            job.files = (payload_file(configuration),)
        check_files(profile, len(job.files))
    except StepFailed as failure:
        if failure.kind is FailureKind.TRANSIENT:
            job.doubts.append(failure.message)
            return
        job.failures.append(failure.message)
    job.read = True


def ask_sources(
    jobs: list[DryRunJob],
    fetcher: HttpFetcher,
    settings: Settings,
    most: int,
    attempt: Attempt = UNATTENDED,
) -> dict[str, ProbeResult]:
    """The answers of at most `most` URLs: first one URL per host, then the files without a declared size."""
    files = [(job, file) for job in jobs for file in job.files]
    first: dict[str, tuple[DryRunJob, FileSpec]] = {}
    for job, file in files:
        first.setdefault(host_of(file.url), (job, file))
    undeclared = ((job, file) for job, file in files if file.size is None)
    urls = list(dict.fromkeys(file.url for _, file in chain(first.values(), undeclared, files)))[:most]

    outcomes = in_parallel(partial(probe, fetcher), urls, settings.download_threads, attempt)
    answers = {url: future.result() for url, future in outcomes}
    for job, file in files:
        if file.url in answers:
            _compare(job, file, answers[file.url])
    return answers


def _compare(job: DryRunJob, file: FileSpec, answer: ProbeResult) -> None:
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


def check_sizes(jobs: Iterable[DryRunJob], profile: Profile, largest: int | None) -> None:
    """Note the jobs that are larger than the collection accepts, or need more than `largest` bytes."""
    for job in jobs:
        try:
            check_bytes(profile, sum(job.size(file) or 0 for file in job.files))
        except StepFailed as failure:
            job.failures.append(failure.message)
        if largest is not None and job.needed > largest:
            job.failures.append(
                f"it needs {in_units(job.needed)} of working storage, of which only {in_units(largest)} "
                "may be used: it would never start"
            )


def hosts(
    jobs: Iterable[DryRunJob],
    answers: dict[str, ProbeResult],
    fetcher: HttpFetcher,
    attempt: Attempt = UNATTENDED,
) -> tuple[Host, ...]:
    """The hosts, with a sample of the largest file that answered."""
    named: dict[str, list[tuple[FileSpec, int | None]]] = {}
    for job in jobs:
        for file in job.files:
            named.setdefault(_source_of(file.url), []).append((file, job.size(file)))
    return tuple(_host(name, files, answers, fetcher, attempt) for name, files in sorted(named.items()))


def _source_of(url: str) -> str:
    return SCHEME if is_upload(url) else host_of(url)


def _host(
    name: str,
    files: list[tuple[FileSpec, int | None]],
    answers: dict[str, ProbeResult],
    fetcher: HttpFetcher,
    attempt: Attempt,
) -> Host:
    probed = [answers[file.url] for file, _ in files if file.url in answers]
    available = {answer.url for answer in probed if not answer.failure}
    largest = max(
        ((file, size) for file, size in files if file.url in available),
        key=lambda pair: pair[1] or 0,
        default=None,
    )
    return Host(
        name=name,
        files=len(files),
        bytes=sum(size or 0 for _, size in files),
        latency=sum(answer.seconds for answer in probed) / len(probed) if probed else None,
        sample=sample(fetcher, largest[0].url, attempt) if largest else None,
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
