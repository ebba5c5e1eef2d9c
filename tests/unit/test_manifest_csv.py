from collections.abc import Mapping

import pytest

from pipeline.manifests import from_csv
from pipeline.manifests.checkm import ManifestProfile, Row, parse
from pipeline.manifests.from_csv import Converted, template
from pipeline.tables import text
from pipeline.tables.content import Choice, arrange

URL = "https://x.edu/a.jpg"
MD5 = "0b21c6d48e815dd537d42dc1cfac0111"
OBJECT, BATCH = ManifestProfile.OBJECT, ManifestProfile.BATCH


def convert(
    table: str | bytes, profile: ManifestProfile, named: Mapping[str, str] | None = None
) -> Converted:
    data = table.encode() if isinstance(table, str) else table
    choice = Choice(columns=named or {})
    content = arrange(text.read_sheet(data, choice.columns), choice)
    return from_csv.convert(content, profile, named=choice.columns)


def read_back(converted: Converted) -> tuple[Row, ...]:
    return parse(converted.manifest() or b"", "made", converted.profile).rows


def errors(table: str | bytes, profile: ManifestProfile = OBJECT) -> list[str]:
    converted = convert(table, profile)
    assert (converted.manifest() is None) is bool(converted.errors)
    return [str(error) for error in converted.errors]


@pytest.mark.parametrize("profile", ManifestProfile)
def test_a_template_makes_a_manifest_of_its_profile(profile: ManifestProfile) -> None:
    made = convert(template(profile), profile)

    assert made.problems == ()
    assert parse(made.manifest() or b"", "made", profile).profile is profile


def test_columns_are_known_by_their_names_in_any_order() -> None:
    table = f'Title,File URL,nfo:fileName,local_identifier\n"Seneca, T.",{URL},b.checkm,a;b\n'

    (row,) = read_back(convert(table, BATCH))

    assert (row.title, row.url, row.name, row.local_id) == ("Seneca, T.", URL, "b.checkm", ("a", "b"))


@pytest.mark.parametrize("delimiter", [",", ";", "\t"])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"], ids=["plain", "BOM"])
def test_what_spreadsheets_write_is_read(delimiter: str, end: str, mark: bytes) -> None:
    table = end.join([delimiter.join(["fileUrl", "fileName"]), delimiter.join([URL, "Größe | 1.jpg"]), ""])

    (row,) = read_back(convert(mark + table.encode(), OBJECT))

    assert row.name == "Größe | 1.jpg"


@pytest.mark.parametrize("delimiter", [",", ";", "\t"])
def test_the_hint_of_excel_names_the_delimiter_and_is_no_row(delimiter: str) -> None:
    head = delimiter.join(["fileUrl", '"fileName"'])
    table = f"sep={delimiter}\r\n{head}\r\n{delimiter.join([URL, 'a.jpg'])}\r\n"

    (row,) = read_back(convert(table, OBJECT))

    assert row.name == "a.jpg"
    broken = errors(table.replace(URL, "ftp://x.edu/b"))
    assert [error.partition(":")[0] for error in broken] == ["row 2"]


@pytest.mark.parametrize("hint", ['"sep=;"', "sep=;;;;", "sep = ;", "\ufeffSEP=;", '\ufeff"sep=;";;'])
def test_the_hint_is_read_as_other_programs_save_it(hint: str) -> None:
    table = f"{hint}\r\nfileUrl;fileName\r\n{URL};a.jpg\r\n"

    (row,) = read_back(convert(table, OBJECT))

    assert row.name == "a.jpg"


def test_a_hint_may_write_a_tab_as_an_escape() -> None:
    assert len(convert(f"sep=\\t\nfileUrl\tfileName\n{URL}\ta.jpg\n", OBJECT).rows) == 1


@pytest.mark.parametrize("before", ["\r\n", ";;\r\n;;\r\n", "  \n", "sep=;\r\n\r\n"])
def test_rows_without_text_may_stand_before_the_header_row(before: str) -> None:
    table = f"{before}fileUrl;fileName\r\n{URL};a.jpg\r\n"

    (row,) = read_back(convert(table, OBJECT))

    assert row.name == "a.jpg"
    number = before.removeprefix("sep=;\r\n").count("\n") + 2
    assert [error.partition(":")[0] for error in errors(table.replace(URL, "ftp://x.edu/b"))] == [
        f"row {number}"
    ]


@pytest.mark.parametrize(
    "title", ["Title, subtitle, part, volume", "Title,\nsubtitle, part", 'A ""b"", c, d, e']
)
def test_a_delimiter_inside_quotes_does_not_count(title: str) -> None:
    table = f'fileUrl;"{title}";fileName\n{URL};none;a.jpg\n'
    named = {title.replace('""', '"'): ""}

    made = convert(table, OBJECT, named=named)

    (row,) = read_back(made)
    assert row.name == "a.jpg"


@pytest.mark.parametrize("name", ["My%20Report.pdf", "a%7cb.pdf"])
def test_a_name_with_a_literal_escape_is_the_name(name: str) -> None:
    (row,) = read_back(convert(f"fileUrl,fileName\n{URL},{name}\n", OBJECT))

    assert row.name == name


def test_every_problem_is_told_with_its_line_in_the_table() -> None:
    table = (
        "fileUrl,hashAlgorithm,hashValue,fileSize,fileName\n"
        f"{URL},md5,xyz,,a.jpg\n"
        "\n"
        '"ftp://x.edu/b",,,many,"b\nb"\n'
        f"{URL},,,,../c.jpg\n"
        f"{URL},,,,a.jpg\n"
    )

    assert errors(table) == [
        "row 2: 'xyz' is not a value of md5",
        "row 4: File contains a line break or a control character",
        "row 4: the URL does not begin with http:// or https://, the only supported schemes",
        "row 4: file name 'b\\u000ab' has the unwritable character U+000A in it",
        "row 4: file size 'many' is not a number of bytes",
        "row 5: file name '../c.jpg' has a '.' or '..' segment; give the path itself",
        "row 6: the name 'a.jpg' is given twice, first on row 2",
    ]


@pytest.mark.parametrize(
    ("table", "told"),
    [
        ("", "the table is empty; its first row names the columns File, URL, Algorithm, "),
        ("fileUrl\n", "the table has no rows below its header row"),
        ("fileName\na\n", "row 1: column URL is missing"),
        (
            "fileUrl,fileNmae\n",
            "row 1: 'fileNmae' is not a column of an object-manifest; did you mean File? rename it, or add "
            "--column 'fileNmae=File'",
        ),
        ("fileUrl,title\n", "row 1: 'title' is not a column of an object-manifest; "),
        ("fileUrl,xyzzy\n", "row 1: 'xyzzy' is not a column of an object-manifest; columns: File, URL, "),
        (
            "fileUrl,file url\n",
            "row 1: 'fileUrl' and 'file url' are both the column URL: leave one of them out",
        ),
        (f"fileUrl,fileName\n{URL},a,b\n", "row 2: the row has more cells than the 2 columns"),
        ("fileUrl\nhttps://x.edu/img#1.tif\n", "row 2: the URL contains a '#'"),
    ],
)
def test_a_table_that_makes_no_manifest_says_why(table: str | bytes, told: str) -> None:
    (error,) = errors(table)

    assert error.startswith(told)


def test_a_column_like_no_other_is_named_with_the_option_that_leaves_it_out() -> None:
    (error,) = errors("fileUrl,xyzzy\n")

    assert error.endswith("; rename it, or add --column 'xyzzy=', which leaves it out")


def test_what_is_left_out_and_what_may_not_be_meant_are_warnings() -> None:
    converted = convert(f"fileUrl,fileLastModified\n{URL},2009\n", OBJECT)

    assert [str(problem) for problem in converted.problems] == [
        "no digest is declared in 1 of 1 row: a transfer error would not be detected",
        "row 1: column fileLastModified is not used",
    ]
    assert converted.manifest() is not None


@pytest.mark.parametrize(("cell", "warned"), [("see shelf 12", True), ("", False)])
def test_a_text_below_an_empty_title_is_not_left_out_without_a_word(cell: str, warned: bool) -> None:
    converted = convert(f"fileUrl,fileSize,\n{URL},5,{cell}\n", OBJECT)

    told = "row 2: a text below an empty title of a column is not used"
    assert (told in map(str, converted.problems)) is warned
    assert converted.manifest() is not None


def test_digests_are_kept() -> None:
    table = f"fileUrl,hashAlgorithm,hashValue,fileSize\n{URL},MD5,{MD5.upper()},12\n"

    (row,) = read_back(convert(table, OBJECT))

    assert (row.digest and row.digest.value, row.size) == (MD5, 12)


def test_columns_are_known_by_the_names_that_people_give_them() -> None:
    table = f"URL,MD5,Author,Year,Call Number,ARK\n{URL},{MD5},Seneca,2009,shelf 12,ark:/99999/fk4a\n"

    (row,) = read_back(convert(table, ManifestProfile.FILE_BATCH))

    assert row.digest is not None
    assert (row.digest.algorithm, row.digest.value) == ("md5", MD5)
    assert (row.creator, row.date, row.local_id, row.primary_id) == (
        "Seneca",
        "2009",
        ("shelf 12",),
        "ark:/99999/fk4a",
    )


def test_a_row_without_a_digest_in_a_column_of_md5_has_none() -> None:
    table = f"URL,MD5\n{URL},\n"

    (row,) = read_back(convert(table, OBJECT))

    assert row.digest is None


def test_a_person_names_columns_and_leaves_columns_out() -> None:
    table = f"Where,Inventory no.,Remarks,Titel\n{URL},17,none,Jazz\n"
    named = {"where": "fileUrl", "Inventory no.": "local id", "Remarks": "", "titel": "title"}

    converted = convert(table, ManifestProfile.FILE_BATCH, named=named)

    (row,) = read_back(converted)
    assert (row.url, row.local_id, row.title) == (URL, ("17",), "Jazz")


def test_a_named_column_that_the_table_lacks_is_an_error() -> None:
    converted = convert(f"URL\n{URL}\n", OBJECT, named={"Size": "fileSize"})

    assert [problem.message for problem in converted.problems] == ["the table has no column 'Size'"]


def test_two_columns_of_digests_are_an_error_that_says_how_to_leave_one_out() -> None:
    (error,) = errors(f"URL,MD5,SHA-256\n{URL},,\n")

    assert "'MD5' and 'SHA-256' are both the column Digest: leave one of them out" in error


def test_two_rows_with_one_call_number_are_an_error_that_names_both_lines() -> None:
    table = f"url,name,call number\n{URL},a.checkm,DUP-1\n{URL}2,b.checkm,X\n{URL}3,c.checkm, DUP-1 \n"

    (found,) = errors(table, BATCH)

    assert found.startswith("row 4: row 2 has the same local id 'DUP-1'")


def test_a_row_that_names_no_url_is_named() -> None:
    assert errors(f"URL,Title\n{URL},a\n,b\n", ManifestProfile.FILE_BATCH) == ["row 3: the row names no URL"]


def test_remarks_are_warnings_but_errors_where_they_would_name_an_object() -> None:
    table = f"URL;Title;Date;Call number;Size\n{URL};#REF!;1/2/2024;#REF!;\n{URL}2;=A1;2/3/2024;=B1;\n"

    converted = convert(table, ManifestProfile.FILE_BATCH)

    assert [str(error) for error in converted.errors] == [
        "row 2: column 'Call number': '#REF!' is an error of a spreadsheet, not a value",
        "row 3: column 'Call number': a formula without its value: '=B1'; replace the formula by its value",
    ]
    assert sorted(converted.remarks, reverse=True) == [
        "row 3: column 'Title': a formula without its value: '=A1'; replace the formula by its value",
        "row 2: column 'Title': '#REF!' is an error of a spreadsheet, not a value",
        "row 2: column 'Date': the date '1/2/2024' is ambiguous: write 2024-02-01 or 2024-01-02 (and 1 more)",
    ]
    assert set(converted.remarks) <= set(map(str, converted.problems)) - set(map(str, converted.errors))


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (("a.zip", "b.tar.gz"), ManifestProfile.CONTAINER_BATCH),
        (("a.zip", "b.jpg"), ManifestProfile.FILE_BATCH),
        ((), ManifestProfile.FILE_BATCH),
    ],
)
def test_the_rows_are_containers_if_all_of_them_are_named_so(
    names: tuple[str, ...], expected: ManifestProfile
) -> None:
    for table in (
        "File\n" + "\n".join(names),
        "URL\n" + "\n".join(f"https://x.edu/{name}" for name in names),
    ):
        assert from_csv.batch_profile(arrange(text.read_sheet(table.encode()))) is expected
