"""How long the downloads of a submission would take, and on which measurement that is based."""

from collections.abc import Sequence

from operations.wording import counted
from pipeline.records import Record
from pipeline.settings import Settings
from pipeline.steps.dry_run import Host
from pipeline.working_storage.capacity import in_units


class Estimate(Record):
    """Seconds of downloading alone: at least, if parallel connections add up, and at most; None: unknown."""

    least: float | None
    most: float | None
    basis: str


def estimate(hosts: Sequence[Host], settings: Settings) -> Estimate:
    """The seconds on one connection (most), and divided by the files that a job fetches at a time (least)."""
    measured = [(host, host.sample) for host in hosts if host.sample is not None]
    sampled = sum(sample.bytes for _, sample in measured)
    unsampled = [host.name for host in hosts if host.sample is None]
    left_out = f" {', '.join(unsampled[:5])} gave no sample and is not included." if unsampled else ""
    if not measured:
        return Estimate(least=None, most=None, basis=f"No source gave a sample.{left_out}")
    seconds = sum(
        host.bytes * sample.seconds / sample.bytes + host.files * (host.latency or 0.0)
        for host, sample in measured
    )
    basis = (
        f"Measured now: {in_units(sampled)} from {counted(len(measured), 'host')}, from this machine, on one "
        f"connection per host. The lower figure assumes that {settings.download_threads} connections "
        "(ARKLINE_DOWNLOAD_THREADS) are so many times as fast, the higher one that they are not faster. "
        "Not included: waiting behind other jobs, processing, storing, and files of unknown "
        f"size.{left_out}"
    )
    return Estimate(least=round(seconds / settings.download_threads, 1), most=round(seconds, 1), basis=basis)
