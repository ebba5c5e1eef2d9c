"""The table of a draft, read into rows of fields."""

from operations.deposits.draft_plan import COLUMNS, TableRow
from operations.deposits.draft_preview import PreviewColumn, PreviewTable
from pipeline.manifests import from_csv
from pipeline.manifests.checkm import ManifestProfile
from pipeline.manifests.checkm_row import Findings
from pipeline.uploads.draft import Draft

_FIELDS = {column: field for field, column in COLUMNS.items()}


def read_table(data: bytes, given: Draft) -> tuple[PreviewTable | None, list[TableRow], list[str]]:
    """The table for the preview, its rows, and what is wrong with it as a whole."""
    findings = Findings()
    records = list(from_csv._records(data, findings))
    if not records:
        return None, [], [str(problem) for problem in findings.errors] or ["the table is empty"]
    line, titles = records[0]
    named = {title: COLUMNS.get(field, field) for title, field in given.columns.items()}
    columns = from_csv.identify(
        titles, ManifestProfile.FILE_BATCH, named, line, findings, from_csv.URL_OR_NAME
    )
    shown = PreviewTable(
        header_row=line,
        columns=tuple(
            PreviewColumn(header=title, field=_FIELDS.get(column.name))
            for title, column in zip(titles, columns or (), strict=False)
        ),
    )
    rows = [
        TableRow(
            number,
            {
                _FIELDS[name]: cell
                for name, cell in from_csv.row_values(columns, cells).items()
                if name in _FIELDS
            },
        )
        for number, cells in records[1:]
    ]
    return shown, rows, [problem.message for problem in findings.errors]
