"""What was stored, and the folders made for that, are there after the power of their host was cut."""

from collections.abc import Iterator
from email.message import EmailMessage
from pathlib import Path

import pytest

from pipeline import backup_files
from pipeline.backup_files import BackupManifest, RecordEntry
from pipeline.deployment import Deployment
from pipeline.file_system import make_synced
from pipeline.inventory.copy import restore_inventory_copy
from pipeline.notify.mail import OutboxMailer
from pipeline.uploads import stored, writing
from pipeline.uploads.stored import Declared
from pipeline.working_storage import mount
from tests.support.ocfl_fixture import OcflFixture, assert_valid
from tools.simulation.disk import Disk
from tools.simulation.replacing import replacing
from tools.simulation.world import World

pytestmark = pytest.mark.parametrize("seed", range(8), ids="loses as seed {}".format)


@pytest.fixture
def home(tmp_path: Path) -> Path:
    home = tmp_path / "site"
    home.mkdir()
    return home


@pytest.fixture
def disk(home: Path, seed: int) -> Iterator[Disk]:
    with replacing() as put:
        disk = Disk(World(seed), home)
        disk.replace(put)
        yield disk


def test_each_version_of_an_object_survives_with_its_root(home: Path, disk: Disk) -> None:
    depot = OcflFixture(home)
    depot.store("jid1", {"producer/a.txt": "a"})
    depot.store("jid2", {"producer/b.txt": "b"})

    disk.cut_power()

    assert depot.jobs() == ["jid1", "jid2"]
    assert_valid(depot)


def test_a_root_and_its_id_survive(home: Path, disk: Disk) -> None:
    depot = OcflFixture(home / "site" / "data")
    depot.storage.add_root_file("extensions/arkline/deployment.json", b"{}")

    disk.cut_power()

    assert depot.storage.read_root_file("extensions/arkline/deployment.json") == b"{}"


def test_the_mark_of_working_storage_survives(home: Path, disk: Disk) -> None:
    mount.mark(home / "data" / "working")

    disk.cut_power()

    assert mount.is_marked(home / "data" / "working")


@pytest.mark.parametrize("left", ["data", "data/extensions"])
def test_a_root_survives_although_who_made_a_folder_of_it_died_before_the_sync(
    home: Path, disk: Disk, left: str
) -> None:
    make_synced((home / left).parent)
    (home / left).mkdir()
    depot = OcflFixture(home / "data")
    depot.store("jid1", {"producer/a.txt": "a"})

    disk.cut_power()

    assert depot.jobs() == ["jid1"]
    assert_valid(depot)


def test_a_file_of_the_root_that_a_frozen_process_has_not_synced_survives_once_another_has_added_it(
    home: Path, disk: Disk
) -> None:
    depot = OcflFixture(home / "site" / "data")
    depot.storage.add_root_file("extensions/arkline/earlier.json", b"{}")
    earlier = next(home.rglob("earlier.json"))
    earlier.with_name("deployment.json").hardlink_to(earlier)

    depot.storage.add_root_file("extensions/arkline/deployment.json", b"{}")
    disk.cut_power()

    assert depot.storage.read_root_file("extensions/arkline/deployment.json") == b"{}"


def test_a_complete_backup_survives(home: Path, disk: Disk) -> None:
    folder = home / "backups" / "monday"
    partial = backup_files.partial_folder(folder)
    (partial / backup_files.RECORD).write_text("{}\n")
    backup_files.publish(partial, folder, BackupManifest(deployment=Deployment(), storage="here"))

    disk.cut_power()

    assert list(backup_files.entries(folder)) == [RecordEntry()]
    assert backup_files.RECORD in backup_files.read_manifest(folder).digests


def test_a_complete_file_of_an_upload_survives(home: Path, disk: Disk) -> None:
    root = home / "uploads"
    stored.mark(root)
    upload = writing.create(root, "ann").id
    with writing.writing(root, upload, Declared(name="a.txt"), 100) as part:
        part.append(b"alpha")
        part.finish()

    disk.cut_power()

    found = stored.locate(root, f"upload:{upload}/a.txt")
    assert (found.path.read_bytes(), found.file.size) == (b"alpha", 5)


def test_a_restored_inventory_survives(home: Path, disk: Disk) -> None:
    backup = home / "monday"
    make_synced(backup)
    (backup / backup_files.INVENTORY).write_bytes(b"tables")
    file = home / "site" / "restored.sqlite"
    restore_inventory_copy(f"sqlite:///{file}", backup)

    disk.cut_power()

    assert file.read_bytes() == b"tables"


def test_the_first_mail_of_a_new_outbox_survives(home: Path, disk: Disk) -> None:
    mail = EmailMessage()
    mail["Message-ID"] = "<report@arkline>"
    OutboxMailer(home / "data" / "outbox").send(mail)

    disk.cut_power()

    assert (home / "data" / "outbox" / "report@arkline.eml").exists()
