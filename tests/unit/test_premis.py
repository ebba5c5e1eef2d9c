import tracemalloc
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from pipeline.checks import CheckVerdict, Obstacle, Overrule
from pipeline.description import premis
from pipeline.fixity import ContentFile, Digest
from pipeline.records import HistoryEntry, Job, PayloadType
from pipeline.states import Event, JobState
from tests.support.checks import found_in, identified, run_of, scanned
from tests.support.records import a_job
from tests.support.schemas import assert_valid

ARK = "ark:/99999/fk4x"
START = datetime(2026, 9, 1, 12, 0, tzinfo=UTC)
NAMES = {"p": "http://www.loc.gov/premis/v3"}
FILE = ContentFile("producer/sub/a&b.txt", Path("/nowhere"), 3, "ab" * 64, "text/plain")

MOVES = (
    (JobState.PENDING, None, ""),
    (JobState.ESTIMATING, Event.ACQUIRE, ""),
    (JobState.PROVISIONING, Event.SUCCEED, "about 3 bytes"),
    (JobState.DOWNLOADING, Event.SUCCEED, ""),
    (JobState.PROCESSING, Event.SUCCEED, "1 file, 3 bytes"),
)


def write(*args: Any, **facts: Any) -> bytes:
    return b"".join(premis.pieces(*args, **facts))


def a_history(*moves: tuple[JobState, Event | None, str], by: str = "") -> tuple[HistoryEntry, ...]:
    return tuple(
        HistoryEntry(state=state, event=event, at=START + timedelta(minutes=minute), message=message, by=by)
        for minute, (state, event, message) in enumerate(moves)
    )


def worked(*later: tuple[JobState, Event | None, str], **facts: Any) -> Job:
    """A job that came to processing, by more moves than needed if `later` names some."""
    job = a_job(1, JobState.PROCESSING, **{"primary_id": ARK, **facts})
    return job.model_copy(update={"history": a_history(*MOVES, *later)})


def events(document: bytes) -> list[tuple[str, str, str]]:
    """(type, time, outcome) of each."""
    found = ElementTree.fromstring(document).findall("p:event", NAMES)
    wanted = ("p:eventType", "p:eventDateTime", "p:eventOutcomeInformation/p:eventOutcome")
    return [tuple(event.findtext(path, "", NAMES) for path in wanted) for event in found]  # type: ignore[misc]


def decisions(document: bytes) -> list[tuple[str, ...]]:
    """Of each decision of a person: what it was, why, whose, and in which role."""
    agent = (f".//p:linkingAgent{part}" for part in ("IdentifierType", "IdentifierValue", "Role"))
    wanted = (".//p:eventOutcome", ".//p:eventOutcomeDetailNote", *agent)
    return [
        tuple(event.findtext(path, "", NAMES) for path in wanted)
        for event in ElementTree.fromstring(document).findall("p:event", NAMES)
        if event.findtext("p:eventType", "", NAMES) == "appraisal"
    ]


def agents(document: bytes) -> dict[str, str]:
    """Name -> type."""
    found = ElementTree.fromstring(document).findall("p:agent", NAMES)
    return {
        agent.findtext("p:agentName", "", NAMES): agent.findtext("p:agentType", "", NAMES) for agent in found
    }


def details(document: bytes) -> str:
    root = ElementTree.fromstring(document)
    return "\n".join(each.text or "" for each in root.iter(f"{{{NAMES['p']}}}eventDetail"))


def test_the_document_follows_the_schema_of_premis() -> None:
    job = worked(local_id=("loc-1",), payload_type=PayloadType.CONTAINER, assigned=True)

    assert_valid(write(job, ARK, (FILE,), ("a bag is valid",)))


def test_a_document_of_the_least_that_there_is_follows_the_schema() -> None:
    job = worked(submitter="", payload_name="").model_copy(update={"history": ()})

    assert_valid(write(job, ARK, (), ()))


def test_what_was_done_is_told_in_order_and_dated_by_the_record() -> None:
    job = worked(payload_type=PayloadType.CONTAINER)
    moved = "2026-09-01T12:04:00.000+00:00"

    assert events(write(job, ARK, (FILE,), ("a bag is valid",))) == [
        ("transfer", moved, "success"),
        ("fixity check", moved, "success"),
        ("unpacking", moved, "success"),
        ("message digest calculation", moved, "success"),
        ("validation", moved, "valid"),
        ("identifier assignment", moved, "success"),
        ("ingestion", moved, "success"),
    ]


def test_only_a_container_was_unpacked() -> None:
    assert "unpacking" not in {kind for kind, _, _ in events(write(worked(), ARK, (FILE,), ()))}


def test_a_failure_that_was_overcome_is_told_with_its_message() -> None:
    job = worked(
        (JobState.FAILED, Event.FAIL, "the store is away"),
        (JobState.PROCESSING, Event.RESUME, "it is back"),
    )

    document = write(job, ARK, (FILE,), ())

    assert events(document)[3:] == [
        ("ingestion", "2026-09-01T12:05:00.000+00:00", "failure"),
        ("identifier assignment", "2026-09-01T12:06:00.000+00:00", "success"),
        ("ingestion", "2026-09-01T12:06:00.000+00:00", "success"),
    ]
    assert "the work of state processing" in details(document)
    assert b"the store is away" in document
    assert_valid(document)


def test_a_download_that_was_rejected_and_then_approved_is_told() -> None:
    job = worked().model_copy(
        update={
            "history": a_history(
                *MOVES[:-1],
                (JobState.REVIEW, Event.REVIEW, "1 file, 3 bytes"),
                (JobState.FAILED, Event.REJECT, "page 3 is missing"),
                (JobState.DOWNLOADING, Event.RESUME, "it is there now"),
                (JobState.REVIEW, Event.REVIEW, "1 file, 4 bytes"),
                (JobState.PROCESSING, Event.APPROVE, "approve by ann: page 3 is there"),
                by="ann",
            )
        }
    )

    document = write(job, ARK, (FILE,), ())

    assert [kind for kind, _, _ in events(document)].count("transfer") == 2
    assert decisions(document) == [
        ("rejected", "page 3 is missing", "operator", "ann", "authorizer"),
        ("approved", "page 3 is there", "operator", "ann", "authorizer"),
    ]
    assert "the work of state review" not in details(document)  # nothing failed
    assert agents(document)["ann"] == "person"
    assert_valid(document)


def test_the_same_job_gives_the_same_bytes() -> None:
    assert write(worked(), ARK, (FILE,), ()) == write(worked(), ARK, (FILE,), ())


def test_who_chose_the_identifier_is_told() -> None:
    minted = details(write(worked(assigned=True, local_id=("loc-1", "loc-2")), ARK, (), ()))

    assert f"{ARK}, assigned to the object by arkline; local id loc-1; local id loc-2" in minted
    assert f"{ARK}, given by the depositor" in details(write(worked(), ARK, (), ()))


def test_a_file_has_its_digest_size_and_format() -> None:
    root = ElementTree.fromstring(write(worked(), ARK, (FILE,), ()))

    file = root.findall("p:object", NAMES)[1]
    assert file.findtext("p:objectIdentifier/p:objectIdentifierValue", "", NAMES) == f"{ARK}/{FILE.path}"
    assert file.findtext(".//p:messageDigestAlgorithm", "", NAMES) == "SHA-512"
    assert file.findtext(".//p:messageDigest", "", NAMES) == FILE.sha512
    assert file.findtext(".//p:size", "", NAMES) == "3"
    assert file.findtext(".//p:formatName", "", NAMES) == "text/plain"
    assert file.findtext("p:originalName", "", NAMES) == "sub/a&b.txt"


def test_every_file_of_a_large_object_is_described() -> None:
    files = [replace(FILE, path=f"producer/{number}.txt") for number in range(3_000)]

    root = ElementTree.fromstring(write(worked(), ARK, files, ()))

    names = [file.findtext("p:originalName", "", NAMES) for file in root.findall("p:object", NAMES)[1:]]
    assert names == [f"{number}.txt" for number in range(3_000)]


def test_a_document_of_many_files_needs_the_memory_of_one() -> None:
    files = (replace(FILE, path=f"producer/{number}.txt") for number in range(2_000))
    document = premis.pieces(worked(), ARK, files, ())

    tracemalloc.start()
    try:
        size = sum(len(piece) for piece in document)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert peak < size / 10


def test_what_no_xml_can_hold_does_not_spoil_the_document() -> None:
    document = write(worked(local_id=("a\x00b",), submitter="\x01 & Co"), ARK, (), ())

    assert_valid(document)
    assert "a\ufffdb" in document.decode()


def test_event_types_are_those_of_the_library_of_congress() -> None:
    document = write(worked(), ARK, (), ())

    kinds = list(ElementTree.fromstring(document).iter(f"{{{NAMES['p']}}}eventType"))
    assert len(kinds) >= 4
    for kind in kinds:
        uri = kind.get("valueURI", "")
        assert uri.startswith("http://id.loc.gov/vocabulary/preservation/eventType/") or (
            kind.text == "identifier assignment" and not uri
        )


def test_a_files_declared_digest_stands_beside_its_sha512() -> None:
    declared = Digest(algorithm="md5", value="cd" * 16)

    document = write(worked(), ARK, (FILE,), (), declared={FILE.path: declared})

    assert_valid(document)
    found = [
        tuple(str(part.text) for part in fixity)
        for fixity in ElementTree.fromstring(document).iterfind(".//p:fixity", NAMES)
    ]
    assert found == [("SHA-512", "ab" * 64, "arkline"), ("MD5", "cd" * 16, "depositor")]


def test_the_objects_local_ids_are_all_named_and_those_of_the_job_are_assigned() -> None:
    document = write(worked(local_id=("new",)), ARK, (), (), local_id=("old", "new"))

    assert_valid(document)
    assert b"<premis:objectIdentifierValue>old<" in document
    assert b"; local id new" in document
    assert b"; local id old" not in document


def test_names_without_an_encoding_are_in_the_unpacking_event_with_their_bytes() -> None:
    job = worked(payload_type=PayloadType.CONTAINER)

    document = write(job, ARK, (), (), names="caf%82.txt, read as cp437: caf\u00e9.txt\n")

    assert_valid(document)
    assert "caf%82.txt, read as cp437: caf\u00e9.txt" in document.decode()


VIRUS = scanned(
    found_in("sub/a&b.txt", "Eicar", message="a test virus & nothing else"), "other.txt", at=START
)


def test_a_check_is_an_event_with_the_check_as_its_agent() -> None:
    document = write(worked(), ARK, (FILE,), (), runs=(VIRUS,))

    assert_valid(document)
    root = ElementTree.fromstring(document)
    (event,) = (
        each
        for each in root.findall("p:event", NAMES)
        if each.findtext("p:eventType", "", NAMES) == "virus check"
    )
    assert str(event.find("p:eventType", NAMES).get("valueURI")).endswith("/eventType/vir")  # type: ignore[union-attr]
    assert event.findtext(".//p:eventOutcome", "", NAMES) == "found"
    assert event.findtext(".//p:eventDetail", "", NAMES) == (
        "the deposited files, checked by clamav 1.4.1/27500 before the version was stored"
    )
    assert event.findtext(".//p:eventOutcomeDetailNote", "", NAMES).splitlines() == [
        "1 fine, 1 found, 0 not checked",
        "sub/a&b.txt: found (Eicar; a test virus & nothing else)",
    ]
    identifier = event.findtext("p:linkingAgentIdentifier/p:linkingAgentIdentifierValue", "", NAMES)
    (agent,) = (
        each
        for each in root.findall("p:agent", NAMES)
        if each.findtext(".//p:agentIdentifierValue", "", NAMES) == identifier
    )
    assert [
        agent.findtext(f"p:{name}", "", NAMES) for name in ("agentName", "agentType", "agentVersion")
    ] == [
        "clamav",
        "software",
        "1.4.1/27500",
    ]


def test_an_overrule_is_in_the_event_of_the_check_and_an_event_of_the_person_who_decided() -> None:
    overruled = VIRUS.model_copy(
        update={"overruled": Overrule(by="Ann", at=START, reason="it is a test file")}
    )

    document = write(worked(), ARK, (FILE,), (), runs=(overruled,))

    assert_valid(document)
    assert b"overruled by Ann at 2026-09-01T12:00:00+00:00: it is a test file" in document
    assert decisions(document) == [("overruled", "it is a test file", "operator", "Ann", "authorizer")]
    assert agents(document)["Ann"] == "person"


def test_files_that_were_not_checked_are_not_fine() -> None:
    large = found_in("large.iso", Obstacle.TOO_LARGE, CheckVerdict.UNCHECKED)

    document = write(worked(), ARK, (FILE,), (), runs=(scanned("a.txt", large),))

    assert events(document)[-1][2] == "unchecked"
    assert b"large.iso: unchecked (too-large)" in document
    assert_valid(document)


def test_an_identified_format_is_that_of_the_file_in_pronom() -> None:
    runs = (
        identified({"sub/a&b.txt": "x-fmt/111"}),
        run_of("words", "validation", found_in("sub/a&b.txt", "fmt/1"), version="1"),
    )

    document = write(worked(), ARK, (FILE,), (), runs=runs)

    assert_valid(document)
    file = ElementTree.fromstring(document).findall("p:object", NAMES)[1]
    registered = [
        tuple(str(part.text) for part in registry) for registry in file.iterfind(".//p:formatRegistry", NAMES)
    ]
    assert registered == [("PRONOM", "x-fmt/111")]
    assert file.findtext(".//p:formatName", "", NAMES) == "text/plain"


def test_a_check_of_many_files_has_an_event_of_bounded_size() -> None:
    many = scanned(*(found_in(f"{number}.exe", "Eicar") for number in range(5_000)))

    document = write(worked(), ARK, (), (), runs=(many,))

    assert b"and further findings: the first 100 are listed" in document
    assert len(document) < 20_000
    assert_valid(document)
