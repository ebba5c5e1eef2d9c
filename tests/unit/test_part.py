"""Where the bytes of an unfinished download are."""

from hashlib import sha512
from pathlib import Path

import pytest

from pipeline.sources.download import HELD, open_part


@pytest.mark.parametrize("body", [b"", b"small", bytes(HELD)])
def test_a_small_file_is_written_once_it_is_whole(tmp_path: Path, body: bytes) -> None:
    target = tmp_path / "producer" / "a.txt"
    target.parent.mkdir()

    with open_part(tmp_path / "attempts" / "one" / "1", ["sha512"], tmp_path / "1.draft") as part:
        part.append(body)
        assert list(target.parent.iterdir()) == []
        part.publish(target)

    assert target.read_bytes() == body
    assert part.digests.value() == sha512(body).hexdigest()
    assert list(tmp_path.iterdir()) == [target.parent]


def test_a_larger_file_is_in_the_folder_of_its_attempt_from_its_first_byte(tmp_path: Path) -> None:
    path, target = tmp_path / "attempts" / "one" / "1", tmp_path / "a.txt"

    with open_part(path, ["sha512"], tmp_path / "1.draft") as part:
        part.append(b"begin")
        assert not path.exists()
        part.append(bytes(HELD))
        assert path.read_bytes() == b"begin" + bytes(HELD)
        part.append(b"end")
        part.publish(target)

    assert target.read_bytes() == b"begin" + bytes(HELD) + b"end"


def test_a_small_file_that_starts_over_has_none_of_the_first_bytes(tmp_path: Path) -> None:
    with open_part(tmp_path / "attempts" / "1", ["sha512"], tmp_path / "1.draft") as part:
        part.append(b"broken")
        part.restart()
        part.append(b"whole")
        part.publish(tmp_path / "a.txt")

    assert (tmp_path / "a.txt").read_bytes() == b"whole"
    assert part.digests.value() == sha512(b"whole").hexdigest()


def test_nothing_is_made_for_a_large_file_whose_working_directory_has_gone(tmp_path: Path) -> None:
    job = tmp_path / "job"

    with pytest.raises(FileNotFoundError), open_part(job / "one" / "1", ["sha512"], job / "1.draft") as part:
        part.append(bytes(HELD + 1))

    assert list(tmp_path.iterdir()) == []
