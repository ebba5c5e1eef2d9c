"""The page of a new deposit in a browser: chosen, corrected in the preview, cut off, continued, stored."""

import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path

import bagit
import pytest
import xlsxwriter
from playwright.sync_api import Locator, Page, Route, expect

from operations.jobs.batch_view import report
from operations.site import Site
from pipeline.principal import Role
from pipeline.settings import Settings
from tests.support.browser import Chromium, Visitor, chromium, visitor
from tests.support.fleet import Fleet, assert_completed, batch_ended
from tests.support.operators import ANN
from tests.support.outbox import letters
from tests.support.web import Web, new_token, serving
from zkstate.connection.session import Session

IMAGES = 40
STORED = f"demo: {IMAGES} objects stored (Nachlass Müller)"
"""The subject of the report."""

LARGE = 20 << 20
"""Bytes of an image that is sent in several pieces."""

SHIFTS = """
window.shifted = 0;
new PerformanceObserver((list) => {
  for (const entry of list.getEntries()) if (!entry.hadRecentInput) window.shifted += entry.value;
}).observe({ type: "layout-shift", buffered: true });
"""


@pytest.fixture(scope="module")
def browser() -> Iterator[Chromium]:
    with chromium() as running:
        yield running


def make_scans(folder: Path, table: str) -> Path:
    """A folder of images and a table whose rows 3, 5 and 7 have a mistake."""
    folder /= "Nachlass Müller"
    (folder / "scans").mkdir(parents=True)
    (folder / ".DS_Store").write_bytes(b"left by a computer")
    rows = [["File", "Title", "Author", "Year", "Call Number"]]
    for number in range(IMAGES):
        name = f"scans/img_{number:03}.jpg"
        body = f"image {number} ".encode()
        (folder / name).write_bytes(body * (LARGE // len(body) if number == 0 else 1000))
        rows.append([name, f"Brief {number}", "Müller", "1911", f"MUE-{number:03}"])
    rows[2][0] = "scans/img_0O1.jpg"  # row 3: there is no such file
    rows[4][4] = "MUE-002"  # row 5: the identifier of row 4
    rows[6][0] = ""  # row 7: no file
    if table.endswith(".xlsx"):
        with xlsxwriter.Workbook(folder / table) as book:
            sheet = book.add_worksheet("Briefe")
            for number, row in enumerate(rows):
                sheet.write_row(number, 0, row)
    else:
        (folder / table).write_text("\n".join(map(";".join, rows)), encoding="cp1252")
    return folder


class Cut:
    """The network is away from the second piece of the large image on, until `mend`."""

    def __init__(self, page: Page) -> None:
        self.offsets: list[str] = []
        """`Upload-Offset` of each request for the large image."""
        self._page = page
        page.route("**/files/scans/img_000.jpg", self._handle)

    def _handle(self, route: Route) -> None:
        offset = route.request.headers.get("upload-offset", route.request.method)
        self.offsets.append(offset)
        if len(self.offsets) == 2:
            self._page.context.set_offline(True)
            route.abort("internetdisconnected")
        else:
            route.continue_()

    def mend(self) -> None:
        self._page.context.set_offline(False)


Use = Callable[[Page, Locator, str], None]
"""Go to an element, and press a key there."""


def choose_and_correct(dora: Visitor, scans: Path, press: Use) -> None:
    page = dora.page
    with page.expect_file_chooser() as chooser:
        press(page, page.get_by_label("A folder with everything in it"), "Enter")
    chooser.value.set_files(scans)
    expect(page.get_by_text("3 objects with mistakes")).to_be_visible()
    assert page.evaluate("shifted") < 0.05
    expect(page.get_by_label("Name of this deposit")).to_have_value("Nachlass Müller")
    expect(page.get_by_role("button", name="Deposit", exact=True)).to_be_disabled()
    expect(page.get_by_text("Left out, because a computer made them for itself: .DS_Store")).to_be_visible()

    press(page, page.get_by_label("Show only objects with mistakes"), "Space")
    expect(page.locator("#rows tr")).to_have_count(3)
    assert dora.barriers() == []
    dora.picture(f"deposit-mistakes-{page.evaluate('innerWidth')}")
    correct(page, press, "File of row 3", "scans/img_001.jpg")
    correct(page, press, "Identifiers of row 5", "MUE-003")
    correct(page, press, "File of row 7", "scans/img_005.jpg")
    expect(page.get_by_text(f"{IMAGES} objects of {IMAGES} files")).to_be_visible()
    press(page, page.get_by_label("Show only objects with mistakes"), "Space")
    expect(page.get_by_label("Identifiers of row 5")).to_have_value("MUE-003")


def with_the_mouse(page: Page, reached: Locator, key: str) -> None:
    reached.click()
    if key not in ("Enter", "Space"):
        page.keyboard.press(key)


def by_keyboard(page: Page, reached: Locator, key: str) -> None:
    for _ in range(500):
        if reached.evaluate("element => element === document.activeElement"):
            page.keyboard.press(key)
            return
        page.keyboard.press("Tab")
    raise AssertionError("the keyboard does not reach it")


def correct(page: Page, press: Use, label: str, value: str) -> None:
    before = page.locator("#rows tr").count()
    press(page, page.get_by_label(label), "Control+a")
    page.keyboard.type(value)
    page.keyboard.press("Enter")
    expect(page.locator("#rows tr")).to_have_count(before - 1)


def too_wide(page: Page) -> bool:
    wide: bool = page.evaluate("document.documentElement.scrollWidth > innerWidth")
    return wide


def assert_stored(session: Session, settings: Settings, page: Page) -> None:
    page.wait_for_url("**/batches/*")
    bid = page.url.rpartition("/")[2].partition("?")[0]
    assert_completed(batch_ended(session, bid))
    stored = report(Site(settings, session), ANN, bid).completed
    assert {job.name for job in stored} == {f"scans/img_{number:03}.jpg" for number in range(IMAGES)}


def find_and_take_out(dora: Visitor, scans: Path, settings: Settings, folder: Path) -> None:
    """The ARKs are on the page and in the mail; an object is found by its title, and a file and a bag are
    as they were deposited."""
    page = dora.page
    arks = page.locator("section[aria-labelledby=objects] a[href^='/objects/ark:']")
    expect(arks).to_have_count(IMAGES)
    (letter,) = [mail for mail in letters(settings) if mail["Subject"] == STORED]
    body = letter.get_body(("plain",))
    assert body is not None
    mailed = body.get_content()
    assert all(ark in mailed for ark in arks.all_inner_texts())

    page.locator("#search").fill("brief 37 müller")
    page.keyboard.press("Enter")
    page.get_by_role("link", name="Brief 37").click()
    expect(page.get_by_role("heading", name="Brief 37", exact=True)).to_be_visible()
    page.locator("summary").filter(has_text="scans").click()
    image = scans / "scans" / "img_037.jpg"
    assert (
        taken(page, f"Download producer/scans/{image.name}", folder / image.name).read_bytes()
        == image.read_bytes()
    )

    with tarfile.open(taken(page, "Download a BagIt bag (tar)", folder / "bag.tar")) as archive:
        archive.extractall(folder / "bag", filter="data")
    (bag,) = (folder / "bag").iterdir()
    bagit.Bag(str(bag)).validate()
    assert [path.read_bytes() for path in bag.rglob(image.name)] == [image.read_bytes()]


def taken(page: Page, link: str, target: Path) -> Path:
    with page.expect_download() as download:
        page.get_by_role("link", name=link).click()
    download.value.save_as(target)
    return target


def agree_to_new_versions(dora: Visitor, scans: Path) -> None:
    """The same identifiers once more: a consent is needed for each object, and is not there before."""
    page = dora.open("/deposits/new")
    page.get_by_label("A folder with everything in it").set_input_files(scans)
    expect(page.get_by_text(f"{IMAGES} objects with mistakes")).to_be_visible()
    box = page.get_by_label("version 2 of ark:/").first
    box.check()
    expect(page.get_by_text(f"{IMAGES - 1} objects with mistakes")).to_be_visible()
    page.get_by_role("button", name=f"Agree to these {IMAGES - 1} new versions").click()
    expect(page.get_by_text("3 objects with mistakes")).to_be_visible()
    dora.picture("deposit-versions-1280", whole=False)
    box.uncheck()
    expect(page.get_by_text("4 objects with mistakes")).to_be_visible()


def unexpected(dora: Visitor) -> list[str]:
    return [said for said in dora.complaints if "ERR_INTERNET_DISCONNECTED" not in said]


def opened(dora: Visitor, web: Web, name: str) -> Page:
    dora.page.add_init_script(SHIFTS)
    dora.log_in(new_token(web.context.settings, name, Role.DEPOSITOR, ["demo"]))
    return dora.open("/deposits/new")


def test_a_folder_with_a_table_is_corrected_in_the_preview_and_continues_after_a_cut_by_itself(
    session: Session, settings: Settings, fleet: Fleet, browser: Chromium, tmp_path: Path
) -> None:
    scans = make_scans(tmp_path, "liste.xlsx")
    fleet.worker()
    fleet.beat()
    with serving(settings) as web, visitor(browser, web.url) as dora:
        page = opened(dora, web, "dora")
        dora.picture("deposit-new-1280")
        choose_and_correct(dora, scans, by_keyboard)
        assert not too_wide(page)
        dora.picture("deposit-preview-1280", whole=False)

        cut = Cut(page)
        by_keyboard(page, page.get_by_role("button", name="Deposit", exact=True), "Enter")
        expect(page.get_by_text("The network is away")).to_be_visible()
        dora.picture("deposit-transfer-1280", whole=False)
        cut.mend()

        assert_stored(session, settings, page)
        assert cut.offsets[:3] == ["0", str(8 << 20), str(8 << 20)]
        find_and_take_out(dora, scans, settings, tmp_path)
        agree_to_new_versions(dora, scans)
        assert unexpected(dora) == []


def test_a_closed_tab_is_continued_from_the_list_of_unfinished_deposits(
    session: Session, settings: Settings, fleet: Fleet, browser: Chromium, tmp_path: Path
) -> None:
    scans = make_scans(tmp_path, "liste.csv")
    fleet.worker()
    fleet.beat()
    with serving(settings) as web, visitor(browser, web.url, "dark", 390) as dora:
        page = opened(dora, web, "dorb")
        choose_and_correct(dora, scans, with_the_mouse)
        assert not too_wide(page)
        dora.picture("deposit-preview-390", whole=False)
        cut = Cut(page)
        page.get_by_role("button", name="Deposit", exact=True).click()
        expect(page.get_by_text("The network is away")).to_be_visible()
        context = page.context
        page.close()
        cut.mend()

        dora.page = page = context.new_page()
        sent: list[str] = []
        page.on("request", lambda request: sent.append(request.url) if request.method == "PATCH" else None)
        dora.open("/deposits/new")
        assert dora.barriers() == []
        page.get_by_role("button", name="Continue Nachlass Müller").click()
        expect(page.get_by_text("Choose the files of “Nachlass Müller” again")).to_be_visible()
        dora.picture("deposit-continued-390", whole=False)
        page.get_by_label("A folder with everything in it").set_input_files(scans)
        expect(page.get_by_label("Identifiers of row 5")).to_have_value("MUE-003")
        page.get_by_role("button", name="Deposit", exact=True).click()

        assert_stored(session, settings, page)
        assert 0 < len(sent) < IMAGES
        assert unexpected(dora) == []
