"""What the deposit page makes of choices: dropped files, a corrected table, the same deposit twice."""

import hashlib
import zipfile
from base64 import b64encode
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest
import xlsxwriter
from playwright.sync_api import Page, Route, expect

from pipeline.principal import Role
from pipeline.records import SubmissionType
from tests.support import webkit
from tests.support.browser import FAR_AWAY, Chromium, Visitor, chromium, visitor
from tests.support.web import Web, new_token
from zkstate.record import batches

ROWS = 10_000
LARGE = 20 << 20
"""Bytes of a file that is sent in several pieces."""

DROP = """
(names) => {
  const dropped = new DataTransfer();
  for (const name of names) dropped.items.add(new File([name], name));
  document.body.dispatchEvent(new DragEvent("drop", { dataTransfer: dropped, bubbles: true }));
}
"""


DROP_FOLDERS = """
(names) => {
  const inside = (folder, depth) => {
    const parts = names.map((name) => name.split("/"));
    const below = parts.filter((path) => folder.every((one, at) => path[at] === one));
    return [...new Set(below.map((path) => path[depth]))].map((name) => {
      const path = [...folder, name];
      const file = (resolve) => resolve(new File([name], name));
      if (names.includes(path.join("/"))) return { name, isFile: true, file };
      const left = [inside(path, depth + 1), []];
      return { name, createReader: () => ({ readEntries: (resolve) => resolve(left.shift()) }) };
    });
  };
  const event = new Event("drop", { bubbles: true });
  event.dataTransfer = { items: inside([], 0).map((entry) => ({ webkitGetAsEntry: () => entry })) };
  document.body.dispatchEvent(event);
}
"""

DROP_UNREADABLE = """
() => {
  const refuse = (_, reject) => reject(new DOMException("no", "NotReadableError"));
  const file = { isFile: true, name: "locked.tif", file: refuse };
  const folder = { name: "scans", createReader: () => ({ readEntries: (resolve) => resolve([file]) }) };
  const event = new Event("drop", { bubbles: true });
  event.dataTransfer = { items: [{ webkitGetAsEntry: () => folder }] };
  document.body.dispatchEvent(event);
}
"""

ENTER_AS_DICTATION_DOES = """
(field, text) => {
  field.value = text;
  field.dispatchEvent(new InputEvent("input", { bubbles: true }));
}
"""


@pytest.fixture(scope="module")
def browser() -> Iterator[Chromium]:
    with chromium() as running:
        yield running


@pytest.fixture
def dora(browser: Chromium, web: Web) -> Iterator[Visitor]:
    with visitor(browser, web.url) as opened:
        opened.log_in(new_token(web.context.settings, uuid4().hex, Role.DEPOSITOR, ["demo"]))
        opened.open("/deposits/new")
        yield opened
        assert opened.complaints == []


def deposit(page: Page) -> None:
    page.get_by_role("button", name="Deposit", exact=True).click()


def without_digests(dora: Visitor) -> None:
    """Open the page in a browser whose WebAssembly fails."""
    dora.page.route("**/static/sha512.umd.min.js", lambda route: route.fulfill(status=200, body="throw 1"))
    dora.open("/deposits/new")
    expect(dora.page.get_by_text("This browser cannot compute digests")).to_be_visible()
    dora.complaints.clear()  # the library's own failure


def choose(page: Page, *files: Path) -> None:
    page.get_by_label("Files, a zip or a table").set_input_files(files)


def test_dropped_files_are_an_object_each_or_together_and_the_same_deposit_is_made_twice_only_if_asked(
    dora: Visitor, web: Web
) -> None:
    page = dora.page
    for _ in range(2):
        dora.open("/deposits/new")
        page.evaluate(DROP, ["b10.txt", "b9.txt"])
        expect(page.get_by_text("2 objects of 2 files")).to_be_visible()
        assert page.locator("#rows li").all_inner_texts() == ["b9.txt 6 bytes", "b10.txt 7 bytes"]
        page.get_by_label("All files together are one object").check()
        expect(page.get_by_text("1 object of 2 files")).to_be_visible()
        page.get_by_label("Title of the object").fill("Two letters")
        page.get_by_label("Title of the object").press("Enter")
        deposit(page)
        expect(page.get_by_text("deposited exactly this before").or_(page.locator("#live"))).to_be_visible()
    first = page.locator("#alert a").inner_text()
    page.get_by_role("button", name="Deposit it again").click()
    page.wait_for_url("**/batches/*")

    second = page.url.rpartition("/")[2]
    assert first != second
    session = web.context.session
    assert [batches.load(session, bid).submission.erc_what for bid in (first, second)] == ["Two letters"] * 2


def test_files_that_are_chosen_before_the_page_is_loaded_are_not_lost(dora: Visitor, tmp_path: Path) -> None:
    page, held = dora.page, list[Route]()
    page.route("**/static/deposit/words.js", lambda route: held.append(route))
    with page.expect_request("**/static/deposit/words.js"):
        page.goto(f"{dora.url}/deposits/new", wait_until="commit")
    (tmp_path / "a.txt").write_text("a")
    choose(page, tmp_path / "a.txt")

    (route,) = held
    route.continue_()

    expect(page.get_by_text("1 object of 1 file")).to_be_visible()


def test_text_that_a_program_enters_for_a_person_is_deposited(dora: Visitor, web: Web) -> None:
    page = dora.page
    page.evaluate(DROP, ["letter.txt"])
    expect(page.get_by_text("1 object of 1 file")).to_be_visible()
    for label, text in (("Name of this deposit", "Harbour"), ("Title of the object", "The mole")):
        field = page.get_by_label(label)
        field.focus()
        field.evaluate(ENTER_AS_DICTATION_DOES, text)
    deposit(page)
    page.wait_for_url("**/batches/*")
    kept = batches.load(web.context.session, page.url.rpartition("/")[2]).submission
    assert (kept.name, kept.erc_what) == ("Harbour", "The mole")


def test_what_is_typed_while_an_earlier_correction_is_saved_stays(dora: Visitor) -> None:
    page, held = dora.page, list[Route]()
    page.evaluate(DROP, ["letter.txt"])
    expect(page.get_by_text("1 object of 1 file")).to_be_visible()
    page.route("**/v1/drafts/*", lambda route: held.append(route), times=1)
    page.get_by_label("Title of the object").fill("The mole")
    name = page.get_by_label("Name of this deposit")
    with page.expect_request("**/v1/drafts/*"):
        name.focus()
    name.fill("Harb")

    held[0].continue_()
    expect(page.locator("#preview")).not_to_have_attribute("aria-busy", "true")
    name.press_sequentially("our")

    expect(name).to_have_value("Harbour")


def test_a_folder_is_dropped_with_what_is_in_its_folders(dora: Visitor, tmp_path: Path) -> None:
    page, folder = dora.page, tmp_path / "Letters"
    (folder / "1911" / "May").mkdir(parents=True)
    for name in ("list.csv", "1911/a.txt", "1911/May/b.txt"):
        (folder / name).write_text("File;Title\n1911/a.txt;A\n1911/May/b.txt;B\n")
    mouse = page.context.new_cdp_session(page)
    for kind in ("dragEnter", "dragOver", "drop"):
        data = {"items": [], "files": [str(folder)], "dragOperationsMask": 1}
        mouse.send("Input.dispatchDragEvent", {"type": kind, "x": 300, "y": 400, "data": data})

    expect(page.get_by_text("2 objects of 2 files")).to_be_visible()
    expect(page.get_by_label("Name of this deposit")).to_have_value("Letters")
    expect(page.get_by_label("Title of row 3")).to_have_value("B")


def test_fields_of_files_whose_names_differ_in_a_space_alone_have_descriptions_of_their_own(
    dora: Visitor,
) -> None:
    dora.page.evaluate(DROP, ["a\u202eb c.txt", "a\u202eb_c.txt"])
    fields = dora.page.get_by_label("File of row")
    expect(fields).to_have_count(2)
    described = [
        dora.page.locator(f"[id='{field.get_attribute('aria-describedby')}']") for field in fields.all()
    ]

    for description in described:
        expect(description).to_have_count(1)
    assert len({description.inner_text() for description in described}) == 2


def test_who_deposits_again_after_a_lost_answer_is_led_to_the_batch_that_was_made(
    dora: Visitor, web: Web
) -> None:
    page, made = dora.page, list[str]()

    def lose(route: Route) -> None:
        made.append(route.fetch().json()["bid"])
        route.abort("connectionreset")

    page.route("**/deposit", lose, times=1)
    page.evaluate(DROP, ["lost.txt"])
    deposit(page)
    expect(page.get_by_text("The repository cannot be reached")).to_be_visible()

    deposit(page)
    page.wait_for_url(f"**/batches/{made[0]}")

    dora.complaints.clear()  # of the network, and of the draft that cannot be changed any more


def test_folders_whose_first_file_has_a_longer_path_than_a_name_may_have_are_previewed(dora: Visitor) -> None:
    deep = f"letters/{'1911-' * 40}/{'May-' * 40}/a.txt"
    dora.page.evaluate(DROP_FOLDERS, [deep, "photos/b.txt"])

    expect(dora.page.get_by_text("2 objects of 2 files")).to_be_visible()
    expect(dora.page.get_by_label("Name of this deposit")).to_have_value(deep[:255])


def test_a_dropped_file_that_the_browser_may_not_read_is_named(dora: Visitor) -> None:
    page = dora.page
    page.evaluate(DROP_UNREADABLE)
    expect(page.get_by_role("alert")).to_contain_text("“scans/locked.tif” cannot be read")


def test_a_zip_is_one_object_whose_files_are_unpacked(dora: Visitor, web: Web, tmp_path: Path) -> None:
    page, container = dora.page, tmp_path / "letters.zip"
    with zipfile.ZipFile(container, "w") as archive:
        archive.writestr("a.txt", "a")
    choose(page, container)
    expect(page.get_by_text("1 object of 1 file")).to_be_visible()

    deposit(page)

    page.wait_for_url("**/batches/*")
    bid = page.url.rpartition("/")[2].partition("?")[0]
    submission = batches.load(web.context.session, bid).submission
    assert (submission.type, submission.payload_name) == (SubmissionType.CONTAINER, "letters.zip")


def enter(page: Page, label: str, text: str) -> None:
    """Type a value; it is saved once the page is not busy."""
    page.get_by_label(label).fill(text)
    page.get_by_label(label).press("Enter")
    expect(page.locator("#preview[aria-busy]")).to_have_count(0)


def test_a_table_that_was_corrected_outside_and_chosen_again_is_replaced_alone_and_keeps_corrections(
    dora: Visitor, tmp_path: Path
) -> None:
    page, table = dora.page, tmp_path / "list.csv"
    letters = [tmp_path / name for name in ("a.txt", "b.txt")]
    for letter in letters:
        letter.write_text(letter.name)
    table.write_text("Name;Thema\na.txt;Hafen\nb.txt;Kai\nc.txt;Weg\n")
    choose(page, table, *letters)
    page.get_by_text("What the columns of the table mean").click()
    page.get_by_label("“Thema” is").select_option("Title")
    expect(page.get_by_label("Title of row 2")).to_have_value("Hafen")
    enter(page, "Creator of row 3", "Anna")
    enter(page, "Title of row 4", "Gone")
    upload = page.evaluate("fetch('/v1/drafts').then(answer => answer.json())")["drafts"][0]["id"]
    put = f"fetch('/v1/uploads/{upload}/files/a.txt', {{method: 'PUT', body: 'a.txt'}})"
    assert page.evaluate(f"{put}.then(answer => answer.status)") == 201

    table.write_text("Name;Thema\nb.txt;Kai\na.txt;Mole\n")
    choose(page, table)

    expect(page.get_by_label("Title of row 3")).to_have_value("Mole")
    expect(page.get_by_label("Creator of row 2")).to_have_value("Anna")
    expect(page.get_by_role("alert")).to_contain_text("no longer has was removed: Title of row 4: “Gone”")
    expect(page.locator("#rows tr", has_text="a.txt")).to_contain_text("has arrived")
    dora.picture("new-deposit-table-changed", whole=False)
    assert [said for said in dora.complaints if "409" not in said] == []
    dora.complaints.clear()


def test_two_tabs_on_one_draft_lose_no_value_of_either(browser: Chromium, web: Web, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("a")
    (tmp_path / "list.csv").write_text("File;Title;Author\na.txt;Hafen;Anna\n")
    with visitor(browser, web.url) as dora:
        dora.log_in(new_token(web.context.settings, uuid4().hex, Role.DEPOSITOR, ["demo"]))
        page = dora.open("/deposits/new")
        choose(page, tmp_path / "a.txt", tmp_path / "list.csv")
        expect(page.get_by_label("Title of row 2")).to_have_value("Hafen")
        other = page.context.new_page()
        other.goto(f"{web.url}/deposits/new")
        other.get_by_role("button", name="Continue list.csv").click()
        expect(other.get_by_label("Title of row 2")).to_have_value("Hafen")

        enter(page, "Title of row 2", "Kai")
        other.get_by_label("Date of row 2").fill("19")
        other.get_by_label("Date of row 2").press("Enter")
        said = other.locator("#elsewhere")
        expect(said).to_contain_text("changed in another tab")
        expect(said).to_contain_text("Date of row 2: “19”")
        expect(other.get_by_label("Title of row 2")).to_have_value("Kai")
        enter(other, "Title of row 2", "Mole")
        Visitor(other, web.url).picture("new-deposit-two-tabs", whole=False)
        said.get_by_role("button", name="Save it now").click()
        expect(other.get_by_label("Title of row 2")).to_have_value("Mole")
        expect(said).to_be_hidden()
        expect(other.get_by_label("Date of row 2")).to_have_value("19")

        enter(page, "Creator of row 2", "Berta")
        expect(page.locator("#elsewhere")).to_contain_text("Creator of row 2: “Berta”")
        expect(page.get_by_label("Title of row 2")).to_have_value("Mole")
        deposit(other)
        expect(other.get_by_role("alert")).to_contain_text("Choose the same files again")
        page.get_by_role("button", name="Save it now").click()
        expect(page.get_by_label("Creator of row 2")).to_have_value("Berta")
        deposit(page)
        page.wait_for_url("**/batches/*")
        bid = page.url.rpartition("/")[2].partition("?")[0]
        submission = batches.load(web.context.session, bid).submission
        assert submission.deposit_name == "list.csv"


def test_corrections_of_one_sheet_do_not_apply_to_another(dora: Visitor, tmp_path: Path) -> None:
    page, table = dora.page, tmp_path / "list.xlsx"
    with xlsxwriter.Workbook(str(table)) as book:
        for name, what in (("Letters", "Letter"), ("Photos", "Photo")):
            sheet = book.add_worksheet(name)
            for number, row in enumerate((("Datei", "Titel"), ("a.txt", what))):
                sheet.write_row(number, 0, row)
    (tmp_path / "a.txt").write_text("a")
    choose(page, table, tmp_path / "a.txt")
    title = page.get_by_label("Title of row 2")
    title.fill("Letter to Sissel")
    title.press("Enter")
    expect(page.locator("#preview[aria-busy]")).to_have_count(0)

    page.get_by_text("What the columns of the table mean").click()
    page.get_by_label("Sheet").select_option("Photos")

    expect(title).to_have_value("Photo")
    expect(page.get_by_text("What was corrected in the other sheet has been removed.")).to_be_visible()


@pytest.mark.parametrize("digests", [True, False], ids=["with digests", "without digests"])
def test_a_file_that_changes_before_it_is_sent_is_said_and_costs_no_corrections(
    dora: Visitor, tmp_path: Path, digests: bool
) -> None:
    page, letter = dora.page, tmp_path / "a.txt"
    if not digests:
        without_digests(dora)
    letter.write_text("a")
    choose(page, letter)
    page.get_by_label("Title of the object").fill("A letter")
    page.get_by_label("Title of the object").press("Enter")
    letter.write_text("other bytes")

    deposit(page)

    expect(page.get_by_role("alert")).to_contain_text("a.txt cannot be read")
    expect(page.get_by_label("Title of the object")).to_have_value("A letter")
    assert [said for said in dora.complaints if "ERR_UPLOAD_FILE_CHANGED" not in said] == []
    dora.complaints.clear()


@pytest.mark.parametrize("read", ["[this.slice(), 'more']", "[this.slice(1)]"], ids=["longer", "shorter"])
def test_a_file_of_another_length_than_the_browser_said_is_not_deposited(
    dora: Visitor, tmp_path: Path, read: str
) -> None:
    """Firefox reads a file that has changed as it is now, and sends as many bytes as the file had before."""

    def read_as_firefox_does(route: Route) -> None:
        script = route.fetch().text()
        changed = f"File.prototype.stream = function () {{ return new Blob({read}).stream(); }};"
        route.fulfill(content_type="text/javascript", body=changed + script)

    dora.page.route("**/static/deposit/digest-worker.js", read_as_firefox_does)
    page = dora.open("/deposits/new")
    (tmp_path / "a.txt").write_text("a")
    choose(page, tmp_path / "a.txt")
    expect(page.get_by_text("1 object of 1 file")).to_be_visible()

    deposit(page)

    expect(page.get_by_role("alert")).to_contain_text("a.txt cannot be read")


def test_safari_deposits_with_digests_and_says_that_a_file_has_changed(web: Web, tmp_path: Path) -> None:
    letter = tmp_path / "a.txt"
    letter.write_text("a")
    with webkit.window(tmp_path) as dora:
        dora.log_in(web.url, new_token(web.context.settings, uuid4().hex, Role.DEPOSITOR, ["demo"]))
        dora.open(f"{web.url}/deposits/new")
        dora.enter("#choose-files", str(letter))
        dora.wait_for_text("#summary", "1 object of 1 file")
        assert dora.run("return document.getElementById('undeclared').hidden")
        letter.write_text("other bytes")
        dora.click("#deposit")
        dora.wait_for_text("#alert", "a.txt cannot be read")

        dora.enter("#choose-files", str(letter))
        dora.wait_for_text("#chosen", "11 bytes")
        dora.click("#deposit")
        dora.wait_for_text("#live", "a.txt")


def test_plain_http_beyond_this_machine_declares_digests_too(
    browser: Chromium, web: Web, tmp_path: Path
) -> None:
    address = web.url.replace("127.0.0.1", FAR_AWAY)
    with visitor(browser, address) as dora:
        page, declared = dora.page, dict[str, str]()
        page.on("request", lambda sent: declared.update({sent.url: sent.headers.get("repr-digest", "")}))
        dora.log_in(new_token(web.context.settings, uuid4().hex, Role.DEPOSITOR, ["demo"]))
        dora.open("/deposits/new")
        (tmp_path / "a.txt").write_text("a")
        choose(page, tmp_path / "a.txt")
        expect(page.get_by_text("1 object of 1 file")).to_be_visible()
        assert page.evaluate("[isSecureContext, typeof crypto.subtle]") == [False, "undefined"]

        deposit(page)

        page.wait_for_url("**/batches/*")
        (sent,) = [digest for url, digest in declared.items() if url.endswith("/files/a.txt")]
        assert sent == f"sha-512=:{b64encode(hashlib.sha512(b'a').digest()).decode()}:"


def test_without_webassembly_files_are_sent_and_the_page_says_that_no_digest_is_declared(
    dora: Visitor, tmp_path: Path
) -> None:
    page, declared = dora.page, list[str]()
    page.on("request", lambda sent: declared.append(sent.headers.get("repr-digest", "")))
    without_digests(dora)
    (tmp_path / "a.txt").write_text("a")
    choose(page, tmp_path / "a.txt")
    expect(page.get_by_text("1 object of 1 file")).to_be_visible()

    deposit(page)

    page.wait_for_url("**/batches/*")
    assert not any(declared)


def test_files_are_sent_without_a_digest_if_the_worker_fails_while_it_reads(
    dora: Visitor, tmp_path: Path
) -> None:
    page, declared = dora.page, list[str]()
    page.on("request", lambda sent: declared.append(sent.headers.get("repr-digest", "")))
    failing = "postMessage({ ready: true }); onmessage = () => { throw new Error('no memory'); };"
    page.route(
        "**/static/deposit/digest-worker.js",
        lambda route: route.fulfill(content_type="text/javascript", body=failing),
    )
    dora.open("/deposits/new")
    (tmp_path / "a.txt").write_text("a")
    choose(page, tmp_path / "a.txt")
    expect(page.get_by_text("1 object of 1 file")).to_be_visible()

    deposit(page)

    page.wait_for_url("**/batches/*")
    assert not any(declared)
    assert [said for said in dora.complaints if "no memory" not in said] == []
    dora.complaints.clear()


def test_without_digests_a_file_that_changed_while_the_tab_was_closed_is_not_mixed_with_what_had_arrived(
    dora: Visitor, tmp_path: Path
) -> None:
    scan, other = tmp_path / "a.tif", b"b" * LARGE
    scan.write_bytes(b"a" * LARGE)
    without_digests(dora)
    page, addresses = dora.page, list[str]()

    def cut_off_the_second_piece(route: Route) -> None:
        addresses.append(route.request.url)
        if len(addresses) == 2:
            page.context.set_offline(True)
        route.continue_()

    page.route("**/files/a.tif", cut_off_the_second_piece)
    choose(page, scan)
    expect(page.get_by_text("1 object of 1 file")).to_be_visible()
    deposit(page)
    expect(page.get_by_text("The network is away")).to_be_visible()
    context = page.context
    page.close()
    context.set_offline(False)

    scan.write_bytes(other)
    dora.page = page = context.new_page()
    without_digests(dora)
    page.get_by_role("button", name="Continue a.tif").click()
    expect(page.get_by_text("Choose the files of “a.tif” again")).to_be_visible()
    choose(page, scan)
    deposit(page)

    page.wait_for_url("**/batches/*")
    (upload,) = {address.split("/")[5] for address in addresses}
    (file,) = page.evaluate(f"fetch('/v1/uploads/{upload}').then(answer => answer.json())")["files"]
    assert file["sha512"] == hashlib.sha512(other).hexdigest()
    dora.complaints.clear()  # of the network


def test_ten_thousand_rows_are_shown_in_pages_and_those_with_mistakes_first_if_asked(
    dora: Visitor, tmp_path: Path
) -> None:
    page, table = dora.page, tmp_path / "large.csv"
    rows = [f"http://example.org/{number}.tif,Sheet {number},L-{number}" for number in range(ROWS)]
    rows[7000] = rows[7000].replace("L-7000", "L-6999")
    table.write_text("URL,Title,Call Number\n" + "\n".join(rows))
    choose(page, table)
    expect(page.get_by_text("10,000 objects of 10,000 files")).to_be_visible()
    assert page.locator("#rows tr").count() == 100

    page.get_by_role("button", name="Next page").click()
    expect(page.get_by_label("Title of row 102")).to_have_value("Sheet 100")
    page.get_by_label("Show only objects with mistakes").check()
    identifiers = page.get_by_label("Identifiers of row 7002")
    identifiers.fill("L-7000")
    identifiers.press("Enter")

    expect(page.get_by_text("no object with mistakes is left")).to_be_visible()
