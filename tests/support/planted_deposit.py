"""A deposit whose objects are stored, failed, waiting and deleted."""

from pipeline.attempt import UNATTENDED
from pipeline.inventory.sql import open_inventory
from pipeline.principal import Role
from pipeline.states import Event, FailureKind, JobState
from tests.support import planting
from tests.support.recordings import recording
from tests.support.web import Web
from zkstate.connection.session import Session
from zkstate.queue.job_record import ZooKeeperJobRecord
from zkstate.record import batches, jobs
from zkstate.record.batches import BatchMove
from zkstate.record.record import Lock, hand_back

NAME = "Nachlass Müller 1911"


def to(session: Session, jid: str, state: JobState, kind: FailureKind = FailureKind.SYSTEM) -> None:
    """Move the pending job to `state`."""
    for row in planting.any_way_to(state):
        if jobs.load(session, jid).status.status is JobState.PROCESSING:
            held = planting.acquire(session, jobs.load(session, jid))
            named = held.identifiers.model_copy(update={"primary_id": ark_of(jid)})
            ZooKeeperJobRecord(session, UNATTENDED).write_identifiers(held, named)
            hand_back(session, held, "test")
        planting.apply_event(session, jobs.load(session, jid), row.event, kind)


def ark_of(jid: str) -> str:
    return f"ark:/99999/fk4{jid[3:]}"


def planted(web: Web, session: Session) -> tuple[str, list[str]]:
    """A deposit with an object that is stored, one that failed, one that waits and one that was deleted."""
    submitted = {"deposit_name": NAME, "owner": "token:dora"}
    bid, jids = planting.split_batch_of(session, submitted, 4, erc_what="Hafen", local_id=("MUE-1",))
    to(session, jids[0], JobState.COMPLETED)
    key = jobs.load(session, jids[0]).configuration.key
    version = recording(ark_of(jids[0]), jid=jids[0], bid=bid, key=key)
    open_inventory(web.context.settings.inventory).record(version)
    to(session, jids[1], JobState.FAILED, FailureKind.CONTENT)
    to(session, jids[3], JobState.FAILED)
    operator = web.caller(Role.OPERATOR, name=f"olga-{bid}")
    assert operator.post(f"/v1/jobs/{jids[3]}/delete", {"reason": "deposited twice"}).status_code == 200
    return bid, jids


def end(session: Session, bid: str, *events: Event) -> None:
    """Move the batch in processing, whose jobs have ended."""
    batch = batches.load(session, bid)
    for event in events:
        batch = batches.move(session, batch, BatchMove(event, "test", lock=Lock.FREE))
