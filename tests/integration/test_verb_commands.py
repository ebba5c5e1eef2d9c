"""The operators' commands, run as people run them."""

import signal
import time
from pathlib import Path

import pytest

from pipeline.settings import Settings
from pipeline.states import BatchState, Event, JobState
from tests.servers.proxy import Proxy
from tests.support import cli as arkline
from tests.support import planting
from zkstate.connection.session import Session
from zkstate.record import batches, jobs


def test_a_hold_and_its_release_are_reported_and_stay_in_the_history(
    session: Session, settings: Settings
) -> None:
    job = planting.job_in(session, JobState.HELD)
    batch = planting.batch_in(session, BatchState.HELD)

    held, again, planned, released, repeated, history = arkline.run_all(
        settings,
        (
            ("hold", "--collection", "demo", "--by", "ann", "--reason", "database maintenance"),
            ("hold", "--collection", "demo", "--by", "bob"),
            ("release", "--collection", "demo", "--dry-run"),
            ("release", "--collection", "demo", "--by", "bob"),
            ("release", "--collection", "demo"),
            ("history", "demo"),
        ),
    )

    assert held.out == "collection demo is now on hold (by ann: database maintenance).\n"
    assert "collection demo is already on hold by ann for" in again.err
    assert planned.out == "collection demo would be released, and 2 held jobs and batches with it\n"
    assert released.out.splitlines() == [
        "collection demo is no longer on hold.",
        f"{batch.bid} was held, is now pending",
        f"{job.jid} was held, is now pending",
    ]
    assert (repeated.code, "collection demo was not on hold" in repeated.err) == (0, True)
    rows = [line.split()[2:5] for line in history.out.splitlines()[1:]]
    assert rows == [["hold", "ann", "cli"], ["release", "bob", "cli"]]
    assert history.out.rstrip().splitlines()[1].endswith("database maintenance")


def test_the_history_of_a_collection_is_read_though_its_profile_is_gone(
    session: Session, settings: Settings, tmp_path: Path
) -> None:
    planting.one_job(session)
    without = settings.model_copy(update={"profiles": tmp_path})

    held, history, unknown = arkline.run_all(
        without, (("hold", "--collection", "demo", "--by", "ann"), ("history", "demo"), ("history", "demmo"))
    )

    assert held.out == "collection demo is now on hold (by ann).\n"
    assert (history.code, "hold" in history.out) == (0, True)
    assert (unknown.code, "there is no profile 'demmo'" in unknown.err) == (2, True)


@pytest.mark.parametrize(
    ("option", "name", "message"),
    [
        ("--batch", "bid0000009999", "there is no batch bid0000009999"),
        ("--profile", "nope", "there is no collection nope"),
    ],
)
def test_a_filter_by_a_name_that_does_not_exist_is_refused(
    session: Session, settings: Settings, option: str, name: str, message: str
) -> None:
    planting.job_in(session, JobState.FAILED)

    for command in ("resume", "jobs"):
        done = arkline.run(settings, command, option, name)
        assert (done.code, done.out, message in done.err) == (2, "", True), done.err


def test_a_filter_by_a_name_that_exists_may_select_nothing(session: Session, settings: Settings) -> None:
    bid = planting.batch_in(session, BatchState.HELD).bid

    verb, listed = arkline.run_all(
        settings, (("resume", "--batch", bid), ("jobs", "--batch", bid, "--profile", "demo"))
    )

    assert (verb.code, "resume: 0 done" in verb.err) == (0, True)
    assert listed.code == 0


def test_a_release_that_keeps_what_is_held_says_nothing_of_it(session: Session, settings: Settings) -> None:
    job = planting.job_in(session, JobState.HELD)

    ended, old_spelling = arkline.run_all(
        settings,
        (("release", "--collection", "demo", "--keep-held"), ("release", "--collection", "demo", "--jobs")),
    )

    assert (ended.code, ended.out) == (0, "")
    assert old_spelling.out == f"{job.jid} was held, is now pending\n"


def test_a_pause_is_reported_and_stays_in_the_history_of_the_queue(
    session: Session, settings: Settings
) -> None:
    empty, paused, again, unpaused, twice, history = arkline.run_all(
        settings,
        (
            ("history",),
            ("pause", "--by", "ann"),
            ("pause",),
            ("unpause", "--by", "bob", "--reason", "done"),
            ("unpause",),
            ("history",),
        ),
    )

    assert empty.err == "no action is recorded for the queue\n"
    assert paused.out == "the queue is now paused (by ann).\n"
    assert "the queue is already paused by ann for" in again.err
    assert unpaused.out == "the queue is no longer paused.\n"
    assert twice.err == "the queue was not paused\n"
    assert [line.split()[2:] for line in history.out.splitlines()[1:]] == [
        ["pause", "ann", "cli"],
        ["unpause", "bob", "cli", "done"],
    ]


def test_a_verb_with_an_older_version_is_refused(session: Session, settings: Settings) -> None:
    job = planting.one_job(session)
    version = str(arkline.run(settings, "status", job.jid, "--json").json()["version"])

    first, second, many = arkline.run_all(
        settings,
        (
            ("hold", job.jid, "--if-version", version, "--by", "ann"),
            ("delete", job.jid, "--if-version", version, "--yes", "--reason", "x"),
            ("resume", "--batch", job.bid, "--if-version", version),
        ),
    )

    assert first.code == 0
    assert (second.code, second.out) == (1, "")
    assert f"{job.jid} has changed since you read it: held since" in second.err
    assert "changed by ann; possible now: delete, release" in second.err
    assert (many.code, "name it" in many.err) == (2, True)


def test_a_recorded_job_is_stopped_as_completed_and_the_answer_says_so(
    session: Session, settings: Settings
) -> None:
    job = planting.job_in(session, JobState.NOTIFY)

    done = arkline.run(settings, "fail", job.jid, "--reason", "the receiver is gone")

    words = "it was stored and recorded already; its receiver may not have been notified"
    assert (done.code, done.out) == (0, f"{job.jid} was notify, is now completed: {words}\n")


def test_an_interrupted_verb_stops_before_the_next_job_and_says_how_many_are_left(
    session: Session, settings: Settings, zookeeper_proxy: Proxy
) -> None:
    bid, jids = planting.split_batch(session, 200)
    zookeeper_proxy.delay(0.02)  # so that the command is not over before it is interrupted
    slow = settings.model_copy(update={"zk_hosts": zookeeper_proxy.hosts})

    with arkline.start(slow, "cancel", bid, "--yes", "--reason", "x") as process:
        deadline = time.monotonic() + 60
        while jobs.load(session, jids[0]).status.status is not JobState.FAILED:
            assert time.monotonic() < deadline
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    finished = arkline.run(settings, "cancel", bid, "--yes", "--reason", "x")

    stopped = len(out.splitlines())
    assert process.returncode == 1
    assert 0 < stopped < len(jids)
    assert f"cancel: {stopped} done, {len(jids) - stopped} not tried: stopped" in err
    assert f"cancel: {len(jids) - stopped} done" in finished.err
    assert batches.load(session, bid).status.status is BatchState.REPORTING


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("fail", "bid0000000001"), "try: arkline cancel bid0000000001"),
        (("hold", "jid0000000001", "--collection", "demo"), "leave out ids"),
        (("release", "jid0000000001", "--keep-held"), "--keep-held is for --collection"),
        (("hold",), "specify ids of jobs, or select jobs"),
    ],
)
def test_a_wrong_use_of_a_verb_says_what_to_use(
    session: Session, settings: Settings, arguments: tuple[str, ...], message: str
) -> None:
    result = arkline.run(settings, *arguments)

    assert result.code == 2
    assert message in result.err


def test_a_job_of_a_held_collection_is_released_by_the_remedy_that_the_refusal_names(
    session: Session, settings: Settings
) -> None:
    job = planting.apply_event(session, planting.one_job(session), Event.HOLD)
    arkline.run(settings, "hold", "--collection", "demo")

    refused = arkline.run(settings, "release", job.jid)
    remedy = refused.err.partition("try: arkline ")[2].partition(":")[0]
    arkline.run(settings, *remedy.split())

    assert refused.code == 2
    assert jobs.load(session, job.jid).status.status is JobState.PENDING
