"""When a passing fault is met again: in ZooKeeper's time, less and less often, a finite number of times."""

from pipeline.outcome import StepFailed
from pipeline.settings import Settings
from pipeline.states import FailureKind


def delay_before_retry(failure: StepFailed, tries: int, settings: Settings) -> float | None:
    """Seconds until the next try, `tries` having failed before this one; None if there is none.

    Never less than the other side asked for.
    """
    if failure.kind is not FailureKind.TRANSIENT or tries + 1 >= settings.max_tries:
        return None
    delay: float = min(settings.backoff * 2**tries, settings.backoff_limit)
    return max(delay, failure.retry_after or 0)
