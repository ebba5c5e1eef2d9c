"""What a storm must not leave behind: in the record, in working storage, and in storage."""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from hashlib import sha512
from pathlib import Path

from pipeline.settings import Settings
from pipeline.states import JobState
from zkstate import paths
from zkstate.care.audit import audit
from zkstate.connection import locks
from zkstate.connection.session import Session
from zkstate.fleet import hosts
from zkstate.fleet.hosts import connection_holders
from zkstate.queue import queue
from zkstate.record import jobs, space

FORGOTTEN_MS = 2 * 3600 * 1000
"""Two hours: longer than any pause of a host."""


def unused_hosts(session: Session) -> list[str]:
    """Nodes of hosts without connections and without a pause."""
    return [
        f"the node of host {name}"
        for name in hosts.known_pauses(session)
        if not session.get(paths.host(name))[0] and not connection_holders(session, name)
    ]


def of_record(session: Session) -> list[str]:
    """Queue entries, locks, connections, and what the audit finds."""
    with locks.single_flight(session, "storm") as clock:
        assert clock is not None, "nobody else takes this lock"
        hosts.remove_unused(session, replace(clock, read_ms=clock.read_ms + FORGOTTEN_MS))
    counts = queue.counts(session)
    return [
        *(f"{finding}" for finding in audit(session)),
        *(f"{count} jobs in {state}" for state, count in counts.items() if count and state in _AT_WORK),
        *(f"a job that waits: {jid}" for jid in session.children(paths.WAITING)),
        *(f"two hours later, the node of host {name}" for name in hosts.known_pauses(session)),
        *(f"a callback: {name}" for name in session.children(paths.CALLBACKS)),
    ]


_AT_WORK = frozenset(JobState) - {JobState.FAILED, JobState.DELETED}


def of_working_storage(session: Session, working: Path) -> list[str]:
    """Folders and reservations of jobs that have not failed; failed ones keep theirs until deleted."""

    def failed(jid: str) -> bool:
        return jobs.load(session, jid).status.status is JobState.FAILED

    return [
        *(f"the folder {folder.name}" for folder in working.glob("bid*/jid*") if not failed(folder.name)),
        *(f"a reservation of {jid}" for jid in space.reservations(session) if not failed(jid)),
    ]


def at_the_end(session: Session, working: Path) -> list[str]:
    """What is left after an operator has deleted the failed jobs: nothing is allowed."""
    promised = space.promised(session).bytes
    return [
        *(f"{size} bytes of {path}" for path, size in _files(working)),
        *(f"a reservation of {jid}" for jid in space.reservations(session)),
        *([f"{promised} promised bytes of working storage"] if promised else []),
    ]


def _files(working: Path) -> Iterator[tuple[Path, int]]:
    for path in working.glob("bid*/**/*"):
        if path.is_file():
            yield path, path.stat().st_size


def of_storage(settings: Settings, honest: Iterable[str]) -> list[str]:
    """Files of honest deposits missing from storage, and files of others that are in it."""
    stored = {
        sha512(path.read_bytes()).hexdigest(): path
        for path in settings.storage.rglob("v*/content/producer/**/*")
        if path.is_file()
    }
    expected = set(honest)
    return [
        *(f"no honest file in storage: {digest}" for digest in sorted(expected - stored.keys())),
        *(f"a foreign file in storage: {stored[digest]}" for digest in sorted(stored.keys() - expected)),
    ]
