"""A fleet with a check: a site's program, a finding, an operator's decision, and a check that is gone."""

import json
import os
import shutil
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

import pytest
from celery.states import RETRY

from pipeline.checks import FINDING
from pipeline.notify.report_mail import report_text
from pipeline.outcome import WaitKind
from pipeline.records import Job, SubmissionType
from pipeline.settings import Settings
from pipeline.states import Event, JobState
from tests.e2e.collection import File, put_batch, put_object, submit
from tests.e2e.test_task_events import Watched, enable_events, said_of, watched
from tests.servers.http_source import HttpSource
from tests.support import cli as arkline
from tests.support import guests
from tests.support.fleet import LIMIT, PROJECT, Fleet, batch_ended
from tests.support.outbox import letters
from tests.support.polling import eventually
from zkstate import paths
from zkstate.connection.session import Session
from zkstate.fleet import outages
from zkstate.queue import listings
from zkstate.record import batches, jobs

SCANNER = """#!/bin/sh
if grep -q FORBIDDEN "$1"; then
    echo '{"code": "Site.Forbidden", "message": "it has a forbidden word"}'
    exit 1
fi
"""


@pytest.fixture
def settings(settings: Settings, tmp_path: Path) -> Settings:
    """With profiles of this test: those of the examples are everybody's."""
    own = shutil.copytree(settings.profiles, tmp_path / "profiles")
    return settings.model_copy(update={"profiles": own})


@pytest.fixture
def scanner(settings: Settings, tmp_path: Path) -> Path:
    """The collection's files are checked by a program of the site."""
    program = tmp_path / "tools" / "scan.sh"
    program.parent.mkdir()
    program.write_text(SCANNER)
    program.chmod(0o755)
    profile = settings.profiles / "demo.yaml"
    profile.write_text(f"{profile.read_text()}\nchecks:\n  - name: words\n    command: [{program}]\n")
    return program


@pytest.fixture
def flower(settings: Settings) -> Iterator[Watched]:
    with watched(settings) as found:
        yield found


def test_a_finding_of_a_sites_program_stops_a_job_until_an_operator_overrules_it(
    session: Session, settings: Settings, fleet: Fleet, source: HttpSource, scanner: Path, flower: Watched
) -> None:
    fleet.worker()
    enable_events(settings, workers=1)
    good, bad = source.put("/good.txt", b"good"), source.put("/bad.txt", b"FORBIDDEN")
    stored = batch_ended(session, submit(session, settings, good, SubmissionType.FILE))
    stopped = batch_ended(session, submit(session, settings, bad, SubmissionType.FILE))

    assert stored.report is not None
    assert stored.report.failed_jobs == ()
    (jid,) = listings.of_batch(session, stopped.bid)
    failed = jobs.load(session, jid)
    assert (
        "the check words found something in 1 file: 'bad.txt' (it has a forbidden word)"
        in failed.status.message
    )
    (finding,) = FINDING.findall(failed.status.message)
    said = "words: something found in 1 file: 'bad.txt' (it has a forbidden word)"
    for text in (arkline.run(settings, "report", stopped.bid).out, mailed(settings, stopped.bid)):
        assert f"checks: {said}" in " ".join(text.split())
    told = arkline.run(settings, "report", stopped.bid, "--json").json()["failed"][0]["checks"][0]
    assert (told["found"], told["findings"][0]["path"]) == (1, "bad.txt")
    assert "checks" not in mailed(settings, stored.bid)

    refused = arkline.run(settings, "resume", jid, "--overrule", "0" * 16, "--reason", "no")
    assert refused.code != 0
    assert finding in refused.err
    done = arkline.run(
        settings, "resume", jid, "--overrule", finding, "--reason", "a word list, kept as it is"
    )
    assert done.code == 0, done.err
    ended = eventually(lambda: _completed(session, jid))

    flower.await_states(jid, *said_of(ended.history))
    entry = next(entry for entry in ended.history if entry.overruled)
    assert (entry.overruled, "a word list" in entry.message) == (finding, True)
    shown = arkline.run(settings, "object", str(ended.identifiers.primary_id), "--json")
    assert json.loads(shown.out)["versions"][0]["checks"][0]["overruled"]["reason"]


def test_one_command_overrules_the_finding_that_stopped_many_jobs_of_a_batch(
    session: Session, settings: Settings, fleet: Fleet, source: HttpSource, scanner: Path
) -> None:
    fleet.worker()
    fleet.beat()
    secret = '\nif grep -q SECRET "$1"; then echo \'{"code": "Site.Secret"}\'; exit 1; fi\n'
    scanner.write_text(SCANNER.replace("    exit 1\n", f"    {secret.strip()}\n    exit 1\n") + secret)
    bodies = {
        "good": b"good",
        "one": b"FORBIDDEN 1",
        "two": b"FORBIDDEN 2",
        "secret": b"SECRET",
        "both": b"FORBIDDEN SECRET",
    }
    urls = [put_object(source, name, [File(f"{name}.txt", body)]) for name, body in bodies.items()]
    urls.append(put_object(source, "lost", [File("lost.txt", b"lost", served=False)]))
    bid = submit(session, settings, put_batch(source, urls))
    ended = batch_ended(session, bid)
    assert ended.report is not None
    assert len(ended.report.failed_jobs) == 5
    named = {job.configuration.name.removesuffix(".checkm"): job for job in _jobs(session, bid)}
    name = "words:Site.Forbidden"
    why = json.loads(arkline.run(settings, "why", named["one"].jid, "--json").out)
    (finding,) = FINDING.findall(named["one"].status.message)
    assert f"arkline resume {named['one'].jid} --overrule {finding} --reason WHY" in json.dumps(why)

    assert arkline.run(settings, "resume", bid, "--overrule", name).code == 2  # without a reason
    none = arkline.run(settings, "resume", bid, "--overrule", "words:Other", "--reason", "no", "--dry-run")
    assert (none.code, "no failed job" in " ".join(none.err.split())) == (2, True)
    resume = ("resume", bid, "--overrule", name, "--reason", "word lists", "--json")
    judged = arkline.run(settings, *resume, "--dry-run").json()
    assert all(job == jobs.load(session, job.jid) for job in named.values())
    done = arkline.run(settings, *resume)

    assert done.code == 1  # one is refused
    first, second, both = (named[one].jid for one in ("one", "two", "both"))
    for outcome in (judged, done.json()):
        assert [one["id"] for one in outcome["done"]] == [first, second]
        (refused,) = outcome["refused"]
        assert refused["id"] == both
        assert FINDING.findall(named["both"].status.message)[0] in refused["message"]
    for jid in (first, second):
        ended_job = eventually(partial(_completed, session, jid))
        (entry,) = (one for one in ended_job.history if one.overruled)
        failure = next(one for one in ended_job.history if one.event is Event.FAIL)
        assert FINDING.findall(failure.message) == [entry.overruled]
        assert entry.reason == "word lists"
    for left in ("secret", "both", "lost"):
        assert jobs.load(session, named[left].jid).version == named[left].version
    rest = ("resume", "--batch", bid, "--state", "failed", "--reason", "kept", "--json")
    planned = arkline.run(settings, *rest, "--overrule", name, "--overrule", "words:Site.Secret").json()
    assert [one["id"] for one in planned["done"]] == [named["secret"].jid, both]
    assert [one["id"] for one in planned["refused"]] == [named["lost"].jid]
    assert eventually(lambda: _completed(session, both)).status.status is JobState.COMPLETED


def _jobs(session: Session, bid: str) -> list[Job]:
    return [jobs.load(session, jid) for jid in listings.of_batch(session, bid)]


def mailed(settings: Settings, bid: str) -> str:
    """The text of the first report of a batch, in the outbox."""
    (mail,) = (mail for mail in letters(settings) if mail["Message-ID"] == f"<{bid}.report-1@arkline>")
    return report_text(mail)


def _completed(session: Session, jid: str) -> Job | None:
    job = jobs.load(session, jid)
    return job if job.status.status is JobState.COMPLETED else None


def test_jobs_wait_for_a_check_that_is_gone_and_continue_when_it_is_back(
    session: Session, settings: Settings, fleet: Fleet, source: HttpSource, scanner: Path, flower: Watched
) -> None:
    fleet.worker()
    fleet.beat()
    enable_events(settings, workers=1)
    moved = scanner.rename(scanner.with_suffix(".gone"))
    bid = submit(session, settings, source.put("/good.txt", b"good"), SubmissionType.FILE)
    eventually(lambda: "check:words" in outages.known(session))

    moved.rename(scanner)

    batch = batch_ended(session, bid)
    assert batch.report is not None
    assert len(batch.report.successful_jobs) == 1
    (jid,) = batches.all_jobs(session, bid)
    ended = said_of(jobs.load(session, jid).history)  # which has moves, and no wait for a service

    def seen() -> list[tuple[str, str]]:
        return [(task.name, task.state) for task in flower.of(jid)]

    eventually(lambda: [task for task in seen() if task[1] != RETRY] == ended)
    assert ("job.processing", RETRY) in seen()


CHECK = """from pipeline.checks import Access, CheckFinding, CheckVerdict

class SiteCheck:
    name = "site"
    access = Access()
    settings = None
    version = "1"

    def __init__(self, settings):
        {begin}

    def run(self, files, context):
        for file in files:
            yield CheckFinding(path=file.path, verdict=CheckVerdict.FINE)
"""


def test_a_check_with_a_mistake_keeps_jobs_waiting_with_the_reason_and_they_continue_when_it_is_repaired(
    session: Session, settings: Settings, fleet: Fleet, source: HttpSource, tmp_path: Path
) -> None:
    guests.install(tmp_path / "site", site=type("SiteCheck", (), {"__module__": "site_check"}))
    module = tmp_path / "site" / "site_check.py"
    module.write_text(CHECK.format(begin="scaner.load()"))
    profile = settings.profiles / "demo.yaml"
    profile.write_text(f"{profile.read_text()}\nchecks: [site]\n")
    path = os.pathsep.join((str(PROJECT), str(module.parent)))
    fleet.extra = {"PYTHONPATH": path}
    fleet.worker()
    fleet.beat()

    deposit = ("submit", "--profile", "demo", "--type", "file", "--wait", source.put("/good.txt", b"good"))
    with arkline.start(settings, *deposit, PYTHONPATH=path) as waits:
        eventually(lambda: "check:site" in outages.known(session))
        (jid,) = listings.all_jobs(session)
        shown = " ".join(arkline.run(settings, "why", jid).out.split())
        assert "the check site does not start on this host: NameError: name 'scaner' is not defined" in shown
        assert "repair it" in shown
        assert jobs.load(session, jid).status.tries == 0
        module.write_text(CHECK.format(begin="pass"))
        assert waits.wait(LIMIT) == 0


GATE = """#!/bin/sh
while [ ! -e "${0%/*}/open" ]; do sleep 0.1; done
"""


def test_two_workers_keep_the_limit_of_a_check_and_the_job_that_waits_fails_nothing(
    session: Session, settings: Settings, fleet: Fleet, source: HttpSource, scanner: Path
) -> None:
    scanner.write_text(GATE)
    profile = settings.profiles / "demo.yaml"
    profile.write_text(f"{profile.read_text()}    at_once: 1\n")
    first, second = fleet.worker("one", 1), fleet.worker("two", 1)
    fleet.beat()
    bids = [
        submit(session, settings, source.put(f"/{name}.txt", b"good"), SubmissionType.FILE)
        for name in ("a", "b")
    ]
    waiting = eventually(lambda: _waits_for_check(session, bids))

    assert len(session.children(paths.check_places("words"))) == 1
    shown = arkline.run(settings, "why", waiting.jid)
    assert "the check words that the fleet may do at once (1)" in " ".join(shown.out.split())
    assert (waiting.status.tries, waiting.status.retry_count) == (0, 0)
    (scanner.parent / "open").touch()
    for bid in bids:
        report = batch_ended(session, bid).report
        assert report is not None
        assert report.failed_jobs == ()
    assert session.children(paths.check_places("words")) == []
    assert first.running
    assert second.running


def _waits_for_check(session: Session, bids: Sequence[str]) -> Job | None:
    members = [jobs.load(session, jid) for bid in bids for jid in listings.of_batch(session, bid)]
    waits = ((job, job.status.waits_for) for job in members)
    return next((job for job, one in waits if one is not None and one.kind == WaitKind.CHECK), None)
