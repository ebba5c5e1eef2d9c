"""From submit to completed: one file on an idle stack, and the same work without the pipeline.

The stack is real: ZooKeeper, Redis, one worker with two processes, a beat, a source over HTTP. The baseline
is one Python process that fetches the same file and stores it in an OCFL root, without keeping any state. The
two take turns.
"""

import tempfile
import time
from pathlib import Path
from statistics import median, quantiles

from benchmarks import _source
from benchmarks._costs import Costs, cpu_ms_by_process, measured, spread
from benchmarks._machine import machine, use_two_cores
from benchmarks._options import ROUNDS, option
from benchmarks._output import report, run
from benchmarks._stack import Stack, stack
from pipeline.attempt import UNATTENDED
from pipeline.fixity import ContentFile
from pipeline.records import SubmissionMode, SubmissionType
from pipeline.settings import Settings
from pipeline.sources.download import Download
from pipeline.sources.fetch import HttpFetcher
from pipeline.storage.base import StoreRequest
from pipeline.storage.ocfl.storage import OcflStorage
from tests.e2e.collection import submit
from tests.support.fleet import assert_completed, batch_ended, quiet

JOBS = option("JOBS", 20)
"""Deposits per round."""

GOAL = 10.0
TAIL = 2.0
"""Maximum of p95 divided by p50."""


def through_the_pipeline(own: Stack, url: str) -> float:
    quiet(own.session)
    start = time.perf_counter()
    batch = batch_ended(own.session, submit(own.session, own.settings, url, SubmissionType.FILE))
    took = time.perf_counter() - start
    assert_completed(batch)
    return took


def by_hand(settings: Settings, url: str, number: int, folder: Path) -> float:
    start = time.perf_counter()
    target = folder / f"{number}.txt"
    download = Download(url=url, target=target, part=folder / f"{number}.part")
    downloaded = HttpFetcher(settings).download(download, UNATTENDED)
    file = ContentFile("producer/a.txt", target, downloaded.size, downloaded.sha512)
    request = StoreRequest(f"ark:/99999/b{number}", f"b{number}", SubmissionMode.ADD, (file,))
    OcflStorage(folder / "ocfl").store(request, lambda: None)
    return time.perf_counter() - start


def percentile(values: list[float], percent: int) -> float:
    return quantiles(values, n=100, method="inclusive")[percent - 1] if len(values) > 1 else values[0]


def main() -> None:
    use_two_cores()
    rounds: list[list[tuple[float, float]]] = []
    costs: list[Costs] = []
    with tempfile.TemporaryDirectory() as name, _source.serving(Path(name)) as source, stack() as own:
        where = machine(own)
        fleet = own.counted(worker=own.fleet.worker(wait=False), beat=own.fleet.beat(wait=False))
        numbers = iter(range(1_000_000))

        def both() -> tuple[float, float]:
            number = next(numbers)
            url = f"{source}{_source.SMALL}{number}"
            return through_the_pipeline(own, url), by_hand(own.settings, url, number, Path(name))

        for _ in range(2 * JOBS):
            both()  # imports; ZooKeeper's JIT and both worker processes compile
        for _ in range(ROUNDS):
            costs.append(
                measured(own.session, fleet, JOBS, lambda: rounds.append([both() for _ in range(JOBS)]))
            )
    whole, hand = ([times[side] for deposits in rounds for times in deposits] for side in (0, 1))
    ratios = [median(t[0] for t in deposits) / median(t[1] for t in deposits) for deposits in rounds]
    middle, tail = percentile(whole, 50), percentile(whole, 95)
    result = {
        "deposits": len(whole),
        "submit_to_completed_ms_p50": round(1000 * middle),
        "submit_to_completed_ms_p50_range": spread(
            [1000 * median(t[0] for t in deposits) for deposits in rounds]
        ),
        "submit_to_completed_ms_p95": round(1000 * tail),
        "submit_to_completed_ms_max": round(1000 * max(whole)),
        "p95_by_p50": round(tail / middle, 2),
        "p95_by_p50_goal": TAIL,
        "by_hand_ms_p50": round(1000 * median(hand), 1),
        "by_hand_ms_p95": round(1000 * percentile(hand, 95), 1),
        "packets_a_deposit": round(median(c.packets_a_job for c in costs), 1),
        "cpu_ms_a_deposit": round(median(c.cpu_ms for c in costs), 1),
        "cpu_ms_a_deposit_by_process": cpu_ms_by_process(costs),
    }
    report("latency", ratios, GOAL, median(ratios) <= GOAL and tail <= TAIL * middle, {**result, **where})


if __name__ == "__main__":
    run(main, __doc__)
