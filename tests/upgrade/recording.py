"""A release's work in flight, kept as files: its znodes, its working storage, its store and its inventory.

`python -m tests.upgrade.recording VERSION` records one job in each working state, a held and a failed job,
a batch that is not split yet and one that waits for its report, as the code of this checkout leaves them
when everything stops at once. Addresses and folders are kept as placeholders.
"""

import base64
import json
import shutil
import sys
import tarfile
import tempfile
from contextlib import ExitStack
from io import BytesIO
from pathlib import Path

from pipeline.settings import Settings
from pipeline.states import JOB, Event, FailureKind
from tests.e2e.collection import body_of
from tests.servers import redis, zookeeper
from tests.servers.http_source import HttpSource
from tests.support import planting
from tests.support.fleet import fleet
from zkstate import paths
from zkstate.connection.session import Session, connect
from zkstate.record import batches, jobs

FOLDER = Path(__file__).parent
PROFILES = FOLDER.parent.parent / "examples" / "profiles"
SOURCE, HOME = b"{source}", b"{home}"
NAMES = [*JOB.working(), "held", "failed"]
TEXT = {".json", ".jsonl", ".txt", ".xml", ".checkm"}


def serve(source: HttpSource) -> None:
    for name in NAMES:
        source.put(f"/{name}.txt", body_of(name))


def fill(session: Session, settings: Settings, source: HttpSource) -> None:
    """Leave work in every state: real workers do what comes before, and are killed."""
    with fleet(settings) as workers:
        stuck = []
        for state in JOB.working():
            url = source.url(f"/{state}.txt")
            _, (jid,) = planting.split_batch(
                session, 1, settings.working, payload_url=url, payload_name=f"{state}.txt"
            )
            stuck.append(
                workers.start(f"stuck-{state}", "-m", "tests.support.stuck_worker", jid, state, wait=False)
            )
        for process in stuck:
            workers.wait_ready(process)
            process.kill()
    for name, event in (("held", Event.HOLD), ("failed", Event.FAIL)):
        url = source.url(f"/{name}.txt")
        _, (jid,) = planting.split_batch(
            session, 1, settings.working, payload_url=url, payload_name=f"{name}.txt"
        )
        planting.apply_event(session, jobs.load(session, jid), event, FailureKind.SYSTEM)
    batches.submit(session, planting.submission(payload_url=source.url("/pending.txt")))


def znodes(session: Session) -> dict[str, bytes]:
    return {
        path: data
        for path, data in planting.tree(session).items()
        if (stat := session.exists(path)) is not None and not stat.ephemeralOwner
    }


def record(version: str) -> None:
    with ExitStack() as opened:
        folder = Path(opened.enter_context(tempfile.TemporaryDirectory()))
        zk = opened.enter_context(zookeeper.running(folder / "zk", tick=500))
        broker = opened.enter_context(redis.running(folder / "redis"))
        source = opened.enter_context(HttpSource())
        serve(source)
        home = folder / "home"
        settings = Settings(
            zk_hosts=zk.hosts,
            zk_root="/recorded",
            zk_session_timeout=4,
            broker_url=broker.url,
            home=home,
            profiles=PROFILES,
            allow_networks="127.0.0.0/8",
        )
        session = opened.enter_context(connect(settings))
        fill(session, settings, source)
        here = source.url("").encode()

        def general(data: bytes) -> bytes:
            return data.replace(here, SOURCE).replace(str(home).encode(), HOME)

        target = FOLDER / version
        shutil.rmtree(target, ignore_errors=True)
        target.mkdir()
        tree = {
            path: base64.b64encode(general(data)).decode() if b"\0" in data else general(data).decode()
            for path, data in sorted(znodes(session).items())
        }
        (target / "znodes.json").write_text(json.dumps(tree, indent=1) + "\n")
        shutil.rmtree(home / "fleet", ignore_errors=True)
        with tarfile.open(target / "home.tar.gz", "w:gz") as archive:
            for path in sorted(p for p in home.rglob("*") if p.is_file()):
                data = path.read_bytes()
                if path.suffix in TEXT and "working" in path.parts:
                    data = general(data)
                entry = tarfile.TarInfo(str(path.relative_to(home)))
                entry.size = len(data)
                archive.addfile(entry, BytesIO(data))


def restore(version: str, session: Session, settings: Settings, source: HttpSource) -> None:
    """Put a recorded release's work below the session's root and into the settings' home."""
    here, home = source.url("").encode(), str(settings.home).encode()

    def special(data: bytes) -> bytes:
        return data.replace(SOURCE, here).replace(HOME, home)

    for path, text in json.loads((FOLDER / version / "znodes.json").read_text()).items():
        data = special(text.encode())
        session.ensure_node(path, data)
        if session.get(path)[0] != data:
            session.zk.set(path, data)
    with tarfile.open(FOLDER / version / "home.tar.gz") as archive:
        for entry in archive:
            stream = archive.extractfile(entry)
            assert stream is not None, entry.name
            path = settings.home / entry.name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(stream.read())
    for path in settings.working.rglob("*"):
        if path.is_file() and path.suffix in TEXT:
            path.write_bytes(special(path.read_bytes()))


def released() -> list[str]:
    """The releases whose work has been recorded."""
    return sorted(folder.name for folder in FOLDER.iterdir() if (folder / "znodes.json").exists())


if __name__ == "__main__":
    record(sys.argv[1])
    sys.stdout.write(f"recorded {len(list((FOLDER / sys.argv[1]).iterdir()))} files; {paths.JOBS}\n")
