"""A folder is made below one that is there: nothing is written into an empty mount point. A folder is removed
with all that is in it, and nothing beside it."""

from pathlib import Path

import pytest

from pipeline.file_system import make_below, remove_tree
from pipeline.outcome import Service, ServiceDown
from pipeline.working_storage.mount import mark
from pipeline.working_storage.workspace import Workspace


def test_missing_folders_are_made_below_one_that_is_there(tmp_path: Path) -> None:
    make_below(tmp_path / "a" / "b" / "c", tmp_path)
    make_below(tmp_path / "a" / "b" / "c", tmp_path)

    assert (tmp_path / "a" / "b" / "c").is_dir()


def test_nothing_is_made_below_a_folder_that_has_gone(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="gone"):
        make_below(tmp_path / "gone" / "a" / "b", tmp_path / "gone")

    assert list(tmp_path.iterdir()) == []


def test_a_job_whose_disk_is_unmounted_writes_nothing_into_the_mount_point(tmp_path: Path) -> None:
    working = tmp_path / "working"
    mark(working)
    workspace = Workspace(working / "bid0000000001" / "jid0000000001", "attempt")
    workspace.publish(workspace.manifest, b"before")
    working.rename(tmp_path / "the disk")
    working.mkdir()

    with pytest.raises(ServiceDown) as caught:
        workspace.publish(workspace.manifest, b"after")

    assert caught.value.service is Service.WORKING_STORAGE
    assert list(working.iterdir()) == []


def test_a_folder_is_removed_with_all_that_is_in_it(tmp_path: Path) -> None:
    (tmp_path / "beside").mkdir()
    (tmp_path / "beside" / "kept.txt").touch()
    folder = tmp_path / "job"
    (folder / "a" / "b").mkdir(parents=True)
    (folder / "a" / "b" / "c.txt").touch()
    (folder / "link").symlink_to(tmp_path / "beside")
    (folder / "nowhere").symlink_to(tmp_path / "missing")

    remove_tree(folder)
    remove_tree(folder)

    assert [path.name for path in sorted(tmp_path.rglob("*"))] == ["beside", "kept.txt"]
