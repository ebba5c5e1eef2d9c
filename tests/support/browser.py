"""The system's Chromium in a test: pages with a login, what they complain about, and pictures of them."""

import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, expect, sync_playwright

from tests.support.requirements import unavailable

PICTURES = "PAGE_PICTURES"
"""The folder that gets pictures of the pages; without it none are kept."""

Scheme = Literal["light", "dark"]


OPENINGS = 3

BEGINNING = 10.0
"""Seconds in which the stream of a page begins."""

STREAM = "[hx-sse\\:connect]"


@contextmanager
def chromium() -> Iterator[Browser]:
    program = shutil.which("chromium") or shutil.which("google-chrome")
    if program is None:
        unavailable("Chromium is not installed: apt-get install chromium")
    expect.set_options(timeout=30_000)  # a loaded machine is slow, and facts of the fleet are seconds old
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        yield browser
        browser.close()


@dataclass
class Visitor:
    """One person in a browser window of their own."""

    page: Page
    url: str
    complaints: list[str] = field(default_factory=list)
    """Messages of the browser's console: scripts that fail, and what the security policy refuses."""

    def open(self, path: str) -> Page:
        """The page, whose stream is open if it has one.

        On a busy machine Chromium now and then shows a new page whose timers and requests never begin: the
        server is asked for no stream, and ages stand still. Such a page is opened again.
        """
        for _ in range(OPENINGS):
            self.page.goto(f"{self.url}{path}")
            if not self.page.locator(STREAM).count() or self._streams():
                break
        return self.page

    def _streams(self) -> bool:
        deadline = time.monotonic() + BEGINNING
        while time.monotonic() < deadline:
            if self.page.evaluate("document.documentElement.dataset.stream") == "open":
                return True
            self.page.wait_for_timeout(100)
        return False

    def log_in(self, token: str) -> None:
        self.open("/login")
        self.page.get_by_label("Token").fill(token)
        self.page.get_by_role("button", name="Log in").click()
        self.page.wait_for_url(lambda url: "/login" not in url)

    def picture(self, name: str, *, whole: bool = True) -> None:
        """Keep a picture of the whole page, or of what the window shows."""
        if folder := os.environ.get(PICTURES):
            self.page.screenshot(path=Path(folder) / f"{name}.png", full_page=whole)

    def barriers(self) -> list[str]:
        """What axe holds to be a serious barrier on the page, with the elements."""
        violations = Axe().run(self.page).response["violations"]
        return [
            f"{one['id']}: {one['help']}: {[node['html'][:120] for node in one['nodes'][:3]]}"
            for one in violations
            if one["impact"] in ("serious", "critical")
        ]


@contextmanager
def visitor(browser: Browser, url: str, scheme: Scheme = "light", width: int = 1280) -> Iterator[Visitor]:
    context = browser.new_context(color_scheme=scheme, viewport={"width": width, "height": 900})
    context.set_default_timeout(30_000)
    page = context.new_page()
    opened = Visitor(page, url)
    page.on("console", lambda message: _keep(opened, message.type, message.text))
    page.on("pageerror", lambda error: opened.complaints.append(str(error)))
    yield opened
    context.close()


def _keep(opened: Visitor, kind: str, text: str) -> None:
    if kind in ("error", "warning"):
        opened.complaints.append(text)
