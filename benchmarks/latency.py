"""From submit to completed: a batch of one file on an idle stack, and the same work without the pipeline.

The stack is real: ZooKeeper, Redis, one worker with two processes, a source over HTTP. The baseline in each
round fetches the same file and stores it in an OCFL root from one Python process, with nothing kept track of.
"""

import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from statistics import median

from benchmarks._output import tell
from pipeline.attempt import UNATTENDED
from pipeline.files import ContentFile
from pipeline.records import SubmissionMode, SubmissionType
from pipeline.settings import Settings
from pipeline.sources.fetch import HttpFetcher
from pipeline.sources.transfer import Download
from pipeline.storage.base import StoreRequest
from pipeline.storage.ocfl.storage import OcflStorage
from tests.e2e.collection import body_of, submit
from tests.servers import redis, zookeeper
from tests.servers.http_source import HttpSource
from tests.support.fleet import batch_ended, fleet
from zkstate.session import Session, connect

ROUNDS = 30
PROFILES = Path(__file__).parent.parent / "examples" / "profiles"


def through_the_pipeline(session: Session, settings: Settings, url: str) -> float:
    start = time.perf_counter()
    bid = submit(session, settings, url, SubmissionType.FILE)
    batch = batch_ended(session, bid)
    took = time.perf_counter() - start
    assert batch.status.status == "completed", batch.status.message
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


def main() -> None:
    with ExitStack() as opened:
        folder = Path(opened.enter_context(tempfile.TemporaryDirectory()))
        zk = opened.enter_context(zookeeper.running(folder / "zk"))
        broker = opened.enter_context(redis.running(folder / "redis"))
        settings = Settings(
            zk_hosts=zk.hosts,
            zk_root="/latency",
            broker_url=broker.url,
            home=folder / "home",
            profiles=PROFILES,
            allow_networks="127.0.0.0/8",
        )
        session = opened.enter_context(connect(settings))
        source = opened.enter_context(HttpSource())
        opened.enter_context(fleet(settings)).worker()
        url = source.put("/a.txt", body_of("a", 10_000))
        for _ in range(3):
            through_the_pipeline(session, settings, url)
        rounds = [
            (through_the_pipeline(session, settings, url), by_hand(settings, url, number, folder))
            for number in range(ROUNDS)
        ]
    whole, hand = ([times[side] for times in rounds] for side in (0, 1))
    ratios = [w / h for w, h in rounds]
    result = {
        "rounds": ROUNDS,
        "submit_to_completed_ms_p50": round(median(whole) * 1000),
        "submit_to_completed_ms_max": round(max(whole) * 1000),
        "by_hand_ms_p50": round(median(hand) * 1000, 1),
        "ratio_p50": round(median(ratios), 1),
        "ratio_range": [round(min(ratios), 1), round(max(ratios), 1)],
    }
    tell(result)


if __name__ == "__main__":
    main()
