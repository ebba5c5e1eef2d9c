"""The name of an upload in Content-Disposition: the file's own, as the client wrote it."""

import pytest
from starlette.datastructures import Headers

from entrypoints.web.receiving import stated_name


@pytest.mark.parametrize(
    ("header", "name"),
    [
        ('attachment; filename="a b.pdf"', "a b.pdf"),
        ("attachment; filename=a.pdf", "a.pdf"),
        ('attachment; filename="Möwe.pdf"', "Möwe.pdf"),
        ("attachment; filename=\"Mowe.pdf\"; filename*=UTF-8''M%C3%B6we.pdf", "Möwe.pdf"),
        ("attachment; filename*=UTF-8''M%C3%B6we.pdf", "Möwe.pdf"),
        (r'attachment; filename="a \"new\" view.pdf"', 'a "new" view.pdf'),
        (r'attachment; filename="the \"new\""', 'the "new"'),
        (r'attachment; filename="scans\a.pdf"', r"scans\a.pdf"),
        ('attachment; filename="=?utf-8?q?a?="', "=?utf-8?q?a?="),
        ('attachment; filename=""', None),
        ("attachment", None),
        ("", None),
    ],
)
def test_an_upload_gets_the_name_that_its_client_stated(header: str, name: str | None) -> None:
    assert stated_name(Headers(raw=[(b"content-disposition", header.encode())])) == name


def test_an_upload_without_the_header_has_no_name() -> None:
    assert stated_name(Headers()) is None
