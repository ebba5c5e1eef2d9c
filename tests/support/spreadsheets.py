"""Spreadsheets written by hand, as their formats' specifications say, for what libraries do not write."""

import io
import zipfile
from collections.abc import Iterable

_MAIN = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"
_OFFICE = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
_PACKAGE = "http://schemas.openxmlformats.org/package/2006/relationships"
_TYPES = "http://schemas.openxmlformats.org/package/2006/content-types"
_ODS = "urn:oasis:names:tc:opendocument:xmlns"
_CALC = "urn:org:documentfoundation:names:experimental:calc:xmlns:calcext:1.0"
ODS_TYPE = "application/vnd.oasis.opendocument.spreadsheet"


def zipped(parts: dict[str, str | bytes]) -> bytes:
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        for name, content in parts.items():
            kind = zipfile.ZIP_STORED if name == "mimetype" else zipfile.ZIP_DEFLATED
            archive.writestr(name, content, kind)
    return data.getvalue()


def xlsx(rows: str | bytes, head: str = "") -> bytes:
    """A workbook of one sheet with this XML below `sheetData`; `head` stands before the root of the sheet."""
    before = f'<?xml version="1.0" encoding="UTF-8"?>{head}<worksheet xmlns="{_MAIN}"><sheetData>'.encode()
    body = rows.encode() if isinstance(rows, str) else rows
    sheet = before + body + b"</sheetData></worksheet>"
    return zipped(
        {
            "[Content_Types].xml": f'<Types xmlns="{_TYPES}"><Default Extension="xml" '
            'ContentType="application/xml"/></Types>',
            "_rels/.rels": f'<Relationships xmlns="{_PACKAGE}"><Relationship Id="rId1" '
            f'Type="{_OFFICE}/officeDocument" Target="xl/workbook.xml"/></Relationships>',
            "xl/workbook.xml": f'<workbook xmlns="{_MAIN}" xmlns:r="{_OFFICE}"><sheets>'
            '<sheet name="List" sheetId="1" r:id="rId7"/></sheets></workbook>',
            "xl/_rels/workbook.xml.rels": f'<Relationships xmlns="{_PACKAGE}"><Relationship Id="rId7" '
            f'Type="{_OFFICE}/worksheet" Target="worksheets/one.xml"/></Relationships>',
            "xl/worksheets/one.xml": sheet,
        }
    )


def inline(*texts: str) -> str:
    """A row of an XLSX sheet, without positions, which are optional."""
    return "<row>" + "".join(f'<c t="inlineStr"><is><t>{text}</t></is></c>' for text in texts) + "</row>"


def ods(tables: str, head: str = "") -> bytes:
    """A document with these tables; `head` stands before the root of its content."""
    spaces = {name: f"{_ODS}:{name}:1.0" for name in ("office", "table", "text")} | {"calcext": _CALC}
    declared = " ".join(f'xmlns:{name}="{uri}"' for name, uri in spaces.items())
    return zipped(
        {
            "mimetype": ODS_TYPE,
            "META-INF/manifest.xml": f'<m:manifest xmlns:m="{_ODS}:manifest:1.0"><m:file-entry '
            f'm:full-path="/" m:media-type="{ODS_TYPE}"/><m:file-entry m:full-path="content.xml" '
            'm:media-type="text/xml"/></m:manifest>',
            "content.xml": f'<?xml version="1.0" encoding="UTF-8"?>{head}<office:document-content {declared}>'
            f"<office:body><office:spreadsheet>{tables}</office:spreadsheet></office:body>"
            "</office:document-content>",
        }
    )


def ods_row(*cells: str) -> str:
    return f"<table:table-row>{''.join(cells)}</table:table-row>"


def ods_text(*texts: str) -> Iterable[str]:
    """Cells of text."""
    cell = '<table:table-cell office:value-type="string"><text:p>{}</text:p></table:table-cell>'
    return (cell.format(text) for text in texts)
