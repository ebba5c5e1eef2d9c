"""The board of a web process: time to the first board, and a list page; `ARKLINE_BENCH_JOBS` jobs or 10,000.

All jobs belong to one batch and are pending, as in the benchmark `lists`.
"""

import tempfile
import time
from pathlib import Path
from statistics import median

from benchmarks import lists
from benchmarks._output import tell
from operations.board.board import Board
from operations.board.values import EVERYTHING, JobSearch
from pipeline.settings import Settings
from pipeline.states import JobState
from tests.servers import zookeeper
from zkstate.session import connect

ROUNDS = 3
PAGE = 50


def main() -> None:
    filled, pages = [], []
    with tempfile.TemporaryDirectory() as folder, zookeeper.running(Path(folder)) as server:
        settings = Settings(zk_hosts=server.hosts, zk_root="/benchmark")
        with connect(settings) as session:
            lists.build(session)
            for _ in range(ROUNDS):
                start = time.perf_counter()
                board = Board.open(session, settings)
                assert board.wait_filled(300)
                filled.append(time.perf_counter() - start)
                pending = JobSearch(state=JobState.PENDING)
                pages.append(lists.seconds(lambda: board.jobs(EVERYTHING, pending, PAGE)))  # noqa: B023
                board.close()
    figures = {"seconds_first_board": round(median(filled), 3), "seconds_page": round(median(pages), 4)}
    tell({"rounds": ROUNDS, "jobs": lists.JOBS, **figures})


if __name__ == "__main__":
    main()
