"""The page of a deposit in a browser: readable in both schemes and widths, current, by the reader's clock."""

from playwright.sync_api import Page, expect

from pipeline.principal import Role
from pipeline.settings import Settings
from pipeline.states import Event, JobState
from tests.support.browser import NARROW, WIDE, Visitor, chromium, visitor
from tests.support.nightly import NIGHTLY
from tests.support.planted_deposit import NAME, ark_of, end, planted, to
from tests.support.web import new_token, serving_board
from zkstate.connection.session import Session


def look_at(dora: Visitor, path: str, picture: str) -> Page:
    """The page, which has no barrier, fits into the window, and has no complaint of the browser."""
    page = dora.open(path)
    dora.picture(picture)
    assert dora.barriers() == []
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert dora.complaints == []
    return page


def test_a_depositor_reads_copies_and_follows_the_result_of_each_object(
    session: Session, settings: Settings
) -> None:
    with serving_board(settings) as web, chromium() as browser:
        bid, jids = planted(web, session)
        token = new_token(settings, "dora", Role.DEPOSITOR, ["demo"])
        for scheme, width in (NARROW, WIDE) if NIGHTLY else (NARROW,):
            with visitor(browser, web.url, scheme=scheme, width=width) as dora:
                dora.log_in(token)
                look_at(dora, "/deposits", f"deposits-{scheme}-{width}")
                look_at(dora, f"/batches/{bid}", f"deposit-{scheme}-{width}")
        with visitor(browser, web.url, zone="Asia/Kolkata") as dora:
            dora.log_in(token)
            page = dora.open(f"/batches/{bid}")
            submitted = page.locator("time[data-local]").first
            utc = submitted.get_attribute("title")
            assert utc is not None
            assert utc.endswith(" UTC")
            expect(submitted).not_to_have_text(utc.removesuffix(" UTC"))
            page.context.grant_permissions(["clipboard-read", "clipboard-write"])
            page.get_by_role("button", name="Copy").click()
            expect(page.get_by_role("button", name="Copied")).to_be_visible()
            assert page.evaluate("navigator.clipboard.readText()") == ark_of(jids[0])

            to(session, jids[2], JobState.COMPLETED)
            end(session, bid, Event.SUCCEED, Event.FAIL)

            expect(page).to_have_title(f"{NAME}: failed · arkline")
            expect(page.get_by_text("2 of 4 objects stored, 1 not stored")).to_be_visible()
            expect(page.get_by_role("button", name="Copied")).to_be_visible()
            expect(submitted).not_to_have_text(utc)
            assert dora.complaints == []
