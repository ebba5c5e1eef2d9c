"""siegfried names the format of real files; what it cannot name is not called fine."""

import hashlib
import io
import os
import struct
import subprocess
import sys
import zipfile
import zlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from pipeline.checks import CheckedFile, CheckFinding, CheckVerdict
from pipeline.decoding import limits
from plugins.pronom.check import PronomCheck, findings
from tests.support.requirements import unavailable

PROJECT = Path(__file__).parents[3]


def png() -> bytes:
    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack("!I", len(data)) + kind + data + struct.pack("!I", zlib.crc32(kind + data))

    header = chunk(b"IHDR", struct.pack("!IIBBBBB", 1, 1, 8, 0, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + header + chunk(b"IDAT", zlib.compress(b"\0\0")) + chunk(b"IEND", b"")


def tiff() -> bytes:
    entries = [(256, 4, 1, 1), (257, 4, 1, 1), (273, 4, 1, 8), (279, 4, 1, 1)]
    rows = b"".join(struct.pack("<HHII", *entry) for entry in entries)
    return b"II*\0" + struct.pack("<I", 12) + b"\0\0\0\0" + struct.pack("<H", len(entries)) + rows + bytes(4)


def pdf() -> bytes:
    return b"%PDF-1.4\n1 0 obj\n<< /Type /Catalog >>\nendobj\ntrailer\n<< /Root 1 0 R >>\n%%EOF\n"


def odt() -> bytes:
    kind = "application/vnd.oasis.opendocument.text"
    entry = (
        f'<manifest:file-entry manifest:full-path="/" manifest:version="1.2" manifest:media-type="{kind}"/>'
    )
    content = '<?xml version="1.0"?><office:document-content office:version="1.2"/>'
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w") as archive:
        archive.writestr("mimetype", kind)
        archive.writestr("content.xml", content)
        archive.writestr(
            "META-INF/manifest.xml",
            f'<?xml version="1.0"?><manifest:manifest manifest:version="1.2">{entry}</manifest:manifest>',
        )
    return target.getvalue()


REAL: dict[str, tuple[str, Callable[[], bytes], str, str]] = {
    "PDF": ("a.pdf", pdf, "fmt/18", "Acrobat PDF 1.4 - Portable Document Format 1.4"),
    "PNG": ("a.png", png, "fmt/11", "Portable Network Graphics 1.0"),
    "TIFF": ("a.tif", tiff, "fmt/353", "Tagged Image File Format"),
    "XML": ("a.xml", lambda: b"<?xml version='1.0'?><a/>", "fmt/101", "Extensible Markup Language 1.0"),
    "text": ("a.txt", lambda: b"plain text\n", "x-fmt/111", "Plain Text File"),
    "OpenDocument": ("a.odt", odt, "fmt/291", "OpenDocument Text 1.2"),
    "PNG of another name": ("a.doc", png, "fmt/11", "Portable Network Graphics 1.0"),
}


class Context:
    """The work goes on."""

    def __init__(self) -> None:
        self.asked = 0

    def alive(self) -> None:
        self.asked += 1


@pytest.fixture(scope="session")
def guest() -> PronomCheck:
    """In the process of the tests, which forks no more: its threads of Go stay."""
    try:
        return PronomCheck(None)
    except ModuleNotFoundError:
        unavailable("pygfried is not installed: pip install 'arkline[pronom]'")


def file(folder: Path, name: str, content: bytes) -> CheckedFile:
    source = folder / name
    source.write_bytes(content)
    return CheckedFile(f"deposit/{name}", source, len(content), hashlib.sha512(content).hexdigest())


def identified(guest: PronomCheck, *files: CheckedFile) -> list[CheckFinding]:
    return list(guest.run(files, Context()))


@pytest.mark.parametrize("kind", REAL)
def test_a_format_is_named_with_its_version_and_the_reason(
    guest: PronomCheck, tmp_path: Path, kind: str
) -> None:
    name, content, code, format_name = REAL[kind]

    [finding] = identified(guest, file(tmp_path, name, content()))

    assert (finding.path, finding.verdict, finding.code) == (f"deposit/{name}", CheckVerdict.FINE, code)
    assert finding.message.startswith(format_name)
    assert "match" in finding.message


def test_a_name_that_contradicts_the_bytes_is_said(guest: PronomCheck, tmp_path: Path) -> None:
    [finding] = identified(guest, file(tmp_path, "a.doc", png()))

    assert "extension mismatch" in finding.message


def test_a_format_known_by_its_name_alone_says_so(guest: PronomCheck, tmp_path: Path) -> None:
    [finding] = identified(guest, file(tmp_path, "a.bin", bytes(1000)))

    assert finding.verdict is CheckVerdict.FINE
    assert "match on extension only" in finding.message


@pytest.mark.parametrize(
    ("name", "content", "code"),
    [
        ("a", bytes(range(256)), "unknown-format"),
        ("empty", b"", "empty"),
        ("empty.txt", b"", "empty"),
        ("truncated", png()[:30], "unknown-format"),
        ("truncated.png", png()[:30], "unknown-format"),
    ],
)
def test_a_file_without_a_known_format_is_not_called_fine(
    guest: PronomCheck, tmp_path: Path, name: str, content: bytes, code: str
) -> None:
    [finding] = identified(guest, file(tmp_path, name, content))

    assert (finding.verdict, finding.code) == (CheckVerdict.UNCHECKED, code)
    assert finding.message


def test_several_formats_are_several_findings() -> None:
    def match(code: str) -> dict[str, str]:
        return {"id": code, "format": "A", "version": "1", "basis": "byte match at 0, 3", "warning": ""}

    found = list(findings("a", {"errors": "", "matches": [match("fmt/1"), match("fmt/2")]}))  # type: ignore[typeddict-item]

    assert [(each.path, each.verdict, each.code) for each in found] == [
        ("a", CheckVerdict.FINE, "fmt/1"),
        ("a", CheckVerdict.FINE, "fmt/2"),
    ]


@pytest.mark.parametrize(
    "name", ["line\nbreak.pdf", "quote'\"s.pdf", "\u00fcml\u00e4ut \U0001f4c4.pdf", "-.pdf", "%s.pdf"]
)
def test_any_name_can_be_identified(guest: PronomCheck, tmp_path: Path, name: str) -> None:
    [finding] = identified(guest, file(tmp_path, name, pdf()))

    assert (finding.path, finding.code) == (f"deposit/{name}", "fmt/18")
    assert finding.message.isprintable()


def test_a_name_that_is_no_text_is_not_called_fine(guest: PronomCheck, tmp_path: Path) -> None:
    odd = tmp_path / os.fsdecode(b"\xff.pdf")
    odd.write_bytes(pdf())

    [finding] = identified(guest, CheckedFile("deposit/odd", odd, 1, ""))

    assert (finding.verdict, finding.code) == (CheckVerdict.UNCHECKED, "unreadable")


def test_files_of_a_folder_that_vanished_are_not_called_fine_and_the_others_are_identified(
    guest: PronomCheck, tmp_path: Path
) -> None:
    there = file(tmp_path, "there.pdf", pdf())
    gone = replace(there, path="deposit/gone.pdf", source=tmp_path / "vanished" / "gone.pdf")
    a_folder = replace(there, path="deposit/folder", source=tmp_path)

    found = identified(guest, gone, a_folder, there)

    assert [(each.verdict, each.code) for each in found] == [
        (CheckVerdict.UNCHECKED, "unreadable"),
        (CheckVerdict.UNCHECKED, "unreadable"),
        (CheckVerdict.FINE, "fmt/18"),
    ]


def test_an_unknown_format_comes_with_what_its_name_suggests(guest: PronomCheck, tmp_path: Path) -> None:
    [finding] = identified(guest, file(tmp_path, "truncated.png", png()[:30]))

    assert "possibilities based on extension are fmt/11" in finding.message


def test_the_context_is_asked_before_each_file(guest: PronomCheck, tmp_path: Path) -> None:
    context = Context()

    list(guest.run([file(tmp_path, str(number), b"x") for number in range(3)], context))

    assert context.asked == 3


def test_the_version_is_that_of_siegfried_and_its_signatures(guest: PronomCheck) -> None:
    assert guest.version.startswith("siegfried 1.")
    assert "DROID_SignatureFile_V" in guest.version
    assert "container-signature-" in guest.version


IMPORTED = """
import sys
from plugins.pronom.check import PronomCheck
assert "pygfried" not in sys.modules
"""

CONFINED = """
import resource, sys
from pathlib import Path
from pipeline.checks import CheckedFile
from pipeline.decoding import limits
from plugins.pronom.check import PronomCheck
import pipeline.checks

class Context:
    def alive(self):
        pass

memory = PronomCheck.access.memory
resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
readable = (sys.argv[1], *limits._LIBRARY, *limits._installed())
print(limits.restrict_files("", readable), limits.restrict_calls())
check = PronomCheck(None)
files = [CheckedFile("a", path, path.stat().st_size, "") for path in sorted(Path(sys.argv[1]).iterdir())]
for finding in check.run(files * 200, Context()):
    print(finding.code)
"""


def run(program: str, *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", program, *arguments],
        cwd=PROJECT, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


def test_a_worker_that_knows_the_check_has_not_loaded_go() -> None:
    run(IMPORTED)


@pytest.mark.skipif(sys.platform != "linux", reason="macOS has no such limit")
def test_it_works_with_the_limits_that_it_declares(guest: PronomCheck, tmp_path: Path) -> None:
    file(tmp_path, "a.pdf", pdf())
    file(tmp_path, "b.png", png())
    with (tmp_path / "c.large").open("wb") as sparse:
        sparse.truncate(200_000)

    first, *codes = run(CONFINED, str(tmp_path)).split("\n")

    assert first == f"{limits.restricts_files()} {limits.restricts_calls()}"
    assert codes == ["fmt/18", "fmt/11", "unknown-format"] * 200 + [""]
