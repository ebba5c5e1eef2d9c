"""From the kill of a worker process until another process has its job.

In each working state a real task holds its job and its lock when the process is killed. ZooKeeper has to end
the session, the sweep has to notice, and the job's ticket has to go through Redis again: the goal is 5 s more
than the session timeout.
"""

import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from statistics import median

from benchmarks._costs import spread
from benchmarks._machine import machine, use_two_cores
from benchmarks._options import ROUNDS, option
from benchmarks._output import report, run
from benchmarks._stack import Stack, stack
from entrypoints.stack.child import Process
from pipeline.states import JOB, JobState
from tests.e2e.collection import body_of
from tests.support import planting
from tests.support.fleet import assert_completed, batch_ended, wait_for
from zkstate import paths
from zkstate.record import jobs

SESSION_TIMEOUT = option("SESSION_TIMEOUT", 20)
"""Seconds; 20 are shipped, and the server allows no fewer than 4."""

GOAL = 5.0
"""Seconds after the session timeout."""

Held = tuple[str, str, Process]
"""A batch, its job, and the process that holds the job."""


def held(own: Stack, state: JobState, number: int) -> Held:
    """A job in its own batch that a real task has brought to `state`, where it stays."""
    name = f"{state}-{number}"
    url = own.source.put(f"/{name}.txt", body_of(name))
    bid, (jid,) = planting.split_batch(
        own.session, 1, own.settings.working, payload_url=url, payload_name=f"{name}.txt"
    )
    stuck = own.fleet.start(name, "-m", "tests.support.stuck_worker", jid, str(state), wait=False)
    return bid, jid, stuck


def taken_after(own: Stack, jid: str, attempt: int, killed: float) -> float:
    """Seconds from `killed` until another process has acquired the job."""

    def taken() -> bool:
        return jobs.load(own.session, jid).status.attempt > attempt

    limit = SESSION_TIMEOUT + 120
    wait_for(own.session, paths.job_status(jid), taken, limit, lambda: str(jobs.load(own.session, jid)))
    return time.perf_counter() - killed


def one_round(own: Stack, number: int) -> dict[JobState, float]:
    """Seconds to recover, by state: all processes are killed at once while a worker and a beat wait."""
    holding = {state: held(own, state, number) for state in JOB.working()}
    for _, _, stuck in holding.values():
        own.fleet.wait_ready(stuck)
    attempts = [jobs.load(own.session, jid).status.attempt for _, jid, _ in holding.values()]
    others = [own.fleet.worker(f"worker-{number}", wait=False), own.fleet.beat(f"beat-{number}", wait=False)]
    for other in others:
        own.fleet.wait_ready(other)

    killed = time.perf_counter()
    for _, _, stuck in holding.values():
        stuck.kill()
    with ThreadPoolExecutor(len(holding)) as threads:
        wait = partial(taken_after, own, killed=killed)
        seconds = list(threads.map(wait, (jid for _, jid, _ in holding.values()), attempts))

    for bid, _, _ in holding.values():
        assert_completed(batch_ended(own.session, bid))
    for other in others:
        other.stop(30)
    return dict(zip(holding, seconds, strict=True))


def main() -> None:
    use_two_cores()
    with stack(zk_session_timeout=SESSION_TIMEOUT) as own:
        where = machine(own)
        rounds = [one_round(own, number) for number in range(ROUNDS)]
    limit = SESSION_TIMEOUT + GOAL
    slowest = [max(seconds.values()) for seconds in rounds]
    result = {
        "session_timeout_s": SESSION_TIMEOUT,
        "slowest_s": round(max(slowest), 1),
        "slowest_after_the_timeout_s": round(max(slowest) - SESSION_TIMEOUT, 1),
        "median_s": round(median(taken for seconds in rounds for taken in seconds.values()), 1),
        "by_state_s": {str(state): spread([seconds[state] for seconds in rounds]) for state in JOB.working()},
    }
    report("recovery", [taken / limit for taken in slowest], 1.0, max(slowest) <= limit, {**result, **where})


if __name__ == "__main__":
    run(main, __doc__)
