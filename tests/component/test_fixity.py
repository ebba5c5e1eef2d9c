"""The fixity schedule: stored files are read again within their period, and damage never goes unnoticed."""

import time
from datetime import UTC, datetime, timedelta

import pytest

from pipeline.fixity import READ_CHUNK, ReadBackFile
from pipeline.inventory import fixity
from pipeline.inventory.base import FixityProof
from pipeline.inventory.fixity import FixityCheck
from pipeline.notify.mail import fixity_notice
from pipeline.preservation import fixity as checking
from pipeline.preservation.fixity import Pace, Unreadable
from pipeline.records import SubmissionMode
from tests.support.repository import Repository
from tests.support.stores import STORES, Store, flip

FREE = Pace(0)
DAY = timedelta(days=1)
SIX = {f"{number}.txt": f"text {number}" for number in range(6)}


@pytest.fixture(params=STORES)
def store(
    request: pytest.FixtureRequest, repository: Repository, tmp_path_factory: pytest.TempPathFactory
) -> Store:
    if request.param == "disk":
        return Store(repository)
    bucket = request.getfixturevalue("s3_server").bucket(tmp_path_factory.mktemp("bucket"))
    repository.storage = bucket.storage
    return Store(repository, bucket)


@pytest.fixture
def on_disk(repository: Repository) -> Store:
    return Store(repository)


def stored(store: Store, number: int = 1, files: dict[str, str] | None = None) -> str:
    """The ARK of a recorded object with these files."""
    job = store.repository.job(number, files or {"a.txt": "alpha", "b.txt": "beta"})
    return store.repository.recorded(job).ark


def run(store: Store, after: timedelta = timedelta(0), pace: Pace = FREE) -> list[FixityCheck | Unreadable]:
    """What the schedule does so long after now."""
    at = datetime.now(UTC) + after
    return list(store.schedule().run(pace, lambda: at))


def checked(store: Store, ark: str) -> FixityCheck:
    outcome = store.schedule().check(ark, FREE)
    assert isinstance(outcome, FixityCheck)
    return outcome


def proof(store: Store, ark: str) -> FixityProof:
    found = store.repository.described(ark).fixity
    assert found is not None
    return found


def test_an_object_is_read_again_before_its_period_ends_and_the_proof_is_recorded(store: Store) -> None:
    ark = stored(store)

    early = run(store, 60 * DAY)
    due = run(store, 80 * DAY)

    assert early == []
    assert [(check.ark, check.damaged) for check in due if isinstance(check, FixityCheck)] == [(ark, ())]
    found = proof(store, ark)
    assert (found.versions, found.damaged) == (1, 0)
    assert found.files == len(store.repository.described(ark).versions[0].files)
    assert found.proved is not None
    assert found.checked is not None
    assert found.since == found.proved <= found.checked
    assert store.repository.described(ark).events == ()


def test_a_bit_that_flipped_is_an_event_with_the_file_and_what_to_do_and_nothing_is_repaired(
    store: Store,
) -> None:
    ark = stored(store)
    checked(store, ark)
    before = proof(store, ark).proved
    store.change(ark, "v1/content/producer/b.txt", flip)

    check = checked(store, ark)

    (damage,) = check.damaged
    assert (damage.version, damage.path) == (1, "producer/b.txt")
    assert "restore" in damage.remedy
    (event,) = store.repository.described(ark).events
    assert (event.type, event.outcome, event.damaged) == ("fixity check", "fail", 1)
    assert event.files == check.damaged
    assert (proof(store, ark).damaged, proof(store, ark).proved) == (1, before)
    assert checked(store, ark).damaged == check.damaged


@pytest.mark.parametrize(
    "path",
    [
        "inventory.json",
        "inventory.json.sha512",
        "v1/inventory.json",
        "v1/inventory.json.sha512",
        "0=ocfl_object_1.1",
    ],
)
def test_a_bit_that_flipped_in_the_description_of_the_object_is_damage(store: Store, path: str) -> None:
    ark = stored(store)
    middle = lambda data: data[: len(data) // 2] + flip(data[len(data) // 2 :])  # noqa: E731
    store.change(ark, path, middle)

    assert checked(store, ark).damaged != ()


def test_a_missing_file_is_damage(store: Store) -> None:
    ark = stored(store)
    store.change(ark, "v1/content/producer/a.txt", lambda _: None)

    assert [damage.path for damage in checked(store, ark).damaged] == ["producer/a.txt"]


def test_damage_in_an_earlier_version_is_found_in_every_version_that_has_the_file(store: Store) -> None:
    ark = stored(store)
    again = store.repository.job(2, {"c.txt": "gamma"}, primary_id=ark, submission_mode=SubmissionMode.UPDATE)
    store.repository.recorded(again)
    store.change(ark, "v1/content/producer/a.txt", flip)

    check = checked(store, ark)

    assert [(damage.version, damage.path) for damage in check.damaged] == [
        (1, "producer/a.txt"),
        (2, "producer/a.txt"),
    ]


def test_a_repair_is_an_event_and_lasting_damage_is_one_event_only(on_disk: Store) -> None:
    ark = stored(on_disk)
    on_disk.change(ark, "v1/content/producer/a.txt", flip)
    checked(on_disk, ark)
    checked(on_disk, ark)
    on_disk.change(ark, "v1/content/producer/a.txt", flip)
    checked(on_disk, ark)
    checked(on_disk, ark)

    assert [event.outcome for event in on_disk.repository.described(ark).events] == ["fail", "pass"]
    assert proof(on_disk, ark).damaged == 0


def test_a_check_that_was_interrupted_reads_only_the_rest(store: Store) -> None:
    ark = stored(store, files=SIX)
    first, second = Counter(3), Counter(None)

    interrupted = store.schedule().check(ark, first.pace, first.count)
    outcome = store.schedule().check(ark, second.pace, second.count)

    assert interrupted is None
    assert isinstance(outcome, FixityCheck)
    assert first.pieces == 4
    assert first.pieces + second.pieces == len(store.repository.described(ark).versions[0].files)
    assert fixity.reads_of(store.repository.inventory, ark) == {}


def test_a_file_that_takes_longer_than_a_run_is_read_to_its_end(store: Store) -> None:
    ark = stored(store, files={"a.bin": "x" * 3 * READ_CHUNK, "b.bin": "y" * 3 * READ_CHUNK})
    outcome, runs = None, 0
    while outcome is None:
        runs += 1
        assert runs <= 1 + len(store.repository.described(ark).versions[0].files)
        run = Counter(0)
        outcome = store.schedule().check(ark, run.pace, run.count)

    assert isinstance(outcome, FixityCheck)
    assert outcome.damaged == ()


def test_a_check_of_a_worker_that_stops_ends_within_a_file(store: Store) -> None:
    ark = stored(store, files={"a.bin": "x" * 3 * READ_CHUNK})
    reading = Counter(None)

    stopped = Pace(0, stopped=lambda: reading.pieces > 0)
    assert store.schedule().check(ark, stopped, reading.count) is None

    assert reading.pieces == 1


def test_a_check_whose_process_died_reads_only_the_rest(
    on_disk: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was read in the last minute is lost; here nothing is, because results are kept at once."""
    monkeypatch.setattr(checking, "KEEP_INTERVAL", 0.0)
    ark = stored(on_disk, files=SIX)
    reading = Counter(None)

    def die(size: int) -> None:
        reading.count(size)
        if reading.pieces == 4:
            raise SystemExit

    with pytest.raises(SystemExit):
        on_disk.schedule().check(ark, FREE, die)
    kept = fixity.reads_of(on_disk.repository.inventory, ark)
    rest = Counter(None)
    on_disk.schedule().check(ark, FREE, rest.count)

    assert len(kept) == 3
    assert rest.pieces == len(on_disk.repository.described(ark).versions[0].files) - 3


def test_a_proof_is_as_old_as_the_first_byte_that_was_read_for_it(on_disk: Store) -> None:
    ark = stored(on_disk)
    place = str(on_disk.repository.ocfl.root.object(ark) / "v1/content/producer/a.txt")
    (file,) = (f for f in on_disk.repository.described(ark).versions[0].files if f.path == "producer/a.txt")
    earlier = datetime(2026, 1, 1, tzinfo=UTC)
    read = ReadBackFile(1, file.path, earlier, file.size, file.digest.removeprefix("sha512:"), place=place)
    fixity.keep_reads(on_disk.repository.inventory, ark, [read])

    checked(on_disk, ark)

    assert proof(on_disk, ark).proved == earlier


def test_a_storage_that_cannot_be_read_is_no_damage(on_disk: Store) -> None:
    ark = stored(on_disk)
    root = on_disk.repository.ocfl.root.folder
    root.rename(root.with_name("elsewhere"))

    outcome = on_disk.schedule().check(ark, FREE)

    assert isinstance(outcome, Unreadable)
    assert "not an OCFL storage root" in outcome.problem
    assert (proof(on_disk, ark).checked, proof(on_disk, ark).damaged) == (None, 0)
    assert on_disk.repository.described(ark).events == ()


def test_a_disk_that_is_unmounted_during_the_reading_is_no_damage(on_disk: Store) -> None:
    ark = stored(on_disk)
    root = on_disk.repository.ocfl.root.folder

    def unmount(_: int) -> None:
        if root.exists():
            root.rename(root.with_name("elsewhere"))

    outcome = on_disk.schedule().check(ark, FREE, unmount)

    assert isinstance(outcome, Unreadable)


def test_a_storage_root_of_another_deployment_is_no_damage(on_disk: Store) -> None:
    ark = stored(on_disk)
    on_disk.change(ark, "v1/content/producer/a.txt", flip)
    on_disk.repository.ocfl.expected = lambda: "f" * 32

    outcome = on_disk.schedule().check(ark, FREE)

    assert isinstance(outcome, Unreadable)
    assert on_disk.repository.described(ark).events == ()


def test_an_object_that_cannot_be_read_does_not_keep_the_others_waiting(on_disk: Store) -> None:
    first, second = stored(on_disk, 1), stored(on_disk, 2)
    version = on_disk.repository.ocfl.root.object(first)
    (version / "inventory.json").unlink()
    (version / "inventory.json").mkdir()

    outcomes = run(on_disk, 80 * DAY)

    assert [type(outcome) for outcome in outcomes] == [Unreadable, FixityCheck]
    assert [outcome.ark for outcome in outcomes] == [first, second]


def test_the_period_is_that_of_the_collection_and_0_is_never(on_disk: Store) -> None:
    ark = stored(on_disk)
    profile = on_disk.repository.settings.profiles / "demo.yaml"
    text = profile.read_text()

    profile.write_text(f"{text}fixity_days: 10\n")
    short = run(on_disk, 8 * DAY)
    profile.write_text(f"{text}fixity_days: 0\n")
    never = run(on_disk, 800 * DAY)
    profile.unlink()
    default = run(on_disk, 80 * DAY)

    assert [outcome.ark for outcome in short] == [ark]
    assert never == []
    assert [outcome.ark for outcome in default] == [ark]


def test_the_object_whose_period_ends_first_is_read_first(on_disk: Store) -> None:
    arks = [stored(on_disk, number) for number in (1, 2, 3)]
    for ark in (arks[1], arks[0], arks[2]):
        checked(on_disk, ark)

    assert [outcome.ark for outcome in run(on_disk, 80 * DAY)] == [arks[1], arks[0], arks[2]]


def test_an_object_that_was_not_read_within_its_period_is_counted(on_disk: Store) -> None:
    ark = stored(on_disk)
    schedule = on_disk.schedule()
    at = datetime.now(UTC)

    late, in_time = schedule.counts(at + 91 * DAY), schedule.counts(at + 89 * DAY)

    assert (late.objects, late.overdue, in_time.overdue) == (1, 1, 0)
    assert late.oldest == on_disk.repository.described(ark).created


def test_a_proof_that_a_wrong_clock_dated_in_the_future_does_not_end_the_schedule(on_disk: Store) -> None:
    ark = stored(on_disk)
    checked(on_disk, ark)

    assert [outcome.ark for outcome in run(on_disk, -30 * DAY)] == [ark]


def test_reading_keeps_to_the_bytes_per_second_of_the_fleet(on_disk: Store) -> None:
    ark = stored(on_disk, files={"large.bin": "x" * 300_000})
    began = time.monotonic()

    on_disk.schedule().check(ark, Pace(1_000_000))

    assert time.monotonic() - began > 0.29


def test_a_pace_makes_no_burst_of_a_pause() -> None:
    pace = Pace(1_000_000)
    time.sleep(0.1)  # the pause itself is what is tested
    began = time.monotonic()

    pace.read(100_000)

    assert time.monotonic() - began > 0.08


def test_the_notice_names_the_object_the_file_and_what_to_do(on_disk: Store) -> None:
    ark = stored(on_disk)
    on_disk.change(ark, "v1/content/producer/a.txt", flip)
    checked(on_disk, ark)
    (event,) = fixity.unreported(on_disk.repository.inventory, 10)
    settings = on_disk.repository.settings.model_copy(update={"operator_mail": "ops@example.org"})

    mail, again = fixity_notice(event, settings), fixity_notice(event, settings)
    fixity.mark_reported(on_disk.repository.inventory, (event.id,), datetime.now(UTC))

    assert (mail["To"], mail["Subject"]) == ("ops@example.org", f"arkline: damage in storage: {ark}")
    assert (
        f"of {ark} at {event.at:%Y-%m-%d %H:%M} UTC found damage in storage: 1 problem." in mail.get_content()
    )
    assert "producer/a.txt of version 1: storage has 5 bytes with the sha512" in mail.get_content()
    assert "To do: restore" in mail.get_content()
    assert mail["Message-ID"] == again["Message-ID"]
    assert fixity.unreported(on_disk.repository.inventory, 10) == ()


def test_damage_is_reported_until_a_check_finds_none(on_disk: Store) -> None:
    ark = stored(on_disk)
    on_disk.change(ark, "v1/content/producer/a.txt", flip)
    checked(on_disk, ark)
    damage = fixity.damage(on_disk.repository.inventory, 10)
    on_disk.change(ark, "v1/content/producer/a.txt", flip)
    checked(on_disk, ark)

    assert [(event.ark, event.outcome) for event in damage] == [(ark, "fail")]
    assert fixity.damage(on_disk.repository.inventory, 10) == ()


class Counter:
    """Counts the pieces that were read, and ends the reading after `limit` of them."""

    def __init__(self, limit: int | None) -> None:
        self.pieces = 0
        self.pace = Pace(0, lambda: limit is not None and self.pieces > limit)

    def count(self, _: int) -> None:
        self.pieces += 1
