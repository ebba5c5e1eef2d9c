"""Login at an OpenID provider in a real browser, which decides itself which cookies it sends to whom."""

from pathlib import Path

import pytest
from playwright.sync_api import expect

from pipeline.settings import Settings
from tests.servers.oidc import providing
from tests.support.browser import chromium, visitor
from tests.support.fleet import set_variables
from tests.support.web import serving


def test_a_person_logs_in_at_the_provider_with_a_browser_and_comes_to_the_page_that_was_asked_for(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with providing() as provider:
        set_variables(monkeypatch, provider.settings(tmp_path, "archivists: {role: operator}"))
        with serving(settings) as web, chromium() as browser:
            # another site than the provider's for a browser, so that its cookies are held back on the way
            site = web.url.replace("127.0.0.1", "localhost")
            with visitor(browser, site) as ann:
                page = ann.open("/stops")
                page.wait_for_url("**/login*")
                assert ann.barriers() == []
                page.get_by_role("link", name="Log in with your institution's account").click()

                page.wait_for_url(f"{site}/stops")
                expect(page.get_by_role("button", name="Log out")).to_contain_text("ann")
                page.reload()
                expect(page.get_by_role("heading", name="Stops").first).to_be_visible()
                page.get_by_role("button", name="Log out").click()
                ann.open("/stops")
                page.wait_for_url("**/login*")
                assert ann.complaints == []
        assert len(provider.requests) == 1
