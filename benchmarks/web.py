"""The web process with `ARKLINE_BENCH_JOBS` jobs (100,000): first board, lists, streams, memory; its cost.

All jobs of the large record belong to one batch and are pending, as in the benchmark `lists`. `ratio` divides
the jobs per second of a fleet that a web process follows by those of the same fleet without it, round by
round.
"""

import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import requests

from benchmarks import lists
from benchmarks._output import report, run
from benchmarks._processes import cpu_seconds, peak_megabytes
from benchmarks._spent import seconds
from benchmarks._stack import Stack, stack
from benchmarks._viewers import seconds_to_screens
from entrypoints.stack.child import Process, free_ports
from pipeline.principal import Role
from pipeline.states import Event
from tests.e2e.collection import deposit
from tests.support import planting
from tests.support.fleet import batch_ended
from tests.support.web import new_token
from zkstate.queue import listings
from zkstate.record import jobs

ARKLINE = Path(sys.executable).parent / "arkline"
JOBS = int(os.environ.get("ARKLINE_BENCH_JOBS", "100000"))
STREAMS = 200
CHANGES = 10
ROUNDS = int(os.environ.get("ARKLINE_BENCH_ROUNDS", "3"))
BATCH = 60
"""Jobs per round of the fleet."""

LISTS = (
    "/v1/jobs?state=pending&limit=50",
    "/v1/jobs?limit=50",
    "/v1/batches?limit=50",
    "/v1/failures",
    "/jobs?state=pending",
    "/batches",
    "/failures",
)
GOALS = {"first_board_s": 3.0, "worst_list_ms": 100.0, "worst_screen_s": 1.0, "peak_mb": 250.0}
"""Upper bounds of figures."""

RATIO = 0.97


@dataclass(frozen=True)
class Web:
    process: Process
    url: str
    token: str
    first_board: float
    """Seconds from the start of the process until the board has every job."""

    def get(self, path: str) -> requests.Response:
        answer = requests.get(
            f"{self.url}{path}", headers={"Authorization": f"Bearer {self.token}"}, timeout=30
        )
        answer.raise_for_status()
        return answer


@contextmanager
def web(own: Stack, known: int) -> Iterator[Web]:
    """A web process for the block, entered once its board shows `known` jobs."""
    (port,) = free_ports(1)
    url, token = f"http://127.0.0.1:{port}", new_token(own.settings, f"bench-{port}", Role.OPERATOR)
    start = time.perf_counter()
    process = own.fleet.start("web", str(ARKLINE), "web", "--port", str(port), wait=False)
    while True:
        try:
            shown = Web(process, url, token, time.perf_counter() - start)
            if sum(shown.get("/v1/board").json()["jobs"].values()) >= known:
                break
        except requests.RequestException:
            assert process.running, process.log_tail(20)
        time.sleep(0.02)
    try:
        yield shown
    finally:
        process.terminate()
        process.stop(10)


def large_record() -> dict[str, float]:
    with stack() as own:
        lists.build(own.session, JOBS)
        with web(own, 0):
            pass  # its imports are now compiled
        with web(own, JOBS) as shown:
            pages = {path: median(seconds(lambda: shown.get(path)) for _ in range(5)) for path in LISTS}  # noqa: B023
            viewers = [new_token(own.settings, f"viewer-{n}", Role.VIEWER) for n in range(4)]
            ready = listings.all_jobs(own.session)[: CHANGES + 1]

            def move(number: int) -> str:
                return planting.apply_event(
                    own.session, jobs.load(own.session, ready[number]), Event.ACQUIRE
                ).jid

            screens = seconds_to_screens(shown.url, viewers, STREAMS, CHANGES, move)
            return {
                "first_board_s": round(shown.first_board, 2),
                "median_list_ms": round(1000 * median(pages.values()), 1),
                "worst_list_ms": round(1000 * max(pages.values()), 1),
                "median_screen_s": round(median(screens), 2),
                "worst_screen_s": round(max(screens), 2),
                "peak_mb": round(peak_megabytes(shown.process.pid)),
            }


@dataclass(frozen=True)
class Round:
    jobs_per_second: float
    fleet_cpu_ms: float
    """CPU of all processes except the web process, per job; the source and the depositor are not counted."""
    web_cpu_ms: float


def fleet_round(own: Stack, fleet: list[Process], followed: Web | None) -> Round:
    def cpu() -> tuple[float, float]:
        others = cpu_seconds([own.zookeeper.process.pid, *(process.pid for process in fleet)])
        return others, cpu_seconds([followed.process.pid]) if followed else 0.0

    before, start = cpu(), time.perf_counter()
    batch = batch_ended(own.session, deposit(own.session, own.settings, own.source, BATCH), timeout=300)
    took, after = time.perf_counter() - start, cpu()
    assert batch.status.status == "completed", batch.status.message
    fleet_cpu, web_cpu = (1000 * (end - begin) / BATCH for begin, end in zip(before, after, strict=True))
    return Round(BATCH / took, fleet_cpu, web_cpu)


def cost_to_the_fleet() -> tuple[list[float], dict[str, float]]:
    """The ratio of each round, and the costs of the two sides."""
    with stack() as own:
        fleet = [own.fleet.worker(), own.fleet.beat()]
        fleet_round(own, fleet, None)
        alone, followed = [], []
        for _ in range(ROUNDS):
            alone.append(fleet_round(own, fleet, None))
            with web(own, 0) as shown:
                followed.append(fleet_round(own, fleet, shown))
    ratios = [f.jobs_per_second / a.jobs_per_second for f, a in zip(followed, alone, strict=True)]
    web_cpu, fleet_cpu = (median(r.web_cpu_ms for r in followed), median(r.fleet_cpu_ms for r in alone))
    return ratios, {
        "jobs_per_second_alone": round(median(r.jobs_per_second for r in alone), 2),
        "jobs_per_second_followed": round(median(r.jobs_per_second for r in followed), 2),
        "fleet_cpu_ms_alone": round(fleet_cpu, 1),
        "fleet_cpu_ms_followed": round(median(r.fleet_cpu_ms for r in followed), 1),
        "web_cpu_ms": round(web_cpu, 1),
        "web_share_of_cpu": round(web_cpu / fleet_cpu, 3),
    }


def main() -> None:
    figures = large_record()
    ratios, cost = cost_to_the_fleet()
    met = median(ratios) >= RATIO and all(figures[name] < goal for name, goal in GOALS.items())
    report("web", ratios, RATIO, met, {"jobs": JOBS, "streams": STREAMS, **figures, **cost})


if __name__ == "__main__":
    run(main, __doc__)
