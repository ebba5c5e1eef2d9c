"""Copies of many files are read back together, each whole."""

from hashlib import sha512
from pathlib import Path

import pytest

from pipeline.file_system import sync_tree
from pipeline.fixity import ignore
from pipeline.storage.ocfl import disk

SIZES = (0, 1, 10_000, disk.REQUESTED_AHEAD, disk.REQUESTED_AHEAD + 1, 3_000_000)


def _written(folder: Path) -> dict[str, bytes]:
    files = {str(folder / f"{number}"): bytes([number]) * size for number, size in enumerate(SIZES)}
    for path, data in files.items():
        Path(path).write_bytes(data)
    sync_tree(folder)
    return files


def test_files_that_are_read_back_together_have_their_sizes_and_digests_in_order(tmp_path: Path) -> None:
    files = _written(tmp_path)
    expected = [(len(data), sha512(data).hexdigest()) for data in files.values()]

    assert disk.read_all_back(list(files), ignore) == expected
    assert [disk.read_back(Path(path), ignore) for path in files] == expected


def test_a_file_that_is_missing_among_others_is_a_fault(tmp_path: Path) -> None:
    files = _written(tmp_path)

    with pytest.raises(FileNotFoundError):
        disk.read_all_back([*files, str(tmp_path / "missing")], ignore)


def test_every_piece_that_is_read_back_is_counted(tmp_path: Path) -> None:
    counted: list[int] = []

    disk.read_all_back(list(_written(tmp_path)), counted.append)

    assert sum(counted) == sum(SIZES)
    assert max(counted) <= 1 << 20
