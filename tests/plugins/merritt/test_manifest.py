from datetime import UTC, datetime

import pytest

from plugins.merritt.manifest import ManifestFile, parse
from tests.servers.merritt import Held, Merritt

ARK = "ark:/99999/x"
KEY = f"{ARK}|1|a"
FILE = f"""<m:file id="a"><m:digestType>SHA-512</m:digestType><m:digest>AB</m:digest><m:size>1</m:size>
<m:key>{KEY}</m:key></m:file>"""


def document(version: str) -> bytes:
    return (
        f'<m:objectInfo xmlns:m="http://uc3.cdlib.org/ontology/mrt/manifest"><m:object id="{ARK}"/>'
        f"<m:versions>{version}</m:versions></m:objectInfo>"
    ).encode()


def test_versions_and_files_are_read() -> None:
    service = Merritt(objects={("1", ARK): [{"a": Held(b"a", 1)}, {"a": Held(b"a", 1), "b|c": Held(b"", 2)}]})
    body = service.manifest("1", ARK)
    assert body is not None

    held = parse(body)

    assert (held.ark, [version.number for version in held.versions]) == (ARK, [1, 2])
    assert {path: file.version for path, file in held.head.files.items()} == {"a": 1, "b|c": 2}
    assert held.head.files["a"].sha512 == Held(b"a", 1).digest()
    assert held.head.created == datetime(2026, 9, 1, 19, tzinfo=UTC)


def test_versions_may_stand_inside_the_object_in_any_order() -> None:
    versions = "".join(
        f'<version id="{number}"><manifest created="2026-09-01T00:00:00"/></version>' for number in (2, 10, 1)
    )

    held = parse(f'<objectInfo><object id="x"><versions>{versions}</versions></object></objectInfo>'.encode())

    assert [version.number for version in held.versions] == [1, 2, 10]
    assert held.head.created.tzinfo is UTC


def test_another_digest_than_that_of_record_is_told_as_it_is() -> None:
    body = document(
        f'<m:version id="1"><m:manifest created="2026-09-01">{FILE}{FILE}</m:manifest></m:version>'
    )

    assert parse(body).head.files["a"] == ManifestFile("a", 1, "sha512", "ab", 1, KEY)
    other = parse(body.replace(b"SHA-512", b"BLAKE9")).head.files["a"]
    assert (other.algorithm, other.sha512) == ("BLAKE9", None)


@pytest.mark.parametrize(
    ("body", "says"),
    [
        (b"", "cannot be parsed"),
        (b"<html>", "cannot be parsed"),
        (b"<html/>", "names no object"),
        (b"<!DOCTYPE html><html/>", "has a declaration"),
        (document(""), "or no version"),
        (document('<m:version id="1"/>'), "cannot be parsed: version 1 has no manifest"),
        (
            document('<m:version id="one"><m:manifest created="2026-09-01"/></m:version>'),
            "cannot be parsed: .*'one'",
        ),
        (
            document('<m:version id="1"><m:manifest created="today"/></m:version>'),
            "cannot be parsed: .*'today'",
        ),
        (
            document('<m:version><m:manifest created="2026-09-01"/></m:version>'),
            "a version or a file has no 'id'",
        ),
        (
            document(
                '<m:version id="1"><m:manifest created="2026-09-01"><m:file id="a"/></m:manifest></m:version>'
            ),
            "a version or a file has no 'digestType'",
        ),
        (
            document(
                f'<m:version id="1"><m:manifest created="2026-09-01">{FILE}</m:manifest></m:version>'
            ).replace(b"|1|a", b""),
            "cannot be parsed",
        ),
    ],
)
def test_an_invalid_manifest_is_refused(body: bytes, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        parse(body)
