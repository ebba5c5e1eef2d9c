"""The table of causes: its names, its titles, and the page for operators that shows it."""

import re
from pathlib import Path

from pipeline import causes
from pipeline.causes import CODES, CauseCode

PAGE = Path(__file__).parents[2] / "docs" / "operators" / "causes.md"
RESUME = {True: "yes", False: "no", None: "it depends"}


def row(code: CauseCode) -> str:
    title = re.sub(r"\{(\w+)\}", r"*\1*", code.title)
    return (
        f"| `{code.name}` | {title} | {code.owner or 'by the kind'} | {RESUME[code.resume]} | {code.remedy} |"
    )


def test_a_code_has_its_name_in_the_table_and_no_code_has_two_rows() -> None:
    rows = {name: code.name for name, code in vars(causes).items() if isinstance(code, CauseCode)}

    assert rows == {name.upper().replace("-", "_"): name for name in CODES}


def test_the_page_for_operators_has_the_rows_of_the_table_in_their_order() -> None:
    lines = [line for line in PAGE.read_text().splitlines() if line.startswith("| `")]

    assert lines == [row(code) for code in CODES.values()]


def test_a_parameter_is_cut_and_a_group_is_told_by_what_the_title_names() -> None:
    cause = causes.SOURCE_ANSWERED(host="x" * 300, status=404, line=7)

    assert len(cause.parameters["host"]) == causes.PARAMETER_LIMIT
    assert causes.SOURCE_ANSWERED.identifying == ("host", "status")
