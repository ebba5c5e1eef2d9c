import hashlib
from pathlib import Path

import pytest

from pipeline.fixity import ContentFile
from pipeline.manifests import storage_manifest

SHA512 = hashlib.sha512(b"").hexdigest()


def a_file(path: str, mime_type: str = "") -> ContentFile:
    return ContentFile(path, Path("/working/jid1") / path, 12, SHA512, mime_type)


def test_every_file_is_a_row_in_the_order_of_the_paths() -> None:
    text = storage_manifest.write([a_file("system/a.txt"), a_file("producer/a.jpg")]).decode()

    assert text.splitlines() == [
        "#%checkm_0.7",
        "#%profile | http://uc3.cdlib.org/registry/store/manifest/mrt-add-manifest",
        "#%prefix | mrt: | http://merritt.cdlib.org/terms#",
        "#%prefix | nfo: | http://www.semanticdesktop.org/ontologies/2007/03/22/nfo#",
        "#%fields | nfo:fileUrl | nfo:hashAlgorithm | nfo:hashValue | nfo:fileSize | nfo:fileLastModified"
        " | nfo:fileName | mrt:mimeType",
        f"file:///working/jid1/producer/a.jpg | sha512 | {SHA512} | 12 |  | producer/a.jpg | image/jpeg",
        f"file:///working/jid1/system/a.txt | sha512 | {SHA512} | 12 |  | system/a.txt | text/plain",
        "#%eof",
    ]


def test_bars_and_blanks_at_the_end_of_a_name_are_written_so_that_they_read_back() -> None:
    row = storage_manifest.write([a_file("producer/a|b ")]).decode().splitlines()[5]

    assert row.split(" | ")[0] == "file:///working/jid1/producer/a%7Cb%20"
    assert row.split(" | ")[5] == "producer/a%7cb%20"


@pytest.mark.parametrize("path", ["/a b.txt", "/working/ü/a|b", "a.txt", "below/a.txt"])
def test_the_url_of_a_file_is_that_of_its_absolute_path(path: str) -> None:
    row = storage_manifest.write([ContentFile("a.txt", Path(path), 12, SHA512, "")]).decode().splitlines()[5]

    assert row.split(" | ")[0] == Path(path).absolute().as_uri()


def test_names_in_other_scripts_stay_readable() -> None:
    assert "| producer/größe.pdf |" in storage_manifest.write([a_file("producer/größe.pdf")]).decode()


def test_a_type_that_was_given_is_kept_and_others_are_told_by_the_name() -> None:
    assert "| image/x-odd" in storage_manifest.write([a_file("producer/a", "image/x-odd")]).decode()
    assert storage_manifest.mime_type("producer/a.xml") in ("text/xml", "application/xml")
    assert storage_manifest.mime_type("producer/a.tar.gz") == "application/gzip"
    assert storage_manifest.mime_type("producer/data:text/x.jpg") == "image/jpeg"
    assert storage_manifest.mime_type("producer/noname") == "application/octet-stream"
