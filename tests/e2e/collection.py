"""Collections to submit: objects, manifests and batch manifests on a source that may misbehave."""

import hashlib
import threading
import uuid
from dataclasses import dataclass
from typing import Any

from pipeline.records import Submission, SubmissionType
from pipeline.settings import Settings
from tasks.broker import dispatch_batch, publisher
from tests.servers.http_source import HttpSource
from zkstate.connection.session import Session
from zkstate.record import batches, record

_OBJECT = "http://uc3.cdlib.org/registry/ingest/manifest/mrt-ingest-manifest"
_BATCH = "http://uc3.cdlib.org/registry/ingest/manifest/mrt-batch-manifest"


@dataclass(frozen=True)
class File:
    name: str
    body: bytes
    declared: str = ""
    """The sha256 that the manifest declares; empty: the true one."""
    served: bool = True


def body_of(name: str, size: int = 2000) -> bytes:
    """Bytes that depend on the name alone."""
    seed = hashlib.sha256(name.encode()).digest()
    return (seed * (size // len(seed) + 1))[:size]


def manifest(profile: str, rows: list[str]) -> bytes:
    return "\n".join(["#%checkm_0.7", f"#%profile | {profile}", *rows, "#%eof", ""]).encode()


def put_object(source: HttpSource, name: str, files: list[File], **how: Any) -> str:
    """Serve an object's files (`how`: their faults) and its manifest; the manifest's URL."""
    rows = []
    for file in files:
        path = f"/{name}/{file.name}"
        url = source.put(path, file.body, **how) if file.served else source.url(path)
        digest = file.declared or hashlib.sha256(file.body).hexdigest()
        rows.append(f"{url} | sha256 | {digest} | {len(file.body)} |  | {file.name} |")
    return source.put(f"/{name}.checkm", manifest(_OBJECT, rows))


def put_batch(
    source: HttpSource, urls: list[str], name: str = "batch", objects: int = 0, *, local_ids: bool = True
) -> str:
    """Serve a batch manifest of object manifests, with a local id and a title each; its URL.

    `objects`: how many of them have a local id of their own; the others bring new versions of those.
    """
    rows = [
        f"{url} |  |  |  |  | {url.rsplit('/', 1)[1]} |  | "
        f"{f'{name}-{n % (objects or len(urls))}' if local_ids else ''} "
        f"| A. Maker | Object {n} | 2020"
        for n, url in enumerate(urls)
    ]
    return source.put(f"/{name}.checkm", manifest(_BATCH, rows))


def put_collection(source: HttpSource, objects: int, files: int = 2, **how: Any) -> str:
    urls = [
        put_object(source, f"o{n}", [File(f"f{m}.txt", body_of(f"{n}-{m}")) for m in range(files)], **how)
        for n in range(objects)
    ]
    return put_batch(source, urls)


def submit(
    session: Session,
    settings: Settings,
    url: str,
    kind: SubmissionType = SubmissionType.BATCH_MANIFEST,
    owner: str = "",
) -> str:
    """Submit as a depositor would, and send the first ticket."""
    submission = Submission(
        profile_name="demo",
        submitter="tester",
        owner=owner,
        payload_url=url,
        type=kind,
        payload_filename=url.rsplit("/", 1)[1],
        notification=("depositor@example.org",),
    )
    bid = batches.submit(session, submission)
    send(settings, bid, session)
    return bid


def deposit(
    session: Session,
    settings: Settings,
    source: HttpSource,
    objects: int,
    last: threading.Event | None = None,
) -> str:
    """Submit a batch of objects that have no local id; its BID. The last object's file waits for `last`."""
    name = uuid.uuid4().hex
    urls = [
        put_object(
            source,
            f"{name}-{n}",
            [File("a.txt", body_of(f"{name}-{n}"))],
            hold=last if n == objects - 1 else None,
        )
        for n in range(objects)
    ]
    return submit(session, settings, put_batch(source, urls, name, local_ids=False))


def send(settings: Settings, bid: str, session: Session) -> None:
    """Send the batch's ticket to this test's own queues, where only its own workers listen."""
    assert dispatch_batch(publisher(settings), record.ticket(batches.load(session, bid)))
