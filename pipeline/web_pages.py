"""Recognises a web page that came in the place of a file: for signing in, or about an error."""

import re

EXAMINED = 4096
"""Bytes at the beginning that are looked at."""

SIGN_IN = "a page for signing in or an error page may have come in its place"

PAGE_SUFFIXES = (".html", ".htm", ".xhtml", ".xht", ".shtml", ".php", ".asp", ".aspx", ".jsp")
"""Names of files that are expected to be web pages."""

_HTML = re.compile(rb"\s*(<!--.*?-->\s*)*<(!doctype\s+html|html|head|body)\b", re.IGNORECASE | re.DOTALL)
_XHTML = re.compile(
    rb"\s*<\?xml[^>]*>\s*(<!--.*?-->\s*)*<(!doctype\s+html|html)\b", re.IGNORECASE | re.DOTALL
)
HTML = "text/html"
_TYPES = (HTML, "application/xhtml+xml")
_UTF16 = (b"\xff\xfe", b"\xfe\xff")


def is_web_page(data: bytes, content_type: str = "") -> bool:
    """Whether the bytes begin as HTML; with the type of HTML, whether they begin as any markup."""
    head = data[:EXAMINED].removeprefix(b"\xef\xbb\xbf")
    if head.startswith(_UTF16):
        head = head[2:].replace(b"\0", b"")
    if _HTML.match(head) or _XHTML.match(head):
        return True
    return content_type.partition(";")[0].strip().lower() in _TYPES and head.lstrip().startswith(b"<")
