"""Retries after a transient fault: with growing delays, a finite number of times."""

from pipeline.outcome import StepFailed
from pipeline.settings import Settings
from pipeline.states import FailureKind


def delay_before_retry(failure: StepFailed, tries: int, settings: Settings) -> float | None:
    """Seconds until the next try, if `tries` tries failed before this one; None if there is no next try.

    At least the time that the other service asked for. ZooKeeper's clock measures the delay.
    """
    if failure.kind is not FailureKind.TRANSIENT or tries + 1 >= settings.max_tries:
        return None
    delay: float = min(settings.backoff * 2**tries, settings.backoff_limit)
    return max(delay, failure.retry_after or 0)
