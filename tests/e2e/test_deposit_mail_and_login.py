"""The deposit page: a login ends during an upload, a bag, a row that names its table, mail at the end."""

from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import bagit
import pytest
from playwright.sync_api import Page, Route, expect
from pydantic import SecretStr

from pipeline.principal import Role
from tests.support.browser import Chromium, Scheme, Visitor, chromium, in_both_forms, visitor
from tests.support.web import Web, new_token, serving
from zkstate.record import batches, subscriptions

LARGE = 20 << 20
"""Bytes of a file that is sent in three pieces."""


@pytest.fixture(scope="module")
def browser() -> Iterator[Chromium]:
    with chromium() as running:
        yield running


@pytest.fixture
def token(web: Web) -> str:
    return new_token(web.context.settings, uuid4().hex, Role.DEPOSITOR, ["demo"])


@pytest.fixture
def dora(browser: Chromium, web: Web, token: str) -> Iterator[Visitor]:
    with visitor(browser, web.url) as opened:
        opened.log_in(token)
        opened.open("/deposits/new")
        yield opened


def choose(page: Page, *files: Path) -> None:
    page.get_by_label("Files, a zip or a table").set_input_files(files)


def choose_folder(page: Page, folder: Path) -> None:
    page.get_by_label("A folder with everything in it").set_input_files(folder)


def enter(page: Page, label: str, text: str) -> None:
    page.get_by_label(label).fill(text)
    page.get_by_label(label).press("Enter")


def deposit(page: Page) -> str:
    page.get_by_role("button", name="Deposit", exact=True).click()
    page.wait_for_url("**/batches/*")
    return page.url.rpartition("/")[2].partition("?")[0]


def test_a_login_that_ends_during_an_upload_costs_nothing_that_had_arrived_or_was_entered(
    dora: Visitor, web: Web, token: str, tmp_path: Path
) -> None:
    page, offsets = dora.page, list[str]()
    (tmp_path / "a.tif").write_bytes(b"a" * LARGE)

    def end_the_login(route: Route) -> None:
        offsets.append(route.request.headers.get("upload-offset", route.request.method))
        if len(offsets) == 2:
            page.context.clear_cookies()
        route.continue_()

    choose(page, tmp_path / "a.tif")
    expect(page.get_by_text("1 object of 1 file")).to_be_visible()
    page.route("**/files/a.tif", end_the_login)
    page.get_by_role("button", name="Deposit", exact=True).click()
    said = page.locator("#alert")
    expect(said).to_contain_text("Your login has ended. Log in again in another tab")
    enter(page, "Title of the object", "The mole")
    expect(said).to_contain_text("Your login has ended")

    other = page.context.new_page()
    other.goto(f"{web.url}/login")
    other.get_by_label("Token").fill(token)
    other.get_by_role("button", name="Log in").click()
    other.wait_for_url(lambda url: "/login" not in url)
    bid = deposit(page)

    assert batches.load(web.context.session, bid).submission.erc_what == "The mole"
    piece = str(8 << 20)
    refused = offsets.index(piece)
    assert offsets[refused + 1 :].count("0") <= 1  # asks once where to continue
    assert offsets[-2:] == [piece, str(16 << 20)]


def test_a_bag_chosen_as_a_folder_is_said_to_be_compared_with_its_manifests(
    dora: Visitor, tmp_path: Path
) -> None:
    page, folder = dora.page, tmp_path / "Letters"
    folder.mkdir()
    (folder / "a.txt").write_text("a")
    bagit.make_bag(str(folder), checksums=["md5"])

    choose_folder(page, folder)

    expect(page.get_by_label("All files together are one object")).to_be_checked()
    expect(page.locator("#problems")).to_contain_text(
        "BagIt bag: as one object, they are compared with its manifests"
    )
    deposit(page)


def test_a_row_that_names_the_table_deposits_the_table_too(dora: Visitor, web: Web, tmp_path: Path) -> None:
    page, folder = dora.page, tmp_path / "Letters"
    folder.mkdir()
    (folder / "a.txt").write_text("a")
    (folder / "list.csv").write_text("File;Title\na.txt;A letter\nlist.csv;The list of letters\n")
    choose_folder(page, folder)
    expect(page.get_by_text("2 objects of 2 files")).to_be_visible()

    assert batches.load(web.context.session, deposit(page)).submission.deposit_name == "Letters"


@in_both_forms
def test_limits_are_shown_before_the_upload_and_mail_at_the_end_is_one_tick(
    browser: Chromium, web: Web, token: str, tmp_path: Path, scheme: Scheme, width: int
) -> None:
    settings = web.context.settings.model_copy(
        update={"callback_secret": SecretStr("a secret of the harbour")}
    )
    profile = settings.profiles / "demo.yaml"
    before = profile.read_text()
    profile.write_text(f"{before}\nquota_bytes: 10000000000000\n")
    (tmp_path / "a.txt").write_text("a")
    try:
        with serving(settings) as mailing, visitor(browser, mailing.url, scheme, width) as dora:
            dora.log_in(token)
            page = dora.open("/deposits/new")
            expect(page.get_by_text("10.0 TB are agreed for all its objects")).to_be_visible()
            expect(page.get_by_text("together until they are stored and removed")).to_be_visible()
            choose(page, tmp_path / "a.txt")
            expect(page.get_by_text("1 object of 1 file")).to_be_visible()
            page.get_by_label("Mail me when").check()
            page.get_by_role("button", name="Deposit", exact=True).click()
            expect(page.locator("#transfer")).to_be_hidden()  # there is no address yet
            page.get_by_label("Your mail address").fill("dora@example.org")
            dora.picture(f"new-deposit-mail-{scheme}-{width}")
            assert dora.barriers() == []
            assert dora.too_wide() == []
            deposit(page)

            (own,) = [
                entry.subscription
                for entry in subscriptions.read(web.context.session)
                if entry.subscription.mail == "dora@example.org" and not entry.subscription.confirmed
            ]
            assert set(own.events) == {"done", "failed"}
            subscriptions.change(web.context.session, own, confirmed=True)
            expect(dora.open("/deposits/new").get_by_text("New deposit").first).to_be_visible()
            choose(page, tmp_path / "a.txt")
            expect(page.get_by_text("dora@example.org gets a mail")).to_be_visible()
    finally:
        profile.write_text(before)
