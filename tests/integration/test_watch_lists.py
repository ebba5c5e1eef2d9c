"""`--watch` of lists: changed rows as lines, or a terminal redrawn in place, over the stream of events."""

import codecs
import fcntl
import json
import os
import pty
import re
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator

import pytest

from entrypoints.render import screen
from pipeline.principal import Role
from pipeline.settings import Settings
from pipeline.states import Event
from tests.servers.proxy import Proxy
from tests.support import cli, planting
from tests.support.web import Caller, Web, serving_board
from zkstate.connection.session import Session
from zkstate.record import jobs


@pytest.fixture
def web(settings: Settings) -> Iterator[Web]:
    with serving_board(settings) as running:
        yield running


def site(caller: Caller, url: str = "") -> dict[str, str]:
    return {"ARKLINE_URL": url or caller.url, "ARKLINE_TOKEN": caller.token}


def ended(watching: "subprocess.Popen[str]") -> tuple[int, str, str]:
    watching.send_signal(signal.SIGINT)
    out, err = watching.communicate(timeout=30)
    return watching.returncode, out, err


@pytest.mark.parametrize("over_api", [False, True])
def test_a_watched_list_prints_the_rows_that_change_until_ctrl_c(
    web: Web, session: Session, settings: Settings, alone: Settings, over_api: bool
) -> None:
    _, (first, second) = planting.split_batch(session, 2)
    where = site(web.caller(Role.VIEWER)) if over_api else {}
    with cli.start(alone if over_api else settings, "jobs", "--watch", **where) as watching:
        assert watching.stdout is not None
        known = {row["jid"]: row for row in (json.loads(watching.stdout.readline()) for _ in range(2))}
        assert {row["state"] for row in known.values()} == {"pending"}

        planting.apply_event(session, jobs.load(session, second), Event.FAIL)
        changed = json.loads(watching.stdout.readline())
        code, out, err = ended(watching)

    assert set(known) == {first, second}
    assert (changed["jid"], changed["state"]) == (second, "failed")
    assert (code, out) == (130, ""), err


def test_a_watched_list_prints_the_ids_of_new_rows(web: Web, session: Session, alone: Settings) -> None:
    caller = web.caller(Role.VIEWER)
    with cli.start(alone, "jobs", "--state", "failed", "-w", "-o", "name", **site(caller)) as watching:
        assert watching.stdout is not None
        while not web.context.streams.number:
            time.sleep(0.05)
        job = planting.one_job(session)
        planting.apply_event(session, job, Event.FAIL)

        assert watching.stdout.readline() == f"{job.jid}\n"
        assert ended(watching)[0] == 130


def test_a_list_that_nobody_changes_is_not_asked_for_again(
    web: Web, session: Session, alone: Settings
) -> None:
    planting.one_job(session)
    caller = web.caller(Role.VIEWER)
    with cli.start(alone, "jobs", "--watch", **site(caller)) as watching:
        assert watching.stdout is not None
        watching.stdout.readline()
        while not web.context.streams.number:
            time.sleep(0.05)
        time.sleep(5)  # a site that is asked each second or two has been asked by now
        asked = requests_of_jobs(web)
        ended(watching)

    assert asked == 2, "once, and once when the stream had begun"


def requests_of_jobs(web: Web) -> float:
    lines = web.context.requests.exposition().decode().splitlines()
    counts = [line.rpartition(" ")[2] for line in lines if "requests_total" in line and "/v1/jobs" in line]
    return sum(map(float, counts))


def test_a_watched_list_goes_on_when_the_site_was_away(web: Web, session: Session, alone: Settings) -> None:
    job = planting.one_job(session)
    with Proxy(int(web.url.rpartition(":")[2])) as proxy:
        through = site(web.caller(Role.VIEWER), f"http://{proxy.hosts}")
        with cli.start(alone, "jobs", "--watch", **through) as watching:
            assert watching.stdout is not None
            assert watching.stderr is not None
            watching.stdout.readline()
            while not web.context.streams.number:
                time.sleep(0.05)
            proxy.refuse()
            assert "; still trying" in watching.stderr.readline()

            planting.apply_event(session, job, Event.FAIL)
            proxy.accept()
            assert json.loads(watching.stdout.readline())["state"] == "failed"
            code, _, err = ended(watching)

    assert (code, err.startswith("the site answers again\n")) == (130, True)


def test_a_site_that_is_away_from_the_beginning_and_a_revoked_token_end_the_watch(
    web: Web, session: Session, alone: Settings
) -> None:
    nobody = {"ARKLINE_URL": "http://127.0.0.1:1", "ARKLINE_TOKEN": "ark_x"}

    assert cli.run(alone, "jobs", "--watch", **nobody).code == 3
    assert cli.run(alone, "jobs", "--watch", **site(Caller(web.url, "ark_x"))).code == 2


class Terminal:
    """A command on a terminal of this width."""

    def __init__(self, columns: int, settings: Settings, *arguments: str, **more: str) -> None:
        self._own, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
        self._process = subprocess.Popen(
            [*cli.COMMAND, *arguments],
            env=cli.variables(settings, TERM="xterm", NO_COLOR="1", PYTHONFAULTHANDLER="1", **more),
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        )
        os.close(theirs)
        self.text = ""
        self._decoder = codecs.getincrementaldecoder("utf-8")()

    def until(self, text: str) -> None:
        while text not in self.text:
            self.text += self._decoder.decode(os.read(self._own, 4096))

    def end(self) -> int:
        """Press Ctrl-C; a command that continues is ended, and the failure has the lines at which it was."""
        self._process.send_signal(signal.SIGINT)
        try:
            return self._process.wait(30)
        except subprocess.TimeoutExpired:
            self._process.send_signal(signal.SIGABRT)
            self._process.wait(30)
            pytest.fail(f"Ctrl-C did not end it: {os.read(self._own, 1 << 16).decode(errors='replace')}")
        finally:
            os.close(self._own)


def test_a_narrow_terminal_is_redrawn_in_place_and_says_how_old_its_list_is(
    web: Web, session: Session, alone: Settings
) -> None:
    job = planting.one_job(session)
    with Proxy(int(web.url.rpartition(":")[2])) as proxy:
        through = site(web.caller(Role.VIEWER), f"http://{proxy.hosts}")
        terminal = Terminal(60, alone, "jobs", "--watch", **through)
        terminal.until("as of ")
        planting.apply_event(session, job, Event.FAIL)
        terminal.until("failed")
        proxy.refuse()
        terminal.until(" ago: ")
        proxy.accept()
        code = terminal.end()

    assert code == 130
    assert "pending" in terminal.text
    assert "\x1b[2K" in terminal.text  # in place: a line is erased before it is written again
    assert "collection" not in terminal.text  # a column of wide terminals
    lines = re.split("[\r\n]+", re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", terminal.text))
    assert max(map(len, lines)) <= 60


def test_ctrl_c_is_not_lost_while_a_finalizer_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """... such as that of an answer whose connection was cut, just when the list is read again."""

    class Finalized:
        def __del__(self) -> None:
            os.kill(os.getpid(), signal.SIGINT)
            for _ in range(1000):  # Python calls the handler within this function, and drops what it raises
                pass

    dropped: list[object] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda ignored: dropped.append(ignored.exc_type))
    with screen.lost_interrupts() as check:
        check()
        Finalized()

        with pytest.raises(KeyboardInterrupt):
            check()
    assert dropped == [KeyboardInterrupt]
