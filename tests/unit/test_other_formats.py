"""A file that is no manifest is named, and how it is submitted instead."""

import gzip
import io
import tarfile
import zipfile

import pytest

from pipeline.manifests.checkm import ManifestProfile, check
from tests.support.manifests import URL, manifest


def a_zip() -> bytes:
    with zipfile.ZipFile(packed := io.BytesIO(), "w") as archive:
        archive.writestr("a.txt", "a")
    return packed.getvalue()


def a_tar() -> bytes:
    with tarfile.open(fileobj=(packed := io.BytesIO()), mode="w") as archive:
        archive.addfile(tarfile.TarInfo("a.txt"))
    return packed.getvalue()


@pytest.mark.parametrize(
    ("data", "told"),
    [
        (a_zip(), "this is a ZIP archive, not a manifest: submit it with the type container"),
        (a_tar(), "this is a tar archive, not a manifest: submit it with the type container"),
        (gzip.compress(a_tar()), "this is an archive compressed by gzip, not a manifest"),
        (b"%PDF-1.7\n...", "this is a PDF document, not a manifest: submit it with the type file"),
        (b"\xff\xd8\xff\xe0", "this is a JPEG image, not a manifest: submit it with the type file"),
        (b"\n<!DOCTYPE html><html>", "this is a web page, not a manifest: give the address that"),
        (b"<!-- sign in -->\n<HTML lang=en>", "this is a web page, not a manifest"),
        (b"<script>location = '/login'</script>", "this is a web page, not a manifest"),
        (b"\xef\xbb\xbfURL,MD5,Title\r\nhttps://x.edu/a.jpg,,\r\n", "this is a table, not a manifest"),
        (b"URL;Titel\nhttps://x.edu/a.jpg;Jazz\n", "this is a table, not a manifest: convert it"),
    ],
    ids=[
        "zip",
        "tar",
        "gzip",
        "pdf",
        "jpeg",
        "page",
        "page with a comment",
        "script",
        "commas",
        "semicolons",
    ],
)
def test_what_is_no_manifest_is_named_with_the_way_to_submit_it(data: bytes, told: str) -> None:
    (problem,) = check(data, ManifestProfile.BATCH)

    assert problem.message.startswith(told)


@pytest.mark.parametrize(
    "data",
    [
        manifest(URL),
        b"https://x.edu/a,b;c.jpg\n#%eof\n",
        b"https://x.edu/a.jpg | md5 |\n#%eof\n",
        b"#%checkm_0.7, and more\n#%eof\n",
        b"",
    ],
    ids=["manifest", "commas in a URL", "row", "header", "empty"],
)
def test_what_may_be_a_manifest_is_read_as_one(data: bytes) -> None:
    assert not any("not a manifest" in problem.message for problem in check(data, ManifestProfile.OBJECT))
