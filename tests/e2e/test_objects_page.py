"""The list of objects in a real browser: hits, none, many, conditions, an index that is not complete."""

from pathlib import Path

from playwright.sync_api import expect
from sqlalchemy import text

from pipeline.principal import Role
from pipeline.settings import Settings
from tests.support.browser import Scheme, Visitor, chromium, in_both_forms, visitor
from tests.support.recordings import recording, stored_file
from tests.support.repository import Repository, empty_inventory
from tests.support.web import new_token, serving
from zkstate.connection.session import Session

LONG = "Briefwechsel zwischen dem Rat der Stadt und den Zünften über die Ordnung des Hafens " * 4
UNBROKEN = "a-name-that-has-no-space-and-is-longer-than-a-narrow-window-" * 3
MANY = 70


def assert_usable(anna: Visitor, picture: str, width: int) -> None:
    anna.picture(picture)
    assert anna.barriers() == []
    assert anna.page.evaluate("document.documentElement.scrollWidth") <= width


@in_both_forms
def test_a_viewer_searches_the_objects(
    session: Session, settings: Settings, tmp_path: Path, width: int, scheme: Scheme
) -> None:
    (tmp_path / "empty").mkdir()
    repository = Repository(settings.home, empty_inventory(tmp_path / "empty"))
    titles = [f"Karte des Hafens, Blatt {number}" for number in range(MANY)] + [LONG, UNBROKEN, ""]
    for number, title in enumerate(titles):
        entry = recording(
            f"ark:/99999/fk4{number:06d}",
            jid=f"jid{number:010d}",
            erc=(("who", "Müller, Anna"), ("what", title), ("when", str(1800 + number))),
            files=(
                stored_file(f"producer/scans/img_{number:03d}.jpg"),
                stored_file(f"producer/{UNBROKEN}.tif"),
            ),
            depositor="token:anna",
        )
        repository.inventory.record(entry)
    repository.close()

    with (
        serving(settings) as web,
        chromium() as browser,
        visitor(browser, web.url, scheme, width) as anna,
    ):
        anna.log_in(new_token(settings, "anna", Role.VIEWER, ["demo"]))
        page = anna.open("/objects?q=hafens")
        expect(page.get_by_role("link", name="Karte des Hafens, Blatt 69")).to_be_visible()
        assert_usable(anna, f"objects-many-{width}", width)
        page.get_by_role("link", name="Next page").click()
        expect(page.get_by_role("link", name="Karte des Hafens, Blatt 0", exact=True)).to_be_visible()

        anna.open("/objects?q=müller+img_06")
        expect(page.get_by_text("scans/img_060.jpg")).to_be_visible()
        assert_usable(anna, f"objects-file-{width}", width)

        anna.open("/objects?q=nothing-like-this")
        expect(page.get_by_text("No object has all of these words")).to_be_visible()
        assert_usable(anna, f"objects-none-{width}", width)

        page.get_by_text("What checks found").click()
        page.get_by_label("Check", exact=True).fill("clamav")
        page.get_by_label("Result").select_option("unchecked")
        page.get_by_label("Text").fill("blatt")
        page.get_by_role("button", name="Search").click()
        expect(page.get_by_text("not checked, the check did not run").first).to_be_visible()
        assert_usable(anna, f"objects-filter-{width}", width)

        repository.inventory.database.run(text("UPDATE inv_ingests SET index_number = 0 WHERE id > 50"))
        anna.open("/objects?q=nothing-like-this")
        expect(page.get_by_text("50 of 73 objects")).to_be_visible()
        assert_usable(anna, f"objects-incomplete-{width}", width)
        assert anna.complaints == []
