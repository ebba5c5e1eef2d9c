"""The split of a batch's payload into jobs: one job per object, packed to save memory.

Rule: the same payload always gives the same plan, so that an interrupted split continues where it stopped.
The plan's digest shows whether the payload has changed since.
"""

import json
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from hashlib import sha256
from itertools import islice

from pipeline import causes
from pipeline.fixity import Digest
from pipeline.http.urls import host_of
from pipeline.manifests.checkm import (
    PROBLEM_LIMIT,
    ManifestError,
    ManifestProfile,
    Problem,
    ReadRows,
    Row,
    check_declared,
    parse_rows,
    repeated_identifiers,
)
from pipeline.names import PRODUCER, UnsafeName, foreign_upload, is_ark, quote_name, safe_name
from pipeline.outcome import caused_by, content
from pipeline.packed import BLOCK, Packed, packed_block
from pipeline.records import PayloadType, Priority, Record, Submission, SubmissionType, Text


class PlannedJob(Record):
    """One object to create; absent values are taken from the submission."""

    payload_url: str
    payload_type: PayloadType
    payload_name: Text
    named_by_source: bool = False
    digest: Digest | None = None
    size: int | None = None
    erc_who: Text = ""
    erc_what: Text = ""
    erc_when: Text = ""
    local_id: tuple[Text, ...] = ()
    primary_id: Text | None = None
    priority: Priority | None = None


@dataclass(frozen=True)
class Plan:
    jobs: Sequence[PlannedJob]
    sha256: str
    """Digest of the payload's content, without the priority, which an operator may change at any time."""


@dataclass(frozen=True)
class PackedJobs(Packed[PlannedJob]):
    """Jobs that are unpacked when read; all have `priority`."""

    priority: int | None = None

    def decoded(self, text: bytes) -> PlannedJob:
        if self.priority is not None:
            text = text[:-1] + b',"priority":%d}' % self.priority
        return PlannedJob.model_validate_json(text)


def pack(jobs: Iterator[PlannedJob]) -> tuple[tuple[bytes, ...], int, str]:
    """The blocks of the jobs, their number, and the digest of their content."""
    digest, blocks, count = sha256(b"["), list[bytes](), 0
    while block := list(islice(jobs, BLOCK)):
        comma = "," if blocks else ""
        digest.update(f"{comma}{','.join(map(_canonical, block))}".encode())
        blocks.append(
            packed_block(job.model_dump_json(exclude_defaults=True, exclude={"priority"}) for job in block)
        )
        count += len(block)
    digest.update(b"]")
    return tuple(blocks), count, digest.hexdigest()


def _canonical(job: PlannedJob) -> str:
    """The job's text for the digest, the same in every release: no defaults, the type as in 0.1.0."""
    values = job.model_dump(mode="json", exclude_defaults=True) | {"payload_type": job.payload_type.label}
    return json.dumps(values, sort_keys=True, separators=(",", ":"))


_SINGLE = {
    SubmissionType.FILE: PayloadType.FILE,
    SubmissionType.CONTAINER: PayloadType.CONTAINER,
    SubmissionType.OBJECT_MANIFEST: PayloadType.OBJECT_MANIFEST,
}
_TYPE_OF_ROWS = {
    ManifestProfile.BATCH: PayloadType.OBJECT_MANIFEST,
    ManifestProfile.CONTAINER_BATCH: PayloadType.CONTAINER,
    ManifestProfile.FILE_BATCH: PayloadType.FILE,
}
_BATCHES = {profile.submission_type: profile for profile in _TYPE_OF_ROWS}


@caused_by(causes.MANIFEST_INVALID())
def plan(
    submission: Submission,
    read: Callable[[str, int], bytes],
    limit: int,
    profile_priority: int | None = None,
    most_jobs: int | None = None,
    parse: ReadRows = parse_rows,
) -> Plan:
    """The jobs of a submission. `read(url, limit)` fetches a batch manifest; nothing else is fetched.

    StepFailed(content) if the payload cannot be split: the depositor has to submit another one.
    """
    profile = _BATCHES.get(submission.type)
    if profile is None:
        jobs = iter((_single(submission),))
    else:
        jobs = _from_rows(submission, profile, _manifest(submission, read, limit), most_jobs, parse)
    blocks, count, sha256 = pack(jobs)
    given = submission.priority if submission.priority is not None else profile_priority
    priority = priority_of(count) if given is None else given
    return Plan(PackedJobs(blocks, count, priority), sha256)


def priority_of(jobs: int) -> int:
    """Small batches first: 5 for one job, 28 for ten, 51 for a hundred, 99 from 12,089 on; 0 is urgent."""
    return min(99, int(10 * math.log(max(jobs, 1)) + 5))


def _name(submission: Submission) -> str:
    return submission.payload_name or "the payload"


def _single(submission: Submission) -> PlannedJob:
    by_source = _may_be_named_by_source(submission)
    name = submission.payload_name
    try:
        name = safe_name(name, PRODUCER)
    except UnsafeName as error:
        if not by_source:
            message = f"the payload's {error}: submit it under another name (--name)"
            raise content(message).because(causes.NAME_REFUSED()) from error
        name = host_of(submission.payload_url)  # until the source answers
    if submission.primary_id and not is_ark(submission.primary_id):
        raise content(
            f"primary identifier {quote_name(submission.primary_id)} is not an ARK such as ark:/99999/fk4abc"
        ).because(causes.IDENTIFIER_INVALID())
    return PlannedJob(
        payload_url=submission.payload_url,
        payload_type=_SINGLE[submission.type],
        payload_name=name,
        named_by_source=by_source,
        digest=submission.digest,
        size=submission.size,
        erc_who=submission.erc_who,
        erc_what=submission.erc_what,
        erc_when=submission.erc_when,
        local_id=submission.local_id,
        primary_id=submission.primary_id or None,
    )


def _may_be_named_by_source(submission: Submission) -> bool:
    """Whether the payload gets the name that the source states, if it states one."""
    is_one = submission.type in (SubmissionType.FILE, SubmissionType.CONTAINER)
    return is_one and not submission.payload_filename


def _manifest(submission: Submission, read: Callable[[str, int], bytes], limit: int) -> bytes:
    name = _name(submission)
    data = read(submission.payload_url, limit)
    if len(data) > limit:
        raise content(
            f"manifest {quote_name(name)} is larger than {limit} bytes: divide it into several batches"
        ).because(causes.LIMIT_EXCEEDED(limit=f"of {limit:,} bytes for a document"))
    check_declared(data, quote_name(name), submission.size, submission.digest)
    return data


def _from_rows(
    submission: Submission, profile: ManifestProfile, data: bytes, most: int | None, parse: ReadRows
) -> Iterator[PlannedJob]:
    if submission.primary_id:
        raise content(
            f"primary identifier {quote_name(submission.primary_id)} was given for a whole "
            f"batch, but each object "
            "has its own: give it in the manifest's column mrt:primaryIdentifier"
        )
    foreign = None
    source = quote_name(_name(submission))
    judged = submission.new_version is not None  # before 0.2.1 an identifier could be repeated
    problems: list[Problem] = []
    lines: dict[tuple[str, str], int] = {}
    for row in parse(data, source, profile, True, most):
        if judged and len(problems) < PROBLEM_LIMIT:
            repeats = repeated_identifiers(row.local_id, row.primary_id, row.line, lines)
            problems += [Problem(row.line, message) for message in repeats]
        if foreign is None and (problem := foreign_upload(row.url, submission.payload_url)):
            foreign = f"line {row.line}: {problem}"
        yield _from_row(submission, profile, row)
    if problems:
        raise content(str(ManifestError(source, problems)))
    if foreign:
        raise content(foreign)


def _from_row(submission: Submission, profile: ManifestProfile, row: Row) -> PlannedJob:
    """The row's values, else the submission's; local ids, digest and size come from the row only."""
    return PlannedJob(
        payload_url=row.url,
        payload_type=_TYPE_OF_ROWS[profile],
        payload_name=row.name,
        digest=row.digest,
        size=row.size,
        erc_who=row.creator or submission.erc_who,
        erc_what=row.title or submission.erc_what,
        erc_when=row.date or submission.erc_when,
        local_id=row.local_id,
        primary_id=row.primary_id,
    )
