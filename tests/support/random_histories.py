"""Random histories of jobs and batches on a real record, with real reports and callbacks."""

import json
import random
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from operations.site import Site
from operations.verbs.bulk import cancel
from operations.verbs.verbs import Resumption, act
from pipeline.attempt import UNATTENDED
from pipeline.machine import IllegalTransition
from pipeline.notify.callback import HttpCallback
from pipeline.outcome import Done, Service, ServiceDown
from pipeline.profiles.profile import Profiles
from pipeline.records import Job, SubmissionType, now
from pipeline.settings import Settings
from pipeline.states import BATCH, JOB, Event, FailureKind, JobState
from tasks.batch import REPORT, SPLIT
from tasks.outages import begin_outage, notify_operator
from tasks.worker_context import WorkerContext
from tests.servers.receiver import Receiver
from tests.support import planting
from tests.support.attempts import work_on
from tests.support.operators import ANN
from tests.support.record_facts import Moment, Record
from tests.support.waits import RETRY
from zkstate import paths
from zkstate.connection.session import Session
from zkstate.fleet import outages
from zkstate.fleet.outages import name_of
from zkstate.queue.job_record import ZooKeeperJobRecord
from zkstate.record import batches, jobs, record
from zkstate.record.jobs import JobMove

BATCHES, STEPS = 6, 90


@dataclass
class Walk:
    rng: random.Random
    session: Session
    context: WorkerContext
    receiver: Receiver
    bids: list[str] = field(default_factory=list)
    deleted: dict[str, dict[str, bytes]] = field(default_factory=dict)
    """JID -> the znodes of the job before an operator deleted it."""
    callbacks: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    began: datetime = field(default_factory=now)
    updated: str = ""
    """The batch whose report was sent again."""
    first_report: Record | None = None
    """The record as it was when the first report of this batch was sent."""

    @property
    def settings(self) -> Settings:
        return self.context.settings

    def submit(self, jobs: int | None = None) -> None:
        number = len(self.bids)
        submitted = {
            "payload_url": f"http://example.org/lettre%20{number}.txt?v=1",
            "payload_filename": self.rng.choice(["", f"batch {number}.checkm"]),
            "deposit_name": f"Nachlass Müller {number}" if number % 2 else None,
            "submitter": self.rng.choice(["", "me/Me"]),
            "note": f"note {number}",
            "type": self.rng.choice(list(SubmissionType)),
            "owner": "local:ann",
            "profile_name": "demo",
        }
        bid, _ = planting.split_batch_of(
            self.session,
            submitted,
            jobs or self.rng.randint(2, 4),
            self.settings.working,
            priority=self.rng.choice([3, 5, 15]),
            local_id=(f"local-{number}",),
            erc_what=f"Title {number}",
            erc_who="Größe",
        )
        self.bids.append(bid)

    def step(self) -> None:
        """One thing happens to one job that is there."""
        present = [jid for bid in self.bids for jid in batches.all_jobs(self.session, bid)]
        if not (there := [jid for jid in present if jid not in self.deleted]):
            return self.submit()
        jid = self.rng.choice(there)
        job = jobs.load(self.session, jid)
        choices = {
            JobState.PENDING: ["succeed", "succeed", "hold"],
            JobState.HELD: ["release"] * 5 + ["delete"],
            JobState.REVIEW: ["approve"] * 5 + ["reject", "stop"],
            JobState.FAILED: ["resume"] * 4 + ["callback"] * 4 + ["delete"],
            JobState.COMPLETED: ["callback", "clean up"],
        }.get(job.status.status, ["succeed"] * 12 + ["fail", "retry", "stop"])
        getattr(self, f"_{self.rng.choice(choices).replace(' ', '_')}")(job)

    def _succeed(self, job: Job) -> None:
        if job.status.status is JobState.PROCESSING and job.identifiers.primary_id is None:
            return self._identify(job)
        if job.status.status is JobState.DOWNLOADING:
            return self._download(job)
        pending = job.status.status is JobState.PENDING
        planting.apply_event(self.session, job, Event.ACQUIRE if pending else Event.SUCCEED)

    def _download(self, job: Job, event: Event = Event.SUCCEED) -> None:
        """The job downloads its files, of which there is something to remark."""
        done = Done(remark=job.status.with_remarks(f"look at {job.configuration.payload_name}"))
        held = planting.acquire(self.session, job)
        jobs.move(self.session, held, JobMove(event, "worker", done=done, message="said so"))

    def _fail(self, job: Job) -> None:
        if Event.FAIL in JOB.events(job.status.status):
            planting.apply_event(self.session, job, Event.FAIL, self.rng.choice(list(FailureKind)))

    def _retry(self, job: Job) -> None:
        record.hand_back(
            self.session, planting.acquire(self.session, job), "worker", delay=5, waits_for=RETRY,
        )  # fmt: skip

    def _identify(self, job: Job) -> None:
        held = planting.acquire(self.session, job)
        named = held.identifiers.model_copy(update={"primary_id": f"ark:/99999/fk4{job.jid[3:]}"})
        ZooKeeperJobRecord(self.session, UNATTENDED).write_identifiers(held, named)
        record.hand_back(self.session, held, "worker")

    def _act(self, job: Job, event: Event, to: JobState | None = None) -> None:
        act(
            Site(self.settings, self.session),
            ANN,
            job.jid,
            event,
            how=Resumption(to=to),
            reason="because",
            feeding=False,
        )

    def _stop(self, job: Job) -> None:
        self._act(job, Event.FAIL)

    def _hold(self, job: Job) -> None:
        planting.apply_event(self.session, job, Event.HOLD)

    def _approve(self, job: Job) -> None:
        self._act(job, Event.APPROVE)

    def _reject(self, job: Job) -> None:
        self._act(job, Event.REJECT)

    def _release(self, job: Job) -> None:
        self._act(job, Event.RELEASE)

    def keep(self, jid: str) -> None:
        """Note the job as it is, before it is deleted."""
        self.deleted[jid] = planting.tree(self.session, paths.job(jid))

    def _delete(self, job: Job) -> None:
        self.keep(job.jid)
        self._act(job, Event.DELETE)

    def _resume(self, job: Job) -> None:
        status = job.status
        try:
            possible = JOB.targets_now(
                status.status, Event.RESUME, status.last_successful_status, status.kind, status.room
            )
        except IllegalTransition:
            possible = ()
        if possible:
            self._act(job, Event.RESUME, self.rng.choice(possible))

    def _callback(self, job: Job) -> None:
        profile = Profiles(self.settings.profiles).get("demo")
        HttpCallback(self.settings).deliver_once(job, profile, None)
        sent = json.loads(self.receiver.received[-1].raw)["job:jobState"]
        self.callbacks.append((job.jid, sent | {"state": job.status.status.value}))

    def _clean_up(self, job: Job) -> None:
        jobs.clean_up(self.session, job)

    def finish(self, jid: str) -> None:
        """The job completes, unless its content is wrong: then an operator deletes it."""
        while (job := jobs.load(self.session, jid)).status.status is not JobState.COMPLETED:
            if job.status.status is JobState.HELD:
                self._release(job)
            elif job.status.status is JobState.REVIEW:
                self._approve(job)
            elif job.status.status is not JobState.FAILED:
                self._succeed(job)
            elif job.status.kind is FailureKind.CONTENT:
                self._delete(job)
                return
            else:
                self._act(job, Event.RESUME)

    def review(self) -> None:
        """Of four objects one waits for its review, one is approved, one is rejected, and one waits to be
        downloaded again."""
        self.submit(jobs=4)
        waiting, approved, rejected, again = batches.all_jobs(self.session, self.bids[-1])
        for jid in (waiting, approved, rejected, again):
            while (job := jobs.load(self.session, jid)).status.status is not JobState.DOWNLOADING:
                self._succeed(job)
        for jid in (waiting, approved, rejected):
            self._download(jobs.load(self.session, jid), Event.REVIEW)
        self.finish(approved)
        self._reject(jobs.load(self.session, rejected))
        self._retry(jobs.load(self.session, again))

    def report_what_ended(self) -> None:
        for bid in self.bids:
            reporting = batches.finish_if_ended(self.session, bid, "test")
            batch = reporting or batches.load(self.session, bid)
            if reporting is None and Event.UPDATE_REPORT in BATCH.events(batch.status.status):
                if self.rng.random() < 0.5:
                    act(
                        Site(self.settings, self.session),
                        ANN,
                        bid,
                        Event.UPDATE_REPORT,
                        reason="because",
                        feeding=False,
                    )
                batch = batches.load(self.session, bid)
            if BATCH.facts[batch.status.status].reports:
                work_on(self.context, record.ticket(batch), REPORT)

    def update(self) -> None:
        """Of four objects three fail; then one of them completes, one is deleted, one is as it was."""
        self.submit(jobs=4)
        self.updated = self.bids[-1]
        completed, resumed, deleted, failed = batches.all_jobs(self.session, self.updated)
        self.finish(completed)
        for jid in (resumed, deleted, failed):
            started = planting.apply_event(self.session, jobs.load(self.session, jid), Event.ACQUIRE)
            planting.apply_event(self.session, started, Event.FAIL)
        reporting = batches.finish_if_ended(self.session, self.updated, "test")
        assert reporting is not None
        work_on(self.context, record.ticket(reporting), REPORT)
        self.first_report = Record.now(self.settings, self.deleted, Moment(self.began, now()))
        self.finish(resumed)
        self._delete(jobs.load(self.session, deleted))
        act(
            Site(self.settings, self.session),
            ANN,
            self.updated,
            Event.UPDATE_REPORT,
            reason="because",
            feeding=False,
        )
        work_on(self.context, record.ticket(batches.load(self.session, self.updated)), REPORT)

    def receive(self) -> None:
        """A worker splits a submission, which is confirmed."""
        given = planting.submission(
            payload_url="http://example.org/a%2Bb.txt", note="the last", owner="local:ann"
        )
        bid = batches.submit(self.session, given)
        self.bids.append(bid)
        work_on(self.context, record.ticket(batches.load(self.session, bid)), SPLIT)

    def break_down(self) -> None:
        """The operator is notified of two outages, and of the end of one."""
        receiver = ServiceDown(Service.CALLBACK, "it does not answer", instance="deposit.example.org")
        for fault in (receiver, ServiceDown(Service.STORAGE, "a bucket is missing")):
            begin_outage(self.session, fault)
            notify_operator(self.context, outages.known(self.session)[name_of(fault)].outage)
        assert outages.end(self.session, Service.STORAGE)
        notify_operator(self.context, outages.known(self.session)[Service.STORAGE].outage)


def walked(session: Session, context: WorkerContext, receiver: Receiver, seed: int, length: int) -> Walk:
    walk = Walk(random.Random(seed), session, context, receiver)
    for _ in range(BATCHES * length):
        walk.submit()
    for _ in range(STEPS * length):
        walk.step()
    finished, cancelled = walk.bids[0], walk.bids[1]
    for jid in batches.all_jobs(session, finished):
        if jid not in walk.deleted:
            walk.finish(jid)
    for jid in batches.all_jobs(session, cancelled):
        if jid not in walk.deleted and jobs.load(session, jid).status.status is JobState.HELD:
            walk.keep(jid)  # a held job of a batch that is cancelled is deleted
    with suppress(IllegalTransition):
        cancel(Site(context.settings, session), ANN, cancelled, reason="because")
    walk.report_what_ended()
    walk.update()
    walk.review()
    walk.receive()
    walk.break_down()
    return walk
