"""Every command that reads, beside the stack and over the API: the same document and the same exit code."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from operations.board.values import EVERYTHING
from operations.site import Site
from operations.verbs import holds
from pipeline.principal import Role
from pipeline.settings import Settings
from pipeline.states import BatchState, Event, FailureKind, JobState
from tests.support import cli, planting
from tests.support.boards import until
from tests.support.operators import ANN
from tests.support.web import Web, serving_board
from tools.json_documents import DOCUMENTS
from tools.json_page import field_names
from zkstate.connection.session import Session

OWN = {"text", "reported_at", "freshness", "oldest", "next_try", "used", "znodes", "data_bytes", "room"}
"""Fields with a time that passes between two commands, what others use of the disk and of ZooKeeper, and what
the lists of the board do not know."""


@pytest.fixture
def web(settings: Settings) -> Iterator[Web]:
    settings.working.mkdir(parents=True)
    with serving_board(settings) as running:
        yield running


def document(done: cli.Finished) -> Any:
    """The document without what passes; what is not JSON as it is."""
    try:
        return _lasting(json.loads(done.out))
    except ValueError:
        return done.out


def _lasting(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _lasting(part) for name, part in value.items() if name not in OWN}
    return [_lasting(part) for part in value] if isinstance(value, list) else value


def test_every_command_answers_alike_beside_the_stack_and_over_the_api(
    web: Web, session: Session, settings: Settings, tmp_path: Path
) -> None:
    failed, held = planting.job_in(session, JobState.FAILED), planting.job_in(session, JobState.HELD)
    urgent = planting.one_job(session, priority=1)
    planting.apply_event(session, urgent, Event.FAIL, FailureKind.SYSTEM)
    ended = planting.batch_in(session, BatchState.FAILED).bid
    holds.pause(Site(settings, session), ANN)
    board = web.context.board
    until(board, lambda: len(board.failures(EVERYTHING)) > 0 and board.stops(EVERYTHING).pause is not None)
    until(board, lambda: board.counts(EVERYTHING)[JobState.FAILED] == 3)
    until(board, lambda: board.counts(EVERYTHING)[JobState.HELD] == 1)
    cause = board.failures(EVERYTHING)[0].id
    absent = "jid9999999999"
    commands = {
        ("status",): "status",
        ("status", failed.bid): "status BID",
        ("status", ended): "status BID",
        ("status", held.jid): "status JID",
        ("watch", ended): "watch BID",
        ("report", ended): "report BID",
        ("timeline", failed.jid): "timeline",
        ("why", failed.jid): "why",
        ("why", held.bid): "why",
        ("history",): "history",
        ("history", "demo"): "history",
        ("history", failed.bid): "history BID",
        ("space",): "space",
        ("check", "--jobs"): "check",
        ("audit",): "audit",
        ("drain",): "drain",
        ("fleet", "plan", "--within", "6h"): "fleet plan",
        ("callback", "list"): "callback list",
        ("cleanup", "--dry-run"): "cleanup",
        ("fixity", "report"): "fixity report",
        ("profile", "show", "demo"): "profile show",
        ("top", "--once"): "top --once",
        ("jobs",): "jobs",
        ("jobs", "--state", "failed"): "jobs",
        ("jobs", "--state", "pending"): "jobs",
        ("jobs", "--batch", urgent.bid): "jobs",
        ("jobs", "--cause", cause): "jobs",
        ("resume", urgent.bid, "--dry-run"): "",
        ("fail", failed.bid, "--reason", "x"): "",
        ("cancel", held.bid, "--dry-run", "--reason", "x"): "",
        ("cancel", ended, "--dry-run", "--reason", "x"): "",
        ("delete", ended, "--dry-run", "--reason", "x"): "",
        ("update-report", ended, "--dry-run"): "",
        ("status", absent): "",
        ("why", absent): "",
        ("resume", held.jid, "--reason", "x"): "",
        ("resume", failed.jid, "--if-version", "0", "--reason", "x"): "",
        ("object", "ark:/99999/fk4none"): "",
        ("repair", failed.jid, "--reason", "x"): "",
        ("callback", "deliver", absent): "",
        ("callback", "test", "nobody"): "",
    }
    token = web.caller(Role.ADMIN, name="ann").token
    alone = settings.model_copy(
        update={"zk_hosts": "127.0.0.1:1", "broker_url": "redis://127.0.0.1:1/0", "home": tmp_path}
    )

    here = cli.run_all(settings, list(commands), "--json")
    there = cli.run_all(alone, list(commands), "--json", ARKLINE_URL=web.url, ARKLINE_TOKEN=token)

    for (command, row), beside, over_api in zip(commands.items(), here, there, strict=True):
        assert over_api.code == beside.code, (command, beside.err, over_api.err)
        assert document(over_api) == document(beside), command
        if row and (names := field_names(DOCUMENTS[row])):
            assert set(beside.json()) == names, command
