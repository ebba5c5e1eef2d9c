"""Lists and the board in a browser: ticking by keyboard, saved filters, figures, and the reader's clock."""

import json
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from operations.board.values import EVERYTHING, JobSearch
from pipeline.inventory.sql import open_inventory
from pipeline.outcome import Service, ServiceDown
from pipeline.principal import Role
from pipeline.records import now
from pipeline.settings import Settings
from pipeline.states import Event, JobState
from tasks import stores
from tests.support import nightly, planting
from tests.support.boards import until
from tests.support.browser import Chromium, Scheme, Visitor, chromium, in_both_forms, visitor
from tests.support.recordings import of_job, stored_file
from tests.support.web import Web, new_token, serving_board
from zkstate import paths
from zkstate.connection.session import Session, connect
from zkstate.fleet import outages
from zkstate.record import jobs


@pytest.fixture(scope="module")
def browser() -> Iterator[Chromium]:
    with chromium() as running:
        yield running


@pytest.fixture(scope="module")
def session(module_settings: Settings) -> Iterator[Session]:
    """A record that began two days ago, with what was stored in ten of the last hours."""
    with connect(module_settings) as opened:
        stores.compare(opened, module_settings)
        began = json.loads(opened.zk.get(paths.DEPLOYMENT)[0])
        began["created"] = (now() - timedelta(days=2)).isoformat()
        opened.zk.set(paths.DEPLOYMENT, json.dumps(began).encode())
        inventory = open_inventory(module_settings.inventory)
        for number in range(55):
            entered = of_job(f"{number:010d}", bid="bid0000000099")
            at, files = (
                now() - timedelta(hours=number % 10),
                (stored_file("producer/a", size=10**number % 10**9),),
            )
            inventory.record(replace(entered, version=replace(entered.version, created=at, files=files)))
        yield opened


@pytest.fixture(scope="module")
def web(session: Session, module_settings: Settings) -> Iterator[Web]:
    with serving_board(module_settings) as running:
        yield running


@pytest.fixture(scope="module")
def token(web: Web) -> str:
    return new_token(web.context.settings, "olga", Role.OPERATOR)


def failed(web: Web, session: Session) -> list[str]:
    """Three failed jobs of one batch, as the board shows."""
    bid, jids = planting.split_batch(session, 3)
    for jid in jids:
        planting.apply_event(session, jobs.load(session, jid), Event.FAIL)
    search = JobSearch(bid=bid, state=JobState.FAILED)
    until(web.context.board, lambda: web.context.board.jobs(EVERYTHING, search, 1).total == 3)
    return jids


def press_until(page: Page, key: str, place: str) -> None:
    """Press the key until this element has the focus."""
    for _ in range(80):
        page.keyboard.press(key)
        if page.evaluate("place => document.activeElement.matches(place)", place):
            return
    raise AssertionError(f"{key} does not lead to {place}")


@in_both_forms
def test_the_keyboard_alone_ticks_two_jobs_and_resumes_them(
    browser: Chromium, web: Web, session: Session, token: str, width: int, scheme: Scheme
) -> None:
    jids = failed(web, session)
    bid = jobs.load(session, jids[0]).bid
    with visitor(browser, web.url, scheme, width) as opened:
        opened.log_in(token)
        page = opened.open(f"/jobs?state=failed&bid={bid}")
        for jid in (jids[0], jids[2]):
            press_until(page, "Tab", f"input[value={jid}]")
            page.keyboard.press("Space")
        expect(page.locator("[data-ticked]")).to_have_text("2 ticked")
        assert opened.too_wide() == []
        assert opened.barriers() == []
        opened.picture(f"ticking-{width}-{scheme}")

        press_until(page, "Shift+Tab", "select[name=verb]")
        page.keyboard.type("Resume")
        page.keyboard.press("Tab")
        page.keyboard.press("Enter")
        expect(page.locator("h1")).to_have_text("Preview: resume")
        opened.picture(f"ticking-preview-{width}-{scheme}")
        press_until(page, "Tab", "button.first")
        page.keyboard.press("Enter")

        expect(page.locator("h1")).to_have_text("Result: resume")
        assert opened.complaints == []
    states = [jobs.load(session, jid).status.status for jid in jids]
    assert states == [JobState.PENDING, JobState.FAILED, JobState.PENDING]


def test_a_key_ticks_the_current_row_and_a_box_all_of_the_page(
    browser: Chromium, web: Web, session: Session, token: str
) -> None:
    bid = jobs.load(session, failed(web, session)[0]).bid
    with visitor(browser, web.url) as opened:
        opened.log_in(token)
        page = opened.open(f"/jobs?bid={bid}")
        for key in ("j", "x", "j", "x"):
            page.keyboard.press(key)
        expect(page.locator("[data-ticked]")).to_have_text("2 ticked")

        page.get_by_label("all 3 on this page").check()

        expect(page.locator("[data-ticked]")).to_have_text("3 ticked")


@pytest.mark.parametrize("width", [390, pytest.param(1280, marks=nightly.case)])
def test_a_filter_is_saved_with_a_name_and_removed(
    browser: Chromium, web: Web, token: str, width: int
) -> None:
    with visitor(browser, web.url, width=width) as opened:
        opened.log_in(token)
        page = opened.open("/jobs?state=failed&q=letters")
        page.get_by_label("Name of this filter").fill("Letters that failed")
        page.get_by_role("button", name="Save this filter").click()
        page = opened.open("/jobs")
        assert opened.too_wide() == []
        page.get_by_role("link", name="Letters that failed").click()
        page.wait_for_url("**/jobs?state=failed&q=letters")

        page.get_by_role("button", name="Remove the filter Letters that failed").click()

        opened.open("/batches")
        expect(opened.open("/jobs").get_by_role("link", name="Letters that failed")).to_have_count(0)
        assert opened.complaints == []


@in_both_forms
def test_the_board_draws_the_last_hours_by_the_readers_clock(
    browser: Chromium, web: Web, session: Session, token: str, width: int, scheme: Scheme
) -> None:
    failed(web, session)
    with visitor(browser, web.url, scheme, width, "Asia/Kolkata") as opened:
        opened.log_in(token)
        page = opened.open("/")
        panel = page.locator("section[aria-labelledby=hours]")
        expect(panel).to_contain_text("55 versions stored")
        panel.get_by_text("Each hour as a table").click()
        rows = panel.locator("tbody tr")
        expect(rows).to_have_count(24)
        first = rows.first.locator("time")
        begins = now().replace(minute=0)
        expect(first).to_have_text(f"{begins + timedelta(hours=5, minutes=30):%H:%M}")
        expect(first).to_have_attribute("title", f"{begins:%Y-%m-%d %H:%M} UTC")
        assert opened.too_wide() == []
        assert opened.barriers() == []
        opened.picture(f"board-hours-{width}-{scheme}")
        assert opened.complaints == []


def test_moments_within_sentences_are_those_of_the_readers_clock(
    browser: Chromium, web: Web, session: Session, token: str
) -> None:
    outages.report(session, ServiceDown(Service.STORAGE, "full since 2026-01-15 12:00 UTC"), "host")
    with visitor(browser, web.url, zone="Europe/Berlin") as opened:
        opened.log_in(token)
        shown = at_the_banner(opened)
        expect(shown).to_have_text("2026-01-15 13:00")
        expect(shown).to_have_attribute("title", "2026-01-15 12:00 UTC")


def at_the_banner(opened: Visitor) -> Any:
    return opened.open("/").locator("section[aria-labelledby=health] time[data-local=minute]").first
