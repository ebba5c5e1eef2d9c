"""The command line as people and scripts meet it: its own process, its exit codes, its two outputs."""

import os
import pty
import re
import signal
import subprocess
import sys
import time

import pytest

from pipeline.inventory.sql import open_inventory
from pipeline.principal import Role
from pipeline.settings import Settings
from pipeline.states import BatchState, Event, JobState
from tests.servers.proxy import Proxy
from tests.support import cli as arkline
from tests.support import planting
from tests.support.recordings import ARK, recording
from tests.support.web import serving, serving_board
from zkstate import paths
from zkstate.connection.session import Session, connect
from zkstate.connection.transaction import Delete, commit
from zkstate.record import batches, jobs

URL = "http://example.org/a.txt"


def test_submit_prints_the_batchs_id_and_nothing_else(session: Session, settings: Settings) -> None:
    done = arkline.run(settings, "submit", "--profile", "demo", URL, "--what", "A", "--priority", "7")

    assert (done.code, done.err) == (0, "")
    submission = batches.load(session, done.out.strip()).submission
    assert (submission.payload_url, submission.erc_what, submission.priority) == (URL, "A", 7)


def test_everything_that_a_submission_may_say_can_be_said(session: Session, settings: Settings) -> None:
    done = arkline.run(
        settings,
        *("submit", "--profile", "demo", URL, "--where", "Box 7", "--response", "turtle", "--mode", "reset"),
        *("--dc", "language=de", "--dc", "subject=a=b", "--dc", "subject=c"),
        *("--local-id", "one; two%sc2", "--local-id", "three"),
    )

    submission = batches.load(session, done.out.strip()).submission
    assert (submission.erc_where, submission.response_type, submission.submission_mode) == (
        "Box 7",
        "turtle",
        "reset",
    )
    assert submission.dublin_core == {"language": ("de",), "subject": ("a=b", "c")}
    assert submission.local_id == ("one", "two;2", "three")


@pytest.mark.parametrize(
    ("options", "allowed"), [((), False), (("--new-version",), True), (("--update",), True)]
)
def test_a_submission_says_whether_an_object_may_get_a_new_version(
    session: Session, settings: Settings, options: tuple[str, ...], *, allowed: bool
) -> None:
    done = arkline.run(settings, "submit", "--profile", "demo", URL, *options)

    assert batches.load(session, done.out.strip()).submission.new_version is allowed


@pytest.mark.parametrize("options", [(), ("--name", "photo.tif")])
def test_a_payload_at_a_url_is_named_by_an_option_or_by_nobody_yet(
    session: Session, settings: Settings, options: tuple[str, ...]
) -> None:
    done = arkline.run(settings, "submit", "--profile", "demo", "http://x.edu/datafile/4711", *options)

    assert batches.load(session, done.out.strip()).submission.payload_filename == "".join(options[1:])


@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        ("--dc", "colour=blue", "'colour=blue' is not ELEMENT=VALUE with one of title, creator"),
        ("--dc", "language", "'language' is not ELEMENT=VALUE"),
        ("--response", "yaml", "--response: Input should be 'json', 'xml' or 'turtle'"),
        ("--mode", "erase", "--mode: Input should be 'add', 'update' or 'reset'"),
        ("--digest", "9f86d0", "'9f86d0' is not ALGORITHM:VALUE"),
    ],
)
def test_a_submission_that_says_something_else_is_refused(
    session: Session, settings: Settings, option: str, value: str, message: str
) -> None:
    done = arkline.run(settings, "submit", "--profile", "demo", URL, option, value)

    assert done.code == 2
    assert message in " ".join(re.sub("[│╭╰─╮╯]", " ", done.err).split())
    assert session.children(paths.BATCHES) == []


def test_submitting_again_under_a_key_says_so(session: Session, settings: Settings) -> None:
    command = ("submit", "--profile", "demo", URL, "--idempotency-key", "k", "--json")
    first = arkline.run(settings, *command).json()

    again = arkline.run(settings, *command)

    assert again.json() == {**first, "again": True}
    assert "no new batch was made" in again.err
    assert len(session.children(paths.BATCHES)) == 1


def test_a_broker_that_is_away_stops_no_submission(session: Session, settings: Settings) -> None:
    away = settings.model_copy(update={"broker_url": "redis://127.0.0.1:1/0"})

    done = arkline.run(away, "submit", "--profile", "demo", URL)

    assert done.code == 0
    assert batches.load(session, done.out.strip()).status.status is BatchState.PENDING
    assert "nothing is lost" in done.err


def test_json_is_one_document_on_standard_output(session: Session, settings: Settings) -> None:
    settings.working.mkdir()
    job = planting.job_in(session, JobState.DOWNLOADING)
    commands = (
        ("status",),
        ("status", job.bid),
        ("status", job.jid),
        ("jobs",),
        ("timeline", job.jid),
        ("why", job.jid),
        ("audit",),
        ("report", job.bid),
        ("space",),
        ("hold", "--collection", "demo"),
        ("pause", "--reason", "x"),
        ("unpause",),
        ("drain",),
        ("cleanup",),
        ("fail", job.jid, "--dry-run"),
        ("cancel", job.bid, "--dry-run"),
    )

    for command, told in zip(commands, arkline.run_all(settings, commands, "--json"), strict=True):
        assert told.code == (command == ("status",)), command  # no worker runs here
        assert isinstance(told.json(), dict), command


def test_the_exit_code_of_status_tells_how_a_batch_ended(session: Session, settings: Settings) -> None:
    completed = planting.batch_in(session, BatchState.COMPLETED)
    failed = planting.batch_in(session, BatchState.FAILED)

    assert arkline.run(settings, "status", completed.bid).code == 0
    told = arkline.run(settings, "status", failed.bid)
    assert told.code == 1
    assert "said so" in told.out


def test_what_is_not_there_is_wrong_usage_with_a_message(session: Session, settings: Settings) -> None:
    told = arkline.run(settings, "status", "bid0000009999")

    assert (told.code, told.out, told.err) == (2, "", "error: there is no batch bid0000009999\n")


def test_a_refused_verb_says_what_is_possible_instead(session: Session, settings: Settings) -> None:
    job = planting.job_in(session, JobState.COMPLETED)

    told = arkline.run(settings, "resume", job.jid)

    assert told.code == 2
    assert "is completed: an operator cannot resume it; possible in this state: nothing" in told.err


def test_zookeeper_that_is_away_is_named_within_seconds(settings: Settings) -> None:
    away = settings.model_copy(update={"zk_hosts": "127.0.0.1:1"})
    start = time.monotonic()

    told = arkline.run(away, "status")

    assert (told.code, told.out) == (3, "")
    problem, remedy = told.err.splitlines()
    assert problem == "error: ZooKeeper at 127.0.0.1:1 does not answer: is it running? (ARKLINE_ZK_HOSTS)"
    assert remedy.startswith("try: start ZooKeeper, or restore the network to it")
    assert time.monotonic() - start < 15


def test_a_broken_node_is_named_without_a_traceback(settings: Settings) -> None:
    with connect(settings) as session:
        job = planting.one_job(session)
        session.zk.set(paths.job_status(job.jid), b"{")

        plain = arkline.run(settings, "status", job.jid)
        debugged = arkline.run(settings, "--debug", "status", job.jid)

    assert plain.code == 1
    assert paths.job_status(job.jid) in plain.err
    assert "Traceback" not in plain.err
    assert "Traceback" in debugged.err


def test_the_audit_finds_what_was_planted(settings: Settings) -> None:
    with connect(settings) as session:
        job = planting.one_job(session)
        clean = arkline.run(settings, "audit")
        commit(session, [Delete(paths.queue_entry(JobState.PENDING, 5, job.jid))])

        told = arkline.run(settings, "audit", "--json")

    assert clean.code == 0
    assert told.code == 1
    assert told.json()["findings"] == [
        {"path": paths.job_status(job.jid), "problem": "is pending, but is in no queue"}
    ]


def test_nobody_is_asked_where_there_is_nobody(session: Session, settings: Settings) -> None:
    job = planting.job_in(session, JobState.FAILED)

    refused = arkline.run(settings, "delete", job.jid)
    still_there = jobs.load(session, job.jid)
    done = arkline.run(settings, "delete", job.jid, "--yes", "--reason", "never mended", "--by", "ann")

    assert refused.code == 2
    assert "--yes" in refused.err
    assert still_there.status.status is JobState.FAILED
    assert (done.code, done.out) == (0, f"{job.jid} was failed, is now deleted\n")
    shown = arkline.run(settings, "status", job.jid)
    assert "by ann: never mended" in shown.out


def test_a_bulk_verb_sums_up_and_counts_refusals_as_findings(session: Session, settings: Settings) -> None:
    bid, jids = planting.split_batch(session, 2)
    planting.apply_event(session, jobs.load(session, jids[0]), Event.FAIL)

    chosen = arkline.run(settings, "resume", "--batch", bid, "--dry-run")
    named = arkline.run(settings, "resume", *jids, "--json")

    assert (chosen.code, chosen.out) == (0, f"{jids[0]} was failed, would become pending\n")
    assert named.code == 1
    assert [acted["id"] for acted in named.json()["done"]] == [jids[0]]
    assert [refusal["id"] for refusal in named.json()["refused"]] == [jids[1]]


def test_an_object_is_described_from_the_inventory(settings: Settings) -> None:
    open_inventory(settings.inventory).record(recording())

    shown = arkline.run(settings, "object", ARK, "--no-verify")

    assert shown.code == 0
    assert "Husky Chicken" in shown.out
    assert arkline.run(settings, "object", "ark:/99999/unknown").code == 2


def test_watch_ends_with_the_batch_and_says_how(session: Session, settings: Settings) -> None:
    batch = planting.batch_in(session, BatchState.REPORTING)
    with arkline.start(settings, "watch", batch.bid, "--json") as watching:
        assert watching.stderr is not None
        assert watching.stderr.readline() == f"{batch.bid}  reporting  1 of 1 job, 1 failed\n"

        planting.apply_batch_event(session, batch, Event.FAIL)
        out, _ = watching.communicate(timeout=30)

    assert watching.returncode == 1
    ended = arkline.Finished(1, out, "").json()
    assert ended["status"] == "failed"
    assert [(job["jid"], job["state"], job["ark"]) for job in ended["objects"]] == [
        (ended["failed_jobs"][0]["jid"], "failed", None)
    ]
    table = arkline.run(settings, "report", batch.bid, "--csv").out.splitlines()
    assert table[0].startswith('\ufeff"object","local id","ARK","title","state"')
    assert f'"failed","{ended["failed_jobs"][0]["jid"]}"' in table[1]


def test_watch_goes_on_when_zookeeper_was_away(
    session: Session, settings: Settings, zookeeper_proxy: Proxy
) -> None:
    batch = planting.batch_in(session, BatchState.REPORTING)
    through = settings.model_copy(update={"zk_hosts": zookeeper_proxy.hosts, "zk_session_timeout": 4})
    with arkline.start(through, "watch", batch.bid) as watching:
        assert watching.stderr is not None
        watching.stderr.readline()
        zookeeper_proxy.refuse()

        away = f"ZooKeeper at {through.zk_hosts} does not answer; still trying\n"
        assert watching.stderr.readline() == away
        planting.apply_batch_event(session, batch, Event.FAIL)
        zookeeper_proxy.accept()
        out, err = watching.communicate(timeout=60)

    assert watching.returncode == 1
    assert "the site answers again" in err
    assert f"{batch.bid}  failed" in out


def test_an_interrupted_watch_says_that_the_batch_goes_on(session: Session, settings: Settings) -> None:
    batch = planting.batch_in(session, BatchState.PENDING)
    with arkline.start(settings, "watch", batch.bid) as watching:
        assert watching.stderr is not None
        watching.stderr.readline()

        watching.send_signal(signal.SIGINT)
        _, err = watching.communicate(timeout=30)

    assert watching.returncode == 130
    assert f"arkline watch {batch.bid}" in err


def on_a_terminal(settings: Settings, *arguments: str, **more: str) -> str:
    """What a person sees: the command with a terminal for all three streams."""
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        [*arkline.COMMAND, *arguments],
        env={**arkline.variables(settings), "TERM": "xterm-256color", **more},
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
    ) as process:
        os.close(theirs)
        seen = b""
        while chunk := _read(ours):
            seen += chunk
        process.wait(timeout=60)
    os.close(ours)
    return seen.decode().replace("\r\n", "\n")


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 4096)
    except OSError:  # Linux says EIO when the last process has closed its side
        return b""


def test_sixty_columns_are_enough_and_colour_is_for_terminals(session: Session, settings: Settings) -> None:
    job = planting.job_in(session, JobState.FAILED)

    seen = on_a_terminal(settings, "jobs", COLUMNS="60")
    plain = on_a_terminal(settings, "jobs", COLUMNS="60", NO_COLOR="1")

    assert "\x1b[31mfailed" in seen
    lines = re.sub(r"\x1b\[[0-9;]*m", "", seen).splitlines()
    assert max(map(len, lines)) <= 60
    assert any(job.jid in line and "failed" in line for line in lines)
    assert "\x1b[31m" not in plain
    assert "\x1b" not in arkline.run(settings, "jobs").out


_LOADED = """
import sys
from entrypoints.cli.main import main
try: main()
except SystemExit as end: code = end.code
print("loaded:", *(name for name in {slow!r} if type(sys.modules.get(name)) is type(sys)))
sys.exit(code)
"""


def _loading(
    settings: Settings, slow: tuple[str, ...], *arguments: str, **more: str
) -> subprocess.CompletedProcess[str]:
    """The command in a process of its own, whose last line names those of the slow modules that it loaded."""
    return subprocess.run(
        [sys.executable, "-c", _LOADED.format(slow=slow), *arguments],
        env=arkline.variables(settings, **more),
        capture_output=True,
        text=True,
        check=False,
    )


def test_over_the_api_a_command_loads_no_package_of_workers_stores_and_web(
    session: Session, settings: Settings
) -> None:
    settings.working.mkdir(parents=True)
    bid, (jid,) = planting.split_batch(session, 1)
    slow = ("celery", "fastapi", "kombu", "redis", "sqlalchemy", "structlog")

    with serving_board(settings) as web:
        site = {"ARKLINE_URL": web.url, "ARKLINE_TOKEN": web.caller(Role.VIEWER).token}
        for arguments in (("jobs",), ("status",), ("status", bid), ("status", jid), ("why", jid)):
            done = _loading(settings, slow, *arguments, **site)

            assert done.stderr == "", arguments
            assert bid in done.stdout or jid in done.stdout, arguments
            assert done.stdout.splitlines()[-1] == "loaded:", arguments


def test_a_submission_over_the_api_loads_no_store_no_web_and_no_reader_of_manifests(
    session: Session, settings: Settings
) -> None:
    packages = ("celery", "fastapi", "kombu", "rich.console", "sqlalchemy", "structlog")
    slow = (*packages, "pipeline.manifests.checkm")

    with serving(settings) as web:
        site = {"ARKLINE_URL": web.url, "ARKLINE_TOKEN": web.caller(Role.DEPOSITOR).token}
        done = _loading(settings, slow, "submit", "--profile", "demo", URL, **site)

    assert done.stdout.splitlines() == ["bid0000000001", "loaded:"]
