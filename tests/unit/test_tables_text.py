"""Tables of text: encodings, delimiters, header rows and remarks."""

import csv
import io

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from pipeline.tables import text
from pipeline.tables.content import Choice, TableContent, TableUnreadable, arrange
from pipeline.tables.remarks import summaries
from tests.support.fuzzing import result_or_refusal


def read(data: str | bytes, **choice: object) -> TableContent:
    chosen = Choice(**choice)  # type: ignore[arg-type]
    given_bytes = data.encode() if isinstance(data, str) else data
    return arrange(text.read_sheet(given_bytes, chosen.columns), chosen)


def said(table: TableContent) -> list[str]:
    return [sentence for _, sentence in summaries(table.remarks, table.title)]


@pytest.mark.parametrize("delimiter", [",", ";", "\t"])
@pytest.mark.parametrize(
    ("codec", "mark", "name"),
    [
        ("utf-8", b"", "UTF-8"),
        ("utf-8", b"\xef\xbb\xbf", "UTF-8"),
        ("utf-16-le", b"\xff\xfe", "UTF-16"),
        ("utf-16-be", b"\xfe\xff", "UTF-16"),
        ("utf-16-le", b"", "UTF-16"),
        ("utf-16-be", b"", "UTF-16"),
        ("cp1252", b"", "Windows-1252"),
    ],
)
def test_what_spreadsheet_programs_write_is_recognized(
    delimiter: str, codec: str, mark: bytes, name: str
) -> None:
    rows = [["Datei", "Titel"], ["a.jpg", "Hafen"], ["b.jpg", "Brief an Müller € „Größe“"]]
    data = mark + "\r\n".join(map(delimiter.join, rows)).encode(codec)

    table = read(data)

    assert (table.encoding, table.delimiter) == (name, delimiter)
    assert (table.header, table.fields) == (("Datei", "Titel"), ("file", "title"))
    assert [(row.number, list(row.cells)) for row in table.rows] == [(2, rows[1]), (3, rows[2])]
    if name == "UTF-8":
        assert table.remarks == ()
    else:
        assert said(table) == [f"the table is not UTF-8 and was read as {name}: check the letters in row 3"]


def test_an_encoding_is_no_doubt_without_special_letters() -> None:
    table = read("File,Title\na.jpg,Hafen\n".encode("utf-16"))

    assert (table.encoding, table.remarks) == ("UTF-16", ())


def test_a_table_of_another_alphabet_in_utf_16_is_recognized_without_a_mark() -> None:
    table = read("Файл;Имя\n1.jpg;Гавань\n".encode("utf-16-be"))

    assert (table.header, table.encoding) == (("Файл", "Имя"), "UTF-16")


@pytest.mark.parametrize(
    "data", [b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\xd8\x00\x01", b"\xff\xd8\xff\xe0\x81JFIF", b"\xff\xfea"]
)
def test_bytes_that_are_no_text_are_refused(data: bytes) -> None:
    with pytest.raises(TableUnreadable, match="no table of text"):
        read(data)


@pytest.mark.parametrize("hint", ['"sep=;"', "sep=;;;;", "sep = ;", "\ufeffSEP=;", '\ufeff"sep=;";;'])
def test_the_hint_of_excel_tells_the_delimiter_and_is_no_row(hint: str) -> None:
    table = read(f"{hint}\r\nFile;Title\r\na.jpg;one, two, three\r\n")

    assert (table.header_row, table.header) == (1, ("File", "Title"))
    assert table.rows[0].cells == ("a.jpg", "one, two, three")


def test_a_title_above_the_header_row_is_left_out_and_said() -> None:
    table = read("Nachlass Müller, Briefe, Fotos, Karten\n\nDatei;Titel;Umfang\na.jpg;Hafen;3 Bl.\n")

    assert (table.header_row, table.fields) == (3, ("file", "title", ""))
    assert [row.number for row in table.rows] == [4]
    assert said(table) == ["row 3 is read as the header row; the rows above it are not used"]


def test_the_header_row_is_the_one_that_a_person_names() -> None:
    data = "File,Title\nDatei,Titel\na.jpg,Hafen\n"

    assert read(data).header_row == 1
    assert read(data, header_row=2).header == ("Datei", "Titel")
    with pytest.raises(TableUnreadable, match="row 9 has no text"):
        read(data, header_row=9)


def test_a_header_row_without_a_known_name_is_the_first_row_of_several_cells() -> None:
    table = read("Nachlass\nfoo;bar\n1;2\n")

    assert (table.header_row, table.header, table.fields) == (2, ("foo", "bar"), ("", ""))


def test_the_names_that_a_person_gives_are_more_than_those_known() -> None:
    table = read(
        "Bestand;x\nOrt;Titel;Nr\na.jpg;T;1\n", columns={"ort": "File", "Titel": "", "Nr": "local id"}
    )

    assert (table.header_row, table.fields) == (2, ("file", "", "local_id"))


@pytest.mark.parametrize(
    ("header", "fields"),
    [
        ("Dateiname;Verfasser;Jahr;Signatur;Prüfsumme;Größe", "file creator date local_id digest size"),
        ("Fichier;Auteur;Année;Cote;Somme de contrôle;Titre", "file creator date local_id digest title"),
        ("Archivo;Autor;Año;Signatura;Título;Tamaño", "file creator date local_id title size"),
        ("nfo:fileUrl;Call Number:;SHA-256;MIME type;ARK;Title*", "url local_id sha256 mime_type ark title"),
    ],
)
def test_columns_are_known_by_their_names_in_four_languages(header: str, fields: str) -> None:
    assert read(f"{header}\na;b;c;d;e;f\n").fields == tuple(fields.split())


def test_doubtful_cells_are_named_by_column_with_the_first_row() -> None:
    table = read(
        "File;Title;Date;Signatur\n"
        'a;"=HYPERLINK(""http://x"";""Hafen"")";1/2/2024;#REF!\n'
        "b;= 5 letters;45292;#BEZUG!\n"
        "c;-;5/5/2024;#1\n"
        "d;;13/2/2024;Err:502\n"
        "e;;03-04-24;\n"
    )

    assert said(table) == [
        """column 'Title': a formula without its value: '=HYPERLINK("http://x";"Hafen")'; """
        "replace the formula by its value",
        "column 'Signatur': '#REF!' is an error of a spreadsheet, not a value (and 2 more)",
        "column 'Date': the date '1/2/2024' is ambiguous: write 2024-02-01 or 2024-01-02 (and 1 more)",
        "column 'Date': '45292' is a spreadsheet's number for a day: write 2024-01-01 if that is meant",
    ]


def test_a_row_has_the_number_that_a_spreadsheet_program_shows() -> None:
    table = read('File,Title\na,"one\r\ntwo"\n\nb,three\n')

    assert [row.number for row in table.rows] == [2, 4]
    assert table.rows[0].cells[1] == "one\r\ntwo"


def test_quotation_marks_that_do_not_end_are_named_with_their_row() -> None:
    with pytest.raises(TableUnreadable, match=r"cannot be read after row 1: .*quotation marks") as refused:
        read('File,Title\na,"b\n')

    assert refused.value.row == 1


CELLS = st.text(st.characters(codec="cp1252", exclude_characters="\0\r"), max_size=12)


@given(
    st.lists(st.lists(CELLS, min_size=2, max_size=2), min_size=1, max_size=8),
    st.sampled_from([",", ";", "\t"]),
    st.sampled_from(["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-16-be", "cp1252"]),
    st.sampled_from(["\n", "\r\n"]),
)
def test_a_written_table_is_read_back_in_any_encoding(
    cells: list[list[str]], delimiter: str, codec: str, end: str
) -> None:
    written = io.StringIO()
    csv.writer(written, delimiter=delimiter, lineterminator=end).writerows([["File", "Title"], *cells])
    data = written.getvalue().encode(codec)
    assume(codec != "cp1252" or not is_utf8(data))

    table = read(data, header_row=1)

    names = {"utf-8": "UTF-8", "utf-8-sig": "UTF-8", "cp1252": "Windows-1252"}
    assert (table.delimiter, table.encoding) == (delimiter, names.get(codec, "UTF-16"))
    stripped = [tuple(cell.strip() for cell in row) for row in cells]
    assert [row.cells for row in table.rows] == [row for row in stripped if any(row)]


def is_utf8(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


@given(st.binary(max_size=300) | st.text(max_size=200).map(lambda words: words.encode("utf-16")))
def test_any_bytes_are_a_table_or_refused(data: bytes) -> None:
    result = result_or_refusal(lambda: read(data))

    assert isinstance(result, TableContent | TableUnreadable)
