"""The page of an object in a real browser: found files, previews, a download that is compared."""

from pathlib import Path

from playwright.sync_api import expect

from pipeline.attempt import UNATTENDED
from pipeline.principal import Role
from pipeline.settings import Settings
from tests.support import planting
from tests.support.browser import Scheme, chromium, in_both_forms, visitor
from tests.support.repository import Repository, empty_inventory
from tests.support.web import new_token, serving
from zkstate.connection.session import Session
from zkstate.record import batches

PIXEL = "GIF89a\x01\0\x01\0\0\0\0,\0\0\0\0\x01\0\x01\0\0\x02\x02D\x01\0;"
LONG = "a-name-that-has-no-space-and-is-longer-than-a-narrow-window-" * 3
FILES = {
    "letters/1911/page 1.txt": "Dear <b>Ann</b>,\n" * 50,
    "letters/1912/page 2.txt": "Dear Bob",
    f"{LONG}.txt": "long",
    "scan.tif": "II*",
    "pixel.gif": PIXEL,
}


@in_both_forms
def test_an_archivist_looks_at_an_object_and_takes_a_file_out(
    session: Session, settings: Settings, tmp_path: Path, width: int, scheme: Scheme
) -> None:
    (tmp_path / "empty").mkdir()
    repository = Repository(settings.home, empty_inventory(tmp_path / "empty"))
    batch = planting.acquired_batch(session, owner="token:anna")
    batch = planting.create_jobs(session, batch, planting.plan(1), planting.WORKING, "test", UNATTENDED)
    batches.finish_split(session, batch)
    jid = batches.all_jobs(session, batch.bid)[0]
    job = repository.job(int(jid[3:]), FILES, batch_id=batch.bid)
    ark = repository.recorded(job).ark
    repository.close()

    with (
        serving(settings) as web,
        chromium() as browser,
        visitor(browser, web.url, scheme, width) as anna,
    ):
        anna.log_in(new_token(settings, "anna", Role.DEPOSITOR, ["demo"]))
        page = anna.open(f"/objects/{ark}")
        page.locator("summary").filter(has_text="letters").click()
        page.locator("summary").filter(has_text="1911").click()
        anna.picture(f"object-{width}")
        assert anna.barriers() == []
        assert page.evaluate("document.documentElement.scrollWidth") <= width

        page.get_by_role("link", name="Preview of producer/letters/1911/page 1.txt").click()
        expect(page.get_by_text("Dear <b>Ann</b>,").first).to_be_visible()
        with page.expect_download() as download:
            page.get_by_role("link", name="Download page 1.txt").click()
        download.value.save_as(tmp_path / "taken")
        assert (tmp_path / "taken").read_text() == FILES["letters/1911/page 1.txt"]
        anna.picture(f"object-preview-{width}")
        assert anna.barriers() == []

        page.get_by_role("link", name="Preview of producer/pixel.gif").click()
        expect(page.get_by_role("img", name="producer/pixel.gif")).to_be_visible()
        assert (
            page.locator("img.preview").evaluate("image => image.decode().then(() => image.naturalWidth)")
            == 1
        )

        page.get_by_role("link", name="Preview of producer/scan.tif").click()
        expect(page.get_by_text("There is no preview: it cannot be read as an image")).to_be_visible()
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        assert anna.complaints == []
