"""Bags with a fetch.txt: payload that is not in the container is downloaded as a manifest's files are."""

import hashlib
import itertools
import threading
import unicodedata
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import bagit
import pytest

from pipeline.attempt import CheckedAttempt
from pipeline.containers.bag import check_bags
from pipeline.decoding.calls import read_statements
from pipeline.fixity import Digest
from pipeline.outcome import AttemptOver, RateLimited, StepFailed
from pipeline.records import Job, PayloadType
from pipeline.settings import Settings
from pipeline.states import FailureKind, JobState
from pipeline.steps import download
from pipeline.working_storage.workspace import Workspace
from tests.component.test_download_container import packed
from tests.servers.http_source import HttpSource
from tests.support.downloading import content_of, downloaded, ends_after
from tests.support.polling import eventually
from tests.support.step_context import collection, local_settings, services, working_job
from tests.support.unpacked import arrived

PRESENT = {"data/a.txt": b"alpha"}
ABSENT = {"data/b.bin": bytes(range(256)) * 900, "data/sub/c d.txt": b"gamma", "data/empty": b""}


def bag(
    urls: dict[str, str], folder: str = "", version: str = "1.0", *, lengths: bool = True, **changes: bytes
) -> dict[str, bytes]:
    """A bag whose files with a URL are not in it; `changes` replace tag files, `_` for a dash."""
    payload = PRESENT | ABSENT
    manifest = "".join(f"{hashlib.sha256(data).hexdigest()}  {path}\n" for path, data in payload.items())
    fetch = "".join(f"{url} {len(ABSENT[path]) if lengths else '-'} {path}\n" for path, url in urls.items())
    files = {
        "bagit.txt": f"BagIt-Version: {version}\nTag-File-Character-Encoding: UTF-8\n".encode(),
        "manifest-sha256.txt": manifest.encode(),
        "fetch.txt": fetch.encode(),
        **PRESENT,
        **{name.replace("_", "-") + ".txt": data for name, data in changes.items()},
    }
    return {folder + name: data for name, data in files.items()}


def served(source: HttpSource, **facts: Any) -> dict[str, str]:
    return {
        path: source.put(f"/{number}", data, **facts) + "?sig=hidden"
        for number, (path, data) in enumerate(ABSENT.items())
    }


def job_of(
    settings: Settings, source: HttpSource, files: dict[str, bytes], attempt: int = 1, **facts: Any
) -> Job:
    url = source.put("/bag.zip", packed(files))
    op = f"attempt-{attempt}"
    return working_job(settings, JobState.DOWNLOADING, PayloadType.CONTAINER, url, op=op, **facts)


def refused(settings: Settings, source: HttpSource, files: dict[str, bytes]) -> str:
    with pytest.raises(StepFailed) as failure:
        downloaded(job_of(settings, source, files), settings)
    assert failure.value.kind is FailureKind.CONTENT
    assert "hidden" not in failure.value.message + failure.value.detail
    return failure.value.message


def requests(source: HttpSource) -> int:
    return sum(source.count(f"/{number}", "GET") for number in range(len(ABSENT)))


@pytest.mark.parametrize("folder", ["", "dataverse-4711/"])
@pytest.mark.parametrize("lengths", [True, False])
def test_the_payload_that_a_bag_lists_in_fetch_txt_is_downloaded(
    settings: Settings, source: HttpSource, folder: str, lengths: bool
) -> None:
    files = bag(served(source), folder, lengths=lengths)
    job = job_of(settings, source, files)

    outcome = downloaded(job, settings)

    assert content_of(job) == files | {folder + path: data for path, data in ABSENT.items()}
    assert "; 3 of them fetched as fetch.txt lists" in outcome.message
    producer = Workspace.of(job, settings.working).producer
    bagit.Bag(str(producer / folder)).validate()
    (said,) = check_bags(arrived(producer))
    assert "is valid: 4 payload files, sha256" in said


def test_a_fetched_file_is_listed_with_its_own_url_and_without_the_digest_of_the_container(
    settings: Settings, source: HttpSource
) -> None:
    urls = served(source)
    archive = hashlib.sha256(packed(bag(urls))).hexdigest()
    job = job_of(settings, source, bag(urls), digest=Digest(algorithm="sha256", value=archive))

    downloaded(job, settings)

    listed = {file.path: file for file in Workspace.of(job, settings.working).read_downloaded()}
    assert {path: listed[path].url for path in ABSENT} == urls
    assert [file.path for file in listed.values() if file.digest is None] == list(ABSENT)
    assert {file.container for path, file in listed.items() if path in ABSENT} == {""}


def test_the_bag_is_compared_as_a_whole_when_it_is_processed(settings: Settings, source: HttpSource) -> None:
    job = job_of(settings, source, bag(served(source)))
    downloaded(job, settings)
    workspace, context = Workspace.of(job, settings.working), services(settings)

    said = read_statements(
        context.decoder,
        workspace.producer,
        workspace.read_content(),
        context.attempt,
        container=True,
        update=False,
    )

    assert said.checks == ("the bag (BagIt 1.0) is valid: 4 payload files, sha256",)
    assert {digest.path for digest in said.digests} == {*PRESENT, *ABSENT}


def test_an_attempt_that_is_cut_off_anywhere_is_made_good_by_the_next(
    source: HttpSource, tmp_path: Path
) -> None:
    files = bag(served(source))
    for looks in itertools.count(1):
        settings = local_settings(tmp_path / str(looks))
        try:
            downloaded(job_of(settings, source, files), settings, ends_after(looks))
            break
        except AttemptOver:
            second = job_of(settings, source, files, 2)
            downloaded(second, settings)
            assert content_of(second) == files | ABSENT

    assert looks > 10


def test_files_that_arrived_are_not_fetched_again_by_the_next_attempt(
    settings: Settings, source: HttpSource
) -> None:
    files = bag(served(source))
    first = job_of(settings, source, files)
    workspace = Workspace.of(first, settings.working)

    def check() -> None:
        if workspace.producer.exists():
            raise AttemptOver("the lock is lost, and the files have their names already")

    with pytest.raises(AttemptOver):
        downloaded(first, settings, CheckedAttempt(check))
    assert not workspace.downloaded.exists()
    second = job_of(settings, source, files, 2)
    downloaded(second, settings)

    assert content_of(second) == files | ABSENT
    assert requests(source) == len(ABSENT)
    assert source.count("/bag.zip", "GET") == 1


def contents(folder: Path) -> set[bytes]:
    return {path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_a_transient_fault_of_one_file_costs_the_others_nothing(
    settings: Settings, source: HttpSource
) -> None:
    files, others_arrived = bag(served(source)), threading.Event()
    source.change("/0", status=503, delay=others_arrived)
    first = job_of(settings, source, files)
    parts = Workspace.of(first, settings.working).attempt
    with ThreadPoolExecutor(1) as pool:
        attempt = pool.submit(downloaded, first, settings)
        try:
            eventually(lambda: b"gamma" in contents(parts))
        finally:
            others_arrived.set()
        failure = attempt.exception()
    assert isinstance(failure, StepFailed | RateLimited)
    assert not (isinstance(failure, StepFailed) and failure.kind is FailureKind.CONTENT)
    before = source.count("/1", "GET")

    source.change("/0", status=200)
    second = job_of(settings, source, files, 2)
    downloaded(second, settings)

    assert content_of(second) == files | ABSENT
    assert source.count("/1", "GET") == before == 1


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("ftp://x.example/b", "does not begin with http:// or https://"),
        ("file:///etc/passwd", "does not begin with http:// or https://"),
        ("http://me:hidden@x.example/b", "contains a user name or a password"),
        ("http://x.example/b#hidden", "contains a '#'"),
        ("http:///b", "names no host"),
        (f"upload:{'0' * 32}/b", "is not in the upload of this manifest"),
        ("http://10.1.2.3/b?sig=hidden", "10.1.2.3"),
    ],
)
def test_a_url_that_no_manifest_may_have_is_refused(
    settings: Settings, source: HttpSource, url: str, says: str
) -> None:
    told = refused(settings, source, bag(served(source) | {"data/b.bin": url}))

    assert "fetch.txt" in told
    assert "line 1: " in told
    assert says in told


def changed(function: Callable[[str], str]) -> Callable[[bytes], bytes]:
    return lambda data: function(data.decode()).encode()


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda text: text[text.index("\n") + 1 :], "does not list 'data/b.bin', which a manifest lists"),
        (lambda text: text + text, "line 4: 'data/b.bin' is listed twice"),
        (lambda text: text.replace("data/empty", "empty"), "line 3: 'empty' is outside data/"),
        (lambda text: text.replace("data/empty", "data/../x"), "has a '.' or '..' segment"),
        (lambda text: text.replace("data/empty", "data/other"), "'data/other' is in no manifest of the bag"),
        (lambda text: text.replace(" 0 ", " some "), "line 3: is not a URL, a length (or -) and a path"),
        (lambda text: text.replace(" 0 ", " -1 "), "line 3: is not a URL, a length (or -) and a path"),
    ],
)
def test_a_list_that_is_not_valid_is_refused_before_anything_is_fetched(
    settings: Settings, source: HttpSource, change: Callable[[str], str], says: str
) -> None:
    files = bag(served(source))
    files["fetch.txt"] = changed(change)(files["fetch.txt"])

    assert says in refused(settings, source, files)
    assert requests(source) == 0


@pytest.mark.parametrize(
    ("served_instead", "says"), [(b"other", "were declared"), (b"x" * 256 * 900, "sha256")]
)
def test_a_file_that_is_not_the_one_of_the_bag_is_refused_with_its_line(
    settings: Settings, source: HttpSource, served_instead: bytes, says: str
) -> None:
    files = bag(served(source))
    source.put("/0", served_instead)

    told = refused(settings, source, files)

    assert told.startswith("fetch.txt line 1: b.bin (")
    assert says in told


@pytest.mark.parametrize("limit", [{"object_files": 6}, {"object_bytes": 200_000}])
def test_listed_files_count_for_the_limits_of_the_collection_before_they_are_fetched(
    settings: Settings, source: HttpSource, limit: dict[str, int]
) -> None:
    collection(settings, limits=limit)

    assert "accepts" in refused(settings, source, bag(served(source)))
    assert requests(source) == 0


def test_bytes_count_for_the_limits_whatever_the_list_states(settings: Settings, source: HttpSource) -> None:
    collection(settings, limits={"object_bytes": 200_000})

    told = refused(settings, source, bag(served(source, framing="chunked"), lengths=False))

    assert "200,000 bytes" in told


def test_a_list_has_no_more_files_than_a_manifest_may_have(
    source: HttpSource, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = local_settings(tmp_path, object_files=6)  # the container has fewer
    for number in range(4):
        monkeypatch.setitem(ABSENT, f"data/further/{number}", b"x")

    assert "lists more than 6 files" in refused(settings, source, bag(served(source)))


@pytest.mark.parametrize("url", ["", "s3://bucket/b", "ftp://x.example/b"])
def test_a_file_that_is_in_the_container_is_not_fetched(
    settings: Settings, source: HttpSource, url: str
) -> None:
    urls = served(source)
    files = bag(urls | {"data/b.bin": url or urls["data/b.bin"]}) | {"data/b.bin": ABSENT["data/b.bin"]}
    job = job_of(settings, source, files)

    downloaded(job, settings)

    assert content_of(job) == files | ABSENT
    assert source.count("/0") == 0


@pytest.mark.parametrize(
    ("version", "name", "written"),
    [
        ("1.0", "50% a", "50%25 a"),
        ("0.97", "50%25", "50%25"),
        ("1.0", "a%20b ", "a%2520b "),
        ("1.0", " ", " "),
    ],
)
def test_names_in_the_list_are_escaped_as_those_in_manifests(
    settings: Settings, source: HttpSource, version: str, name: str, written: str
) -> None:
    digest = hashlib.sha256(b"alpha").hexdigest()
    files = bag({}, version=version, manifest_sha256=f"{digest}  data/{written}\n".encode())
    files.pop("data/a.txt")
    files["fetch.txt"] = f"{source.put('/x', b'alpha')} - data/{written}\n".encode()
    job = job_of(settings, source, files)

    downloaded(job, settings)

    assert content_of(job) == files | {f"data/{name}": b"alpha"}


def test_a_list_that_composes_letters_otherwise_than_the_manifest_is_understood(
    settings: Settings, source: HttpSource
) -> None:
    composed, decomposed = (unicodedata.normalize(form, "data/\u00dc") for form in ("NFC", "NFD"))
    digest = hashlib.sha256(b"alpha").hexdigest()
    files = bag({}, manifest_sha256=f"{digest}  {composed}\n".encode())
    files.pop("data/a.txt")
    files["fetch.txt"] = f"{source.put('/x', b'alpha')} 5 {decomposed}\n".encode()
    job = job_of(settings, source, files)

    downloaded(job, settings)

    assert check_bags(arrived(Workspace.of(job, settings.working).producer))


def test_names_that_clash_with_those_in_the_container_are_refused(
    settings: Settings, source: HttpSource
) -> None:
    digest = hashlib.sha256(b"alpha").hexdigest()
    files = bag({}, manifest_sha256=f"{digest}  data/a.txt\n{digest}  data/a.txt/b\n".encode())
    files["fetch.txt"] = b"http://x.example/a 5 data/a.txt/b\n"

    assert "is a file and also the folder of another" in refused(settings, source, files)


def test_payload_with_the_name_of_the_list_is_payload(settings: Settings, source: HttpSource) -> None:
    files = {"data/fetch.txt": b"http://x.example/a 5 data/b\n", "data/bagit.txt": b"BagIt-Version: 1.0\n"}
    manifest = "".join(f"{hashlib.sha256(data).hexdigest()}  {path}\n" for path, data in files.items())
    files |= bag({}, manifest_sha256=manifest.encode())
    for name in ("fetch.txt", "data/a.txt"):
        files.pop(name)
    job = job_of(settings, source, files)

    downloaded(job, settings)

    assert content_of(job) == files


def test_a_list_beside_no_bag_is_a_file_like_others(settings: Settings, source: HttpSource) -> None:
    files = {"fetch.txt": b"fetch the parcel\n", "bagit.txt": b"notes\n"}
    job = job_of(settings, source, files)

    assert download.work(job, services(settings))
    assert content_of(job) == files
