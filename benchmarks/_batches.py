"""Batches of a benchmark, from submission to end."""

import hashlib
import uuid
from pathlib import Path

from benchmarks._options import option
from benchmarks._source import SMALL, small_body
from pipeline.attempt import UNATTENDED
from pipeline.fixity import Digest
from pipeline.manifests.checkm import ManifestProfile, Row, write
from pipeline.records import SubmissionType
from pipeline.settings import Settings
from tasks.after_move import feed
from tasks.broker import publisher
from tests.e2e.collection import submit
from tests.support import planting
from tests.support.fleet import batch_ended, is_completed
from zkstate.connection.session import Session
from zkstate.record import batches

SECONDS = option("SECONDS", 900)
"""Maximum seconds to wait for the end of a batch."""


def end_of(session: Session, bid: str) -> None:
    batch = batch_ended(session, bid, timeout=SECONDS)
    assert is_completed(batch), batch.status.message


def create_and_complete(session: Session, settings: Settings, jobs: int) -> None:
    """Create a batch of jobs without content, and wait until a fleet has completed them all."""
    batch = planting.acquired_batch(session)
    plan = planting.plan(jobs)
    batch = planting.create_jobs(session, batch, plan, settings.working, "benchmark", UNATTENDED)
    batches.finish_split(session, batch)
    feed(publisher(settings), session, settings)
    end_of(session, batch.bid)


def deposit_files(session: Session, settings: Settings, source: str, folder: Path, jobs: int) -> str:
    """Submit one batch of small files, one object each, with declared digest and size; returns its BID.

    `source` is the URL of a source that serves `folder`, for the manifest.
    """
    name = f"{uuid.uuid4().hex}.checkm"
    (folder / name).write_bytes(manifest_of(source, jobs))
    return submit(session, settings, f"{source}/{name}", SubmissionType.SINGLE_FILE_BATCH_MANIFEST)


def manifest_of(source: str, jobs: int) -> bytes:
    """A manifest of small files, one object each."""
    return write(ManifestProfile.FILE_BATCH, [_row(source, number) for number in range(jobs)])


def _row(source: str, number: int) -> Row:
    body = small_body(number)
    digest = Digest(algorithm="sha256", value=hashlib.sha256(body).hexdigest())
    return Row(line=0, url=f"{source}{SMALL}{number}", name=f"{number}.txt", digest=digest, size=len(body))


def complete_files(session: Session, settings: Settings, source: str, folder: Path, jobs: int) -> None:
    """Submit such a batch, and wait until all its jobs are completed and its report is sent."""
    end_of(session, deposit_files(session, settings, source, folder, jobs))
