"""An archivist's walk in a browser: a folder is corrected, sent, stored, found and taken out."""

import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import bagit
import pytest
import xlsxwriter
from playwright.sync_api import Locator, Page, Route, expect

from operations.jobs.batch_view import report
from operations.site import Site
from pipeline.principal import Role
from pipeline.settings import Settings
from tests.support import nightly
from tests.support.browser import Chromium, Scheme, Visitor, chromium, visitor
from tests.support.fleet import Fleet, assert_completed, batch_ended
from tests.support.operators import ANN
from tests.support.outbox import letters
from tests.support.web import new_token, serving
from zkstate.connection.session import Session

LARGE = 20 << 20
"""Bytes of an image that is sent in several pieces."""


@pytest.fixture(scope="module")
def browser() -> Iterator[Chromium]:
    with chromium() as running:
        yield running


@dataclass(frozen=True)
class Scans:
    """A folder of images and a table whose rows 3, 5 and 7 have a mistake."""

    folder: Path
    images: int

    @property
    def names(self) -> list[str]:
        return [f"scans/img_{number:03}.jpg" for number in range(self.images)]


def make_scans(folder: Path, images: int, table: str) -> Scans:
    scans = Scans(folder / "Nachlass Müller", images)
    (scans.folder / "scans").mkdir(parents=True)
    (scans.folder / ".DS_Store").write_bytes(b"left by a computer")
    rows = [["File", "Title", "Author", "Year", "Call Number"]]
    for number, name in enumerate(scans.names):
        body = f"image {number} ".encode()
        (scans.folder / name).write_bytes(body * (LARGE // len(body) if number == 0 else 1000))
        rows.append([name, f"Brief {number}", "Müller", "1911", f"MUE-{number:03}"])
    rows[2][0] = "scans/img_0O1.jpg"  # row 3: there is no such file
    rows[4][4] = "MUE-002"  # row 5: the identifier of row 4
    rows[6][0] = ""  # row 7: no file
    if table.endswith(".xlsx"):
        with xlsxwriter.Workbook(scans.folder / table) as book:
            sheet = book.add_worksheet("Briefe")
            for number, row in enumerate(rows):
                sheet.write_row(number, 0, row)
    else:
        (scans.folder / table).write_text("\n".join(map(";".join, rows)), encoding="cp1252")
    return scans


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


def with_the_mouse(page: Page, reached: Locator, key: str) -> None:
    reached.click()
    if key not in ("Enter", "Space"):
        page.keyboard.press(key)


IS_BEFORE_THE_FOCUS = """
(element) => element.compareDocumentPosition(document.activeElement) & Node.DOCUMENT_POSITION_FOLLOWING
  && document.activeElement !== document.body
"""


def by_keyboard(page: Page, reached: Locator, key: str) -> None:
    expect(reached).to_be_visible()
    step = "Shift+Tab" if reached.evaluate(IS_BEFORE_THE_FOCUS) else "Tab"
    for _ in range(500):
        if reached.evaluate("element => element === document.activeElement"):
            page.keyboard.press(key)
            return
        page.keyboard.press(step)
    raise AssertionError("the keyboard does not reach it")


WINDOW = """
(matchMedia("(prefers-color-scheme: dark)").matches ? "dark-" : "light-") + innerWidth
"""


def draw(dora: Visitor, name: str, *, whole: bool = False) -> None:
    window = dora.page.evaluate(WINDOW)
    dora.picture(f"{name}-{window}", whole=whole)


def choose(page: Page, scans: Scans, press: Use) -> None:
    with page.expect_file_chooser() as chooser:
        press(page, page.get_by_label("A folder with everything in it"), "Enter")
    chooser.value.set_files(scans.folder)


def correct(dora: Visitor, scans: Scans, press: Use) -> None:
    """The three mistakes are shown, and corrected in the preview."""
    page = dora.page
    expect(page.get_by_text("3 objects with mistakes")).to_be_visible()
    assert dora.moved() == []
    expect(page.get_by_label("Name of this deposit")).to_have_value("Nachlass Müller")
    expect(page.get_by_role("button", name="Deposit", exact=True)).to_be_disabled()
    expect(page.get_by_text("Left out, because a computer made them for itself: .DS_Store")).to_be_visible()

    press(page, page.get_by_label("Show only objects with mistakes"), "Space")
    expect(page.locator("#rows tr")).to_have_count(3)
    assert dora.barriers() == []
    draw(dora, "new-deposit", whole=page.evaluate("innerWidth") > 1000)
    type_over(page, press, "File of row 3", "scans/img_001.jpg")
    type_over(page, press, "Identifiers of row 5", "MUE-003")
    type_over(page, press, "File of row 7", "scans/img_005.jpg")
    expect(page.get_by_text(f"{scans.images} objects of {scans.images} files")).to_be_visible()
    expect(page.get_by_label("Show only objects with mistakes")).to_be_focused()
    press(page, page.get_by_label("Show only objects with mistakes"), "Space")
    expect(page.get_by_label("Identifiers of row 5")).to_have_value("MUE-003")
    assert dora.too_wide() == []


def type_over(page: Page, press: Use, label: str, value: str) -> None:
    before = page.locator("#rows tr").count()
    press(page, page.get_by_label(label), "Control+a")
    page.keyboard.type(value)
    page.keyboard.press("Enter")
    expect(page.locator("#rows tr")).to_have_count(before - 1)


def deposit(page: Page, press: Use) -> None:
    press(page, page.get_by_role("button", name="Deposit", exact=True), "Enter")


def cut_off(dora: Visitor, scans: Scans, press: Use) -> None:
    """The network is cut in the middle of the upload, which continues by itself."""
    cut = Cut(dora.page)
    deposit(dora.page, press)
    expect(dora.page.get_by_text("The network is away")).to_be_visible()
    draw(dora, "new-deposit-transfer")
    assert dora.barriers() == []
    cut.mend()
    dora.page.wait_for_url("**/batches/*")
    assert cut.offsets[:3] == ["0", str(8 << 20), str(8 << 20)]


def close_the_tab(dora: Visitor, scans: Scans, press: Use) -> None:
    """The network is cut, and the tab closed: the list of unfinished deposits keeps her corrections."""
    page = dora.page
    cut = Cut(page)
    deposit(page, press)
    expect(page.get_by_text("The network is away")).to_be_visible()
    context = page.context
    page.close()
    cut.mend()

    dora.page = page = context.new_page()
    sent: list[str] = []
    page.on("request", lambda request: sent.append(request.url) if request.method == "PATCH" else None)
    dora.open("/deposits/new")
    assert dora.barriers() == []
    press(page, page.get_by_role("button", name="Continue Nachlass Müller"), "Enter")
    expect(page.get_by_text("Choose the files of “Nachlass Müller” again")).to_be_visible()
    draw(dora, "new-deposit-continued")
    choose(page, scans, press)
    expect(page.get_by_label("Identifiers of row 5")).to_have_value("MUE-003")
    deposit(page, press)
    page.wait_for_url("**/batches/*")
    assert 0 < len(sent) < scans.images


def read_the_arks(dora: Visitor, scans: Scans, session: Session, settings: Settings) -> None:
    """Every object is stored, and its ARK is on the page and in the mail."""
    page = dora.page
    bid = page.url.rpartition("/")[2].partition("?")[0]
    assert_completed(batch_ended(session, bid))
    stored = report(Site(settings, session), ANN, bid).completed
    assert {job.name for job in stored} == set(scans.names)
    arks = page.locator("section[aria-labelledby=objects] a[href^='/objects/ark:']")
    expect(arks).to_have_count(scans.images)
    subject = f"demo: {scans.images} objects stored (Nachlass Müller)"
    (letter,) = [mail for mail in letters(settings) if mail["Subject"] == subject]
    body = letter.get_body(("plain",))
    assert body is not None
    mailed = body.get_content()
    assert all(ark in mailed for ark in arks.all_inner_texts())
    assert dora.barriers() == []
    assert dora.too_wide() == []
    draw(dora, "stored")


def look_at_the_collection(dora: Visitor) -> None:
    expect(dora.open("/collections/demo").get_by_role("heading", name="demo").first).to_be_visible()
    assert dora.barriers() == []
    assert dora.too_wide() == []
    draw(dora, "collection")


def find(dora: Visitor, scans: Scans, press: Use) -> None:
    """The last object is found by its title."""
    page, number = dora.page, scans.images - 1
    press(page, page.locator("#search"), "Control+a")
    page.keyboard.type("brief müller")
    page.keyboard.press("Enter")
    expect(page.get_by_role("link", name=f"Brief {number}", exact=True)).to_be_visible()
    assert dora.barriers() == []
    assert dora.too_wide() == []
    draw(dora, "objects")
    press(page, page.locator("#search"), "Control+a")
    page.keyboard.type(f"brief {number} müller")
    page.keyboard.press("Enter")
    press(page, page.get_by_role("link", name=f"Brief {number}", exact=True), "Enter")
    expect(page.get_by_role("heading", name=f"Brief {number}", exact=True)).to_be_visible()


def take_out(dora: Visitor, scans: Scans, press: Use, folder: Path) -> None:
    """A file and a bag of the object are as they were deposited."""
    page, image = dora.page, scans.folder / scans.names[-1]
    press(page, page.locator("summary").filter(has_text="scans"), "Enter")
    assert dora.barriers() == []
    assert dora.too_wide() == []
    draw(dora, "object")
    taken = folder / "taken"
    download(page, press, f"Download producer/scans/{image.name}", taken)
    assert taken.read_bytes() == image.read_bytes()
    download(page, press, "Download a BagIt bag (tar)", folder / "bag.tar")
    (folder / "bag").mkdir()
    subprocess.run(["tar", "-xf", folder / "bag.tar", "-C", folder / "bag"], check=True)
    (bag,) = (folder / "bag").iterdir()
    bagit.Bag(str(bag)).validate()
    assert [path.read_bytes() for path in bag.rglob(image.name)] == [image.read_bytes()]


def download(page: Page, press: Use, link: str, target: Path) -> None:
    with page.expect_download() as begun:
        press(page, page.get_by_role("link", name=link), "Enter")
    begun.value.save_as(target)


def agree_to_new_versions(dora: Visitor, scans: Scans, press: Use) -> None:
    """The same identifiers once more: a consent is needed for each object, and is not there before."""
    page = dora.open("/deposits/new")
    choose(page, scans, press)
    expect(page.get_by_text(f"{scans.images} objects with mistakes")).to_be_visible()
    box = page.get_by_label("version 2 of ark:/").first
    press(page, box, "Space")
    expect(page.get_by_text(f"{scans.images - 1} objects with mistakes")).to_be_visible()
    agree = page.get_by_role("button", name=f"Agree to these {scans.images - 1} new versions")
    press(page, agree, "Enter")
    expect(page.get_by_text("3 objects with mistakes")).to_be_visible()
    draw(dora, "new-deposit-versions")
    press(page, box, "Space")
    expect(page.get_by_text("4 objects with mistakes")).to_be_visible()


Interruption = Callable[[Visitor, Scans, Use], None]


@pytest.mark.parametrize(
    ("scheme", "width", "images", "table", "press", "interrupt"),
    [
        pytest.param("light", 1280, 40, "liste.xlsx", by_keyboard, cut_off, id="keyboard-alone"),
        pytest.param("dark", 390, 40, "liste.csv", with_the_mouse, close_the_tab, id="narrow-dark"),
        pytest.param(
            "dark", 1280, 8, "liste.xlsx", with_the_mouse, close_the_tab, id="dark", marks=nightly.case
        ),
        pytest.param("light", 390, 8, "liste.xlsx", with_the_mouse, cut_off, id="narrow", marks=nightly.case),
    ],
)
def test_a_folder_with_a_table_is_corrected_interrupted_stored_found_and_taken_out(
    session: Session,
    settings: Settings,
    fleet: Fleet,
    browser: Chromium,
    tmp_path: Path,
    scheme: Scheme,
    width: int,
    images: int,
    table: str,
    press: Use,
    interrupt: Interruption,
) -> None:
    scans = make_scans(tmp_path, images, table)
    fleet.worker()
    fleet.beat()
    with serving(settings) as web, visitor(browser, web.url, scheme, width) as dora:
        dora.log_in(new_token(settings, f"dora-{scheme}-{width}", Role.DEPOSITOR, ["demo"]))
        choose(dora.open("/deposits/new"), scans, press)
        correct(dora, scans, press)
        interrupt(dora, scans, press)
        read_the_arks(dora, scans, session, settings)
        look_at_the_collection(dora)
        find(dora, scans, press)
        take_out(dora, scans, press, tmp_path)
        agree_to_new_versions(dora, scans, press)
        assert [said for said in dora.complaints if "ERR_INTERNET_DISCONNECTED" not in said] == []
