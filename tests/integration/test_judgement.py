"""The judge: what the objects of a deposit would become, and why they would be refused."""

import shutil
from typing import Any

import pytest

from operations.deposits.judgement import judge
from operations.deposits.planned import LISTED, JudgedObject, Judgement, NamedObject, ObjectFile
from operations.site import Site
from pipeline.fixity import Digest
from pipeline.inventory.sql import open_inventory
from pipeline.profiles.profile import Profiles, UnknownProfile
from pipeline.records import SubmissionMode, SubmissionType
from pipeline.settings import Settings
from tests.support import planting
from tests.support.recordings import recording
from zkstate.connection.session import Session

KEPT = "ark:/99999/fk4kept"
EMPTY_MD5 = "d41d8cd98f00b204e9800998ecf8427e"


@pytest.fixture
def settings(settings: Settings) -> Settings:
    settings.working.mkdir(parents=True)
    own = settings.home / "profiles"
    shutil.copytree(settings.profiles, own)
    return settings.model_copy(update={"profiles": own})


def keep(settings: Settings, *, number: int = 1, **changes: Any) -> None:
    """Enter a version of an object of the collection `demo`."""
    demo = Profiles(settings.profiles).get("demo")
    facts: dict[str, Any] = {
        "owner": demo.owner,
        "collections": demo.collections,
        "local_id": ("known",),
        "erc": (("what", "Harbour"),),
        "jid": f"jid000000000{number}",
        **changes,
    }
    open_inventory(settings.inventory).record(recording(KEPT, number, **facts))


def limit(settings: Settings, **limits: int) -> None:
    lines = "".join(f"  {name}: {value}\n" for name, value in limits.items())
    with (settings.profiles / "demo.yaml").open("a") as profile:
        profile.write(f"limits:\n{lines}")


def judged(
    session: Session, settings: Settings, *objects: NamedObject, total: int | None = None, **facts: Any
) -> Judgement:
    kind = {"type": SubmissionType.SINGLE_FILE_BATCH_MANIFEST, "new_version": False}
    site, submission = Site(settings, session), planting.submission(**kind | facts)
    return judge(site, site.profile(submission.profile_name), submission, objects, total=total)


def only(judgement: Judgement) -> JudgedObject:
    (one,) = judgement.objects
    return one


def faults(judgement: Judgement) -> list[tuple[str | None, str]]:
    return [(fault.field, fault.message) for fault in only(judgement).errors]


def file(name: str = "a.txt", **facts: Any) -> ObjectFile:
    return ObjectFile(name=name, **facts)


def test_an_object_is_new_or_the_next_version_of_one_that_is_here(
    session: Session, settings: Settings
) -> None:
    keep(settings)
    keep(settings, number=2)

    new, known = judged(
        session,
        settings,
        NamedObject(number=1, local_id=("unknown",), files=(file(size=3),)),
        NamedObject(number=2, local_id=("known",)),
        new_version=True,
    ).objects

    assert (new.becomes, new.version_of, new.files, new.bytes) == ("new", None, 1, 3)
    assert (known.becomes, known.version) == (f"version 3 of {KEPT}", 3)
    assert (known.files, known.bytes) == (None, None), "its files are not known"
    assert new.errors == known.errors == ()


def test_a_consent_is_to_the_version_after_the_current_one(session: Session, settings: Settings) -> None:
    keep(settings)
    one = NamedObject(number=1, local_id=("known",))

    missing = judged(session, settings, one)
    given = judged(session, settings, one, new_version_of={KEPT: 1})
    keep(settings, number=2)
    outdated = judged(session, settings, one, new_version_of={KEPT: 1})

    ((field, message),) = faults(missing)
    assert field == "new_version"
    assert "'Harbour', is in collection demo already" in message
    assert only(missing).becomes == f"version 2 of {KEPT}"
    assert faults(given) == []
    assert faults(outdated) == [
        (
            "new_version",
            f"you agreed that this deposit becomes version 2 of {KEPT}, whose current version is 2 now: look "
            "at it, and deposit again if you mean a version after that",
        )
    ]


def test_an_object_of_another_collection_is_refused_and_not_shown(
    session: Session, settings: Settings
) -> None:
    keep(settings, collections=("ark:/99999/m5other",), erc=(("what", "Secret"),))

    found = judged(session, settings, NamedObject(number=1, local_id=("known",)), new_version=True)

    ((field, message),) = faults(found)
    assert (field, only(found).version_of) == ("local_id", None)
    assert "in another collection of its owner" in message
    assert "Secret" not in found.model_dump_json()


def test_identifiers_that_name_two_objects_are_refused(session: Session, settings: Settings) -> None:
    keep(settings)
    one = NamedObject(number=4, name="a", primary_id="ark:/99999/fk4own", local_id=("known",))

    found = judged(session, settings, one, new_version=True)

    assert "belongs to ark:/99999/fk4kept, but the submitted primary identifier" in faults(found)[0][1]
    assert only(found).number == 4


RESET: dict[str, Any] = {"submission_mode": SubmissionMode.RESET, "type": SubmissionType.FILE}


@pytest.mark.parametrize(
    ("local_id", "says"),
    [
        (("NOPE",), "no object of collection demo has the local id 'NOPE': to reset an object, give its ARK"),
        ((), "the object to reset is not identified: give its ARK"),
        (tuple("abcde"), "has the local id 'a' or 'b' or 'c' (or 2 more): to reset an object, give"),
    ],
)
def test_a_reset_of_an_object_that_is_not_here_is_refused(
    session: Session, settings: Settings, local_id: tuple[str, ...], says: str
) -> None:
    one = NamedObject(number=1, local_id=local_id, files=(file(),))

    ((field, message),) = faults(judged(session, settings, one, **RESET))

    assert field == "local_id"
    assert says in message


def test_a_reset_of_an_ark_that_storage_does_not_have_is_refused(
    session: Session, settings: Settings
) -> None:
    keep(settings)
    absent = NamedObject(number=1, primary_id="ark:/99999/fk4absent", files=(file(),))
    known = NamedObject(number=1, primary_id=KEPT, files=(file(),))

    assert faults(judged(session, settings, absent, **RESET)) == [
        ("ark", "ark:/99999/fk4absent cannot be reset, because it does not exist: submit it with mode add")
    ]
    assert faults(judged(session, settings, known, **RESET)) == []


def test_a_reset_of_a_known_local_id_is_not_refused(session: Session, settings: Settings) -> None:
    keep(settings)
    one = NamedObject(number=1, local_id=("known", "other"), files=(file(),))

    assert faults(judged(session, settings, one, **RESET)) == []


@pytest.mark.parametrize(
    ("files", "kind"),
    [
        ((file("data/mrt-erc.txt"),), SubmissionType.OBJECT_MANIFEST),
        ((file("a.zip"),), SubmissionType.CONTAINER),
        (None, SubmissionType.BATCH_MANIFEST),
    ],
)
def test_a_reset_whose_files_may_name_the_object_is_left_to_its_job(
    session: Session, settings: Settings, files: tuple[ObjectFile, ...] | None, kind: SubmissionType
) -> None:
    found = judged(session, settings, NamedObject(number=1, files=files), **RESET | {"type": kind})

    assert faults(found) == []


def test_a_local_id_that_the_inventory_cannot_have_is_refused(session: Session, settings: Settings) -> None:
    found = judged(session, settings, NamedObject(number=1, local_id=("x" * 300,), files=(file(),)))

    ((field, message),) = faults(found)
    assert field == "local_id"
    assert message.endswith("has 300 characters; 1 to 255 are allowed")


def test_two_rows_with_one_identifier_are_refused(session: Session, settings: Settings) -> None:
    rows = [NamedObject(number=number, local_id=("same",)) for number in (2, 3)]
    site = Site(settings, session)

    first, second = judge(site, site.profile("demo"), planting.submission(), rows, called="rows").objects

    assert first.errors == ()
    assert second.errors[0].message.startswith("row 2 has the same local id 'same'")


def test_limits_of_the_collection_hold_for_each_object(session: Session, settings: Settings) -> None:
    limit(settings, object_files=1, object_bytes=2000, batch_jobs=3)
    files = (file(size=1500), file("b.txt", found_size=1500))
    small = settings.model_copy(update={"working_capacity": 3000})

    found = judged(session, small, NamedObject(number=1, files=files), total=4)

    assert [message.partition(":")[0] for _, message in faults(found)] == [
        "the object has 2 files, but collection demo accepts at most 1",
        "the object has more than the 2.0 kB that collection demo accepts",
        "needs 3.0 kB, but 80 % of working storage is only 2.4 kB",
    ]
    assert [fault.message.partition(":")[0] for fault in found.errors] == [
        "the manifest has more than 3 rows"
    ]


def test_what_was_declared_is_compared_with_the_bytes(session: Session, settings: Settings) -> None:
    declared = Digest(algorithm="md5", value="0" * 32)
    found = Digest(algorithm="md5", value=EMPTY_MD5)
    other = Digest(algorithm="crc32", value="00000000")
    files = (
        file(size=4, found_size=5),
        file("b", digest=declared, found_digest=found),
        file("c", digest=declared, found_digest=other),
    )

    assert faults(judged(session, settings, NamedObject(number=1, files=files))) == [
        ("size", "'a.txt': the source has 5 bytes, but 4 were declared"),
        ("digest", f"'b': the md5 digest is {EMPTY_MD5}, but {'0' * 32} was declared"),
    ]


def test_of_many_files_those_at_fault_are_listed(session: Session, settings: Settings) -> None:
    files = [file(f"{number}.txt", size=number) for number in range(1000)]
    files[7] = file("7.txt", size=7, found_size=8)

    one = NamedObject(number=1).with_files(tuple(files))
    found = judged(session, settings, one)

    assert one.files is not None
    assert len(one.files) == LISTED
    assert (only(found).files, only(found).bytes) == (1000, sum(range(1000)))
    assert [field for field, _ in faults(found)] == ["size"]


def test_names_that_no_job_accepts_are_refused(session: Session, settings: Settings) -> None:
    with (settings.profiles / "demo.yaml").open("a") as profile:
        profile.write("case_sensitive_names: false\n")
    one = NamedObject(number=1, files=(file("a"), file("A"), file("../b")))

    found = judged(session, settings, one, type=SubmissionType.OBJECT_MANIFEST)

    assert [field for field, _ in faults(found)] == ["file", "file"]


def test_a_file_larger_than_an_upload_may_be_is_refused(session: Session, settings: Settings) -> None:
    small = settings.model_copy(update={"upload_bytes": 4})
    files = (file(size=5), file("b", size=5, to_upload=True))

    found = judged(session, small, NamedObject(number=1, files=files))

    assert [message for _, message in faults(found)] == [
        "'b': 5 bytes are more than 4 (ARKLINE_UPLOAD_BYTES)"
    ]


@pytest.mark.parametrize(
    ("shared", "says"),
    [
        (
            {"payload": "http://x.edu/a"},
            "2 objects have the URL 'http://x.edu/a': every entry makes an object",
        ),
        ({"payload": "a.jpg"}, "2 objects have the file 'a.jpg': every entry makes an object"),
        (
            {"files": (file(digest=Digest(algorithm="md5", value="0" * 32)),)},
            f"2 objects have the digest 'md5:{'0' * 32}': the same bytes are deposited more than once",
        ),
    ],
)
def test_what_two_objects_share_is_told(
    session: Session, settings: Settings, shared: dict[str, Any], says: str
) -> None:
    found = judged(session, settings, *(NamedObject(number=number, **shared) for number in (1, 2)))

    assert [fault.message for fault in found.warnings] == [says]


def test_who_adds_a_version_to_the_object_of_another_learns_before_who_will_see_it(
    session: Session, settings: Settings
) -> None:
    """... and who adds one to an object that is all her own has no warning."""
    keep(settings, depositor="token:ann")
    one = NamedObject(number=1, local_id=("known",))

    by_bob = judged(session, settings, one, owner="token:bob", new_version=True)
    by_ann = judged(session, settings, one, owner="token:ann", new_version=True)

    (warning,) = by_bob.warnings
    assert f"{KEPT} has a version of another depositor" in warning.message
    assert "no depositor finds it any more" in warning.message
    assert only(by_bob).errors == by_ann.warnings == ()


def test_a_deposit_for_an_unknown_profile_is_refused(session: Session, settings: Settings) -> None:
    with pytest.raises(UnknownProfile):
        judged(session, settings, profile_name="nosuch")
