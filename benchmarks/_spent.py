"""The time and CPU of work in this process, including programs that it starts and waits for."""

import resource
import time
from collections.abc import Callable, Sequence
from statistics import median
from typing import NamedTuple


class Spent(NamedTuple):
    seconds: float
    cpu: float
    """Seconds of CPU, user and system."""


def spent(work: Callable[[], object]) -> Spent:
    cpu, start = _cpu(), time.perf_counter()
    work()
    return Spent(time.perf_counter() - start, _cpu() - cpu)


def seconds(work: Callable[[], object]) -> float:
    return spent(work).seconds


def ratios(beside: Sequence[Spent], own: Sequence[Spent]) -> list[float]:
    """How many times longer the baseline took, round by round."""
    return [other.seconds / one.seconds for other, one in zip(beside, own, strict=True)]


def medians(side: str, rounds: Sequence[Spent]) -> dict[str, float]:
    """The median time and CPU of one side of a benchmark, prefixed with the side's name."""
    return {
        f"{side}_s": round(median(one.seconds for one in rounds), 3),
        f"{side}_cpu_s": round(median(one.cpu for one in rounds), 3),
    }


def a_second(number: int, rounds: Sequence[Spent]) -> int:
    return round(number / median(one.seconds for one in rounds))


def _cpu() -> float:
    used = [resource.getrusage(of) for of in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)
