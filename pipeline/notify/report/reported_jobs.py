"""The jobs of a report, packed one line each: a batch may have 100,000 jobs."""

from collections.abc import Callable, Iterable
from typing import Any, Self

from pydantic import GetCoreSchemaHandler
from pydantic_core import CoreSchema, core_schema

from pipeline.packed import Packed, packed_groups
from pipeline.records import Record
from pipeline.states import FailureKind, JobState


class ReportedJob(Record):
    jid: str
    name: str
    local_id: tuple[str, ...] = ()
    ark: str | None = None
    title: str = ""
    state: JobState
    kind: FailureKind | None = None
    message: str = ""
    advice: str = ""
    remark: str = ""
    """What the depositor should check, although nothing failed."""


class ReportedJobs(Packed[ReportedJob]):
    """A list in reports, in JSON and in schemas."""

    @classmethod
    def of(cls, jobs: Iterable[ReportedJob]) -> Self:
        return cls(*packed_groups((None, _text(job)) for job in jobs).get(None, ()))

    def decoded(self, text: bytes) -> ReportedJob:
        return ReportedJob.model_validate_json(text)

    @classmethod
    def __get_pydantic_core_schema__(cls, _: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        """Read and written a job at a time."""
        jobs = core_schema.generator_schema(handler(ReportedJob))
        written = core_schema.plain_serializer_function_ser_schema(iter, return_schema=jobs)
        return core_schema.no_info_after_validator_function(cls.of, jobs, serialization=written)


def by_state(
    jobs: Iterable[ReportedJob], group: Callable[[ReportedJob], JobState | None]
) -> dict[JobState | None, ReportedJobs]:
    """The jobs of each group by their ids."""
    last, ordered = "", True

    def lines() -> Iterable[tuple[JobState | None, str]]:
        nonlocal last, ordered
        for job in jobs:
            last, ordered = job.jid, ordered and last <= job.jid
            yield group(job), _text(job)

    grouped = {state: ReportedJobs(*packed) for state, packed in packed_groups(lines()).items()}
    if ordered:
        return grouped
    return {
        state: ReportedJobs.of(sorted(packed, key=lambda job: job.jid)) for state, packed in grouped.items()
    }


def _text(job: ReportedJob) -> str:
    return job.model_dump_json(exclude_defaults=True)
