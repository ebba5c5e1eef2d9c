"""Uploads and the record: the mark of their folder, who may submit them, and when they leave."""

import errno
import os
import time
from pathlib import Path

import pytest

from operations.deposits import uploads
from operations.deposits.submission import submit
from operations.site import Site
from pipeline import codes
from pipeline.names import UploadAddress
from pipeline.outcome import ServiceDown
from pipeline.principal import Interface, Principal, Role
from pipeline.records import Submission, SubmissionType
from pipeline.settings import Settings
from pipeline.states import Event
from pipeline.uploads import stored
from pipeline.uploads.stored import Declared
from tasks.retention import DAY, remove_unneeded_uploads
from tests.support import cli
from tests.support.errors import raises_code
from zkstate.connection.session import Session
from zkstate.record import batches
from zkstate.record.batches import BatchMove
from zkstate.record.record import Lock

ADA = Principal(name="ada", role=Role.DEPOSITOR, interface=Interface.API)
EVE = Principal(name="eve", role=Role.DEPOSITOR, interface=Interface.API)


def put(session: Session, settings: Settings, key: str = "") -> str:
    upload = uploads.begin_upload(Site(settings, session), ADA, key)
    with uploads.write_file(Site(settings, session), ADA, upload.id, Declared(name="a.txt")) as part:
        part.append(b"bytes")
        part.finish()
    return UploadAddress(upload.id, "a.txt").url


def submitted(session: Session, settings: Settings, url: str, principal: Principal = ADA) -> str:
    submission = Submission(profile_name="demo", payload_url=url, type=SubmissionType.FILE)
    return submit(Site(settings, session), principal, submission).bid


def _older(settings: Settings) -> None:
    for path in settings.uploads_folder.rglob("*"):
        moment = time.time() - 2 * DAY
        os.utime(path, (moment, moment))


def test_only_the_owner_submits_an_upload(session: Session, settings: Settings) -> None:
    url = put(session, settings)

    with raises_code(codes.UPLOAD_MISSING):
        submitted(session, settings, url, EVE)

    bid = submitted(session, settings, url)
    assert batches.load(session, bid).submission.payload_url == url


def test_a_repeated_key_continues_the_same_upload(session: Session, settings: Settings) -> None:
    assert put(session, settings, "monday") == put(session, settings, "monday")
    assert put(session, settings, "monday") != put(session, settings, "tuesday")


def test_a_disk_that_is_full_at_the_first_upload_is_a_clear_problem_and_the_next_upload_works(
    session: Session, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fill(_: Path) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch, raises_code(codes.UPLOADS_FULL):
        patch.setattr(stored, "mark", fill)
        uploads.begin_upload(Site(settings, session), ADA)

    assert put(session, settings)


def test_a_disk_that_is_full_when_an_upload_is_submitted_is_a_clear_problem_and_the_next_try_works(
    session: Session, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fill(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    address = put(session, settings)

    with monkeypatch.context() as patch, raises_code(codes.UPLOADS_FULL):
        patch.setattr(stored, "write_record", fill)
        submitted(session, settings, address)

    assert submitted(session, settings, address)


def test_where_nothing_was_ever_uploaded_an_upload_is_missing(session: Session, settings: Settings) -> None:
    with raises_code(codes.UPLOAD_MISSING):
        uploads.view_upload(Site(settings, session), ADA, "0" * 32)
    with raises_code(codes.UPLOAD_MISSING):
        submitted(session, settings, f"upload:{'0' * 32}/a.txt")

    assert not settings.uploads_folder.exists()


def test_once_a_folder_was_marked_one_without_the_mark_is_an_outage(
    session: Session, settings: Settings, tmp_path: Path
) -> None:
    elsewhere = settings.model_copy(update={"uploads": tmp_path / "not-mounted"})
    put(session, settings)

    with pytest.raises(ServiceDown, match="mount it"):
        put(session, elsewhere)
    with pytest.raises(ServiceDown, match="mount it"):
        uploads.view_upload(Site(elsewhere, session), ADA, "0" * 32)

    assert not (tmp_path / "not-mounted").exists()


def test_an_upload_stays_for_an_unfinished_batch_and_leaves_once_the_batch_is_deleted(
    session: Session, settings: Settings
) -> None:
    days = settings.model_copy(update={"upload_days": 1})
    url, unused = put(session, settings), put(session, settings)
    bid = submitted(session, settings, url)
    _older(settings)

    remove_unneeded_uploads(session, days)
    assert uploads.resolved_url(Site(settings, session), ADA, url) == url
    with raises_code(codes.UPLOAD_MISSING):
        uploads.resolved_url(Site(settings, session), ADA, unused)

    for event in (Event.FAIL, Event.FAIL, Event.DELETE):  # the split, its report, and the batch
        assert uploads.resolved_url(Site(settings, session), ADA, url) == url
        move = BatchMove(event, "ada", message="", lock=Lock.FREE)
        batches.move(session, batches.load(session, bid), move)
    remove_unneeded_uploads(session, days)
    with raises_code(codes.UPLOAD_MISSING):
        uploads.resolved_url(Site(settings, session), ADA, url)
    assert stored.is_marked(settings.uploads_folder)


def test_a_folder_is_submitted_by_the_command_line(
    session: Session, settings: Settings, tmp_path: Path
) -> None:
    photos = tmp_path / "photos"
    photos.mkdir()
    (photos / "a.jpg").write_bytes(b"light")
    arguments = ("submit", str(photos), "--profile", "demo", "--json", "--idempotency-key", "monday")

    dry = cli.run(settings, *arguments, "--dry-run").json()
    nothing_stored = not settings.uploads_folder.exists()
    first, again = (cli.run(settings, *arguments).json() for _ in range(2))

    assert (dry["jobs"], dry["files"], dry["bytes"], nothing_stored) == (1, 1, 5, True)
    assert (first["again"], again["again"], again["bid"]) == (False, True, first["bid"])
    submission = batches.load(session, first["bid"]).submission
    assert submission.type is SubmissionType.OBJECT_MANIFEST
    assert submission.payload_url.endswith("/manifest.checkm")
