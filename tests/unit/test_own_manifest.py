import hashlib
from pathlib import Path

import pytest

from pipeline.containers.declared import NAME, check_manifest
from pipeline.fixity import Digest
from pipeline.manifests.checkm import ManifestProfile, Row, write
from tests.support.unpacked import refusal, unpacked_container

FILES = {"a.txt": b"alpha", "sub/b c.txt": b"beta"}


def row(name: str, data: bytes, algorithm: str = "md5", size: int | None = None) -> Row:
    value = hashlib.new(algorithm, data).hexdigest()
    return Row(
        line=0,
        url=f"http://source.example/{len(name)}",
        name=name,
        digest=Digest(algorithm=algorithm, value=value),
        size=len(data) if size is None else size,
    )


def manifest(*rows: Row) -> bytes:
    return write(ManifestProfile.OBJECT, rows)


def test_a_container_without_a_manifest_is_not_checked(tmp_path: Path) -> None:
    assert check_manifest(unpacked_container(tmp_path, FILES)) is None


@pytest.mark.parametrize("algorithm", ["md5", "sha256", "sha512"])
def test_a_true_manifest_is_told_to_be_valid(tmp_path: Path, algorithm: str) -> None:
    rows = [row(name, data, algorithm) for name, data in FILES.items()]

    said = check_manifest(unpacked_container(tmp_path, {**FILES, NAME: manifest(*rows)}))

    assert (
        said == "producer/mrt-manifest.txt lists the container's 2 other files, with their sizes and digests"
    )


def test_everything_that_is_not_true_is_told_with_its_line(tmp_path: Path) -> None:
    listed = manifest(
        row("a.txt", b"other"),
        row("sub/b c.txt", b"beta", size=5),
        row("gone.txt", b""),
        row("c.txt", b"other", "sha512"),
    )

    told = refusal(
        lambda: check_manifest(
            unpacked_container(tmp_path, {**FILES, "c.txt": b"", "x.txt": b"", NAME: listed})
        )
    )

    assert told.startswith("producer/mrt-manifest.txt does not match the files; correct it, and")
    assert "line 6: 'a.txt': the md5 digest is " in told or "line 6: 'a.txt' has 5 bytes" in told
    assert "line 7: 'sub/b c.txt' has 4 bytes, not 5" in told
    assert "line 8: 'gone.txt' is not among the files" in told
    assert "line 9: 'c.txt' has 0 bytes, not 5" in told
    assert "'x.txt' is in the container, but not in the manifest" in told


def test_a_digest_of_record_that_differs_is_told(tmp_path: Path) -> None:
    listed = manifest(row("a.txt", b"omega", "sha512"))

    told = refusal(lambda: check_manifest(unpacked_container(tmp_path, {"a.txt": b"alpha", NAME: listed})))

    assert "line 6: 'a.txt': the sha512 digest is" in told


def test_a_manifest_that_cannot_be_read_is_refused_with_its_line(tmp_path: Path) -> None:
    told = refusal(lambda: check_manifest(unpacked_container(tmp_path, {**FILES, NAME: b"not a manifest\n"})))

    assert told.startswith("manifest producer/mrt-manifest.txt: ")


def test_reading_stops_after_twenty_problems(tmp_path: Path) -> None:
    files = {str(number): b"" for number in range(30)}

    told = refusal(
        lambda: check_manifest(unpacked_container(tmp_path, {**files, NAME: manifest(row("a", b"a"))}))
    )

    assert told.count("among the files;") + told.count("in the container") == 20
    assert told.endswith("; checking stopped there")


def test_very_many_problems_are_told_as_far_as_a_message_goes(tmp_path: Path) -> None:
    files = {f"{number:03d}-{'x' * 100}.txt": b"" for number in range(100)}

    told = refusal(
        lambda: check_manifest(unpacked_container(tmp_path, {**files, NAME: manifest(row("a", b"a"))}))
    )

    assert len(told) < 2000
    assert told.endswith("; and more")


def test_a_name_that_is_composed_otherwise_is_told_as_one(tmp_path: Path) -> None:
    composed, decomposed = "\u00dcbersicht.txt", "U\u0308bersicht.txt"
    files = {decomposed: b"alpha", NAME: manifest(row(composed, b"alpha"))}

    told = refusal(lambda: check_manifest(unpacked_container(tmp_path, files)))

    assert "differs only in how a letter is composed (Unicode NFC and NFD) from" in told
    assert "not in the manifest" not in told
