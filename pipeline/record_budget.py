"""How many jobs the record may have: ZooKeeper keeps all of them in its memory."""

from pipeline.settings import Settings

JOB_BYTES = 12_000
"""Of ZooKeeper's heap, for one job with a long history (decision 48)."""

PERCENT = 70
"""Of the heap for jobs; the rest is for the work of the server."""


def accepted_jobs(settings: Settings, heap_bytes: int | None) -> int:
    """Jobs from which on nothing is submitted or split; 0: no limit.

    `heap_bytes`: ZooKeeper's heap, if it is known; a smaller heap lowers the setting.
    """
    if not settings.record_jobs or heap_bytes is None:
        return settings.record_jobs
    return min(settings.record_jobs, heap_bytes * PERCENT // 100 // JOB_BYTES)


def limit_of(settings: Settings, heap_bytes: int | None) -> str:
    """The name of what limits the jobs."""
    if heap_bytes is None or accepted_jobs(settings, heap_bytes) == settings.record_jobs:
        return "ARKLINE_RECORD_JOBS"
    return f"the maximum for ZooKeeper's heap of {heap_bytes >> 20:,} MB"
