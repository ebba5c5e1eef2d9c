"""Writers at once, damage that is found, and a disk that is full."""

import os
import resource
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import FrameType

import pytest
from ocfl import StorageRoot

from pipeline import attempt
from pipeline.outcome import DamagedObject, StepFailed
from pipeline.records import SubmissionMode
from pipeline.states import FailureKind
from pipeline.storage.ocfl import disk
from pipeline.storage.ocfl.objects import SIDECAR, sidecar
from tests.support.ocfl_fixture import ARK, OcflFixture, assert_valid, fork, memory
from tests.support.requirements import unavailable
from tests.support.stores import rewrite


@pytest.fixture
def depot(tmp_path: Path) -> Iterator[OcflFixture]:
    with memory(tmp_path) as folder:
        yield OcflFixture(folder, lock_wait=20)


def test_what_was_stored_verifies(depot: OcflFixture) -> None:
    depot.store("jid1", {"producer/a.txt": "a", "producer/empty": ""})

    depot.storage.verify(depot.store("jid2", {"producer/b.txt": "b"}, SubmissionMode.UPDATE))


def test_a_copy_that_reads_back_with_other_bytes_is_not_published(
    depot: OcflFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attempt, "CHECK_INTERVAL", 0.0)  # the fence is asked between copying and reading back
    request = depot.request("jid1", {"producer/a.txt": "abc"})

    def damage_the_copy() -> None:
        for copy in depot.folder.glob("extensions/arkline/staging/*/version/content/producer/a.txt"):
            copy.chmod(0o600)
            copy.write_text("abd")

    with pytest.raises(StepFailed, match=r"a\.txt.* read back from the disk with other bytes") as failed:
        depot.storage.store(request, damage_the_copy)

    assert failed.value.kind is FailureKind.TRANSIENT
    assert not depot.object().exists()
    depot.storage.verify(depot.store("jid1", {"producer/a.txt": "abc"}))


def test_a_large_file_is_read_back_chunk_by_chunk(
    depot: OcflFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(disk, "COPY_CHUNK", 10_000)
    monkeypatch.setattr(disk, "READ_CHUNK", 3_000)
    texts = {f"producer/{size}.txt": "x" * size for size in (10_000, 10_001, 20_000, 47_000)}

    stored = depot.store("jid1", texts)

    depot.storage.verify(stored)
    assert {path: (depot.object() / "v1/content" / path).read_text() for path in texts} == texts


def test_a_large_copy_that_reads_back_with_other_bytes_is_not_published(
    depot: OcflFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(disk, "COPY_CHUNK", 4)
    monkeypatch.setattr(attempt, "CHECK_INTERVAL", 0.0)  # the fence is asked after each chunk
    request = depot.request("jid1", {"producer/a.txt": "abcdefgh"})

    def damage_the_copy() -> None:
        for copy in depot.folder.glob("extensions/arkline/staging/*/version/content/producer/a.txt"):
            copy.chmod(0o600)
            with copy.open("r+b") as file:
                file.seek(copy.stat().st_size - 1)
                file.write(b"X")

    with pytest.raises(StepFailed, match=r"a\.txt.* read back from the disk with other bytes") as failed:
        depot.storage.store(request, damage_the_copy)

    assert failed.value.kind is FailureKind.TRANSIENT
    assert not depot.object().exists()


def test_a_large_source_that_changed_is_named(depot: OcflFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(disk, "COPY_CHUNK", 4)
    request = depot.request("jid1", {"producer/a.txt": "abcdefgh"})
    request.files[0].source.write_text("abcdefgX")

    with pytest.raises(StepFailed, match=r"a\.txt changed after it was downloaded"):
        depot.storage.store(request, lambda: None)

    assert not depot.object().exists()


def test_a_version_is_read_back_by_the_attempt_that_publishes_it(depot: OcflFixture) -> None:
    stored = depot.store("jid1", {"producer/a.txt": "a"})
    again = depot.store("jid1", {"producer/a.txt": "a"})

    assert stored.verified is not None
    assert again == stored
    assert again.verified is None


def test_each_file_and_folder_of_a_new_object_is_synced_once(depot: OcflFixture) -> None:
    depot.store("jid1", {"producer/a.txt": "a"}, ark="ark:/99999/other")  # makes the root
    synced: list[tuple[int, int]] = []

    def note(frame: FrameType, event: str, called: object) -> None:
        if event == "c_call" and called is os.fsync:
            facts = os.fstat(frame.f_locals["descriptor"])
            synced.append((facts.st_dev, facts.st_ino))

    threading.setprofile(note)
    sys.setprofile(note)
    try:
        depot.store("jid2", {"producer/b.txt": "b"})
    finally:
        sys.setprofile(None)
        threading.setprofile(None)

    # the file, two inventories with their sidecars, the declaration; its folders, those above, the root
    assert len(synced) == len(set(synced)) == 6 + 4 + 3 + 1


@pytest.mark.parametrize(("damage", "says"), [("c", "sha512"), ("cc", "2 bytes, not 1"), (None, "missing")])
def test_verifying_names_the_file_that_is_damaged(depot: OcflFixture, damage: str | None, says: str) -> None:
    stored = depot.store("jid1", {"producer/a.txt": "a", "producer/b.txt": "b"})
    path = depot.object() / "v1/content/producer/b.txt"
    path.unlink()
    if damage:
        path.write_text(damage)

    with pytest.raises(StepFailed, match=rf"producer/b\.txt.*{says}") as failed:
        depot.storage.verify(stored)
    assert failed.value.kind is FailureKind.SYSTEM


def test_a_damaged_earlier_copy_is_not_trusted_with_the_bytes(depot: OcflFixture) -> None:
    depot.store("jid1", {"producer/a.txt": "a"})
    path = depot.object() / "v1/content/producer/a.txt"
    rewrite(path, b"b")

    with pytest.raises(StepFailed, match=r"v1/content/producer/a\.txt is damaged"):
        depot.store("jid2", {"producer/a.txt": "a"})
    assert not (depot.object() / "v2").exists()


def test_a_damaged_inventory_is_reported_with_the_remedy(depot: OcflFixture) -> None:
    depot.store("jid1", {"producer/a.txt": "a"})
    (depot.object() / "inventory.json").write_text("{")

    with pytest.raises(StepFailed, match=r"inventory\.json is damaged.*restore it"):
        depot.store("jid2", {"producer/b.txt": "b"})


def test_a_folder_with_other_content_does_not_become_a_storage_root(depot: OcflFixture) -> None:
    depot.folder.mkdir()
    (depot.folder / "thesis.doc").touch()

    with pytest.raises(StepFailed, match=r"contains 'thesis\.doc'.*ARKLINE_STORAGE_ROOT"):
        depot.store("jid1", {"producer/a.txt": "a"})


def test_a_root_with_another_layout_is_refused(depot: OcflFixture) -> None:
    StorageRoot(root=str(depot.folder), layout_name="0002-flat-direct-storage-layout").initialize(
        spec_version="1.1"
    )

    with pytest.raises(StepFailed, match="does not have arkline's layout"):
        depot.store("jid1", {"producer/a.txt": "a"})


def test_twenty_jobs_at_once_make_twenty_versions(depot: OcflFixture) -> None:
    ready = threading.Barrier(20)

    def store(number: int) -> int:
        ready.wait()
        files = {"producer/own.txt": f"{number}", f"producer/{number}.txt": "same everywhere"}
        return depot.store(f"jid{number}", files, SubmissionMode.UPDATE).number

    with ThreadPoolExecutor(20) as threads:
        numbers = sorted(threads.map(store, range(20)))

    assert numbers == list(range(1, 21))
    assert depot.names(20) == {"producer/own.txt"} | {f"producer/{number}.txt" for number in range(20)}
    assert_valid(depot)
    assert depot.leftovers() == []


def test_many_new_objects_at_once_share_the_folders_above_them(depot: OcflFixture) -> None:
    ready = threading.Barrier(16)

    def store(number: int) -> None:
        ready.wait()
        for each in range(5):
            depot.store(f"jid{number}x{each}", {"producer/a.txt": "a"}, ark=f"ark:/99999/{number}-{each}")

    with ThreadPoolExecutor(16) as threads:
        list(threads.map(store, range(16)))

    assert_valid(depot, objects=80)
    assert depot.leftovers() == []


def test_an_invalid_unfinished_version_is_moved_to_quarantine(depot: OcflFixture) -> None:
    depot.store("jid1", {"producer/a.txt": "a"})
    (depot.object() / "v2" / "content").mkdir(parents=True)
    (depot.object() / "v2" / "content" / "stray").write_text("?")

    assert depot.store("jid2", {"producer/b.txt": "b"}).number == 2

    assert_valid(depot)
    quarantined = list(depot.folder.glob("extensions/arkline/quarantine/*/content/stray"))
    assert [path.read_text() for path in quarantined] == ["?"]


@pytest.mark.parametrize("name", ["inventory.json", "inventory.json.sha512"])
def test_damage_is_not_taken_for_a_writer_that_stopped(depot: OcflFixture, name: str) -> None:
    depot.store("jid1", {"producer/a.txt": "a"})
    depot.store("jid2", {"producer/b.txt": "b"})
    path = depot.object() / name
    path.write_bytes(path.read_bytes().replace(b"jid1", b"jid9").replace(b"  inv", b" inv"))
    if name.endswith("json"):
        with pytest.raises(StepFailed, match=r"damaged; restore it from .*/v2$"):
            depot.store("jid3", {"producer/c.txt": "c"})
        (depot.object() / "v2/inventory.json").unlink()
        with pytest.raises(StepFailed, match="damaged; restore it from a copy of the storage"):
            depot.store("jid3", {"producer/c.txt": "c"})
    else:
        depot.store("jid3", {"producer/c.txt": "c"})
        assert_valid(depot)


def test_an_inventory_that_was_changed_with_its_sidecar_is_not_carried_on(depot: OcflFixture) -> None:
    depot.store("jid1", {"producer/a.txt": "a", "producer/b.txt": "b"})
    changed = (depot.object() / "inventory.json").read_bytes().replace(b"producer/a.txt", b"producer/x.txt")
    (depot.object() / "inventory.json").write_bytes(changed)
    (depot.object() / "inventory.json.sha512").write_bytes(sidecar(changed))

    with pytest.raises(DamagedObject, match=r"inventory\.json differs from its copy in v1: restore"):
        depot.storage.check(depot.request("jid2", {"producer/c.txt": "c"}))
    with pytest.raises(DamagedObject, match=r"inventory\.json differs from its copy in v1: restore"):
        depot.store("jid2", {"producer/c.txt": "c"})
    assert not (depot.object() / "v2").exists()
    (depot.object() / "inventory.json").write_bytes((depot.object() / "v1/inventory.json").read_bytes())
    (depot.object() / "inventory.json.sha512").write_bytes(
        (depot.object() / "v1/inventory.json.sha512").read_bytes()
    )
    assert depot.store("jid2", {"producer/c.txt": "c"}).number == 2
    assert_valid(depot)


def test_a_file_that_belongs_to_no_version_is_a_problem_of_the_object(depot: OcflFixture) -> None:
    version = depot.store("jid1", {"producer/a.txt": "a"})
    depot.store("jid2", {"producer/a.txt": "a"})
    folder = depot.object()
    (folder / "logs").mkdir()
    (folder / "logs/any").write_text("allowed")
    (folder / ".nfs0001").write_text("an open file on NFS")
    assert depot.storage.problems_of(ARK, version.url) == ()

    for path in ("stray", "v3/", "v1/stray", "v1/content/producer/b.txt", "v1/content/empty/"):
        made = folder / path
        made.mkdir() if path.endswith("/") else made.write_text("?")
        (problem,) = depot.storage.problems_of(ARK, version.url)
        assert problem.startswith(f"{made} belongs to no version"), problem
        made.rmdir() if path.endswith("/") else made.unlink()
    no_utf8 = folder / os.fsdecode(b"\xff")
    no_utf8.touch()
    (problem,) = depot.storage.problems_of(ARK, version.url)
    assert problem.startswith(f"{folder}/\\udcff belongs")
    no_utf8.unlink()
    for name in "abc":
        (folder / name).touch()
    (problem,) = depot.storage.problems_of(ARK, version.url)
    assert problem == (
        f"{folder / 'a'} and 2 others belong to no version of the object, and OCFL forbids that"
    )


def test_a_version_that_a_stopped_writer_left_is_no_problem_of_the_object(depot: OcflFixture) -> None:
    depot.store("jid1", {"producer/a.txt": "a"})
    before = {name: (depot.object() / name).read_bytes() for name in ("inventory.json", SIDECAR)}
    version = depot.store("jid2", {"producer/b.txt": "b"})
    for name, data in before.items():
        (depot.object() / name).write_bytes(data)

    assert depot.storage.problems_of(ARK, version.url) == ()


def test_a_write_that_fails_leaves_nothing(depot: OcflFixture) -> None:
    depot.store("jid1", {"producer/a.txt": "a"})
    request = depot.request("jid2", {"producer/large.bin": "x" * 300_000})
    child = fork()
    if not child:
        code = 1
        try:
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
            depot.storage.store(request, lambda: None)
        except StepFailed as failed:
            code = 0 if failed.kind is FailureKind.SYSTEM and "File too large" in failed.message else 1
        finally:
            os._exit(code)

    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert depot.jobs() == ["jid1"]
    assert depot.leftovers() == []


FULL = """
import sys, pathlib
from pipeline.outcome import ServiceDown
from tests.support.ocfl_fixture import ARK, OcflFixture
depot = OcflFixture(pathlib.Path(sys.argv[1]))
depot.storage = type(depot.storage)(pathlib.Path(sys.argv[2]))
depot.store("jid1", {"producer/a.txt": "one"})
try:
    depot.store("jid2", {f"producer/{n}.bin": f"{n}" * 9000 for n in range(40)})
except ServiceDown as failed:
    print(failed.service, failed.message)
print(depot.leftovers(), depot.jobs())
"""


def test_a_full_storage_root_is_an_outage_and_left_clean(tmp_path: Path) -> None:
    small = tmp_path / "small"
    small.mkdir()
    mount = f'mount -t tmpfs -o size=200k none {small} && exec {sys.executable} -c "$0" {tmp_path} {small}'
    command = ["unshare", "--map-root-user", "--mount", "sh", "-c", mount, FULL]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    except FileNotFoundError:
        unavailable("unshare is needed to mount a small file system: apt-get install util-linux")
    if "unshare:" in done.stderr or "mount:" in done.stderr:
        pytest.skip(f"no small file system can be mounted here: {done.stderr.strip()}")

    assert done.stderr == ""
    first, second = done.stdout.splitlines()
    assert first == f"storage the storage root {small} cannot be used: No space left on device"
    assert second == "[] ['jid1']"
