"""Each `arkline ...` that the product spells is taken by the command line, in the shell of its reader.

The text may be a message, a remedy, a page, a unit, a mail: its reader pastes the command.
"""

from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from entrypoints.cli import exit_codes
from entrypoints.cli.main import app
from entrypoints.cli.reach import HOST_ONLY
from entrypoints.render import remedies
from entrypoints.web.app import create_app
from entrypoints.web.pages import acts
from entrypoints.web.routes.verbs import BATCH_EVENTS, CANCEL
from pipeline.errors import Action, Remedy
from pipeline.states import Event
from tests.support.spelled_commands import ARK, BID, FILES, JID, PROJECT, Spelled, in_text, of_python, problem

PRODUCT = ("pipeline", "zkstate", "tasks", "operations", "entrypoints", "plugins", "tools")
BESIDE = "beside the stack"
SEEN_BESIDE = {
    "store_commands.py",
    "program_commands.py",
    "services.py",
}
"""Files whose texts are printed only by commands that run beside the stack."""

LINES = [
    path
    for path in (PROJECT / "deploy").rglob("*")
    if path.is_file() and path.suffix in (".yml", ".yaml", ".txt", ".service")
]
WHOLE = [
    *(PROJECT / "entrypoints").rglob("*.html"),
    *(PROJECT / "entrypoints").rglob("*.js"),
    *(PROJECT / "examples").rglob("*.md"),
]
NO_COMMAND = {"entrypoints/cli/command_table.py", "tools/man_page.py", "entrypoints/web/pages/acts.py"}
"""Two spell the name of any command; of the third, the buttons are read."""

TARGETS = ("demo", JID, BID, "worker1@host", ARK, "io")
"""A command of a table is for one of these."""


@cache
def spelled() -> tuple[Spelled, ...]:
    return tuple(_spelled())


def _spelled() -> Iterator[Spelled]:
    for path in (path for folder in PRODUCT for path in sorted((PROJECT / folder).rglob("*.py"))):
        if str(path.relative_to(PROJECT)) not in NO_COMMAND:
            yield from of_python(path)
    for path in WHOLE:
        text = path.read_text()
        yield from (Spelled(str(path.relative_to(PROJECT)), line, text) for line in in_text(text))
    for path in LINES:
        for number, text in enumerate(path.read_text().splitlines(), 1):
            place, remark = f"{path.relative_to(PROJECT)}:{number}", text.startswith("#")
            if not text.startswith("Description="):
                yield from (Spelled(place, line, text, remark) for line in in_text(text))


def told() -> Iterator[Spelled]:
    """What a text tells its reader to run: with all arguments."""
    return (each for each in spelled() if each.words and not each.name_only)


def tried(words: list[str], *, name_only: bool = False) -> str | None:
    """None if one of the targets makes it a command."""
    said = [problem([word.replace("{}", it) for word in words], name_only=name_only) for it in TARGETS]
    return None if None in said else said[0]


def is_among(names: frozenset[str], words: list[str]) -> bool:
    return not names.isdisjoint({words[0], " ".join(words[:2])})


def test_the_command_line_takes_every_command_that_a_text_spells() -> None:
    found = {(each.place, each.line): tried(each.words, name_only=each.name_only) for each in spelled()}

    assert len(found) > 100
    assert {spelled: said for spelled, said in found.items() if said} == {}


def test_a_text_that_may_be_read_elsewhere_says_which_commands_run_beside_the_stack() -> None:
    silent = [
        (each.place, each.line)
        for each in told()
        if each.place.startswith(("entrypoints/", "operations/", "tasks/", "zkstate/", "pipeline/"))
        and each.place.rpartition("/")[2].partition(":")[0] not in SEEN_BESIDE
        and each.line != each.text  # an example of the command's own help, or a row of a table
        and is_among(HOST_ONLY, each.words)
        and BESIDE not in each.text
    ]

    assert silent == []


def test_a_remedy_that_runs_beside_the_stack_says_so() -> None:
    commands = {action: remedies.command(Remedy(action, "demo")) for action in Action}
    words = {action: Spelled("", line, line).words for action, line in commands.items() if line}
    beside = {action for action, spelled in words.items() if is_among(HOST_ONLY, spelled)}

    assert {action for action in beside if BESIDE not in action.doc} == set()


def over_the_api() -> Iterator[Spelled]:
    """The commands of the tables and texts that somebody with a token can run."""
    for each in told():
        if not is_among(HOST_ONLY | FILES, each.words):
            yield each
    for act in acts.ACTS.values():
        line = acts.Button(act, "{}").cli
        yield Spelled(f"button {act.code}", line, line)
    for verb in (Event.RESUME, Event.DELETE):
        ticked = acts.bulk(verb, ("jid0000000001", "bid0000000001"))
        for line, _ in (acts.bulk(verb, (), "c0ffee"), acts.bulk_preview("c0ffee", verb), ticked):
            yield Spelled(f"bulk {verb}", line, line)
    for code in (*BATCH_EVENTS, Action.RESUME_BATCH, CANCEL):
        line, _ = acts.ticked(code, "bid0000000001")
        yield Spelled(f"ticked {code}", line, line)


def test_every_command_that_is_told_works_over_the_api_or_is_for_the_stack(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody listens at the site: a command that gets so far was taken with all of its options."""
    monkeypatch.chdir(tmp_path)
    for name in ("FILE", "FOLDER", "PATH", "photos"):
        (tmp_path / name).write_text("light")
    site = {"ARKLINE_URL": "http://127.0.0.1:1", "ARKLINE_TOKEN": "ann"}
    refused = {}
    for each in over_the_api():
        answers = []
        for target in TARGETS:
            words = [word.replace("{}", target).rstrip("/") for word in each.words]
            yes = ("--yes",) if words[0] in ("delete", "cancel") else ()
            answers.append(CliRunner().invoke(app, [*words, *yes], env=site))
        if BESIDE not in each.text and exit_codes.UNREACHABLE not in [done.exit_code for done in answers]:
            refused[each.place, each.line] = answers[0].stderr

    assert refused == {}


def test_a_verb_that_needs_a_reason_over_the_api_is_told_with_one() -> None:
    document = create_app(None).openapi()
    needing = {
        path.rpartition("/")[2]
        for path, operations in document["paths"].items()
        for operation in operations.values()
        for body in operation.get("requestBody", {}).get("content", {}).values()
        if "reason" in _resolved(document, body["schema"]).get("required", ())
    }
    assert {"cancel", "delete", "fail"} <= needing

    lacking = [
        (each.place, each.line)
        for each in over_the_api()
        if each.words[0] in needing and not {"--reason", "-r", "--dry-run"} & set(each.words)
    ]
    assert lacking == []


def _resolved(document: dict[str, Any], schema: dict[str, Any]) -> dict[str, Any]:
    name = schema.get("$ref", "").rpartition("/")[2]
    return document["components"]["schemas"][name] if name else schema
