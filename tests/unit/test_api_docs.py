import re
from pathlib import Path

from entrypoints.web.routes.errors import all_codes

DOCS = Path(__file__).parents[2] / "docs" / "api"


def test_the_page_about_errors_has_a_heading_and_the_meaning_of_every_code() -> None:
    page = (DOCS / "errors.md").read_text()

    described = re.findall(r"^## ([a-z-]+)\n\n(\d+)\. (.+)$", page, re.MULTILINE)

    assert described == [
        (entry.code, str(entry.status), entry.meaning) for _, entry in sorted(all_codes().items())
    ]
