"""The depositor and the operator of a history, with the verbs that people have."""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from random import Random

import operations.site
from operations.deposits import submission
from operations.verbs import holds, verbs
from pipeline.errors import ArklineError
from pipeline.principal import Interface, Principal, Role
from pipeline.records import SubmissionType
from pipeline.states import BatchState, Event, JobState
from tools.simulation.script import ACT, DEPOSIT, Item, Script
from tools.simulation.stand_ins import Sources
from tools.simulation.world import World
from zkstate.queue import queue
from zkstate.record import batches

DEPOSITOR = Principal(name="depositor", role=Role.DEPOSITOR, interface=Interface.API)
OPERATOR = Principal(name="operator", role=Role.OPERATOR, interface=Interface.CLI)

UPDATED, REVIEWED, PLAIN = "letters", "films", "maps"
"""Collections: one whose objects get versions, one whose objects a person approves, and one of neither."""
COLLECTIONS = {UPDATED: "new_versions: true\n", REVIEWED: "review: true\n", PLAIN: ""}
"""Name -> what its profile has besides the common part."""

LETTERS = 6
"""How many objects the updated collection has at most; a deposit has each once."""

_PROFILE = "http://uc3.cdlib.org/registry/ingest/manifest/mrt-single-file-batch-manifest"


def profile(name: str) -> str:
    return (
        f"name: {name}\nowner: ark:/99999/fk4{name}\ncollections: [ark:/99999/fk4{name}list]\n"
        f"naan: '99999'\nshoulder: fk4\nnotification: [archivist@example.org]\n{COLLECTIONS[name]}"
    )


@dataclass
class Depositor:
    """Deposits objects in batches of 1 to 10, over some time."""

    world: World
    sources: Sources
    script: Script
    bids: list[str] = field(default_factory=list)
    objects: int = 0
    """How many were deposited."""
    done: bool = False

    def deposit(self, site: operations.site.Site, objects: int, length: float) -> None:
        """Deposit that many objects; a refusal by a fault is tried again, as people do."""
        world = self.world
        left, number = objects, 0
        while left:
            chance = self.script.chance(DEPOSIT, number)
            world.park(chance.random() * length / 6)
            collection = chance.choice(sorted(COLLECTIONS))
            most = LETTERS if collection == UPDATED else 10
            size = min(left, chance.randint(1, most))
            if self.script.happens(Item(DEPOSIT, number)):
                self.bids.append(self._submit(site, collection, size, number, chance))
                self.objects += size
            left -= size
            number += 1
        self.done = True

    def _submit(
        self, site: operations.site.Site, collection: str, size: int, number: int, chance: Random
    ) -> str:
        names = [f"d{number}-{one}.txt" for one in range(size)]
        urls = [self._put(name, chance) for name in names]
        letters = chance.sample(range(LETTERS), min(size, LETTERS))
        local_ids = [
            f"letter-{letters[one]}" if collection == UPDATED else f"object-{number}-{one}"
            for one in range(size)
        ]
        given = {"payload_url": urls[0], "type": SubmissionType.FILE, "local_id": local_ids[:1]}
        if size > 1:
            rows = [
                f"{url} | | | | | {name} | | {local_id} | A. Maker | {name} | 2020"
                for url, name, local_id in zip(urls, names, local_ids, strict=True)
            ]
            text = "\n".join(("#%checkm_0.7", f"#%profile | {_PROFILE}", *rows, "#%eof", ""))
            manifest = self.sources.put(f"d{number}.checkm", text.encode())
            given = {"payload_url": manifest, "type": SubmissionType.SINGLE_FILE_BATCH_MANIFEST}
        key = {"profile_name": collection, "idempotency_key": f"deposit {number}"}
        deposit = submission.checked({**given, **key})
        while True:
            try:
                return submission.submit(site, DEPOSITOR, deposit).bid
            except ArklineError as error:
                self.world.note("depositor", "tries again", str(error))
                self.world.park(3.0)

    def _put(self, name: str, chance: Random) -> str:
        return self.sources.put_file(name, name.encode() * chance.randint(1, 2000))


@dataclass
class Operator:
    """Raises verbs at random for some time, and then leads everything to its end."""

    world: World
    depositor: Depositor
    script: Script
    acts: list[str] = field(default_factory=list)
    chance: Random = field(default_factory=Random)
    """That of the present act."""

    def disturb(self, site: operations.site.Site, until: float) -> None:
        """Pauses, holds, failures and resumptions, each at a time of its own."""
        for number in count():
            self.chance = self.script.chance(ACT, number)
            self.world.park(self.chance.random() * 6)
            if self.world.now >= until:
                break
            chosen = self.chance.choice(sorted(_ACTS))
            if self.script.happens(Item(ACT, number)):
                self._try(chosen, partial(_ACTS[chosen], self, site))

    def finish(self, site: operations.site.Site) -> None:
        """Until every batch is complete: end pauses and holds, approve, and resume what failed."""
        while not self._is_finished(site):
            self._try("unpause", partial(holds.unpause, site, OPERATOR))
            for name in sorted(COLLECTIONS):
                self._try("release", partial(holds.release_collection, site, OPERATOR, name))
            for state, event in _ONWARD.items():
                for jid in self._queued(site, state):
                    self._act(site, jid, event)
            self.world.park(10.0)

    def _is_finished(self, site: operations.site.Site) -> bool:
        if not self.depositor.done:
            return False
        try:
            loaded = [batches.load(site.session, bid) for bid in self.depositor.bids]
        except ArklineError:
            return False
        for batch in loaded:
            if batch.status.status is BatchState.FAILED and not self._queued(site, JobState.FAILED):
                self._act(site, batch.bid, Event.UPDATE_REPORT)
        return all(batch.status.status is BatchState.COMPLETED for batch in loaded)

    def _queued(self, site: operations.site.Site, state: JobState) -> list[str]:
        try:
            return list(queue.queued(site.session, state))
        except ArklineError:
            return []

    def _try(self, name: str, act: Callable[[], object]) -> None:
        """A verb may be refused: the record has changed, or a server does not answer."""
        try:
            act()
        except ArklineError as error:
            self.world.note("operator", f"{name} refused", str(error))
        else:
            self.acts.append(name)

    def _act(self, site: operations.site.Site, name: str, event: Event) -> None:
        self._try(str(event), partial(verbs.act, site, OPERATOR, name, event, reason="a history"))

    # --- what disturbs

    def pause(self, site: operations.site.Site) -> None:
        holds.pause(site, OPERATOR, reason="a history")
        self.world.park(self.chance.random() * 8)
        self._try("unpause", partial(holds.unpause, site, OPERATOR))

    def hold(self, site: operations.site.Site) -> None:
        collection = self.chance.choice(sorted(COLLECTIONS))
        holds.hold_collection(site, OPERATOR, collection, reason="a history")
        self.world.park(self.chance.random() * 8)
        self._try("release", partial(holds.release_collection, site, OPERATOR, collection))

    def fail_one(self, site: operations.site.Site) -> None:
        state = self.chance.choice((JobState.DOWNLOADING, JobState.PROCESSING, JobState.PENDING))
        for jid in self._queued(site, state)[:1]:
            self._act(site, jid, Event.FAIL)

    def hold_one(self, site: operations.site.Site) -> None:
        for jid in self._queued(site, JobState.PENDING)[:1]:
            self._act(site, jid, Event.HOLD)

    def download_again(self, site: operations.site.Site) -> None:
        for jid in self._queued(site, JobState.FAILED)[:1]:
            self._act(site, jid, Event.DOWNLOAD_AGAIN)

    def resume(self, site: operations.site.Site) -> None:
        for jid in self._queued(site, JobState.FAILED):
            self._act(site, jid, Event.RESUME)

    def approve(self, site: operations.site.Site) -> None:
        for jid in self._queued(site, JobState.REVIEW):
            self._act(site, jid, Event.APPROVE)


_ONWARD = {
    JobState.HELD: Event.RELEASE,
    JobState.REVIEW: Event.APPROVE,
    JobState.FAILED: Event.RESUME,
}
"""State in which a job waits for a person -> the verb that leads it further."""

_ACTS: dict[str, Callable[[Operator, operations.site.Site], None]] = {
    "pause": Operator.pause,
    "hold": Operator.hold,
    "fail": Operator.fail_one,
    "hold a job": Operator.hold_one,
    "download again": Operator.download_again,
    "resume": Operator.resume,
    "approve": Operator.approve,
}
