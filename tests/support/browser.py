"""The system's Chromium in a test: pages with a login, what they complain about, and pictures of them."""

import itertools
import os
import shutil
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page, Playwright, expect, sync_playwright

from tests.support.requirements import unavailable

PICTURES = "PAGE_PICTURES"
"""The folder that gets pictures of the pages; without it none are kept."""

Scheme = Literal["light", "dark"]


STREAM = "[hx-sse\\:connect]"

CLOSING = 20.0
"""Seconds after which a Chromium that does not close is killed."""


@dataclass(frozen=True)
class Chromium:
    """The system's Chromium: each visitor gets a process of their own, so that none spoils the next test."""

    playwright: Playwright
    program: str
    numbers: Iterator[int] = field(default_factory=itertools.count)

    @contextmanager
    def window(self, scheme: Scheme, width: int) -> Iterator[Page]:
        """A page in a new process, which ends even if Chromium hangs while it closes."""
        mark = f"--window-of-test={os.getpid()}-{next(self.numbers)}"
        browser = self.playwright.chromium.launch(executable_path=self.program, args=["--no-sandbox", mark])
        context = browser.new_context(color_scheme=scheme, viewport={"width": width, "height": 900})
        context.set_default_timeout(30_000)
        try:
            yield context.new_page()
        finally:
            late = threading.Timer(CLOSING, _kill, [mark])
            late.start()
            browser.close()
            late.cancel()


def _kill(mark: str) -> None:
    for command in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(FileNotFoundError, ProcessLookupError):
            if mark.encode() in command.read_bytes():
                os.kill(int(command.parent.name), signal.SIGKILL)


@contextmanager
def chromium() -> Iterator[Chromium]:
    program = shutil.which("chromium") or shutil.which("google-chrome")
    if program is None:
        unavailable("Chromium is not installed: apt-get install chromium")
    expect.set_options(timeout=30_000)  # a loaded machine is slow, and facts of the fleet are seconds old
    with sync_playwright() as playwright:
        yield Chromium(playwright, program)


@dataclass
class Visitor:
    """One person in a browser window of their own."""

    page: Page
    url: str
    complaints: list[str] = field(default_factory=list)
    """Messages of the browser's console: scripts that fail, and what the security policy refuses."""

    def open(self, path: str) -> Page:
        """The page, whose stream is open if it has one."""
        self.page.goto(f"{self.url}{path}")
        if self.page.locator(STREAM).count():
            expect(self.page.locator("html[data-stream=open]")).to_be_attached()
        return self.page

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
def visitor(browser: Chromium, url: str, scheme: Scheme = "light", width: int = 1280) -> Iterator[Visitor]:
    with browser.window(scheme, width) as page:
        opened = Visitor(page, url)
        page.on("console", lambda message: _keep(opened, message.type, message.text))
        page.on("pageerror", lambda error: opened.complaints.append(str(error)))
        yield opened


def _keep(opened: Visitor, kind: str, text: str) -> None:
    if kind in ("error", "warning"):
        opened.complaints.append(text)
