"""What a real clamd finds, and what it does not read, becomes a finding that says so."""

import bz2
import gzip
import io
import os
import resource
import subprocess
import tarfile
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from pipeline.checks import CheckVerdict, Obstacle, ServiceAway
from plugins.clamav import check as check_module
from plugins.clamav.check import ClamavCheck
from plugins.clamav.samples import eicar, encrypted, nested, zipped
from plugins.clamav.settings import ClamavSettings
from tests.plugins.clamav.conftest import Site, check, file, scanned
from tests.servers import clamd
from tests.support.requirements import unavailable


def tarred(content: bytes) -> bytes:
    target = io.BytesIO()
    with tarfile.open(fileobj=target, mode="w") as archive:
        member = tarfile.TarInfo("inner/virus.com")
        member.size = len(content)
        archive.addfile(member, io.BytesIO(content))
    return target.getvalue()


def nested_around(content: bytes, depth: int) -> bytes:
    for _ in range(depth):
        content = zipped(content)
    return content


FORMS: dict[str, Callable[[], bytes]] = {
    "alone": eicar,
    "in a zip": lambda: zipped(eicar()),
    "in a tar": lambda: tarred(eicar()),
    "in gzip": lambda: gzip.compress(eicar()),
    "in bzip2": lambda: bz2.compress(eicar()),
    "in a tar.gz in a zip": lambda: zipped(gzip.compress(tarred(eicar()))),
    "at clamd's depth": lambda: nested_around(eicar(), 16),
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("kind", ["unix", "tcp"])
def test_the_test_virus_is_found(server: clamd.Server, tmp_path: Path, form: str, kind: str) -> None:
    [finding] = scanned(getattr(server, kind), file(tmp_path, FORMS[form]()))

    assert (finding.path, finding.verdict, finding.code) == (
        "deposit/a",
        CheckVerdict.FOUND,
        clamd.EICAR_NAME,
    )
    assert finding.message == f"The virus scanner found {clamd.EICAR_NAME}."


@pytest.mark.parametrize("content", [b"", b"text", bytes(1 << 16), bytes((1 << 16) + 1), bytes(3_000_000)])
def test_a_file_without_a_virus_is_fine(server: clamd.Server, tmp_path: Path, content: bytes) -> None:
    [finding] = scanned(server.unix, file(tmp_path, content))

    assert (finding.verdict, finding.code, finding.message) == (CheckVerdict.FINE, "", "")


def test_a_process_with_more_than_1024_open_files_has_them_scanned(
    server: clamd.Server, tmp_path: Path
) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, max(soft, 4096)), hard))
    null = os.open(os.devnull, os.O_RDONLY)
    opened = [null, *(os.dup(null) for _ in range(1100))]
    try:
        [finding] = scanned(server.unix, file(tmp_path, eicar()))
    finally:
        for descriptor in opened:
            os.close(descriptor)

    assert finding.verdict is CheckVerdict.FOUND


def test_each_file_has_its_finding_in_the_order_of_the_files(server: clamd.Server, tmp_path: Path) -> None:
    contents = {"one": b"one", "two": eicar(), "three": nested(), "four": b"four"}

    found = scanned(server.unix, *(file(tmp_path, content, name) for name, content in contents.items()))

    assert [(each.path, each.verdict) for each in found] == [
        ("deposit/one", CheckVerdict.FINE),
        ("deposit/two", CheckVerdict.FOUND),
        ("deposit/three", CheckVerdict.UNCHECKED),
        ("deposit/four", CheckVerdict.FINE),
    ]


def test_what_is_nested_deeper_than_clamd_reads_is_not_called_clean(
    server: clamd.Server, tmp_path: Path
) -> None:
    [finding] = scanned(server.unix, file(tmp_path, nested_around(eicar(), 40)))

    assert (finding.verdict, finding.code) == (CheckVerdict.UNCHECKED, Obstacle.TOO_LARGE)
    assert "MaxRecursion" in finding.message


@pytest.mark.parametrize("archive", ["zip", "7z"])
def test_an_encrypted_member_is_not_called_clean(server: clamd.Server, tmp_path: Path, archive: str) -> None:
    (tmp_path / "virus.com").write_bytes(eicar())
    try:
        subprocess.run(
            ["7z", "a", "-psecret", f"sealed.{archive}", "virus.com"],
            cwd=tmp_path, check=True, stdout=subprocess.DEVNULL,
        )  # fmt: skip
    except FileNotFoundError:
        unavailable("7z is not installed: apt-get install p7zip-full")

    [finding] = scanned(server.unix, file(tmp_path, (tmp_path / f"sealed.{archive}").read_bytes()))

    assert (finding.verdict, finding.code) == (CheckVerdict.UNCHECKED, Obstacle.ENCRYPTED)


def test_a_virus_beside_an_encrypted_member_is_found(server: clamd.Server, tmp_path: Path) -> None:
    [finding] = scanned(server.unix, file(tmp_path, tarred(encrypted()) + tarred(eicar())))

    assert (finding.verdict, finding.code) == (CheckVerdict.FOUND, clamd.EICAR_NAME)


@pytest.mark.parametrize("kind", ["unix", "tcp"])
@pytest.mark.parametrize(
    ("size", "limit"),
    [
        (12_000_000, "MaxFileSize"),
        (20 * (1 << 20) + 1, "size limit exceeded"),
        (80_000_000, "size limit exceeded"),
    ],
)
def test_a_file_beyond_a_limit_is_not_called_clean(
    server: clamd.Server, tmp_path: Path, kind: str, size: int, limit: str
) -> None:
    [finding, next_one] = scanned(
        getattr(server, kind), file(tmp_path, bytes(size), "large"), file(tmp_path, b"small", "small")
    )

    assert (finding.verdict, finding.code) == (CheckVerdict.UNCHECKED, Obstacle.TOO_LARGE)
    assert limit in finding.message
    assert next_one.verdict is CheckVerdict.FINE


PACKED: dict[str, Callable[[bytes], bytes]] = {
    "zip": zipped,
    "zip in a zip": lambda content: zipped(zipped(content)),
    "gzip": gzip.compress,
    "bzip2": bz2.compress,
    "tar.gz": lambda content: gzip.compress(tarred(content)),
}


@pytest.mark.parametrize("packed", PACKED)
def test_what_unpacks_to_more_than_clamd_reads_is_not_called_clean(
    server: clamd.Server, tmp_path: Path, packed: str
) -> None:
    [finding] = scanned(server.unix, file(tmp_path, PACKED[packed](bytes(12_000_000) + eicar())))

    assert (finding.verdict, finding.code) == (CheckVerdict.UNCHECKED, Obstacle.TOO_LARGE)


def test_a_file_larger_than_clamav_can_read_is_not_sent(server: clamd.Server, tmp_path: Path) -> None:
    large = file(tmp_path, b"")
    with large.source.open("wb") as sparse:
        sparse.truncate(1 << 31)

    [finding] = scanned(server.unix, replace(large, size=1 << 31))

    assert (finding.verdict, finding.code) == (CheckVerdict.UNCHECKED, Obstacle.TOO_LARGE)


def test_a_file_that_vanished_is_not_called_clean(server: clamd.Server, tmp_path: Path) -> None:
    gone = file(tmp_path, b"x")
    gone.source.unlink()

    [finding] = scanned(server.unix, gone)

    assert (finding.verdict, finding.code) == (CheckVerdict.UNCHECKED, "unreadable")


def test_a_scan_that_clamd_ends_at_its_time_limit_is_not_called_clean(tmp_path: Path, site: Site) -> None:
    server = site(MaxScanTime="200")
    many = io.BytesIO()
    with zipfile.ZipFile(many, "w") as archive:
        for number in range(9500):
            archive.writestr(str(number), os.urandom(20))

    [finding] = scanned(server.unix, file(tmp_path, many.getvalue()))

    assert (finding.verdict, finding.code) == (CheckVerdict.UNCHECKED, Obstacle.TIMED_OUT)


def test_the_version_is_that_of_the_engine_and_its_signatures(server: clamd.Server) -> None:
    assert check(server.unix).version.startswith("ClamAV 1.")


def test_the_version_is_asked_once_a_second_and_a_clamd_with_another_one_is_tried_before_it_is_trusted(
    server: clamd.Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    with clamd.Relay(server.port) as relay:
        monkeypatch.setattr(check_module, "CURRENT_SECONDS", 3600.0)
        guest = check(relay.address)
        relay.answer, relay.after = b"ClamAV 9.9/1/today\0", b"zVERSION"
        assert (guest.version.startswith("ClamAV 1."), relay.streams) == (True, 0)

        monkeypatch.setattr(check_module, "CURRENT_SECONDS", 0.0)
        assert guest.version == "ClamAV 9.9/1/today"
        relay.answer = b"ClamAV 9.9/2/tomorrow\0"
        monkeypatch.setattr(
            check_module, "complaint", lambda scan: f"calls clean what it finds in {scan(b'')}"
        )
        with pytest.raises(ServiceAway, match="calls clean what it finds in"):
            _ = guest.version


@pytest.mark.parametrize(
    ("settings", "remedy"),
    [
        ({"AlertExceedsMax": "no"}, "set AlertExceedsMax yes"),
        ({"AlertEncrypted": "no"}, "set AlertEncrypted yes"),
        ({"ScanArchive": "no"}, "set AlertExceedsMax yes"),
        ({"StreamMaxLength": "10"}, "run freshclam"),
        ({"MaxScanSize": "11M"}, "set MaxScanSize in clamd.conf no larger than MaxFileSize"),
    ],
)
def test_a_clamd_that_calls_clean_what_it_does_not_read_is_not_used(
    site: Site, settings: dict[str, str], remedy: str
) -> None:
    server = site(**settings)

    with pytest.raises(ServiceAway) as refusal:
        check(server.unix)

    assert remedy in str(refusal.value)


def test_a_clamd_without_signatures_is_not_used(site: Site) -> None:
    server = site(virus=b"another virus")

    with pytest.raises(ServiceAway) as refusal:
        check(server.unix)

    assert "run freshclam" in str(refusal.value)


def test_heuristics_that_clamd_reports_at_once_hide_no_virus(tmp_path: Path, site: Site) -> None:
    server = site(HeuristicScanPrecedence="yes")

    found = scanned(
        server.unix, file(tmp_path, tarred(encrypted()) + tarred(eicar())), file(tmp_path, b"x", "b")
    )

    assert CheckVerdict.FINE not in [each.verdict for each in found if each.path == "deposit/a"]
    assert [each.verdict for each in found if each.path == "deposit/b"] == [CheckVerdict.FINE]


def test_the_setting_of_the_site_counts_where_the_profile_says_nothing(
    server: clamd.Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ARKLINE_CLAMD", server.tcp)

    assert ClamavCheck(ClamavSettings()).version.startswith("ClamAV")
