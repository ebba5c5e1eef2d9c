"""The checker sees each fault that it is there for; a checker that finds nothing proves nothing."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from pipeline.principal import Interface
from pipeline.records import BatchHistoryEntry, HistoryEntry, Job, StatusReport, SubmissionType
from pipeline.states import JOB, BatchState, Bucket, Event, FailureKind, JobState
from tests.support import records
from tools.chaos.acts import Acts
from tools.chaos.checker import judge
from tools.chaos.deposits import Deposit, DepositedObject
from tools.chaos.final_state import Call, FinalState, Letter, Stored
from tools.chaos.hostile import HOSTILE
from tools.chaos.problem import Category, Problem

A, B, C = records.jid(1), records.jid(2), records.jid(3)
BID = records.BID
ARK = "ark:/99999/fk41"
GOOD = DepositedObject("/a.checkm", {"f.bin": frozenset({"digest"})}, local_id="mine")
BAD = DepositedObject("/b.checkm", {"f.bin": frozenset({"digest"})}, planted="digest")
DEPOSITS = [Deposit(0.0, "d0", SubmissionType.BATCH_MANIFEST, "/batch.checkm", (GOOD, BAD))]
VERSION = Stored(ARK, 1, A, {"producer/f.bin": "digest", "system/mrt-erc.txt": "other"})
NONE = Acts()
LETTER = Letter(f"{BID}.report-1@arkline", "same", frozenset({A}), frozenset({B}))


def history(*states: JobState) -> tuple[HistoryEntry, ...]:
    entries = [HistoryEntry(state=JobState.PENDING)]
    for state in states:
        event = next(r.event for r in JOB.table if (r.source, r.target) == (entries[-1].state, state))
        entries.append(HistoryEntry(state=state, event=event))
    return tuple(entries)


def until(state: JobState) -> tuple[JobState, ...]:
    return tuple(each for each in JOB.working()[1:] if each not in JOB.after(state))


def job(number: int, state: JobState, path: str, entries: tuple[HistoryEntry, ...], **facts: object) -> Job:
    made = records.a_job(number, state, payload_url=f"http://127.0.0.1:1{path}", **facts)
    return made.model_copy(update={"history": entries})


def clean() -> FinalState:
    """One object stored and one refused, as it should be."""
    whole = history(*JOB.working()[1:], JobState.COMPLETED)
    broken = history(*until(JobState.DOWNLOADING), JobState.FAILED)
    report = StatusReport(failed_jobs=(B,), successful_jobs=(A,))
    batch = records.a_batch(BatchState.FAILED, report)
    return FinalState(
        jobs={
            A: job(1, JobState.COMPLETED, GOOD.path, whole, primary_id=ARK),
            B: job(2, JobState.FAILED, BAD.path, broken, kind=FailureKind.CONTENT, primary_id=None),
        },
        batches={BID: batch.model_copy(update={"status": batch.status.model_copy(update={"reports": 1})})},
        queued={B: [JobState.FAILED]},
        buckets={BID: {Bucket.COMPLETED: {A}, Bucket.FAILED: {B}}},
        versions=[VERSION],
        entries=[VERSION],
        local_ids={"mine": ARK},
        letters=[LETTER],
        calls=[Call(f"{A}-0", A, "COMPLETED"), Call(f"{B}-0", B, "FAILED")],
        folders=[f"{BID}/{B}"],
        reservations={B: 10},
        promised=10,
        registered={ARK: "public"},
        numbers=1,
    )


def found(final: FinalState, acts: Acts = NONE) -> tuple[Problem, ...]:
    return judge(DEPOSITS, {"d0": BID}, final, acts).problems


def with_job(final: FinalState, jid: str, **changes: object) -> FinalState:
    final.jobs[jid] = final.jobs[jid].model_copy(update=changes)
    return final


def with_state(final: FinalState, jid: str, **changes: object) -> FinalState:
    return with_job(final, jid, status=final.jobs[jid].status.model_copy(update=changes))


def test_nothing_is_said_of_what_is_as_it_should_be() -> None:
    assert found(clean()) == ()


def test_a_job_that_an_operator_ended_in_its_notification_needs_no_callback() -> None:
    final = with_state(clean(), A, last_successful_status=JobState.RECORDING)
    final.calls.pop(0)

    assert found(final) == ()


def test_repetitions_with_one_identifier_are_counted_and_are_no_fault() -> None:
    final = clean()
    final.letters.append(LETTER)
    final.calls.append(final.calls[0])

    judgement = judge(DEPOSITS, {"d0": BID}, final, NONE)

    assert judgement.problems == ()
    assert (judgement.repeated.mails, judgement.repeated.callbacks) == (1, 1)


def with_reports(final: FinalState, *ends: Interface | None) -> FinalState:
    """`ends`: of each report, by which interface an operator ended it; None if it was sent."""
    entries = [BatchHistoryEntry(state=BatchState.PENDING)]
    for via in ends:
        entries.append(BatchHistoryEntry(state=BatchState.REPORTING, event=Event.SUCCEED))
        entries.append(BatchHistoryEntry(state=BatchState.FAILED, event=Event.FAIL, via=via))
    batch = final.batches[BID]
    status = batch.status.model_copy(update={"reports": len(ends)})
    final.batches[BID] = batch.model_copy(update={"history": tuple(entries), "status": status})
    return final


def test_a_report_that_an_operator_ended_may_be_missing_and_no_other() -> None:
    assert found(with_reports(clean(), None, Interface.CLI)) == ()
    (problem,) = found(with_reports(clean(), None, None))

    assert (problem.sort, problem.about) == (Category.LOST, BID)
    assert "report-2@arkline was never delivered" in problem.text


def with_hostile(final: FinalState, state: JobState, message: str) -> FinalState:
    """A batch and a job that nobody wants stored, beside the deposits."""
    bid = records.bid(2)
    batch = records.a_batch(BatchState.FAILED, StatusReport(failed_jobs=(C,)), submitter=HOSTILE)
    status = batch.status.model_copy(update={"reports": 1})
    final.batches[bid] = batch.model_copy(update={"bid": bid, "status": status})
    final.buckets[bid] = {Bucket.FAILED: {C}}
    final.queued[C] = [JobState.FAILED]
    failed = history(JobState.ESTIMATING, JobState.FAILED)
    final.jobs[C] = job(3, state, "/drip", failed, batch_id=bid, message=message, primary_id=None)
    final.letters.append(Letter(f"{bid}.report-1@arkline", "that", frozenset(), frozenset({C})))
    final.calls.append(Call(f"{C}-0", C, "FAILED"))
    return final


def test_a_hostile_deposit_has_failed_with_a_message_and_counts_as_none_of_the_deposits() -> None:
    final = with_hostile(clean(), JobState.FAILED, "the host sends too slowly")

    assert found(final) == ()
    assert {job.jid for job in final.deposited} == {A, B}


@pytest.mark.parametrize(
    ("state", "message"),
    [(JobState.FAILED, ""), (JobState.COMPLETED, "done"), (JobState.DOWNLOADING, "busy")],
)
def test_a_hostile_deposit_with_another_end_or_without_a_message_is_a_problem(
    state: JobState, message: str
) -> None:
    problems = found(with_hostile(clean(), state, message))

    assert (Category.ILLEGAL, C) in {(problem.sort, problem.about) for problem in problems}


DAMAGES: dict[str, tuple[Category, Callable[[FinalState], object]]] = {
    "a batch that is gone": (Category.LOST, lambda r: r.batches.clear()),
    "a batch that nobody submitted": (Category.DUPLICATED, lambda r: r.batches.update(other=r.batches[BID])),
    "an object without a job": (Category.LOST, lambda r: r.buckets[BID][Bucket.FAILED].clear()),
    "a job that did not end": (Category.LOST, lambda r: with_state(r, A, status=JobState.NOTIFY)),
    "a good object that failed": (Category.LOST, lambda r: with_state(r, A, status=JobState.FAILED)),
    "a bad object that completed": (Category.ILLEGAL, lambda r: with_state(r, B, status=JobState.COMPLETED)),
    "a bad object blamed on a machine": (
        Category.ILLEGAL,
        lambda r: with_state(r, B, kind=FailureKind.SYSTEM),
    ),
    "two queue entries": (Category.DUPLICATED, lambda r: r.queued[B].append(JobState.NOTIFY)),
    "a queue entry of a completed job": (Category.LEAK, lambda r: r.queued.update({A: [JobState.COMPLETED]})),
    "two buckets": (Category.DUPLICATED, lambda r: r.buckets[BID][Bucket.FAILED].add(A)),
    "a state that was left out": (
        Category.ILLEGAL,
        lambda r: with_job(r, A, history=r.jobs[A].history[:3] + r.jobs[A].history[4:]),
    ),
    "a history of another end": (Category.ILLEGAL, lambda r: with_job(r, A, history=r.jobs[A].history[:-1])),
    "an invalid store": (Category.ILLEGAL, lambda r: r.invalid.append("E092")),
    "no stored version": (Category.LOST, lambda r: r.versions.clear()),
    "two stored versions": (Category.DUPLICATED, lambda r: r.versions.append(replace(VERSION, number=2))),
    "no inventory entry": (Category.LOST, lambda r: r.entries.clear()),
    "two inventory entries": (Category.DUPLICATED, lambda r: r.entries.append(replace(VERSION, number=2))),
    "a version of a failed job": (
        Category.ILLEGAL,
        lambda r: r.versions.append(replace(VERSION, jid=B, number=2)),
    ),
    "a gap between versions": (Category.LOST, lambda r: r.versions.append(replace(VERSION, jid=B, number=3))),
    "other bytes": (Category.LOST, lambda r: r.versions[0].files.update({"producer/f.bin": "wrong"})),
    "a file that was not deposited": (Category.LOST, lambda r: _more_files(r)),
    "another ARK in storage": (Category.ILLEGAL, lambda r: _as(r, ark="ark:/99999/fk42")),
    "a local id that names another": (Category.LOST, lambda r: r.local_ids.update(mine="ark:/99999/fk42")),
    "a report that was not sent": (Category.LOST, lambda r: r.letters.clear()),
    "a report that was not made": (
        Category.DUPLICATED,
        lambda r: r.letters.append(replace(LETTER, name=f"{BID}.report-2@arkline")),
    ),
    "one report with two contents": (
        Category.DUPLICATED,
        lambda r: r.letters.append(replace(LETTER, digest="x")),
    ),
    "a report that tells a lie": (
        Category.LOST,
        lambda r: r.letters.__setitem__(0, replace(LETTER, completed=frozenset({A, B}), failed=frozenset())),
    ),
    "no callback": (Category.LOST, lambda r: r.calls.pop(0)),
    "no callback of a failure": (Category.LOST, lambda r: r.calls.pop()),
    "a callback of a failed job": (
        Category.ILLEGAL,
        lambda r: r.calls.append(Call(f"{B}-0", B, "COMPLETED")),
    ),
    "callbacks under two names": (
        Category.DUPLICATED,
        lambda r: r.calls.append(Call(f"{A}-1", A, "COMPLETED")),
    ),
    "a lock": (Category.LEAK, lambda r: r.held.append("/jobs/x/lock")),
    "a job that waits for ever": (Category.LEAK, lambda r: r.waiting.append(A)),
    "a working directory": (Category.LEAK, lambda r: r.folders.append(f"{BID}/{A}")),
    "an empty batch directory": (Category.LEAK, lambda r: r.folders.append("bid0000000009")),
    "a promise": (Category.LEAK, lambda r: r.reservations.update({A: 0})),
    "a sum that does not add up": (Category.LEAK, lambda r: setattr(r, "promised", 11)),
    "an unfinished version": (Category.LEAK, lambda r: r.leftovers.append("extensions/arkline/staging/x")),
    "a queue entry without a job": (Category.LEAK, lambda r: r.queued.update({C: [JobState.FAILED]})),
    "a job without its batch": (
        Category.LEAK,
        lambda r: r.jobs.update({C: with_bid(r.jobs[B], "bid0000000007")}),
    ),
    "an ARK that EZID does not know": (Category.LOST, lambda r: r.registered.clear()),
    "an ARK that EZID keeps reserved": (Category.LOST, lambda r: r.registered.update({ARK: "reserved"})),
    "a name at EZID of no object": (
        Category.ILLEGAL,
        lambda r: r.registered.update({"ark:/99999/fk42": "public"}),
    ),
    "a file below a mount point": (Category.LOST, lambda r: r.strays.append("/mount-points/storage-0/x")),
    "a finding of the auditor": (Category.AUDIT, lambda r: r.findings.append("/jobs/x: odd")),
}


def with_bid(job: Job, bid: str) -> Job:
    return job.model_copy(update={"bid": bid})


def delete(final: FinalState, jid: str) -> None:
    """Remove a job as an operator's delete does: its batch keeps its name."""
    del final.jobs[jid]
    final.queued.pop(jid, None)
    final.buckets[BID] = {
        name: jids - {jid} for name, jids in final.buckets[BID].items() if name is not Bucket.DELETED
    } | {Bucket.DELETED: {jid}}
    final.folders.clear()
    final.reservations.clear()
    final.promised = 0


def _more_files(final: FinalState) -> FinalState:
    more = replace(VERSION, files={**VERSION.files, "producer/g.bin": "digest"})
    final.versions[:], final.entries[:] = [more], [more]
    return final


def _as(final: FinalState, **changes: str) -> FinalState:
    final.versions[:] = [replace(VERSION, **changes)]  # type: ignore[arg-type]
    return final


@pytest.mark.parametrize("damage", DAMAGES)
def test_the_checker_sees(damage: str) -> None:
    sort, do = DAMAGES[damage]
    final = clean()
    final.versions = [replace(VERSION, files=dict(VERSION.files))]
    do(final)

    assert sort in {each.sort for each in found(final)}


def test_an_error_of_an_act_that_no_fault_explains_is_a_problem() -> None:
    broken = Problem(Category.ILLEGAL, "", "backup: KeyError")

    assert found(clean(), Acts(problems=[broken])) == (broken,)


def test_a_job_that_an_operator_deleted_may_be_absent_and_no_other_may() -> None:
    final = clean()
    delete(final, B)

    assert found(final, Acts(deleted_jobs={B: BAD.path})) == ()
    assert Category.LOST in {problem.sort for problem in found(final, NONE)}


def test_a_job_that_an_operator_deleted_leaves_nothing_behind() -> None:
    acts = Acts(deleted_jobs={B: BAD.path})
    leavings: tuple[Callable[[FinalState], object], ...] = (
        lambda r: r.queued.update({B: [JobState.FAILED]}),
        lambda r: r.reservations.update({B: 0}),
        lambda r: r.folders.append(f"{BID}/{B}"),
    )
    for leave in leavings:
        final = clean()
        delete(final, B)
        leave(final)

        assert Category.LEAK in {problem.sort for problem in found(final, acts)}


def test_a_job_whose_deletion_got_no_answer_may_be_there_as_a_whole() -> None:
    assert found(clean(), Acts(deleted_jobs={B: BAD.path})) == ()


def test_a_batch_that_an_operator_deleted_may_be_absent_with_its_jobs_and_not_without() -> None:
    acts = Acts(deleted_jobs={A: GOOD.path, B: BAD.path}, deleted_batches={BID})
    final = clean()
    delete(final, A)
    delete(final, B)
    final.batches.clear()
    final.buckets.clear()

    assert found(final, acts) == ()

    half = clean()
    half.batches.clear()
    half.buckets.clear()
    assert Category.LEAK in {problem.sort for problem in found(half, acts)}


def test_the_version_of_a_deleted_job_stays_once() -> None:
    acts = Acts(deleted_jobs={A: GOOD.path})
    final = clean()
    delete(final, A)
    final.folders[:], final.reservations, final.promised = [f"{BID}/{B}"], {B: 10}, 10

    assert found(final, acts) == ()

    final.versions.append(replace(VERSION, number=2))
    assert Category.ILLEGAL in {problem.sort for problem in found(final, acts)}


def test_a_good_object_may_fail_if_an_operator_cancelled_its_batch() -> None:
    final = clean()
    broken = with_state(final, A, status=JobState.FAILED, kind=FailureKind.SYSTEM)
    broken.versions.clear()
    broken.entries.clear()

    def lost(acts: Acts) -> list[Problem]:
        return [each for each in found(broken, acts) if each.about == A and "failed (" in each.text]

    assert lost(NONE) != []
    assert lost(Acts(cancelled={BID})) == []


def test_objects_may_have_no_job_if_an_operator_cancelled_the_split() -> None:
    final = clean()
    delete(final, B)
    final.buckets[BID] = {Bucket.COMPLETED: {A}}

    assert Category.LOST in {problem.sort for problem in found(final, NONE)}
    assert [problem for problem in found(final, Acts(cancelled={BID})) if "no job" in problem.text] == []


def test_two_jobs_of_one_local_id_are_two_versions_of_one_object() -> None:
    again = replace(GOOD, path="/again.checkm")
    deposits = [*DEPOSITS, Deposit(1.0, "d1", SubmissionType.BATCH_MANIFEST, "/more.checkm", (again,))]
    final = clean()
    later, other = records.jid(3), "bid0000000002"
    final.jobs[later] = job(3, JobState.COMPLETED, again.path, final.jobs[A].history, primary_id=ARK)
    final.jobs[later] = final.jobs[later].model_copy(update={"bid": other})
    final.batches[other] = final.batches[BID].model_copy(
        update={
            "bid": other,
            "status": final.batches[BID].status.model_copy(update={"status": BatchState.COMPLETED}),
        }
    )
    final.buckets[other] = {Bucket.COMPLETED: {later}}
    second = replace(VERSION, jid=later, number=2)
    final.versions.append(second)
    final.entries.append(second)
    final.letters.append(Letter(f"{other}.report-1@arkline", "x", frozenset({later}), frozenset()))
    final.calls.append(Call(f"{later}-0", later, "COMPLETED"))
    bids = {"d0": BID, "d1": other}

    assert judge(deposits, bids, final, Acts()).problems == ()

    final.versions[1] = final.entries[1] = replace(second, ark="ark:/99999/fk42", number=1)
    final.jobs[later] = final.jobs[later].model_copy(
        update={
            "identifiers": final.jobs[later].identifiers.model_copy(update={"primary_id": "ark:/99999/fk42"})
        }
    )
    assert Category.DUPLICATED in {each.sort for each in judge(deposits, bids, final, Acts()).problems}


def test_the_table_itself_decides_which_history_is_legal() -> None:
    final = clean()
    resumed = (
        *history(*until(JobState.RECORDING), JobState.FAILED),
        HistoryEntry(state=JobState.RECORDING, event=Event.RESUME),
        *history(*JOB.working()[1:], JobState.COMPLETED)[-2:],
    )
    with_job(final, A, history=resumed)

    assert [each for each in found(final) if each.sort is Category.ILLEGAL] == []
