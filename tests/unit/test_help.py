"""The guide for depositors inside the site is docs/depositors.md with its picture."""

import re

from entrypoints.web.pages import documentation as help_page
from entrypoints.web.pages.templating import STATIC
from tests.unit.test_docs import DOCS


def test_the_guide_of_the_site_is_the_page_in_docs() -> None:
    """After a change, copy the page to entrypoints/web/help and the picture to entrypoints/web/static."""
    assert help_page.GUIDE.read_bytes() == (DOCS / "depositors.md").read_bytes()
    assert (STATIC / "deposit.svg").read_bytes() == (DOCS / "deposit.svg").read_bytes()


def test_every_heading_table_and_example_of_the_guide_is_on_the_page() -> None:
    text, html = help_page.GUIDE.read_text(), help_page.guide()
    prose = re.sub(r"```.*?```", "", text, flags=re.DOTALL)
    assert len(re.findall(r"<h[123] id=", html)) == len(re.findall(r"^#+ ", prose, flags=re.MULTILINE))
    assert html.count("<table>") == len(re.findall(r"^\|-", prose, flags=re.MULTILINE))
    assert html.count("<pre>") == text.count("```") / 2
    assert '<h2 id="correct-what-failed">' in html
    assert 'scope="col">the report says</th>' in html


def test_the_page_shows_the_picture_and_links_lead_to_sections_or_other_sites() -> None:
    html = help_page.guide()
    assert re.search(r'<img src="/static/deposit\.svg" alt="[^"]{20,}"', html)
    targets = re.findall(r'href="([^"]+)"', html)
    assert [target for target in targets if not re.match(r"https://|#|/", target)] == []
