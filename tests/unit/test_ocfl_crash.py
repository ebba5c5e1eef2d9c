"""Writers that die or stop at any moment: real processes, real signals."""

import os
import signal
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from pipeline.outcome import AttemptOver, Later, StepFailed, WaitKind
from pipeline.records import SubmissionMode
from pipeline.storage.ocfl import disk
from tests.support.ocfl_fixture import OcflFixture, assert_valid, fork, memory

EFFECTS = {"open", "os.mkdir", "os.rename", "os.remove", "os.rmdir", "fcntl.flock"}
"""Audit events of what a writer does to the file system."""

SURVIVED, REFUSED, DIED = 0, 3, 9


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    with memory(tmp_path) as found:
        yield found


@pytest.fixture
def depot(folder: Path) -> OcflFixture:
    return OcflFixture(folder, lock_wait=20)


def writer(
    depot: OcflFixture, jid: str, text: str, before_effect: Callable[[int], None], mode: str = "add"
) -> int:
    """Fork a process that stores, and that calls `before_effect` with the number of each effect."""
    request = depot.request(jid, {"producer/a.txt": text, "producer/kept.txt": "kept"}, SubmissionMode(mode))
    child = fork()
    if child:
        return child
    number = 0
    inside = str(depot.folder)

    def watch(event: str, arguments: tuple[object, ...]) -> None:
        nonlocal number
        if event not in EFFECTS or (event != "fcntl.flock" and inside not in str(arguments[:2])):
            return
        if event == "open" and arguments[1] is not None and not set(str(arguments[1])) & set("xwa+"):
            return
        number += 1
        before_effect(number)

    code = 1
    try:
        sys.addaudithook(watch)
        depot.storage.store(request, lambda: None)
        code = SURVIVED
    except (StepFailed, AttemptOver, Later):  # Later: its lock file was replaced while it was stopped
        code = REFUSED
    finally:
        os._exit(code)


def outcome(child: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def die_at(effect: int) -> Callable[[int], None]:
    def before(number: int) -> None:
        if number == effect:
            os._exit(DIED)

    return before


def stop_at(effect: int) -> Callable[[int], None]:
    def before(number: int) -> None:
        if number == effect:
            os.kill(os.getpid(), signal.SIGSTOP)

    return before


def stopped(child: int) -> bool:
    """Wait until the child stops or ends; whether it stopped."""
    _, status = os.waitpid(child, os.WUNTRACED)
    return os.WIFSTOPPED(status)


def each_moment(folder: Path, prepare: Callable[[OcflFixture], None]) -> Iterator[tuple[OcflFixture, int]]:
    """A depot for every effect of storing jid2 in it, in the order of the effects."""
    first = OcflFixture(folder / "first")
    prepare(first)
    reader, pipe = os.pipe()

    def count(number: int) -> None:
        os.write(pipe, b".")

    assert outcome(writer(first, "jid2", "two", count)) == SURVIVED
    os.close(pipe)
    with os.fdopen(reader, "rb") as stream:
        effects = len(stream.read())
    assert effects > 10
    for effect in range(1, effects + 1):
        depot = OcflFixture(folder / str(effect), lock_wait=20)
        prepare(depot)
        yield depot, effect


def nothing(depot: OcflFixture) -> None:
    del depot


def one_version(depot: OcflFixture) -> None:
    depot.store("jid1", {"producer/a.txt": "one", "producer/kept.txt": "kept"})


@pytest.mark.parametrize("chunk", [disk.COPY_CHUNK, 1])
@pytest.mark.parametrize("prepare", [nothing, one_version])
def test_a_writer_that_dies_at_any_moment_is_made_good_by_its_next_attempt(
    folder: Path, prepare: Callable[[OcflFixture], None], chunk: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(disk, "COPY_CHUNK", chunk)
    before = ["jid1"] if prepare is one_version else []
    for depot, effect in each_moment(folder, prepare):
        assert outcome(writer(depot, "jid2", "two", die_at(effect))) == DIED

        stored = depot.store("jid2", {"producer/a.txt": "two", "producer/kept.txt": "kept"})

        assert depot.jobs() == [*before, "jid2"]
        depot.storage.verify(stored)
        assert_valid(depot)
        assert [path for path in depot.leftovers() if path.parent.name != "locks"] == root_drafts(depot)


@pytest.mark.parametrize("prepare", [nothing, one_version])
def test_a_writer_that_dies_at_any_moment_does_not_harm_the_next_job(
    folder: Path, prepare: Callable[[OcflFixture], None]
) -> None:
    before = ["jid1"] if prepare is one_version else []
    for depot, effect in each_moment(folder, prepare):
        assert outcome(writer(depot, "jid2", "two", die_at(effect))) == DIED

        depot.store("jid3", {"producer/c.txt": "three"}, SubmissionMode.UPDATE)

        assert depot.jobs() in ([*before, "jid3"], [*before, "jid2", "jid3"])
        assert depot.names(len(depot.jobs())) >= {"producer/c.txt"}
        assert_valid(depot)


def test_a_new_object_is_whole_or_absent_whenever_its_writer_dies(folder: Path) -> None:
    for depot, effect in each_moment(folder, lambda depot: one_other(depot)):
        assert outcome(writer(depot, "jid2", "two", die_at(effect))) == DIED
        assert_valid(depot, objects=2 if depot.object().exists() else 1)


def one_other(depot: OcflFixture) -> None:
    depot.store("jid1", {"producer/a.txt": "one"}, ark="ark:/99999/other")


def root_drafts(depot: OcflFixture) -> list[Path]:
    """Left by a writer that died while it made the storage root itself; that happens once in its life."""
    return list(depot.folder.glob("extensions/arkline/staging/draft-*"))


def test_a_paused_writer_that_continues_late_changes_nothing(folder: Path) -> None:
    went_on = 0
    waited: list[Later] = []
    for depot, effect in each_moment(folder, one_version):
        depot.storage.lock_wait = 0.1
        zombie = writer(depot, "jid2", "two", stop_at(effect))
        assert stopped(zombie)
        try:
            depot.store("jid2", {"producer/a.txt": "two", "producer/kept.txt": "kept"})
            depot.store("jid3", {"producer/c.txt": "three"}, SubmissionMode.UPDATE)
            went_on += 1
        except Later as failed:
            waited.append(failed)
        before = (depot.object() / "inventory.json").read_bytes(), depot.jobs()
        os.kill(zombie, signal.SIGCONT)
        assert outcome(zombie) in (SURVIVED, REFUSED)

        if before[1][-1] == "jid3":
            assert ((depot.object() / "inventory.json").read_bytes(), depot.jobs()) == before
        else:
            depot.store("jid2", {"producer/a.txt": "two", "producer/kept.txt": "kept"})
            assert depot.jobs() == ["jid1", "jid2"]
        assert_valid(depot)
    assert went_on > 3
    # Stopped with the object's lock in its hands, it lets nobody else publish.
    assert len(waited) > 3
    assert {failed.kind for failed in waited} == {WaitKind.OBJECT}
    assert all("another process has been writing" in failed.message for failed in waited)


def test_a_stopped_writer_keeps_the_object_until_it_is_killed(depot: OcflFixture) -> None:
    one_version(depot)
    locked = False

    def stop_with_lock(number: int) -> None:
        nonlocal locked
        if next(depot.folder.glob("extensions/arkline/locks/*"), None) is not None and not locked:
            locked = True
            return
        if locked:
            os.kill(os.getpid(), signal.SIGSTOP)

    zombie = writer(depot, "jid2", "two", stop_with_lock)
    assert stopped(zombie)
    with ThreadPoolExecutor(1) as thread:
        waiting = thread.submit(depot.store, "jid3", {"producer/c.txt": "three"})
        os.kill(zombie, signal.SIGKILL)
        outcome(zombie)
        assert waiting.result(timeout=20).number == 2

    assert depot.jobs() == ["jid1", "jid3"]
    assert_valid(depot)
