"""The page of a collection with two years of deposits, in a real browser: wide, narrow, light, dark."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta

import pytest
from playwright.sync_api import expect

from pipeline.inventory.growth import SpaceDay
from pipeline.inventory.sql import open_inventory
from pipeline.principal import Role
from pipeline.records import now
from pipeline.settings import Settings
from tests.support import planting
from tests.support.browser import TOO_WIDE, Chromium, Scheme, chromium, in_both_forms, visitor
from tests.support.checks import identified
from tests.support.recordings import OWNER, of_job, stored_file
from tests.support.web import Web, new_token, serving_board
from zkstate.connection.session import Session

FORMATS = {
    name: f"fmt/{number}"
    for number, name in enumerate(("a.jpg", "b.tif", "c.pdf", "d.xml", "e.wav", "f.mp4", "g.txt"))
}


@pytest.fixture(scope="module")
def web(module_settings: Settings, record: Session) -> Iterator[Web]:
    """One object a week for two years, each larger than the one before."""
    profiles = module_settings.home / "profiles"
    profiles.mkdir()
    (profiles / "harbour.yaml").write_text(
        f"owner: {OWNER}\ncollections: ark:/99999/m5\ndescription: Views of the harbour, 1870 to 1930\n"
        "quota_bytes: 4000000000000\nreview: true\nlimits:\n  object_bytes: 50000000000\n"
        "  object_files: 5000\n  jobs_at_work: 20\nsources: '*.example.org'\n"
    )
    settings = module_settings.model_copy(update={"profiles": profiles})
    inventory, at = open_inventory(settings.inventory), now()
    for week in range(104):
        files = [
            stored_file(f"producer/{name}", 10**8 * (week + 1)) for name in list(FORMATS)[: 1 + week % 7]
        ]
        new = of_job(f"week{week}", files=files, profile="harbour", mime_types={})
        new = replace(new, version=replace(new.version, created=at - timedelta(weeks=103 - week)))
        formats = identified({name: FORMATS[name] for name in list(FORMATS)[: 1 + week % 7]})
        inventory.record(replace(new, checks=(formats,)))
    for day in range(5):
        inventory.enter_space(
            SpaceDay(at.date() - timedelta(days=4 - day), 10**12, 10**11 * (day + 1), 10**13, 8 * 10**12)
        )
    planting.split_batch_of(record, {"profile_name": "harbour", "deposit_name": "Nachlass Müller 1911"})
    with serving_board(settings) as running:
        yield running
    inventory.database.close()


@pytest.fixture(scope="module")
def browser() -> Iterator[Chromium]:
    with chromium() as running:
        yield running


@in_both_forms
def test_the_page_of_a_collection_has_no_barrier_and_fits(
    browser: Chromium, web: Web, scheme: Scheme, width: int
) -> None:
    token = new_token(web.context.settings, f"ada-{scheme}-{width}", Role.ADMIN)
    with visitor(browser, web.url, scheme, width) as opened:
        opened.log_in(token)
        page = opened.open("/collections")
        page.get_by_role("link", name="harbour").click()
        expect(page.locator("h1")).to_have_text("Collection harbour")
        expect(page.locator("svg.chart rect")).to_have_count(24)
        expect(page.get_by_text("Full on")).to_have_count(2)
        opened.picture(f"{scheme}-{width}-collection")
        for summary in page.locator("details > summary").all():
            summary.click()
        expect(page.get_by_role("table").filter(has_text="fmt/0")).to_be_visible()
        barriers, wide = opened.barriers(), page.evaluate(TOO_WIDE)
        opened.open("/space").locator("details > summary").click()
        barriers += opened.barriers()

        assert (barriers, wide, opened.complaints) == ([], [], [])
