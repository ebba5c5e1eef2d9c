from datetime import UTC, datetime
from pathlib import Path
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline import names
from pipeline.description import anvl, metadata
from pipeline.description.metadata import describe, read_elements
from pipeline.description.xml import parse_dublin_core, write_dublin_core
from pipeline.fixity import Digest
from pipeline.outcome import StepFailed
from pipeline.profiles.profile import Profile
from pipeline.records import SubmissionType
from pipeline.states import FailureKind
from tests.support.records import a_job

ARK = "ark:/99999/fk4000000011"
PROFILE = Profile(
    name="demo", owner="ark:/99999/owner", collections=("ark:/99999/one", "ark:/99999/two"), shoulder="fk4"
)
DC = "{http://purl.org/dc/elements/1.1/}"


@pytest.fixture
def producer(tmp_path: Path) -> Path:
    return tmp_path


def a_dublin_core(inner: str) -> str:
    return f'<dc xmlns:d="http://purl.org/dc/elements/1.1/">{inner}</dc>'


def elements(xml: bytes) -> list[tuple[str, str | None]]:
    return [(element.tag.removeprefix(DC), element.text) for element in ElementTree.fromstring(xml)]


def test_the_erc_says_who_what_when_and_where(producer: Path) -> None:
    job = a_job(
        erc_who="Tracy Seneca", erc_what="Husky Chicken", erc_when="2009-09-01", local_id=("loc-1", "loc-2")
    )

    assert describe(job, PROFILE, ARK, read_elements(producer)).files["mrt-erc.txt"].decode() == (
        "erc:\n"
        "who: Tracy Seneca\n"
        "what: Husky Chicken\n"
        "when: 2009-09-01\n"
        f"where: {ARK}\n"
        "where: loc-1\n"
        "where: loc-2\n"
    )


def test_what_is_not_known_is_said_to_be_unassigned(producer: Path) -> None:
    assert describe(a_job(), PROFILE, ARK, read_elements(producer)).erc == (
        ("who", "(:unas)"),
        ("what", "(:unas)"),
        ("when", "(:unas)"),
        ("where", ARK),
    )


def test_a_place_of_the_form_is_a_where_but_no_local_id(producer: Path) -> None:
    described = describe(a_job(erc_where="https://a.example/1"), PROFILE, ARK, read_elements(producer))

    assert described.erc[-1] == ("where", "https://a.example/1")
    assert described.local_id == ()


def test_the_depositors_erc_overrides_the_form_element_by_element(producer: Path) -> None:
    (producer / "mrt-erc.txt").write_text("erc:\nWho: Own\nwhen: (:unas)\n")
    job = a_job(erc_who="Form", erc_what="Title", erc_when="2001")

    described = describe(job, PROFILE, ARK, read_elements(producer))

    assert described.erc[:3] == (("who", "Own"), ("what", "Title"), ("when", "2001"))
    assert described.dublin_core["creator"] == ("Own",)


def test_the_depositors_dublin_core_stands_between_form_and_erc(producer: Path) -> None:
    (producer / "mrt-erc.txt").write_text("who: From ERC\n")
    (producer / "mrt-dc.xml").write_text(
        a_dublin_core("<d:creator>DC</d:creator><d:title>From DC</d:title><d:rights>open</d:rights>")
    )
    job = a_job(erc_who="Form", erc_what="Form", dublin_core={"rights": ("closed",), "publisher": ("P",)})

    described = describe(job, PROFILE, ARK, read_elements(producer))

    assert described.erc[:2] == (("who", "From ERC"), ("what", "From DC"))
    assert {name: described.dublin_core[name] for name in ("creator", "title", "rights", "publisher")} == {
        "creator": ("From ERC",),
        "title": ("From DC",),
        "rights": ("open",),
        "publisher": ("P",),
    }


def test_several_creators_stay_several(producer: Path) -> None:
    (producer / "mrt-dc.xml").write_text(a_dublin_core("<d:creator>A</d:creator><d:creator>B</d:creator>"))

    described = describe(a_job(), PROFILE, ARK, read_elements(producer))

    assert described.erc[:2] == (("who", "A"), ("who", "B"))
    assert described.dublin_core["creator"] == ("A", "B")


@pytest.mark.parametrize(
    ("form", "erc", "expected"),
    [
        ("localid;localid;localid;localidtwo;localidtwo", "", "localid;localidtwo"),
        (
            "localidfour; localidfive",
            "where: localid\nwhere: localidtwo\nwhere: localidthree\n",
            "localidfour;localidfive;localid;localidtwo;localidthree",
        ),
        (
            "localidfour;localidfive;localidsix",
            "where: ark:/99999/elsewhere\nwhere: localid; localidtwo;localidthree\n",
            "localidfour;localidfive;localidsix;localid;localidtwo;localidthree",
        ),
    ],
)
def test_local_ids_of_the_erc_follow_those_of_the_form(
    producer: Path, form: str, erc: str, expected: str
) -> None:
    (producer / "mrt-erc.txt").write_text(f"erc:\n{erc}")

    described = describe(a_job(local_id=names.parse_local_ids(form)), PROFILE, ARK, read_elements(producer))

    assert names.write_local_ids(described.local_id) == expected
    assert f"localIdentifier: {expected}\n" in described.files["mrt-mom.txt"].decode()


def test_an_object_with_very_many_local_ids_is_refused(producer: Path) -> None:
    (producer / "mrt-erc.txt").write_text("".join(f"where: {n}\n" for n in range(501)))

    with pytest.raises(StepFailed, match="501 local ids") as failed:
        describe(a_job(), PROFILE, ARK, read_elements(producer))
    assert failed.value.kind is FailureKind.CONTENT


@pytest.mark.parametrize("name", ["a%scb", " a", "a ", " "])
def test_a_local_id_that_would_not_read_back_from_the_stored_object_is_refused(
    producer: Path, name: str
) -> None:
    with pytest.raises(StepFailed, match="local id") as failed:
        describe(a_job(local_id=(name,)), PROFILE, ARK, read_elements(producer))
    assert failed.value.kind is FailureKind.CONTENT


@pytest.mark.parametrize("name", ["a;b", "%", "a%s;c", "50%25"])
def test_a_local_id_with_semicolons_and_percent_signs_reads_back_from_the_stored_object(
    producer: Path, name: str
) -> None:
    described = describe(a_job(local_id=(name,)), PROFILE, ARK, read_elements(producer))

    stored = dict(anvl.parse(described.files["mrt-ingest.txt"], "it"))
    assert names.parse_local_ids(stored["localIdentifier"]) == (name,)


def test_the_dublin_core_file_is_simple_dublin_core(producer: Path) -> None:
    job = a_job(erc_who="Ünal & Söhne", erc_what="<b>", local_id=("loc-1",), dublin_core={"type": ("Image",)})

    xml = describe(job, PROFILE, ARK, read_elements(producer)).files["mrt-dc.xml"]

    assert ElementTree.fromstring(xml).tag == "{http://www.openarchives.org/OAI/2.0/oai_dc/}dc"
    assert elements(xml) == [
        ("title", "<b>"),
        ("creator", "Ünal & Söhne"),
        ("type", "Image"),
        ("identifier", ARK),
        ("identifier", "loc-1"),
    ]
    assert xml.startswith(b"<?xml version='1.0' encoding='UTF-8'?>\n<oai_dc:dc ")


def test_a_profile_may_keep_local_ids_out_of_the_dublin_core(producer: Path) -> None:
    profile = PROFILE.model_copy(update={"suppress_dublin_core_local_id": True})

    described = describe(a_job(local_id=("loc-1",)), profile, ARK, read_elements(producer))

    assert described.dublin_core["identifier"] == (ARK,)


def test_the_ingest_file_says_where_the_object_came_from(producer: Path) -> None:
    job = a_job(
        submission_type=SubmissionType.OBJECT_MANIFEST,
        submitted_at=datetime(2026, 8, 1, 17, tzinfo=UTC),
        digest=Digest(algorithm="md5", value="0" * 32),
        notification=("a@example.edu",),
        note="first\nsecond",
        local_id=("a;b",),
    )

    assert describe(job, PROFILE, ARK, read_elements(producer)).files["mrt-ingest.txt"].decode() == (
        "ingest:\tarkline\n"
        "submissionDate:\t2026-08-01T17:00:00+00:00\n"
        "batch:\tbid0000000001\n"
        "job:\tjid0000000001\n"
        "userAgent:\tme/Me\n"
        "file:\t1.checkm\n"
        "type:\tobject-manifest\n"
        "profile:\tdemo\n"
        "collection:\tark:/99999/one; ark:/99999/two\n"
        "notification:\ta@example.edu\n"
        f"primaryIdentifier:\t{ARK}\n"
        "digestType:\tmd5\n"
        f"digestValue:\t{'0' * 32}\n"
        "creator:\t(:unas)\n"
        "title:\t(:unas)\n"
        "date:\t(:unas)\n"
        "localIdentifier:\ta%25scb\n"
        "note:\tfirst%0Asecond\n"
    )


def test_owner_membership_and_object_model_come_from_the_profile(producer: Path) -> None:
    files = describe(a_job(), PROFILE, ARK, read_elements(producer)).files

    assert files["mrt-owner.txt"] == b"ark:/99999/owner"
    assert files["mrt-membership.txt"] == b"ark:/99999/one\nark:/99999/two\n"
    assert files["mrt-mom.txt"].decode() == (
        f"primaryIdentifier: {ARK}\n"
        "type: MRT-curatorial\nrole: MRT-content\naggregate: MRT-none\nlocalIdentifier: (:unas)\n"
    )


def test_every_attempt_writes_the_same_bytes(producer: Path) -> None:
    job = a_job(erc_who="A", local_id=("loc-1",))

    assert (
        describe(job, PROFILE, ARK, read_elements(producer)).files
        == describe(job, PROFILE, ARK, read_elements(producer)).files
    )


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_a_value_stays_on_one_line_and_reads_back(value: str) -> None:
    line = anvl.write((("note", value),))

    assert line.count(b"\n") == 1
    expected = value.strip() or anvl.UNKNOWN
    assert anvl.parse(line, "x") == (("note", expected),)


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_any_text_makes_well_formed_dublin_core(value: str) -> None:
    ElementTree.fromstring(write_dublin_core({"title": (value,)}))


@given(st.text(st.characters(exclude_categories=["Cs", "Cc", "Cn"])))
def test_dublin_core_reads_back(value: str) -> None:
    value = " ".join(value.split())

    expected = {"title": (value,)} if value else {}
    assert parse_dublin_core(write_dublin_core({"title": (value,)}), "x") == expected


def test_an_erc_may_be_folded_commented_and_written_on_windows() -> None:
    text = "\ufefferc:\r\n# by hand\r\nwho: Long\r\n  name\r\nwhat: 100% wool\r\n\r\nwhere: 7\r\n"

    assert anvl.parse_erc(text.encode(), "x") == {
        "who": ("Long name",),
        "what": ("100% wool",),
        "where": ("7",),
    }


def test_an_erc_may_be_one_line() -> None:
    assert anvl.parse_erc(b"erc: Gibbon | Decline | (:unkn) | loc-1", "x") == {
        "who": ("Gibbon",),
        "what": ("Decline",),
        "where": ("loc-1",),
    }


@pytest.mark.parametrize(
    ("name", "data", "says"),
    [
        ("mrt-erc.txt", b"who: a\nwhat\n", "producer/mrt-erc.txt line 2 has no colon"),
        ("mrt-erc.txt", b"who: a\nwhat: \xff\n", "producer/mrt-erc.txt line 2 is not UTF-8"),
        ("mrt-erc.txt", b"who: " + b"a" * 1_000_000, "larger than 1,000,000 bytes"),
        ("mrt-dc.xml", b"<dc>", "producer/mrt-dc.xml is not well-formed XML"),
        ("mrt-dc.xml", b"\xff\xfe<", "producer/mrt-dc.xml is not UTF-8"),
        ("mrt-dc.xml", b"<!DOCTYPE dc SYSTEM 'file:///etc/passwd'><dc/>", "DOCTYPE or ENTITY"),
        ("mrt-dc.xml", b"<!doctype dc [<!ENTITY a 'aaa'>]><dc>&a;</dc>", "DOCTYPE or ENTITY"),
        ("mrt-dc.xml", b"", "not well-formed"),
        ("mrt-dc.xml", b"<a>" * 101 + b"</a>" * 101, "nested more than 100 elements deep"),
        ("mrt-datacite.xml", b"<resource>", "producer/mrt-datacite.xml is not well-formed XML"),
        ("mrt-datacite.xml", b"\xff", "producer/mrt-datacite.xml is not UTF-8"),
        (
            "mrt-datacite.xml",
            b"<!DOCTYPE r [<!ENTITY a SYSTEM 'file:///etc/passwd'>]><r/>",
            "DOCTYPE or ENTITY",
        ),
        ("mrt-datacite.xml", b"<resource/>", "has 0 resource elements in DataCite's namespace"),
        ("mrt-datacite.xml", b" " * 1_000_001, "mrt-datacite.xml is larger than 1,000,000 bytes"),
    ],
)
def test_a_description_that_cannot_be_read_is_the_depositors_to_mend(
    producer: Path, name: str, data: bytes, says: str
) -> None:
    (producer / name).write_bytes(data)

    with pytest.raises(StepFailed, match=says) as failed:
        read_elements(producer)
    assert failed.value.kind is FailureKind.CONTENT


def test_a_description_of_the_object_itself_that_cannot_be_read_is_the_operators() -> None:
    with pytest.raises(StepFailed) as failed:
        metadata.read_previous_elements(ARK, {"system/mrt-erc.txt": b"who"}.get)

    assert failed.value.kind is FailureKind.SYSTEM
    assert f"the latest version of {ARK} has an invalid description" in failed.value.message
    assert "system/mrt-erc.txt line 1 has no colon" in failed.value.message
    assert failed.value.message.endswith("submit the whole object with mode add")


def test_elements_of_other_namespaces_are_not_dublin_core() -> None:
    xml = (
        '<r xmlns:t="http://purl.org/dc/terms/" xmlns:o="http://other.example/">'
        "<title>bare</title><o:title>other</o:title><t:title> two\n lines </t:title>"
        "<t:modified>x</t:modified></r>"
    )

    assert parse_dublin_core(xml.encode(), "x") == {"title": ("two lines",)}
