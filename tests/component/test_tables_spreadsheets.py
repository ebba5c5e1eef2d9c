"""Spreadsheets: what archivists' programs write is read as text with remarks, and what attacks ends."""

import base64
import gzip
import io
import sys
import zipfile
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import datetime

import pytest
import xlsxwriter
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.decoding import calls
from pipeline.decoding.decoder import Decoder
from pipeline.manifests.from_csv import is_error
from pipeline.settings import Settings
from pipeline.tables.content import (
    CELLS_LIMIT,
    NO_CHOICE,
    Choice,
    TableContent,
    TableFormat,
    TableUnreadable,
)
from pipeline.tables.remarks import RemarkKind, summaries
from tests.support.fuzzing import result_or_refusal
from tests.support.spreadsheets import inline, ods, ods_row, ods_text, xlsx, zipped

LINUX = pytest.mark.skipif(sys.platform != "linux", reason="macOS has no such limit")


@pytest.fixture(scope="module")
def decoder() -> Iterator[Decoder]:
    with closing(Decoder(Settings(), seconds=5)) as decoder:
        yield decoder


@pytest.fixture
def read(decoder: Decoder) -> Callable[..., TableContent]:
    def read(data: bytes, choice: Choice = NO_CHOICE, name: str = "list.xlsx") -> TableContent:
        return calls.read_table(decoder, data, name, choice)

    return read


def said(table: TableContent) -> list[str]:
    return [sentence for _, sentence in summaries(table.remarks, table.title)]


def cells(table: TableContent) -> list[tuple[int, tuple[str, ...]]]:
    return [(row.number, row.cells) for row in table.rows]


def written(date_1904: bool = False) -> bytes:
    """A list as an archivist keeps it, written by a library that writes as Excel does."""
    data = io.BytesIO()
    book = xlsxwriter.Workbook(data, {"in_memory": True, "date_1904": date_1904})
    day = book.add_format({"num_format": "dd.mm.yyyy"})
    sheet = book.add_worksheet("Fotos")
    book.add_worksheet("Notizen")
    sheet.merge_range(0, 0, 0, 3, "Nachlass Müller")
    sheet.write_row(2, 0, ["Datei", "Titel", "Datum", "Signatur"])
    sheet.write_row(3, 0, ["a.jpg", "Hafen"])
    sheet.write_datetime(3, 2, datetime.fromisoformat("2024-02-01"), day)
    sheet.write_number(3, 3, 17)
    sheet.write_string(4, 0, "b.jpg")
    sheet.write_formula(4, 1, '=HYPERLINK("http://x","Hafen")', None, "Hafen")
    sheet.write_number(4, 2, 45292)
    sheet.write_formula(4, 3, "=Alt!A1", None, "#REF!")
    sheet.write_string(6, 0, "c.jpg")
    sheet.write_formula(6, 1, "=A1", None, "")
    sheet.write_datetime(6, 2, datetime.fromisoformat("2024-02-01T13:05"), day)
    sheet.merge_range(6, 3, 7, 3, "007")
    sheet.write_string(7, 0, "d.jpg")
    book.close()
    return data.getvalue()


@pytest.mark.parametrize("date_1904", [False, True])
@pytest.mark.parametrize("name", ["list.xlsx", "list.csv"])
def test_a_list_of_excel_is_read_as_text_with_remarks(
    read: Callable[..., TableContent], date_1904: bool, name: str
) -> None:
    table = read(written(date_1904), name=name)

    assert (table.format, table.sheets, table.sheet) == (TableFormat.XLSX, ("Fotos", "Notizen"), "Fotos")
    assert (table.header_row, table.fields) == (3, ("file", "title", "date", "local_id"))
    assert cells(table) == [
        (4, ("a.jpg", "Hafen", "2024-02-01", "17")),
        (5, ("b.jpg", "Hafen", "45292", "#REF!")),
        (7, ("c.jpg", "", "2024-02-01T13:05:00", "007")),
        (8, ("d.jpg",)),
    ]
    assert said(table) == [
        "only the sheet 'Fotos' is read",
        "row 3 is read as the header row; the rows above it are not used",
        "column 'Signatur': the cells D7:D8 are merged: only the first of them has the value",
        "column 'Titel': a formula; the value that was saved with it is used: 'Hafen'",
        "column 'Titel': a formula without its value: '=A1'; replace the formula by its value",
        "column 'Signatur': '#REF!' is an error of a spreadsheet, not a value",
        "column 'Datum': '45292' is a spreadsheet's number for a day: write 2024-01-01 if that is meant",
    ]


def test_a_sheet_is_chosen_by_its_name(read: Callable[..., TableContent]) -> None:
    table = read(written(), Choice(sheet="Notizen"))

    assert (table.sheet, table.header, table.rows, table.remarks) == ("Notizen", (), (), ())
    with pytest.raises(TableUnreadable, match="there is no sheet 'X'; sheets: 'Fotos', 'Notizen'"):
        read(written(), Choice(sheet="X"))


def test_a_hidden_first_sheet_is_not_the_one_that_is_read(read: Callable[..., TableContent]) -> None:
    data = io.BytesIO()
    book = xlsxwriter.Workbook(data, {"in_memory": True})
    hidden, shown = book.add_worksheet("Listen"), book.add_worksheet("Fotos")
    hidden.write_row(0, 0, ["Titel", "Jahr"])
    shown.write_row(3, 2, ["Datei", "Titel"])
    shown.activate()
    hidden.hide()
    book.close()

    table = read(data.getvalue())

    assert (table.sheet, table.header_row, table.header) == ("Fotos", 4, ("", "", "Datei", "Titel"))


ODS_LIST = (
    '<table:table table:name="Fotos">'
    + '<table:table-row><table:table-cell table:number-columns-spanned="3" office:value-type="string">'
    + "<text:p>Nachlass</text:p></table:table-cell><table:covered-table-cell "
    + 'table:number-columns-repeated="2"/></table:table-row>'
    + '<table:table-row table:number-rows-repeated="2"><table:table-cell/></table:table-row>'
    + ods_row(*ods_text("Fichier", "Titre", "Date", "Cote"))
    + ods_row(
        *ods_text("a.jpg"),
        '<table:table-cell table:formula="of:=HYPERLINK(&quot;x&quot;)" office:value-type="string" '
        'office:string-value="Port" calcext:value-type="string"><text:p>Port</text:p></table:table-cell>',
        '<table:table-cell office:value-type="date" office:date-value="2024-02-01"><text:p>01/02/24</text:p>'
        "<office:annotation><text:p>à vérifier</text:p></office:annotation></table:table-cell>",
        '<table:table-cell table:formula="of:=[.#REF!]" office:value-type="float" office:value="0" '
        'calcext:value-type="error"><text:p>#REF!</text:p></table:table-cell>',
    )
    + ods_row(
        *ods_text("b.jpg"),
        '<table:table-cell table:formula="of:=[.A1]"/>',
        '<table:table-cell office:value-type="string"><text:p>3/4/2024</text:p></table:table-cell>',
        '<table:table-cell table:number-rows-spanned="2" table:number-columns-spanned="1" '
        'office:value-type="float" office:value="17"><text:p>17</text:p></table:table-cell>',
    )
    + '<table:table-row table:number-rows-repeated="1048000"><table:table-cell '
    'table:number-columns-repeated="16384"/></table:table-row></table:table><table:table table:name="Notes"/>'
)


def test_a_list_of_libreoffice_is_read_as_text_with_remarks(read: Callable[..., TableContent]) -> None:
    table = read(ods(ODS_LIST), name="list.ods")

    assert (table.format, table.sheets, table.header_row) == (TableFormat.ODS, ("Fotos", "Notes"), 4)
    assert table.fields == ("file", "title", "date", "local_id")
    assert cells(table) == [
        (5, ("a.jpg", "Port", "2024-02-01", "#REF!")),
        (6, ("b.jpg", "", "3/4/2024", "17")),
    ]
    assert said(table) == [
        "only the sheet 'Fotos' is read",
        "row 4 is read as the header row; the rows above it are not used",
        "column 'Titre': a formula; the value that was saved with it is used: 'Port'",
        "column 'Titre': a formula without its value: 'of:=[.A1]'; replace the formula by its value",
        "column 'Cote': the cells D6:D7 are merged: only the first of them has the value",
        "column 'Cote': '#REF!' is an error of a spreadsheet, not a value",
        "column 'Date': the date '3/4/2024' is ambiguous: write 2024-04-03 or 2024-03-04",
    ]


XLS = gzip.decompress(
    base64.b85decode(
        "ABzY8000000t4+>O=uHA6#izDZGLF}YAUos2?eXx5-480w5z3B1XHRA{vc>#SBZ^ji4m~}t=1d`!IR>pP!C?}&%qxQQS{(J"
        "sOUiughcV=Nl@^RW_|N^*QT{X16qjex6GTF_vV{<yKjDW_w{U~ICZDBghl9u3l+nMhAN$)<g+Vbkliq3(ayb;3<q@upO*sJ"
        "pyE;Bl}E-<#=8Usx82W30v{<I#25xgvwCa=(Z@a{h4i6^q`-C31ku7?HL*Oxauv&4-10HYEv&i3vWMCh#R1G}gPohLS-eka"
        "XIl`m-}}sY&zf#D<E5O%=PnDgt%|L=bTU(ChBkL2ra=K6(6f3@)<d`fKhWPFPbA{|2}MLH*wgrK#DH)1s(u=C^ed|uApMVp"
        "de0y9UJBx3{T0OxOu#tIi===6y4}*EVrTkfUN2*ZoClm#ihnY%rzzi)&g&Voe(D6}$@uZHV<Dg~m)4KQlG#|IoXO}pvZSPi"
        "dK^Ekr~UE(;0+_ZV8aOTLTV&Aj1ZS2yqv=1arx%gH;L4cc8E0-d`Or_$y(_-44jt?A_v*R&eP!obTVTj%M0A=8ZNi8jMD8;"
        "-Z9i{6}C@un~QAipm8=a-fHWr%Im3I__FIkTj7(ofyy%jrSa&@J8cT>bhHf<UtW{w5?$ijRf&h1oeOK*`M|Q}w=Kx4ge~6<"
        ">%0tMPA)n^gr!-NPe=T!Db}-+Y_SAeFxzFd7tEH==&T}Z3i%X&p)gxnf~_!Hwb*848Z5TLW8ZylvR&-UJo^bf9hc?nXP9HT"
        "c>G?a3HM~jw9(GP4+jn$IB?*=fddD10Ku<)<_ovm{6^pxM341fXO2?E`AzcQVmC(V%F{>XHe@N!;Y>~QXEjt|_a&CevHurJ"
        "?4{9j7(t5t7^!*w(kGdyzMo|i!+&oH)jEEq7C-;-_&)(;=O)tt761S"
    )
)
"""A list of the old format: 5.6 kB, with a date, letters and merged cells."""


def test_a_list_of_the_old_excel_is_read_and_its_limits_are_said(read: Callable[..., TableContent]) -> None:
    table = read(XLS, name="list.xls")

    assert (table.format, table.header) == (TableFormat.XLS, ("Datei", "Titel", "Datum"))
    assert cells(table) == [
        (2, ("a.jpg", "Brief an Müller", "2024-02-01")),
        (3, ("b.jpg", "zwei", "45292")),
    ]
    assert said(table)[:2] == [
        "an xls file does not show which cells have formulas or errors: check the values, or save the table "
        "as .xlsx",
        "column 'Titel': the cells B3:B4 are merged: only the first of them has the value",
    ]


def test_positions_are_optional_and_prefixes_are_allowed(read: Callable[..., TableContent]) -> None:
    table = read(xlsx(inline("File", "Title") + '<row><c/><c t="e"><f>1/0</f><v>#DIV/0!</v></c></row>'))

    assert cells(table) == [(2, ("", "#DIV/0!"))]
    assert said(table) == ["column 'Title': '#DIV/0!' is an error of a spreadsheet, not a value"]


def test_a_formula_whose_text_is_empty_has_a_value(read: Callable[..., TableContent]) -> None:
    table = read(xlsx(inline("File", "Title") + '<row><c t="str"><f>B1</f><v></v></c><c><v>1</v></c></row>'))

    assert (cells(table), said(table)) == ([(2, ("", "1"))], [])


def refusal(read: Callable[..., TableContent], data: bytes, name: str = "list.xlsx") -> str:
    with pytest.raises(TableUnreadable) as refused:
        read(data, name=name)
    return str(refused.value)


LAUGHS = "<!DOCTYPE x [<!ENTITY a 'ha'>" + "".join(
    f"<!ENTITY {name} '{f'&{before};' * 10}'>" for before, name in zip("abcdefgh", "bcdefghi", strict=True)
)


def test_an_ods_of_a_billion_laughs_ends_with_a_sentence(
    read: Callable[..., TableContent], decoder: Decoder
) -> None:
    bomb = ods(f'<table:table table:name="L">{ods_row(*ods_text("&i;"))}</table:table>', LAUGHS + "]>")

    message = refusal(read, bomb, "list.ods")

    assert message.startswith("table 'list.ods': ")
    assert read(written()).header_row == 3


def test_an_xlsx_with_entities_ends_with_a_sentence(read: Callable[..., TableContent]) -> None:
    message = refusal(read, xlsx(inline("File", "&i;"), LAUGHS + "]>"))

    assert message.startswith("table 'list.xlsx': it")


def test_an_xlsx_that_would_unpack_to_gigabytes_ends_with_its_directory(
    read: Callable[..., TableContent],
) -> None:
    bomb = xlsx(b" " * 210_000_000)

    assert refusal(read, bomb).startswith("table 'list.xlsx': it would unpack to 210,00")


@LINUX
def test_a_zip_that_lies_about_its_size_ends_with_a_sentence(read: Callable[..., TableContent]) -> None:
    honest = xlsx(inline("File") + "<row><c><v>1</v></c></row>" * 1_000_000)
    with zipfile.ZipFile(io.BytesIO(honest)) as archive:
        size = archive.getinfo("xl/worksheets/one.xml").file_size
    lie = honest.replace(size.to_bytes(4, "little"), (1000).to_bytes(4, "little"))
    assert lie != honest

    message = refusal(read, lie)

    assert "table 'list.xlsx'" in message
    assert read(written()).header_row == 3


@pytest.mark.parametrize(
    "rows",
    [
        '<row r="1"><c r="A1"><v>1</v></c></row><row r="1048576"><c r="XFD1048576"><v>1</v></c></row>',
        '<row r="1"><c r="A1"><v>1</v></c></row><row r="1048576"><c r="AZ1048576"><v>1</v></c></row>',
        '<row r="-5"><c r="A9999999"><v>1</v></c></row>',
        '<row r="x"><c r="ZZZZ1"><f/></c></row>',
    ],
)
def test_a_sheet_of_two_distant_cells_does_not_fill_the_memory(
    read: Callable[..., TableContent], rows: str
) -> None:
    result = result_or_refusal(lambda: read(xlsx(rows)))

    if isinstance(result, TableUnreadable):
        assert "table 'list.xlsx'" in str(result)
    else:
        assert isinstance(result, TableContent)
    assert read(written()).header_row == 3


def test_a_repetition_of_an_ods_is_no_bomb(read: Callable[..., TableContent]) -> None:
    cell = (
        '<table:table-cell table:number-columns-repeated="{0}" office:value-type="float" office:value="1"/>'
    )
    row = '<table:table-row table:number-rows-repeated="{0}">' + cell + "</table:table-row>"
    row = row.format(999_999_999)

    message = refusal(read, ods(f'<table:table table:name="L">{row}</table:table>'), "list.ods")

    assert message.startswith("table 'list.ods': it cannot be read (")


def test_more_cells_than_a_table_has_are_refused(read: Callable[..., TableContent]) -> None:
    data = "File,Title\n" + (",".join("a" * 1000) + "\n") * (CELLS_LIMIT // 1000)

    assert (
        refusal(read, data.encode(), "list.csv")
        == "table 'list.csv': it has more than 1,000,000 cells: divide it"
    )


@pytest.mark.parametrize(
    "data",
    [
        zipped({"xl/workbook.xml": "<workbook/>"}),
        zipped({"xl/workbook.xml": "no xml"}),
        written()[:2000],
        ods("")[:300],
        XLS[:1024],
        XLS[:514] + b"\0" + XLS[515:],  # the library panics
        b"PK\3\4 xl/workbook.xml",
    ],
)
def test_damaged_spreadsheets_are_refused_with_their_name(
    read: Callable[..., TableContent], data: bytes
) -> None:
    assert refusal(read, data).startswith("table 'list.xlsx': ")


@settings(max_examples=60)
@given(st.data())
def test_a_spreadsheet_with_other_bytes_is_read_or_refused(decoder: Decoder, data: st.DataObject) -> None:
    spoiled = bytearray(data.draw(st.sampled_from([SMALL, ods(ODS_LIST), XLS])))
    for _ in range(data.draw(st.integers(1, 8))):
        spoiled[data.draw(st.integers(0, len(spoiled) - 1))] = data.draw(st.integers(0, 255))

    result = result_or_refusal(lambda: calls.read_table(decoder, bytes(spoiled), "list"))

    assert isinstance(result, TableContent | TableUnreadable)


SMALL = written()


def test_numbers_in_a_column_of_identifiers_are_pointed_out_once(
    read: Callable[..., TableContent],
) -> None:
    target = io.BytesIO()
    with xlsxwriter.Workbook(target) as book:
        sheet = book.add_worksheet()
        sheet.write_row(0, 0, ["File", "Call number", "Size"])
        sheet.write_row(1, 0, ["a.jpg", "0006", 17])
        for row in (2, 3):
            sheet.write_string(row, 0, f"{row}.jpg")
            sheet.write_number(row, 1, 10 ** (3 - row) * 7)

    table = read(target.getvalue())

    assert [row.cells[1] for row in table.rows] == ["0006", "70", "7"]
    assert [(remark.kind, remark.row, remark.column) for remark in table.remarks] == [
        (RemarkKind.NUMBER, 4, 1)
    ]
    assert str(table.remarks[0]).startswith("'7' is a number, and others have more digits")


SHOWN = [
    ("0000", 7, "0007"),
    ("0000", 12345, "12345"),
    ('"MUE-"000', 7, "MUE-007"),
    ("\\M000", 7, "M007"),
    ('0" sheets"', 7, "7 sheets"),
    ("0000", 7.5, "7.5"),
    ("0000", -7, "-7"),
    ("#,##0", 1234, "1234"),
    ("0.00", 7, "7"),
    ("00.00", 7, "7"),
    ('"%d {} "00', 7, "%d {} 07"),
]


def test_a_whole_number_is_read_as_the_cell_of_excel_shows_it(read: Callable[..., TableContent]) -> None:
    target = io.BytesIO()
    with xlsxwriter.Workbook(target) as book:
        sheet = book.add_worksheet()
        sheet.write_row(0, 0, ["File", "Call number"])
        for row, (code, number, _) in enumerate(SHOWN, 1):
            sheet.write_string(row, 0, f"{row}.jpg")
            sheet.write_number(row, 1, number, book.add_format({"num_format": code}))
        last = len(SHOWN) + 1
        sheet.write_string(last, 0, "formula.jpg")
        sheet.write_formula(last, 1, "=3+4", book.add_format({"num_format": "0000"}), 7)

    table = read(target.getvalue())

    assert [row.cells[1] for row in table.rows] == [*(text for _, _, text in SHOWN), "0007"]
    assert "the value that was saved with it is used: '0007'" in " ".join(said(table))


def test_a_whole_number_is_read_as_the_cell_of_libreoffice_shows_it(
    read: Callable[..., TableContent],
) -> None:
    def number(value: str, shown: str) -> str:
        return (
            f'<table:table-cell office:value-type="float" office:value="{value}">'
            f"<text:p>{shown}</text:p></table:table-cell>"
        )

    cases = [("7", "0007"), ("7", "MUE-007"), ("1234", "1,234"), ("7", "7.00"), ("7.5", "0008"), ("7", "7")]
    rows = "".join(ods_row(*ods_text("a.jpg"), number(value, shown)) for value, shown in cases)
    style = '<number:number number:min-integer-digits="4"/>'
    spaces = 'xmlns:number="urn:oasis:names:tc:opendocument:xmlns:datastyle:1.0"'
    head = ods_row(*ods_text("File", "Call number"))

    table = read(ods(f'<x {spaces}>{style}</x><table:table table:name="List">{head}{rows}</table:table>'))

    assert [row.cells[1] for row in table.rows] == ["0007", "MUE-007", "1234", "7", "7.5", "7"]


LONG = ["123456789012345", "1234567890123456", "9007199254740993", "99000123456789012"]


def test_a_number_of_more_digits_than_excel_keeps_is_whole_and_pointed_out(
    read: Callable[..., TableContent],
) -> None:
    rows = "".join(f"<row><c><v>{number}</v></c><c><v>{number}</v></c></row>" for number in LONG)

    table = read(xlsx(inline("Call number", "Title") + rows))

    assert [row.cells[0] for row in table.rows] == [*LONG[:2], "9007199254740992", "99000123456789008"]
    remarks = [remark for remark in table.remarks if remark.kind is RemarkKind.INEXACT]
    assert [(remark.row, remark.column) for remark in remarks] == [
        (row, column) for column in (0, 1) for row in (3, 4, 5)
    ]
    assert str(remarks[0]) == (
        "'1234567890123456' is a number of which the spreadsheet has kept only 15 digits: write it as text"
    )
    assert [is_error(remark, table.field(remark.column)) for remark in remarks] == [True] * 3 + [False] * 3


DATES = [
    ("mmm-yy", "1911-05"),
    ("[$-407]MMMM\\ YYYY;@", "1911-05"),
    ("mm/yyyy", "1911-05"),
    ("yyyy", "1911"),
    ('"dated" yyyy', "1911"),
    ("dd.mm.yyyy", "1911-05-01"),
    ("d-mmm", "1911-05-01"),
    ("yyyy\\ h:mm", "1911-05-01"),
]


def test_a_date_has_no_day_or_month_that_its_cell_does_not_show(read: Callable[..., TableContent]) -> None:
    data = io.BytesIO()
    with xlsxwriter.Workbook(data, {"in_memory": True}) as book:
        sheet = book.add_worksheet()
        sheet.write_row(0, 0, ["File", "Date"])
        formats: list[str | int] = [*(code for code, _ in DATES), 17]  # 17 is mmm-yy, without its code
        for row, code in enumerate(formats, 1):
            sheet.write_string(row, 0, "a.jpg")
            sheet.write_datetime(row, 1, datetime(1911, 5, 1), book.add_format({"num_format": code}))  # noqa: DTZ001

    table = read(data.getvalue())

    assert [row.cells[1] for row in table.rows] == [*(date for _, date in DATES), "1911-05"]
    assert said(table) == []


@pytest.mark.parametrize(
    ("shown", "date"),
    [
        ("Mai 1911", "1911-05"),
        ("05/1911", "1911-05"),
        ("1911", "1911"),
        ("1. Mai 1911", "1911-05-01"),
        ("01.05.1911", "1911-05-01"),
        ("1911-05-01", "1911-05-01"),
        ("2. Quartal 1911", "1911-05-01"),
        ("Mai 11", "1911-05-01"),
    ],
)
def test_a_date_of_libreoffice_has_no_day_or_month_that_its_cell_does_not_show(
    read: Callable[..., TableContent], shown: str, date: str
) -> None:
    cell = (
        '<table:table-cell office:value-type="date" office:date-value="1911-05-01">'
        f"<text:p>{shown}</text:p></table:table-cell>"
    )
    rows = ods_row(*ods_text("File", "Date")) + ods_row(*ods_text("a.jpg"), cell)

    table = read(ods(f'<table:table table:name="List">{rows}</table:table>'), name="list.ods")

    assert table.rows[0].cells[1] == date


@pytest.mark.parametrize(
    ("value", "shown", "is_exact"),
    [
        *((number, number, True) for number in LONG),
        ("99000123456789012", "MUE-99000123456789012", True),
        ("1234567890123456", "1.23456789012346E+015", False),
        ("9.9000123456789E+16", "99000123456789000", False),
        ("99000123456789010", "99000123456789010", False),
        ("9007199254740992", "9007199254740992", False),
    ],
)
def test_a_long_number_of_libreoffice_is_read_as_its_cell_shows_it_if_no_digit_is_lost(
    read: Callable[..., TableContent], value: str, shown: str, is_exact: bool
) -> None:
    cell = f'<table:table-cell office:value-type="float" office:value="{value}"><text:p>{shown}</text:p>'
    rows = ods_row(*ods_text("File", "Call number")) + ods_row(*ods_text("a"), f"{cell}</table:table-cell>")

    table = read(ods(f'<table:table table:name="List">{rows}</table:table>'), name="list.ods")

    assert table.rows[0].cells[1] == (shown if is_exact else str(int(float(value))))
    assert [remark.kind for remark in table.remarks] == ([] if is_exact else [RemarkKind.INEXACT])
