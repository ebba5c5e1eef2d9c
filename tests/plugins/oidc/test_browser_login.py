"""Login at an OpenID provider in a real browser, which decides itself which cookies it sends to whom."""

from pathlib import Path

from playwright.sync_api import expect
from pydantic import SecretStr

from pipeline.settings import Settings
from tests.servers.oidc import CLIENT, SECRET, providing
from tests.support.browser import chromium, visitor
from tests.support.web import serving

GROUPS = "archivists: {role: operator}\n"


def test_a_person_logs_in_at_the_provider_with_a_browser_and_comes_to_the_page_that_was_asked_for(
    settings: Settings, tmp_path: Path
) -> None:
    groups = tmp_path / "groups.yaml"
    groups.write_text(GROUPS)
    with providing() as provider:
        oidc = {
            "oidc_issuer": provider.issuer,
            "oidc_client_id": CLIENT,
            "oidc_client_secret": SecretStr(SECRET),
            "oidc_groups": groups,
        }
        with serving(settings.model_copy(update=oidc)) as web, chromium() as browser:
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
