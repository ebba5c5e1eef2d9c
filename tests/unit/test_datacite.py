from pathlib import Path

import pytest

from pipeline.description.metadata import describe, read_elements
from pipeline.description.xml import parse_datacite
from pipeline.outcome import StepFailed
from pipeline.profiles.profile import Profile
from tests.support.records import a_job

ARK = "ark:/99999/fk4000000011"
PROFILE = Profile(name="demo", owner="ark:/99999/owner", collections=("ark:/99999/one",), shoulder="fk4")
KERNEL = "http://datacite.org/schema/kernel-4"


def resource(inner: str, namespace: str = KERNEL) -> str:
    return f'<resource xmlns="{namespace}">{inner}</resource>'


FULL = resource(
    """
    <identifier identifierType="DOI">10.5072/example</identifier>
    <creators>
      <creator><creatorName nameType="Personal">Miller, Elizabeth</creatorName>
        <givenName>Elizabeth</givenName><nameIdentifier>0000-0001-5000-0007</nameIdentifier></creator>
      <creator><creatorName>Söhne &amp; Co</creatorName></creator>
    </creators>
    <titles><title>Full
       example</title><title titleType="Subtitle">of a record</title></titles>
    <publisher>Example Press</publisher>
    <publicationYear>2014</publicationYear>
    <subjects><subject>ferries</subject></subjects>
    <contributors><contributor contributorType="Editor"><contributorName>Starr</contributorName></contributor>
    </contributors>
    <language>en</language>
    <resourceType resourceTypeGeneral="Dataset"/>
    <alternateIdentifiers><alternateIdentifier alternateIdentifierType="shelf">box 3</alternateIdentifier>
    </alternateIdentifiers>
    <formats><format>text/csv</format></formats>
    <rightsList><rights>CC0</rights></rightsList>
    <descriptions><description descriptionType="Abstract">About ferries.</description></descriptions>
    <relatedItems><relatedItem><titles><title>Another's title</title></titles></relatedItem></relatedItems>
    """
)


def test_datacite_is_told_in_the_elements_of_dublin_core() -> None:
    assert parse_datacite(FULL.encode(), "x") == {
        "creator": ("Miller, Elizabeth", "Söhne & Co"),
        "title": ("Full example", "of a record"),
        "date": ("2014",),
        "publisher": ("Example Press",),
        "subject": ("ferries",),
        "contributor": ("Starr",),
        "description": ("About ferries.",),
        "language": ("en",),
        "type": ("Dataset",),
        "identifier": ("doi:10.5072/example", "box 3"),
        "format": ("text/csv",),
        "rights": ("CC0",),
    }


@pytest.mark.parametrize(
    "namespace",
    [
        "http://datacite.org/schema/kernel-4",
        "https://datacite.org/schema/kernel-4.5",
        "http://datacite.org/schema/kernel-3",
        "http://datacite.org/schema/kernel-2.2",
    ],
)
def test_earlier_kernels_are_read_too(namespace: str) -> None:
    xml = resource("<titles><title>A</title></titles>", namespace)

    assert parse_datacite(xml.encode(), "x") == {"title": ("A",)}


def test_a_resource_may_stand_in_an_envelope() -> None:
    assert parse_datacite(f"<record><metadata>{FULL}</metadata></record>".encode(), "x")["date"] == ("2014",)


@pytest.mark.parametrize("code", ["(:unav)", "(:tba)", " ", ""])
def test_a_code_for_a_value_that_is_not_there_is_no_value(code: str) -> None:
    assert parse_datacite(resource(f"<publisher>{code}</publisher>").encode(), "x") == {}


@pytest.mark.parametrize(
    "xml",
    [
        '<resource xmlns="http://other.example/"/>',
        resource("", "http://datacite.org/schema/kernel-5"),
        f"<both>{resource('')}{resource('')}</both>",
    ],
)
def test_a_document_that_describes_no_resource_or_two_is_refused(xml: str) -> None:
    with pytest.raises(StepFailed, match=r"x has [02] resource elements .*kernel-4, but must have one"):
        parse_datacite(xml.encode(), "x")


def test_datacite_stands_between_dublin_core_and_erc_element_by_element(tmp_path: Path) -> None:
    dc = '<dc xmlns:d="http://purl.org/dc/elements/1.1/"><d:title>DC</d:title><d:source>DC</d:source></dc>'
    (tmp_path / "mrt-dc.xml").write_text(dc)
    (tmp_path / "mrt-datacite.xml").write_text(FULL)
    (tmp_path / "mrt-erc.txt").write_text("erc:\nwho: From ERC\n")

    described = describe(
        a_job(erc_who="Form", erc_what="Form", erc_when="1999"), PROFILE, ARK, read_elements(tmp_path)
    )

    assert described.erc == (
        ("who", "From ERC"),
        ("what", "Full example"),
        ("what", "of a record"),
        ("when", "2014"),
        ("where", ARK),
    )
    assert described.dublin_core["creator"] == ("From ERC",)
    assert described.dublin_core["source"] == ("DC",)
    assert described.dublin_core["identifier"] == (ARK, "doi:10.5072/example", "box 3")
    assert described.local_id == ()
