"""One large batch from submission to report and removal; all servers are killed halfway.

The manifest has `ARKLINE_BENCH_JOBS` rows, and the steps of the jobs do nothing. `ARKLINE_BENCH_CARRIED` jobs
(default: all) go through the fleet; the benchmark itself writes the ends of the others, as a fleet does. When
half of the carried jobs have ended, ZooKeeper, Redis, the worker and the beat are killed and restarted.
`ratio` divides the jobs per second of the last fifth of the carried jobs by those of the first.
"""

import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median, quantiles
from threading import Thread

from benchmarks import _commands, _source, _step_worker
from benchmarks._batches import create_and_complete, deposit_files, end_of
from benchmarks._ends import write_ends
from benchmarks._machine import machine, use_two_cores
from benchmarks._options import option
from benchmarks._output import report, run
from benchmarks._packets import counters
from benchmarks._stack import Stack, stack
from benchmarks._watching import Sample, Watch, watching
from entrypoints.stack.child import Process
from pipeline.states import JobState
from tests.support.fleet import wait_for
from zkstate import paths
from zkstate.queue import listings, queue
from zkstate.record import batches

JOBS = option("JOBS", 100_000)
CARRIED = option("CARRIED", JOBS)
OTHERS = option("OTHERS", 100)
"""Jobs of the batches that run during the removal of the large one."""

COMMANDS = option("COMMANDS", 3)
"""How often each command is timed."""

KILL = bool(option("KILL", 1))
PROCESSES = 2
GOAL = 0.9
MOST = 36_000.0
"""Maximum seconds to wait for anything."""


class Fleet:
    """A worker and a beat that are killed and restarted."""

    def __init__(self, own: Stack) -> None:
        self._own = own
        self._numbers = iter(range(1, 100))
        self.start()

    def start(self) -> None:
        number = next(self._numbers)
        self.worker: Process = _step_worker.worker(self._own.fleet, PROCESSES, f"worker-{number}")
        self.beat: Process = self._own.fleet.beat(f"beat-{number}", wait=False)
        for process in (self.worker, self.beat):
            self._own.fleet.wait_ready(process)

    def kill_everything(self) -> None:
        """Kill all processes at once, as a power failure would."""
        for process in (self.worker, self.beat, self._own.broker.process, self._own.zookeeper.process):
            process.kill()

    def pids(self) -> dict[str, int]:
        own = self._own
        processes = {
            "worker": self.worker,
            "beat": self.beat,
            "zookeeper": own.zookeeper.process,
            "redis": own.broker.process,
        }
        return {name: process.pid for name, process in processes.items() if process.running}


def main() -> None:
    use_two_cores()
    with (
        tempfile.TemporaryDirectory() as name,
        _source.serving(Path(name)) as source,
        stack(manifest_limit=50_000_000, retention=3600) as own,
    ):
        own.settings.working.mkdir(parents=True)
        where = machine(own)
        fleet = Fleet(own)
        create_and_complete(own.session, own.settings, 2 * PROCESSES)  # compiles and imports
        submitted = time.monotonic()
        bid = deposit_files(own.session, own.settings, source, Path(name), JOBS)
        with watching(own.settings, bid, fleet.pids) as watch:
            result = _of_life(own, fleet, watch, submitted)
        _say(str(result))
        result |= _of_removal(own, bid)
        result["peak_mb"] = {process: round(peak) for process, peak in sorted(watch.peaks.items())}
        first, last = _rates(watch)
    ratio = last / first if first else 0.0
    report(
        "backlog", [ratio], GOAL, ratio >= GOAL, {"jobs": JOBS, "carried_jobs": CARRIED, **result, **where}
    )


def _of_life(own: Stack, fleet: Fleet, watch: Watch, submitted: float) -> dict[str, object]:
    """Figures from the submission to the report."""
    batch = partial(batches.load, own.session, watch.bid)
    _wait(own, paths.batch_status(watch.bid), lambda: batch().status.total is not None)
    split = time.monotonic()
    _say(f"split into {batch().status.total} jobs in {split - submitted:.0f} s")
    fullest = _commands_of(own, watch.bid)
    server = counters(own.session)
    _wait_for(lambda: _latest(watch).ended >= CARRIED // 2)
    killed = time.monotonic()
    if KILL:
        fleet.kill_everything()
        killed = time.monotonic()
        _say(f"killed all processes at {_latest(watch).ended} of {JOBS} jobs")
        own.zookeeper.start()
        own.broker.start()
        fleet.start()
    started = time.monotonic()
    before = _latest(watch).ended
    _wait_for(lambda: _latest(watch).ended > before or before == JOBS)
    if planted := JOBS - CARRIED:
        write_ends(own.session, watch.bid, planted)
        _say(f"wrote the ends of {planted} jobs")
    end_of(own.session, watch.bid)
    ended = time.monotonic()
    _wait_for(lambda: _latest(watch).ended >= JOBS)  # a small batch may be reported before the next sample
    _wait(own, paths.queue(JobState.COMPLETED), lambda: not queue.counts(own.session)[JobState.COMPLETED])
    clean = time.monotonic()
    last_job = watch.seen(lambda sample: sample.ended >= JOBS).at
    _say(f"batch completed after {ended - submitted:.0f} s")
    first, last = _rates(watch)
    following = watch.seen(lambda sample: sample.ended > min(before, JOBS - 1))
    created = [sample for sample in watch.samples if sample.at <= split]
    result = {
        "split_s": round(split - submitted, 1),
        "jobs_created_per_second": round(_created_per_second(created)),
        "jobs_per_second_first_fifth": round(first, 1),
        "jobs_per_second_last_fifth": round(last, 1),
        "ended_at_the_kill": before,
        "servers_started_after_s": round(started - killed, 1),
        "next_job_ended_after_s": round(following.at - killed, 1),
        "report_s": round(max(0.0, ended - last_job), 1),
        "clean_up_s": round(max(0.0, clean - last_job), 1),
        "submit_to_report_s": round(ended - submitted, 1),
        "read_ms_during_split": _answers(created),
        "read_ms_during_jobs": _answers(watch.between(started, last_job)),
        "read_ms_during_report": _answers(watch.between(last_job, ended)),
        "znodes_at_the_fullest": int(server["zk_znode_count"]),
        "znode_data_mb_at_the_fullest": round(int(server["zk_approximate_data_size"]) / 1e6, 1),
    }
    return result | {f"{name}_s_at_the_fullest": took for name, took in fullest.items()}


def _of_removal(own: Stack, bid: str) -> dict[str, object]:
    """Archive and remove the batch while other batches run; compared with the same batches alone."""
    others = partial(create_and_complete, own.session, own.settings, OTHERS)
    others()
    alone = _timed(others)
    removal: list[tuple[float, float]] = []
    command = ("cleanup", "--older-than", "1s", "--reason", "benchmark", "--json")
    thread = Thread(target=lambda: removal.append(_commands.seconds_and_peak(own.settings, *command)))
    with watching(own.settings, bid, dict) as watch:
        thread.start()
        beside: list[float] = []
        while thread.is_alive() or not beside:
            beside.append(_timed(others))
        thread.join()
    assert bid not in listings.all_batches(own.session), f"{bid} was not removed"
    took, peak = removal[0]
    return {
        "removal_s": took,
        "removal_peak_mb": peak,
        "others_jobs_per_second_alone": round(OTHERS / alone, 1),
        "others_jobs_per_second_beside_removal": round(OTHERS / median(beside), 1),
        "others_jobs_per_second_beside_removal_least": round(OTHERS / max(beside), 1),
        "read_ms_during_removal": _answers(watch.samples),
    }


def _commands_of(own: Stack, bid: str) -> dict[str, float]:
    jid = queue.queued(own.session, JobState.PENDING)[-1]
    asked = {
        "help": ("--help",),
        "status": ("status",),
        "jobs": ("jobs",),
        "jobs_pending": ("jobs", "--state", "pending"),
        "why_job": ("why", jid),
        "why_batch": ("why", bid),
        "status_of_batch": ("status", bid),
    }
    if not COMMANDS:
        return {}
    return {
        name: median(_commands.seconds(own.settings, *arguments) for _ in range(COMMANDS))
        for name, arguments in asked.items()
    }


def _rates(watch: Watch) -> tuple[float, float]:
    """Jobs per second of the first fifth after the split, and of the last."""
    split = watch.seen(lambda sample: sample.created >= JOBS).ended
    return watch.rate(split, split + CARRIED // 5), watch.rate(JOBS - CARRIED // 5, JOBS)


def _created_per_second(samples: list[Sample]) -> float:
    growing = [sample for sample in samples if 0 < sample.created < JOBS]
    if len(growing) < 2:
        return 0.0
    return (growing[-1].created - growing[0].created) / (growing[-1].at - growing[0].at)


def _answers(samples: list[Sample]) -> dict[str, float]:
    """ZooKeeper's response time for another client in milliseconds: median, 99th percentile, maximum."""
    times = sorted(sample.answer_ms for sample in samples)
    if len(times) < 2:
        return {}
    return {
        "p50": round(median(times), 1),
        "p99": round(quantiles(times, n=100)[98], 1),
        "most": round(times[-1], 1),
    }


def _latest(watch: Watch) -> Sample:
    while not watch.samples:
        time.sleep(0.1)
    return watch.samples[-1]


def _wait_for(reached: Callable[[], bool]) -> None:
    while not reached():
        time.sleep(0.5)


def _timed(work: partial[None]) -> float:
    start = time.monotonic()
    work()
    return time.monotonic() - start


def _wait(own: Stack, path: str, reached: Callable[[], bool]) -> None:
    wait_for(own.session, path, reached, MOST, lambda: path)


def _say(text: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    run(main, __doc__)
