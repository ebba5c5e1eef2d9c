"""Checks storage, inventory and EZID against the jobs and the deposits."""

from collections import defaultdict
from collections.abc import Iterator

from pipeline.records import Job
from pipeline.states import JobState
from tools.chaos.acts import Acts
from tools.chaos.deposits import DepositedObject
from tools.chaos.final_state import FinalState, Stored
from tools.chaos.problem import Category, Problem


def check_stored(final: FinalState, objects: dict[str, DepositedObject], acts: Acts) -> Iterator[Problem]:
    """Check that each completed job has one stored version and one entry, both with the deposited bytes.

    An operator may have stopped or deleted a job whose version was already stored: the version stays.
    """
    for complaint in final.invalid:
        yield Problem(Category.ILLEGAL, "", f"the storage root is not valid OCFL: {complaint}")
    yield from _numbered(final)
    by_job: dict[str, list[Stored]] = defaultdict(list)
    entered: dict[str, list[Stored]] = defaultdict(list)
    for version in final.versions:
        by_job[version.jid].append(version)
    for entry in final.entries:
        entered[entry.jid].append(entry)
    for jid in by_job.keys() | entered.keys():
        job = final.jobs.get(jid)
        if jid in acts.deleted_jobs and len(by_job[jid]) < 2 and len(entered[jid]) < 2:
            continue
        if job is None or job.status.status is not JobState.COMPLETED:
            yield Problem(Category.ILLEGAL, jid, "is stored or in the inventory, but not a completed job")
    for jid, job in final.jobs.items():
        if job.status.status is JobState.COMPLETED and jid in objects:
            yield from _one_version(job, objects[jid], by_job[jid], entered[jid])


def _numbered(final: FinalState) -> Iterator[Problem]:
    numbers: dict[str, list[int]] = defaultdict(list)
    for version in final.versions:
        numbers[version.ark].append(version.number)
    for ark, existing in numbers.items():
        if sorted(existing) != list(range(1, len(existing) + 1)):
            yield Problem(Category.LOST, "", f"{ark} has the versions {sorted(existing)}")


def _one_version(
    job: Job, deposited: DepositedObject, stored: list[Stored], entered: list[Stored]
) -> Iterator[Problem]:
    for what, versions in (("stored", stored), ("in the inventory", entered)):
        if not versions:
            yield Problem(Category.LOST, job.jid, f"is completed, but not {what}")
        elif len(versions) > 1:
            yield Problem(Category.DUPLICATED, job.jid, f"is {len(versions)} times {what}")
    if not stored or not entered:
        return
    if stored[0] != entered[0]:
        yield Problem(Category.ILLEGAL, job.jid, "storage and inventory differ")
    if stored[0].ark != job.identifiers.primary_id:
        yield Problem(
            Category.ILLEGAL, job.jid, f"is {job.identifiers.primary_id}, but stored as {stored[0].ark}"
        )
    stored_files = {
        path.removeprefix("producer/"): digest
        for path, digest in stored[0].files.items()
        if path.startswith("producer/")
    }
    wrong = [name for name, allowed in deposited.files.items() if stored_files.get(name) not in allowed]
    if wrong or stored_files.keys() != deposited.files.keys():
        names = ", ".join(sorted({*wrong, *(stored_files.keys() ^ deposited.files.keys())}))
        yield Problem(Category.LOST, job.jid, f"its stored files are not those deposited: {names}")


def check_identifiers(final: FinalState, objects: dict[str, DepositedObject]) -> Iterator[Problem]:
    """Check for one ARK per object, and one object per ARK."""
    arks: dict[str, set[str]] = defaultdict(set)
    owners: dict[str, set[str]] = defaultdict(set)
    for jid, deposited in objects.items():
        ark = final.jobs[jid].identifiers.primary_id
        if final.jobs[jid].status.status is not JobState.COMPLETED:
            continue
        arks[deposited.local_id or jid].add(str(ark))
        owners[str(ark)].add(deposited.local_id or jid)
        if deposited.local_id and final.local_ids.get(deposited.local_id) != ark:
            named_ark = final.local_ids.get(deposited.local_id)
            text = f"its local id {deposited.local_id} names {named_ark}, not {ark}"
            yield Problem(Category.LOST, jid, text)
    for name, several in arks.items():
        if len(several) > 1:
            yield Problem(Category.DUPLICATED, "", f"{name} has the ARKs {sorted(several)}")
    for ark, named in owners.items():
        if len(named) > 1:
            yield Problem(Category.DUPLICATED, "", f"{ark} names the objects {sorted(named)}")


def check_registered(final: FinalState, acts: Acts) -> Iterator[Problem]:
    """Check that EZID knows the ARK of every stored object as public, and no other name.

    A job that an operator fails and deletes while it waits for EZID may leave a reserved name there.
    """
    stored = {version.ark for version in final.versions}
    for ark in sorted(stored):
        if final.registered.get(ark) != "public":
            yield Problem(Category.LOST, "", f"{ark} is {final.registered.get(ark)} at EZID")
    given_up = {ark for ark, jid in final.minted.items() if jid in acts.deleted_jobs}
    reserved = {ark for ark, state in final.registered.items() if state == "reserved"}
    for ark in sorted(final.registered.keys() - stored - (given_up & reserved)):
        yield Problem(Category.ILLEGAL, "", f"EZID knows {ark}, which names no stored object")
