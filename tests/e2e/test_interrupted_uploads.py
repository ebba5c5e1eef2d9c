"""What ends an upload on the deposit page costs no corrections: a login that ends, a disk that is full."""

import itertools
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page, Route, expect

from pipeline.principal import Role
from pipeline.settings import Settings
from tests.e2e.test_disk_outages import mount
from tests.support.browser import Visitor, chromium, visitor
from tests.support.web import Web, new_token, serving
from tools.chaos.small_disks import Filler
from zkstate.connection.session import Session
from zkstate.record import batches

PIECES = 20 << 20
"""Bytes of a file that is sent in three pieces."""


@pytest.fixture
def small_disk(settings: Settings) -> Iterator[Path]:
    """The folder of uploads, on a file system of its own."""
    folder = settings.uploads_folder
    folder.mkdir(parents=True)
    mount("-t", "tmpfs", "-o", f"size={2 * PIECES}", "tests", str(folder))
    yield folder
    subprocess.run(("umount", "--lazy", str(folder)), check=True)


@pytest.fixture
def web(session: Session, settings: Settings, small_disk: Path) -> Iterator[Web]:
    with serving(settings) as running:
        yield running


@pytest.fixture
def token(web: Web) -> str:
    return new_token(web.context.settings, "dora", Role.DEPOSITOR, ["demo"])


@pytest.fixture
def dora(web: Web, token: str) -> Iterator[Visitor]:
    with chromium() as browser, visitor(browser, web.url) as opened:
        opened.log_in(token)
        opened.open("/deposits/new")
        yield opened


def corrected(page: Page, folder: Path) -> None:
    """A large file is chosen, and its object gets a title."""
    (folder / "a.tif").write_bytes(b"a" * PIECES)
    page.get_by_label("Files, a zip or a table").set_input_files(folder / "a.tif")
    page.get_by_label("Title of the object").fill("A scan")
    page.get_by_label("Title of the object").press("Enter")
    expect(page.get_by_text("1 object of 1 file")).to_be_visible()


def before_the_second_piece(page: Page, act: Callable[[], object]) -> None:
    pieces = itertools.count(1)

    def handle(route: Route) -> None:
        if next(pieces) == 2:
            act()
        cookies = "; ".join(f"{one['name']}={one['value']}" for one in page.context.cookies())
        route.continue_(headers={**route.request.headers, "cookie": cookies})

    page.route("**/files/a.tif", handle)


def deposit(page: Page) -> None:
    page.get_by_role("button", name="Deposit", exact=True).click()


def assert_deposited_as_corrected(page: Page, session: Session) -> None:
    page.wait_for_url("**/batches/*")
    bid = page.url.rpartition("/")[2].partition("?")[0]
    assert batches.load(session, bid).submission.erc_what == "A scan"


def test_after_a_login_that_ended_during_an_upload_the_deposit_continues_with_its_corrections(
    dora: Visitor, token: str, session: Session, tmp_path: Path
) -> None:
    page = dora.page
    corrected(page, tmp_path)
    before_the_second_piece(page, page.context.clear_cookies)
    deposit(page)
    expect(page.get_by_role("alert")).to_contain_text("Your login has ended. Log in again in another tab")
    expect(page.get_by_label("Title of the object")).to_have_value("A scan")

    Visitor(page.context.new_page(), dora.url).log_in(token)
    deposit(page)

    assert_deposited_as_corrected(page, session)
    assert [said for said in dora.complaints if "401" not in said and "409" not in said] == []


def test_after_a_full_disk_during_an_upload_the_deposit_continues_with_its_corrections(
    dora: Visitor, session: Session, small_disk: Path, tmp_path: Path
) -> None:
    page, filler = dora.page, Filler(small_disk)
    corrected(page, tmp_path)
    before_the_second_piece(page, filler.fill)
    deposit(page)
    expect(page.get_by_role("alert")).to_contain_text("the folder of uploads")
    expect(page.get_by_label("Title of the object")).to_have_value("A scan")

    filler.remove()
    deposit(page)

    assert_deposited_as_corrected(page, session)
    assert [said for said in dora.complaints if "507" not in said and "409" not in said] == []
