"""A deposit from the form to its result, on the dashboard of a fleet; draws the pictures of the README."""

from playwright.sync_api import expect

from operations.jobs.batch_view import report
from operations.site import Site
from pipeline.principal import Role
from pipeline.records import SubmissionType
from pipeline.settings import Settings
from tests.e2e.collection import File, body_of, put_batch, put_object, submit
from tests.servers.http_source import HttpSource
from tests.support.browser import Visitor, chromium, visitor
from tests.support.fleet import Fleet, assert_completed, batch_ended
from tests.support.operators import ANN
from tests.support.web import new_token, serving
from zkstate.connection.session import Session


def deposit_again(dora: Visitor) -> str:
    """From the page of the deposits to the batch of what was corrected."""
    page = dora.page
    page.get_by_role("link", name="correct and deposit again").click()
    dora.picture("again")
    page.get_by_role("button", name="Preview").click()
    expect(page.get_by_text("1 object of")).to_be_visible()
    assert dora.barriers() == []
    page.get_by_role("button", name="Deposit exactly this object").click()
    page.wait_for_url("**/batches/*")
    return page.url.rpartition("/")[2].partition("?")[0]


def test_a_deposit_by_the_form_is_followed_to_its_objects_and_its_failure_is_explained(
    session: Session, settings: Settings, fleet: Fleet, source: HttpSource
) -> None:
    objects = [put_object(source, f"letter-{n}", [File("page.tif", body_of(f"{n}"))]) for n in range(5)]
    objects.append(put_object(source, "lost", [File("page.tif", b"", served=False)]))
    manifest = put_batch(source, objects)
    fleet.worker()
    fleet.beat()
    with serving(settings) as web, chromium() as browser, visitor(browser, web.url) as dora:
        dora.log_in(new_token(settings, "dora", Role.DEPOSITOR, ["demo"]))
        page = dora.open("/deposits/new")
        page.get_by_text("One file or an address").click()
        page.get_by_label("Or the address of a file").fill(manifest)
        page.get_by_label("What it is").select_option("batch-manifest")
        page.get_by_role("button", name="Deposit").click()
        page.wait_for_url("**/batches/*")
        bid = page.url.rpartition("/")[2].partition("?")[0]
        batch_ended(session, bid)

        dora.open(f"/batches/{bid}")
        expect(page.get_by_text("5 of 6 objects stored, 1 not stored")).to_be_visible()
        expect(page.get_by_role("link", name="deposit the corrected objects again")).to_be_visible()
        expect(page.get_by_text("What an operator may do")).to_have_count(0)
        dora.picture("batch", whole=False)
        lost = page.locator("section[aria-labelledby=objects] tr", has_text="not stored")
        lost.get_by_role("link").first.click()
        expect(page.get_by_text("404 Not Found").first).to_be_visible()
        dora.picture("job", whole=False)
        dora.open("/deposits")
        expect(page.get_by_text("5 of 6 objects stored")).to_be_visible()
        expect(page.get_by_role("heading", name="What you have to correct")).to_be_visible()

        source.put("/lost/page.tif", b"")
        assert_completed(batch_ended(session, deposit_again(dora)))
        second = submit(session, settings, put_batch(source, objects[:1]), SubmissionType.BATCH_MANIFEST)
        assert_completed(batch_ended(session, second))
        (stored,) = report(Site(settings, session), ANN, second).completed
        assert stored.remark == f"this is version 2 of {stored.ark}, which the repository had already"
        assert dora.complaints == []

        with visitor(browser, web.url) as olga:
            olga.log_in(new_token(settings, "olga", Role.OPERATOR))
            expect(olga.page.get_by_text("answered 404").first).to_be_visible()
            olga.picture("board", whole=False)
            olga.open(f"/batches/{second}")
            expect(olga.page.get_by_text(f"this is version 2 of {stored.ark}")).to_be_visible()
            olga.open("/find?q=batch-0")  # a local id
            expect(olga.page.get_by_text(str(stored.ark)).first).to_be_visible()
            olga.open(f"/objects/{stored.ark}?version=1")
            olga.page.get_by_role("button", name="Prove now").click()
            expect(olga.page.get_by_text("Every file is as it was deposited")).to_be_visible()
            expect(olga.page.get_by_role("heading", name="Custody of version 1")).to_be_visible()
            olga.picture("object")
            olga.open("/space")
            assert olga.complaints == []
