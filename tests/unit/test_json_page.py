"""What commands print with --json: described, and stable."""

import pytest

from entrypoints.cli.command_table import ENTRIES
from tools import json_page
from tools.json_documents import DOCUMENTS

NONE = {"worker", "beat", "flower", "certificates renew"}
"""Commands that run until they are stopped, or may, and answer nothing."""


def test_the_page_and_the_list_of_fields_are_current() -> None:
    assert json_page.PAGE.read_text() == json_page.page(), "run: python -m tools.json_page"
    assert json_page.FIELDS.read_text() == json_page.fields_file(), "run: python -m tools.json_page"


def test_no_field_that_was_promised_is_gone() -> None:
    gone = json_page.removed(json_page.FIELDS.read_text())

    assert not gone, json_page.advice(gone)


def test_every_command_has_a_document() -> None:
    names = {f"{entry.name} {name}".strip() for entry in ENTRIES for name in entry.commands or ("",)} - NONE

    assert {name for name in names if not any(row.startswith(name) for row in DOCUMENTS)} == set()
    assert {row for row in DOCUMENTS if not any(row.startswith(name) for name in names)} == set()


@pytest.mark.parametrize(
    ("line", "because"),
    [
        ("BatchView.bid: integer", "another type"),
        ("BatchView.batch: text", "removed or renamed"),
        ("status BID -> JobStatus", "another document"),
    ],
)
def test_a_field_that_is_removed_renamed_or_changed_is_named_with_what_to_do(line: str, because: str) -> None:
    promised = f"{json_page.fields_file()}{line}\n"

    gone = json_page.removed(promised)

    assert gone == [line], because
    assert f"{line}\nKeep them." in json_page.advice(gone)
    assert "raise VERSION in tools/json_documents.py" in json_page.advice(gone)


def test_a_field_that_is_added_is_no_break() -> None:
    fewer = json_page.fields_file().replace("BatchView.bid: text\n", "")

    assert json_page.removed(fewer) == []
