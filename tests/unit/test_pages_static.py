"""The files that browsers get: nothing that the content security policy refuses, nothing changed."""

import hashlib
import re
from pathlib import Path

import pytest

from entrypoints.web import pages
from pipeline.states import BATCH, JOB

WEB = Path(pages.__file__).parents[1]
TEMPLATES = sorted([*(WEB / "templates").glob("*.html"), *(WEB.parents[1] / "plugins").glob("*/*.html")])
VENDORED = re.findall(
    r"`([\w./-]+\.(?:m?js|css|wasm))`.*`([0-9a-f]{64})`", (WEB / "static" / "VENDORED.md").read_text()
)


def test_every_vendored_file_has_the_digest_that_is_written_down() -> None:
    static = WEB / "static"
    files = [
        path for kind in ("*.min.js", "swagger*", "pdf/*.mjs", "pdf/*.wasm") for path in static.glob(kind)
    ]
    assert {name for name, _ in VENDORED} == {path.relative_to(static).as_posix() for path in files}
    for name, digest in VENDORED:
        assert hashlib.sha256((WEB / "static" / name).read_bytes()).hexdigest() == digest, name


@pytest.mark.parametrize("template", TEMPLATES, ids=lambda path: path.name)
def test_a_template_has_no_inline_script_style_or_handler(template: Path) -> None:
    text = template.read_text()
    assert not re.search(r"\sstyle=|\son\w+=|<style|javascript:|hx-on|js:", text)
    assert not re.search(r"<script(?![^>]*\ssrc=)", text)


@pytest.mark.parametrize("template", TEMPLATES, ids=lambda path: path.name)
def test_a_template_never_switches_escaping_off(template: Path) -> None:
    assert not re.search(r"\|\s*safe|autoescape|Markup", template.read_text())


ACTING = re.compile(
    r"<form[^>]*(?:method=\"post\"|action=\"/bulk\").*?</form>(.*?)(?=<form|{% endmacro|\Z)", re.DOTALL
)
SESSION = re.compile(r"<form[^>]*action=\"/(?:login|login/device|logout)\"")
WITHOUT_COMMAND = frozenset({"notification_link.html"})
"""Whoever opens the link of a mail has no token."""


@pytest.mark.parametrize("template", TEMPLATES, ids=lambda path: path.name)
def test_every_button_that_acts_shows_its_command_and_its_request(template: Path) -> None:
    for form in ACTING.finditer(template.read_text()):
        if not SESSION.match(form[0]) and template.name not in WITHOUT_COMMAND:
            assert "spellings(" in form[1], form[0][:200]


def test_the_forms_that_act_are_recognised() -> None:
    forms = [form for path in TEMPLATES for form in ACTING.finditer(path.read_text())]
    assert len(forms) >= 8


@pytest.mark.parametrize("state", [*JOB.states(), *BATCH.states()])
def test_every_state_has_a_colour(state: str) -> None:
    assert re.search(rf"\.is-{state}\b[^{{]*{{ --mark: var\(", (WEB / "static" / "board.css").read_text())


def test_a_page_loads_nothing_from_another_host() -> None:
    scripts = (WEB / "static" / "deposit").glob("*.js")
    for path in (*TEMPLATES, WEB / "static" / "board.css", WEB / "static" / "board.js", *scripts):
        assert not re.search(r"(?:src|href|url\()\s*=?\s*[\"']?https?://", path.read_text()), path.name


def test_the_scripts_of_a_page_have_less_than_100_kb() -> None:
    """But for the page of the API."""
    static, of_api = WEB / "static", {"swagger-ui-bundle.js", "docs.js"}
    size = {path.name: path.stat().st_size for path in static.rglob("*.js") if path.name not in of_api}
    live = ("htmx.min.js", "hx-sse.min.js")
    assert "{% block live %}{% endblock %}" in (WEB / "templates" / "deposit_new.html").read_text()
    assert sum(size.values()) - sum(size[name] for name in live) < 100_000
    assert sum(size[name] for name in (*live, "board.js")) < 100_000
