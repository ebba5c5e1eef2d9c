"""The cost of the record: transactions, reads and time for each state of a job.

Each round takes `JOBS` jobs through all their states with empty steps, one after another, as one worker
process does, and then the same life as single calls in the order of the seed documents. The ratio of the two
in the same round is the figure; the absolute numbers depend on the machine.
"""

import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

from benchmarks._output import run, tell
from benchmarks._packets import received
from pipeline.records import Job
from pipeline.settings import Settings
from pipeline.states import JOB, Event, JobState
from tests.servers import zookeeper
from tests.support import planting
from zkstate import paths
from zkstate.connection.session import Session, connect
from zkstate.record import jobs, record
from zkstate.record.jobs import JobMove

JOBS = 40
ROUNDS = 5


def fenced_life(session: Session, job: Job) -> None:
    while job.status.status is not JobState.COMPLETED:
        held = jobs.acquire(session, record.ticket(job), "benchmark")
        event = Event.ACQUIRE if job.status.status is JobState.PENDING else Event.SUCCEED
        job = jobs.move(session, held, JobMove(event, "benchmark"))


def single_calls(session: Session, job: Job) -> None:
    """The same states by the calls of the seed documents, one by one: neither fenced nor atomic."""
    zk = session.zk
    state = JobState.PENDING
    while state is not JobState.COMPLETED:
        target = JOB.next(state, Event.ACQUIRE if state is JobState.PENDING else Event.SUCCEED)
        zk.get_children(paths.queue(state))
        zk.create(paths.job_lock(job.jid), ephemeral=True)
        for path in (paths.job_status, paths.configuration, paths.identifiers, paths.priority):
            zk.get(path(job.jid))
        zk.set(paths.job_status(job.jid), b"{}")
        zk.delete(paths.queue_entry(state, 5, job.jid))
        zk.create(paths.queue_entry(target, 5, job.jid))
        zk.delete(paths.job_lock(job.jid))
        state = target


def measure(session: Session, life: Callable[[Session, Job], None], count: int = JOBS) -> tuple[float, float]:
    """(jobs per second, packets per state)."""
    _, jids = planting.split_batch(session, count)
    created = [jobs.load(session, jid) for jid in jids]
    packets, start = received(session), time.perf_counter()
    for job in created:
        life(session, job)
    took = time.perf_counter() - start
    states = count * len(JOB.working())
    return count / took, (received(session) - packets) / states


def main() -> None:
    rounds = []
    with (
        tempfile.TemporaryDirectory() as folder,
        zookeeper.running(Path(folder), quick_start=False) as server,
    ):
        settings = Settings(zk_hosts=server.hosts, zk_root="/benchmark")
        with connect(settings) as session:
            for _ in range(ROUNDS):
                rounds.append((measure(session, fenced_life), measure(session, single_calls)))
    ratios = [fenced[0] / single[0] for fenced, single in rounds]
    result = {
        "rounds": ROUNDS,
        "jobs": JOBS,
        "fenced_jobs_per_second": round(median(fenced[0] for fenced, _ in rounds), 1),
        "single_calls_jobs_per_second": round(median(single[0] for _, single in rounds), 1),
        "ratio": round(median(ratios), 2),
        "ratio_range": [round(min(ratios), 2), round(max(ratios), 2)],
        "packets_per_state_fenced": round(median(fenced[1] for fenced, _ in rounds), 1),
        "packets_per_state_single_calls": round(median(single[1] for _, single in rounds), 1),
        "per_state": "2 multis and 1 flight of 5 reads",
    }
    tell(result)


if __name__ == "__main__":
    run(main, __doc__)
