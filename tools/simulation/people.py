"""The depositor and the operator of a history, with the verbs that people have."""

import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from hashlib import sha512
from itertools import count
from random import Random

from operations.deposits import resubmission, submission, uploads
from operations.deposits.resubmission import Corrections
from operations.site import Site
from operations.verbs import bulk, callbacks, collection_profiles, holds, overruling, verbs
from operations.verbs.verbs import Resumption
from pipeline.errors import ArklineError
from pipeline.file_system import sync, write_file
from pipeline.fixity import Digest
from pipeline.principal import Interface, Principal, Role
from pipeline.records import Submission, SubmissionType
from pipeline.states import BATCH, JOB, BatchState, Event, FailureKind, JobState
from pipeline.working_storage.workspace import folder_at
from tools.simulation.facts import Facts, rows_of
from tools.simulation.plan import ACTS, JOBS, LENGTH, VERBS, Plan
from tools.simulation.script import ACT, DEPOSIT, Item, Script
from tools.simulation.stand_ins import Sources
from tools.simulation.world import World
from zkstate.record import batches

DEPOSITOR = Principal(name="depositor", role=Role.DEPOSITOR, interface=Interface.API)
OPERATOR = Principal(name="operator", role=Role.OPERATOR, interface=Interface.CLI)

UPDATED, REVIEWED, PLAIN = "letters", "films", "maps"
"""Collections: one whose objects get versions, one whose objects a person approves, and one of neither."""
COLLECTIONS = {UPDATED: "new_versions: true\n", REVIEWED: "review: true\n", PLAIN: ""}
"""Name -> what its profile has besides the common part."""

LETTERS = 6
"""How many objects there are that get versions, in a collection; a deposit has each once."""

DIGEST, MISSING, CONSENT, ODD = "wrong digest", "no content", "no consent", "odd name"
"""Why an object cannot be stored as it was deposited."""

REASON = "a history"

LONGEST_WAIT, POLL = 5.0, 0.01
"""Seconds that the operator waits for something in the state of a row that is a goal, and between looks."""

_PROFILE = "http://uc3.cdlib.org/registry/ingest/manifest/mrt-single-file-batch-manifest"


def profile(name: str, plan: Plan, changes: int = 0) -> str:
    more = COLLECTIONS[name] + (f"retention_days: {0 if plan.leaves else 30}\n")
    if plan.callbacks:
        more += f"callback_url: http://{name}.receiver.example/arkline\n"
    if plan.checks:
        more += "checks: [odd-names]\n"
    return (
        f"name: {name}\nowner: ark:/99999/fk4{name}\ncollections: [ark:/99999/fk4{name}list]\n"
        f"naan: '99999'\nshoulder: fk4\nnotification: [archivist@example.org]\n{more}"
        f"description: the collection {name}, text {changes}\n"
    )


@dataclass
class Depositor:
    """Deposits objects in batches of 1 to 10, over some time, and corrects what was refused."""

    world: World
    sources: Sources
    script: Script
    plan: Plan
    facts: Facts
    left: int = JOBS
    """Objects to deposit."""
    flaws: dict[str, str] = field(default_factory=dict)
    """Name -> why it may be refused."""
    bids: list[str] = field(default_factory=list)
    bid_of: dict[str, str] = field(default_factory=dict)
    """Name -> its first batch."""
    done: bool = False
    _first: list[str] = field(default_factory=list)
    """Deposits whose failed objects were not deposited again."""
    _contents: dict[str, bytes] = field(default_factory=dict)
    """Name -> content that its source does not have yet."""
    chance: Random = field(default_factory=Random)
    """That of the present deposit."""
    _deposits: int = 0
    _next: tuple[Submission, tuple[str, ...]] | None = None
    """The deposit that is not confirmed yet, and the names of its objects; a depositor's system has it after
    a crash, too."""

    def deposit(self, site: Site, until: float) -> None:
        """Deposit what is left, then correct what was refused; what a fault ended is tried again."""
        while self.left:
            given, names = self._next = self._next or self._prepared()
            if self.script.happens(Item(DEPOSIT, self._deposits)):
                bid = self._submitted(site, given)
                self.bids.append(bid)
                self._first.append(bid)
                self.bid_of |= dict.fromkeys(names, bid)
            self.left, self._next = self.left - len(names), None
        while self.world.now < until:
            for bid in [one for one in self.facts.in_state(BatchState.FAILED) if one in self._first]:
                try:
                    self._correct(site, bid)
                except ArklineError as error:
                    self.world.note("depositor", "corrects nothing", str(error))
                else:
                    self._first.remove(bid)
            self.world.park(5.0)
        self.done = True

    def _submitted(self, site: Site, given: Submission) -> str:
        while True:
            try:
                return submission.submit(site, DEPOSITOR, given).bid
            except ArklineError as error:
                self.world.note("depositor", "tries again", str(error))
                self.world.park(3.0)

    def _prepared(self) -> tuple[Submission, tuple[str, ...]]:
        """Wait for a time that the seed chooses; then the next deposit, and the names of its objects."""
        chance = self.chance = self.script.chance(DEPOSIT, self._deposits + 1)
        self.world.park(chance.random() * LENGTH / 6)
        self._deposits += 1
        number = self._deposits
        collection = chance.choice(sorted(COLLECTIONS))
        given: dict[str, object] = {"profile_name": collection, "idempotency_key": f"deposit {number}"}
        # a depositor may consent to new versions where the collection does not
        versions = collection == UPDATED or (collection == PLAIN and chance.random() < 0.3)
        size = min(self.left, chance.randint(1, LETTERS if versions else 10))
        consents = versions and (collection == UPDATED or chance.random() < 0.8)
        letters = chance.sample(range(LETTERS), min(size, LETTERS))
        rows: list[tuple[str, str, str, Digest | None]] = []
        for one in range(size):
            name = f"d{number}-{one}{chance.choice(('', '', '-odd')) if self.plan.checks else ''}.txt"
            url, digest = self._put(name)
            if "-odd" in name:
                self.flaws.setdefault(name, ODD)
            if versions and not consents:
                self.flaws.setdefault(name, CONSENT)
            local_id = f"{collection}-{letters[one]}" if versions else f"object-{number}-{one}"
            rows.append((url, name, local_id, digest))
        given |= {"new_version": consents and collection == PLAIN}
        given |= {"priority": chance.choice((None, 0, 5, 90))}
        if size == 1:
            given |= {"type": SubmissionType.FILE, "local_id": (local_id,), "digest": digest}
        else:
            url, given["type"] = (
                self.sources.url(f"d{number}.checkm"),
                SubmissionType.SINGLE_FILE_BATCH_MANIFEST,
            )
            self.sources.content[url] = _manifest(rows).encode()
        return submission.checked({**given, "payload_url": url}), tuple(row[1] for row in rows)

    def _put(self, name: str) -> tuple[str, Digest | None]:
        """Offer the content, unless it is to be missing; returns its URL, and the digest that is declared."""
        chance = self.chance
        body = name.encode() * chance.randint(1, 2000)
        value = sha512(body).hexdigest()
        flaw = chance.choice((DIGEST, MISSING)) if chance.random() < self.plan.wrong else ""
        if flaw:
            self.flaws[name] = flaw
        declared = Digest(algorithm="sha-512", value=value[::-1]) if flaw == DIGEST else None
        if flaw == MISSING:
            self._contents[name] = body
        else:
            self.sources.put_file(name, body)
        return self.sources.url(name), declared

    def _correct(self, site: Site, bid: str) -> None:
        """Deposit again what failed by its content, and is not deposited again yet."""
        failed = resubmission.failed_objects(site, resubmission.correctable(site, DEPOSITOR, bid))
        if not failed:
            return
        for one in failed:
            if body := self._contents.pop(one.name, None):
                self.sources.put_file(one.name, body)
        upload = uploads.begin_upload(site, DEPOSITOR, f"again {bid}").id
        corrections = Corrections({}, {}, frozenset(one.jid for one in failed))
        preview = resubmission.prepare(site, DEPOSITOR, bid, upload, corrections)
        again = resubmission.deposit(site, DEPOSITOR, bid, upload, preview.type, new_version=True).bid
        if again not in self.bids:
            self.bids.append(again)


def _manifest(rows: Sequence[tuple[str, str, str, Digest | None]]) -> str:
    """`rows`: URL, name, local id and digest of each object."""
    lines = [
        f"{url} | {digest.algorithm if digest else ''} | {digest.value if digest else ''} | | | {name} | "
        f"| {local_id} | A. Maker | {name} | 2020"
        for url, name, local_id, digest in rows
    ]
    return "\n".join(("#%checkm_0.7", f"#%profile | {_PROFILE}", *lines, "#%eof", ""))


@dataclass
class Operator:
    """Raises verbs at random for some time, and then leads everything to its end."""

    world: World
    script: Script
    plan: Plan
    facts: Facts
    depositor: Depositor
    ended: dict[str, None] = field(default_factory=dict)
    """Jobs and batches that the operator tried to delete or reject."""
    chance: Random = field(default_factory=Random)
    """That of the present act."""
    _held: str = ""
    """The collection on hold."""
    _changes: int = 0

    def disturb(self, site: Site, until: float) -> None:
        """Verbs, each at a time of its own."""
        weights = self.plan.verbs
        for number in count():
            self.chance = self.script.chance(ACT, number)
            self.world.park(self.chance.random() * self.plan.pace)
            if self.world.now >= until:
                break
            (chosen,) = self.chance.choices(list(weights), list(weights.values()))
            if not self.script.happens(Item(ACT, number)):
                continue
            if chosen in ACTS:
                self._try(chosen, partial(getattr(self, chosen.replace(" ", "_")), site))
            else:
                self._raise(site, chosen)

    def finish(self, site: Site) -> None:
        """Until every batch has ended: end pauses and holds, approve, and resume what may succeed."""
        while not self._is_finished(site):
            self._try("unpause", partial(holds.unpause, site, OPERATOR))
            for name in sorted(COLLECTIONS):
                self._try("release", partial(holds.release_collection, site, OPERATOR, name))
            for state, event in _ONWARD.items():
                for jid in self.facts.in_state(state):
                    if not _is_over(self.facts.jobs[jid]):
                        self._act(site, jid, event)
            self.world.park(10.0)

    def _is_finished(self, site: Site) -> bool:
        """Whether each batch has ended, and its report is true; else the report is sent again."""
        facts = self.facts
        if not self.depositor.done or any(bid not in facts.batches for bid in self.depositor.bids):
            return False
        ended = True
        for bid, status in facts.batches.items():
            jobs = {jid: facts.jobs[jid] for jid, of in facts.bids.items() if of == bid}
            if status["status"] == BatchState.FAILED and all(map(_is_over, jobs.values())):
                failed = {jid for jid, job in jobs.items() if job["status"] == JobState.FAILED}
                if self._is_reported(site, bid, failed):
                    continue
                self._act(site, bid, Event.UPDATE_REPORT)
            ended &= status["status"] in (BatchState.COMPLETED, BatchState.DELETED)
        return ended

    def _is_reported(self, site: Site, bid: str, failed: set[str]) -> bool:
        """Whether the last report was sent, and says which jobs have failed."""
        try:
            report = batches.load(site.session, bid).report
        except ArklineError:
            return False
        return report is not None and report.mailed and set(report.failed_jobs) == failed

    def _try(self, name: str, act: Callable[[], object]) -> None:
        """A verb may be refused: the record has changed, or a server does not answer."""
        try:
            act()
        except ArklineError as error:
            self.world.note("operator", f"{name} refused", str(error))

    def _act(self, site: Site, name: str, event: Event, how: Resumption = verbs.PLAIN) -> None:
        self._try(str(event), partial(verbs.act, site, OPERATOR, name, event, reason=REASON, how=how))

    def _raise(self, site: Site, name: str) -> None:
        """Raise the event of a row on something that is in the row's state, and is as the row requires."""
        machine, row = VERBS[name]
        chance, known = self.chance, self.facts.jobs if machine is JOB else self.facts.batches
        sought = name in self.plan.sought
        until = self.world.now + (LONGEST_WAIT if sought else 0)
        while not (listed := self.facts.in_state(row.source)) and self.world.now < until:
            self.world.park(POLL)
        fit = [one for one in listed if name in rows_of(machine, known[one], row.event, row.target)]
        ends = row.event in (Event.DELETE, Event.REJECT)
        if not (fit if sought else listed) or (ends and chance.random() >= self.plan.ends):
            return
        chosen = chance.choice(fit or listed)
        if ends:
            self.ended[chosen] = None
        if machine is BATCH and row.event is Event.FAIL:
            self._cancel(site, chosen)
        else:
            self._act(site, chosen, row.event, Resumption(to=row.target if row.named else None))

    # --- what people do besides

    def pause(self, site: Site) -> None:
        holds.pause(site, OPERATOR, reason=REASON)
        self.world.park(self.chance.random() * 8)
        self._try("unpause", partial(holds.unpause, site, OPERATOR))

    def hold_a_collection(self, site: Site) -> None:
        """Hold a collection, or release the one on hold."""
        held, self._held = self._held, ""
        if held:
            holds.release_collection(site, OPERATOR, held, reason=REASON)
        else:
            self._held = self.chance.choice(sorted(COLLECTIONS))
            holds.hold_collection(site, OPERATOR, self._held, reason=REASON)

    def change_a_profile(self, site: Site) -> None:
        """Another text in a profile, which a batch that runs then gets."""
        self._changes += 1
        name = self.chance.choice(sorted(COLLECTIONS))
        file = site.settings.profiles / f"{name}.yaml"
        draft = file.with_suffix(f".{self._changes}")
        try:
            write_file(draft, profile(name, self.plan, self._changes).encode())
            sync(draft)
            draft.replace(file)
        except OSError as full:
            self.world.note("operator", "changes no profile", str(full))
            return
        for bid in self._one_of(self.facts.in_state(BatchState.PROCESSING)):
            collection_profiles.renew(site, OPERATOR, bid, reason=REASON)

    def cancel(self, site: Site) -> None:
        if self.chance.random() < self.plan.ends:
            for bid in self._one_of(list(self.facts.batches)):
                self._cancel(site, bid)

    def _cancel(self, site: Site, bid: str) -> None:
        self.ended[bid] = None
        self._try("cancel", partial(bulk.cancel, site, OPERATOR, bid, reason=REASON))

    def remove_files(self, site: Site) -> None:
        """Someone removes what was downloaded."""
        states = (JobState.DOWNLOADING, JobState.REVIEW, JobState.PROCESSING, JobState.FAILED)
        for jid in self._one_of([jid for state in states for jid in self.facts.in_state(state)]):
            folder = folder_at(site.settings.working, self.facts.bids[jid], jid)
            shutil.rmtree(folder / "producer", ignore_errors=True)

    def deliver_a_callback(self, site: Site) -> None:
        ended = (*self.facts.in_state(JobState.COMPLETED), *self.facts.in_state(JobState.FAILED))
        for jid in self._one_of(ended) if self.plan.callbacks else ():
            callbacks.deliver(site, OPERATOR, jid, reason=REASON)

    def overrule(self, site: Site) -> None:
        for jid in self._one_of(self.facts.in_state(JobState.FAILED)):
            if findings := overruling.names_in(site.session, jid):
                self._act(site, jid, Event.RESUME, Resumption(findings=findings))

    def _one_of(self, names: Sequence[str]) -> tuple[str, ...]:
        return (self.chance.choice(names),) if names else ()


def _is_over(status: dict[str, object]) -> bool:
    """Whether the job has ended, and a resumption would not help."""
    done = status["status"] in (JobState.COMPLETED, JobState.DELETED)
    return done or (status["status"] == JobState.FAILED and status.get("kind") == FailureKind.CONTENT)


_ONWARD = {JobState.HELD: Event.RELEASE, JobState.REVIEW: Event.APPROVE, JobState.FAILED: Event.RESUME}
"""State in which a job waits for a person -> the verb that leads it further."""
