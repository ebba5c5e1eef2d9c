"""Previews of PDFs and of images that no browser shows, in a real browser."""

import io
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from PIL import Image, ImageDraw
from playwright.sync_api import Page, expect

from pipeline.attempt import UNATTENDED
from pipeline.principal import Role
from pipeline.settings import Settings
from tests.support import planting, webkit
from tests.support.browser import Chromium, Scheme, Visitor, chromium, in_both_forms, visitor
from tests.support.repository import Repository, empty_inventory
from tests.support.web import new_token, serving
from zkstate.connection.session import Session
from zkstate.record import batches

TWO_PAGES = '<h1>Harbour of Bergen</h1><p>1911</p><p style="break-before:page">The second sheet</p>'
SCRIPTED = (
    b"/OpenAction << /S /JavaScript /JS (app.alert\\(1\\); this.submitForm\\('http://127.0.0.1/'\\)) >>"
)


LOCKED = b"""%%PDF-1.4
1 0 obj << /Type /Catalog /Pages 2 0 R >> endobj
2 0 obj << /Type /Pages /Kids [] /Count 0 >> endobj
3 0 obj << /Filter /Standard /V 1 /R 2 /P -4 /O <%s> /U <%s> >> endobj
trailer << /Root 1 0 R /Encrypt 3 0 R /ID [<00> <00>] >>
""" % (b"11" * 32, b"22" * 32)


@pytest.fixture(scope="module")
def browser() -> Iterator[Chromium]:
    with chromium() as opened:
        yield opened


def sheet(text: str, size: tuple[int, int] = (2400, 1800)) -> Image.Image:
    image = Image.linear_gradient("L").resize(size).convert("RGB")
    ImageDraw.Draw(image).text((100, 100), text, fill="black", font_size=200)
    return image


def written(image: Image.Image, kind: str, **options: object) -> bytes:
    data = io.BytesIO()
    image.save(data, kind, **options)
    return data.getvalue()


def scripted(pdf: bytes) -> bytes:
    """The PDF with a script that runs when it is opened; readers look for the catalog's new place."""
    return pdf.replace(b"/Type /Catalog", b"/Type /Catalog " + SCRIPTED)


@pytest.fixture(scope="module")
def pdf(browser: Chromium) -> bytes:
    with browser.window("light", 1280) as page:
        page.set_content(TWO_PAGES)
        return page.pdf()


@pytest.fixture(scope="module")
def files(pdf: bytes) -> dict[str, str | bytes]:
    return {
        "report.pdf": pdf,
        "scripted.pdf": scripted(pdf),
        "locked.pdf": LOCKED,
        "broken.pdf": pdf[: len(pdf) // 20],
        "sheets.tif": written(
            sheet("one"), "TIFF", save_all=True, append_images=[sheet("two"), sheet("three")]
        ),
        "scan.jp2": written(sheet("jp2"), "JPEG2000"),
        "bomb.tif": written(Image.new("1", (60_000, 60_000)), "TIFF", compression="group4"),
        "broken.tif": "II*",
    }


@pytest.fixture
def ark(session: Session, settings: Settings, tmp_path: Path, files: dict[str, str | bytes]) -> str:
    return entered(session, settings, tmp_path, files)


@pytest.fixture
def ark_of_pdf(session: Session, settings: Settings, tmp_path: Path, pdf: bytes) -> str:
    return entered(session, settings, tmp_path, {"report.pdf": pdf})


def entered(session: Session, settings: Settings, tmp_path: Path, files: Mapping[str, str | bytes]) -> str:
    """The ARK of a stored object with these files."""
    (tmp_path / "empty").mkdir()
    repository = Repository(settings.home, empty_inventory(tmp_path / "empty"))
    batch = planting.acquired_batch(session, owner="token:anna")
    batch = planting.create_jobs(session, batch, planting.plan(1), planting.WORKING, "test", UNATTENDED)
    batches.finish_split(session, batch)
    jid = batches.all_jobs(session, batch.bid)[0]
    stored = repository.recorded(repository.job(int(jid[3:]), files, batch_id=batch.bid))
    repository.close()
    return stored.ark


def shown(anna: Visitor, ark: str, name: str) -> Page:
    return anna.open(f"/objects/{ark}?version=1&file=producer/{name}#seen")


@in_both_forms
def test_scans_and_pdfs_are_seen_before_they_are_downloaded(
    settings: Settings, ark: str, browser: Chromium, width: int, scheme: Scheme
) -> None:
    with serving(settings) as web, visitor(browser, web.url, scheme, width) as anna:
        anna.log_in(new_token(settings, "anna", Role.DEPOSITOR, ["demo"]))
        for name, sentence in (
            ("sheets.tif", "Page 1 of 3, in 1600 x 1200 pixels."),
            ("scan.jp2", "In 1600 x 1200 pixels."),
        ):
            page = shown(anna, ark, name)
            expect(page.get_by_text(sentence)).to_be_visible()
            image = page.get_by_role("img", name=f"producer/{name}")
            assert image.evaluate("image => image.decode().then(() => image.naturalWidth)") == 1600
            anna.picture(f"preview-{name}-{width}")
            assert anna.barriers() == []

        page = shown(anna, ark, "report.pdf")
        expect(page.get_by_text("scripts in the PDF do not run")).to_be_visible()
        frame = page.frame_locator("iframe.preview")
        expect(frame.get_by_text("Page 1 of 2")).to_be_visible()
        assert "Harbour of Bergen" in (frame.locator("#text").text_content() or "")
        anna.picture(f"preview-report.pdf-{width}")
        frame.get_by_role("button", name="Next page").press("Enter")
        expect(frame.get_by_text("Page 2 of 2")).to_be_visible()
        assert "The second sheet" in (frame.locator("#text").text_content() or "")
        expect(frame.get_by_role("button", name="Next page")).to_be_disabled()
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        assert anna.barriers() == []
        expect(page.get_by_text("scripts in the PDF do not run")).to_be_visible()
        assert page.frames[1].evaluate("self.origin") == "null"
        assert anna.complaints == []


def test_what_a_pdf_or_an_image_would_do_is_not_done_and_a_sentence_says_what_is_missing(
    settings: Settings, ark: str, browser: Chromium
) -> None:
    with serving(settings) as web, visitor(browser, web.url) as anna:
        anna.log_in(new_token(settings, "anna", Role.DEPOSITOR, ["demo"]))
        dialogs: list[str] = []
        anna.page.on("dialog", lambda dialog: dialogs.append(dialog.message))
        asked: list[str] = []
        anna.page.on("request", lambda request: asked.append(request.url))
        expected = {
            "scripted.pdf": "scripts in the PDF do not run",
            "broken.pdf": "There is no preview: the PDF is damaged",
            "locked.pdf": "There is no preview: the PDF needs a password",
            "bomb.tif": "There is no preview: it has 60,000 x 60,000 pixels",
            "broken.tif": "There is no preview: it cannot be read as an image",
        }
        for name, sentence in expected.items():
            expect(shown(anna, ark, name).get_by_text(sentence)).to_be_visible()

        assert dialogs == []
        assert [url for url in asked if not url.startswith((web.url, "blob:null/"))] == []


def test_a_browser_that_does_not_run_the_frame_of_a_pdf_is_said_to_have_no_preview(
    settings: Settings, ark_of_pdf: str, browser: Chromium
) -> None:
    with serving(settings) as web, visitor(browser, web.url) as anna:
        anna.log_in(new_token(settings, "anna", Role.DEPOSITOR, ["demo"]))
        anna.page.route("**/static/pdf/frame.js", lambda route: route.abort())

        page = shown(anna, ark_of_pdf, "report.pdf")

        expect(page.get_by_text("There is no preview: this browser does not run it.")).to_be_visible()


def test_a_pdf_is_seen_in_safari(settings: Settings, ark_of_pdf: str, tmp_path: Path) -> None:
    with serving(settings) as web, webkit.window(tmp_path) as anna:
        anna.log_in(web.url, new_token(settings, "anna", Role.DEPOSITOR, ["demo"]))

        anna.open(f"{web.url}/objects/{ark_of_pdf}?version=1&file=producer/report.pdf#seen")

        anna.wait_for_text("#pdf-state", "scripts in the PDF do not run")
