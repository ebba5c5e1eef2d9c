"""WebKit, the engine of Safari, in a test: MiniBrowser on a screen of its own, driven by W3C WebDriver.

The library of the other browser tests drives only a WebKit of its own, which Debian does not have.
"""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import requests

from entrypoints.stack.child import HOST, Command, Process, ask, free_ports
from tests.support.polling import eventually
from tests.support.processes import await_ready
from tests.support.requirements import unavailable

DRIVER, SCREEN = "WebKitWebDriver", "Xvfb"


@dataclass(frozen=True)
class Window:
    """A window of the browser; elements are named by CSS selectors."""

    session: str
    """The URL of the WebDriver session."""

    def open(self, url: str) -> None:
        self._ask("POST", "url", url=url)

    def log_in(self, url: str, token: str) -> None:
        self.open(f"{url}/login")
        self.enter("#token", token)
        self.click("main form button")
        self.wait_for_text("header", "Log out")

    def run(self, script: str) -> Any:
        """What the body of a function returns."""
        return self._ask("POST", "execute/sync", script=script, args=[])

    def enter(self, selector: str, text: str) -> None:
        """Type the text; for the input of files, their paths, one in a line."""
        self._ask("POST", f"element/{self._element(selector)}/value", text=text)

    def click(self, selector: str) -> None:
        self._ask("POST", f"element/{self._element(selector)}/click")

    def wait_for_text(self, selector: str, part: str) -> None:
        """Return once an element with the selector contains the text."""
        script = (
            f"return [...document.querySelectorAll({selector!r})].map((one) => one.textContent).join(' ')"
        )
        eventually(lambda: part in self.run(script))

    def close(self) -> None:
        requests.delete(self.session, timeout=30)

    def _element(self, selector: str) -> str:
        (found,) = self._ask("POST", "element", using="css selector", value=selector).values()
        return str(found)

    def _ask(self, method: str, path: str, **body: object) -> Any:
        answer = requests.request(method, f"{self.session}/{path}", json=body, timeout=60)
        value = answer.json()["value"]
        if not answer.ok:
            raise AssertionError(f"{path}: {value['error']}: {value['message']}")
        return value


@contextmanager
def window(folder: Path) -> Iterator[Window]:
    """A new browser with nothing kept, whose log files are in `folder`."""
    if not (shutil.which(DRIVER) and shutil.which(SCREEN)):
        unavailable("WebKit is not installed: apt-get install webkit2gtk-driver xvfb")
    port, display = free_ports(2)
    there = Path(f"/tmp/.X11-unix/X{display}").exists  # where X servers listen
    screen = (SCREEN, f":{display}", "-nolisten", "tcp", "-screen", "0", "1400x1000x24")
    driver = (DRIVER, f"--port={port}")
    serves = partial(ask, port, b"GET /status HTTP/1.0\r\n\r\n", b" 200 OK", seconds=1)
    on_screen = {"DISPLAY": f":{display}"}
    with (
        _running(Command(SCREEN, screen, folder / "screen.log", ready=there)),
        _running(Command(DRIVER, driver, folder / "driver.log", on_screen, ready=serves)),
    ):
        answer = requests.post(f"http://{HOST}:{port}/session", json={"capabilities": {}}, timeout=60)
        opened = Window(f"http://{HOST}:{port}/session/{answer.json()['value']['sessionId']}")
        try:
            yield opened
        finally:
            opened.close()


@contextmanager
def _running(command: Command) -> Iterator[None]:
    process = Process(command)
    try:
        process.start()
        await_ready(process, command.ready)
        yield
    finally:
        process.stop()
