"""A bag in an archive of another machine: what is no bag, or not as its manifest says, leaves nothing."""

import io
import tarfile
from hashlib import sha512
from pathlib import Path

import pytest

from pipeline.errors import UsageRefused
from pipeline.outcome import DamagedObject
from pipeline.preservation.received_bag import receive_bag


def bag(version: str = "1.0", /, **changes: bytes) -> dict[str, bytes]:
    """Path -> bytes; a manifest does not follow a change."""
    files = {"data/a 1%25.txt": b"alpha", "data/b.txt": b"beta"}
    lines = "".join(f"{sha512(data).hexdigest()}  {path}\n" for path, data in files.items())
    tags = {
        "bagit.txt": f"BagIt-Version: {version}\nTag-File-Character-Encoding: UTF-8\n".encode(),
        "manifest-sha512.txt": (lines.replace("%", "%25") if version == "1.0" else lines).encode(),
    }
    listed = "".join(f"{sha512(data).hexdigest()}  {path}\n" for path, data in tags.items())
    return {**tags, "tagmanifest-sha512.txt": listed.encode(), **files, **changes}


def archived(files: dict[str, bytes], kind: bytes = tarfile.REGTYPE) -> bytes:
    target = io.BytesIO()
    with tarfile.open(fileobj=target, mode="w") as archive:
        for path, data in files.items():
            info = tarfile.TarInfo(f"harbour/{path}")
            info.type, info.size, info.linkname = (
                kind,
                len(data) if kind == tarfile.REGTYPE else 0,
                "/etc/passwd",
            )
            archive.addfile(info, io.BytesIO(data))
    return target.getvalue()


def pieces(data: bytes) -> list[bytes]:
    return [data[start : start + 700] for start in range(0, len(data), 700)]


@pytest.mark.parametrize("version", ["1.0", "0.97"])
def test_a_bag_is_written_as_it_was_sent(tmp_path: Path, version: str) -> None:
    read: list[int] = []
    sent = bag(version)

    assert receive_bag(pieces(archived(sent)), tmp_path / "here", read.append) == (2, 9)

    assert {path.name: path.read_bytes() for path in (tmp_path / "here" / "data").iterdir()} == {
        "a 1%25.txt": b"alpha",
        "b.txt": b"beta",
    }
    assert sum(read) == sum(map(len, sent.values()))


@pytest.mark.parametrize(
    "data",
    [
        archived(bag(**{"data/b.txt": b"other"})),
        archived(bag(**{"data/c.txt": b"more"})),
        archived({path: data for path, data in bag().items() if path != "data/b.txt"}),
        archived({path: data for path, data in bag().items() if "manifest" not in path}),
        archived(bag(**{"../outside.txt": b"x"})),
        archived(bag(), tarfile.SYMTYPE),
        archived(bag())[:1500],
        b"no archive" * 200,
    ],
    ids=["changed", "more", "fewer", "no manifest", "outside", "links", "cut", "no archive"],
)
def test_what_is_no_whole_bag_leaves_nothing(tmp_path: Path, data: bytes) -> None:
    with pytest.raises(DamagedObject):
        receive_bag(pieces(data), tmp_path / "here")

    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_exists_is_not_touched(tmp_path: Path) -> None:
    (tmp_path / "here").mkdir()

    with pytest.raises(UsageRefused, match="exists"):
        receive_bag(pieces(archived(bag())), tmp_path / "here")

    assert list((tmp_path / "here").iterdir()) == []
