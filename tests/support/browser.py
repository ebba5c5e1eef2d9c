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

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page, Playwright, expect, sync_playwright

from tests.support import nightly
from tests.support.requirements import unavailable

PICTURES = "PAGE_PICTURES"
"""The folder that gets pictures of the pages; without it none are kept."""

DOCUMENTATION = Path(__file__).parents[2] / "docs" / "pictures"
DOCUMENTED = {
    "batch",
    "board",
    "collection-light-1280",
    "flower",
    "job",
    "new-deposit-dark-390",
    "new-deposit-light-1280",
    "object-light-1280",
    "objects-light-1280",
    "stored-light-1280",
}
"""The pictures that the folder of the documentation gets."""

Scheme = Literal["light", "dark"]

Form = tuple[Scheme, int]
"""The colours and the width of a window."""

NARROW: Form = ("dark", 390)
"""The form that always runs: less fits into it, and `tests/e2e/test_every_page.py` compares the colours of
both schemes on each page."""

WIDE: Form = ("light", 1280)

in_both_forms = pytest.mark.parametrize(
    ("scheme", "width"), [NARROW, pytest.param(*WIDE, marks=nightly.case)]
)

FAR_AWAY = "archive.example"
"""A name of this machine that browsers do not take for this machine."""

STREAM = "[hx-sse\\:connect]"

TOO_WIDE = """
[document.documentElement, ...document.querySelectorAll("main *, header *, footer *")]
  .filter((one) => one.getBoundingClientRect().right > innerWidth + 1)
  .filter((one) => !one.closest(".scroll, pre, .skip, svg"))
  .map((one) => `${one.tagName} ${one.className} ${one.textContent.trim().slice(0, 40)}`)
  .slice(0, 5)
"""

KEEP_SHIFTS = """
window.shifts = [];
new PerformanceObserver((list) => {
  for (const entry of list.getEntries()) if (!entry.hadRecentInput) shifts.push(entry);
}).observe({ type: "layout-shift", buffered: true });
"""

SHIFTED = """
[shifts.reduce((sum, one) => sum + one.value, 0), shifts.flatMap((one) => one.sources).map((one) =>
  `${one.node?.nodeName} from ${one.previousRect.y} to ${one.currentRect.y}`).slice(0, 5)]
"""

TRANSITIONS_END = """
(async () => {
  const frame = () => new Promise(requestAnimationFrame)  // transitions begin with one
  await frame().then(frame)
  const running = () => document.getAnimations().filter((one) => one instanceof CSSTransition)
  while (running().length) await Promise.allSettled(running().map((one) => one.finished))
})()
"""

MOVED = 0.05
"""People see a larger shift (browsers call 0.1 good); an age that gets another letter may break a line."""

CLOSING = 20.0
"""Seconds after which a Chromium that does not close is killed."""


@dataclass(frozen=True)
class Chromium:
    """The system's Chromium: each visitor gets a process of their own, so that none spoils the next test."""

    playwright: Playwright
    program: str
    numbers: Iterator[int] = field(default_factory=itertools.count)

    @contextmanager
    def window(self, scheme: Scheme, width: int, zone: str = "UTC") -> Iterator[Page]:
        """A page in a new process, which ends even if Chromium hangs while it closes."""
        mark = f"--window-of-test={os.getpid()}-{next(self.numbers)}"
        args = ["--no-sandbox", f"--host-resolver-rules=MAP {FAR_AWAY} 127.0.0.1", mark]
        browser = self.playwright.chromium.launch(executable_path=self.program, args=args)
        context = browser.new_context(
            color_scheme=scheme,
            viewport={"width": width, "height": 900},
            timezone_id=zone,
            ignore_https_errors=True,  # the authorities of tests are their own
        )
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
        folder = os.environ.get(PICTURES)
        if folder and (name in DOCUMENTED or Path(folder).resolve() != DOCUMENTATION):
            self.page.screenshot(path=Path(folder) / f"{name}.png", full_page=whole)

    def barriers_in_other_colours(self) -> list[str]:
        """What cannot be read on the page in the scheme that the window does not have."""
        own: Scheme = (
            "dark" if self.page.evaluate("matchMedia('(prefers-color-scheme: dark)').matches") else "light"
        )
        self.page.emulate_media(color_scheme="light" if own == "dark" else "dark")
        self.page.evaluate(TRANSITIONS_END)
        found = self.barriers("color-contrast")
        self.page.emulate_media(color_scheme=own)
        return found

    def barriers(self, *rules: str) -> list[str]:
        """What axe holds to be a serious barrier, with the elements; by all rules if none is named."""
        options = {"resultTypes": ["violations"]} | ({"runOnly": [*rules]} if rules else {})
        violations = Axe().run(self.page, options=options).response["violations"]
        return [
            f"{one['id']}: {one['help']}: {[node['html'][:120] for node in one['nodes'][:3]]}"
            for one in violations
            if one["impact"] in ("serious", "critical")
        ]

    def too_wide(self) -> list[str]:
        """Elements that reach beyond the window; what a region of its own scrolls does not count."""
        found: list[str] = self.page.evaluate(TOO_WIDE)
        return found

    def moved(self) -> list[str]:
        """What has moved on the page without an act of the person."""
        shifted, nodes = self.page.evaluate(SHIFTED)
        return [f"the layout shifted by {shifted:.3f}: {nodes}"] if shifted > MOVED else []


@contextmanager
def visitor(
    browser: Chromium, url: str, scheme: Scheme = "light", width: int = 1280, zone: str = "UTC"
) -> Iterator[Visitor]:
    with browser.window(scheme, width, zone) as page:
        opened = Visitor(page, url)
        page.context.add_init_script(KEEP_SHIFTS)
        page.on("console", lambda message: _keep(opened, message.type, message.text))
        page.on("pageerror", lambda error: opened.complaints.append(str(error)))
        yield opened


def _keep(opened: Visitor, kind: str, text: str) -> None:
    if kind in ("error", "warning"):
        opened.complaints.append(text)
