"""Drafts in a site whose repository has objects, whose process is killed, and whose disk is full."""

import os
import sys
from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from sqlalchemy import Engine, event

from operations.deposits import draft as drafts
from operations.deposits import uploads
from operations.deposits.draft_preview import Preview
from operations.site import Site
from pipeline import codes
from pipeline.inventory.sql import open_inventory
from pipeline.outcome import ServiceDown
from pipeline.principal import Interface, Principal, Role
from pipeline.profiles.profile import Profiles
from pipeline.settings import Settings
from pipeline.uploads import draft as saved_drafts
from pipeline.uploads import stored
from pipeline.uploads.draft import Draft, DraftFile, DraftRefused, Objects
from pipeline.uploads.stored import Declared
from tests.support.errors import raises_code
from tests.support.ocfl_fixture import fork
from tests.support.recordings import recording
from tests.support.spreadsheets import inline, xlsx
from zkstate.connection.session import connect
from zkstate.queue import listings

ADA = Principal(name="ada", role=Role.DEPOSITOR, interface=Interface.WEB)
HARBOUR, PIER = "ark:/99999/fk4harbour", "ark:/99999/fk4pier"


def put(site: Site, upload: str, name: str, data: bytes) -> None:
    uploads.receive_file(site, ADA, upload, Declared(name=name), BytesIO(data))


def begin(site: Site, table: str, *names: str) -> tuple[str, Draft]:
    """An upload with this table and these files, and its draft."""
    upload = uploads.begin_upload(site, ADA).id
    put(site, upload, "list.csv", table.encode())
    for name in names:
        put(site, upload, f"files/{name}", b"lighthouse")
    files = tuple(DraftFile(name=name, size=10) for name in names)
    return upload, Draft(profile="demo", objects=Objects.TABLE, files=files, table="list.csv")


def enter(settings: Settings, ark: str, number: int, local_id: str) -> None:
    """Enter a version of an object of the collection."""
    demo = Profiles(settings.profiles).get("demo")
    open_inventory(settings.inventory).record(
        recording(
            ark,
            number,
            owner=demo.owner,
            collections=demo.collections,
            local_id=(local_id,),
            jid=f"jid{abs(hash((ark, number))) % 10**9:010d}",
        )
    )


def versions(preview: Preview) -> list[tuple[str | None, int | None, list[str | None]]]:
    return [
        (one.version_of, one.version, [problem.field for problem in one.errors]) for one in preview.objects
    ]


def test_an_object_that_is_here_needs_a_consent_which_a_version_made_meanwhile_voids(
    site: Site, settings: Settings
) -> None:
    enter(settings, HARBOUR, 1, "h 1")
    enter(settings, PIER, 1, "h 2")
    table = f"file,id,ark\na.jpg,h 1,\nb.jpg,,{PIER}\nc.jpg,h 3,\n"
    upload, given = begin(site, table, "a.jpg", "b.jpg", "c.jpg")
    agreed = given.model_copy(update={"new_version": {HARBOUR: 1, PIER: 1}})

    without = drafts.save(site, ADA, upload, given)
    with_consent = drafts.save(site, ADA, upload, agreed)
    enter(settings, HARBOUR, 2, "h 1")
    with raises_code(codes.DRAFT_OUTDATED) as refused:
        drafts.deposit(site, ADA, upload)

    assert versions(without) == [
        (HARBOUR, 2, ["new_version"]),
        (PIER, 2, ["new_version"]),
        (None, None, []),
    ]
    assert with_consent.erroneous == 0
    assert isinstance(refused.value, DraftRefused)
    assert refused.value.listed[0] == {"ark": HARBOUR, "version": 2}
    drafts.save(site, ADA, upload, given.model_copy(update={"new_version": {HARBOUR: 2, PIER: 1}}))
    assert not drafts.deposit(site, ADA, upload).again


LINES_OF = {
    "operations/deposits/draft.py": {"deposit", "_manifest"},
    "operations/deposits/submission.py": {"submit"},
    "pipeline/uploads/stored.py": {"write_record"},
    "pipeline/uploads/writing.py": {"use", "finish", "_publish"},
    "zkstate/record/batches.py": {"submit_once", "_submit"},
}
"""The functions before each of whose lines the process is killed."""

DIED, DONE = 9, 0


def killed_at(number: int, work: Callable[[], object]) -> bool:
    """Kill a process that does the work before the line of this number; False if it has fewer lines."""
    child = fork()
    if child:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == DIED
    passed, begun = 0, False

    def on_line(_: FrameType, event: str, __: object) -> object:
        nonlocal passed
        passed += begun and event == "line"
        if passed == number:
            os._exit(DIED)
        return on_line

    def on_call(frame: FrameType, _: str, __: object) -> object:
        nonlocal begun
        code = frame.f_code
        begun = begun or code.co_name == "write_record"  # nothing is written before
        watched = (
            code.co_name in names for place, names in LINES_OF.items() if code.co_filename.endswith(place)
        )
        return on_line if any(watched) else None

    try:
        sys.settrace(on_call)  # type: ignore[arg-type]
        work()
        os._exit(DONE)
    finally:
        os._exit(1)


def test_a_process_that_is_killed_before_any_line_of_a_deposit_leaves_one_batch(
    site: Site, settings: Settings
) -> None:
    number, died = 0, True
    while died:
        number += 1
        upload, given = begin(site, f"file,id\na.jpg,h {number}\n", "a.jpg")
        drafts.save(site, ADA, upload, given)
        before = set(listings.all_batches(site.session))

        def deposit_elsewhere(upload: str = upload) -> None:
            with connect(settings) as session:
                drafts.deposit(Site(settings, session), ADA, upload)

        died = killed_at(number, deposit_elsewhere)
        done = drafts.deposit(site, ADA, upload)

        assert set(listings.all_batches(site.session)) - before == {done.bid}
        assert drafts.deposit(site, ADA, upload) == drafts.Deposited(bid=done.bid, again=True)
    assert done.again
    assert number > 60


def test_a_draft_whose_disk_is_full_is_a_clear_problem_and_the_earlier_one_stays(
    site: Site, settings: Settings
) -> None:
    upload, given = begin(site, "file\na.jpg\n", "a.jpg")
    drafts.save(site, ADA, upload, given)
    folder = stored.folder_of(settings.uploads_folder, upload)
    draft_of_record = folder / f"{stored.DRAFT}.draft"
    draft_of_record.symlink_to("/dev/full")

    with raises_code(codes.UPLOADS_FULL):
        drafts.save(site, ADA, upload, given.model_copy(update={"values": {"2:title": "Harbour"}}))

    assert saved_drafts.read(settings.uploads_folder, upload).values == {}
    draft_of_record.unlink()
    drafts.save(site, ADA, upload, given.model_copy(update={"values": {"2:title": "Harbour"}}))
    assert saved_drafts.read(settings.uploads_folder, upload).values == {"2:title": "Harbour"}


def test_a_preview_of_10_000_rows_reads_the_table_once_and_asks_for_hundreds_of_objects_at_a_time(
    site: Site, settings: Settings
) -> None:
    enter(settings, HARBOUR, 1, "h 1")
    rows = 10_000
    upload, given = begin(site, "file,title,id\n" + "".join(f"{n}.jpg,Scan {n},h {n}\n" for n in range(rows)))
    files = tuple(DraftFile(name=f"{n}.jpg", size=10) for n in range(rows))
    given = given.model_copy(update={"files": files, "new_version": {HARBOUR: 1}})
    statements: list[str] = []
    drafts._read_table.cache_clear()

    @event.listens_for(Engine, "before_cursor_execute")
    def count(_connection: Any, _cursor: Any, statement: str, *_: Any) -> None:
        statements.append(statement)

    try:
        preview = drafts.save(site, ADA, upload, given)
        view = drafts.show(site, ADA, upload, 9_900, 100, errors_only=False)
    finally:
        event.remove(Engine, "before_cursor_execute", count)

    assert (preview.object_count, preview.erroneous, len(preview.objects)) == (rows, 0, 100)
    assert [one.row for one in view.preview.objects][-1] == rows + 1
    assert drafts._read_table.cache_info().misses == 1
    assert len(statements) / 2 < 2 * rows / 300
    assert len(preview.model_dump_json()) < 100_000


def test_the_folder_of_uploads_has_no_file_beside_a_draft_but_its_lock(
    site: Site, settings: Settings
) -> None:
    upload, given = begin(site, "file\na.jpg\n", "a.jpg")
    drafts.save(site, ADA, upload, given)

    folder: Path = stored.folder_of(settings.uploads_folder, upload)

    assert {path.name for path in folder.iterdir() if path.is_file()} == {
        stored.RECORD,
        stored.DRAFT,
        "draft.lock",
    }


def test_a_spreadsheet_is_read_in_the_decoding_process_with_the_sheet_and_columns_that_were_chosen(
    site: Site,
) -> None:
    rows = (("Nachlass",), ("Datei", "Was es ist"), ("a.jpg", "Hafen"))
    body = "".join(inline(*texts) for texts in rows)
    upload, given = begin(site, "", "a.jpg")
    put(site, upload, "list.xlsx", xlsx(body))
    chosen = given.model_copy(
        update={"table": "list.xlsx", "sheet": "List", "header_row": 2, "columns": {"Was es ist": "title"}}
    )

    preview = drafts.save(site, ADA, upload, chosen)

    (one,) = preview.objects
    assert (one.row, one.title, one.errors) == (3, "Hafen", ())
    assert preview.table is not None
    assert (preview.table.sheets, preview.table.header_row) == (("List",), 2)
    assert [column.field for column in preview.table.columns] == ["file", "title"]
    wrong = drafts.save(site, ADA, upload, chosen.model_copy(update={"sheet": "Other"}))
    assert (len(wrong.errors), wrong.objects) == (1, ())
    site.decoder.close()


def test_drafts_are_not_said_to_be_gone_while_the_folder_of_uploads_is_not_mounted(
    site: Site, settings: Settings, tmp_path: Path
) -> None:
    elsewhere = settings.model_copy(update={"uploads": tmp_path / "not-mounted"})
    upload, given = begin(site, "file\na.jpg\n", "a.jpg")
    drafts.save(site, ADA, upload, given)

    with pytest.raises(ServiceDown, match="mount it"):
        drafts.unfinished(Site(elsewhere, site.session), ADA)

    assert [row.id for row in drafts.unfinished(site, ADA).drafts] == [upload]


@pytest.mark.parametrize("table", [None, "absent.csv"])
def test_a_table_that_has_not_arrived_is_an_error_of_the_whole(site: Site, table: str | None) -> None:
    upload, given = begin(site, "file\na.jpg\n")

    preview = drafts.save(site, ADA, upload, given.model_copy(update={"table": table}))

    assert (len(preview.errors), preview.objects, preview.table) == (1, (), None)
