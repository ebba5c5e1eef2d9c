"""The cost of host limits: small files fetched with the fleet's limit, and without it.

Each round fetches the same files from a source on loopback three times: without a limit and ZooKeeper; as one
attempt that keeps its connection from file to file; and as one attempt per file, each of which acquires and
releases a connection. The ratio to the first within the same round is the figure.
"""

import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from functools import partial
from pathlib import Path
from statistics import median

from benchmarks._output import run, tell
from benchmarks._packets import received
from pipeline.attempt import UNATTENDED
from pipeline.settings import Settings
from pipeline.sources.download import Download
from pipeline.sources.fetch import HttpFetcher
from tests.servers import zookeeper
from tests.servers.http_source import HttpSource
from zkstate.connection.session import Session, connect
from zkstate.fleet.hosts import FleetHostLimiter

FILES = 50
SIZE = 10_000
ROUNDS = 21

Fetch = Callable[[Download], object]


@contextmanager
def in_line(fetcher: HttpFetcher, session: Session) -> Iterator[HttpFetcher]:
    with closing(FleetHostLimiter(session, lambda: 32, "benchmark")) as limiter:
        yield fetcher.limited_by(limiter)


def fetch(fetcher: HttpFetcher, download: Download) -> None:
    fetcher.download(download, UNATTENDED)


def fetch_alone(fetcher: HttpFetcher, session: Session, download: Download) -> None:
    with in_line(fetcher, session) as polite:
        fetch(polite, download)


def measure(session: Session, url: str, work: Fetch) -> tuple[float, float]:
    """(milliseconds, packets to ZooKeeper) per file."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        files = [Download(url, folder / f"{n}", folder / f"{n}.part") for n in range(FILES)]
        packets, start = received(session), time.perf_counter()
        for download in files:
            work(download)
        took = time.perf_counter() - start
        return took * 1000 / FILES, (received(session) - packets) / FILES


def main() -> None:
    rounds = []
    with ExitStack() as opened:
        folder = Path(opened.enter_context(tempfile.TemporaryDirectory()))
        server = opened.enter_context(zookeeper.running(folder / "zk", quick_start=False))
        settings = Settings(zk_hosts=server.hosts, zk_root="/host-limits", allow_networks="127.0.0.0/8")
        session = opened.enter_context(connect(settings))
        fetcher = opened.enter_context(HttpFetcher(settings))
        url = opened.enter_context(HttpSource()).put("/a.bin", b"x" * SIZE)
        measure(session, url, partial(fetch, fetcher))
        for _ in range(ROUNDS):
            with in_line(fetcher, session) as polite:
                shared = measure(session, url, partial(fetch, polite))
            separate = measure(session, url, partial(fetch_alone, fetcher, session))
            rounds.append((measure(session, url, partial(fetch, fetcher)), shared, separate))
    result: dict[str, object] = {
        "rounds": ROUNDS,
        "files": FILES,
        "no_limit_ms_p50": round(median(none[0] for none, _, _ in rounds), 2),
    }
    for name, at in (("connection_kept", 1), ("connection_each", 2)):
        ratios = [times[at][0] / times[0][0] for times in rounds]
        result |= {
            f"{name}_ms_p50": round(median(times[at][0] for times in rounds), 2),
            f"{name}_ratio": round(median(ratios), 2),
            f"{name}_ratio_range": [round(min(ratios), 2), round(max(ratios), 2)],
            f"{name}_packets": round(median(times[at][1] for times in rounds), 1),
        }
    tell(result)


if __name__ == "__main__":
    run(main, __doc__)
