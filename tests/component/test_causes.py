"""Each code of the table of causes, made to arise where the steps and the clients meet it.

The codes that only a record in ZooKeeper knows are in tests/integration/test_causes.py.
"""

import socket
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from pipeline import causes
from pipeline.attempt import UNATTENDED
from pipeline.causes import CODES, CauseCode, FailureCause, describe
from pipeline.checking import running
from pipeline.checks import CheckedFile, CheckFinding, CheckRule, CheckRun, CheckVerdict, Stage
from pipeline.fixity import Digest
from pipeline.identifiers.ezid import EzidMinter
from pipeline.manifests.checkm import Row
from pipeline.names import UploadAddress
from pipeline.notify.callback import callback_secrets_of
from pipeline.outcome import Mistake, StepFailed, system
from pipeline.profiles.profile import Profile
from pipeline.profiles.sources import Sources
from pipeline.records import PayloadType, SubmissionMode
from pipeline.settings import Settings
from pipeline.sources.fetch import HttpFetcher
from pipeline.states import FailureKind, JobState
from pipeline.steps import download, pending, process, provision
from pipeline.steps.expected_files import expected_files
from pipeline.uploads import stored, writing
from pipeline.uploads.stored import Declared
from pipeline.working_storage.workspace import Workspace
from tasks.retry import mistakes_as
from tests.servers.ezid import PASSWORD, USER, Fault, ezid
from tests.servers.http_source import HttpSource
from tests.servers.raw_answer import RawAnswer
from tests.support.downloading import job_of, job_of_file, md5, rows
from tests.support.memory_record import MemoryJobRecord
from tests.support.records import AT, a_job
from tests.support.repository import OWNER, Repository
from tests.support.step_context import UNUSED, collection, local_settings, services, working_job
from zkstate.errors import Corrupt

WRONG = Digest(algorithm="md5", value="0" * 32)


@dataclass
class World:
    settings: Settings
    source: HttpSource
    repository: Repository

    def download(self, url: str, settings: Settings | None = None, **facts: Any) -> None:
        chosen = settings or self.settings
        download.work(job_of_file(chosen, url, **facts), services(chosen))

    def upload(self, body: bytes) -> str:
        if not (self.settings.uploads_folder / stored.MARK).exists():
            stored.mark(self.settings.uploads_folder)
        upload = writing.create(self.settings.uploads_folder, "token:ada")
        with writing.writing(
            self.settings.uploads_folder, upload.id, Declared(name="readme.md"), 1 << 20
        ) as part:
            part.append(body)
            part.finish()
        return UploadAddress(upload.id, "readme.md").url

    def process(self, number: int, files: dict[str, str] | None = None, **facts: Any) -> None:
        process.work(self.repository.job(number, files, **facts), self.repository.services())


CASES: dict[str, Callable[[World], None]] = {}


def case(code: CauseCode) -> Callable[[Callable[[World], None]], Callable[[World], None]]:
    def register(raises: Callable[[World], None]) -> Callable[[World], None]:
        CASES[code.name] = raises
        return raises

    return register


@case(causes.DIGEST_DIFFERS)
def _digest(world: World) -> None:
    world.download(world.source.put("/a", b"bytes"), digest=WRONG)


@case(causes.SIZE_DIFFERS)
def _size(world: World) -> None:
    world.download(world.source.put("/a", b"bytes"), size=7)


@case(causes.UPLOAD_MISSING)
def _upload_missing(world: World) -> None:
    world.download(world.upload(b"bytes").replace("readme", "other"))


@case(causes.UPLOAD_DAMAGED)
def _upload_damaged(world: World) -> None:
    url = world.upload(b"bytes")
    stored.locate(world.settings.uploads_folder, url).path.write_bytes(b"bytez")
    world.download(url)


@case(causes.SOURCE_ANSWERED)
def _answered(world: World) -> None:
    world.download(world.source.url("/nothing"))


@case(causes.SOURCE_FAILED)
def _failed(world: World) -> None:
    world.download(world.source.put("/a", status=502))


@case(causes.SOURCE_SILENT)
def _silent(world: World) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        world.download(f"http://127.0.0.1:{closed.getsockname()[1]}/a")


@case(causes.SOURCE_BROKE)
def _broke(world: World) -> None:
    world.download(world.source.put("/a", b"bytes", cut_after=2, ranges=False))


@case(causes.SOURCE_UNUSABLE)
def _unusable(world: World) -> None:
    with RawAnswer() as server:
        server.answer = b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 2\r\n\r\nab"
        world.download(f"{server.url}/a")


@case(causes.TLS_FAILED)
def _tls(world: World) -> None:
    world.download(world.source.put("/a", b"bytes").replace("http:", "https:"))


@case(causes.HOST_UNKNOWN)
def _host_unknown(world: World) -> None:
    world.download("http://nothing.invalid/a")


@case(causes.ADDRESS_REFUSED)
def _address(world: World) -> None:
    world.download(world.source.put("/a", b"a"), world.settings.model_copy(update={"allow_networks": ()}))


@case(causes.SOURCE_REFUSED)
def _source_refused(world: World) -> None:
    url, listed = world.source.put("/a", b"a"), Sources.of(("example.org",))
    with HttpFetcher(world.settings, sources=lambda: listed) as fetcher:
        fetcher.read(url, 10)


@case(causes.URL_INVALID)
def _url(world: World) -> None:
    world.download("ftp://example.org/a")


@case(causes.LIMIT_EXCEEDED)
def _limit(world: World) -> None:
    collection(world.settings, limits={"object_bytes": 1})
    listed = rows(world.source, {"a": b"a", "b": b"b"})
    download.work(job_of(world.settings, listed), services(world.settings))


@case(causes.NAME_REFUSED)
def _name(world: World) -> None:
    url = world.source.put("/a", b"a")
    world.download(url, payload_name="../a")


@case(causes.NO_FILE)
def _no_file(world: World) -> None:
    world.process(1, {})


@case(causes.MANIFEST_INVALID)
def _manifest(world: World) -> None:
    url = world.source.put("/m.checkm", b"no manifest")
    job = working_job(world.settings, JobState.PENDING, PayloadType.OBJECT_MANIFEST, url)
    pending.work(job, services(world.settings))


@case(causes.CONTAINER_INVALID)
def _container(world: World) -> None:
    world.download(world.source.put("/a.zip", b"no container"), payload_type=PayloadType.CONTAINER)


@case(causes.LISTS_INVALID)
def _lists(world: World) -> None:
    world.process(1, {"mrt-erc.txt": "no colon"})


@case(causes.CHECK_STOPPED)
def _check(world: World) -> None:
    judged(world, "a.exe")


def judged(world: World, *files: str) -> None:
    """The verdict of a profile whose check found the same in these files."""
    rules = (CheckRule(name="clamav"),)
    found = tuple(CheckFinding(path=name, verdict=CheckVerdict.FOUND, code="Eicar") for name in files)
    run = CheckRun(check="clamav", version="1", stage=Stage.DOWNLOADED, at=AT, findings=found)
    given = [CheckedFile(name, Path(name), 1, "0" * 128) for name in files]
    workspace = Workspace(world.settings.working, "attempt-1")
    running.judge(running.Checking(rules, UNUSED, workspace, UNATTENDED, ()), [run], given)


@case(causes.SEVERAL)
def _several(world: World) -> None:
    listed = [Row(1, world.source.url("/none"), "a"), Row(2, world.source.put("/b", b"b"), "b", WRONG)]
    download.work(job_of(world.settings, listed), services(world.settings))


@case(causes.VERSION_REFUSED)
def _version(world: World) -> None:
    world.repository.recorded(world.repository.job(1, local_id=("loc-1",)))
    world.process(2, local_id=("loc-1",), new_version=False)


@case(causes.UPDATE_INVALID)
def _update(world: World) -> None:
    world.process(1, submission_mode=SubmissionMode.RESET, primary_id="ark:/99999/none")


@case(causes.IDENTIFIER_INVALID)
def _identifier(world: World) -> None:
    world.process(1, primary_id="no ark")


@case(causes.IDENTIFIER_REFUSED)
def _identifier_refused(world: World) -> None:
    world.repository.recorded(world.repository.job(1, local_id=("loc-1",)))
    world.process(2, local_id=("loc-1",), primary_id="ark:/99999/other")


@case(causes.SERVICE_DOWN)
def _service(world: World) -> None:
    stored.mark(world.settings.uploads_folder)
    url = world.upload(b"bytes")
    (world.settings.uploads_folder / stored.MARK).unlink()
    world.download(url)


@case(causes.SERVICE_REFUSED)
def _refused(world: World) -> None:
    with ezid() as service:
        keys = {"ezid_url": service.url, "ezid_user": USER, "ezid_password": PASSWORD}
        minter = EzidMinter(local_settings(world.settings.home, **keys), pause=0.01)
        service.faults = [Fault(400, b"error: bad request - invalid metadata")]
        profile = Profile(name="demo", owner=OWNER, collections=("ark:/99999/collection",))
        minter.mint(a_job(1, JobState.PROCESSING, primary_id=None), profile, MemoryJobRecord())


@case(causes.STORAGE_DAMAGED)
def _damaged(world: World) -> None:
    kept = world.repository.recorded(world.repository.job(1))
    folder = world.repository.ocfl.root.object(kept.ark)
    (folder / "inventory.json").write_bytes(b"{}")
    world.process(2, primary_id=kept.ark)


@case(causes.CONTENT_LOST)
def _lost(world: World) -> None:
    job = working_job(
        world.settings, JobState.DOWNLOADING, PayloadType.OBJECT_MANIFEST, "http://example.org/m.checkm"
    )
    expected_files(job, world.settings.working)


@case(causes.SPACE_EXCEEDED)
def _space(world: World) -> None:
    small = world.settings.model_copy(update={"working_capacity": 1000})
    job = working_job(
        small, JobState.PROVISIONING, PayloadType.FILE, "http://example.org/a", space_needed=2000
    )
    provision.work(job, services(small, MemoryJobRecord(), UNUSED))


@case(causes.CONFIGURATION_INVALID)
def _configuration(world: World) -> None:
    callback_secrets_of(world.settings.model_copy(update={"callback_secret": _Short()}), "demo")


class _Short:
    def get_secret_value(self) -> str:
        return "short"


@case(causes.NUMBER_REUSED)
def _reused(world: World) -> None:
    world.repository.recorded(world.repository.job(1, key="a" * 32))
    world.process(1, {"b.txt": "other"}, key="b" * 32)


@case(causes.RECORD_DAMAGED)
def _record(world: World) -> None:
    with mistakes_as(Mistake, damaged=system):
        raise Corrupt("/jobs/jid0000000001/status does not hold a status")


@case(causes.MISTAKE)
def _mistake(world: World) -> None:
    with mistakes_as(Mistake, damaged=system):
        _ = 1 // 0


IN_THE_RECORD = {"worker-lost", "stopped", "rejected", "other", "not-recorded"}
"""Codes of tests/integration/test_causes.py."""


def failure_of(world: World, raises: Callable[[World], None]) -> StepFailed:
    with pytest.raises(StepFailed) as failed:
        raises(world)
    return failed.value


@pytest.fixture
def world(settings: Settings, source: HttpSource, repository: Repository) -> World:
    return World(settings, source, repository)


@pytest.mark.parametrize("code", CASES)
def test_every_cause_arises_with_what_its_title_names(world: World, code: str) -> None:
    failure = failure_of(world, CASES[code])

    assert failure.cause is not None, failure.message
    assert failure.cause.code == code, failure.message
    assert set(CODES[code].identifying) <= set(failure.cause.parameters)
    described = describe(failure.cause, failure.kind, failure.message)
    assert "{" not in described.title
    assert all(value in described.title for value in described.parameters.values())


def test_fifty_wrong_digests_of_fifty_files_are_one_cause_and_sizes_another(world: World) -> None:
    def causes_of(**wrong: Any) -> set[str]:
        found = set()
        for number in range(25):
            for url in (world.source.put(f"/{number}", b"%d" % number), world.upload(b"%d" % number)):
                failed = failure_of(world, partial(World.download, url=url, **wrong))
                found.add(describe(failed.cause, failed.kind, failed.message).title)
        return found

    assert causes_of(digest=WRONG) == {"the digest of a file differs from the declared one"}
    assert causes_of(size=9) == {"the size of a file differs from the declared one"}


def test_files_of_one_object_that_fail_by_one_cause_are_that_cause(world: World) -> None:
    def cause_of(*paths: str) -> FailureCause | None:
        def deposit(world: World) -> None:
            listed = [Row(n, world.source.url(path), f"{n}") for n, path in enumerate(paths, 1)]
            download.work(job_of(world.settings, listed), services(world.settings))

        return failure_of(world, deposit).cause

    world.source.put("/gone", status=410)
    place = f"127.0.0.1:{world.source.port}"
    assert cause_of("/a", "/b") == cause_of("/a") == causes.SOURCE_ANSWERED(host=place, status=404)
    assert cause_of("/a", "/gone") == causes.SEVERAL(codes="source-answered")


def test_one_finding_in_different_numbers_of_files_is_one_cause(world: World) -> None:
    one = failure_of(world, lambda world: judged(world, "a.exe"))
    two = failure_of(world, lambda world: judged(world, "b.exe", "c.exe"))

    assert one.message != two.message
    assert one.cause == two.cause == causes.CHECK_STOPPED(check="clamav", findings="Eicar")


def test_an_upload_with_another_digest_is_told_in_the_depositors_words(world: World) -> None:
    url, received = world.upload(b"bytes"), md5(b"bytes").value

    failed = failure_of(world, lambda world: world.download(url, digest=WRONG))

    assert failed.message == (
        f"readme.md arrived with another MD5 than you declared. You declared 00000000..., we received "
        f"{received[:8]}.... Either the digest that you declared is wrong, or the file changed."
    )
    assert failed.cause == causes.DIGEST_DIFFERS(algorithm="md5", value="0" * 32, received=received)


@pytest.mark.parametrize("code", CODES.values(), ids=CODES)
def test_a_cause_of_two_kinds_is_two_groups_and_unknown_codes_are_kept(code: CauseCode) -> None:
    cause, kinds = code(**{name: "x" for name in code.identifying}), tuple(FailureKind)

    described = [describe(cause, kind, "a message") for kind in kinds]

    assert len({one.id for one in described}) == len(kinds)
    assert all(one.remedy.endswith(".") and one.owner for one in described)


def test_a_code_of_a_newer_release_is_shown_as_it_is_and_grouped_by_itself() -> None:
    newer = FailureCause(code="{tape}-torn", parameters={"drive": "7"})

    described = describe(newer, FailureKind.SYSTEM, "the tape is torn")

    assert (described.code, described.title, described.owner) == ("{tape}-torn", "{tape}-torn", "operator")
    assert described.id != describe(None, FailureKind.SYSTEM, "the tape is torn").id


def test_equal_messages_without_a_code_are_a_group_and_a_record_without_a_cause_is_not_guessed() -> None:
    def title_of(cause: FailureCause | None, message: str) -> str:
        return describe(cause, FailureKind.SYSTEM, message).title

    assert title_of(causes.OTHER(), "odd") == "odd"
    assert title_of(None, "odd") == title_of(None, "https://a.org: the source answered 404")
    assert title_of(None, "odd") == "the cause was not recorded"


def test_every_code_of_the_table_has_a_test() -> None:
    assert CASES.keys() | IN_THE_RECORD == CODES.keys()
