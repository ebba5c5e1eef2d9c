"""The record of a job, as its step reads and writes it: pipeline.attempt.JobRecord in ZooKeeper."""

from collections.abc import Mapping
from contextlib import AbstractContextManager

from pipeline.attempt import Attempt, NameAfter
from pipeline.outcome import AttemptOver, Promised
from pipeline.records import Identifiers, Job, Submission
from zkstate import codec, paths
from zkstate.connection import locks
from zkstate.connection.session import Session
from zkstate.connection.transaction import Check, Operation, Put, Role, commit
from zkstate.errors import Ambiguous, Contended, Stale
from zkstate.fleet import holds
from zkstate.record import space


class ZooKeeperJobRecord:
    """A job's record, fenced by the version that its status got when this attempt acquired the job."""

    def __init__(self, session: Session, attempt: Attempt) -> None:
        self._session = session
        self._attempt = attempt
        self._identifiers: Identifiers | None = None
        self._in_doubt = False
        """Whether the answer to a write of the identifiers was lost."""
        self._space_needed: int | None = None

    def with_changes(self, job: Job) -> Job:
        """The job with identifiers and space needed as this attempt has read or written them."""
        known = {"identifiers": self._identifiers, "space_needed": self._space_needed}
        changes = {name: value for name, value in known.items() if value is not None}
        return job.model_copy(update=changes) if changes else job

    def identifiers(self, job: Job) -> Identifiers:
        """The identifiers that this attempt wrote, or those it acquired the job with (`record.acquire`)."""
        if self._in_doubt:
            self._identifiers = self._read_identifiers(job)
            self._in_doubt = False
        return job.identifiers if self._identifiers is None else self._identifiers

    def _read_identifiers(self, job: Job) -> Identifiers:
        path = paths.identifiers(job.jid)
        return codec.decode(Identifiers, self._session.get_synced(path)[0], path)

    def write_identifiers(self, job: Job, identifiers: Identifiers) -> None:
        put = Put(paths.identifiers(job.jid), codec.encode(identifiers))
        while True:
            try:
                self._commit(job, put)
            except Ambiguous:
                self._attempt.check()
                if self._read_identifiers(job) != identifiers:
                    continue
            self._identifiers = identifiers
            return

    def mint(
        self, job: Job, counter: str, name_after: NameAfter, identifiers: Identifiers | None = None
    ) -> str:
        """Take a number and write the identifier in one transaction: no number is lost or assigned twice."""
        path = paths.counter(f"ark-{counter}")
        while True:
            self._attempt.check()
            known = self.identifiers(job)
            if known.primary_id:
                return known.primary_id
            node = self._session.find(path)
            if node is None:
                self._session.ensure_node(path, codec.encode_int(0))
                continue
            data, stat = node
            number, ark = name_after(codec.decode_int(data, path))
            minted = (identifiers or known).model_copy(update={"primary_id": ark})
            try:
                self._commit(
                    job,
                    Put(path, codec.encode_int(number), stat.version, Role.SHARED),
                    Put(paths.identifiers(job.jid), codec.encode(minted)),
                )
            except Contended:
                continue  # another job took the number
            except Ambiguous:
                self._in_doubt = True
                continue
            self._identifiers = minted
            return ark

    def _commit(self, job: Job, *operations: Operation) -> None:
        try:
            commit(self._session, (Check(paths.job_status(job.jid), job.version), *operations))
        except Stale as lost:
            raise AttemptOver(f"another attempt has taken over {job.jid}") from lost

    def agreed_versions(self, job: Job) -> Mapping[str, int]:
        path = paths.submission(job.bid)
        return codec.decode(Submission, self._session.get(path)[0], path).new_version_of

    def exclusive(self, kind: str, name: str) -> AbstractContextManager[None]:
        return locks.exclusive(self._session, kind, name, self._attempt)

    def collection_held(self, profile_name: str) -> bool:
        return holds.is_held(self._session, profile_name)

    def promised(self) -> Promised:
        return space.promised(self._session)

    def reserve(self, job: Job, needed: int, counted: Promised) -> bool:
        enlarged = space.replace(self._session, job.jid, needed, counted)
        try:
            self._commit(job, *enlarged, Put(paths.space_needed(job.jid), codec.encode_int(needed)))
        except (Contended, Ambiguous):  # after a lost answer, the same reservation is made again
            return False
        self._space_needed = needed
        return True

    @property
    def working_storage(self) -> space.WorkingStorage:
        return space.WorkingStorage(self._session)

    def fence(self, job: Job) -> None:
        """Raise AttemptOver unless this attempt still owns the job, according to ZooKeeper's leader."""
        if self._session.get_synced(paths.job_status(job.jid))[1].version != job.version:
            raise AttemptOver(f"another attempt has taken over {job.jid}")
        self._attempt.check()  # the session may have ended while the leader was asked
