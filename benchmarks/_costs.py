"""The costs of work: seconds, CPU of every process involved, packets to ZooKeeper."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from benchmarks._packets import received
from benchmarks._processes import cpu_by_process
from zkstate.connection.session import Session


@dataclass(frozen=True)
class Costs:
    """The costs of `jobs` jobs, processes by name; `NAME_children` are those that NAME has started."""

    jobs: int
    seconds: float
    cpu_seconds: Mapping[str, float]
    packets: int

    @property
    def jobs_per_second(self) -> float:
        return self.jobs / self.seconds

    @property
    def cpu_ms(self) -> float:
        """CPU of all processes per job."""
        return 1000 * sum(self.cpu_seconds.values()) / self.jobs

    @property
    def packets_a_job(self) -> float:
        return self.packets / self.jobs


def measured(session: Session, pids: Mapping[str, int], jobs: int, work: Callable[[], object]) -> Costs:
    """The costs of `work`, which completes `jobs` jobs; this process is the sender."""

    def cpu() -> dict[str, float]:
        return {**cpu_by_process(pids), "sender": time.process_time()}

    packets, before, start = received(session), cpu(), time.perf_counter()
    work()
    took, after = time.perf_counter() - start, cpu()
    used = {name: seconds - before.get(name, 0.0) for name, seconds in after.items()}
    return Costs(jobs, took, used, received(session) - packets)


def figures(side: str, rounds: Sequence[Costs]) -> dict[str, object]:
    """Medians of the rounds, with names prefixed by the side."""
    return {
        f"{side}_jobs": rounds[0].jobs,
        f"{side}_jobs_per_second": round(median(c.jobs_per_second for c in rounds), 2),
        f"{side}_jobs_per_second_range": spread([c.jobs_per_second for c in rounds]),
        f"{side}_cpu_ms_a_job": round(median(c.cpu_ms for c in rounds), 1),
        f"{side}_cpu_ms_a_job_range": spread([c.cpu_ms for c in rounds]),
        f"{side}_cpu_ms_a_job_by_process": cpu_ms_by_process(rounds),
        f"{side}_packets_a_job": round(median(c.packets_a_job for c in rounds), 1),
        f"{side}_packets_a_job_range": spread([c.packets_a_job for c in rounds]),
    }


def cpu_ms_by_process(rounds: Sequence[Costs]) -> dict[str, float]:
    """Medians per job."""
    names = sorted({name for costs in rounds for name in costs.cpu_seconds})
    return {n: round(median(1000 * c.cpu_seconds.get(n, 0) / c.jobs for c in rounds), 1) for n in names}


def spread(values: Sequence[float]) -> list[float]:
    """Minimum and maximum."""
    return [round(min(values), 2), round(max(values), 2)]
