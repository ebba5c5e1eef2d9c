"""A person decides before a version is stored: jobs in review, on a real ZooKeeper and Redis."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from threading import Event as Gate
from xml.etree import ElementTree

import pytest

from operations.reasons import Reason
from operations.site import Site
from operations.verbs.bulk import cancel
from operations.verbs.collection_profiles import renew
from operations.why.why import why
from pipeline.checks import FINDING
from pipeline.errors import Action, Remedy
from pipeline.principal import Interface
from pipeline.records import HistoryEntry, Job
from pipeline.settings import Settings
from pipeline.states import JOB, BatchState, Bucket, Event, FailureKind, JobState, Room
from tasks import stores
from tests.e2e.collection import put_collection, submit
from tests.e2e.test_task_events import enable_events, said_of, watched
from tests.integration.test_sweep import MOST, later
from tests.servers.http_source import HttpSource
from tests.support import cli as arkline
from tests.support import planting
from tests.support.fleet import Fleet, batch_ended, fleet, job_reaches
from tests.support.operators import ANN
from tests.support.polling import eventually
from zkstate import codec, paths
from zkstate.care.audit import audit
from zkstate.connection.session import Session
from zkstate.fleet import outages
from zkstate.queue import queue, recovery
from zkstate.record import batches, jobs, space

pytestmark = pytest.mark.timeout(300)  # workers, some of which are killed

PROFILE = "owner: ark:/99999/fk4o\ncollections: ark:/99999/fk4c\nnaan: '99999'\nshoulder: fk4\n"
BODY = b"a letter of 1871"
PREMIS = "{http://www.loc.gov/premis/v3}"


@dataclass
class Reviewing:
    """A fleet whose collection `demo` is reviewed, and a source."""

    session: Session
    settings: Settings
    fleet: Fleet
    source: HttpSource

    def arkline(self, *words: str, code: int = 0) -> str:
        done = arkline.run(self.settings, *words)
        assert done.code == code, (words, done)
        return done.out

    def submit(self, url: str) -> str:
        """The BID."""
        return self.arkline("submit", url, "--profile", "demo").split()[0]

    def in_review(self, url: str) -> Job:
        """The only job of a new batch, once it waits for its review."""
        bid = self.submit(url)
        (jid,) = self.jids(bid, 1)
        return job_reaches(self.session, jid, JobState.REVIEW)

    def jids(self, bid: str, number: int) -> list[str]:
        while len(found := batches.all_jobs(self.session, bid)) < number:
            self.arkline("why", bid)
        return found

    def content(self, job: Job) -> list[bytes]:
        return [file.read_bytes() for file in Path(job.configuration.working_dir).glob("producer/*")]

    def stored(self) -> int:
        return len(list(self.settings.storage.rglob("0=ocfl_object_1.1")))


def reviewed(settings: Settings, *, review: bool) -> None:
    settings.profiles.mkdir(exist_ok=True)
    (settings.profiles / "demo.yaml").write_text(f"{PROFILE}review: {str(review).lower()}\n")


@pytest.fixture
def given(settings: Settings, tmp_path: Path) -> Settings:
    changes = {"profiles": tmp_path / "profiles", "zk_session_timeout": 4, "stop_grace": 1}
    own = settings.model_copy(update=changes)
    reviewed(own, review=True)
    return own


@pytest.fixture
def world(session: Session, given: Settings) -> Iterator[Reviewing]:
    with HttpSource() as source, fleet(given) as started:
        yield Reviewing(session, given, started, source)


def events(job: Job) -> list[Event | None]:
    return [entry.event for entry in job.history]


def last(job: Job, event: Event) -> HistoryEntry:
    return next(entry for entry in reversed(job.history) if entry.event is event)


def test_an_approved_job_is_stored_and_its_history_says_who_decided_why_and_how(world: Reviewing) -> None:
    world.fleet.worker()
    job = world.in_review(world.source.put("/letter.txt", BODY))

    assert world.content(job) == [BODY]
    assert space.reservation_of(world.session, job.jid) == job.space_needed == len(BODY)
    assert queue.counts(world.session)[JobState.REVIEW] == 1
    assert queue.places_taken(world.session) == 0
    assert (world.stored(), job.identifiers.primary_id) == (0, None)
    listed = json.loads(world.arkline("jobs", "--state", "review", "--json"))
    assert [row["jid"] for row in listed["jobs"]] == [job.jid]
    assert "has been in review for" in world.arkline("why", job.jid)

    world.arkline("approve", job.jid, "--by", "ann@desk", "--reason", "the rights are cleared")

    assert batch_ended(world.session, job.bid).status.status is BatchState.COMPLETED
    ended = jobs.load(world.session, job.jid)
    decision = last(ended, Event.APPROVE)
    assert (decision.by, decision.via, decision.state) == ("ann@desk", Interface.CLI, JobState.PROCESSING)
    assert decision.message == "approve by ann@desk: the rights are cleared"
    assert decision.at > last(ended, Event.REVIEW).at
    assert world.stored() == 1
    assert decisions(world) == [("appraisal", "approved", "ann@desk", "the rights are cleared")]
    assert audit(world.session) == ()


def decisions(world: Reviewing) -> list[tuple[str, ...]]:
    """The events of persons in the PREMIS document that was stored with the object."""
    (premis,) = world.settings.storage.rglob("mrt-premis.xml")
    events = ElementTree.parse(premis).iter(f"{PREMIS}event")
    names = ("eventType", "eventOutcome", "linkingAgentIdentifierValue", "eventOutcomeDetailNote")
    return [
        tuple(event.findtext(f".//{PREMIS}{name}", "") for name in names)
        for event in events
        if event.findtext(f".//{PREMIS}linkingAgentRole") == "authorizer"
    ]


def test_the_tasks_of_a_job_in_review_are_those_of_its_history(world: Reviewing) -> None:
    with watched(world.settings) as flower:
        world.fleet.worker()
        enable_events(world.settings, workers=1)
        job = world.in_review(world.source.put("/letter.txt", BODY))
        flower.await_states(job.jid, *said_of(job.history))

        world.arkline("approve", job.jid)

        ended = job_reaches(world.session, job.jid, JobState.COMPLETED)
        flower.await_states(job.jid, *said_of(ended.history))
        tasks = [task.name for task in flower.of(job.jid)]
    assert tasks == [JOB.task(state).name for state in JOB.working()]


def test_a_rejected_job_tells_the_depositor_why_and_a_resume_asks_for_another_review(
    world: Reviewing,
) -> None:
    world.fleet.worker()
    world.fleet.beat()
    job = world.in_review(world.source.put("/letter.txt", BODY))
    refused = arkline.run(world.settings, "reject", job.jid)
    assert (refused.code != 0, "reason" in refused.err) == (True, True)
    assert jobs.load(world.session, job.jid).status.status is JobState.REVIEW

    world.arkline("reject", job.jid, "--by", "ann@desk", "--reason", "page 3 is missing")

    assert batch_ended(world.session, job.bid).status.status is BatchState.FAILED
    failed = jobs.load(world.session, job.jid)
    assert (failed.status.kind, failed.status.room) == (FailureKind.CONTENT, Room.YIELDED)
    assert (last(failed, Event.REJECT).by, world.stored()) == ("ann@desk", 0)
    report = " ".join(world.arkline("report", job.bid).split())
    assert "our staff reviewed this object and did not accept it: page 3 is missing" in report
    assert "ann@desk" not in report
    fetched = world.source.count("/letter.txt")

    world.arkline("resume", job.jid)
    again = job_reaches(world.session, job.jid, JobState.REVIEW)
    world.arkline("approve", job.jid)

    job_reaches(world.session, job.jid, JobState.COMPLETED)
    assert events(again).count(Event.REVIEW) == 2
    assert world.source.count("/letter.txt") == fetched  # what is on the disk is not downloaded again
    assert world.stored() == 1
    assert audit(world.session) == ()


def test_a_job_whose_worker_is_killed_waits_for_its_review_and_no_sweep_touches_it_there(
    world: Reviewing,
) -> None:
    gate = Gate()
    first = world.fleet.worker("first")
    bid = world.submit(world.source.put("/letter.txt", BODY, hold=gate))
    (jid,) = world.jids(bid, 1)
    job_reaches(world.session, jid, JobState.DOWNLOADING)
    first.kill()
    gate.set()
    world.fleet.beat()
    second = world.fleet.worker("second")
    waiting = job_reaches(world.session, jid, JobState.REVIEW)
    second.kill()

    swept = recovery.sweep_jobs(world.session, frozenset(), later(world.session, 1000), MOST)
    assert (swept.tickets, swept.exhausted) == ((), ())
    world.arkline("approve", jid)

    approved = jobs.load(world.session, jid)
    assert approved.status.epoch == waiting.status.epoch + 1
    world.fleet.worker("third")
    assert batch_ended(world.session, bid).status.status is BatchState.COMPLETED
    assert world.stored() == 1


def test_a_job_in_review_is_decided_while_its_collection_is_on_hold(world: Reviewing) -> None:
    world.fleet.worker()
    url = world.source.put("/letter.txt", BODY)
    job = world.in_review(url)
    world.arkline("hold", "--collection", "demo")
    later = world.submit(url)

    world.arkline("approve", job.jid)

    assert batch_ended(world.session, job.bid).status.status is BatchState.COMPLETED
    assert batch_ended(world.session, later).status.status is BatchState.HELD


def test_the_report_of_a_batch_waits_for_its_last_review(world: Reviewing) -> None:
    world.fleet.worker()
    bid = submit(world.session, world.settings, put_collection(world.source, objects=3))
    members = world.jids(bid, 3)
    for jid in members:
        job_reaches(world.session, jid, JobState.REVIEW)

    world.arkline("approve", members[0])
    job_reaches(world.session, members[0], JobState.COMPLETED)

    batch = batches.load(world.session, bid)
    assert (batch.status.status, batch.report) == (BatchState.PROCESSING, None)
    found = why(Site(world.settings, world.session), ANN, bid)
    assert (found.reason, found.jobs["review"], found.moves_itself) == (Reason.WAITING_FOR_JOBS, 2, False)
    assert found.first is not None
    assert found.first.reason is Reason.WAITING_FOR_REVIEW
    assert found.remedies == (Remedy(Action.APPROVE, members[1]), Remedy(Action.REJECT, members[1]))
    preview = world.arkline("approve", "--batch", bid, "--dry-run")
    assert [jid in preview for jid in members] == [False, True, True]
    world.arkline("approve", "--batch", bid)
    ended = batch_ended(world.session, bid)
    assert ended.status.status is BatchState.COMPLETED
    assert ended.report is not None
    assert set(ended.report.successful_jobs) == set(members)


SCANNER = """#!/bin/sh
if grep -q FORBIDDEN "$1"; then
    echo '{"code": "Site.Forbidden", "message": "it has a forbidden word"}'
    exit 1
fi
"""


@dataclass
class Scanner:
    """A program of the site that checks the files of the reviewed collection."""

    program: Path
    settings: Settings

    def checks(self, found: str, *, review: bool = True) -> None:
        reviewed(self.settings, review=review)
        with (self.settings.profiles / "demo.yaml").open("a") as profile:
            profile.write(f"checks:\n  - {{name: words, command: [{self.program}], found: {found}}}\n")

    def install(self) -> None:
        self.program.write_text(SCANNER)
        self.program.chmod(0o755)


@pytest.fixture
def scanner(world: Reviewing, tmp_path: Path) -> Scanner:
    scanner = Scanner(tmp_path / "tools" / "scan.sh", world.settings)
    scanner.program.parent.mkdir()
    scanner.install()
    return scanner


def test_whoever_reviews_a_job_sees_what_the_checks_found_and_no_file_is_checked_twice(
    world: Reviewing, scanner: Scanner
) -> None:
    scanner.checks("warn")
    world.fleet.worker()
    job = world.in_review(world.source.put("/letter.txt", b"FORBIDDEN"))

    explained = json.loads(world.arkline("why", job.jid, "--json"))
    shown = json.loads(world.arkline("status", job.jid, "--json"))
    (run,) = shown["checks"]
    (finding,) = run["findings"]
    assert (run["check"], run["found"], run["fine"], run["unchecked"]) == ("words", 1, 0, 0)
    assert (finding["path"], finding["code"]) == ("letter.txt", "Site.Forbidden")
    assert explained["checks"] == shown["checks"]
    assert "'letter.txt' (it has a forbidden word)" in explained["text"]
    assert "letter.txt: found (Site.Forbidden; it has a forbidden word)" in " ".join(
        world.arkline("status", job.jid).split()
    )

    world.arkline("approve", job.jid)

    ended = job_reaches(world.session, job.jid, JobState.COMPLETED)
    assert ended.status.checks == job.status.checks  # the run before the review, not another one


def test_a_finding_that_stops_a_job_stops_it_before_its_review_and_is_overruled_into_the_review(
    world: Reviewing, scanner: Scanner
) -> None:
    scanner.checks("stop")
    world.fleet.worker()
    bid = world.submit(world.source.put("/letter.txt", b"FORBIDDEN"))
    (jid,) = world.jids(bid, 1)
    failed = job_reaches(world.session, jid, JobState.FAILED)
    (finding,) = FINDING.findall(failed.status.message)
    fetched = world.source.count("/letter.txt")
    assert (Event.REVIEW in events(failed), failed.status.kind) == (False, FailureKind.CONTENT)
    assert [run.found for run in failed.status.checks or ()] == [1]

    world.arkline("resume", jid, "--overrule", finding, "--reason", "a list of words")
    job = job_reaches(world.session, jid, JobState.REVIEW)
    (stopped,), (run,) = failed.status.checks or (), job.status.checks or ()
    assert run.at == stopped.at  # not checked again
    assert run.overruled is not None
    assert run.overruled.reason == "a list of words"
    world.arkline("approve", jid)

    ended = job_reaches(world.session, jid, JobState.COMPLETED)
    assert [(outcome, why) for _, outcome, _, why in decisions(world)] == [
        ("approved", ""),
        ("overruled", "a list of words"),
    ]
    shown = json.loads(world.arkline("object", str(ended.identifiers.primary_id), "--no-verify", "--json"))
    (decision,) = (event for event in shown["timeline"] if event["by_person"])
    assert (decision["outcome"], decision["note"]) == ("overruled", "a list of words")
    assert world.source.count("/letter.txt") == fetched
    assert audit(world.session) == ()


def test_a_job_that_was_downloaded_and_not_checked_is_checked_once_before_it_is_stored(
    world: Reviewing, scanner: Scanner
) -> None:
    """Its profile had no check when it was downloaded, or its release checked after the review."""
    world.fleet.worker()
    job = world.in_review(world.source.put("/letter.txt", BODY))
    assert job.status.checks is None
    scanner.checks("stop")
    renew(Site(world.settings, world.session), ANN, job.bid)

    world.arkline("approve", job.jid)

    ended = job_reaches(world.session, job.jid, JobState.COMPLETED)
    (run,) = ended.status.checks or ()
    assert (run.fine, run.at > last(ended, Event.APPROVE).at) == (1, True)


def test_a_job_waits_for_a_check_that_no_worker_has_before_its_review(
    world: Reviewing, scanner: Scanner
) -> None:
    scanner.checks("warn")
    scanner.program.unlink()
    world.fleet.worker()
    bid = world.submit(world.source.put("/letter.txt", BODY))
    (jid,) = world.jids(bid, 1)
    eventually(lambda: "check:words" in outages.known(world.session))
    waiting = jobs.load(world.session, jid)
    assert waiting.status.status is JobState.DOWNLOADING

    scanner.install()
    world.fleet.beat()

    job = job_reaches(world.session, jid, JobState.REVIEW)
    assert ([run.fine for run in job.status.checks or ()], job.status.tries) == ([1], 0)


def test_a_stopped_batch_ends_its_jobs_in_review(session: Session, site: Site) -> None:
    job = planting.job_in(session, JobState.REVIEW)

    outcome = cancel(site, ANN, job.bid, reason="submitted by mistake")

    assert [(one.was, one.now) for one in outcome.done] == [(JobState.REVIEW, JobState.FAILED)]
    assert batches.jobs_in(session, job.bid, Bucket.FAILED) == [job.jid]
    stopped = jobs.load(session, job.jid)
    assert (stopped.status.kind, space.promised(session).bytes) == (FailureKind.SYSTEM, 0)
    assert audit(session) == ()


def test_a_job_that_an_earlier_release_left_in_downloading_goes_on_without_a_review(
    session: Session, given: Settings
) -> None:
    """Its batch keeps the profile with which it started, which knows no review, until it is renewed."""
    stores.compare(session, given)  # gives the three stores their deployment id
    with HttpSource() as source, fleet(given) as started:
        facts = {
            "working": given.working,
            "payload_url": source.put("/letter.txt", BODY),
            "payload_name": "letter.txt",
        }
        left = [planting.job_in(session, JobState.DOWNLOADING, JobState.PROVISIONING, **facts) for _ in "ab"]
        old, renewed = (_of_an_earlier_release(session, given, job) for job in left)
        renew(Site(given, session), ANN, renewed.bid)
        started.worker()
        started.beat()

        assert batch_ended(session, old.bid).status.status is BatchState.COMPLETED
        assert job_reaches(session, renewed.jid, JobState.REVIEW).history[-1].table == JOB.version

    done = jobs.load(session, old.jid)
    assert not {Event.REVIEW, Event.APPROVE} & set(events(done))
    assert {entry.table for entry in done.history} == {2, JOB.version}
    assert audit(session) == ()


def _of_an_earlier_release(session: Session, settings: Settings, job: Job) -> Job:
    """The job with the history and the snapshot of the profile that version 2 of the table had written."""
    reviewed(settings, review=False)
    renew(Site(settings, session), ANN, job.bid)
    reviewed(settings, review=True)
    node = paths.profile_snapshot(job.bid)
    snapshot = json.loads(session.get(node)[0])
    del snapshot["profile"]["review"]
    session.zk.set(node, json.dumps(snapshot).encode())
    moved = tuple(entry.model_copy(update={"table": 2}) for entry in job.history)
    session.zk.set(paths.history(job.jid), codec.encode_history(moved))
    return jobs.load(session, job.jid)
