"""Corrections of the rows of a table, which follow their rows when the table is changed outside."""

from collections import defaultdict
from collections.abc import Mapping

from pipeline.tables import fields
from pipeline.tables.content import TableContent

Cells = tuple[tuple[str, str], ...]
"""Header and cell of each column of a row."""

_IDENTIFYING = frozenset({fields.FILE, fields.URL, fields.ARK, fields.LOCAL_ID})
"""Fields by any of which a row is recognized."""


def carried(
    values: Mapping[str, str], known: Mapping[str, Cells], table: TableContent
) -> tuple[dict[str, str], dict[str, str], dict[str, Cells]]:
    """The corrections (`KEY:FIELD` -> text) by the numbers that rows have now; those whose rows are gone; and
    the rows with corrections.

    `known`: the rows as they were. A row keeps its number if it is the same, or has the same file, URL, ARK
    or identifier; else it is the only row with one of them. A correction of no known row stays as it is.
    """
    mapped = dict(zip(table.header, table.fields, strict=True))
    rows = {str(row.number): tuple(zip(table.header, row.cells, strict=False)) for row in table.rows}
    places = defaultdict[tuple[str, str], list[str]](list)
    for key, cells in rows.items():
        for name in _names(cells, mapped):
            places[name].append(key)

    def place(key: str, cells: Cells) -> str | None:
        names = _names(cells, mapped)
        same = [text for _, text in rows.get(key, ())] == [text for _, text in cells]
        if same or any(key in places[name] for name in names):
            return key
        return next((places[name][0] for name in names if len(places[name]) == 1), None)

    moved = {key: place(key, cells) for key, cells in known.items()}
    carried_on, lost = dict[str, str](), dict[str, str]()
    for correction, text in values.items():
        key, _, field = correction.rpartition(":")
        now = moved.get(key, key)
        if now is None:
            lost[correction] = text
        else:
            carried_on[f"{now}:{field}"] = text
    corrected = {correction.rpartition(":")[0] for correction in carried_on}
    return carried_on, lost, {key: rows[key] for key in corrected & rows.keys()}


def _names(cells: Cells, mapped: Mapping[str, str]) -> list[tuple[str, str]]:
    """What identifies the row: fields and texts. `mapped`: header -> field."""
    named = ((mapped.get(title, ""), text) for title, text in cells)
    return [(field, text) for field, text in named if text and field in _IDENTIFYING]
