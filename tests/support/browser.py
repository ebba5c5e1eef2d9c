"""The system's Chromium in a test: pages with a login, what they complain about, and pictures of them."""

import itertools
import os
import shutil
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page, Playwright, expect, sync_playwright

from tests.support.requirements import unavailable

PICTURES = "PAGE_PICTURES"
"""The folder that gets pictures of the pages; without it none are kept."""

Scheme = Literal["light", "dark"]


OPENINGS = 3

BEGINNING = 10.0
"""Seconds in which the stream of a page begins."""

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
    def window(self, scheme: Scheme, width: int, cookies: list[Any]) -> Iterator[Page]:
        """A page in a new process, which ends even if Chromium hangs while it closes."""
        mark = f"--window-of-test={os.getpid()}-{next(self.numbers)}"
        browser = self.playwright.chromium.launch(executable_path=self.program, args=["--no-sandbox", mark])
        context = browser.new_context(color_scheme=scheme, viewport={"width": width, "height": 900})
        context.set_default_timeout(30_000)
        context.add_cookies(cookies)
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

    url: str
    windows: Callable[[list[Any]], AbstractContextManager[Page]]
    """Opens a window with these cookies."""

    stack: ExitStack
    page: Page = field(init=False)
    complaints: list[str] = field(default_factory=list)
    """Messages of the browser's console: scripts that fail, and what the security policy refuses."""

    def __post_init__(self) -> None:
        self._new_window([])

    def _new_window(self, cookies: list[Any]) -> None:
        self.stack.close()
        self.page = self.stack.enter_context(self.windows(cookies))
        self.page.on("console", lambda message: _keep(self, message.type, message.text))
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))

    def open(self, path: str) -> Page:
        """The page, whose stream is open if it has one.

        On a busy machine Chromium now and then shows a new page whose timers and requests never begin: the
        server is asked for no stream, and ages stand still. Such a page is opened in a new Chromium.
        """
        for opening in range(OPENINGS):
            if opening:
                self._new_window(self.page.context.cookies())
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
def visitor(browser: Chromium, url: str, scheme: Scheme = "light", width: int = 1280) -> Iterator[Visitor]:
    with ExitStack() as stack:
        yield Visitor(url, lambda cookies: browser.window(scheme, width, cookies), stack)


def _keep(opened: Visitor, kind: str, text: str) -> None:
    if kind in ("error", "warning"):
        opened.complaints.append(text)
