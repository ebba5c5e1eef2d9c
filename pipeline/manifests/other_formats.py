"""Recognises what depositors give as a manifest and what is none."""

from pipeline.web_pages import EXAMINED, HTML, SIGN_IN, is_web_page

_SIGNATURES = {
    b"PK\x03\x04": "a ZIP archive",
    b"PK\x05\x06": "an empty ZIP archive",
    b"\x1f\x8b": "an archive compressed by gzip",
    b"BZh": "an archive compressed by bzip2",
    b"\xfd7zXZ\x00": "an archive compressed by xz",
    b"7z\xbc\xaf\x27\x1c": "a 7z archive",
    b"%PDF-": "a PDF document",
    b"\xff\xd8\xff": "a JPEG image",
    b"\x89PNG": "a PNG image",
    b"II*\x00": "a TIFF image",
    b"MM\x00*": "a TIFF image",
}
_TAR = slice(257, 262)


def problem_of(data: bytes) -> str | None:
    """What the bytes are, and how to submit them, if they are surely no manifest."""
    head = data[:EXAMINED]
    if kind := _archive_or_file(head):
        how = "with the type container" if "archive" in kind else "with the type file"
        return f"this is {kind}, not a manifest: submit it {how}"
    if is_web_page(head, HTML):  # no manifest begins as markup
        return (
            "this is a web page, not a manifest: give the address that downloads the manifest itself; "
            f"{SIGN_IN}"
        )
    if _is_table(head):
        return "this is a table, not a manifest: convert it to a manifest first (manifest from-csv)"
    return None


def _archive_or_file(head: bytes) -> str | None:
    if head[_TAR] == b"ustar":
        return "a tar archive"
    return next((name for signature, name in _SIGNATURES.items() if head.startswith(signature)), None)


def _is_table(head: bytes) -> bool:
    """Whether the first line is that of a table: cells, and neither a header nor a row of a manifest."""
    first = next((line for line in head.decode("utf-8-sig", "replace").splitlines() if line.strip()), "")
    if first.startswith("#") or "|" in first or "://" in first:
        return False
    return any(first.count(delimiter) for delimiter in ",;\t")
