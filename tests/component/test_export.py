"""`arkline export`: an object is handed out as a bag that others accept, or not at all."""

import hashlib
import itertools
import json
import shutil
import subprocess
import tarfile
import zipfile
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import bagit
import hypothesis
import pytest
from hypothesis import strategies as st
from typer.testing import CliRunner, Result

from entrypoints.cli import exit_codes
from entrypoints.cli.main import app
from operations.objects.objects import ExportRequest, export, object_to_export
from pipeline import codes
from pipeline.attempt import UNATTENDED
from pipeline.containers.bag import check_bags
from pipeline.containers.declared import UnpackedContainer
from pipeline.containers.unpack import Limits, unpack
from pipeline.names import duplicates
from pipeline.preservation.export import Part, tar, tar_size
from pipeline.records import PayloadType, SubmissionMode
from pipeline.working_storage.workspace import DownloadedFile
from tests.support.errors import raises_code
from tests.support.fleet import set_variables
from tests.support.repository import Repository
from tests.support.stores import STORES, Store, flip
from tests.support.unpacked import storable

NAMES = {"a.txt": "alpha", "größe/日本 b.txt": "beta", "empty.txt": "", "twice.txt": "alpha"}


@pytest.fixture(params=STORES)
def store(
    request: pytest.FixtureRequest,
    repository: Repository,
    tmp_path_factory: pytest.TempPathFactory,
    monkeypatch: pytest.MonkeyPatch,
) -> Store:
    bucket = None
    if request.param == "bucket":
        bucket = request.getfixturevalue("s3_server").bucket(tmp_path_factory.mktemp("bucket"))
        repository.storage = bucket.storage
        set_variables(monkeypatch, bucket.settings)
    set_variables(monkeypatch, repository.settings)
    return Store(repository, bucket)


def stored(store: Store, files: dict[str, str] | None = None) -> str:
    return store.repository.recorded(store.repository.job(1, files or NAMES)).ark


def exported(ark: str, folder: Path, *arguments: str, code: int = 0) -> Result:
    result = CliRunner().invoke(app, ["export", ark, "--output", str(folder), *arguments])
    assert result.exit_code == code, result.output
    return result


def payload(bag: Path) -> dict[str, str]:
    """The depositor's files."""
    producer = bag / "data" / "producer"
    return {
        path.relative_to(producer).as_posix(): path.read_text()
        for path in producer.rglob("*")
        if path.is_file()
    }


def checked_by_our_reader(bag: Path) -> tuple[str, ...]:
    files = {
        path.relative_to(bag).as_posix(): DownloadedFile(
            path=path.relative_to(bag).as_posix(),
            size=path.stat().st_size,
            sha512=hashlib.sha512(path.read_bytes()).hexdigest(),
        )
        for path in bag.rglob("*")
        if path.is_file()
    }
    return check_bags(UnpackedContainer(bag, files, UNATTENDED))


def test_an_exported_object_is_a_bag_that_an_independent_validator_accepts(
    store: Store, tmp_path: Path
) -> None:
    ark = stored(store)

    told = json.loads(exported(ark, tmp_path / "bag", "--json").stdout)

    bag = bagit.Bag(str(tmp_path / "bag"))
    bag.validate()
    assert payload(tmp_path / "bag") == NAMES
    assert bag.version_info == (1, 0)
    assert bag.info["External-Identifier"] == ark
    version = store.repository.described(ark).versions[0]
    size = sum(file.size for file in version.files)
    assert bag.info["Payload-Oxum"] == f"{size}.{len(version.files)}"
    assert (told["files"], told["bytes"], told["version"]) == (len(version.files), size, 1)
    assert len(checked_by_our_reader(tmp_path / "bag")) == 1
    assert list(tmp_path.glob(".bag*")) == []


def test_a_checksum_command_accepts_the_manifests(store: Store, tmp_path: Path) -> None:
    exported(stored(store), tmp_path / "bag")

    for manifest in ("manifest-sha512.txt", "tagmanifest-sha512.txt"):
        done = subprocess.run(
            [shutil.which("sha512sum") or "sha512sum", "--check", "--strict", manifest],
            cwd=tmp_path / "bag",
            capture_output=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr


def test_a_bag_with_a_percent_sign_in_a_name_is_accepted_by_an_independent_validator(
    store: Store, tmp_path: Path
) -> None:
    names = {"100%25.txt": "x", "50% off.txt": "y"}

    exported(stored(store, names), tmp_path / "bag")

    bag = bagit.Bag(str(tmp_path / "bag"))
    bag.validate()
    assert bag.version_info == (0, 97)
    assert "  data/producer/100%25.txt\n" in (tmp_path / "bag" / "manifest-sha512.txt").read_text()
    assert len(checked_by_our_reader(tmp_path / "bag")) == 1


def test_a_name_that_looks_like_an_escape_is_encoded_as_the_standard_says(
    store: Store, tmp_path: Path
) -> None:
    exported(stored(store, {"a%0Ab.txt": "x"}), tmp_path / "bag")

    assert "BagIt-Version: 1.0\n" in (tmp_path / "bag" / "bagit.txt").read_text()
    assert "  data/producer/a%250Ab.txt\n" in (tmp_path / "bag" / "manifest-sha512.txt").read_text()
    assert len(checked_by_our_reader(tmp_path / "bag")) == 1


def test_an_earlier_version_is_exported_with_the_files_that_it_had(store: Store, tmp_path: Path) -> None:
    ark = stored(store, {"a.txt": "alpha", "b.txt": "beta"})
    second = store.repository.job(2, {"c.txt": "new"}, primary_id=ark, submission_mode=SubmissionMode.ADD)
    store.repository.recorded(second)

    exported(ark, tmp_path / "first", "--version", "1")
    exported(ark, tmp_path / "current")

    assert payload(tmp_path / "first") == {"a.txt": "alpha", "b.txt": "beta"}
    assert payload(tmp_path / "current") == {"c.txt": "new"}
    bagit.Bag(str(tmp_path / "first")).validate()


def test_a_bit_that_flipped_refuses_the_export_and_leaves_no_bag(store: Store, tmp_path: Path) -> None:
    ark = stored(store)
    store.change(ark, "v1/content/producer/a.txt", flip)

    told = exported(ark, tmp_path / "bag", code=exit_codes.BROKEN_CUSTODY)

    assert "producer/a.txt" in told.stderr
    assert "is damaged in storage" in told.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("change", ["full_size = 7", f"digest_value = '{'0' * 128}'"])
def test_a_changed_row_of_the_inventory_is_not_called_damage_in_storage(
    store: Store, tmp_path: Path, change: str
) -> None:
    ark = stored(store)
    statement = f"UPDATE inv_files SET {change} WHERE pathname = 'producer/a.txt'"
    database = store.repository.inventory.database
    database.write(lambda connection: connection.exec_driver_sql(statement))

    said = exported(ark, tmp_path / "bag", code=exit_codes.BROKEN_CUSTODY).stderr

    assert "producer/a.txt" in said
    assert "in storage as it was downloaded, but the inventory was changed" in said
    assert "damaged in storage" not in said
    assert "restore this row of inv_files from a copy of the inventory" in said


def test_a_missing_file_refuses_the_export_and_leaves_no_bag(store: Store, tmp_path: Path) -> None:
    ark = stored(store)
    store.change(ark, "v1/content/producer/a.txt", lambda _: None)

    told = exported(ark, tmp_path / "bag", code=exit_codes.BROKEN_CUSTODY)

    assert "a.txt is missing: restore it" in told.stderr
    assert list(tmp_path.iterdir()) == []


def test_an_object_that_storage_lost_refuses_the_export(store: Store, tmp_path: Path) -> None:
    ark = stored(store)
    if store.bucket is None:
        shutil.rmtree(store.repository.ocfl.root.object(ark))
    else:
        for key in store.bucket.listed():
            if "v1/" in key or "inventory" in key:
                where = {"Bucket": store.bucket.bucket, "Key": f"{store.bucket.prefix}/{key}"}
                store.bucket.client.delete_object(**where)

    told = exported(ark, tmp_path / "bag", code=exit_codes.BROKEN_CUSTODY)

    assert "storage has no " in told.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_exists_is_not_touched(store: Store, tmp_path: Path) -> None:
    ark = stored(store)
    (tmp_path / "bag").mkdir()

    told = exported(ark, tmp_path / "bag", code=exit_codes.REFUSED)

    assert "exists: choose another folder" in told.stderr
    assert list((tmp_path / "bag").iterdir()) == []


def test_a_folder_that_cannot_be_written_is_a_refusal_with_its_name(store: Store, tmp_path: Path) -> None:
    ark = stored(store)

    told = exported(ark, tmp_path / "absent" / "bag", code=exit_codes.REFUSED)

    assert "absent" in told.stderr


def test_an_interrupted_export_leaves_no_bag(store: Store, tmp_path: Path) -> None:
    known, number = object_to_export(store.repository.inventory, stored(store), None)

    with raises_code(codes.EXPORT_INTERRUPTED):
        export(
            ExportRequest(known, number, tmp_path / "bag", "somebody"),
            store.repository.settings,
            store.repository.inventory,
            store.repository.storage,
            lambda _: None,
            stopped=lambda: True,
        )

    assert list(tmp_path.iterdir()) == []


PIECES = st.one_of(
    st.sampled_from(["%0A", "%25", *" %*.~aA#|/\u00a0\u00e4\u3000"]),
    st.characters(exclude_categories=["Cs"]),
)
SOME_NAMES = st.lists(
    st.lists(PIECES, min_size=1, max_size=12).map("".join).filter(storable), min_size=1, max_size=8
).filter(lambda names: not duplicates(names, case_fold=False))


@hypothesis.settings(max_examples=15, suppress_health_check=[*hypothesis.HealthCheck])
@hypothesis.given(names=SOME_NAMES)
def test_an_exported_bag_goes_in_again_with_the_same_names(
    repository: Repository, tmp_path_factory: pytest.TempPathFactory, names: list[str]
) -> None:
    folder = tmp_path_factory.mktemp("again")
    files = {name: f"file {number}" for number, name in enumerate(names)}

    first = again(repository, next(NUMBERS), files, folder / "first")
    second = again(repository, next(NUMBERS), packed_and_unpacked(first, folder), folder / "second")

    assert payload(first) == files
    assert payload(second / "data" / "producer") == files


NUMBERS = itertools.count(1)
"""Of jobs."""


def again(repository: Repository, number: int, files: dict[str, str], bag: Path) -> Path:
    """`files` as the content of a container, stored and exported as a bag."""
    kind = PayloadType.CONTAINER
    ark = repository.recorded(repository.job(number, files, payload_type=kind)).ark
    known, version = object_to_export(repository.inventory, ark, None)
    request = ExportRequest(known, version, bag, "me")
    export(
        request, repository.settings, repository.inventory, repository.storage, lambda _: None, lambda: False
    )
    return bag


def packed_and_unpacked(bag: Path, folder: Path) -> dict[str, str]:
    """The content of the bag, once it was packed and unpacked."""
    with zipfile.ZipFile(folder / "bag.zip", "w") as archive:
        for path in sorted(bag.rglob("*")):
            archive.write(path, path.relative_to(bag).as_posix())
    target = folder / "unpacked"
    limits = Limits(entries=1000, bytes=10**9, ratio=1000, case_fold=False)
    unpacked = unpack(folder / "bag.zip", "bag.zip", target, limits, UNATTENDED)
    return {file.path: (target / file.path).read_text() for file in unpacked}


@pytest.mark.parametrize("name", ["a.txt", "x" * 95, "x" * 96, "y" * 300, "bücher/ü.txt", ""])
@pytest.mark.parametrize("size", [0, 1, 511, 512, 10_000])
def test_a_tar_is_that_of_the_standard_library(name: str, size: int) -> None:
    at = datetime(2026, 11, 27, tzinfo=UTC)
    info = tarfile.TarInfo(f"bags/{name}")
    info.size, info.mtime = size, int(at.timestamp())
    expected = info.tobuf(tarfile.PAX_FORMAT, "utf-8") + bytes(size + -size % 512) + bytes(1024)

    written = b"".join(tar("bags", [Part(name, size, lambda start: [bytes(size - start)])], at))

    assert written == expected
    assert tar_size("bags", [(name, size)]) == len(expected)


def test_the_rest_of_a_tar_is_what_follows_any_byte_of_it() -> None:
    at = datetime(2026, 11, 27, tzinfo=UTC)
    contents = {"a.txt": b"alpha", "empty.txt": b"", "x" * 300: b"beta" * 200, "block.txt": b"x" * 512}
    read = list[str]()

    def parts() -> Iterator[Part]:
        for name, content in contents.items():

            def rest(start: int, name: str = name, content: bytes = content) -> list[bytes]:
                read.append(name)
                return [content[start:]]

            yield Part(name, len(content), rest)

    whole = b"".join(tar("bags", parts(), at))

    for start in range(len(whole) + 1):
        assert b"".join(tar("bags", parts(), at, start)) == whole[start:]
    read.clear()
    b"".join(tar("bags", parts(), at, 512 + 5))  # in the padding of the first
    assert read == list(contents)[1:]


def test_the_size_of_a_tar_is_known_for_a_file_of_any_size() -> None:
    for size in (8**11 - 1, 8**11, 1 << 50):
        info = tarfile.TarInfo("bags/a")
        info.size = size
        header = len(info.tobuf(tarfile.PAX_FORMAT, "utf-8"))
        assert tar_size("bags", [("a", size)]) == header + size + -size % 512 + 1024
