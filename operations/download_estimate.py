"""How long a submission's files would take to arrive, with what that is told from."""

from collections.abc import Sequence

from operations.wording import counted
from pipeline.records import Record
from pipeline.settings import Settings
from pipeline.steps.dry_run import Host
from pipeline.working_storage.capacity import in_units


class Estimate(Record):
    """Seconds of downloading alone: if connections at once add up, and if they do not; None: unknown."""

    least: float | None
    most: float | None
    basis: str


def estimate(hosts: Sequence[Host], settings: Settings) -> Estimate:
    """One connection's seconds, divided among the files that a job fetches at a time, or not."""
    measured = [(host, host.sample) for host in hosts if host.sample is not None]
    sampled = sum(sample.bytes for _, sample in measured)
    silent = [host.name for host in hosts if host.sample is None]
    left_out = f" {', '.join(silent[:5])} gave no sample and is left out." if silent else ""
    if not measured:
        return Estimate(least=None, most=None, basis=f"No source gave a sample.{left_out}")
    seconds = sum(
        host.bytes * sample.seconds / sample.bytes + host.files * (host.latency or 0.0)
        for host, sample in measured
    )
    basis = (
        f"From {in_units(sampled)} read just now of {counted(len(measured), 'host')}, from this machine and "
        f"on one connection each: the least if {settings.download_threads} connections at a time "
        "(ARKLINE_DOWNLOAD_THREADS) are so many times as fast, the most if they are no faster together. "
        "Jobs that are before it or run beside it, processing and storing are not in it, nor are files "
        f"of unknown size.{left_out}"
    )
    return Estimate(least=round(seconds / settings.download_threads, 1), most=round(seconds, 1), basis=basis)
