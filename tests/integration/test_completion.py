"""What the shell completes, asked as bash asks."""

import os
import subprocess
import sys

import pytest

from entrypoints.cli import completion
from entrypoints.stack.child import HOST, free_ports
from pipeline.settings import Settings
from pipeline.states import JobState
from tests.conftest import PROFILES
from tests.support import planting
from tests.support.fleet import PROJECT, environment
from zkstate.connection.session import Session


def complete(line: str, **variables: str) -> list[str]:
    words = line.split(" ")
    asked = {
        "_ARKLINE_COMPLETE": "complete_bash",
        "COMP_WORDS": line,
        "COMP_CWORD": str(len(words) - 1),
        "ARKLINE_PROFILES": str(PROFILES),
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


def test_the_shell_completes_states_profiles_types_and_queues() -> None:
    assert complete("arkline jobs --state fa") == ["failed"]
    assert complete("arkline submit --profile de") == ["demo"]
    assert complete("arkline submit --type batch") == ["batch-manifest"]
    assert complete("arkline worker --queues control,sp") == ["control,split"]


def test_the_shell_completes_ids_of_the_record(
    session: Session, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = planting.job_in(session, JobState.FAILED)
    for name, value in environment(settings).items():
        monkeypatch.setenv(name, value)

    assert completion.ids("bid") == [job.bid]
    assert completion.ids("jid") == [job.jid]
    assert completion.bids("bid9") == []
    assert completion.ids("nonsense") == []
    assert complete("arkline why bid", **environment(settings)) == [job.bid]


def test_without_zookeeper_no_id_is_offered_and_nothing_is_said() -> None:
    (port,) = free_ports(1)

    assert complete("arkline why jid", ARKLINE_ZK_HOSTS=f"{HOST}:{port}") == []
    assert complete("arkline why jid", ARKLINE_ZK_SESSION_TIMEOUT="never") == []
