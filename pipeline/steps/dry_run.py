"""What a submission would come to, told without taking it in.

Rule: the same readers that judge a real job judge here, so that what passes here fails only by what
changes meanwhile.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import chain

from pipeline.attempt import UNATTENDED, Attempt
from pipeline.manifests.split import PlannedJob
from pipeline.names import quote_name as quoted
from pipeline.outcome import StepFailed
from pipeline.parallel import in_parallel
from pipeline.profiles.profile import Profile
from pipeline.records import JobConfiguration, PayloadType, Submission
from pipeline.settings import Settings
from pipeline.sources.fetch import Fetcher
from pipeline.sources.probe import Prober, ProbeResult, Sample
from pipeline.states import FailureKind
from pipeline.steps.estimate import CONTAINER_FACTOR
from pipeline.steps.expected_files import FileSpec, payload_file, read_manifest
from pipeline.urls import host_of
from pipeline.working_storage.capacity import in_units


@dataclass
class DryRunJob:
    """One job: the files that it would fetch, and what would make it fail."""

    planned: PlannedJob
    number: int
    """Its place in the batch, from 1."""
    files: tuple[FileSpec, ...] = ()
    failures: list[str] = field(default_factory=list)
    doubts: list[str] = field(default_factory=list)
    """What may pass until the job is really done."""
    sizes: dict[str, int] = field(default_factory=dict)
    read: bool = False

    @property
    def by_manifest(self) -> bool:
        return self.planned.payload_type is PayloadType.OBJECT_MANIFEST

    @property
    def needed(self) -> int:
        """Bytes of working storage, as estimating would count them."""
        known = sum(self.size(file) or 0 for file in self.files)
        return known * (CONTAINER_FACTOR if self.planned.payload_type is PayloadType.CONTAINER else 1)

    def size(self, file: FileSpec) -> int | None:
        return file.size if file.size is not None else self.sizes.get(file.url)


@dataclass(frozen=True)
class Host:
    """What a host would be asked for, and how it answered."""

    name: str
    files: int
    bytes: int
    latency: float | None
    """Seconds from a question to its answer, on average."""
    sample: Sample | None


def read_jobs(
    jobs: Iterable[PlannedJob],
    submission: Submission,
    profile: Profile,
    fetcher: Fetcher,
    settings: Settings,
    most: int,
) -> list[DryRunJob]:
    """Each job with its files; object manifests are read, `most` of them at most."""
    rehearsed = [DryRunJob(planned, number) for number, planned in enumerate(jobs, 1)]
    left_out = {each.number for each in [job for job in rehearsed if job.by_manifest][most:]}

    def read(job: DryRunJob, _: Attempt) -> None:
        _read(job, submission, profile, fetcher, settings)

    wanted = [each for each in rehearsed if each.number not in left_out]
    for _, future in in_parallel(read, wanted, settings.download_threads, UNATTENDED):
        future.result()
    return rehearsed


def _read(
    job: DryRunJob, submission: Submission, profile: Profile, fetcher: Fetcher, settings: Settings
) -> None:
    configuration = _configuration(job.planned, submission)
    case_fold = not profile.case_sensitive_names
    try:
        if job.by_manifest:
            data = fetcher.read(job.planned.payload_url, settings.object_manifest_limit)
            rows = read_manifest(data, configuration, case_fold=case_fold, most=settings.object_files).rows
            job.files = tuple(FileSpec(row.line, row.url, row.name, row.digest, row.size) for row in rows)
        else:
            job.files = (payload_file(configuration),)
    except StepFailed as failure:
        if failure.kind is FailureKind.TRANSIENT:
            job.doubts.append(failure.message)
            return
        job.failures.append(failure.message)
    job.read = True
    most = profile.limits.object_files
    if most is not None and len(job.files) > most:
        job.failures.append(f"the object has {len(job.files):,} files, but the collection takes {most:,}")


def _configuration(planned: PlannedJob, submission: Submission) -> JobConfiguration:
    return JobConfiguration(
        batch_id="",
        profile_name=submission.profile_name,
        payload_url=planned.payload_url,
        payload_type=planned.payload_type,
        payload_name=planned.payload_name,
        working_dir="",
        digest=planned.digest,
        size=planned.size,
    )


def ask_sources(
    jobs: list[DryRunJob], prober: Prober, settings: Settings, most: int
) -> dict[str, ProbeResult]:
    """What the URLs answered, `most` of them at most: first one of each host, then those without a size."""
    files = [(job, file) for job in jobs for file in job.files]
    first: dict[str, tuple[DryRunJob, FileSpec]] = {}
    for job, file in files:
        first.setdefault(host_of(file.url), (job, file))
    unsized = (each for each in files if each[1].size is None)
    urls = list(dict.fromkeys(file.url for _, file in chain(first.values(), unsized, files)))[:most]

    def probe(url: str, _: Attempt) -> ProbeResult:
        return prober.probe(url)

    answers = in_parallel(probe, urls, settings.download_threads, UNATTENDED)
    looked = {url: future.result() for url, future in answers}
    for job, file in files:
        if file.url in looked:
            _judge(job, file, looked[file.url])
    return looked


def _judge(job: DryRunJob, file: FileSpec, answer: ProbeResult) -> None:
    where = f"line {file.line}: " if len(job.files) > 1 else ""
    if answer.failure:
        (job.doubts if answer.transient else job.failures).append(f"{where}{answer.failure}")
    elif answer.size is not None:
        job.sizes[file.url] = answer.size
        if file.size is not None and file.size != answer.size:
            job.failures.append(
                f"{where}{quoted(file.name)}: the source has {answer.size:,} bytes, "
                f"but {file.size:,} were declared"
            )


def check_bytes(jobs: Iterable[DryRunJob], profile: Profile, largest: int | None) -> None:
    """Mark the jobs that are larger than the collection takes, or than `largest` bytes can ever hold."""
    for job in jobs:
        most = profile.limits.object_bytes
        if most is not None and sum(job.size(file) or 0 for file in job.files) > most:
            job.failures.append(f"the object has more than the {in_units(most)} that the collection takes")
        if largest is not None and job.needed > largest:
            job.failures.append(
                f"it needs {in_units(job.needed)} of working storage, of which only {in_units(largest)} "
                "may be used: it would wait for ever"
            )


def hosts(jobs: Iterable[DryRunJob], looked: dict[str, ProbeResult], prober: Prober) -> tuple[Host, ...]:
    """Each host with what it would be asked for; a sample is taken of its largest file that answered."""
    named: dict[str, list[tuple[FileSpec, int | None]]] = {}
    for job in jobs:
        for file in job.files:
            named.setdefault(host_of(file.url), []).append((file, job.size(file)))
    return tuple(_host(name, files, looked, prober) for name, files in sorted(named.items()))


def _host(
    name: str, files: list[tuple[FileSpec, int | None]], looked: dict[str, ProbeResult], prober: Prober
) -> Host:
    answers = [looked[file.url] for file, _ in files if file.url in looked]
    good = {answer.url for answer in answers if not answer.failure}
    largest = max(
        (each for each in files if each[0].url in good), key=lambda each: each[1] or 0, default=None
    )
    return Host(
        name=name,
        files=len(files),
        bytes=sum(size or 0 for _, size in files),
        latency=sum(answer.seconds for answer in answers) / len(answers) if answers else None,
        sample=prober.sample(largest[0].url) if largest else None,
    )


def repeated(jobs: Iterable[DryRunJob]) -> Iterator[str]:
    """What several jobs of the batch share, which may not be meant."""
    planned = [job.planned for job in jobs]
    shared = (
        ("URL", (each.payload_url for each in planned), "an object is made of each"),
        (
            "primary identifier",
            (each.primary_id for each in planned if each.primary_id),
            "they become versions of one object, in no certain order",
        ),
        (
            "local id",
            (local_id for each in planned for local_id in each.local_id),
            "they become versions of one object, in no certain order",
        ),
        (
            "digest",
            (f"{each.digest.algorithm}:{each.digest.value}" for each in planned if each.digest),
            "the same bytes are deposited more than once",
        ),
    )
    for what, values, meaning in shared:
        for value, times in Counter(values).items():
            if times > 1:
                yield f"{times:,} objects have the {what} {quoted(value)}: {meaning}"
