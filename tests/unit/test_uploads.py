"""Uploads on the disk: what stays, what does not, and who may read it."""

import hashlib
import os
import time
from contextlib import suppress
from pathlib import Path

import pytest

from pipeline import codes
from pipeline.fixity import Digest
from pipeline.outcome import Service, ServiceDown
from pipeline.settings import Settings
from pipeline.uploads import stored as folder_of_uploads
from pipeline.uploads import writing
from pipeline.uploads.quota import Quota, UploadQuota
from pipeline.uploads.stored import (
    Declared,
    Upload,
    UploadRefused,
)
from tests.support.errors import raises_code

OWNER = "token:ada"
LIMIT = 1000


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "uploads"
    folder_of_uploads.mark(folder)
    return folder


@pytest.fixture
def upload(root: Path) -> Upload:
    return writing.create(root, OWNER)


def sha256(data: bytes) -> Digest:
    return Digest(algorithm="sha256", value=hashlib.sha256(data).hexdigest())


def put(
    root: Path, upload: Upload, name: str, *chunks: bytes, **declared: object
) -> folder_of_uploads.UploadedFile:
    with writing.writing(root, upload.id, Declared(name=name, **declared), LIMIT) as part:
        for chunk in chunks:
            part.append(chunk)
        return part.finish()


class Cut(Exception):
    """The connection of the depositor ends."""


def cut_off(root: Path, upload: Upload, declared: Declared, *, resumable: bool = False) -> None:
    """Send the first five bytes of a file."""
    with suppress(Cut), writing.writing(root, upload.id, declared, LIMIT, resumable=resumable) as part:
        part.append(b"light")
        raise Cut


def remains(root: Path, upload: Upload) -> list[str]:
    folder = folder_of_uploads.folder_of(root, upload.id)
    return [path.name for sort in ("files", "parts") for path in (folder / sort).iterdir()]


def test_a_file_is_stored_with_the_digest_of_its_bytes_and_that_of_the_depositor(
    root: Path, upload: Upload
) -> None:
    file = put(root, upload, "photos/a.jpg", b"light", b"house", digest=sha256(b"lighthouse"), size=10)

    stored = folder_of_uploads.locate(root, f"upload:{upload.id}/photos/a.jpg")

    assert stored.file == file
    assert stored.path.read_bytes() == b"lighthouse"
    assert (file.size, file.sha512) == (10, hashlib.sha512(b"lighthouse").hexdigest())
    assert file.digest == sha256(b"lighthouse")


@pytest.mark.parametrize(
    "declared", [{"digest": sha256(b"other")}, {"size": 9}, {"size": 11}], ids=["digest", "longer", "cut"]
)
def test_other_bytes_than_those_declared_are_refused_and_nothing_stays(
    root: Path, upload: Upload, declared: dict[str, object]
) -> None:
    with pytest.raises(UploadRefused):
        put(root, upload, "a.txt", b"lighthouse", **declared)

    assert remains(root, upload) == []


def test_an_upload_that_is_cut_leaves_nothing(root: Path, upload: Upload) -> None:
    cut_off(root, upload, Declared(name="a.txt"))

    assert remains(root, upload) == []


def test_a_resumable_upload_that_is_cut_continues_where_it_stopped(root: Path, upload: Upload) -> None:
    declared = Declared(name="a.txt", size=10, digest=sha256(b"lighthouse"))
    cut_off(root, upload, declared, resumable=True)

    assert folder_of_uploads.part_size(root, upload.id, "a.txt") == 5
    assert folder_of_uploads.find_file(root, upload.id, "a.txt") is None
    with writing.writing(root, upload.id, Declared(name="a.txt"), LIMIT, resumable=True) as part:
        assert part.offset == 5
        part.append(b"house")
        file = part.finish()

    assert file.digest == declared.digest
    assert folder_of_uploads.locate(root, f"upload:{upload.id}/a.txt").path.read_bytes() == b"lighthouse"


def test_a_wrong_offset_is_refused_before_the_bytes_are_read(root: Path, upload: Upload) -> None:
    cut_off(root, upload, Declared(name="a.txt"), resumable=True)
    content = folder_of_uploads.part_folder(root, upload.id, "a.txt") / folder_of_uploads.CONTENT
    os.truncate(content, 1 << 40)  # a hole, which takes an hour to read

    opening = writing.writing(root, upload.id, Declared(name="a.txt"), LIMIT, resumable=True, offset=5)
    with raises_code(codes.OFFSET_DIFFERS, match=f"{1 << 40:,} bytes"), opening:
        pass


def test_a_continuation_of_a_complete_file_is_told_so_with_its_size(root: Path, upload: Upload) -> None:
    with writing.writing(root, upload.id, Declared(name="a.txt"), LIMIT) as part:
        part.append(b"light")
        part.finish()

    opening = writing.writing(root, upload.id, Declared(name="a.txt"), LIMIT, resumable=True, offset=3)
    with raises_code(codes.OFFSET_DIFFERS, match="a.txt' is complete with 5 bytes"), opening:
        pass


def test_a_continuation_reads_nothing_that_this_process_has_written(root: Path, upload: Upload) -> None:
    cut_off(root, upload, Declared(name="a.txt"), resumable=True)
    content = folder_of_uploads.part_folder(root, upload.id, "a.txt") / folder_of_uploads.CONTENT
    written = content.stat()
    content.write_bytes(b"LIGHT")  # as nobody does: only a reader would notice
    os.utime(content, ns=(written.st_atime_ns, written.st_mtime_ns))

    with writing.writing(root, upload.id, Declared(name="a.txt"), LIMIT, resumable=True, offset=5) as part:
        part.append(b"house")
        file = part.finish()

    assert file.sha512 == hashlib.sha512(b"lighthouse").hexdigest()


def test_what_an_earlier_process_has_written_is_read_in_steps_of_a_known_size(
    root: Path, upload: Upload, monkeypatch: pytest.MonkeyPatch
) -> None:
    cut_off(root, upload, Declared(name="a.txt"), resumable=True)
    content = folder_of_uploads.part_folder(root, upload.id, "a.txt") / folder_of_uploads.CONTENT
    os.utime(content)  # this process no longer knows it
    monkeypatch.setattr(writing, "REREAD", 2)

    with writing.writing(root, upload.id, Declared(name="a.txt"), LIMIT, resumable=True) as part:
        steps = [part.read_on() for _ in range(3)]
        part.append(b"house")
        file = part.finish()

    assert steps == [True, True, False]
    assert file.sha512 == hashlib.sha512(b"lighthouse").hexdigest()


def test_a_crash_between_the_record_and_the_rename_leaves_a_file_that_can_be_completed(
    root: Path, upload: Upload
) -> None:
    with writing.writing(root, upload.id, Declared(name="a.txt"), LIMIT, resumable=True) as part:
        part.append(b"lighthouse")
        part.sync()
        written = folder_of_uploads.UploadedFile(name="a.txt", size=10, sha512="0" * 128)
        folder_of_uploads.write_record(part.folder / folder_of_uploads.DESCRIPTION, written)

    with writing.writing(root, upload.id, Declared(name="a.txt"), LIMIT, resumable=True) as part:
        assert (part.offset, part.finish().size) == (10, 10)


def test_two_requests_do_not_write_one_file(root: Path, upload: Upload) -> None:
    with writing.writing(root, upload.id, Declared(name="a.txt"), LIMIT) as part:
        part.append(b"first")
        with raises_code(codes.UPLOAD_BUSY), writing.writing(root, upload.id, Declared(name="a.txt"), LIMIT):
            pass
        assert part.finish().size == 5


def test_a_file_is_never_replaced_by_other_bytes(root: Path, upload: Upload) -> None:
    first = put(root, upload, "a.txt", b"first")

    assert put(root, upload, "a.txt", b"first") == first
    with raises_code(codes.UPLOAD_CONFLICT):
        put(root, upload, "a.txt", b"second")
    assert folder_of_uploads.locate(root, f"upload:{upload.id}/a.txt").path.read_bytes() == b"first"


def test_a_file_beyond_the_limit_is_refused_before_its_first_byte(root: Path, upload: Upload) -> None:
    with (
        raises_code(codes.UPLOAD_TOO_LARGE),
        writing.writing(root, upload.id, Declared(name="a.txt", size=1001), LIMIT),
    ):
        raise AssertionError("the bytes were asked for")
    with raises_code(codes.UPLOAD_TOO_LARGE):
        put(root, upload, "a.txt", b"x" * 1001)
    assert remains(root, upload) == []


@pytest.mark.parametrize("upload_id", ["0" * 32, "../../etc", "", "A" * 32])
def test_an_unknown_upload_and_that_of_another_are_the_same(
    root: Path, upload: Upload, upload_id: str
) -> None:
    with raises_code(codes.UPLOAD_MISSING):
        folder_of_uploads.load(root, upload_id, OWNER)
    with raises_code(codes.UPLOAD_MISSING, match="removed, or it is not yours"):
        folder_of_uploads.load(root, upload.id, "token:eve")


def test_a_folder_without_its_mark_is_an_outage_and_is_not_written_to(root: Path, upload: Upload) -> None:
    (root / folder_of_uploads.MARK).unlink()

    for act in (
        lambda: writing.create(root, OWNER),
        lambda: put(root, upload, "a.txt", b"x"),
        lambda: folder_of_uploads.locate(root, f"upload:{upload.id}/a.txt"),
    ):
        with pytest.raises(ServiceDown) as down:
            act()
        assert (down.value.service, down.value.of_host) == (Service.UPLOADS, True)


def _older(root: Path, upload: Upload, seconds: float) -> None:
    moment = time.time() - seconds
    for path in (
        folder_of_uploads.folder_of(root, upload.id),
        *folder_of_uploads.folder_of(root, upload.id).rglob("*"),
    ):
        os.utime(path, (moment, moment))


def test_an_unused_upload_is_removed_after_its_time_and_one_of_a_batch_is_not(root: Path) -> None:
    uploads = [writing.create(root, OWNER) for _ in range(3)]
    for upload in uploads:
        put(root, upload, "a.txt", b"x")
    for upload in uploads[:2]:
        _older(root, upload, 100)

    removed = writing.clean_up(root, 50, lambda: frozenset({uploads[1].id}))

    assert removed == [uploads[0].id]
    assert [folder_of_uploads.load(root, upload.id, OWNER).id for upload in uploads[1:]] == [
        u.id for u in uploads[1:]
    ]


def test_an_upload_that_is_submitted_at_the_moment_of_a_clean_up_stays(root: Path, upload: Upload) -> None:
    put(root, upload, "a.txt", b"x")
    _older(root, upload, 100)

    def needed() -> frozenset[str]:
        writing.use(root, upload.id, OWNER)  # after the old ones were listed
        return frozenset()

    assert writing.clean_up(root, 50, needed) == []
    assert folder_of_uploads.find_file(root, upload.id, "a.txt") is not None


def test_an_unfinished_file_is_removed_after_a_day(root: Path, upload: Upload) -> None:
    cut_off(root, upload, Declared(name="a.txt"), resumable=True)
    _older(root, upload, writing.PART_AGE - 60)
    writing.clean_up(root, 10 * writing.PART_AGE, frozenset)
    assert len(remains(root, upload)) == 1

    _older(root, upload, writing.PART_AGE + 60)
    writing.clean_up(root, 10 * writing.PART_AGE, frozenset)
    assert remains(root, upload) == []


def quota(root: Path, **limits: int) -> Quota:
    """As a process has it that begins now."""
    return Quota(Settings(uploads=root).model_copy(update=limits), OWNER)


def eventually_measured(held: Quota) -> None:
    """Measure now, as the process does once its measurement is old."""
    held._until = 0.0
    held._measure_if_due()


def test_bytes_that_an_earlier_or_another_process_stored_count_for_their_owner_alone(root: Path) -> None:
    other = writing.create(root, "token:eve")
    Quota(Settings(uploads=root), "token:eve").note(other.id)
    put(root, other, "b.jpg", b"x" * 900)
    mine = writing.create(root, OWNER)
    quota(root).note(mine.id)
    put(root, mine, "a.jpg", b"x" * 60)
    cut_off(root, mine, Declared(name="c.jpg"), resumable=True)

    begun = quota(root, upload_bytes_of_owner=100)

    refused = pytest.raises(
        UploadQuota, match=r"has 100 bytes .* may have 100 .ARKLINE_UPLOAD_BYTES_OF_OWNER"
    )
    with begun.taking(size=35), refused, begun.taking(size=1):
        pass


def test_what_is_taken_and_not_written_yet_counts_too(root: Path) -> None:
    begun = quota(root, upload_bytes_of_owner=100)

    with begun.taking(size=100):
        eventually_measured(begun)
        with pytest.raises(UploadQuota), begun.taking(size=1):
            pass


def test_processes_that_do_not_see_each_other_have_at_most_a_quota_each(root: Path) -> None:
    """... and both refuse the next byte once they have measured again."""
    mine = writing.create(root, OWNER)
    quota(root).note(mine.id)
    both = quota(root, upload_bytes_of_owner=100), quota(root, upload_bytes_of_owner=100)
    for process in both:
        with process.taking(size=0):
            pass
    for process, name in zip(both, ("a.jpg", "b.jpg"), strict=True):
        with process.taking(size=100):
            put(root, mine, name, b"x" * 100)
        with pytest.raises(UploadQuota), process.taking(size=1):
            pass

    for process in both:
        eventually_measured(process)
        with pytest.raises(UploadQuota, match="has 200 bytes"), process.taking(size=1):
            pass


def test_uploads_and_the_files_in_them_have_a_limit_of_their_own(root: Path) -> None:
    mine = writing.create(root, OWNER)
    held = quota(root, uploads_of_owner=2)
    held.note(mine.id)
    put(root, mine, "a.jpg")

    refused = pytest.raises(
        UploadQuota, match=r"has 2 uploads and files .* may have 2 .ARKLINE_UPLOADS_OF_OWNER"
    )
    with held.taking(size=10), refused, held.taking(entries=1):
        pass


def test_a_removed_upload_no_longer_counts_and_leaves_no_note(root: Path) -> None:
    mine = writing.create(root, OWNER)
    held = quota(root, upload_bytes_of_owner=100)
    held.note(mine.id)
    put(root, mine, "a.jpg", b"x" * 100)
    writing.remove(root, mine.id)

    with held.taking(size=100):
        pass

    assert list((root / "owners").glob("*/*")) == []


def test_the_files_of_a_form_count_while_it_arrives_and_those_of_a_crash_are_removed(root: Path) -> None:
    (root / "forms").mkdir()
    crashed = root / "forms" / f"{folder_of_uploads.owner_folder(root, OWNER).name}.x"
    crashed.write_bytes(b"x" * 100)

    with pytest.raises(UploadQuota), quota(root, upload_bytes_of_owner=100).taking(size=1):
        pass

    os.utime(crashed, (0, 0))
    writing.clean_up(root, 3600, frozenset)
    assert not crashed.exists()
