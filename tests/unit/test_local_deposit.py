"""What becomes of files of this machine: objects, rows, and refusals before anything is uploaded."""

import re
import zipfile
from collections.abc import Mapping
from pathlib import Path

import pytest

from entrypoints.cli.commands import submit_command
from operations.deposits.local_deposit import (
    TABLES,
    LocalDeposit,
    plan_deposit,
    with_container_read,
)
from operations.deposits.local_upload import Payload, Read, upload_deposit
from pipeline import codes
from pipeline.errors import UsageRefused
from pipeline.fixity import size_and_sha512
from pipeline.manifests import checkm
from pipeline.manifests.checkm import ManifestError, ManifestProfile, Row
from pipeline.records import SubmissionType
from pipeline.settings import Settings
from pipeline.tables.content import Choice
from pipeline.uploads.stored import UploadedFile
from tests.support.errors import raises_code
from tests.support.manifests import FILES, manifest
from tests.support.spreadsheets import inline, xlsx

ID = "ab" * 16


class Received:
    """An uploader that keeps what it gets."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}

    def begin(self, key: str) -> str:
        return ID

    def arrived(self, upload: str) -> Mapping[str, UploadedFile]:
        return {}

    def remove(self, upload: str, name: str) -> None:
        del self.files[name]

    def put(self, upload: str, name: str, read: Read, size: int) -> UploadedFile:
        data = self.files[name] = b"".join(read(0))
        assert len(data) == size
        arrived, sha512 = size_and_sha512([data], lambda _: None)
        return UploadedFile(name=name, size=arrived, sha512=sha512)


def folder(path: Path, *names: str) -> Path:
    for name in names:
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        (path / name).write_text(name)
    return path


def uploaded(deposit: LocalDeposit) -> tuple[Payload, dict[str, bytes], tuple[Row, ...]]:
    received = Received()
    payload = upload_deposit(deposit, received)
    manifest = received.files.pop("manifest.checkm", None)
    return payload, received.files, checkm.parse(manifest, "it").rows if manifest else ()


def test_a_deposit_is_called_by_what_was_given_and_not_by_the_manifest_that_is_made_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = folder(tmp_path / "Nachlass Müller 1911", "a.txt")
    table = tmp_path / "good.csv"
    table.write_text("File\nNachlass Müller 1911/a.txt\n")
    monkeypatch.chdir(source)

    names = [plan_deposit(path).name for path in (source, Path(), table, source / "a.txt")]

    assert names == ["Nachlass Müller 1911", "Nachlass Müller 1911", "good.csv", "a.txt"]


def test_an_object_of_a_folder_is_called_as_the_folder_if_a_file_may_be_called_so(tmp_path: Path) -> None:
    usual = plan_deposit(folder(tmp_path / "Nachlass Müller 1911", "a.txt", "b.txt"))
    hidden = plan_deposit(folder(tmp_path / "a\u200bb", "a.txt", "b.txt"))
    table = tmp_path / "good.csv"
    table.write_text("File\nNachlass Müller 1911/a.txt\nNachlass Müller 1911/b.txt\n")

    names = [uploaded(deposit)[0].filename for deposit in (usual, hidden, plan_deposit(table))]

    assert names == ["Nachlass Müller 1911", "manifest.checkm", "manifest.checkm"]


def test_of_a_large_zip_its_directory_alone_is_read(tmp_path: Path) -> None:
    archive = tmp_path / "scans.zip"
    with archive.open("wb") as file:
        file.write(b"PK\x03\x04")
        file.seek(1 << 40)  # a hole, which takes an hour to read
        with zipfile.ZipFile(file, "w") as packed:
            packed.writestr("a.txt", "a")
            packed.mkdir("empty")

    deposit = with_container_read(plan_deposit(archive), Settings())

    assert (deposit.type, deposit.empty) == (SubmissionType.CONTAINER, ("empty",))


@pytest.mark.parametrize(
    ("files", "says"),
    [
        ((), "container 'scans.zip' has no files in it"),
        (("../a.txt",), "rename it and pack again"),
        (("\u00e9.txt", "e\u0301.txt"), "is given twice, once composed and once decomposed"),
        (("locked.txt",), "'locked.txt' is encrypted; pack it without a password"),
    ],
)
def test_a_dry_run_refuses_a_container_that_a_worker_would_refuse(
    tmp_path: Path, files: tuple[str, ...], says: str
) -> None:
    archive = tmp_path / "scans.zip"
    with zipfile.ZipFile(archive, "w") as packed:
        for name in files:
            packed.writestr(name, "a")
    if files == ("locked.txt",):
        data = bytearray(archive.read_bytes())
        for header, flags in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
            data[data.index(header) + flags] |= 1
        archive.write_bytes(data)

    with pytest.raises(UsageRefused, match=re.escape(says)):
        with_container_read(plan_deposit(archive), Settings())


def test_a_dry_run_leaves_names_of_unknown_encoding_to_the_collection(tmp_path: Path) -> None:
    """In Shift-JIS, the second byte of some characters is a backslash."""
    archive, raw = tmp_path / "scans.zip", "\u8868.txt".encode("shift_jis")
    with zipfile.ZipFile(archive, "w") as packed:
        packed.writestr("_" * len(raw), "a")
    archive.write_bytes(archive.read_bytes().replace(b"_" * len(raw), raw))

    assert with_container_read(plan_deposit(archive), Settings()).objects == 1


def test_a_file_is_stored_under_its_name_even_if_that_has_an_escape(tmp_path: Path) -> None:
    source = folder(tmp_path / "reports", "My%20Report.pdf", "sub%7c/a%2520b.pdf", "My Report.pdf")

    _, files, rows = uploaded(plan_deposit(source))

    assert {row.name for row in rows} == {"My%20Report.pdf", "sub%7c/a%2520b.pdf", "My Report.pdf"}
    assert {name.removeprefix("files/") for name in files} == {row.name for row in rows}


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("scans/img_1.JPG", "scans/IMG_1.jpg"),
        ("scans/img_1.jpeg", "scans/IMG_1.jpg"),
        ("Scans/IMG_1.jpg", "scans/IMG_1.jpg"),
        ("Scan/img_1.jpg", "scans/IMG_1.jpg"),
        ("scans/Mai 2009/a.txt", "scans/mai 2009/a.txt"),
    ],
)
def test_a_table_that_names_a_file_by_another_spelling_is_asked_what_is_meant(
    tmp_path: Path, written: str, meant: str
) -> None:
    names = ("scans/IMG_1.jpg", "scans/other.txt", "scans/mai 2009/a.txt")
    table = folder(tmp_path, *names) / "table.csv"
    table.write_text(f"File\n{written}\n")

    with pytest.raises(ManifestError, match=f"did you mean '{meant}'"):
        plan_deposit(table)


def test_a_file_whose_name_composes_letters_otherwise_than_the_table_is_meant_and_this_is_said(
    tmp_path: Path,
) -> None:
    actual = ("U\u0308/U\u0308bersicht.jpg", "U\u0308/o\u0308.jpg")
    table = folder(tmp_path, *actual) / "table.csv"
    table.write_text("File\n\u00dc/\u00dcbersicht.jpg\n\u00dc/\u00f6.jpg\n")

    deposit = plan_deposit(table)

    assert {row.name for row in uploaded(deposit)[2]} == set(actual)
    (remark,) = deposit.remarks
    assert "differs only in how a letter is composed" in remark
    assert remark.endswith("which is there (and 1 more)")


def test_a_table_names_no_file_of_another_upload(tmp_path: Path) -> None:
    (tmp_path / "list.csv").write_text(f"URL\nupload:{'0' * 32}/a.jpg\n")

    with pytest.raises(ManifestError, match=r"^table .*list.csv: row 2: 'upload:0.*' is not in the upload"):
        plan_deposit(tmp_path / "list.csv")


def test_a_row_without_a_file_is_told_so(tmp_path: Path) -> None:
    table = folder(tmp_path, "a.jpg") / "table.csv"
    table.write_text("File,Title\na.jpg,First\n,Second\n")

    with pytest.raises(ManifestError, match="row 3: the row names no file"):
        plan_deposit(table)


def test_a_folder_becomes_one_object_with_its_files_and_their_digests(tmp_path: Path) -> None:
    source = folder(tmp_path / "photos", "a.jpg", "front side/b|1.jpg", ".htaccess")

    deposit = plan_deposit(source)
    payload, files, rows = uploaded(deposit)

    assert (deposit.type, deposit.objects, deposit.hidden) == (
        SubmissionType.OBJECT_MANIFEST,
        1,
        (".htaccess",),
    )
    assert payload.url == f"upload:{ID}/manifest.checkm"
    assert files == {f"files/{row.name}": row.name.encode() for row in rows}
    assert [row.name for row in rows] == [".htaccess", "a.jpg", "front side/b|1.jpg"]
    assert rows[2].url == f"upload:{ID}/files/front%20side/b%7C1.jpg"
    assert all(row.digest and row.digest.algorithm == "sha512" and row.size for row in rows)


def test_files_of_the_operating_system_are_left_out_and_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = folder(tmp_path / "photos", "a.jpg", "sub/Thumbs.db", "._a.jpg", ".DS_Store")

    deposit = plan_deposit(source, object_per_file=True)
    submit_command.describe(deposit)

    assert (deposit.objects, [file.name for file in deposit.files]) == (1, ["files/a.jpg"])
    assert deposit.left_out == (".DS_Store", "._a.jpg", "sub/Thumbs.db")
    said = " ".join(capsys.readouterr().err.split())
    assert "left out (--all-files keeps them): '.DS_Store', '._a.jpg', 'sub/Thumbs.db'" in said
    assert plan_deposit(source, object_per_file=True, all_files=True).objects == 4


@pytest.mark.parametrize(
    ("bag", "left_out"), [("", ()), ("bag/", (".DS_Store",)), ("a/b/", (".DS_Store", "a/b/data/Thumbs.db"))]
)
def test_nothing_is_left_out_of_a_bag(tmp_path: Path, bag: str, left_out: tuple[str, ...]) -> None:
    names = (f"{bag}bagit.txt", f"{bag}data/Thumbs.db", ".DS_Store")

    deposit = plan_deposit(folder(tmp_path / "photos", *names))

    assert deposit.left_out == left_out
    assert len(deposit.files) == len(names) - len(left_out)


def test_a_bag_of_which_each_file_is_an_object_is_not_compared_and_loses_files_of_systems(
    tmp_path: Path,
) -> None:
    source = folder(tmp_path / "photos", "bagit.txt", "data/.DS_Store")

    assert plan_deposit(source, object_per_file=True).left_out == ("data/.DS_Store",)


def test_a_folder_of_files_of_the_operating_system_alone_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageRefused, match="has no files"):
        plan_deposit(folder(tmp_path / "photos", ".DS_Store"))


def test_a_manifest_is_described_by_its_objects(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = (f"https://x.edu/{number}.jpg" for number in range(50))
    (tmp_path / "fifty.checkm").write_bytes(manifest(*rows, profile=FILES))

    submit_command.describe(
        plan_deposit(tmp_path / "fifty.checkm", SubmissionType.SINGLE_FILE_BATCH_MANIFEST)
    )

    said = " ".join(capsys.readouterr().err.split())
    assert "fifty.checkm: 50 objects, submitted as a list of objects, 1.1 kB" in said


def test_folders_without_files_are_named_before_a_folder_is_submitted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = folder(tmp_path / "photos", "a.jpg", "full/b.jpg")
    for name in ("c", "a/b", "d", "full/e"):
        (source / name).mkdir(parents=True)

    submit_command.describe(plan_deposit(source))

    said = " ".join(capsys.readouterr().err.split())
    assert "folders without files are not deposited: 'a/b', 'c', 'd' and 1 more" in said


def test_a_folder_becomes_an_object_for_each_file_if_asked(tmp_path: Path) -> None:
    deposit = plan_deposit(folder(tmp_path, "a.jpg", "b.jpg"), object_per_file=True)

    assert (deposit.type, deposit.objects) == (SubmissionType.SINGLE_FILE_BATCH_MANIFEST, 2)


@pytest.mark.parametrize(
    ("name", "kind"), [("a.jpg", SubmissionType.FILE), ("a.zip", SubmissionType.CONTAINER)]
)
def test_a_file_is_submitted_as_its_name_says(tmp_path: Path, name: str, kind: SubmissionType) -> None:
    deposit = plan_deposit(folder(tmp_path, name) / name)

    payload, files, _ = uploaded(deposit)

    assert deposit.type is kind
    assert (payload.url, payload.filename, files) == (f"upload:{ID}/{name}", name, {name: name.encode()})


def test_two_rows_with_one_identifier_are_refused_before_anything_is_uploaded(tmp_path: Path) -> None:
    folder(tmp_path, "a.jpg", "b.jpg")
    table = tmp_path / "objects.csv"
    table.write_text("File,Call Number\na.jpg,DUP-1\nb.jpg,DUP-1\n")

    with pytest.raises(ManifestError, match="row 3: row 2 has the same local id 'DUP-1'"):
        plan_deposit(table)


def test_a_batch_manifest_of_this_machine_is_read_before_it_is_uploaded(tmp_path: Path) -> None:
    rows = [Row(0, f"https://x.edu/{name}", name, local_id=(name,)) for name in ("a", "b")]
    path = tmp_path / "batch.checkm"
    kind = ManifestProfile.FILE_BATCH
    path.write_bytes(checkm.write(kind, rows))

    deposit = plan_deposit(path, kind.submission_type)
    path.write_bytes(path.read_bytes().replace(b"| b |  |", b"| a |  |").replace(b"|  | b |", b"|  | a |"))

    assert (deposit.objects, [row.local_id for row in deposit.listed]) == (2, [("a",), ("b",)])
    with pytest.raises(ManifestError, match="the same local id 'a'"):
        plan_deposit(path, kind.submission_type)


def test_a_table_names_files_beside_it_and_urls(tmp_path: Path) -> None:
    folder(tmp_path, "a.jpg", "sub/b.jpg")
    table = tmp_path / "objects.csv"
    table.write_text(
        "File,URL,Title,Call Number\n"
        "a.jpg,,First,c 1\n"
        "sub/b.jpg,,Second,c 2\n"
        "c.jpg,https://example.org/c.jpg,Third,c 3\n"
    )

    deposit = plan_deposit(table)
    _, files, rows = uploaded(deposit)

    assert (deposit.objects, [row.local_id for row in deposit.rows]) == (3, [("c 1",), ("c 2",), ("c 3",)])
    assert sorted(files) == ["files/a.jpg", "files/sub/b.jpg"]
    assert [(row.name, row.title, row.digest is not None) for row in rows] == [
        ("a.jpg", "First", True),
        ("sub/b.jpg", "Second", True),
        ("c.jpg", "Third", False),
    ]


def test_a_spreadsheet_names_files_beside_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table = folder(tmp_path, "a.jpg", "b.jpg") / "list.xlsx"
    rows = inline("Nachlass Müller") + inline("Datei", "Titel", "Signatur", "Datum")
    table.write_bytes(
        xlsx(rows + inline("a.jpg", "Erste", "N 1", "1/2/1911") + inline("b.jpg", "#REF!", "N 2"))
    )

    deposit = plan_deposit(table)
    submit_command.describe(deposit)
    _, files, rows_read = uploaded(deposit)

    assert (deposit.type, deposit.objects) == (SubmissionType.SINGLE_FILE_BATCH_MANIFEST, 2)
    assert sorted(files) == ["files/a.jpg", "files/b.jpg"]
    assert [(row.title, row.local_id, row.date) for row in rows_read] == [
        ("Erste", ("N 1",), "1/2/1911"),
        ("#REF!", ("N 2",), ""),
    ]
    said = " ".join(capsys.readouterr().err.split())
    assert "row 2 is read as the header row; the rows above it are not used" in said
    assert "column 'Titel': '#REF!' is an error of a spreadsheet, not a value" in said
    assert "column 'Datum': the date '1/2/1911' is ambiguous: write 1911-02-01 or 1911-01-02" in said


def test_a_person_says_what_columns_of_a_table_are(tmp_path: Path) -> None:
    table = folder(tmp_path, "a.jpg") / "list.tsv"
    table.write_text("Scan\tUmfang\tTitel\tAltsignatur\na.jpg\t3 Bl.\tErste\tN 1\n")

    with pytest.raises(
        ManifestError, match=r"'Scan' is not a column .*'Umfang' is not .*'Altsignatur' is not"
    ):
        plan_deposit(table)
    columns = {"Scan": "File", "Umfang": "", "Altsignatur": "local id"}
    deposit = plan_deposit(table, choice=Choice(columns=columns))

    assert [(row.name, row.title, row.local_id) for row in deposit.rows] == [("a.jpg", "Erste", ("N 1",))]


@pytest.mark.parametrize(
    "data",
    [
        "Datei\tTitel\na.jpg\tErste\n".encode("utf-16"),
        b"File;Title\na.jpg;M\xfcller\n",
        ("File,Title\n" + "a.jpg,Müller\n" * 20_000).encode(),
        xlsx(inline("File", "Title")),
    ],
    ids=["UTF-16", "cp1252", "large", "xlsx"],
)
def test_a_file_whose_content_is_a_table_is_not_taken_for_an_object_unasked(
    tmp_path: Path, data: bytes
) -> None:
    source = tmp_path / "list.txt"
    source.write_bytes(data)

    with pytest.raises(
        UsageRefused, match="looks like a table: add --type single-file-batch-manifest to make"
    ):
        plan_deposit(source)
    assert plan_deposit(source, SubmissionType.FILE).type is SubmissionType.FILE


def test_the_page_knows_the_suffixes_of_tables_that_the_command_line_knows() -> None:
    script = Path("entrypoints/web/static/deposit/choose.js").read_text()

    (suffixes,) = re.findall(r"isTable = .*\((.*)\)\$", script)
    assert {f".{suffix}" for suffix in suffixes.split("|")} == set(TABLES)


@pytest.mark.parametrize(
    "data",
    [b"Dear Sir,\nthe file; its size\n", b"\xff\xd8\xff\xe0\0\x10JFIF", b"PK\3\4 word/document.xml", b""],
)
def test_a_file_that_is_no_table_is_an_object(tmp_path: Path, data: bytes) -> None:
    source = tmp_path / "letter.txt"
    source.write_bytes(data)

    assert plan_deposit(source).type is SubmissionType.FILE


def test_every_file_that_a_table_lacks_is_named_with_its_line(tmp_path: Path) -> None:
    table = folder(tmp_path, "a.jpg") / "objects.csv"
    table.write_text("File\na.jpg\nb.jpg\n../secret\n")

    with pytest.raises(ManifestError) as refused:
        plan_deposit(table)

    assert [(problem.line, problem.message.partition("'")[2][:6]) for problem in refused.value.problems] == [
        (3, "b.jpg'"),
        (4, "../sec"),
    ]


def test_what_cannot_be_deposited_is_refused_before_anything_is_uploaded(tmp_path: Path) -> None:
    with pytest.raises(UsageRefused, match="neither a URL nor a file"):
        plan_deposit(tmp_path / "absent")
    with pytest.raises(UsageRefused, match="has no files"):
        plan_deposit(tmp_path)
    with pytest.raises(UsageRefused, match="give its type"):
        plan_deposit(folder(tmp_path, "m.checkm") / "m.checkm")
    (tmp_path / "link").symlink_to("/etc/hostname")
    with pytest.raises(UsageRefused, match="symbolic link"):
        plan_deposit(tmp_path)


def test_bytes_that_changed_on_the_way_are_not_submitted(tmp_path: Path) -> None:
    class Damaging(Received):
        def put(self, upload: str, name: str, read: Read, size: int) -> UploadedFile:
            return super().put(upload, name, read, size).model_copy(update={"sha512": "0" * 128})

    with raises_code(codes.TRANSFER_DAMAGED):
        upload_deposit(plan_deposit(folder(tmp_path, "a.jpg") / "a.jpg"), Damaging())
