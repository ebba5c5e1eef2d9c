"""The cost of a list compared with one read of every job in it: 10,000 jobs, or `ARKLINE_BENCH_JOBS`.

All jobs belong to one batch and are pending. `seconds_*` is one call; `ratio` divides the time to read every
job by that of a page of the queue, in the same round.
"""

import os
import tempfile
from pathlib import Path
from statistics import median

from benchmarks._output import run, tell
from benchmarks._spent import seconds
from operations.board.board import Board
from operations.board.values import EVERYTHING, JobPage, JobSearch
from operations.fleet.health import overview
from operations.jobs import job_view
from operations.jobs.batch_view import batch_view
from operations.site import Site
from pipeline.settings import Settings
from pipeline.states import Bucket, Event, JobState
from tests.servers import zookeeper
from tests.support import planting
from tests.support.operators import ANN
from zkstate import paths
from zkstate.connection.session import Session, connect
from zkstate.queue import listings
from zkstate.record import jobs

WHOLE = 1000
"""Jobs with all their znodes; the others have only the names that lists count."""

PIECE = 400
"""Jobs per transaction; ten transactions are in flight at a time."""

JOBS = int(os.environ.get("ARKLINE_BENCH_JOBS", "10000"))
ROUNDS = 5
FILL_SECONDS = 600.0
PAGE = 50


def build(session: Session, count: int) -> str:
    """Create a batch of `count` pending jobs; returns its BID."""
    bid, _ = planting.split_batch(session, min(count, WHOLE))
    flights = []
    for start in range(WHOLE + 1, count + 1, PIECE):
        names = session.zk.transaction()
        for number in range(start, min(start + PIECE, count + 1)):
            jid = f"jid{number:010d}"
            names.create(paths.job(jid))
            names.create(paths.queue_entry(JobState.PENDING, 5, jid))
            names.create(paths.batch_entry(bid, Bucket.PROCESSING, jid))
        flights.append(names.commit_async())
        if len(flights) > 10:
            flights.pop(0).get(timeout=60)
    for flight in flights:
        flight.get(timeout=60)
    return bid


def measure(session: Session, settings: Settings, board: Board, bid: str) -> dict[str, float]:
    def page(after: str | None = None, **conditions: object) -> JobPage:
        search = JobSearch.model_validate(conditions)
        return job_view.rows(session, board, EVERYTHING, search, PAGE, after)

    cursor = page(state=JobState.PENDING).next
    sample = listings.all_jobs(session)[:WHOLE]
    return {
        "jobs_by_state": seconds(lambda: page(state=JobState.PENDING)),
        "next_page": seconds(lambda: page(cursor, state=JobState.PENDING)),
        "jobs_of_batch": seconds(lambda: page(bid=bid)),
        "completed_jobs": seconds(lambda: page(state=JobState.COMPLETED)),
        "status_of_batch": seconds(lambda: batch_view(Site(settings, session), ANN, bid)),
        "overview": seconds(lambda: overview(Site(settings, session), ANN)),
        "every_job": JOBS / len(sample) * seconds(lambda: list(listings.job_rows(session, sample))),
    }


def main() -> None:
    with (
        tempfile.TemporaryDirectory() as folder,
        zookeeper.running(Path(folder), quick_start=False) as server,
    ):
        settings = Settings(zk_hosts=server.hosts, zk_root="/benchmark")
        with connect(settings) as session:
            bid = build(session, JOBS)
            planting.apply_event(session, jobs.load(session, "jid0000000001"), Event.ACQUIRE)
            board = Board.on_demand(session, FILL_SECONDS)
            rounds = [measure(session, settings, board, bid) for _ in range(ROUNDS)]
            board.close()
    figures = {f"seconds_{name}": round(median(r[name] for r in rounds), 3) for name in rounds[0]}
    ratio = median(r["every_job"] / r["jobs_by_state"] for r in rounds)
    tell({"rounds": ROUNDS, "jobs": JOBS, **figures, "ratio": round(ratio, 1)})


if __name__ == "__main__":
    run(main, __doc__)
