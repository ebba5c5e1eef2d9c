"""Every page in a real browser: no barrier, no complaint, nothing too wide, little script, nothing moves."""

import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import expect

from pipeline.inventory.sql import open_inventory
from pipeline.principal import Role
from pipeline.states import Event, FailureKind
from tests.support import planting
from tests.support.browser import Chromium, Scheme, Visitor, chromium, in_both_forms, visitor
from tests.support.page_addresses import addresses
from tests.support.recordings import recording, stored_file
from tests.support.web import Web, new_token
from zkstate.record import jobs
from zkstate.record.jobs import JobMove

SCRIPT = 100_000
"""Bytes of script that a page may need; the page of the API is a program of its own."""

SCRIPT_BYTES = """performance.getEntriesByType("resource")
  .filter((one) => new URL(one.name).pathname.endsWith(".js"))
  .reduce((sum, one) => sum + one.decodedBodySize, 0)
"""

ABSENT = "/jobs/jid9999999999"
"""The page of an error."""


@pytest.fixture(scope="module")
def browser() -> Iterator[Chromium]:
    with chromium() as running:
        yield running


@pytest.fixture(scope="module")
def values(web: Web) -> dict[str, list[str]]:
    """Jobs, batches and objects: usual ones, and ones whose every text is as long as may be, without a place
    to break."""
    session, word, name = web.context.session, "x" * 4000, f"{'y' * 255}/{'z' * 255}"
    bid, jids = planting.split_batch(session, 8)
    for jid in jids[:4]:
        planting.apply_event(session, jobs.load(session, jid), Event.FAIL, FailureKind.SYSTEM)
    planting.apply_event(session, jobs.load(session, jids[5]), Event.FAIL, FailureKind.CONTENT)
    planting.complete(session, jobs.load(session, jids[6]))
    texts = {"note": word, "submitter": word, "owner": word, "erc_what": word, "payload_filename": name}
    long_bid, (long_jid,) = planting.split_batch_of(
        session, texts, payload_name=name, erc_what=word, erc_who=word
    )
    held = planting.acquire(session, jobs.load(session, long_jid))
    failure = JobMove(
        Event.FAIL, "worker", message=f"{name} (upload:{word}): {word}", kind=FailureKind.SYSTEM
    )
    jobs.move(session, held, failure)
    inventory = open_inventory(web.context.settings.inventory)
    inventory.record(recording("ark:/99999/fk4usual", jid=jids[6], bid=bid))
    files = [stored_file(f"producer/{name}"), stored_file(f"producer/{'w' * 200}.txt")]
    inventory.record(recording("ark:/99999/fk4long", jid=long_jid, bid=long_bid, files=files))
    return {
        "jid": [jids[0], long_jid],
        "bid": [bid, long_bid],
        "ark": ["ark:/99999/fk4usual", "ark:/99999/fk4long"],
        "name": ["demo"],
        "subscription": ["0" * 16],
        "purpose": ["confirm", "end"],
    }


def causes(opened: Visitor) -> list[str]:
    links = opened.open("/").locator("section[aria-labelledby=failures] li a")
    expect(links.first).to_be_visible()
    return [(link.get_attribute("href") or "").rpartition("/")[2] for link in links.all()][:2]


def faults(opened: Visitor, path: str) -> list[str]:
    """What is wrong with the page at its first view."""
    page = opened.open(path)
    expect(page.locator("h1")).to_be_visible()
    found = [*opened.barriers(), *opened.moved(), *(f"too wide: {one}" for one in opened.too_wide())]
    if path != "/docs":
        # the browser may enter them after the load event; polled by time, as a busy one may draw no frame
        page.wait_for_function(f"() => {SCRIPT_BYTES} > 0", polling=100)
        if (script := page.evaluate(SCRIPT_BYTES)) >= SCRIPT:
            found.append(f"{script} bytes of script")
    found += opened.barriers_in_other_colours()
    found += [f"the console: {said}" for said in opened.complaints if path != ABSENT or "404" not in said]
    opened.complaints.clear()
    return found


@in_both_forms
def test_every_page_is_accessible_fits_needs_little_script_and_does_not_move(
    browser: Chromium, web: Web, values: dict[str, list[str]], scheme: Scheme, width: int
) -> None:
    token = new_token(web.context.settings, f"olga-{scheme}", Role.OPERATOR)
    with visitor(browser, web.url, scheme, width) as opened:
        opened.page.context.new_cdp_session(opened.page).send(
            "Network.setCacheDisabled", {"cacheDisabled": True}
        )
        opened.log_in(token)
        wrong = {}
        for path in (*addresses({**values, "cause": causes(opened)}), ABSENT):
            if found := faults(opened, path):
                wrong[path] = found
            opened.picture(f"{scheme}-{width}{re.sub('[/?&=:]', '-', path)[:80]}".rstrip("-"))
    assert wrong == {}
