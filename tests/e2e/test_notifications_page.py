"""The page of notifications in a real browser: wide, narrow and dark."""

from collections.abc import Iterator
from datetime import timedelta

import pytest
from playwright.sync_api import expect
from pydantic import SecretStr

from pipeline.principal import Role
from pipeline.records import now
from pipeline.settings import Settings
from tests.support import nightly
from tests.support.browser import NARROW, WIDE, Chromium, Scheme, chromium, visitor
from tests.support.web import Web, new_token, serving_board
from zkstate.record import subscriptions


@pytest.fixture(scope="module")
def web(module_settings: Settings) -> Iterator[Web]:
    secret = {"callback_secret": SecretStr("a secret of the harbour")}
    with serving_board(module_settings.model_copy(update=secret)) as running:
        yield running


@pytest.fixture(scope="module")
def browser() -> Iterator[Chromium]:
    with chromium() as running:
        yield running


@pytest.mark.parametrize(
    ("scheme", "width", "role"),
    [(*NARROW, Role.OPERATOR), pytest.param(*WIDE, Role.DEPOSITOR, marks=nightly.case)],
)
def test_a_person_subscribes_by_the_page_and_sees_what_went_wrong(
    browser: Chromium, web: Web, scheme: Scheme, width: int, role: Role
) -> None:
    name = f"{scheme}-{width}"
    with visitor(browser, web.url, scheme, width) as opened:
        opened.log_in(new_token(web.context.settings, name, role))
        page = opened.open("/notifications")
        page.get_by_label("Mail address, or the URL of a webhook").fill(f"{name}@harbour.example")
        page.get_by_label("waits for somebody").check()
        page.get_by_label("Sent", exact=True).select_option("daily")
        page.get_by_role("button", name="Add").click()
        expect(page.get_by_text("Nothing else is sent before")).to_be_visible()
        expect(page.get_by_text("Not confirmed yet").first).to_be_visible()

        (own,) = [one for one in subscriptions.known(web.context.session) if one.name == name]
        subscriptions.change(
            web.context.session, own, confirmed=True, suspended=now() - timedelta(days=1), visited=now()
        )
        opened.open("/notifications")
        expect(page.get_by_text("Suspended: deliveries failed").first).to_be_visible()
        opened.picture(f"notifications-{name}")
        assert opened.barriers() == []
        assert opened.too_wide() == []
        page.get_by_role("button", name=f"Remove the notifications to {name}@harbour.example").click()
        expect(page.get_by_text("The notifications were ended.")).to_be_visible()
        assert opened.complaints == []
