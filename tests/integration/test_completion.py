"""What the shell completes, asked as bash asks."""

import os
import subprocess
import sys

import pytest

from entrypoints.cli import completion
from entrypoints.stack.child import HOST, free_ports
from operations.board.values import EVERYTHING
from pipeline.principal import Role
from pipeline.settings import Settings
from pipeline.states import JobState
from tests.support import planting
from tests.support.boards import until
from tests.support.fleet import PROJECT
from tests.support.web import serving_board
from zkstate.connection.session import Session


def complete(line: str, **variables: str) -> list[str]:
    words = line.split(" ")
    asked = {
        "_ARKLINE_COMPLETE": "complete_bash",
        "COMP_WORDS": line,
        "COMP_CWORD": str(len(words) - 1),
    }
    result = subprocess.run(
        [sys.executable, "-c", "from entrypoints.cli.main import main; main()"],
        cwd=PROJECT,
        env={**os.environ, **asked, **variables},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert result.stderr == ""
    return result.stdout.split()


def test_the_shell_completes_states_types_and_queues() -> None:
    assert complete("arkline jobs --state fa") == ["failed"]
    assert complete("arkline submit --type batch") == ["batch-manifest"]
    assert complete("arkline worker --queues control,sp") == ["control,split"]


def test_the_shell_completes_profiles_and_ids_of_the_site(
    session: Session, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = planting.job_in(session, JobState.FAILED)
    with serving_board(settings) as web:
        board = web.context.board
        until(board, lambda: board.counts(EVERYTHING)[JobState.FAILED] == 1)
        site = {"ARKLINE_URL": web.url, "ARKLINE_TOKEN": web.caller(Role.VIEWER, name="vera").token}
        for name, value in site.items():
            monkeypatch.setenv(name, value)
        monkeypatch.setattr(completion, "TIMEOUT", 30.0)

        assert completion.ids("bid") == [job.bid]
        assert completion.ids("jid") == [job.jid]
        assert completion.bids("bid9") == []
        assert completion.ids("nonsense") == []
        assert completion.profiles("de") == ["demo"]


def test_without_a_site_no_id_is_offered_and_nothing_is_said() -> None:
    (port,) = free_ports(1)

    assert complete("arkline why jid", ARKLINE_URL=f"http://{HOST}:{port}", ARKLINE_TOKEN="ann") == []
    assert complete("arkline why jid") == []
